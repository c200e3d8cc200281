/**
 * A rollout's slots as it goes on. Fed with single changes of tasks, it looks again only at the slots that these touch:
 * a report costs the same in a service of twenty tasks and of twenty thousand. All of it can be made anew from the stored
 * tasks and the record, which is what a new leader does.
 *
 * U1: at most `parallelism` slots are on their way at once. Slots in which nothing runs are taken before those that run,
 *     and these in ascending order. A slot whose new task has failed, which the failure ratio allows, no longer counts.
 * U2: each task of the target that ends by itself before it ran for `monitor`, or does not run within the progress
 *     deadline, is one failure; successors that the restart supervisor makes count as well, and none counts twice.
 * U3: only slots that had a task of another spec are the rollout's: what scaling adds neither holds it up nor fails it.
 * U4: of what ended while nobody led, what may have ended early counts as failed. What is followed by another task did
 *     not: who made that one had seen the end, and counted it if it was early.
 */
import { TaskState, type Rollout, type Service, type Task } from "../../../proto/gen/messages.ts";
import { assert } from "../../../runtime/assert.ts";
import { stampedTimes, type LogTimes } from "../../elapsed.ts";
import { isEnded, isWanted, observedState } from "../../task.ts";
import type { TaskDirty } from "../task-dirty.ts";
import { releaseOf, restartDelayMsOf, stopWaitMs, type NodeOf } from "../restart.ts";
import type { RolloutDescription } from "./explain.ts";
import { Failures } from "./failures.ts";
import { shownMs, type RolloutSettings, type RolloutWork } from "./settings.ts";
import { deadlineMs, factsOf, freeSinceMs, isFailure, slotName, type SlotFacts, type SlotWorld } from "./slot.ts";
import { SlotsUnderWay } from "./slots-under-way.ts";
import { isWaiting, trackedSlot, type TrackedSlot } from "./tracked-slot.ts";
import { TurnQueue } from "./turn-queue.ts";
import { blockerText, words, type Admission, type Blocker, type Verdict } from "./verdict.ts";

/** A task holds the rollout up when it has not run so long after it could, in milliseconds: most do within seconds. */
const noticeMs = 10_000;
/** While a task holds it up, how often is looked what it waits for now, in milliseconds: as often as that may be told. */
const noticeAgainMs = 30_000;

export interface TrackerOptions {
  readonly service: Service;
  readonly settings: RolloutSettings;
  /** Null while the rollout has not begun. */
  readonly record: Rollout | null;
  /** Absent: the log's own times are taken at their word. */
  readonly times?: LogTimes;
  readonly taskDirty: TaskDirty;
  readonly nodeOf: NodeOf;
  /** All tasks of the slot, in the order in which they were made. */
  readonly tasksAt: (slot: number, nodeId: string) => readonly Task[];
}

export class RolloutTracker {
  #options: TrackerOptions;
  readonly #world: SlotWorld;
  readonly #slots = new Map<string, TrackedSlot>();
  readonly #queue = new TurnQueue();
  readonly #underWay = new SlotsUnderWay();
  readonly #failures: Failures;
  /** By the slot's name: any task of it. */
  readonly #dirty = new Map<string, Task>();
  readonly #ends: Task[] = [];
  /** Slots to be tended: see takeTurns. */
  #turns: string[] = [];
  #outdated = 0;
  #watchedUntilMs = 0;

  /** `tasks`: all of the service's. */
  constructor(options: TrackerOptions, tasks: Iterable<Task>, nowMs: number) {
    this.#options = options;
    this.#world = { service: options.service, taskDirty: options.taskDirty, nodeOf: options.nodeOf };
    this.#failures = new Failures(options.record);
    for (const [name, slot] of Map.groupBy(tasks, slotName)) this.#load(name, slot, nowMs);
  }

  /** The rollout has begun with what was found here: slots need not be looked at anew. */
  begin(record: Rollout): void {
    assert(this.#options.record === null, "U2: a rollout begins once, and nothing was counted before");
    this.#options = { ...this.#options, record };
  }

  get #times(): LogTimes {
    return this.#options.times ?? stampedTimes;
  }

  /** Since when its failures count, and waits of it run at the earliest; 0 before it has begun. */
  get #countedMs(): number {
    const { record } = this.#options;
    return record === null ? 0 : this.#times.countedMs(record);
  }

  get failures(): number {
    return this.#failures.count;
  }

  get failedSlots(): number {
    return this.#failures.slots;
  }

  /** Slots whose turn has not come or has just come, without those that were given up. */
  get outdated(): number {
    return this.#outdated;
  }

  /** What there is to do, when the rollout begins. */
  work(): RolloutWork {
    let waitMsMax = 0;
    for (const { nodeId, slot } of this.#slots.values()) {
      for (const task of this.#options.tasksAt(slot, nodeId))
        if (!isEnded(observedState(task))) waitMsMax = Math.max(waitMsMax, stopWaitMs(task), restartDelayMsOf(task));
    }
    return { slots: this.#outdated, waitMsMax };
  }

  /** Slots whose new task is on its way. */
  get changing(): number {
    return this.#underWay.size;
  }

  mayReplace(slot: string): boolean {
    return this.#queue.has(slot);
  }

  /** For the record: the newest failed tasks that the store still has. */
  failedTasks(isStored: (id: string) => boolean): readonly string[] {
    return this.#failures.kept(isStored);
  }

  /** Answers whether the change can matter; most reports are steps on the way to RUNNING. */
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

  /** The slots of a node: whether a global service's may change depends on it. */
  noteNode(tasks: Iterable<Task>): boolean {
    let hasAny = false;
    for (const task of tasks) {
      if (task.serviceId !== this.#options.service.id) continue;
      this.#dirty.set(slotName(task), task);
      hasAny = true;
    }
    return hasAny;
  }

  /** Slots to be tended: those whose turn has come, and pairs of which one is no longer needed. */
  takeTurns(): readonly string[] {
    const turns = this.#turns;
    this.#turns = [];
    return turns;
  }

  look(nowMs: number, admission: Admission): Verdict {
    this.#catchUp(nowMs);
    const { record, settings } = this.#options;
    if (this.#failures.areTooMany(settings, record?.total ?? 0)) return { kind: "failed", why: this.#failures.last };
    const remainingMs = record === null ? Number.POSITIVE_INFINITY : deadlineMs(record, this.#times) - nowMs;
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

  /** The task that has held the rollout up for longest, once it has for a while. */
  blocker(nowMs: number): Blocker | null {
    const [first] = this.#holding(nowMs);
    return first === undefined || nowMs - first.sinceMs < noticeMs ? null : first;
  }

  /** Of the slots under way the one whose deadline is next, and the one that set out first: longest first. */
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
      // Since it was resumed the slot has a clean slate.
      const isSince = !isEnded(observedState(task)) || this.#times.reachedMs(task) >= this.#countedMs;
      if (isSince && this.#failures.slots > 0) this.#failures.knowSlot(entry.name);
      entry.hasFailed = (record?.failures ?? 0) > 0;
      return;
    }
    if (!isNewest || !isFailure(task)) return;
    if (this.#world.taskDirty.isDirty(task, service, this.#world.nodeOf)) return;
    const endedMs = this.#times.reachedMs(task);
    if (endedMs < this.#countedMs) return;
    // After that it had either run for long enough, or had been counted by its deadline.
    if (endedMs - this.#times.madeMs(task) > settings.progressMs + settings.monitorMs) return;
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
      const late = `it did not run within ${shownMs(this.#options.settings.progressMs)}`;
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
    // What follows it may fail as well; but a slot that fails again and again is not watched for ever.
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

  /** `isLoading`: what the store says of times counts, and not the moment in which this is seen. */
  #place(entry: TrackedSlot, facts: SlotFacts, tasks: readonly Task[], nowMs: number, isLoading: boolean): void {
    const taskId = facts.task?.id ?? "";
    const before = entry.state;
    const isSame = before === facts.state && entry.taskId === taskId;
    if (before === "outdated" && !entry.hasFailed) this.#outdated -= 1;
    entry.state = facts.state;
    entry.taskId = taskId;
    if (facts.state !== "outdated") this.#queue.leave(entry);
    // Given up unless the restart supervisor goes on with it; then a new task is on its way, and the slot is not outdated.
    if (facts.state === "outdated" && before !== "outdated" && !facts.isGivenUp) entry.hasFailed &&= isLoading;
    switch (facts.state) {
      case "outdated": {
        if (entry.hasFailed) break;
        this.#outdated += 1;
        const isUp = observedState(facts.task as Task) === TaskState.RUNNING;
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
    // While it waits for its predecessor it can do nothing for its progress.
    const isFree = task.desiredState === TaskState.RUNNING;
    if (!isFree || (isSame && entry.sinceMs > 0)) {
      if (!isFree) entry.sinceMs = 0;
      return;
    }
    const freeMs = Math.max(freeSinceMs(task, tasks, this.#times), this.#countedMs);
    entry.sinceMs = isLoading ? Math.min(freeMs, nowMs) : nowMs;
    if (entry.hasFailed) return;
    this.#underWay.expect(entry, entry.sinceMs + this.#options.settings.progressMs);
  }

  #arrive(entry: TrackedSlot, task: Task, nowMs: number, isLoading: boolean): void {
    const { delayMs, monitorMs } = this.#options.settings;
    entry.hasFailed = false;
    // A clock that was ahead prolongs no wait.
    entry.sinceMs = isLoading ? Math.min(this.#times.reachedMs(task), nowMs) : nowMs;
    this.#watchedUntilMs = Math.max(this.#watchedUntilMs, entry.sinceMs + monitorMs);
    const untilMs = entry.sinceMs + delayMs;
    if (untilMs > nowMs) this.#queue.rest(entry, untilMs);
  }

  /** U1. `batch`: an operator sets the pace, so that no delay is waited for. */
  #admit(batch: ReadonlySet<string> | null): void {
    const resting = batch === null ? this.#queue.resting : 0;
    const room = this.#options.settings.parallelism - this.#underWay.size - this.#queue.admitted - resting;
    this.#turns.push(...this.#queue.admit(room, batch));
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
    const release = isFree ? null : releaseOf(task, tasks, nowMs, this.#world.nodeOf, this.#times);
    if (release?.kind === "wait" && release.cause === "predecessor") {
      const sinceMs = this.#times.madeMs(task);
      return { task: release.task, slot: entry.name, sinceMs, deadlineMs: release.untilMs };
    }
    return {
      task,
      slot: entry.name,
      sinceMs: isFree ? entry.sinceMs : this.#times.madeMs(task),
      deadlineMs: isFree ? entry.sinceMs + this.#options.settings.progressMs : null,
    };
  }

  #expiry(nowMs: number): string {
    const first = this.#underWay.first();
    const blocker = first === undefined ? null : this.#blockerOf(first, nowMs);
    const held = blocker === null ? "" : `; ${blockerText(blocker)}`;
    return `: its deadline has passed with ${this.#outdated} slots to go${held}`;
  }
}
