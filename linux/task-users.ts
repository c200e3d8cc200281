/**
 * Chooses the machine's user for a task. Permission to create services must not imply root on every node: a task without a user
 * runs as the node's configured user, and as root only if the node allows it.
 *
 * TU1: no task whose driver uses the node's own users starts as uid 0 on a node that does not allow it.
 * TU2: nor with root's group, nor with a group of the machine that its user is not in, such as a group with access to an
 *      engine's socket or to disks, which is equivalent to root.
 */
import { isForeignGroup, userNamed, uidOf, type User } from "./user.ts";
import type { FileOwner } from "./task-home/memory-files.ts";

export interface TaskUserPolicy {
  /** User of tasks that name none; empty: the agent's own. */
  readonly fallback: string;
  readonly allowsRoot: boolean;
}

export type TaskUser =
  /** `owner` null: the agent's own user. */
  | { readonly kind: "user"; readonly name: string; readonly owner: FileOwner | null }
  | { readonly kind: "refused"; readonly reason: string };

/** `requested`: from the spec, `NAME`, `UID` or either with `:GROUP`; empty if the spec names none. */
export function taskUser(requested: string, { allowsRoot, fallback }: TaskUserPolicy): TaskUser {
  const name = requested === "" ? fallback : requested;
  try {
    if (!allowsRoot && uidOf(name) === 0)
      return {
        kind: "refused",
        reason: "this node runs no task as root: name another user with --user, or start its agent with --allow-root",
      };
    const owner = userNamed(name);
    const reason = allowsRoot || owner === null ? null : groupRefusal(name, owner);
    return reason === null ? { kind: "user", name, owner } : { kind: "refused", reason };
  } catch (error) {
    return { kind: "refused", reason: (error as Error).message };
  }
}

/** TU2: why a task may not run with these groups; null if it may. `name`: as requested. */
export function groupRefusal(name: string, { gid, groups }: User): string | null {
  if (gid === 0 || groups.includes(0))
    return `this node runs no task with root's group (${name}): name another with --user, or start its agent with --allow-root`;
  return isForeignGroup(name, gid)
    ? `user ${name.split(":")[0]} is not in group ${gid} of this node: name another with --user, or start its agent with --allow-root`
    : null;
}
