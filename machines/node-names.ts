/** What nodes are called where a hostname stands for them: a hostname that several have says nothing without the id. */
import type { Node } from "../proto/gen/messages.ts";

/** `alpha`; `alpha (ID)` where other nodes have that hostname; the id of a node that has none, or is not among them. */
export function nodeNames(nodes: Iterable<Node>): (id: string) => string {
  const byHostname = new Map<string, string[]>();
  for (const { id, description } of nodes) {
    const hostname = description?.hostname ?? "";
    const ids = byHostname.get(hostname);
    if (ids === undefined) byHostname.set(hostname, [id]);
    else ids.push(id);
  }
  const names = new Map<string, string>();
  for (const [hostname, ids] of byHostname)
    for (const id of ids) names.set(id, hostname === "" ? id : ids.length === 1 ? hostname : `${hostname} (${id})`);
  return (id) => names.get(id) ?? id;
}

/** The same, read once it is needed. */
export function lazyNodeNames(nodes: () => Iterable<Node>): (id: string) => string {
  let names: ((id: string) => string) | null = null;
  return (id) => (names ??= nodeNames(nodes()))(id);
}
