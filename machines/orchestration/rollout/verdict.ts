/** What a look at a rollout's slots comes to, and how what holds it up is told. */
import { TaskState, type Task } from "../../../proto/gen/messages.ts";
import { isWanted, observedState } from "../../task.ts";

export interface Blocker {
  /** The new task, or the one before it that has not stopped. */
  readonly task: Task;
  readonly slot: string;
  readonly sinceMs: number;
  /** When it counts as failed, or when its successor waits for it no longer; null while neither is known. */
  readonly deadlineMs: number | null;
}

/** What a look came to. `nextMs`: milliseconds until something is due by itself; -1: nothing is. */
export type Verdict =
  | { readonly kind: "busy" | "delayed" | "watching"; readonly nextMs: number }
  | { readonly kind: "finished" | "stepped" }
  | { readonly kind: "choose"; readonly batch: readonly string[] }
  /** `why`: as UpdateStatus goes on after `update paused`. */
  | { readonly kind: "failed" | "expired"; readonly why: string };

/** `choose`: one batch is to be named. `batch`: only those slots may change. */
export type Admission =
  | { readonly kind: "all" }
  | { readonly kind: "choose" }
  | { readonly kind: "batch"; readonly slots: ReadonlySet<string> };

/** The task's last words: what failed, or else what it does. */
export function words({ status }: Task): string {
  return (status?.err ?? "") !== "" ? (status?.err ?? "") : (status?.message ?? "");
}

const stateNames = new Map<number, string>(Object.entries(TaskState).map(([name, number]) => [number, name]));

export function stateNameOf(task: Task): string {
  return stateNames.get(observedState(task)) ?? "";
}

/** `task x (slot 3) is PENDING: no suitable node (…)`, or `task x (slot 3), which has not stopped: RUNNING on node y` */
export function blockerText({ slot, task }: Blocker): string {
  const where = task.slot === 0 ? `node ${slot}` : `slot ${slot}`;
  if (!isWanted(task))
    return `task ${task.id} (${where}), which has not stopped: ${stateNameOf(task)} on node ${task.nodeId}`;
  const said = words(task);
  return `task ${task.id} (${where}) is ${stateNameOf(task)}${said === "" ? "" : `: ${said}`}`;
}
