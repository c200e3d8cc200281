/** Answers PlanService on the leader: checks the request as Control does, builds the plan from the store, and shows it. */
import { WhatIf } from "../../machines/scheduling/what-if.ts";
import { planService, type PlanStep, type ServicePlan } from "../../machines/orchestration/service-plan.ts";
import { isIngress } from "../../machines/validation/network.ts";
import { isWanted, observedState } from "../../machines/task.ts";
import {
  PlannedNode,
  PlannedStep,
  PlannedWait,
  PlanServiceResponse,
  TaskState,
  Version,
  type PlanServiceRequest,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import { notFound } from "../control/answer.ts";
import { changedService, checkedSpec, createdService, restoredService } from "../control/service-request.ts";
import type { Environment } from "../environment.ts";
import { placementView } from "./placement-view.ts";

/** Maximum steps shown. An answer goes over the bus, and nobody reads more. */
const shownStepsMax = 1_000;
/** Placeholder for the id of a service that does not exist yet. */
const newServiceId = "new";

/** Throws RpcError for requests that Control would refuse. */
export function answerPlan(
  env: Pick<Environment, "store" | "clock">,
  request: PlanServiceRequest,
): PlanServiceResponse {
  const { store, clock } = env;
  const nowMs = clock.now();
  const before = request.serviceId === "" ? null : serviceOf(env, request.serviceId);
  const after =
    before === null
      ? createdService(env, checkedSpec(request.spec), () => newServiceId)
      : changed(env, before, request);
  const tasks: readonly Task[] = before === null ? [] : [...store.tasksByService(before.id)];
  const [cluster] = store.all("cluster");
  const plan = planService(before, after, {
    nowMs,
    whatIf: new WhatIf(placementView(store), nowMs),
    nodes: () => store.all("node"),
    nodeOf: (id) => store.get("node", id),
    networkOf: (id) => store.get("network", id) ?? store.byName("network", id),
    ingress: () => [...store.all("network")].find(isIngress),
    cluster,
    tasks,
  });
  const notes = [...plan.notes];
  const others = waitingOf(env, after.id);
  if (others > 0)
    notes.push(`${others} tasks of other services are waiting for a node: they may get freed resources first`);
  return shown(env, before, after, { ...plan, notes });
}

function serviceOf({ store }: Pick<Environment, "store">, id: string): Service {
  const service = store.get("service", id);
  if (service === undefined) throw notFound("service", id);
  return service;
}

function changed(
  env: Pick<Environment, "store" | "clock">,
  before: Service,
  { rollback, spec }: PlanServiceRequest,
): Service {
  if (rollback) return restoredService(env, before);
  return changedService(env, before, checkedSpec(spec), before.meta?.version ?? Version.create());
}

function waitingOf({ store }: Pick<Environment, "store">, serviceId: string): number {
  let waiting = 0;
  for (const task of store.all("task")) {
    if (task.serviceId !== serviceId && isWanted(task) && observedState(task) === TaskState.PENDING) waiting += 1;
  }
  return waiting;
}

function shown(
  { store }: Pick<Environment, "store">,
  before: Service | null,
  after: Service,
  plan: ServicePlan,
): PlanServiceResponse {
  const nameOf = (id: string): string => store.get("node", id)?.description?.hostname ?? "";
  const count = (kind: PlanStep["kind"]): number => plan.steps.filter((step) => step.kind === kind).length;
  const steps = plan.steps.slice(0, shownStepsMax);
  const nodes = Array.from(plan.nodes, ([id, counts]) => PlannedNode.create({ id, name: nameOf(id), ...counts }));
  return PlanServiceResponse.create({
    version: store.version,
    serviceId: before?.id ?? "",
    name: after.spec?.annotations?.name ?? "",
    steps: steps.map(({ kind, slot, batch, task, nodeId, reasons }) =>
      PlannedStep.create({
        kind,
        slot,
        batch,
        taskId: task?.id ?? "",
        fromNodeId: task?.nodeId ?? "",
        fromNodeName: nameOf(task?.nodeId ?? ""),
        nodeId,
        nodeName: nameOf(nodeId),
        reasons,
      }),
    ),
    stepsOmitted: plan.steps.length - steps.length,
    nodes: nodes.sort((a, b) => (a.name === b.name ? (a.id < b.id ? -1 : 1) : a.name < b.name ? -1 : 1)),
    waits: plan.waits.map((wait) => PlannedWait.create({ ...wait })),
    notes: plan.notes,
    created: count("create"),
    replaced: count("replace"),
    removed: count("remove"),
    kept: plan.kept,
  });
}
