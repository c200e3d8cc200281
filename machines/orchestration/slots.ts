/**
 * Decides the next steps in the slots of one replicated service (SwarmKit's reconciliation). Pure and stateless: the result
 * follows from the stored tasks, so deciding twice, late, or on another manager gives the same result.
 *
 * V1: a slot has at most one wanted task; during a start-first replacement, the running old one and the new one.
 * V2: a slot whose task is over and must not be restarted stays filled: finished work is not repeated.
 * V3: new tasks take the lowest free slot numbers, from 1.
 * V4: scaling down removes first slots without a settled task, then the highest copies on the fullest nodes; among those first
 *     tasks that do not run, then the highest numbers.
 * V5: a task whose predecessor is still stopping is desired READY until the predecessor has stopped (Q4).
 * V6: a slot gets the service's current spec only when it has its turn in a rollout. Until then its task's successors keep that
 *     task's spec: while an update is paused, a crashed task restarts unchanged.
 * V7: a task that rebalancing moves with start-first stays until its successor runs.
 * V8: a task that its service keeps on a DOWN node (K1) gets no successor, except in its turn in a rollout.
 */
import type { LogTimes } from "../elapsed.ts";
import { TaskState, type Node, type Service, type Task } from "../../proto/gen/messages.ts";
import { delayAfterMs, faultOf, isStopping, releaseOf, shouldRestart, type NodeOf } from "./restart.machine.ts";
import { keptUntilMs } from "./on-disconnect.ts";
import { isSameMessage } from "../same-message.ts";
import { movedFrom } from "./rebalancing/moves.ts";
import { noTurns, type Turns } from "./rollout/turns.ts";
import type { TaskDirty } from "./task-dirty.ts";
import { mayDesire } from "../task.machine.ts";
import { isEnded, isLeaving, isRunning, isWanted, newestOf, observedState, specVersionOf } from "../task.ts";

/** `Slot`: the name of a place for a task: a slot's number, or for a global service a node's id. */
export type Step<Slot = number> =
  | { readonly kind: "desire"; readonly task: Task; readonly state: TaskState }
  /** `like`: the task whose spec the new one gets; absent: it gets the service's current spec. */
  | { readonly kind: "create"; readonly slot: Slot; readonly desired: TaskState; readonly like?: Task };

export interface Decision<Slot = number> {
  /** In log order: a step that ends a slot's task precedes the one that creates its successor. */
  readonly steps: readonly Step<Slot>[];
  /** When to decide again even if nothing happens, in milliseconds since the epoch; null: never. */
  readonly lookAgainMs: number | null;
  /** One decision cannot hold all steps: decide again when this one is written. */
  readonly isPartial: boolean;
}

/** Maximum tasks created, and maximum other steps, of one decision: about 50 ms of work. */
export const creationsMax = 10_000;
export const stepsMax = 20_000;

export interface World {
  readonly nowMs: number;
  readonly nodeOf: NodeOf;
  readonly taskDirty: TaskDirty;
  /** Absent: no rollout. */
  readonly turns?: Turns;
  readonly times: LogTimes;
}

/** Tasks by slot, oldest first. */
type Slots = ReadonlyMap<number, readonly Task[]>;

export function groupBySlot(tasks: Iterable<Task>): Map<number, Task[]> {
  const slots = new Map<number, Task[]>();
  for (const task of tasks) {
    const slot = slots.get(task.slot);
    if (slot === undefined) slots.set(task.slot, [task]);
    else slot.push(task);
  }
  return slots;
}

/** Collects the steps of one decision. */
export class Plan<Slot = number> {
  readonly steps: Step<Slot>[] = [];
  lookAgainMs: number | null = null;
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  desire(task: Task, state: TaskState): void {
    if (mayDesire(task.desiredState, state)) this.steps.push({ kind: "desire", task, state });
  }

  /** Infinity: never. */
  lookAt(timeMs: number): void {
    if (timeMs < (this.lookAgainMs ?? Number.POSITIVE_INFINITY)) this.lookAgainMs = timeMs;
  }

  /** V5. `delayMs`: restart delay after the last task. `like`: see Step. */
  create(slot: Slot, tasks: readonly Task[], delayMs = 0, like: Task | null = null): void {
    const mustWait = delayMs > 0 || tasks.some((task) => isStopping(task, this.#world.nodeOf));
    const desired = mustWait ? TaskState.READY : TaskState.RUNNING;
    this.steps.push(like === null ? { kind: "create", slot, desired } : { kind: "create", slot, desired, like });
  }

  decision(isPartial: boolean): Decision<Slot> {
    let end = Math.min(this.steps.length, stepsMax);
    // Do not separate the end of a slot's task from the creation of its successor.
    while (end < this.steps.length && this.steps[end]?.kind === "create") end += 1;
    const isCut = end < this.steps.length;
    const steps = isCut ? this.steps.slice(0, end) : this.steps;
    return { steps, lookAgainMs: this.lookAgainMs, isPartial: isPartial || isCut };
  }

  /** Replaces the slot's task by one with the current spec. */
  replace(slot: Slot, task: Task, tasks: readonly Task[]): void {
    this.desire(task, TaskState.SHUTDOWN);
    this.create(slot, tasks);
  }
}

/** Decides only the given slots: restarts, and surplus wanted tasks. */
export function decideSlots(service: Service, slots: Slots, world: World): Decision {
  const plan = new Plan(world);
  for (const [slot, tasks] of slots) tend(plan, service, slot, tasks, world);
  return plan.decision(false);
}

type Tended =
  /** It has a wanted task; `isSettled`: which needed no step. */
  | { readonly kind: "live"; readonly task: Task; readonly isSettled: boolean }
  | { readonly kind: "filled"; readonly task: Task }
  | { readonly kind: "dead" };

/** One slot's restarts and surplus wanted tasks (V1). `tasks`: the slot's tasks, oldest first. */
export function tend<Slot>(
  plan: Plan<Slot>,
  service: Service,
  slot: Slot,
  tasks: readonly Task[],
  world: World,
): Tended {
  const turns = world.turns ?? noTurns;
  const wanted = tasks.filter(isWanted);
  const first = wanted[0];
  if (first === undefined) return tendEmpty(plan, service, slot, tasks, world);
  const handover = handoverOf(wanted, service, world);
  if (handover !== null) {
    const { from, to } = handover;
    if (runs(to, world)) plan.desire(from, TaskState.SHUTDOWN);
    return { kind: "live", task: runs(to, world) ? to : from, isSettled: false };
  }
  const outdated = wanted.filter((task) => world.taskDirty.isDirty(task, service, world.nodeOf));
  const isMixed = outdated.length > 0 && outdated.length < wanted.length;
  const old = isMixed && turns.isStartFirst ? best(outdated, service, world) : null;
  const kept = wanted.length === 1 ? first : best(isMixed ? without(wanted, outdated) : wanted, service, world);
  const isBesideOld = old !== null && runs(old, world) && !runs(kept, world);
  for (const task of wanted) if (task !== kept && !(isBesideOld && task === old)) plan.desire(task, TaskState.SHUTDOWN);
  const isOld = outdated.includes(kept);
  const fault = faultOf(kept, world.nodeOf);
  if (isOld && turns.mayReplace(String(slot))) {
    // With start-first, only a running task is kept until the new one runs.
    if (turns.isStartFirst && runs(kept, world)) plan.create(slot, without(tasks, [kept]));
    else plan.replace(slot, kept, tasks);
    return { kind: "live", task: kept, isSettled: false };
  }
  if (fault === null) return { kind: "live", task: kept, isSettled: wanted.length === 1 };
  // V8
  const keptMs = keptUntilMs(kept, service, world);
  if (keptMs !== null) {
    plan.lookAt(keptMs);
    return { kind: "live", task: kept, isSettled: false };
  }
  if (fault === "ended" && kept.desiredState === TaskState.READY) {
    // It ended before it was allowed to run: wait until its own delay is over, which prevents a hot loop.
    const release = releaseOf(kept, tasks, world.nowMs, world.nodeOf, world.times);
    if (release.kind === "wait") {
      plan.lookAt(release.untilMs);
      return { kind: "live", task: kept, isSettled: false };
    }
  }
  plan.desire(kept, TaskState.SHUTDOWN);
  if (isBesideOld && (turns.isHeld || !shouldRestart(kept, tasks))) return { kind: "live", task: old, isSettled: true };
  if (!shouldRestart(kept, tasks)) return { kind: "filled", task: kept };
  const followed = isBesideOld ? without(tasks, [old]) : tasks;
  // V6
  const like = isOld ? kept : null;
  plan.create(slot, followed, fault === "ended" ? delayAfterMs(kept, tasks, world.nodeOf) : 0, like);
  return { kind: "live", task: kept, isSettled: false };
}

/** V7: the two tasks of a start-first move, while both can continue and have the current spec. */
function handoverOf(
  wanted: readonly Task[],
  service: Service,
  world: World,
): { readonly from: Task; readonly to: Task } | null {
  const [from, to, more] = wanted;
  if (from === undefined || to === undefined || more !== undefined || movedFrom(to) !== from.id) return null;
  const isSound = (task: Task): boolean =>
    faultOf(task, world.nodeOf) === null && !world.taskDirty.isDirty(task, service, world.nodeOf);
  return isSound(from) && isSound(to) ? { from, to } : null;
}

function without(tasks: readonly Task[], others: readonly Task[]): readonly Task[] {
  return tasks.filter((task) => !others.includes(task));
}

function runs(task: Task, world: World): boolean {
  return isRunning(task) && faultOf(task, world.nodeOf) === null;
}

/** A finished task is replaced in its turn like a running one. */
function tendEmpty<Slot>(plan: Plan<Slot>, service: Service, slot: Slot, tasks: readonly Task[], world: World): Tended {
  const tended = emptySlot(tasks);
  if (tended.kind !== "filled" || world.turns?.mayReplace(String(slot)) !== true) return tended;
  if (!world.taskDirty.isDirty(tended.task, service, world.nodeOf)) return tended;
  plan.create(slot, tasks);
  return { kind: "live", task: tended.task, isSettled: false };
}

/** V2. A task being removed no longer fills its slot. */
function emptySlot(tasks: readonly Task[]): Tended {
  const newest = newestOf(tasks);
  return newest === undefined || shouldRestart(newest, tasks) ? { kind: "dead" } : { kind: "filled", task: newest };
}

/** V1: the best wanted task: without a fault, with the current spec, and most advanced; on a tie the oldest. */
function best(wanted: readonly Task[], service: Service, world: World): Task {
  const merit = (task: Task): number => {
    const isSound = faultOf(task, world.nodeOf) === null;
    const isCurrent = !world.taskDirty.isDirty(task, service, world.nodeOf);
    return (
      (isSound ? 1e6 : 0) +
      (isCurrent ? 1e5 : 0) +
      (task.desiredState === TaskState.RUNNING ? 1e4 : 0) +
      observedState(task)
    );
  };
  return wanted.reduce((kept, task) => (merit(task) > merit(kept) ? task : kept));
}

interface Standing {
  readonly slot: number;
  readonly task: Task;
  readonly tasks: readonly Task[];
  readonly isFilled: boolean;
  readonly isSettled: boolean;
}

/** Decides the number of slots and each slot's task. `replicas`: the desired number of slots. */
export function decideService(service: Service, slots: Slots, replicas: number, world: World): Decision {
  const standing: Standing[] = [];
  const dead: (readonly [number, readonly Task[]])[] = [];
  // Each slot gets its own plan: those of slots that scaling removes are dropped.
  const plans = new Map<number, Plan>();
  for (const [slot, tasks] of slots) {
    const plan = new Plan(world);
    const tended = tend(plan, service, slot, tasks, world);
    if (plan.steps.length > 0 || plan.lookAgainMs !== null) plans.set(slot, plan);
    if (tended.kind === "dead") dead.push([slot, tasks]);
    else {
      const isFilled = tended.kind === "filled";
      standing.push({
        slot,
        task: tended.task,
        tasks,
        isFilled,
        isSettled: tended.kind === "live" && tended.isSettled,
      });
    }
  }
  const kept = standing.length > replicas ? choose(standing, replicas) : standing;
  const plan = new Plan(world);
  if (kept !== standing) {
    const isKept = new Set(kept);
    for (const gone of standing) if (!isKept.has(gone)) removeAll(plan, gone.tasks);
  }
  for (const { slot } of kept) {
    const own = plans.get(slot);
    if (own === undefined) continue;
    plan.steps.push(...own.steps);
    if (own.lookAgainMs !== null) plan.lookAt(own.lookAgainMs);
  }
  const reused = fill(plan, service, kept, dead, replicas, world);
  const isPartial = replicas - kept.length > creationsMax;
  // Dead slots that the next decision may reuse keep their history.
  if (!isPartial) for (const [slot, tasks] of dead) if (!reused.has(slot)) removeAll(plan, tasks);
  return plan.decision(isPartial);
}

/** Removes all tasks of the slot: the reaper deletes each when nothing of it runs. */
function removeAll(plan: Plan, tasks: readonly Task[]): void {
  for (const task of tasks) plan.desire(task, TaskState.REMOVE);
}

/** V3. Returns the reused dead slots, which keep their tasks as history. */
function fill(
  plan: Plan,
  service: Service,
  kept: readonly Standing[],
  dead: readonly (readonly [number, readonly Task[]])[],
  replicas: number,
  world: World,
): Set<number> {
  const reused = new Set<number>();
  let missing = Math.min(replicas - kept.length, creationsMax);
  if (missing <= 0) return reused;
  const taken = new Set(kept.map(({ slot }) => slot));
  const left = new Map(dead);
  for (let slot = 1; missing > 0; slot += 1) {
    if (taken.has(slot)) continue;
    const tasks = left.get(slot) ?? [];
    const last = tasks.at(-1);
    // V6: while the rollout is paused, no slot gets its turn.
    const isPinned = last !== undefined && world.turns?.isHeld === true;
    const like = isPinned && world.taskDirty.isDirty(last, service, world.nodeOf) ? last : null;
    plan.create(slot, tasks, 0, like);
    reused.add(slot);
    missing -= 1;
  }
  return reused;
}

/** V4 */
function choose(standing: readonly Standing[], replicas: number): readonly Standing[] {
  const inOrder = [...standing].sort((a, b) => Number(isUp(b)) - Number(isUp(a)) || a.slot - b.slot);
  const copies = new Map<string, number>();
  // The copy's number on its node; unsettled slots come last, after finished ones.
  const ordinal = new Map<Standing, number>();
  for (const one of inOrder) {
    if (one.isFilled || !one.isSettled || one.task.nodeId === "") {
      ordinal.set(one, one.isFilled ? Number.MAX_SAFE_INTEGER - 1 : Number.MAX_SAFE_INTEGER);
      continue;
    }
    const copy = (copies.get(one.task.nodeId) ?? 0) + 1;
    copies.set(one.task.nodeId, copy);
    ordinal.set(one, copy);
  }
  // The sort is stable: ties stay ordered by running first, then low numbers first.
  inOrder.sort((a, b) => (ordinal.get(a) ?? 0) - (ordinal.get(b) ?? 0));
  return inOrder.slice(0, replicas).sort((a, b) => a.slot - b.slot);
}

function isUp({ task }: Standing): boolean {
  return isRunning(task);
}

/** Whether a change of a task can require a step in its slot; most changes are only steps towards RUNNING. */
export function mattersToSlot(old: Task, task: Task, nodeOf: (id: string) => Node | undefined): boolean {
  const runsNow = isRunning(task) && observedState(old) < TaskState.RUNNING;
  if (runsNow && movedFrom(task) !== "") return true;
  // A failed successor may have been waiting for this task to stop.
  if (!isWanted(task)) return !isLeaving(task) && isEnded(observedState(task)) && !isEnded(observedState(old));
  if (isEnded(observedState(task)) && !isEnded(observedState(old))) return true;
  return old.nodeId !== task.nodeId && faultOf(task, nodeOf) !== null;
}

/** Whether a task that has just started running allows another one of its slot to stop. `tasks`: the slot's tasks. */
export function endsPair(old: Task, task: Task, tasks: () => Iterable<Task>): boolean {
  if (!isRunning(task) || isRunning(old)) return false;
  for (const other of tasks()) if (other.id !== task.id && isWanted(other)) return true;
  return false;
}

/** Whether two versions of a service are equal for all its slots; rollouts report slots one by one. */
export function isSameToSlots(old: Service, service: Service): boolean {
  return (
    specVersionOf(old) === specVersionOf(service) &&
    old.pendingDelete === service.pendingDelete &&
    isSameMessage(old.spec, service.spec)
  );
}
