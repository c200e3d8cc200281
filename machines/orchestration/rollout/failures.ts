/** Counts the failures of a rollout, each task and each slot once (U2 of the tracker), and compares them with the limit. */
import { UpdateConfig_FailureAction, type Rollout, type Task } from "../../../proto/gen/messages.ts";
import type { RolloutSettings } from "./settings.ts";
import { dueTo } from "./status.ts";

/** Ids of failed tasks in the record: about 13 KiB. Older ones may be counted twice after a change of leader. */
const keptMax = 512;

export class Failures {
  readonly #tasks: Set<string>;
  #count: number;
  #slots: number;
  /** Names of failed slots, as far as they are known from the failed tasks. */
  readonly #known = new Set<string>();
  #last = "";

  /** Continues from the record. */
  constructor(record: Rollout | null) {
    this.#count = record?.failures ?? 0;
    this.#tasks = new Set(record?.failedTasks);
    this.#slots = record?.failedSlots ?? 0;
  }

  get count(): number {
    return this.#count;
  }

  /** The reason of the newest failure, as a continuation of `update paused` in UpdateStatus. */
  get last(): string {
    return this.#last;
  }

  has(task: string): boolean {
    return this.#tasks.has(task);
  }

  /** Number of slots with a failed task. */
  get slots(): number {
    return this.#slots;
  }

  /** Marks a slot that the record already counts: another failure there does not count as a new slot. */
  knowSlot(slot: string): void {
    this.#known.add(slot);
  }

  add({ id }: Task, slot: string, reason: string): void {
    this.#tasks.add(id);
    if (!this.#known.has(slot)) this.#slots += 1;
    this.#known.add(slot);
    this.#count += 1;
    this.#last = dueTo(id, reason);
  }

  /** `total`: the rollout's slots. The ratio is of slots, as in Swarm, where only a slot's first new task counts. */
  areTooMany({ action, failureRatio }: RolloutSettings, total: number): boolean {
    if (action === UpdateConfig_FailureAction.CONTINUE || this.#count === 0) return false;
    // Ratios are single-precision in the protocol.
    return Math.fround(this.#slots / Math.max(1, total)) > Math.fround(failureRatio);
  }

  /** For the record: the newest failed tasks that the store still has; the others are dropped. */
  kept(isStored: (task: string) => boolean): readonly string[] {
    for (const id of this.#tasks) if (!isStored(id)) this.#tasks.delete(id);
    return [...this.#tasks].slice(-keptMax);
  }
}
