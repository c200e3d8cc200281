/**
 * Decides the next steps on the nodes for one global service. Pure and stateless, like `machines/orchestration/slots.ts`, with
 * nodes instead of slots: all tasks of a service on one node, past and present, form one place.
 *
 * G1: each node that is open to the service has exactly one wanted task of it, created for that node.
 * G2: a node that is lost or drained, or does not meet the constraints, has no wanted task; a paused node keeps its task, which
 *     is neither replaced nor updated. A lost node's task is kept while the service says so (K1 of on-disconnect.ts) and its
 *     spec is current: it is neither stopped nor created again when the node returns.
 * G3: a task that is over and must not be restarted keeps its place filled until the service changes. A task that was stopped
 *     only because of its node is created again when the node is open again.
 * G4: a node that could never run a task does not block a rollout: nothing is lost there.
 *
 * Unlike SwarmKit, a node that joins during a rollout takes part in it, and a node that has never sent a description gets no
 * task, since the service's constraints cannot be checked.
 */
import { TaskState, type Node, type Service, type Task } from "../../proto/gen/messages.ts";
import { keptUntilMs } from "./on-disconnect.ts";
import { isAttempt, shouldRestart } from "./restart.machine.ts";
import { isVacant } from "./rollout/slot.ts";
import { noTurns, type Turns } from "./rollout/turns.ts";
import { constraintsOf, meetsConstraint } from "../scheduling/constraints.ts";
import { creationsMax, Plan, tend, type Decision, type World } from "./slots.ts";
import { isActive, isDrained, isLive } from "../node.ts";
import { isHeld, isWanted, newestOf, observedState } from "../task.ts";

/** Whether a global service may run on a node. */
export type Admission =
  /** It must have one task there. */
  | { readonly kind: "open" }
  | { readonly kind: "paused" }
  /** `unmet`: the first constraint that the node does not meet; empty for the other reasons. */
  | { readonly kind: "closed"; readonly reason: "drained" | "lost" | "unregistered" | "unmet"; readonly unmet: string }
  | { readonly kind: "removed" };

const open: Admission = { kind: "open" };
const paused: Admission = { kind: "paused" };
const removed: Admission = { kind: "removed" };
const drained: Admission = { kind: "closed", reason: "drained", unmet: "" };
const lost: Admission = { kind: "closed", reason: "lost", unmet: "" };
const unregistered: Admission = { kind: "closed", reason: "unregistered", unmet: "" };

export function admissionOf(service: Service, node: Node | undefined): Admission {
  if (node === undefined) return removed;
  if (isDrained(node)) return drained;
  if (!isLive(node)) return lost;
  if (node.description === null) return unregistered;
  for (const constraint of constraintsOf(service.spec?.task?.placement ?? null)) {
    if (!meetsConstraint(constraint, node)) return { kind: "closed", reason: "unmet", unmet: constraint.text };
  }
  return isActive(node) ? open : paused;
}

/** Whether nothing that affects the node's admission has changed. */
export function isSameToPlaces(old: Node, node: Node): boolean {
  return (
    old.spec === node.spec &&
    old.status === node.status &&
    old.role === node.role &&
    old.description === node.description
  );
}

export type NodeDecision = Decision<string>;

/** By node id: the service's tasks created for that node, oldest first; possibly empty. */
type Places = ReadonlyMap<string, readonly Task[]>;

/** All current nodes, and removed ones with tasks, each with its tasks of one service. */
export function placesOf(nodes: Iterable<Node>, tasks: Iterable<Task>): Map<string, Task[]> {
  const places = new Map<string, Task[]>();
  for (const { id } of nodes) places.set(id, []);
  for (const task of tasks) {
    const place = places.get(task.nodeId);
    if (place === undefined) places.set(task.nodeId, [task]);
    else place.push(task);
  }
  return places;
}

/** Decides the steps on the given nodes. */
export function decideNodes(service: Service, places: Places, world: World): NodeDecision {
  const plan = new Plan<string>(world);
  const isPartial = lookAt(plan, service, places, world);
  return plan.decision(isPartial);
}

/** Returns whether it stopped at its limit. */
function lookAt(plan: Plan<string>, service: Service, places: Places, world: World): boolean {
  let created = 0;
  for (const [nodeId, tasks] of places) {
    // The rest waits for the next decision, after this one is written.
    if (created === creationsMax) return true;
    const before = plan.steps.length;
    tendNode(plan, service, nodeId, tasks, world);
    if (plan.steps.length > before && plan.steps.at(-1)?.kind === "create") created += 1;
  }
  return false;
}

function tendNode(plan: Plan<string>, service: Service, nodeId: string, tasks: readonly Task[], world: World): void {
  const admission = admissionOf(service, world.nodeOf(nodeId));
  switch (admission.kind) {
    case "removed":
      for (const task of tasks) plan.desire(task, TaskState.REMOVE);
      return;
    case "closed":
      for (const task of tasks) if (isWanted(task)) endOrKeep(plan, service, task, world);
      return;
    case "paused":
      // A paused node does not keep tasks that it never got.
      for (const task of tasks)
        if (isWanted(task) && !isHeld(observedState(task))) plan.desire(task, TaskState.SHUTDOWN);
      return;
    case "open":
      if (tasks.some(isWanted)) tendWanted(plan, service, nodeId, tasks, world);
      else takePlace(plan, service, nodeId, tasks, world);
  }
}

/** G2 */
function endOrKeep(plan: Plan<string>, service: Service, task: Task, world: World): void {
  const isCurrent = !world.taskDirty.isDirty(task, service, world.nodeOf);
  const keptMs = isCurrent ? keptUntilMs(task, service, world) : null;
  if (keptMs === null) plan.desire(task, TaskState.SHUTDOWN);
  else plan.lookAt(keptMs);
}

function tendWanted(plan: Plan<string>, service: Service, nodeId: string, tasks: readonly Task[], world: World): void {
  // G4
  const isAtOnce = isVacant(tasks);
  const turns: Turns = { ...(world.turns ?? noTurns), mayReplace: () => true };
  tend(plan, service, nodeId, tasks, isAtOnce ? { ...world, turns } : world);
}

/** G1, G3: no task is wanted on an open node. */
function takePlace(plan: Plan<string>, service: Service, nodeId: string, tasks: readonly Task[], world: World): void {
  const newest = newestOf(tasks);
  const isFilled = newest !== undefined && isAttempt(newest) && !shouldRestart(newest, tasks);
  const isDirty = newest !== undefined && world.taskDirty.isDirty(newest, service, world.nodeOf);
  if (isFilled && !(isDirty && world.turns?.mayReplace(nodeId) === true)) return;
  // V6: while the rollout is paused, no node gets its turn.
  const isPinned = isDirty && !isFilled && world.turns?.isHeld === true;
  plan.create(nodeId, tasks, 0, isPinned ? newest : null);
}
