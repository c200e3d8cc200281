/**
 * A Compose file as a tree in which each value knows where it was written, so that every error can name file, line and
 * key. Trees are immutable: each stage (interpolation, checking, short forms, merging) makes a new one.
 */
import { UserError } from "../user-error.ts";

export interface Place {
  /** As the user named it; `-` is standard input. */
  readonly file: string;
  /** From 1; 0 where there is no line, as with what was made up. */
  readonly line: number;
}

export type Plain = string | number | boolean | null;

/** What a later file may ask of an earlier value: `!reset` takes it away, `!override` replaces it whole. */
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
  /** Of the key. */
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

/** Pairs without a value are left out. */
export function mapping(pairs: Iterable<readonly [string, Node | undefined]>, at: Place): MappingNode {
  const entries = new Map<string, Entry>();
  for (const [key, value] of pairs) if (value !== undefined) entries.set(key, { at: value.at, value });
  return { kind: "mapping", entries, at, tag: null };
}

export function withEntries(node: MappingNode, entries: ReadonlyMap<string, Entry>): MappingNode {
  return { ...node, entries };
}

/** `node` with some values replaced; `undefined` takes one out. */
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

/** The text of a scalar: numbers and truths as they would be written. */
export function textOf(node: Node): string {
  return node.kind === "scalar" && node.value !== null ? String(node.value) : "";
}

export function placeText({ file, line }: Place): string {
  return line === 0 ? file : `${file}:${line}`;
}

/** `compose.yaml:12: services.web.ports must be …`: where, what, and what is wrong with it. */
export function mistake(at: Place, path: string, text: string): UserError {
  return new UserError(`${placeText(at)}: ${path === "" ? "" : `${path} `}${text}`);
}

/** A key beneath a path, quoted where it could be misread. */
export function under(path: string, key: string | number): string {
  if (typeof key === "number") return `${path}[${key}]`;
  const word = /^[\w-]+$/.test(key) ? key : JSON.stringify(key);
  return path === "" ? word : `${path}.${word}`;
}

/** The tree as plain values, as `stack config` prints it. */
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
