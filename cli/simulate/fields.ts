/**
 * Reads the keys of a mapping in a file of a rehearsal. A wrong value is added to the mistakes, and reads as its default, so
 * that the rest of the file is still checked.
 */
import { durationMs } from "../../proto/time.ts";
import { parseDuration } from "../values.ts";
import { child, mistake, textOf, under, type MappingNode, type Node, type Place } from "../stack/located.ts";
import { inHours, View } from "../stack/view.ts";
import type { Mistakes } from "./mistakes.ts";

export class Fields {
  readonly at: Place;
  readonly path: string;
  readonly mistakes: Mistakes;
  readonly #node: MappingNode;
  readonly #view: View;

  /** `known`: keys that may be there, besides those that begin with `x-`; null: any. */
  constructor(node: Node, path: string, known: readonly string[] | null, mistakes: Mistakes) {
    this.at = node.at;
    this.path = path;
    this.mistakes = mistakes;
    const isNothing = node.kind === "scalar" && node.value === null;
    if (node.kind !== "mapping" && !isNothing) {
      mistakes.add(node.at, path, `must be a mapping${known === null ? "" : ` with ${known.join(", ")}`}`);
    }
    this.#node = node.kind === "mapping" ? node : { kind: "mapping", entries: new Map(), at: node.at, tag: null };
    this.#view = new View(this.#node, path);
    for (const [key, { at }] of this.#node.entries) {
      if (known === null || known.includes(key)) continue;
      if (!key.startsWith("x-")) mistakes.addUnknown(at, this.pathOf(key), key, known);
    }
  }

  get keys(): readonly string[] {
    return [...this.#node.entries.keys()];
  }

  pathOf(key: string): string {
    return under(this.path, key);
  }

  has(key: string): boolean {
    return this.#view.has(key);
  }

  /** Undefined: absent or empty. */
  node(key: string): Node | undefined {
    return this.has(key) ? child(this.#node, key) : undefined;
  }

  /** Place of a value, or of the whole if it is absent. */
  placeOf(key: string): Place {
    return child(this.#node, key)?.at ?? this.at;
  }

  add(key: string, problem: string): void {
    this.mistakes.add(this.placeOf(key), key === "" ? this.path : this.pathOf(key), problem);
  }

  /** Adds a mistake for each of these keys that is missing. */
  require(...keys: readonly string[]): void {
    for (const key of keys) if (!this.has(key)) this.mistakes.add(this.at, this.path, `requires '${key}'`);
  }

  text(key: string, otherwise = ""): string {
    const node = this.node(key);
    if (node === undefined) return otherwise;
    if (node.kind === "scalar") return textOf(node);
    this.add(key, `must be a string, not a ${node.kind}`);
    return otherwise;
  }

  /** A string, or a list of strings. */
  texts(key: string): readonly { readonly text: string; readonly at: Place; readonly path: string }[] {
    const node = this.node(key);
    if (node === undefined) return [];
    const items = node.kind === "list" ? node.items : [node];
    return items.flatMap((item, index) => {
      const path = node.kind === "list" ? under(this.pathOf(key), index) : this.pathOf(key);
      if (item.kind === "scalar" && item.value !== null) return [{ text: textOf(item), at: item.at, path }];
      this.mistakes.add(item.at, path, "must be a string");
      return [];
    });
  }

  /** The items of a list. */
  items(key: string): readonly { readonly node: Node; readonly path: string }[] {
    const node = this.node(key);
    if (node === undefined) return [];
    if (node.kind === "list") return node.items.map((item, at) => ({ node: item, path: under(this.pathOf(key), at) }));
    this.add(key, `must be a list, not a ${node.kind === "scalar" ? "single value" : "mapping"}`);
    return [];
  }

  /** A whole number within these bounds. */
  whole(key: string, otherwise: number, [min, max]: readonly [number, number]): number {
    const node = this.node(key);
    if (node === undefined) return otherwise;
    const value = node.kind === "scalar" && /^-?\d+$/.test(textOf(node)) ? Number(textOf(node)) : Number.NaN;
    if (value >= min && value <= max) return value;
    this.add(key, `must be a whole number from ${min} to ${max}, not ${shown(node)}`);
    return otherwise;
  }

  /** A probability: `2%` or 0.02. */
  probability(key: string, otherwise: number): number {
    const node = this.node(key);
    if (node === undefined) return otherwise;
    const match = /^(\d+\.?\d*(?:e-?\d+)?|\.\d+)\s*(%?)$/.exec(node.kind === "scalar" ? textOf(node) : "");
    const value = match === null ? Number.NaN : Number(match[1]) / (match[2] === "%" ? 100 : 1);
    if (value >= 0 && value <= 1) return value;
    this.add(key, `must be a share from 0% to 100%, not ${shown(node)}`);
    return otherwise;
  }

  /** A time such as `90s`, `1h30m` or `30d`, in milliseconds. */
  ms<Otherwise extends number | null>(key: string, otherwise: Otherwise, least = 0): number | Otherwise {
    if (!this.has(key)) return otherwise;
    const read = this.mistakes.attempt(() => this.#view.duration(key), null);
    const ms = read === null ? null : Math.round(durationMs(read, 0));
    if (ms === null) return otherwise;
    if (ms >= least) return ms;
    this.add(key, `must be at least ${least} ms, not ${shown(this.node(key))}`);
    return otherwise;
  }

  /** As `ms`, and may be negative. */
  signedMs(key: string): number {
    if (!this.has(key)) return 0;
    const wanted = "a time such as 30s or -5m";
    const read = (): number => Math.round(durationMs(parseDuration(inHours(this.#view.text(key)), key), 0));
    return this.mistakes.attempt(() => this.#view.read(key, read, wanted), 0);
  }

  bytes(key: string, otherwise: number): number {
    return this.has(key) ? this.mistakes.attempt(() => this.#view.bytes(key), otherwise) : otherwise;
  }

  nanoCpus(key: string, otherwise: number): number {
    return this.has(key) ? this.mistakes.attempt(() => this.#view.cpus(key), otherwise) : otherwise;
  }
}

function shown(node: Node | undefined): string {
  if (node === undefined) return "nothing";
  return node.kind === "scalar" ? `'${textOf(node)}'` : `a ${node.kind}`;
}

/** Mapping at `key` of a tree; throws Mistake for any other value. Null: absent. */
export function mappingAt(tree: MappingNode, key: string): MappingNode | null {
  const node = child(tree, key);
  if (node === undefined || (node.kind === "scalar" && node.value === null)) return null;
  if (node.kind === "mapping") return node;
  throw mistake(node.at, key, "must be a mapping");
}
