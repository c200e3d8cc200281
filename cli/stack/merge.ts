/**
 * Merges Compose files by Compose's rules: mappings key by key; scalars are replaced; lists are appended without duplicates;
 * commands and tests are replaced; ports, volumes, secrets, configs and environment files replace those with the same key.
 * `!reset` removes a value, `!override` replaces it as a whole.
 */
import { child, textOf, withEntries, type Entry, type ListNode, type MappingNode, type Node } from "./located.ts";

/** Key of a list entry; entries with the same key replace each other. */
type KeyOf = (item: Node) => string;

function field(item: Node, key: string): string {
  const value = child(item, key);
  return value === undefined ? "" : textOf(value);
}

const keys: Readonly<Record<string, KeyOf>> = {
  "services.*.ports": (item) => ["host_ip", "published", "target", "protocol"].map((key) => field(item, key)).join("|"),
  "services.*.volumes": (item) => field(item, "target"),
  "services.*.secrets": (item) => field(item, "target") || field(item, "source"),
  "services.*.configs": (item) => field(item, "target") || field(item, "source"),
  "services.*.env_file": (item) => field(item, "path"),
  "networks.*.ipam.config": (item) => field(item, "subnet"),
  // One address per name: the later file's.
  "services.*.extra_hosts": (item) => textOf(item).split(":", 1)[0] ?? "",
};

const replaced = new Set(["services.*.command", "services.*.entrypoint", "services.*.healthcheck.test"]);

/** `services.web.ports` → `services.*.ports`. */
function patternOf(path: readonly string[]): string {
  return path.map((key, at) => (at === 1 ? "*" : key)).join(".");
}

function mergedLists(before: ListNode, after: ListNode, keyOf: KeyOf | undefined): ListNode {
  const found = new Map<string, Node>();
  let unique = 0;
  const afterKeys = new Set(after.items.map((item) => keyOf?.(item)));
  for (const [items, isLater] of [
    [before.items, false],
    [after.items, true],
  ] as const) {
    for (const item of items) {
      const key = keyOf?.(item) ?? (item.kind === "scalar" ? `${typeof item.value}:${item.value}` : "");
      // Entries of one file do not replace each other: a name may have two addresses.
      if (keyOf !== undefined && !isLater && afterKeys.has(key)) continue;
      if (keyOf === undefined && key !== "") found.set(key, found.get(key) ?? item);
      else found.set(`#${(unique += 1)}`, item);
    }
  }
  return { ...after, items: [...found.values()] };
}

function mergedMappings(before: MappingNode, after: MappingNode, path: readonly string[]): MappingNode {
  const entries = new Map<string, Entry>(before.entries);
  for (const [key, { at, value }] of after.entries) {
    const held = entries.get(key);
    const result = held === undefined ? value : mergedNodes(held.value, value, [...path, key]);
    entries.set(key, { at, value: result });
  }
  return withEntries(after, entries);
}

function isNothing(node: Node): boolean {
  return node.kind === "scalar" && node.value === null;
}

function mergedNodes(before: Node, after: Node, path: readonly string[]): Node {
  if (after.tag !== null) return after.tag === "override" ? { ...after, tag: null } : after;
  const pattern = patternOf(path);
  if (replaced.has(pattern)) return after;
  if (before.kind === "list" && after.kind === "list") return mergedLists(before, after, keys[pattern]);
  if (before.kind === "mapping" && after.kind === "mapping") {
    // Another log driver has other options.
    const isOtherDriver =
      pattern === "services.*.logging" &&
      child(after, "driver") !== undefined &&
      field(before, "driver") !== field(after, "driver");
    return isOtherDriver || /^services\.\*\.ulimits\../.test(pattern) ? after : mergedMappings(before, after, path);
  }
  // An empty `networks: {back: }` in a later file keeps the earlier value; `environment: {A: }` does not.
  if (isNothing(after) && before.kind !== "scalar") return before;
  return after;
}

/** Both trees in long form. */
export function mergedTrees(before: MappingNode, after: MappingNode): MappingNode {
  return mergedMappings(before, after, []);
}

/** Merges a service over the one that it extends. */
export function mergedService(before: MappingNode, after: MappingNode, name: string): MappingNode {
  return mergedMappings(before, after, ["services", name]);
}

/** Without values removed by `!reset`. */
export function withoutReset<Kind extends Node>(node: Kind): Kind {
  if (node.kind === "list") {
    return { ...node, tag: null, items: node.items.filter(({ tag }) => tag !== "reset").map(withoutReset) };
  }
  if (node.kind === "scalar") return { ...node, tag: null };
  const entries = [...node.entries].filter(([, { value }]) => value.tag !== "reset");
  return {
    ...node,
    tag: null,
    entries: new Map(entries.map(([key, { at, value }]) => [key, { at, value: withoutReset(value) }] as const)),
  };
}
