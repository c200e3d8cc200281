/** What has failed in a rollout, each task and each slot once (U2 of the tracker), and whether that is more than may. */
import { UpdateConfig_FailureAction, type Rollout, type Task } from "../../../proto/gen/messages.ts";
import type { RolloutSettings } from "./settings.ts";
import { dueTo } from "./status.ts";

/** Ids of failed tasks that the record keeps: some 13 KiB. Older ones could be counted twice after a change of leader. */
const keptMax = 512;

export class Failures {
  readonly #tasks: Set<string>;
  #count: number;
  #slots: number;
  /** Names of the slots that failed, as far as the failed tasks that are known tell. */
  readonly #known = new Set<string>();
  #last = "";

  /** `record`: goes on from what it holds. */
  constructor(record: Rollout | null) {
    this.#count = record?.failures ?? 0;
    this.#tasks = new Set(record?.failedTasks);
    this.#slots = record?.failedSlots ?? 0;
  }

  get count(): number {
    return this.#count;
  }

  /** Why the newest ends the rollout, as UpdateStatus goes on after `update paused`. */
  get last(): string {
    return this.#last;
  }

  has(task: string): boolean {
    return this.#tasks.has(task);
  }

  /** Slots of which a task failed. */
  get slots(): number {
    return this.#slots;
  }

  /** A task that the record counts is of this slot: what fails there fails again. */
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

  /** `total`: slots of the rollout. The ratio is one of slots, as it is in Swarm, where only a slot's first new task counts. */
  areTooMany({ action, failureRatio }: RolloutSettings, total: number): boolean {
    if (action === UpdateConfig_FailureAction.CONTINUE || this.#count === 0) return false;
    // Ratios come as single-precision numbers.
    return Math.fround(this.#slots / Math.max(1, total)) > Math.fround(failureRatio);
  }

  /** For the record: the newest that the store still has; the others are forgotten. */
  kept(isStored: (task: string) => boolean): readonly string[] {
    for (const id of this.#tasks) if (!isStored(id)) this.#tasks.delete(id);
    return [...this.#tasks].slice(-keptMax);
  }
}
