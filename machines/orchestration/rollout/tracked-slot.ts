/** A slot as a rollout's tracker knows it: one object for as long as the slot is the rollout's, shared by what keeps count of it. */
import type { Task } from "../../../proto/gen/messages.ts";
import type { SlotState } from "./slot.ts";

export interface TrackedSlot {
  readonly name: string;
  readonly slot: number;
  /** Empty but for a global service. */
  readonly nodeId: string;
  /** `empty` once it is no longer the rollout's. */
  state: SlotState;
  /** The task that the state speaks of. */
  taskId: string;
  /** Since when it runs (done), or could (changing; 0: not yet), in milliseconds since the epoch. */
  sinceMs: number;
  /** A task of the target has failed here and was tolerated. */
  hasFailed: boolean;
  /** While it waits for its turn: its task runs, so that the turn takes something away. */
  isUp: boolean;
}

/** Nothing is known of it yet. `some`: any task of it. */
export function trackedSlot(name: string, some: Task): TrackedSlot {
  const nodeId = some.slot === 0 ? some.nodeId : "";
  return { name, slot: some.slot, nodeId, state: "empty", taskId: "", sinceMs: 0, hasFailed: false, isUp: false };
}

export interface Due {
  readonly atMs: number;
  readonly slot: TrackedSlot;
  /** The task that it is about: of a later one it says nothing. */
  readonly taskId: string;
}

export function isEarlier(a: Due, b: Due): boolean {
  return a.atMs < b.atMs;
}

/** Whether it waits for its turn: what has been given up does not. */
export function isWaiting({ hasFailed, state }: TrackedSlot): boolean {
  return state === "outdated" && !hasFailed;
}
