/** Names of nodes for messages: a hostname that several nodes share is ambiguous without the id. */
import type { Node } from "../proto/gen/messages.ts";

/**
 * `alpha`; `alpha (ID)` if other nodes have that hostname; the id of a node without a hostname, or one that is not in
 * `nodes`. Nodes of the other role do not count: a manager runs no tasks, and a machine with a manager and an agent has
 * two nodes with its hostname. `among` is `all` where nodes of both roles are listed together.
 */
export function nodeNames(nodes: Iterable<Node>, among: "role" | "all" = "role"): (id: string) => string {
  const groups = new Map<string, { readonly hostname: string; readonly ids: string[] }>();
  for (const { id, description, role } of nodes) {
    const hostname = description?.hostname ?? "";
    const key = among === "role" ? `${role} ${hostname}` : hostname;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { hostname, ids: [id] });
    else group.ids.push(id);
  }
  const names = new Map<string, string>();
  for (const { hostname, ids } of groups.values())
    for (const id of ids) names.set(id, hostname === "" ? id : ids.length === 1 ? hostname : `${hostname} (${id})`);
  return (id) => names.get(id) ?? id;
}

/** Like `nodeNames`, but reads the nodes on first use. */
export function lazyNodeNames(nodes: () => Iterable<Node>): (id: string) => string {
  let names: ((id: string) => string) | null = null;
  return (id) => (names ??= nodeNames(nodes()))(id);
}
