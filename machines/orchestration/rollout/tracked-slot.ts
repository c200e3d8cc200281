/** A rollout tracker's record of a slot: one shared object for as long as the slot belongs to the rollout. */
import type { Task } from "../../../proto/gen/messages.ts";
import type { SlotState } from "./slot.ts";

export interface TrackedSlot {
  readonly name: string;
  readonly slot: number;
  /** Set only for global services. */
  readonly nodeId: string;
  /** `empty` once it no longer belongs to the rollout. */
  state: SlotState;
  /** The task that the state is about. */
  taskId: string;
  /** Since when it runs (done), or could run (changing; 0: not yet), in milliseconds since the epoch. */
  sinceMs: number;
  /** A task of the target has failed here and was tolerated. */
  hasFailed: boolean;
  /** While it waits for its turn: its task runs, so replacing it interrupts something. */
  isUp: boolean;
}

/** A new record. `some`: any task of the slot. */
export function trackedSlot(name: string, some: Task): TrackedSlot {
  const nodeId = some.slot === 0 ? some.nodeId : "";
  return { name, slot: some.slot, nodeId, state: "empty", taskId: "", sinceMs: 0, hasFailed: false, isUp: false };
}

export interface Due {
  readonly atMs: number;
  readonly slot: TrackedSlot;
  /** The task that it applies to; it does not apply to later ones. */
  readonly taskId: string;
}

export function isEarlier(a: Due, b: Due): boolean {
  return a.atMs < b.atMs;
}

/** Whether it waits for its turn; slots that were given up do not. */
export function isWaiting({ hasFailed, state }: TrackedSlot): boolean {
  return state === "outdated" && !hasFailed;
}
