/**
 * Which user of the machine a task runs as. Whoever may create a service is not thereby root of every node: a task that names
 * no user runs as the node's choice, and as root only where the node allows it.
 *
 * TU1: no task whose driver uses the node's own users starts as uid 0 on a node that does not allow it.
 */
import { userNamed, uidOf } from "./user.ts";
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

/** `asked`: as a spec has it, `NAME`, `UID` or either with `:GROUP`; empty where the spec names none. */
export function taskUser(asked: string, { allowsRoot, fallback }: TaskUserPolicy): TaskUser {
  const name = asked === "" ? fallback : asked;
  try {
    if (!allowsRoot && uidOf(name) === 0)
      return {
        kind: "refused",
        reason: "this node runs no task as root: name another user with --user, or start its agent with --allow-root",
      };
    return { kind: "user", name, owner: userNamed(name) };
  } catch (error) {
    return { kind: "refused", reason: (error as Error).message };
  }
}
