/**
 * Hosts the rebalancing chart: keeps the input of a check at hand, and writes the moves that it finds
 * (`machines/orchestration/rebalancing/`). A move is like an update of a slot with an unchanged spec: the old task is desired
 * SHUTDOWN and its successor READY in one transaction; with start-first the successor comes first, and the orchestrator stops
 * the old one when the successor runs.
 *
 * V1: a move replaces exactly the task that was checked: the transaction is conditional on that task's version, so of a move
 *     and a simultaneous restart, scaling or update, only one happens.
 */
import { newTask, taskTemplate } from "../../machines/orchestration/new-task.ts";
import {
  pauseAfter,
  pauseMsMin,
  phaseOf,
  rebalanceMachine,
  type RebalanceVerdict,
} from "../../machines/orchestration/rebalance.machine.ts";
import { RebalanceCheck } from "../../machines/orchestration/rebalancing/check.ts";
import type { RoundMove } from "../../machines/orchestration/rebalancing/round.ts";
import { rebalanceLabels, settingsOf } from "../../machines/orchestration/rebalancing/settings.ts";
import { WhatIf } from "../../machines/scheduling/what-if.ts";
import { waitOf, type StatePath } from "../../machines/wait-meta.ts";
import { timestampOf } from "../../proto/time.ts";
import {
  Annotations,
  Operation,
  ProposeRequest_Mode,
  Reason,
  StoreObject,
  Task,
  TaskState,
  type Cluster,
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
import { Reconciler, type Round } from "./reconciler.ts";

const proposeTimeoutMs = 5_000;

interface Rebalance extends Part {
  /** Whether rebalancing is enabled for the service or one of its moves is pending, and what keeps it from moving more. */
  explain(service: Service): readonly Reason[];
  plan(request: PlanRebalanceRequest): PlanRebalanceResponse;
}

export function startRebalance(env: Environment): Rebalance {
  const { store, clock, telemetry, times } = env;
  const random = env.random.fork("rebalance");
  const cluster = (): Cluster | undefined => {
    const [only] = store.all("cluster");
    return only;
  };
  const check = new RebalanceCheck(
    {
      times,
      doubtMs,
      nodeOf: (id) => store.get("node", id),
      nodes: () => store.all("node"),
      services: () => store.all("service"),
      service: (id) => store.get("service", id),
      tasks: () => store.all("task"),
      task: (id) => store.get("task", id),
      tasksOf: (serviceId) => store.tasksByService(serviceId),
      whatIf: (nowMs) => new WhatIf(placementView(store), nowMs),
    },
    settingsOf(cluster()),
  );
  const { counter } = telemetry.metrics;
  const movesTotal = counter("muster_rebalance_moves_total", "Tasks moved to another node by rebalancing.");
  const phase = (): string => phaseOf(loop.snapshot.value);

  function decide(): Round<RebalanceVerdict> {
    // A clock that was just set ends the term before a decision depends on it. H5
    env.clockWatch?.look();
    const startedMs = clock.monotonic();
    const found = check.check(clock.now(), doubts.told());
    const { moves, nextMs } = found;
    const isPartial = moves.length > 0;
    const verdict = { phase: found.phase, nextMs, pauseMs: pauseAfter(clock.monotonic() - startedMs), isPartial };
    if (!isPartial) return { verdict };
    return { verdict, write: () => void move(moves).then(() => loop.send({ type: "decision.written" })) };
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

  function commitEnded(): void {
    if (check.isOn || phase() !== "off") loop.commitEnded();
  }

  const doubts = startNodeDoubts(env, () => {
    check.noteTrouble(clock.now());
    loop.note();
    commitEnded();
  });

  const loop = new Reconciler(env, {
    machine: rebalanceMachine,
    id: `rebalance/${env.managerId}`,
    input: { pauseMs: pauseMsMin },
    decide,
  });
  loop.note();
  commitEnded();

  /** The requested services, as if rebalancing were enabled for them. */
  function asked({ serviceIds, all }: PlanRebalanceRequest): readonly Service[] {
    if (all) return [...store.all("service")];
    const ids = serviceIds.length > 0 ? serviceIds : [...check.enabled];
    return ids.map((id) => {
      const service = store.get("service", id);
      if (service === undefined) throw new RpcError(Status.NOT_FOUND, `service ${id} not found`);
      return service;
    });
  }

  return {
    taskChanged(old, task) {
      if (check.followTask(old, task)) loop.note();
    },

    nodeChanged(old, node) {
      check.followNode(old, node, clock.now());
      loop.note();
    },

    serviceChanged(old, service) {
      check.followService(old, service);
      loop.note();
    },

    clusterChanged() {
      check.followSettings(settingsOf(cluster()));
      loop.note();
    },

    commitEnded,

    explain(service) {
      const why = check.holdOf(service);
      if (why === undefined) return [];
      const wait = waitOf(rebalanceMachine, loop.snapshot.value as StatePath<typeof rebalanceMachine>);
      return [
        Reason.create({
          since: service.meta?.updatedAt ?? null,
          waitingFor: `rebalancing (${phase()}): ${why?.reason ?? wait.waitingFor}`,
          wokenBy: wait.wokenBy,
          deadline: why?.untilMs == null ? null : timestampOf(Math.round(why.untilMs)),
          atDeadline: "goes on",
        }),
      ];
    },

    plan(request) {
      const nowMs = clock.now();
      return planMoves({
        store,
        settings: check.settings,
        nowMs,
        times,
        phase: phase(),
        ...check.blocks(nowMs, doubts.told()),
        services: asked(request),
        judge: (service) => check.judge(service, nowMs),
      });
    },

    stop() {
      doubts.stop();
      loop.stop();
    },
  };
}
