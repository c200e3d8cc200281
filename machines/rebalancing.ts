/**
 * Whether tasks may be moved to better nodes now, and which. Pure: everything is read from the stored objects and from
 * what the leader has heard, so that a new leader goes on as the old one would have.
 *
 * Off unless a label says otherwise: `muster.rebalance=on` on a service, or on the cluster for all services without the
 * label. The cluster's labels also hold the limits (`rebalanceLabels`).
 *
 * R1: nothing moves during an incident: while a node is not READY, or was not a short time ago; while a manager misses
 *     nodes or holds its verdicts; while a rollout of the service is under way, or one of its tasks failed a short time ago.
 * R2: nothing moves before the cluster has settled, and no task that has not run for that long.
 * R3: a service whose tasks do not all run is left alone; of the others no more tasks move at once than its update config
 *     lets change at once. So there are never fewer running ones than an update would leave.
 * R4: a round begins when the last one is over: all that moved run, were watched for as long as the update config says,
 *     and its delay has passed.
 * R5: no round has more moves than the budget of a round, and no span of the window's length more than that of the window.
 *     Moves are known by a label of the tasks that they made, so the budget outlives a leader.
 */
import {
  NodeStatus_State,
  TaskState,
  UpdateConfig_UpdateOrder,
  UpdateStatus_UpdateState,
  type Annotations,
  type Cluster,
  type Node,
  type Service,
  type Task,
} from "../proto/gen/messages.ts";
import type { NodeOf } from "./restart.ts";
import { isEnded, isHeld, isWanted, observedState } from "./task.ts";
import { durationMs, timeMs } from "./time.ts";

export const rebalanceLabels = {
  /** `on` or `off`; on a service or on the cluster. */
  mode: "muster.rebalance",
  /** Duration such as `90s`; on the cluster, as the following. */
  settle: "muster.rebalance.settle",
  quiet: "muster.rebalance.quiet",
  round: "muster.rebalance.round",
  moves: "muster.rebalance.moves",
  window: "muster.rebalance.window",
  /** On a task that a move made: the id of the task that it follows. */
  from: "muster.rebalance.from",
} as const;

export interface RebalanceSettings {
  /** For services without a label of their own. */
  readonly isOn: boolean;
  /** For so long, in milliseconds, no node may have changed, and a task must have run, before anything moves. */
  readonly settleMs: number;
  /** For so long, in milliseconds, there must have been no incident. */
  readonly quietMs: number;
  readonly roundMovesMax: number;
  readonly windowMovesMax: number;
  readonly windowMs: number;
  /** Labels that cannot be understood, in sentences; the defaults stand in for them. */
  readonly flaws: readonly string[];
}

/**
 * A minute is longer than a node takes to be told its tasks and start them; five are the time for which SwarmKit's
 * scheduler holds failures against a node; sixty moves an hour change a small part of any cluster that needs them.
 */
const defaults = { settleMs: 60_000, quietMs: 300_000, roundMovesMax: 5, windowMovesMax: 60, windowMs: 3_600_000 };

/** SwarmKit's: how long a changed task is watched when the update config does not say. */
const monitorMs = 5_000;
/** A move that has not come to its end by then, in milliseconds, holds up the moves of its own service alone. */
export const openMoveMsMax = 600_000;

const unitMs: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

export function settingsOf(cluster: Cluster | undefined): RebalanceSettings {
  const labels = cluster?.spec?.annotations?.labels ?? {};
  const flaws: string[] = [];
  const read = (label: string, absent: number, parse: (text: string) => number | null): number => {
    const text = labels[label];
    if (text === undefined) return absent;
    const value = parse(text);
    if (value === null) flaws.push(`the cluster's label ${label}=${text} cannot be understood`);
    return value ?? absent;
  };
  return {
    isOn: isOn(cluster?.spec?.annotations ?? null) ?? false,
    settleMs: read(rebalanceLabels.settle, defaults.settleMs, parseSpan),
    quietMs: read(rebalanceLabels.quiet, defaults.quietMs, parseSpan),
    roundMovesMax: read(rebalanceLabels.round, defaults.roundMovesMax, parseMoves),
    windowMovesMax: read(rebalanceLabels.moves, defaults.windowMovesMax, parseMoves),
    windowMs: read(rebalanceLabels.window, defaults.windowMs, parseSpan),
    flaws,
  };
}

function parseSpan(text: string): number | null {
  const [, amount, unit] = /^(\d{1,9})(ms|s|m|h)$/.exec(text) ?? [];
  return amount === undefined || unit === undefined ? null : Number(amount) * (unitMs[unit] ?? 0);
}

function parseMoves(text: string): number | null {
  return /^\d{1,6}$/.test(text) ? Number(text) : null;
}

/** Null when there is no label, or one that is neither on nor off. */
function isOn(annotations: Annotations | null): boolean | null {
  const text = annotations?.labels[rebalanceLabels.mode];
  if (text === "on" || text === "true") return true;
  return text === "off" || text === "false" ? false : null;
}

export function isRebalanced(service: Service, settings: RebalanceSettings): boolean {
  return isOn(service.spec?.annotations ?? null) ?? settings.isOn;
}

/** The task that this one was made to follow elsewhere; empty for one that was not made by a move. */
export function movedFrom(task: Task): string {
  return task.annotations?.labels[rebalanceLabels.from] ?? "";
}

/** Why nothing moves. `untilMs`: when to look again even if nothing happens; null: something will happen first. */
export interface Hold {
  readonly reason: string;
  readonly untilMs: number | null;
}

/** No later than a whole span from now, should an earlier leader's clock have been ahead. */
function untilAfter(timeOf: number, spanMs: number, nowMs: number): number | null {
  const until = Math.min(timeOf + spanMs, nowMs + spanMs);
  return until > nowMs ? until : null;
}

export interface ClusterView {
  readonly nowMs: number;
  readonly nodes: readonly Node[];
  /** When there last was an incident as far as this leader knows, in milliseconds since the epoch; 0: never. */
  readonly troubleMs: number;
  /** What managers say of nodes that they miss now, in sentences. */
  readonly doubts: readonly string[];
}

/** R1: what is wrong in the cluster now. */
export function troubleOf(nodes: Iterable<Node>, nowMs: number, quietMs: number): Hold | null {
  let until: Hold | null = null;
  for (const node of nodes) {
    // One that was let in and never came is no loss.
    if (node.description === null) continue;
    const state = node.status?.state ?? NodeStatus_State.UNKNOWN;
    if (state === NodeStatus_State.READY) continue;
    const name = node.description.hostname || node.id;
    if (state !== NodeStatus_State.DOWN) {
      const word = state === NodeStatus_State.UNKNOWN ? "unknown" : "disconnected";
      return { reason: `node ${name} is ${word}`, untilMs: null };
    }
    // One that has been DOWN for long is known to be gone; its tasks run elsewhere.
    const untilMs = untilAfter(timeMs(node.meta?.updatedAt ?? null), quietMs, nowMs);
    if (untilMs !== null && untilMs > (until?.untilMs ?? 0)) until = { reason: `node ${name} is down`, untilMs };
  }
  return until;
}

/** When the youngest change of a node was: what a leader that has just begun takes for the last incident. */
export function lastNodeChangeMs(nodes: Iterable<Node>): number {
  let last = 0;
  for (const node of nodes) last = Math.max(last, timeMs(node.meta?.updatedAt ?? null));
  return last;
}

/** R1: the incident that keeps everything where it is; null: none. */
export function incidentOf(view: ClusterView, settings: RebalanceSettings): Hold | null {
  const [doubt] = view.doubts;
  if (doubt !== undefined) return { reason: doubt, untilMs: null };
  const trouble = troubleOf(view.nodes, view.nowMs, settings.quietMs);
  if (trouble !== null) return trouble;
  const untilMs = untilAfter(view.troubleMs, settings.quietMs, view.nowMs);
  return untilMs === null ? null : { reason: "a node was missing a short time ago", untilMs };
}

/** R2: the youngest change of a node that everything waits for; null: the cluster has settled. */
export function settlingOf(view: ClusterView, settings: RebalanceSettings): Hold | null {
  let found: Hold | null = null;
  for (const node of view.nodes) {
    if (node.description === null || node.status?.state !== NodeStatus_State.READY) continue;
    const untilMs = untilAfter(timeMs(node.meta?.updatedAt ?? null), settings.settleMs, view.nowMs);
    if (untilMs === null || untilMs <= (found?.untilMs ?? 0)) continue;
    found = { reason: `node ${node.description.hostname || node.id} joined or changed a short time ago`, untilMs };
  }
  return found;
}

/** What the update config says for moves; parallelism 0 is as many as the budget allows. */
export function paceOf(service: Service): {
  readonly parallelism: number;
  readonly isStartFirst: boolean;
  /** From RUNNING until the next round, in milliseconds. */
  readonly pauseMs: number;
} {
  const config = service.spec?.update ?? null;
  // SwarmKit's default: one slot after the other.
  const parallelism = config === null ? 1 : config.parallelism;
  return {
    parallelism: parallelism === 0 ? Number.MAX_SAFE_INTEGER : parallelism,
    isStartFirst: config?.order === UpdateConfig_UpdateOrder.START_FIRST,
    pauseMs: Math.max(durationMs(config?.delay ?? null, 0), durationMs(config?.monitor ?? null, monitorMs)),
  };
}

export function runningSinceMs(task: Task): number {
  return timeMs(task.status?.appliedAt ?? task.status?.timestamp ?? null);
}

/** R4: what a move still waits for; null: it is over, or no longer a move. `before`: the task that it follows. */
export function openMove(
  task: Task | undefined,
  before: Task | undefined,
  service: Service | undefined,
  nowMs: number,
): Hold | null {
  if (task === undefined || service === undefined || !isWanted(task) || isEnded(observedState(task))) return null;
  const madeMs = timeMs(task.meta?.createdAt ?? null);
  const patience = untilAfter(madeMs, openMoveMsMax, nowMs);
  if (patience === null) return null;
  if (observedState(task) !== TaskState.RUNNING) return { reason: `task ${task.id} to run`, untilMs: patience };
  if (before !== undefined && isHeld(observedState(before))) {
    return { reason: `task ${before.id} to stop`, untilMs: patience };
  }
  const untilMs = untilAfter(runningSinceMs(task), paceOf(service).pauseMs, nowMs);
  return untilMs === null
    ? null
    : { reason: `task ${task.id}, which moved, to have run for the time that the update config says`, untilMs };
}

const rolloutStates: ReadonlySet<UpdateStatus_UpdateState> = new Set([
  UpdateStatus_UpdateState.UPDATING,
  UpdateStatus_UpdateState.PAUSED,
  UpdateStatus_UpdateState.ROLLBACK_STARTED,
  UpdateStatus_UpdateState.ROLLBACK_PAUSED,
]);

export type ServiceVerdict =
  | { readonly kind: "held"; readonly hold: Hold }
  /** `youngUntilMs`: when the next of its tasks may be moved; null: all may, now. */
  | { readonly kind: "movable"; readonly tasks: readonly Task[]; readonly youngUntilMs: number | null };

/** R1, R2, R3. `tasks`: all of the service's. */
export function judgeService(
  service: Service,
  tasks: Iterable<Task>,
  settings: RebalanceSettings,
  nowMs: number,
  world: { readonly nodeOf: NodeOf; readonly isOutdated: (task: Task) => boolean },
): ServiceVerdict {
  const held = (reason: string, untilMs: number | null = null): ServiceVerdict => ({
    kind: "held",
    hold: { reason, untilMs },
  });
  const replicas = service.spec?.replicated?.replicas;
  if (replicas === undefined) return held("only tasks of replicated services can be moved");
  if (service.pendingDelete) return held("the service is being removed");
  if (rolloutStates.has(service.updateStatus?.state ?? UpdateStatus_UpdateState.UNKNOWN)) {
    return held("a rollout of the service is under way");
  }
  const settled: Task[] = [];
  const slots = new Set<number>();
  let youngUntilMs: number | null = null;
  for (const task of tasks) {
    const state = observedState(task);
    if (state === TaskState.FAILED || state === TaskState.REJECTED || state === TaskState.ORPHANED) {
      const untilMs = untilAfter(runningSinceMs(task), settings.quietMs, nowMs);
      if (untilMs !== null) return held(`task ${task.id} failed a short time ago`, untilMs);
    }
    if (!isWanted(task)) {
      if (isHeld(state) && world.nodeOf(task.nodeId)?.status?.state === NodeStatus_State.READY) {
        return held(`task ${task.id} is being stopped`);
      }
      continue;
    }
    if (state !== TaskState.RUNNING || task.desiredState !== TaskState.RUNNING) {
      return held(`task ${task.id} does not run yet`);
    }
    if (slots.has(task.slot)) return held(`slot ${task.slot} has two tasks`);
    if (world.isOutdated(task)) return held("a rollout of the service is under way");
    slots.add(task.slot);
    const untilMs = untilAfter(runningSinceMs(task), settings.settleMs, nowMs);
    if (untilMs === null) settled.push(task);
    else if (youngUntilMs === null || untilMs < youngUntilMs) youngUntilMs = untilMs;
  }
  if (slots.size !== replicas) return held(`${slots.size} of ${replicas} tasks run`);
  return { kind: "movable", tasks: settled, youngUntilMs };
}

/** R5: how many of the moves made at these times count now, and when the oldest of them no longer does. */
export function spentMoves(
  madeMs: Iterable<number>,
  settings: RebalanceSettings,
  nowMs: number,
): { readonly spent: number; readonly untilMs: number | null } {
  let spent = 0;
  let untilMs: number | null = null;
  for (const time of madeMs) {
    const until = untilAfter(time, settings.windowMs, nowMs);
    if (until === null) continue;
    spent += 1;
    if (untilMs === null || until < untilMs) untilMs = until;
  }
  return { spent, untilMs };
}

/**
 * Tasks that are there to stay, by node id: those that have run for the settling time, and those that moves made, which
 * count from the start, or the next round would not see what the last one has done.
 */
export function steadyLoads(tasks: Iterable<Task>, settings: RebalanceSettings, nowMs: number): Map<string, number> {
  const loads = new Map<string, number>();
  for (const task of tasks) {
    const state = observedState(task);
    if (task.nodeId === "" || !isWanted(task) || isEnded(state)) continue;
    const isSteady =
      movedFrom(task) !== "" ||
      (state === TaskState.RUNNING && untilAfter(runningSinceMs(task), settings.settleMs, nowMs) === null);
    if (isSteady) loads.set(task.nodeId, (loads.get(task.nodeId) ?? 0) + 1);
  }
  return loads;
}
