/**
 * The scheduler's rounds: follows tasks, nodes and volumes, places the tasks that wait, and retries what the ledger refused.
 *
 * A2: a task with a pending assignment is charged to its node and is in no backlog until the proposal has settled.
 */
import { timeMs } from "../../proto/time.ts";
import { TaskState, type Node, type Task, type Volume } from "../../proto/gen/messages.ts";
import type { LogTimes } from "../elapsed.ts";
import { groupKey, NodeSet } from "./node-set.ts";
import { Backlog, isWanting } from "./place.ts";
import type { Round } from "./round.ts";
import type { Tracked } from "./tracked.ts";

/**
 * Maximum explanations replaced per retry delay: with 200 ms, at most 1,000 writes a second that only update a number of nodes.
 */
const replacementsMax = 200;
const judgementsMax = 200_000;

/** The store, as far as the scheduler depends on it. */
interface SchedulerView {
  readonly times: LogTimes;
  volumes(): Iterable<Volume>;
  nodes(): Iterable<Node>;
  tasks(): Iterable<Task>;
  task(id: string): Task | undefined;
}

/** Contents of one proposal. */
export interface Proposed {
  readonly assigned: readonly Tracked[];
  /** Ids of tasks. */
  readonly explained: readonly string[];
  /** Ids. An update that lost against another writer is skipped; that other write brings the volume here again. */
  readonly volumes: readonly string[];
}

/** The wait of a task for a node. */
export type Standing =
  | { readonly kind: "proposed"; readonly nodeId: string }
  /** Until the retry delay is over. */
  | { readonly kind: "held" }
  | { readonly kind: "waiting"; readonly told: NonNullable<ReturnType<Backlog["describe"]>> };

export class SchedulerRounds {
  readonly #view: SchedulerView;
  readonly #nodes = new NodeSet();
  readonly #backlog = new Backlog(this.#nodes);
  /** Tasks whose proposal failed; the chart decides when they are retried. */
  readonly #held = new Set<string>();
  #replacements = replacementsMax;

  constructor(view: SchedulerView) {
    this.#view = view;
    for (const volume of view.volumes()) this.#nodes.volumes.put(volume);
    for (const node of view.nodes()) this.#nodes.put(node);
    for (const task of view.tasks()) {
      // No task has a record yet.
      const tracked = this.#nodes.follow(task, null);
      this.#backlog.follow(task, tracked);
      this.#recordFailure(task, null, timeMs(task.status?.timestamp ?? null));
    }
  }

  /** Number of waiting tasks. */
  get waiting(): number {
    return this.#backlog.size;
  }

  /**
   * True when a waiting task may be placed now, or a volume must be published elsewhere. A changed node requires no work
   * while no task waits.
   */
  get hasWork(): boolean {
    return this.#backlog.isAwake || this.#nodes.volumes.hasTouched;
  }

  /** Null for a task that does not wait for the scheduler. */
  standingOf(task: Task): Standing | null {
    if (!isWanting(task)) return null;
    const tracked = this.#nodes.tracked(task.id);
    if (tracked?.isPlanned === true) return { kind: "proposed", nodeId: tracked.on?.id ?? "" };
    const told = this.#backlog.describe(task);
    return told === null ? { kind: "held" } : { kind: "waiting", told };
  }

  putVolume(volume: Volume): void {
    this.#nodes.volumes.put(volume);
  }

  removeVolume(id: string): void {
    this.#nodes.volumes.remove(id);
  }

  putNode(node: Node): void {
    this.#nodes.put(node);
  }

  removeNode(id: string): void {
    this.#nodes.remove(id);
  }

  removeTask(id: string): void {
    this.#nodes.release(id);
    this.#backlog.drop(id);
  }

  /** True when the task itself is new work. `atMs`: time of the commit. */
  putTask(task: Task, old: Task | null, atMs: number): boolean {
    this.#recordFailure(task, old, atMs);
    const tracked = this.#nodes.tracked(task.id);
    // A2: the plan is kept until the assignment is in the store, or the proposal has settled without it.
    if (tracked?.isPlanned === true && task.status?.state === TaskState.PENDING) return false;
    const left = this.#nodes.follow(task, tracked);
    if (left !== null && left.on !== null) {
      // Another leader has assigned it meanwhile.
      if (left.queue !== null) this.#backlog.drop(task.id);
      return false;
    }
    return this.#held.has(task.id) ? false : this.#backlog.follow(task, left);
  }

  round(nowMs: number, operationsMax: number): Round & { readonly volumes: readonly Volume[] } {
    const round = this.#backlog.round(nowMs, { operationsMax, replacementsMax: this.#replacements, judgementsMax });
    for (const { task } of round.explanations) if ((task.status?.err ?? "") !== "") this.#replacements -= 1;
    const hasStale = round.hasStale || this.#replacements < replacementsMax;
    return { ...round, hasStale, volumes: [...this.#nodes.takeRepublished()] };
  }

  /** A2. `taken`: number of assignments in the store; `returned`: of tasks and volumes that wait for the retry delay. */
  settled(
    { assigned, explained, volumes }: Proposed,
    isCommitted: boolean,
  ): { readonly taken: number; readonly returned: number } {
    let returned = 0;
    let taken = 0;
    for (const tracked of assigned) {
      if (!tracked.isPlanned) {
        taken += 1;
        continue;
      }
      // The plan ends, and the task waits again if it still exists and is wanted.
      const { id } = tracked.task;
      const task = this.#view.task(id);
      if (task === undefined) this.#nodes.release(id);
      else this.#nodes.follow(task);
      if (task === undefined || !isWanting(task)) continue;
      this.#held.add(id);
      returned += 1;
    }
    if (!isCommitted) {
      for (const id of explained) this.#backlog.forgetReported(id);
      for (const id of volumes) this.#nodes.volumes.touch(id);
      returned += explained.length + volumes.length;
    }
    return { taken, returned };
  }

  /** After the retry delay. True when there is something to retry. */
  releaseHeld(): boolean {
    this.#replacements = replacementsMax;
    for (const id of this.#held) {
      const task = this.#view.task(id);
      if (task !== undefined) this.#backlog.follow(task);
    }
    this.#held.clear();
    return this.#backlog.size > 0 || this.#nodes.volumes.hasTouched;
  }

  /** Includes failures that an earlier leader saw: a node that keeps failing a service is avoided whoever leads. */
  #recordFailure(task: Task, old: Task | null, otherwiseAt: number): void {
    const state = task.status?.state;
    if (state !== TaskState.FAILED && state !== TaskState.REJECTED) return;
    if (task.nodeId === "" || old?.status?.state === state) return;
    // When a manager accepted the report: nodes' own clocks may be wrong.
    const appliedAt = task.status?.appliedAt ?? null;
    const at = appliedAt === null ? otherwiseAt : this.#view.times.reachedMs(task);
    this.#nodes.find(task.nodeId)?.recordFailure(groupKey(task), at);
  }
}
