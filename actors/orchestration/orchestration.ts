/**
 * Everything between a service and its running tasks, on the leader: orchestrators, restart supervisor, allocator, scheduler,
 * reaper. All but the scheduler share one watch of the store and one writer. Nothing is carried over from one leader to the
 * next: each part reads its state from the store on start.
 */
import { explainGlobal } from "../../machines/explain/global.ts";
import { readScheduleStatus } from "../../machines/orchestration/jobs/runs.ts";
import { explainService, explainTask, type ExplainView } from "../../machines/explain/explain.ts";
import { lazyNodeNames } from "../../machines/node-names.ts";
import {
  Origin,
  type Node,
  type PlanRebalanceRequest,
  type PlanRebalanceResponse,
  type PlanServiceRequest,
  type PlanServiceResponse,
  type Reason,
  type Task,
} from "../../proto/gen/messages.ts";
import { eachChange, inNoChange } from "../../runtime/store/change-traces.ts";
import type { Commit } from "../../runtime/store/store.ts";
import { startAllocator } from "./allocator.ts";
import { startEnforcer } from "./enforcer.ts";
import type { Environment, Running } from "../environment.ts";
import { startGlobal } from "./global.ts";
import { startJobs } from "./job.ts";
import { Writer, type Part } from "./part.ts";
import { writingAs } from "../origin.ts";
import { startReaper } from "./reaper.ts";
import { startRebalance } from "./rebalance.ts";
import { startReplicated } from "./replicated.ts";
import { startRestart } from "./restart.ts";
import { startSchedules } from "./schedule.ts";
import { startRollouts } from "./rollouts.ts";
import { whyRollout } from "./rollout-view.ts";
import { startScheduler } from "./scheduler.ts";
import { answerPlan } from "./service-plan.ts";

export interface Orchestration extends Running {
  explainTask(task: Task): readonly Reason[];
  /** Empty when the service does not exist. */
  explainService(id: string): readonly Reason[];
  /** Throws RpcError for requests that Control would refuse. */
  planService(request: PlanServiceRequest): PlanServiceResponse;
  planRebalance(request: PlanRebalanceRequest): PlanRebalanceResponse;
}

/** For the leader only, after its replica has caught up: two instances would both decide. */
export function startOrchestration(env: Environment): Orchestration {
  const { store } = env;
  const writer = new Writer(env);
  const rebalance = startRebalance(writingAs(env, Origin.ORIGIN_REBALANCE));
  const rollouts = startRollouts(writingAs(env, Origin.ORIGIN_ROLLOUT), (serviceId, slots) => {
    for (const part of parts) part.turnsCame?.(serviceId, slots);
  });
  const allocator = startAllocator(env, writer.as(Origin.ORIGIN_ALLOCATOR));
  const parts: readonly Part[] = [
    // First, because orchestrators that check a slot after a commit ask for its turn.
    rollouts,
    startReplicated(env, writer, rollouts.turnsOf),
    startGlobal(env, writer.as(Origin.ORIGIN_GLOBAL), rollouts.turnsOf),
    startJobs(env, writer.as(Origin.ORIGIN_JOBS)),
    startSchedules(writingAs(env, Origin.ORIGIN_SCHEDULE)),
    startRestart(env, writer.as(Origin.ORIGIN_RESTART)),
    allocator,
    startEnforcer(env, writer.as(Origin.ORIGIN_ENFORCER)),
    startReaper(env, writer.as(Origin.ORIGIN_REAPER)),
    rebalance,
  ];
  const scheduler = startScheduler(writingAs(env, Origin.ORIGIN_SCHEDULER));
  const watch = store.watch((commit) => tellParts(parts, commit));
  const view = (): ExplainView => ({
    nowMs: env.clock.now(),
    times: env.times,
    service: (id) => store.get("service", id),
    node: (id): Node | undefined => store.get("node", id),
    slot: (serviceId, slot, nodeId) => [...store.tasksAt(serviceId, slot, nodeId)],
    tasks: (serviceId) => store.tasksByService(serviceId),
    nodes: () => store.all("node"),
    nodeName: lazyNodeNames(() => store.all("node")),
    schedule: (serviceId) => readScheduleStatus(store.get("resource", serviceId)),
    placement: (task) => scheduler.explain(task),
    rollout: (service) => whyRollout(store, service, env.clock.now(), env.times),
  });
  return {
    explainTask: (task) => explainTask(store.get("task", task.id) ?? task, view()),
    explainService(id) {
      const service = store.get("service", id);
      if (service === undefined) return [];
      const why =
        service.spec?.global == null
          ? [...explainService(service, view()), ...rebalance.explain(service)]
          : explainGlobal(service, { ...view(), nodes: () => store.all("node") });
      return [...why, ...allocator.explain(service)];
    },
    planService: (request) => answerPlan(env, request),
    planRebalance: (request) => rebalance.plan(request),
    stop() {
      watch.unsubscribe();
      writer.stop();
      scheduler.stop();
      for (const part of [...parts].reverse()) part.stop();
    },
  };
}

function tellParts(parts: readonly Part[], commit: Commit): void {
  eachChange(commit, (change) => {
    const isGone = change.action === "remove";
    switch (change.table) {
      case "task":
        for (const part of parts) part.taskChanged?.(change.old, isGone ? null : change.object);
        break;
      case "node":
        for (const part of parts) part.nodeChanged?.(change.old, isGone ? null : change.object);
        break;
      case "service":
        for (const part of parts) part.serviceChanged?.(change.old, isGone ? null : change.object);
        break;
      case "network":
        for (const part of parts) part.networkChanged?.(change.old, isGone ? null : change.object);
        break;
      case "volume":
        for (const part of parts) part.volumeChanged?.(change.old, isGone ? null : change.object);
        break;
      case "rollout":
        for (const part of parts) part.rolloutChanged?.(change.old, isGone ? null : change.object);
        break;
      case "cluster":
        for (const part of parts) part.clusterChanged?.(change.old, isGone ? null : change.object);
        break;
      default:
    }
  });
  inNoChange(() => {
    for (const part of parts) part.commitEnded();
  });
}
