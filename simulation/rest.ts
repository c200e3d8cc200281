/**
 * Checks that a cluster without faults comes to rest within a bounded virtual time, restarted at each progress, and its state
 * at
 * rest. Meanwhile, nothing waits for longer than its budget (`invariants/budgets.ts`).
 *
 * L2: until the cluster rests, something is written now and then.
 * L3: the cluster rests within a bounded time after the last fault.
 * S126: the cluster rests only when every serving manager reports itself healthy: a manager recovers from a trouble with its
 *       cause.
 */
import { isEnded, observedState } from "../machines/task.ts";
import { NodeStatus_State, TaskState } from "../proto/gen/messages.ts";
import type { CommitChecks } from "./commit-checks.ts";
import { Budgets, type Wait } from "./invariants/budgets.ts";
import { findUntrusting } from "./invariants/certificates.ts";
import { findLowLevel } from "./invariants/format.ts";
import { findUnwell } from "./invariants/health.ts";
import { checkKeyFile, checkSealed, findUnlockedOtherwise } from "./invariants/locks.ts";
import { findUnmissed } from "./invariants/nodes.ts";
import { findUnnamed } from "./invariants/names.ts";
import { findLost, findUnallocated } from "./invariants/networks.ts";
import { findUnsettled } from "./invariants/placement.ts";
import { findUntold } from "./invariants/policies.ts";
import { findUnbalanced } from "./invariants/rebalance.ts";
import { findUnsettledRole } from "./invariants/roles.ts";
import { findMovingRollout, isOverdue } from "./invariants/rollout.ts";
import { findStrayVolumes, findUnpublished } from "./invariants/volumes.ts";
import { findUnrouted } from "./invariants/tunnels.ts";
import { waitsIn } from "./invariants/waits.ts";
import { findUnconverged } from "./invariants/always.ts";
import type { RunningManager } from "./managers/manager.ts";
import type { SimManagers } from "./managers/managers.ts";
import { runningOn, type SimNodes } from "./nodes/nodes.ts";
import type { SimDataplanes } from "./nodes/policies.ts";
import type { Scene } from "./scene.ts";
import type { SimStorage } from "./nodes/storage.ts";
import { findStrayNetworks } from "./nodes/task-networks.ts";
import type { Workloads } from "./workloads/workloads.ts";

/** Virtual time without progress after which a healed cluster counts as stuck: periodic checks run every 60 s. */
const stuckMs = 90_000;
/** Virtual time after which a healed cluster that still changes counts as restless. */
const restlessMs = 600_000;
/** Interval between checks for rest. */
const lookMs = 500;
/** Maximum delay after which watchers know of a change. */
const followMs = 4 * lookMs;
/** Duration of rest: a cluster that only passes through a good state does not rest. */
const restMs = 10 * lookMs;

interface RestingParts {
  readonly managers: SimManagers;
  readonly nodes: SimNodes;
  readonly workloads: Workloads;
  readonly checks: CommitChecks;
  readonly storage: SimStorage | null;
  readonly dataplanes: SimDataplanes | null;
}

/** L2, L3; called when faults have ended. */
export async function comeToRest(scene: Scene, parts: RestingParts): Promise<void> {
  const { clock } = scene.simulation;
  const healedAt = clock.elapsed;
  let progressAt = healedAt;
  let version = parts.checks.newest;
  let restingSince: number | null = null;
  const budgets = new Budgets();
  let starts = 0;
  for (;;) {
    await scene.runUntil(() => false, lookMs);
    if (scene.failure !== null) return;
    if (parts.checks.newest > version) {
      version = parts.checks.newest;
      progressAt = clock.elapsed;
    }
    if (areAllUp(parts) && starts === startsOf(parts))
      scene.demand("the cluster", budgets.look(waitsOf(parts), clock.elapsed));
    else budgets.restart();
    starts = startsOf(parts);
    const why = whyRestless(scene, parts, { healedAt, progressAt });
    if (why !== null) restingSince = null;
    else restingSince ??= clock.elapsed;
    if (restingSince !== null && clock.elapsed - restingSince >= restMs) break;
    if (why !== null && (isOverdue(why) || why.includes("S124"))) scene.fail(why);
    if (why !== null && clock.elapsed - progressAt > stuckMs)
      scene.fail(`L2: stuck since ${Math.round(progressAt)} ms: ${why}`);
    else if (why !== null && clock.elapsed - healedAt > restlessMs)
      scene.fail(`L3: no rest ${restlessMs} ms after the last fault: ${why}`);
  }
  checkAtRest(scene, parts);
}

/** Whether every process runs whose machine is not gone. A process may be paused for longer than the faults last. */
function areAllUp({ managers, nodes }: RestingParts): boolean {
  const all = [...managers.serving.map(({ process: each }) => each), ...nodes.processes];
  return all.every(({ goneAt, isPaused, isRunning }) => goneAt !== null || (isRunning && !isPaused));
}

/** Number of starts of all processes: what waits for one that starts again has waited in vain. */
function startsOf({ managers, nodes }: RestingParts): number {
  return [...managers.processes, ...nodes.processes].reduce((sum, { lives }) => sum + lives, 0);
}

/** Everything that waits in the whole cluster. L9 */
export function* waitsOf({ dataplanes, managers, nodes, storage, workloads }: RestingParts): Generator<Wait> {
  if (!managers.serving.some(({ running }) => running?.isLeading() === true))
    yield { kind: "leader", what: "no manager leads" };
  for (const {
    process: { name },
    running,
  } of managers.serving) {
    if (running?.isServing() !== true) yield { kind: "manager", what: `${name} does not serve` };
    else if (running.unhealthy() !== null) yield { kind: "health", what: `${name} reports itself unhealthy` };
  }
  const otherwise = findUnlockedOtherwise(managers.serving.map(({ running }) => running));
  if (otherwise !== null) yield { kind: "lock", what: otherwise };
  yield* workloads.waits();
  const store = managers.serving.find(({ running }) => running?.isServing() === true)?.running?.store;
  if (store === undefined) return;
  yield* waitsIn(store, new Set(nodes.processes.flatMap(({ goneAt, name }) => (goneAt === null ? [name] : []))));
  const ended = new Map(managers.all.map(({ isRetired, process: { name } }) => [name, isRetired]));
  const role = findUnsettledRole(store, ended);
  if (role !== null) yield { kind: "role", what: role };
  const volume = storage === null ? null : findUnpublished(store);
  if (volume !== null) yield { kind: "volume", what: volume };
  const untold = dataplanes === null ? null : findUntold(store, dataplanes);
  if (untold !== null) yield { kind: "policy", what: untold };
}

function checkAtRest(scene: Scene, { checks, managers, storage }: RestingParts): void {
  const { nats } = scene.simulation;
  const stored = Array.from({ length: nats.last - nats.first + 1 }, (_, at) => nats.record(nats.first + at));
  const records = stored.filter((record) => record !== null);
  scene.demand("nats", checkSealed(records, [...nats.blobs.values()]));
  const some = managers.all[0]?.running ?? null;
  // Requests to the storage in a lost history have effects that nobody knows of.
  if (storage !== null && some !== null && !scene.isTailLost) {
    const nameOf = (nodeId: string) => some.store.get("node", nodeId)?.description?.hostname;
    scene.demand("storage", findStrayVolumes(some.store, storage.storage, nameOf));
  }
  for (const { running, process: each } of managers.all) {
    if (running === null) continue;
    checks.checkWhole(each.name, running.store);
    scene.demand(each.name, checkKeyFile(each.disk.read("keys"), running));
  }
}

/** In virtual milliseconds: the end of the last fault, and the last write. */
interface Times {
  readonly healedAt: number;
  readonly progressAt: number;
}

function whyRestless(scene: Scene, parts: RestingParts, { healedAt, progressAt }: Times): string | null {
  const { managers, workloads } = parts;
  const open = workloads.whyOpen();
  if (open !== null) return open;
  const otherwise = findUnlockedOtherwise(managers.serving.map(({ running }) => running));
  if (otherwise !== null) return otherwise;
  for (const { running, process: each } of managers.serving) {
    if (running === null) return `${each.name} does not run`;
    const trouble = running.unhealthy();
    if (trouble !== null) return `S126: ${each.name} reports itself unhealthy: ${trouble}`;
    const why = findRestless(scene, parts, running, healedAt);
    if (why !== null) return `${each.name}: ${why}`;
  }
  // Last, because watchers follow the state; where tasks fail for ever, they never catch up.
  return scene.simulation.clock.elapsed - progressAt < followMs ? null : workloads.whyUnseen();
}

/** From the point of view of one manager. */
function findRestless(
  { options, simulation }: Scene,
  { dataplanes, managers, nodes, storage, workloads }: RestingParts,
  { allocates, held, store }: RunningManager,
  healedAt: number,
): string | null {
  const { clock, nats } = simulation;
  if (store.version !== nats.last) return `it is at ${store.version} of ${nats.last}`;
  const isReady = (nodeId: string): boolean => store.get("node", nodeId)?.status?.state === NodeStatus_State.READY;
  const silentMs = new Map(
    nodes.processes.flatMap(({ goneAt, name }) =>
      goneAt === null ? [] : [[name, clock.elapsed - Math.max(goneAt, healedAt)] as const],
    ),
  );
  const ended = new Map(managers.all.map(({ isRetired, process: { name } }) => [name, isRetired]));
  const why =
    findUnmissed(store, silentMs) ??
    findUnconverged(store, isReady) ??
    findUnwell(store, nodes.drivers, isReady) ??
    findUnsettledRole(store, ended) ??
    findLowLevel(store) ??
    findUntrusting(store) ??
    findUnsettled(store) ??
    findUnallocated(store) ??
    (allocates() ? findLost(store, held) : null) ??
    (storage === null ? null : findUnpublished(store)) ??
    (dataplanes === null ? null : findUntold(store, dataplanes)) ??
    findMovingRollout(store, options.rates["clock.jump"] > 0 ? null : clock.now()) ??
    (options.rebalanceOperations === 0 ? null : findUnbalanced(store, clock.now()));
  if (why !== null) return why;
  for (const id of workloads.removed)
    if (store.get("service", id) !== undefined) return `service ${id} was removed but still exists`;
  return (
    findPhantom(store, nodes) ??
    findStrayNetworks(nodes.all) ??
    findUnrouted(store, nodes.all) ??
    findUnnamed(store, nodes.all, simulation.trace)
  );
}

/** A task that runs without the cluster knowing, or that the cluster wrongly believes to run. */
function findPhantom(store: RunningManager["store"], nodes: SimNodes): string | null {
  for (const task of store.all("task")) {
    const host = store.get("node", task.nodeId)?.description?.hostname;
    const agent = nodes.all.find(({ machine: { name } }) => name === host);
    const saysRunning = task.desiredState === TaskState.RUNNING && task.status?.state === TaskState.RUNNING;
    if (saysRunning && (agent === undefined || !runningOn(agent).includes(task.id)))
      return `task ${task.id} is reported to run on ${agent?.machine.name ?? task.nodeId} but does not`;
  }
  for (const agent of nodes.all)
    for (const id of runningOn(agent)) {
      const task = store.get("task", id);
      if (task === undefined) return `task ${id} runs on ${agent.machine.name} but is in no replica`;
      if (isEnded(observedState(task)))
        return `task ${id} runs on ${agent.machine.name} but is reported in state ${observedState(task)}`;
    }
  return null;
}
