/**
 * Decides the next steps of one job. Pure and stateless: the result follows from the stored tasks, so deciding twice, late,
 * or on another manager gives the same result.
 *
 * J1, J2: see places.ts.
 * J3: at most MaxConcurrent tasks of a replicated job are wanted, including running tasks of earlier iterations.
 * J4: a place has at most one wanted task.
 * J5: tasks of earlier iterations are removed while they run or wait; ended ones stay as history (R2), unless their slot or
 *     node no longer exists.
 * J6: a paused job starts nothing new, a stopped job also stops its running tasks; both keep what is done.
 * J7: a global job has one task on each eligible node, also on nodes that join later. A node that is DOWN keeps its task,
 *     which no other node can do, for as long as a successor would wait for it (Q4); then the job continues without the node
 *     until it returns. On a node that is drained, or no longer meets the placement, the task is stopped.
 */
import { TaskState, type Node, type Service, type Task } from "../../../proto/gen/messages.ts";
import { keptUntilMs } from "../on-disconnect.ts";
import { delayAfterMs, isStopping, releaseOf, stopWaitMs, type NodeOf } from "../restart.machine.ts";
import { creationsMax } from "../slots.ts";
import { mayDesire } from "../../task.machine.ts";
import { isLive } from "../../node.ts";
import { isEnded, isWanted, observedState } from "../../task.ts";
import { leftOf, type LogTimes } from "../../elapsed.ts";
import { jobSettings } from "./labels.ts";
import { groupByPlace, isEligible, isOfIteration, iterationOf, mayStay, standingOf, type Place } from "./places.ts";
import { progressOf, type JobPhase } from "./progress.ts";

type JobStep =
  | { readonly kind: "desire"; readonly task: Task; readonly state: TaskState }
  | { readonly kind: "create"; readonly place: Place; readonly desired: TaskState };

export interface JobDecision {
  readonly phase: JobPhase;
  /** In log order: a step that ends a place's task precedes the one that creates its successor. */
  readonly steps: readonly JobStep[];
  /** When to decide again even if nothing happens, in milliseconds since the epoch; null: never. */
  readonly lookAgainMs: number | null;
  /** One decision cannot hold all steps; more follow. */
  readonly isPartial: boolean;
  /** Its time to live after its end has passed: remove the service. */
  readonly isExpired: boolean;
}

interface JobWorld {
  readonly nowMs: number;
  readonly nodeOf: NodeOf;
  readonly nodes: () => Iterable<Node>;
  readonly times: LogTimes;
}

/** `tasks`: all tasks of the service, oldest first. */
export function decideJob(service: Service, tasks: Iterable<Task>, world: JobWorld): JobDecision {
  const all = [...tasks];
  const progress = progressOf(service, all, world);
  const plan = new JobPlan(service, world);
  const iteration = iterationOf(service);
  const own: Task[] = [];
  for (const task of all) {
    if (isOfIteration(task, iteration)) own.push(task);
    else plan.clear(task);
  }
  const { state, ttlMs } = jobSettings(service.spec);
  if (progress.phase === "scheduled" || state === "stopped") plan.halt(own, true);
  else if (state === "paused") plan.halt(own, false);
  else if (service.spec?.globalJob == null) plan.fillSlots(own);
  else plan.fillNodes(own);
  let isExpired = false;
  if (progress.finishedMs !== null && ttlMs !== null) {
    const goesMs = progress.finishedMs + ttlMs;
    isExpired = goesMs <= world.nowMs;
    if (!isExpired) plan.lookAt(goesMs);
  }
  return {
    phase: progress.phase,
    steps: isExpired ? [] : plan.steps,
    lookAgainMs: plan.lookAgainMs,
    isPartial: plan.isPartial,
    isExpired,
  };
}

class JobPlan {
  readonly steps: JobStep[] = [];
  lookAgainMs: number | null = null;
  isPartial = false;
  readonly #service: Service;
  readonly #world: JobWorld;
  /** Tasks of earlier iterations that still run. */
  #leaving = 0;
  readonly #leavingFrom = new Set<string>();
  #created = 0;

  constructor(service: Service, world: JobWorld) {
    this.#service = service;
    this.#world = world;
  }

  /** Infinity: never. */
  lookAt(timeMs: number): void {
    if (timeMs < (this.lookAgainMs ?? Number.POSITIVE_INFINITY)) this.lookAgainMs = timeMs;
  }

  /** J5 */
  clear(task: Task): void {
    if (isEnded(observedState(task)) && this.#hasPlace(task)) return;
    this.#desire(task, TaskState.REMOVE);
    if (!isStopping(task, this.#world.nodeOf)) return;
    // Wait as long as a successor in its slot would: a bounded time (Q4).
    const { nowMs } = this.#world;
    const untilMs = nowMs + leftOf(this.#world.times.executedMs(this.#service), stopWaitMs(task), nowMs);
    if (untilMs <= nowMs) return;
    this.#leaving += 1;
    this.#leavingFrom.add(task.nodeId);
    this.lookAt(untilMs);
  }

  /** Whether its slot or node still exists. */
  #hasPlace({ nodeId, slot }: Task): boolean {
    const { replicatedJob = null } = this.#service.spec ?? {};
    return replicatedJob === null ? this.#world.nodeOf(nodeId) !== undefined : slot < replicatedJob.totalCompletions;
  }

  /** J6. Tasks that have not started are removed without a trace. `isAll`: running tasks are stopped, too. */
  halt(own: readonly Task[], isAll: boolean): void {
    const isSlotted = this.#service.spec?.globalJob == null;
    for (const tasks of groupByPlace(this.#service, own).values()) {
      const standing = standingOf(tasks, this.#world.nodeOf);
      for (const task of tasks) {
        if (!isWanted(task) || task === standingTask(standing, "done")) continue;
        const state = observedState(task);
        if (state < TaskState.STARTING) this.#desire(task, TaskState.REMOVE);
        else if (isAll || isEnded(state) || standing.kind === "done") this.#desire(task, TaskState.SHUTDOWN);
        else if (isSlotted && standing.kind === "faulty") this.#desire(task, TaskState.SHUTDOWN);
      }
    }
  }

  fillSlots(own: readonly Task[]): void {
    const { totalCompletions: total, maxConcurrent } = this.#service.spec?.replicatedJob ?? {
      totalCompletions: 0,
      maxConcurrent: 0,
    };
    const taken = new Set<number>();
    const again: (readonly [number, readonly Task[], Task | null])[] = [];
    let busy = 0;
    for (const [slot, tasks] of groupByPlace(this.#service, own) as Map<number, Task[]>) {
      const standing = this.#tend({ slot, nodeId: "" }, tasks);
      if (standing === "busy") busy += 1;
      if (standing === "open") again.push([slot, tasks, tasks.at(-1) ?? null]);
      taken.add(slot);
    }
    let capacity = maxConcurrent - busy - this.#leaving;
    // J3: slots with a stopping task come first, because their successors wait only for that.
    again.sort(
      ([a, first], [b, second]) => Number(this.#isStopping(second)) - Number(this.#isStopping(first)) || a - b,
    );
    for (const [slot, tasks, last] of again) {
      if (capacity <= 0) return;
      if (!this.#create({ slot, nodeId: "" }, tasks, last)) return;
      capacity -= 1;
    }
    for (let slot = 0; slot < total && capacity > 0; slot += 1) {
      if (taken.has(slot)) continue;
      if (!this.#create({ slot, nodeId: "" }, [], null)) return;
      capacity -= 1;
    }
  }

  fillNodes(own: readonly Task[]): void {
    const { nodeOf, nodes } = this.#world;
    const places = groupByPlace(this.#service, own) as Map<string, Task[]>;
    for (const [nodeId, tasks] of places) {
      const node = nodeOf(nodeId);
      if (node !== undefined && mayStay(this.#service, node)) continue;
      for (const task of tasks) if (!isEnded(observedState(task))) this.#desire(task, TaskState.SHUTDOWN);
    }
    for (const node of nodes()) {
      const tasks = places.get(node.id) ?? [];
      const isOpen = isEligible(this.#service, node);
      if (tasks.length === 0) {
        if (isOpen && !this.#create({ slot: 0, nodeId: node.id }, [], null)) return;
        continue;
      }
      if (!mayStay(this.#service, node)) continue;
      const standing = standingOf(tasks, nodeOf);
      if (standing.kind === "faulty" && !isLive(node)) this.#giveUpOn(node, standing.task);
      if (!isOpen && standing.kind !== "done") continue;
      const tended = this.#tend({ slot: 0, nodeId: node.id }, tasks);
      if (tended === "open" && !this.#create({ slot: 0, nodeId: node.id }, tasks, tasks.at(-1) ?? null)) return;
    }
  }

  /** J7. An ended task on a DOWN node needs no wait. The node's record changes when it goes DOWN. */
  #giveUpOn(node: Node, task: Task): void {
    if (this.#isKept(task)) return;
    const { nowMs } = this.#world;
    const untilMs = nowMs + leftOf(this.#world.times.changedMs(node), stopWaitMs(task), nowMs);
    if (isEnded(observedState(task)) || untilMs <= nowMs) this.#desire(task, TaskState.SHUTDOWN);
    else this.lookAt(untilMs);
  }

  /** Whether the service keeps the task on a DOWN node. K1 */
  #isKept(task: Task): boolean {
    const keptMs = keptUntilMs(task, this.#service, this.#world);
    if (keptMs !== null) this.lookAt(keptMs);
    return keptMs !== null;
  }

  /** Keeps at most one wanted task in the place (J4), and creates the successor of one that cannot continue. */
  #tend(place: Place, tasks: readonly Task[]): "over" | "busy" | "open" {
    const { nodeOf, nowMs } = this.#world;
    const standing = standingOf(tasks, nodeOf);
    const kept = standing.kind === "open" ? null : standing.task;
    for (const task of tasks) if (task !== kept && isWanted(task)) this.#desire(task, TaskState.SHUTDOWN);
    switch (standing.kind) {
      case "done":
      case "failed":
        return "over";
      case "busy":
        return "busy";
      case "open":
        return "open";
      case "faulty": {
        const { task, mayRetry } = standing;
        if (isEnded(observedState(task)) && task.desiredState === TaskState.READY) {
          // It ended before it was allowed to run: wait until its own delay is over, which prevents a hot loop.
          const release = releaseOf(task, tasks, nowMs, nodeOf, this.#world.times);
          if (release.kind === "wait") {
            this.lookAt(release.untilMs);
            return "busy";
          }
        }
        if (this.#isKept(task)) return "busy";
        this.#desire(task, TaskState.SHUTDOWN);
        if (!mayRetry) return "over";
        this.#push(place, tasks, task);
        return "busy";
      }
    }
  }

  #isStopping(tasks: readonly Task[]): boolean {
    return tasks.some((task) => isStopping(task, this.#world.nodeOf));
  }

  /** False if the decision is full. */
  #create(place: Place, tasks: readonly Task[], last: Task | null): boolean {
    if (this.#created >= creationsMax) {
      this.isPartial = true;
      return false;
    }
    this.#push(place, tasks, last);
    return true;
  }

  /** The task is prepared at once, and started when its predecessor has stopped and the restart delay is over (Q2, Q4). */
  #push(place: Place, tasks: readonly Task[], last: Task | null): void {
    const delayMs = last === null ? 0 : delayAfterMs(last, tasks, this.#world.nodeOf);
    const isLeft = place.nodeId !== "" && this.#leavingFrom.has(place.nodeId);
    const mustWait = delayMs > 0 || isLeft || this.#isStopping(tasks);
    this.#created += 1;
    this.steps.push({ kind: "create", place, desired: mustWait ? TaskState.READY : TaskState.COMPLETE });
  }

  #desire(task: Task, state: TaskState): void {
    if (mayDesire(task.desiredState, state)) this.steps.push({ kind: "desire", task, state });
  }
}

function standingTask(standing: ReturnType<typeof standingOf>, kind: "done"): Task | null {
  return standing.kind === kind ? standing.task : null;
}
