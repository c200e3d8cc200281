/**
 * Invariants of the manager role, in addition to `invariants.ts`.
 *
 * S32: at every version there is a manager whose desired role is manager.
 * S33: a node that is a worker in the log does not write to the log any more, not even that it is a worker.
 * S34: at rest every demoted manager's process has exited and no manager lists it; all other managers run.
 */
import { isDemoted } from "../../machines/manager/role.ts";
import { NodeRole } from "../../proto/gen/messages.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";

/** S32 and S33. */
export function checkRoles(commit: Commit, store: Store): string | null {
  const { changes, writer = "" } = commit;
  const own = store.get("node", writer);
  if (own?.role === NodeRole.WORKER && isDemoted(own))
    return `S33: ${writer}, which is a worker, wrote version ${commit.version}`;
  if (!changes.some(({ table }) => table === "node" || table === "manager")) return null;
  let demoted = 0;
  for (const { id } of store.all("manager")) {
    const node = store.get("node", id);
    if (node === undefined || !isDemoted(node)) return null;
    demoted += 1;
  }
  // Before the first manager has listed itself there is none.
  const isLast = changes.some(({ action, table }) => table === "manager" && action === "remove");
  return demoted > 0 || isLast ? `S32: at version ${commit.version} no node has the desired role manager` : null;
}

/** S34: why roles are not at rest, or null. `hasEnded`: whether the process of that host name has exited after a demotion. */
export function findUnsettledRole(store: Store, hasEnded: ReadonlyMap<string, boolean>): string | null {
  for (const node of store.all("node")) {
    const ended = hasEnded.get(node.description?.hostname ?? "");
    if (ended === undefined) continue;
    if (!isDemoted(node)) {
      if (ended) return `S34: node ${node.id} should be a manager, but its process has exited`;
      if (store.get("manager", node.id)?.alive !== true) return `S34: manager ${node.id} is not listed`;
      continue;
    }
    if (!ended) return `S34: node ${node.id} was demoted, but its process still runs`;
    if (node.role !== NodeRole.WORKER) return `S34: node ${node.id} has exited but is not a worker yet`;
    if (store.get("manager", node.id) !== undefined) return `S34: node ${node.id} is still listed as a manager`;
  }
  return null;
}
