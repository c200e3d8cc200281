/** Typed access to a checked tree. Absent values read as null or empty; invalid ones throw an error with their place. */
import type { Duration } from "../../proto/gen/messages.ts";
import { UsageError } from "../../lib/user-error.ts";
import { parseBytes, parseCpus, parsePositiveDuration } from "../values.ts";
import { child, mapping, mistake, textOf, under, type MappingNode, type Node, type Place } from "./located.ts";

const nowhere: Place = { file: "", line: 0 };

export class View {
  readonly path: string;
  readonly #node: MappingNode;

  /** `node`: a mapping, or absent. */
  constructor(node: Node | undefined, path: string) {
    this.path = path;
    this.#node = node?.kind === "mapping" ? node : mapping([], node?.at ?? nowhere);
  }

  get at(): Place {
    return this.#node.at;
  }

  get keys(): readonly string[] {
    return [...this.#node.entries.keys()].filter((key) => !key.startsWith("x-"));
  }

  has(key: string): boolean {
    const value = child(this.#node, key);
    return value !== undefined && !(value.kind === "scalar" && value.value === null);
  }

  child(key: string): View {
    return new View(child(this.#node, key), under(this.path, key));
  }

  /** The values of a mapping of mappings, by name. */
  children(key: string): ReadonlyMap<string, View> {
    const held = this.child(key);
    return new Map(held.keys.map((name) => [name, held.child(name)]));
  }

  /** The mappings of a list. */
  items(key: string): readonly View[] {
    const value = child(this.#node, key);
    const path = under(this.path, key);
    return value?.kind === "list" ? value.items.map((item, at) => new View(item, under(path, at))) : [];
  }

  text(key: string): string {
    const value = child(this.#node, key);
    return value === undefined ? "" : textOf(value);
  }

  texts(key: string): readonly string[] {
    const value = child(this.#node, key);
    return value?.kind === "list" ? value.items.map(textOf) : [];
  }

  /** Null: absent. */
  whole(key: string): number | null {
    return this.has(key) ? Number(this.text(key)) : null;
  }

  boolean(key: string): boolean | null {
    return this.has(key) ? /^true$/i.test(this.text(key)) : null;
  }

  pairs(key: string): Readonly<Record<string, string>> {
    const value = child(this.#node, key);
    if (value?.kind !== "mapping") return {};
    return Object.fromEntries([...value.entries].map(([name, entry]) => [name, textOf(entry.value)]));
  }

  /** Null values stay null. */
  variables(key: string): ReadonlyMap<string, string | null> {
    const value = child(this.#node, key);
    if (value?.kind !== "mapping") return new Map();
    const isNull = (node: Node): boolean => node.kind === "scalar" && node.value === null;
    return new Map([...value.entries].map(([name, entry]) => [name, isNull(entry.value) ? null : textOf(entry.value)]));
  }

  /** `1m30s`. */
  duration(key: string): Duration | null {
    if (!this.has(key)) return null;
    return this.read(key, () => parsePositiveDuration(inHours(this.text(key)), key), "a duration such as 10s or 1m30s");
  }

  /** `512m`, or a number of bytes. */
  bytes(key: string): number {
    return this.has(key) ? this.read(key, () => parseBytes(this.text(key), key), "a size such as 512m or 2g") : 0;
  }

  /** `0.5`, in billionths of a core. */
  cpus(key: string): number {
    return this.has(key) ? this.read(key, () => parseCpus(this.text(key), key), "a number of cores such as 0.5") : 0;
  }

  /** A file mode: octal in quotes; otherwise YAML has already parsed it (`0440` is 288). Null: absent. */
  mode(key: string): number | null {
    const value = child(this.#node, key);
    if (value?.kind !== "scalar" || value.value === null) return null;
    if (typeof value.value === "number") return value.value;
    if (!/^(?:0o)?[0-7]+$/.test(textOf(value))) {
      throw this.mistake(key, `must be an octal mode such as 0440, not '${textOf(value)}'`);
    }
    return Number.parseInt(textOf(value).replace("0o", ""), 8);
  }

  /** An error at the value of `key`, or at the whole if it is absent. */
  mistake(key: string, text: string): Error {
    return mistake(child(this.#node, key)?.at ?? this.at, key === "" ? this.path : under(this.path, key), text);
  }

  /** Runs a parser of command-line values, and adds the place to its errors. */
  read<Value>(key: string, parse: () => Value, wanted: string): Value {
    try {
      return parse();
    } catch (error) {
      if (error instanceof UsageError) throw this.mistake(key, `must be ${wanted}, not '${this.text(key)}'`);
      throw error;
    }
  }
}

/** Converts Compose's days and weeks to hours, the largest unit of Go and of our parser. */
export function inHours(text: string): string {
  return text.replaceAll(/(\d+(?:\.\d+)?)([dw])/g, (_, amount: string, unit: string) => {
    return `${Number(amount) * (unit === "d" ? 24 : 24 * 7)}h`;
  });
}
