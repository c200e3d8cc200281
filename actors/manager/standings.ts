/**
 * The standing of nodes and users according to this manager's replica: which certificates are refused, which nodes are not
 * managers whatever their certificate says, and what a user may do. Each manager decides by its own replica, in the turn in
 * which it applies a commit.
 */
import { NodeRole, type User } from "../../proto/gen/messages.ts";
import type { Subscription } from "../../runtime/ports/index.ts";
import type { ObjectChange, Store } from "../../runtime/store/store.ts";
import type { Role } from "../../runtime/user-roles.ts";
import type { Running } from "../environment.ts";
import { certifiedRole, passwordMark } from "../json/user-records.ts";

export interface Standings extends Running {
  /** The cluster's id; empty while there is none. */
  organization(): string;
  /** Whether the node was removed: its certificate is then refused. */
  isRemoved(nodeId: string): boolean;
  /**
   * Whether the node is not a manager, whatever its certificate says: a worker, or unknown to the log. No node gets a
   * certificate before the log has its node, so an unknown one joined in records that were lost, or this replica lags for a
   * moment; such a manager tries again.
   */
  isDemoted(nodeId: string): boolean;
  /** The role of a user with a certificate of that mark; null when the mark is no longer valid. */
  userRole(name: string, mark: string): Role | null;
  /**
   * Calls the listener with the ids of nodes that were removed or changed their role, and of users' records (`user-NAME`) that
   * were removed, disabled or enabled, or changed their role or password.
   */
  onChange(listener: (ids: readonly string[]) => void): Subscription;
}

/** Ids whose standing the change may affect. */
function concerned(change: ObjectChange): readonly string[] {
  if (change.table === "node")
    return change.action === "remove" || change.old?.role !== change.object.role ? [change.object.id] : [];
  if (change.table === "user") return isOtherUser(change.old, change.object, change.action) ? [change.object.id] : [];
  if (change.table !== "cluster") return [];
  const before = change.old?.blacklistedCertificates ?? {};
  const after = change.object.blacklistedCertificates;
  if (before === after) return [];
  return [
    ...Object.keys(after).filter((id) => !Object.hasOwn(before, id)),
    ...Object.keys(before).filter((id) => !Object.hasOwn(after, id)),
  ];
}

/** A login also writes the record, but does not affect standings. */
function isOtherUser(old: User | null, now: User, action: ObjectChange["action"]): boolean {
  if (action === "remove" || old === null) return true;
  return old.role !== now.role || old.disabled !== now.disabled || passwordMark(old) !== passwordMark(now);
}

export function watchStandings(store: Store): Standings {
  const listeners = new Set<(ids: readonly string[]) => void>();
  const watching = store.watch(({ changes }) => {
    const ids = new Set<string>();
    for (const change of changes) for (const id of concerned(change)) ids.add(id);
    if (ids.size > 0) for (const listener of listeners) listener([...ids]);
  });
  return {
    organization: () => {
      for (const { id } of store.all("cluster")) return id;
      return "";
    },
    isRemoved: (nodeId) => {
      for (const { blacklistedCertificates } of store.all("cluster"))
        if (Object.hasOwn(blacklistedCertificates, nodeId)) return true;
      return false;
    },
    isDemoted: (nodeId) => store.get("node", nodeId)?.role !== NodeRole.MANAGER,
    userRole: (name, mark) => certifiedRole(store, name, mark),
    onChange: (listener) => {
      listeners.add(listener);
      return { unsubscribe: () => listeners.delete(listener) };
    },
    stop: () => watching.unsubscribe(),
  };
}
