/**
 * Hosts the rebalancing chart: keeps the input of a check at hand, decides with the pure functions of
 * `machines/orchestration/rebalancing/`, and writes the moves. A move is like an update of a slot with an unchanged spec: the
 * old task is desired SHUTDOWN and its successor READY in one transaction; with start-first the successor comes first, and the
 * orchestrator stops the old one when the successor runs.
 *
 * V1: a move replaces exactly the task that was checked: the transaction is conditional on that task's version, so of a move
 *     and a simultaneous restart, scaling or update, only one happens.
 */
import { newTask, taskTemplate } from "../../machines/orchestration/new-task.ts";
import { rebalanceMachine, type RebalanceEvent } from "../../machines/orchestration/rebalance.machine.ts";
import { planRound, type Candidate, type RoundMove } from "../../machines/orchestration/rebalancing/round.ts";
import {
  incidentOf,
  lastNodeChangeMs,
  settlingOf,
  type ClusterView,
  type Hold,
} from "../../machines/orchestration/rebalancing/hold.ts";
import {
  areSettling,
  movedFrom,
  openMove,
  spentMoves,
  steadyLoads,
} from "../../machines/orchestration/rebalancing/moves.ts";
import { judgeService } from "../../machines/orchestration/rebalancing/service.ts";
import {
  isRebalanced,
  rebalanceLabels,
  settingsOf,
  type RebalanceSettings,
} from "../../machines/orchestration/rebalancing/settings.ts";
import { WhatIf } from "../../machines/scheduling/what-if.ts";
import { timestampOf } from "../../proto/time.ts";
import { TaskDirty } from "../../machines/orchestration/task-dirty.ts";
import { isEnded, isWanted, observedState } from "../../machines/task.ts";
import {
  Annotations,
  NodeStatus_State,
  Operation,
  ProposeRequest_Mode,
  Reason,
  StoreObject,
  Task,
  TaskState,
  type Cluster,
  type Node,
  type PlanRebalanceRequest,
  type PlanRebalanceResponse,
  type Service,
} from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { Environment } from "../environment.ts";
import { doubtMs, startNodeDoubts } from "../dispatcher/node-doubts.ts";
import { now, type Part } from "./part.ts";
import { placementView } from "./placement-view.ts";
import { planMoves } from "./rebalance-plan.ts";

/** Delay before a check, in milliseconds: collects commits with the same cause. */
const pauseMsMin = 1_000;
/** A check is followed by a pause this many times as long: it takes at most a twentieth of the process's time. */
const pausePerLook = 20;
/** Fallback interval of checks, in milliseconds. */
const idleLookMs = 3_600_000;
/** A balanced service may become unbalanced when others change; it is checked again after this time, in milliseconds. */
const staleLookMs = 60_000;
const proposeTimeoutMs = 5_000;

export interface Rebalance extends Part {
  /** Whether rebalancing is enabled for the service or one of its moves is pending, and what keeps it from moving more. */
  explain(service: Service): readonly Reason[];
  plan(request: PlanRebalanceRequest): PlanRebalanceResponse;
}

export function startRebalance(env: Environment): Rebalance {
  const { store, clock, telemetry, times } = env;
  const random = env.random.fork("rebalance");
  const nodeOf = (id: string): Node | undefined => store.get("node", id);
  const cluster = (): Cluster | undefined => {
    const [only] = store.all("cluster");
    return only;
  };
  const taskDirties = new Map<string, TaskDirty>();
  /** Services with rebalancing enabled. */
  const enabled = new Set<string>();
  /** Those of them that could not be placed better at their last check. */
  const balanced = new Set<string>();
  const holds = new Map<string, Hold>();
  /** When moves were made, by the id of the created task (R5); kept for the window. */
  const madeMs = new Map<string, number>();
  /** Ids of tasks created by moves that have not completed. */
  const open = new Set<string>();
  let settings: RebalanceSettings = settingsOf(cluster());
  let troubleMs = lastNodeChangeMs(store.all("node"), times);
  let hold: Hold | null = null;
  let found: readonly RoundMove[] = [];
  /** Whether other services have changed since then. */
  let lookedAtAllMs = 0;
  let isStale = false;
  let hasNews = false;
  let isStopped = false;
  const { counter } = telemetry.metrics;
  const movesTotal = counter("muster_rebalance_moves_total", "Tasks moved to another node by rebalancing.");

  const machine = rebalanceMachine.provide({
    actions: {
      look: ({ self }) => {
        // A clock that was just set ends the term before a decision depends on it. H5
        env.clockWatch?.look();
        if (!isStopped) self.send(look());
      },
      move: ({ self }) => {
        void move(found).then(() => {
          if (!isStopped) self.send({ type: "moves.written" });
        });
      },
    },
  });

  function isOnAnywhere(): boolean {
    return enabled.size > 0;
  }

  function note(service: Service): void {
    balanced.delete(service.id);
    if (service.spec?.replicated != null && isRebalanced(service, settings)) enabled.add(service.id);
    else {
      enabled.delete(service.id);
      holds.delete(service.id);
      taskDirties.delete(service.id);
    }
  }

  function noteTask(task: Task): void {
    if (movedFrom(task) === "") return;
    if (!madeMs.has(task.id)) madeMs.set(task.id, times.madeMs(task));
    if (isWanted(task) && !isEnded(observedState(task))) open.add(task.id);
  }

  function isDirty(task: Task, service: Service): boolean {
    let taskDirty = taskDirties.get(service.id);
    if (taskDirty === undefined) taskDirties.set(service.id, (taskDirty = new TaskDirty()));
    return taskDirty.isDirty(task, service, nodeOf);
  }

  function clusterView(): ClusterView {
    return { nowMs: clock.now(), times, nodes: [...store.all("node")], troubleMs, doubts: doubts.told() };
  }

  /** R4: the reason why the moves of the last round are waiting; null if none is. */
  function openRound(nowMs: number): Hold | null {
    let waits: Hold | null = null;
    for (const id of open) {
      const task = store.get("task", id);
      const service = task === undefined ? undefined : store.get("service", task.serviceId);
      const before = task === undefined ? undefined : store.get("task", movedFrom(task));
      const wait = openMove(task, before, service, nowMs, times);
      if (wait === null) open.delete(id);
      else if (waits === null || (wait.untilMs ?? 0) < (waits.untilMs ?? 0)) waits = wait;
    }
    return waits;
  }

  function look(): RebalanceEvent {
    const startedMs = clock.monotonic();
    found = [];
    const nextMs = (untilMs: number | null): number =>
      untilMs === null ? idleLookMs : Math.min(idleLookMs, Math.max(0, Math.ceil(untilMs - clock.now())));
    const pauseMs = (): number => Math.max(pauseMsMin, pausePerLook * (clock.monotonic() - startedMs));
    if (!isOnAnywhere() && open.size === 0) {
      hold = null;
      return { type: "look.off", pauseMs: pauseMs() };
    }
    const view = clusterView();
    hold = incidentOf(view, settings);
    if (hold !== null) {
      // The manager stops reporting when it has nothing more to report.
      const untilMs = view.doubts.length > 0 ? view.nowMs + doubtMs : hold.untilMs;
      return { type: "look.incident", nextMs: nextMs(untilMs), pauseMs: pauseMs() };
    }
    hold = openRound(view.nowMs);
    if (hold !== null) return { type: "look.moving", nextMs: nextMs(hold.untilMs), pauseMs: pauseMs() };
    hold = settlingOf(view, settings);
    if (hold !== null) return { type: "look.unsettled", nextMs: nextMs(hold.untilMs), pauseMs: pauseMs() };
    for (const [id, time] of madeMs) if (time + settings.windowMs <= view.nowMs) madeMs.delete(id);
    const { spent, untilMs } = spentMoves(madeMs.values(), settings, view.nowMs);
    const budget = Math.min(settings.roundMovesMax, settings.windowMovesMax - spent);
    if (budget <= 0) {
      hold =
        settings.roundMovesMax === 0
          ? { reason: `the cluster's label ${rebalanceLabels.round} allows no moves per round`, untilMs: null }
          : { reason: `the budget of ${settings.windowMovesMax} moves is used up`, untilMs };
      return { type: "look.balanced", nextMs: nextMs(hold.untilMs), pauseMs: pauseMs() };
    }
    const againMs = lookAtServices(view.nowMs, budget);
    if (found.length > 0) return { type: "look.unbalanced", pauseMs: pauseMs() };
    return { type: "look.balanced", nextMs: nextMs(againMs), pauseMs: pauseMs() };
  }

  /** Finds the moves of a round; returns when to check again if there are none. */
  function lookAtServices(nowMs: number, budget: number): number | null {
    if (isStale && nowMs - lookedAtAllMs >= staleLookMs) balanced.clear();
    if (balanced.size === 0) {
      // Tasks of other services that are not steady yet count once they are.
      isStale = areSettling(store.all("task"), settings, nowMs, times);
      lookedAtAllMs = nowMs;
    }
    let againMs: number | null = isStale ? lookedAtAllMs + staleLookMs : null;
    const sooner = (untilMs: number | null): void => {
      if (untilMs !== null && (againMs === null || untilMs < againMs)) againMs = untilMs;
    };
    const candidates: Candidate[] = [];
    const young: string[] = [];
    for (const id of enabled) {
      if (balanced.has(id)) continue;
      const service = store.get("service", id);
      if (service === undefined) continue;
      const verdict = judge(service, nowMs);
      if (verdict.kind === "held") {
        holds.set(id, verdict.hold);
        sooner(verdict.hold.untilMs);
        continue;
      }
      holds.delete(id);
      sooner(verdict.youngUntilMs);
      if (verdict.youngUntilMs !== null) {
        young.push(id);
        holds.set(id, { reason: "some of its tasks have not run for long", untilMs: verdict.youngUntilMs });
      }
      candidates.push({ service, tasks: verdict.tasks });
    }
    if (candidates.length === 0) return againMs;
    found = planRound(
      candidates,
      budget,
      new WhatIf(placementView(store), nowMs),
      steadyLoads(store.all("task"), settings, nowMs, times),
    );
    // If the round has moves, the others were checked as if these had been made.
    if (found.length === 0) for (const { service } of candidates) balanced.add(service.id);
    for (const id of young) balanced.delete(id);
    return againMs;
  }

  function judge(service: Service, nowMs: number) {
    return judgeService(service, store.tasksByService(service.id), settings, nowMs, {
      nodeOf,
      isDirty: (task) => isDirty(task, service),
      times,
    });
  }

  async function move(moves: readonly RoundMove[]): Promise<void> {
    const outcomes = moves.map(async ({ task, service, isStartFirst, toNodeId, why }) => {
      const id = newId(random);
      const template = taskTemplate(service, cluster(), now(env));
      const made = newTask(template, id, task.slot, isStartFirst ? TaskState.RUNNING : TaskState.READY);
      const annotations = made.annotations ?? Annotations.create();
      const labels = { ...annotations.labels, [rebalanceLabels.from]: task.id };
      const successor = Task.patch(made, { annotations: Annotations.patch(annotations, { labels }) });
      // V1. Start-first does not change the old task, but writes it to make the transaction conditional on it.
      const before = isStartFirst ? task : Task.patch(task, { desiredState: TaskState.SHUTDOWN });
      const operations = [
        Operation.create({ update: StoreObject.create({ task: before }) }),
        Operation.create({ create: StoreObject.create({ task: successor }) }),
      ];
      const outcome = await env.proposer.propose({
        operations,
        mode: ProposeRequest_Mode.ATOMIC,
        timeoutMs: proposeTimeoutMs,
      });
      const fields = { task: task.id, from: task.nodeId, to: toNodeId, service: service.id, why };
      if (outcome.kind === "committed") {
        movesTotal.add();
        telemetry.log.info({ ...fields, successor: id }, "moving a task to a better node");
      } else telemetry.log.info({ ...fields, reason: outcome.message }, "a move was overtaken by another change");
    });
    await Promise.all(outcomes);
  }

  function tell(): void {
    if (!hasNews) return;
    hasNews = false;
    if (isOnAnywhere() || open.size > 0 || !hosted.actor.getSnapshot().matches("off")) {
      hosted.actor.send({ type: "world.touched" });
    }
  }

  /** An incident that is over by the time of the check still counts (R1). */
  function noteTrouble(): void {
    troubleMs = clock.now();
    balanced.clear();
    hasNews = true;
  }

  const doubts = startNodeDoubts(env, () => {
    noteTrouble();
    tell();
  });

  const hosted = env.host.start(machine, `rebalance/${env.managerId}`, { pauseMs: pauseMsMin });
  for (const service of store.all("service")) note(service);
  for (const task of store.all("task")) noteTask(task);
  hasNews = true;
  tell();

  /** The requested services, as if rebalancing were enabled for them. */
  function asked({ serviceIds, all }: PlanRebalanceRequest): readonly Service[] {
    if (all) return [...store.all("service")];
    const ids = serviceIds.length > 0 ? serviceIds : [...enabled];
    return ids.map((id) => {
      const service = store.get("service", id);
      if (service === undefined) throw new RpcError(Status.NOT_FOUND, `service ${id} not found`);
      return service;
    });
  }

  return {
    taskChanged(old, task) {
      const some = (task ?? old) as Task;
      if (task !== null) noteTask(task);
      if (!enabled.has(some.serviceId)) {
        const matters = old === null || task === null || old.nodeId !== task.nodeId || isWanted(old) !== isWanted(task);
        if ((isStale || !matters) && !open.has(some.id)) return;
        isStale = true;
        hasNews = true;
        return;
      }
      balanced.delete(some.serviceId);
      hasNews = true;
    },

    nodeChanged(old, node) {
      const wasReady = old?.status?.state === NodeStatus_State.READY;
      const isReady = node?.status?.state === NodeStatus_State.READY;
      if (old !== null && wasReady !== isReady && (old.description !== null || node === null)) noteTrouble();
      balanced.clear();
      hasNews = true;
    },

    serviceChanged(old, service) {
      if (service !== null) note(service);
      else if (old !== null) {
        for (const known of [enabled, balanced]) known.delete(old.id);
        holds.delete(old.id);
        taskDirties.delete(old.id);
      }
      hasNews = true;
    },

    clusterChanged() {
      settings = settingsOf(cluster());
      for (const service of store.all("service")) note(service);
      hasNews = true;
    },

    commitEnded: tell,

    explain(service) {
      const moving = [...open].some((id) => store.get("task", id)?.serviceId === service.id);
      if (!enabled.has(service.id) && !moving) return [];
      const why = hold ?? holds.get(service.id) ?? null;
      const phase = phaseOf(hosted.actor.getSnapshot().value);
      const waitingFor =
        why === null
          ? `rebalancing (${phase}): nothing; its tasks cannot be placed better`
          : `rebalancing (${phase}): ${why.reason}`;
      return [
        Reason.create({
          since: service.meta?.updatedAt ?? null,
          waitingFor,
          wokenBy: "a node that joins, returns or changes, or the end of what it is waiting for",
          deadline: why?.untilMs == null ? null : timestampOf(Math.round(why.untilMs)),
          atDeadline: "goes on",
        }),
      ];
    },

    plan(request) {
      const view = clusterView();
      return planMoves({
        store,
        settings,
        nowMs: view.nowMs,
        times,
        phase: phaseOf(hosted.actor.getSnapshot().value),
        now: incidentOf(view, settings) ?? openRound(view.nowMs) ?? settlingOf(view, settings),
        spent: spentMoves(madeMs.values(), settings, view.nowMs),
        services: asked(request),
        judge: (service) => judge(service, view.nowMs),
      });
    },

    stop() {
      isStopped = true;
      doubts.stop();
      hosted.stop();
    },
  };
}

/** A transition between two phases is shown as the watching phase to which it belongs. */
function phaseOf(value: unknown): string {
  return value === "gathering" || value === "looking" ? "watching" : String(value);
}
