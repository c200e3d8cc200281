/** The result of evaluating a rollout's slots, and the texts about what blocks it. */
import { RolloutStep, type Rollout, type Task } from "../../../proto/gen/messages.ts";
import { isWanted, observedState, stateNames } from "../../task.ts";

export interface Blocker {
  /** The new task, or its predecessor that has not stopped. */
  readonly task: Task;
  readonly slot: string;
  readonly sinceMs: number;
  /** When it counts as failed, or when its successor stops waiting for it; null while unknown. */
  readonly deadlineMs: number | null;
}

/** `nextMs`: milliseconds until the next timed event; -1: none. */
export type Verdict =
  | { readonly kind: "busy" | "delayed" | "watching"; readonly nextMs: number }
  | { readonly kind: "finished" | "stepped" }
  | { readonly kind: "choose"; readonly batch: readonly string[] }
  /** `why`: continues `update paused` in UpdateStatus. */
  | { readonly kind: "failed" | "expired"; readonly why: string };

/** `choose`: choose one batch. `batch`: only these slots may change. */
export type Admission =
  | { readonly kind: "all" }
  | { readonly kind: "choose" }
  | { readonly kind: "batch"; readonly slots: ReadonlySet<string> };

export function admissionOf({ batch, step }: Rollout): Admission {
  switch (step) {
    case RolloutStep.ROLLOUT_STEP_ASKED:
      return { kind: "choose" };
    case RolloutStep.ROLLOUT_STEP_CHOSEN:
      return { kind: "batch", slots: new Set(batch) };
    default:
      return { kind: "all" };
  }
}

/** The task's error, or else its status message. */
export function words({ status }: Task): string {
  return (status?.err ?? "") !== "" ? (status?.err ?? "") : (status?.message ?? "");
}

export function stateNameOf(task: Task): string {
  return stateNames.get(observedState(task)) ?? "";
}

/** `task x (slot 3), PENDING: no suitable node (…)`, or `task x (slot 3), which has not stopped: RUNNING on node y` */
export function blockerText({ slot, task }: Blocker): string {
  const where = task.slot === 0 ? `node ${slot}` : `slot ${slot}`;
  if (!isWanted(task))
    return `task ${task.id} (${where}), which has not stopped: ${stateNameOf(task)} on node ${task.nodeId}`;
  const said = words(task);
  return `task ${task.id} (${where}), ${stateNameOf(task)}${said === "" ? "" : `: ${said}`}`;
}
