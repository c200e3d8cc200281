/**
 * A Compose file as a tree whose values have their places, so that every error can name file, line and key. Trees are
 * immutable: each stage (interpolation, checking, short forms, merging) creates a new one.
 */
import { UserError } from "../../lib/user-error.ts";

export interface Place {
  /** As given by the user; `-` is standard input. */
  readonly file: string;
  /** From 1; 0 for generated values. */
  readonly line: number;
  /** From 1. */
  readonly column?: number;
}

type Plain = string | number | boolean | null;

/** How a later file changes an earlier value: `!reset` removes it, `!override` replaces it as a whole. */
export type MergeTag = "reset" | "override" | null;

export interface ScalarNode {
  readonly kind: "scalar";
  readonly value: Plain;
  readonly at: Place;
  readonly tag: MergeTag;
}

export interface ListNode {
  readonly kind: "list";
  readonly items: readonly Node[];
  readonly at: Place;
  readonly tag: MergeTag;
}

export interface MappingNode {
  readonly kind: "mapping";
  readonly entries: ReadonlyMap<string, Entry>;
  readonly at: Place;
  readonly tag: MergeTag;
}

export interface Entry {
  /** Place of the key. */
  readonly at: Place;
  readonly value: Node;
}

export type Node = ScalarNode | ListNode | MappingNode;

export function scalar(value: Plain, at: Place): ScalarNode {
  return { kind: "scalar", value, at, tag: null };
}

export function list(items: readonly Node[], at: Place): ListNode {
  return { kind: "list", items, at, tag: null };
}

/** Omits pairs without a value. */
export function mapping(pairs: Iterable<readonly [string, Node | undefined]>, at: Place): MappingNode {
  const entries = new Map<string, Entry>();
  for (const [key, value] of pairs) if (value !== undefined) entries.set(key, { at: value.at, value });
  return { kind: "mapping", entries, at, tag: null };
}

export function withEntries(node: MappingNode, entries: ReadonlyMap<string, Entry>): MappingNode {
  return { ...node, entries };
}

/** Replaces some values of `node`; `undefined` removes one. */
export function withValues(node: MappingNode, values: Readonly<Record<string, Node | undefined>>): MappingNode {
  const entries = new Map(node.entries);
  for (const [key, value] of Object.entries(values)) {
    if (value === undefined) entries.delete(key);
    else entries.set(key, { at: entries.get(key)?.at ?? value.at, value });
  }
  return withEntries(node, entries);
}

export function child(node: Node | undefined, key: string): Node | undefined {
  return node?.kind === "mapping" ? node.entries.get(key)?.value : undefined;
}

/** The text of a scalar, including numbers and booleans. */
export function textOf(node: Node): string {
  return node.kind === "scalar" && node.value !== null ? String(node.value) : "";
}

export function placeText({ file, line }: Place): string {
  return line === 0 ? file : `${file}:${line}`;
}

/** A mistake at a place of a file. Its message is such as `compose.yaml:12: services.web.ports must be …`. */
export class Mistake extends UserError {
  readonly at: Place;
  /** Key that is wrong; empty: the whole file. */
  readonly path: string;
  /** Continues a sentence that begins with the key. */
  readonly problem: string;
  constructor(at: Place, path: string, problem: string, options?: ErrorOptions) {
    super(`${placeText(at)}: ${path === "" ? "" : `${path} `}${problem}`, options);
    this.at = at;
    this.path = path;
    this.problem = problem;
  }
}

export function mistake(at: Place, path: string, problem: string): Mistake {
  return new Mistake(at, path, problem);
}

/** A key below a path, quoted where ambiguous. */
export function under(path: string, key: string | number): string {
  if (typeof key === "number") return `${path}[${key}]`;
  const word = /^[\w-]+$/.test(key) ? key : JSON.stringify(key);
  return path === "" ? word : `${path}.${word}`;
}

/** The tree as plain values, for `stack config`. */
export function plainOf(node: Node): unknown {
  switch (node.kind) {
    case "scalar":
      return node.value;
    case "list":
      return node.items.map(plainOf);
    case "mapping":
      return Object.fromEntries([...node.entries].map(([key, { value }]) => [key, plainOf(value)]));
  }
}
