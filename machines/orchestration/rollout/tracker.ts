/**
 * Tracks a rollout's slots. It gets single task changes and re-evaluates only the affected slots, so a report costs the same in
 * a service of 20 or 20,000 tasks. The state can be rebuilt from the stored tasks and the record, which a new leader does.
 *
 * U1: at most `parallelism` slots change at the same time. Slots without a running task come first, then the others, in
 *     ascending order. A slot whose new task has failed within the failure ratio no longer counts.
 * U2: each task of the target that ends by itself before it ran for `monitor`, or does not run within the progress
 *     deadline, is one failure; successors created by the restart supervisor count, too, and none counts twice.
 * U3: only slots that had a task with another spec belong to the rollout: tasks added by scaling neither delay nor fail it.
 * U4: a task that ended without a leader counts as failed if it may have ended early. A task with a successor does not:
 *     the leader that created the successor had seen the end, and counted it if it was early.
 */
import { Rollout, TaskState, type Service, type Task } from "../../../proto/gen/messages.ts";
import { assert } from "../../../lib/assert.ts";
import type { LogTimes } from "../../elapsed.ts";
import { isEnded, isRunning, isWanted, observedState, specVersionOf } from "../../task.ts";
import type { TaskDirty } from "../task-dirty.ts";
import { releaseOf, restartDelayMsOf, stopWaitMs, type NodeOf } from "../restart.machine.ts";
import type { RolloutDescription } from "./explain.ts";
import { Failures } from "./failures.ts";
import { goDurationText } from "../../../lib/go-duration.ts";
import type { RolloutSettings, RolloutWork } from "./settings.ts";
import { deadlineMs, factsOf, freeSinceMs, isFailure, slotName, type SlotFacts, type SlotWorld } from "./slot.ts";
import { SlotsUnderWay } from "./slots-under-way.ts";
import { basisOf } from "./status.ts";
import { isWaiting, trackedSlot, type TrackedSlot } from "./tracked-slot.ts";
import { TurnQueue } from "./turn-queue.ts";
import { blockerText, words, type Admission, type Blocker, type Verdict } from "./verdict.ts";

/** A task blocks the rollout if it does not run within this time after it could, in milliseconds; most run within seconds. */
const noticeMs = 10_000;
/** How often the reason of a blocking task is re-evaluated, in milliseconds: as often as it may be reported. */
const noticeAgainMs = 30_000;

interface TrackerOptions {
  readonly service: Service;
  readonly settings: RolloutSettings;
  /** Null until the rollout has started. */
  readonly record: Rollout | null;
  readonly times: LogTimes;
  readonly taskDirty: TaskDirty;
  readonly nodeOf: NodeOf;
  /** All tasks of the slot, oldest first. */
  readonly tasksAt: (slot: number, nodeId: string) => readonly Task[];
}

export class RolloutTracker {
  #options: TrackerOptions;
  #basis: string;
  readonly #world: SlotWorld;
  readonly #slots = new Map<string, TrackedSlot>();
  readonly #queue = new TurnQueue();
  readonly #underWay = new SlotsUnderWay();
  readonly #failures: Failures;
  /** Slots to re-evaluate, by name, with any task of each. */
  readonly #dirty = new Map<string, Task>();
  readonly #ends: Task[] = [];
  /** See takeTurns. */
  #turns: string[] = [];
  #outdated = 0;
  #watchedUntilMs = 0;

  /** `tasks`: all tasks of the service. */
  constructor(options: TrackerOptions, tasks: Iterable<Task>, nowMs: number) {
    this.#options = options;
    this.#basis = basisOf(options.service, options.record);
    this.#world = { service: options.service, taskDirty: options.taskDirty, nodeOf: options.nodeOf };
    this.#failures = new Failures(options.record);
    for (const [name, slot] of Map.groupBy(tasks, slotName)) this.#load(name, slot, nowMs);
  }

  /** Whether its slots change to this version of the service. */
  isFor(service: Service): boolean {
    return specVersionOf(this.#options.service) === specVersionOf(service);
  }

  /** False if another tracker must be built: for another spec, start of the rollout, or part of it that may proceed. */
  follow(service: Service, record: Rollout | null): boolean {
    const basis = basisOf(service, record);
    if (this.#basis === basis) return true;
    if (record?.failures !== 0 || this.#basis !== basisOf(service, null)) return false;
    // The rollout has started with the state found here, so slots need no re-evaluation.
    assert(this.#options.record === null, "U2: a rollout starts once, and nothing was counted before");
    this.#options = { ...this.#options, record };
    this.#basis = basis;
    return true;
  }

  /** The start of its failure count and of its waits; 0 before it has started. */
  get #countedMs(): number {
    const { record } = this.#options;
    return record === null ? 0 : this.#options.times.countedMs(record);
  }

  get failures(): number {
    return this.#failures.count;
  }

  /** Slots that wait for their turn or have just got it, without those that were given up. */
  get outdated(): number {
    return this.#outdated;
  }

  /** The work at the start of the rollout. */
  work(): RolloutWork {
    let waitMsMax = 0;
    for (const { nodeId, slot } of this.#slots.values()) {
      for (const task of this.#options.tasksAt(slot, nodeId))
        if (!isEnded(observedState(task))) waitMsMax = Math.max(waitMsMax, stopWaitMs(task), restartDelayMsOf(task));
    }
    return { slots: this.#outdated, waitMsMax };
  }

  /** Number of changing slots. */
  get changing(): number {
    return this.#underWay.size;
  }

  mayReplace(slot: string): boolean {
    return this.#queue.has(slot);
  }

  /** The record with the present counts, and the newest failed tasks that are still stored. */
  counted(record: Rollout, isStored: (id: string) => boolean): Rollout {
    const { count: failures, slots: failedSlots } = this.#failures;
    return Rollout.patch(record, { failures, failedSlots, failedTasks: this.#failures.kept(isStored) });
  }

  /** Returns whether the change can matter; most reports are only steps towards RUNNING. */
  note(old: Task | null, task: Task | null): boolean {
    const some = (task ?? old) as Task;
    if (old !== null && task !== null) {
      const [before, state] = [observedState(old), observedState(task)];
      const crosses = before !== state && state >= TaskState.RUNNING;
      if (!crosses && old.desiredState === task.desiredState && old.nodeId === task.nodeId) return false;
      if (crosses && isEnded(state) && isWanted(old)) this.#ends.push(task);
    }
    this.#dirty.set(slotName(some), some);
    return true;
  }

  /** Notes a change of a node, which affects whether a global service's slots there may change. */
  noteNode(tasks: Iterable<Task>): boolean {
    let hasAny = false;
    for (const task of tasks) {
      if (task.serviceId !== this.#options.service.id) continue;
      this.#dirty.set(slotName(task), task);
      hasAny = true;
    }
    return hasAny;
  }

  /** Slots to process: those whose turn has come, and pairs of which one task is no longer needed. */
  takeTurns(): readonly string[] {
    const turns = this.#turns;
    this.#turns = [];
    return turns;
  }

  look(nowMs: number, admission: Admission): Verdict {
    this.#catchUp(nowMs);
    const { record, settings } = this.#options;
    if (this.#failures.areTooMany(settings, record?.total ?? 0)) return { kind: "failed", why: this.#failures.last };
    const remainingMs = record === null ? Number.POSITIVE_INFINITY : deadlineMs(record, this.#options.times) - nowMs;
    if (remainingMs <= 0 && this.#outdated + this.#underWay.size > 0)
      return { kind: "expired", why: this.#expiry(nowMs) };
    if (admission.kind === "choose" && this.#outdated > 0)
      return { kind: "choose", batch: this.#queue.first(settings.parallelism) };
    this.#admit(admission.kind === "batch" ? admission.slots : null);
    const isStepped = admission.kind === "batch" && this.#outdated > 0 && this.#isBatchOver(admission.slots);
    if (isStepped || (this.#outdated === 0 && this.#underWay.size === 0)) {
      if (this.#watchedUntilMs <= nowMs) return { kind: isStepped ? "stepped" : "finished" };
      return { kind: "watching", nextMs: Math.ceil(this.#watchedUntilMs - nowMs) };
    }
    const isDelayed = this.#underWay.size + this.#queue.admitted === 0 && this.#queue.resting > 0;
    return { kind: isDelayed ? "delayed" : "busy", nextMs: this.#nextMs(nowMs, remainingMs) };
  }

  /** The slots of a step that begins now; none if it need not, or may not, begin. */
  nextBatch(nowMs: number): readonly string[] {
    const verdict = this.look(nowMs, { kind: "choose" });
    return verdict.kind === "choose" ? verdict.batch : [];
  }

  /** The task that has blocked the rollout for the longest time; null before `noticeMs`. */
  blocker(nowMs: number): Blocker | null {
    const [first] = this.#holding(nowMs);
    return first === undefined || nowMs - first.sinceMs < noticeMs ? null : first;
  }

  /** The changing slots with the next deadline and with the earliest start, longest-waiting first. */
  #holding(nowMs: number): readonly Blocker[] {
    const slots = new Set([this.#underWay.firstDeadline()?.slot, this.#underWay.first()]);
    const blockers = [...slots].map((slot) => (slot === undefined ? null : this.#blockerOf(slot, nowMs)));
    return blockers.filter((one) => one !== null).sort((a, b) => a.sinceMs - b.sinceMs);
  }

  describe(nowMs: number): RolloutDescription {
    this.#catchUp(nowMs);
    let [done, failed] = [0, 0];
    const blocking: TrackedSlot[] = [];
    for (const entry of this.#slots.values()) {
      if (entry.hasFailed && entry.state !== "done") failed += 1;
      else if (entry.state === "done") done += 1;
      if (entry.state === "changing") blocking.push(entry);
    }
    const blockers = blocking
      .map((entry) => this.#blockerOf(entry, nowMs))
      .filter((one) => one !== null)
      .sort((a, b) => a.sinceMs - b.sinceMs);
    return { waiting: this.#outdated, changing: this.#underWay.size, done, failed, blockers };
  }

  #load(name: string, tasks: readonly Task[], nowMs: number): void {
    const facts = factsOf(tasks, this.#world);
    const [any] = tasks;
    // U3
    if (!facts.isPart || any === undefined) return;
    const entry = this.#enter(name, any);
    if (this.#options.record !== null) for (const task of tasks) this.#countMissed(entry, task, task === tasks.at(-1));
    if (facts.isGivenUp && this.#failures.has(tasks.at(-1)?.id ?? "") && this.#failures.count > 0)
      entry.hasFailed = true;
    this.#place(entry, facts, tasks, nowMs, true);
  }

  #enter(name: string, some: Task): TrackedSlot {
    const entry = trackedSlot(name, some);
    this.#slots.set(name, entry);
    return entry;
  }

  /** U4 */
  #countMissed(entry: TrackedSlot, task: Task, isNewest: boolean): void {
    const { record, service, settings } = this.#options;
    if (this.#failures.has(task.id)) {
      // A resumed rollout counts only failures after its resumption.
      const isSince = !isEnded(observedState(task)) || this.#options.times.reachedMs(task) >= this.#countedMs;
      if (isSince && this.#failures.slots > 0) this.#failures.knowSlot(entry.name);
      entry.hasFailed = (record?.failures ?? 0) > 0;
      return;
    }
    if (!isNewest || !isFailure(task)) return;
    if (this.#world.taskDirty.isDirty(task, service, this.#world.nodeOf)) return;
    const endedMs = this.#options.times.reachedMs(task);
    if (endedMs < this.#countedMs) return;
    // A task that ended later had run long enough, or was counted at its deadline.
    if (endedMs - this.#options.times.madeMs(task) > settings.progressMs + settings.monitorMs) return;
    this.#count(entry, task, words(task), endedMs);
  }

  #catchUp(nowMs: number): void {
    for (const task of this.#ends.splice(0)) this.#noteEnd(task, nowMs);
    for (const [name, task] of this.#dirty) this.#refresh(name, task, nowMs);
    this.#dirty.clear();
    for (let due = this.#underWay.takeDue(nowMs); due !== undefined; due = this.#underWay.takeDue(nowMs)) {
      const task = this.#blockerOf(due.slot, nowMs)?.task;
      if (task === undefined) continue;
      const reason = words(task);
      const late = `it did not run within ${goDurationText(this.#options.settings.progressMs)}`;
      this.#count(due.slot, task, reason === "" ? late : `${late}: ${reason}`, nowMs);
    }
    this.#queue.endRests(nowMs);
  }

  /** U2 */
  #noteEnd(task: Task, nowMs: number): void {
    const entry = this.#slots.get(slotName(task));
    const { service, settings } = this.#options;
    if (entry === undefined || !isFailure(task) || this.#failures.has(task.id)) return;
    if (this.#world.taskDirty.isDirty(task, service, this.#world.nodeOf)) return;
    const ranFor = entry.state === "done" && entry.taskId === task.id ? nowMs - entry.sinceMs : 0;
    if (ranFor <= settings.monitorMs) this.#count(entry, task, words(task), nowMs);
  }

  #count(entry: TrackedSlot, task: Task, reason: string, atMs: number): void {
    // Monitor its successor, too, but do not monitor a slot that keeps failing forever.
    if (!entry.hasFailed) {
      this.#watchedUntilMs = Math.max(this.#watchedUntilMs, atMs + this.#options.settings.monitorMs);
    }
    this.#failures.add(task, entry.name, reason);
    if (entry.state === "outdated" && !entry.hasFailed) this.#outdated -= 1;
    entry.hasFailed = true;
    this.#underWay.delete(entry);
  }

  #refresh(name: string, some: Task, nowMs: number): void {
    const tasks = this.#options.tasksAt(some.slot, some.nodeId);
    const facts = factsOf(tasks, this.#world);
    let entry = this.#slots.get(name);
    if (entry === undefined) {
      if (!facts.isPart) return;
      entry = this.#enter(name, some);
    }
    this.#place(entry, facts, tasks, nowMs, false);
  }

  /** `isLoading`: use the stored times instead of the current time. */
  #place(entry: TrackedSlot, facts: SlotFacts, tasks: readonly Task[], nowMs: number, isLoading: boolean): void {
    const taskId = facts.task?.id ?? "";
    const before = entry.state;
    const isSame = before === facts.state && entry.taskId === taskId;
    if (before === "outdated" && !entry.hasFailed) this.#outdated -= 1;
    entry.state = facts.state;
    entry.taskId = taskId;
    if (facts.state !== "outdated") this.#queue.leave(entry);
    // Given up, unless the restart supervisor retries it: then it has a new task and is not outdated.
    if (facts.state === "outdated" && before !== "outdated" && !facts.isGivenUp) entry.hasFailed &&= isLoading;
    switch (facts.state) {
      case "outdated": {
        if (entry.hasFailed) break;
        this.#outdated += 1;
        const isUp = isRunning(facts.task as Task);
        const isMoved = entry.isUp !== isUp;
        entry.isUp = isUp;
        if (before !== "outdated" || isMoved) this.#queue.enter(entry);
        break;
      }
      case "changing":
        this.#setOut(entry, facts.task as Task, tasks, nowMs, isLoading, isSame);
        break;
      case "done":
        if (facts.isPair) this.#turns.push(entry.name);
        if (!isSame) this.#arrive(entry, facts.task as Task, nowMs, isLoading);
        break;
      case "ended":
      case "deferred":
        break;
      case "empty":
        this.#slots.delete(entry.name);
    }
    if (facts.state !== "changing") this.#underWay.delete(entry);
    if (facts.state !== "done") this.#queue.endRest(entry);
  }

  #setOut(
    entry: TrackedSlot,
    task: Task,
    tasks: readonly Task[],
    nowMs: number,
    isLoading: boolean,
    isSame: boolean,
  ): void {
    if (!entry.hasFailed) this.#underWay.add(entry);
    // The progress deadline does not run while the task waits for its predecessor.
    const isFree = task.desiredState === TaskState.RUNNING;
    if (!isFree || (isSame && entry.sinceMs > 0)) {
      if (!isFree) entry.sinceMs = 0;
      return;
    }
    const freeMs = Math.max(freeSinceMs(task, tasks, this.#options.times), this.#countedMs);
    entry.sinceMs = isLoading ? Math.min(freeMs, nowMs) : nowMs;
    if (entry.hasFailed) return;
    this.#underWay.expect(entry, entry.sinceMs + this.#options.settings.progressMs);
  }

  #arrive(entry: TrackedSlot, task: Task, nowMs: number, isLoading: boolean): void {
    const { delayMs, monitorMs } = this.#options.settings;
    entry.hasFailed = false;
    // A clock that was ahead must not prolong the wait.
    entry.sinceMs = isLoading ? Math.min(this.#options.times.reachedMs(task), nowMs) : nowMs;
    this.#watchedUntilMs = Math.max(this.#watchedUntilMs, entry.sinceMs + monitorMs);
    const untilMs = entry.sinceMs + delayMs;
    if (untilMs > nowMs) this.#queue.rest(entry, untilMs);
  }

  /** U1. `batch`: an operator controls the pace, so delays do not apply. */
  #admit(batch: ReadonlySet<string> | null): void {
    const resting = batch === null ? this.#queue.resting : 0;
    const capacity = this.#options.settings.parallelism - this.#underWay.size - this.#queue.admitted - resting;
    this.#turns.push(...this.#queue.admit(capacity, batch));
  }

  #isBatchOver(batch: ReadonlySet<string>): boolean {
    if (this.#underWay.size > 0) return false;
    for (const name of batch) {
      const entry = this.#slots.get(name);
      if (entry !== undefined && isWaiting(entry)) return false;
    }
    return true;
  }

  #nextMs(nowMs: number, remainingMs: number): number {
    let nextMs = remainingMs;
    const due = this.#underWay.firstDeadline();
    if (due !== undefined) {
      nextMs = Math.min(nextMs, due.atMs - nowMs);
    }
    for (const { sinceMs } of this.#holding(nowMs)) {
      const noticeInMs = sinceMs + noticeMs - nowMs;
      nextMs = Math.min(nextMs, noticeInMs > 0 ? noticeInMs : noticeAgainMs);
    }
    const restMs = this.#queue.firstRestMs();
    if (restMs !== null) nextMs = Math.min(nextMs, restMs - nowMs);
    return Number.isFinite(nextMs) ? Math.max(0, Math.ceil(nextMs)) : -1;
  }

  #blockerOf(entry: TrackedSlot, nowMs: number): Blocker | null {
    const tasks = this.#options.tasksAt(entry.slot, entry.nodeId);
    const task = tasks.find(({ id }) => id === entry.taskId);
    if (task === undefined) return null;
    const isFree = entry.sinceMs > 0;
    const release = isFree ? null : releaseOf(task, tasks, nowMs, this.#world.nodeOf, this.#options.times);
    if (release?.kind === "wait" && release.cause === "predecessor") {
      const sinceMs = this.#options.times.madeMs(task);
      return { task: release.task, slot: entry.name, sinceMs, deadlineMs: release.untilMs };
    }
    return {
      task,
      slot: entry.name,
      sinceMs: isFree ? entry.sinceMs : this.#options.times.madeMs(task),
      deadlineMs: isFree ? entry.sinceMs + this.#options.settings.progressMs : null,
    };
  }

  #expiry(nowMs: number): string {
    const first = this.#underWay.first();
    const blocker = first === undefined ? null : this.#blockerOf(first, nowMs);
    const held = blocker === null ? "" : `; ${blockerText(blocker)}`;
    return `: its deadline has passed with ${this.#outdated} slots remaining${held}`;
  }
}
