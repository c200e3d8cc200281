/** Converts `deploy` and the single-engine settings of the same kind: mode, resources, restarts, rollouts, placement. */
import {
  DiscreteGenericResource,
  Duration,
  GenericResource,
  GlobalJob,
  GlobalService,
  Placement,
  PlacementPreference,
  ReplicatedJob,
  ReplicatedService,
  ResourceRequirements,
  Resources,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  SpreadOver,
  UpdateConfig,
  UpdateConfig_FailureAction,
  UpdateConfig_UpdateOrder,
  type ServiceSpec,
} from "../../proto/gen/messages.ts";
import type { View } from "./view.ts";

const failureActions: Readonly<Record<string, UpdateConfig_FailureAction>> = {
  pause: UpdateConfig_FailureAction.PAUSE,
  continue: UpdateConfig_FailureAction.CONTINUE,
  rollback: UpdateConfig_FailureAction.ROLLBACK,
};

/** Default number of replicas. */
const replicasDefault = 1;

export function modeOf(service: View): Partial<ServiceSpec> {
  const deploy = service.child("deploy");
  const mode = deploy.text("mode") || "replicated";
  const isEverywhere = mode === "global" || mode === "global-job";
  const replicas = deploy.whole("replicas") ?? (isEverywhere ? null : service.whole("scale"));
  if (isEverywhere && replicas !== null) throw deploy.mistake("replicas", `cannot be used with mode ${mode}`);
  const count = replicas ?? replicasDefault;
  const concurrent = service.child("x-muster").whole("max_concurrent");
  if (concurrent !== null && mode !== "replicated-job")
    throw service.child("x-muster").mistake("max_concurrent", "can only be used with mode replicated-job");
  switch (mode) {
    case "global":
      return { global: GlobalService.create({}) };
    case "global-job":
      return { globalJob: GlobalJob.create({}) };
    case "replicated-job":
      return { replicatedJob: ReplicatedJob.create({ maxConcurrent: concurrent ?? count, totalCompletions: count }) };
    default:
      return { replicated: ReplicatedService.create({ replicas: count }) };
  }
}

/** The process limit, which is part of the container spec. */
export function pidsLimitOf(service: View): number {
  const limits = service.child("deploy").child("resources").child("limits");
  return limits.whole("pids") ?? service.whole("pids_limit") ?? 0;
}

function cpusAndMemory(own: View, service: View, cpus: string, memory: string): Partial<Resources> {
  return {
    nanoCpus: own.has("cpus") ? own.cpus("cpus") : cpus === "" ? 0 : service.cpus(cpus),
    memoryBytes: own.has("memory") ? own.bytes("memory") : service.bytes(memory),
  };
}

export function resourcesOf(service: View): ResourceRequirements {
  const resources = service.child("deploy").child("resources");
  const limits = resources.child("limits");
  const reservations = resources.child("reservations");
  const isLimited = resources.has("limits") || service.has("cpus") || service.has("mem_limit");
  const isReserved = resources.has("reservations") || service.has("mem_reservation");
  const generic = reservations.items("generic_resources").map((item) => {
    const spec = item.child("discrete_resource_spec");
    const value = spec.whole("value") ?? 0;
    return GenericResource.create({
      discreteResourceSpec: DiscreteGenericResource.create({ kind: spec.text("kind"), value }),
    });
  });
  return ResourceRequirements.create({
    limits: isLimited ? Resources.create(cpusAndMemory(limits, service, "cpus", "mem_limit")) : null,
    reservations: isReserved
      ? Resources.create({ ...cpusAndMemory(reservations, service, "", "mem_reservation"), generic })
      : null,
  });
}

/** The single-engine `restart: on-failure:3`. */
function engineRestart(service: View): RestartPolicy | null {
  const text = service.text("restart");
  if (text === "") return null;
  const match = /^(no|always|unless-stopped|on-failure)(?::(\d+))?$/.exec(text);
  if (match === null || (match[2] !== undefined && match[1] !== "on-failure")) {
    throw service.mistake("restart", `must be no, always, unless-stopped or on-failure[:COUNT], not '${text}'`);
  }
  switch (match[1]) {
    case "no":
      return RestartPolicy.create({ condition: RestartPolicy_RestartCondition.NONE });
    case "on-failure":
      return RestartPolicy.create({
        condition: RestartPolicy_RestartCondition.ON_FAILURE,
        maxAttempts: Number(match[2] ?? 0),
      });
    default:
      return RestartPolicy.create({ condition: RestartPolicy_RestartCondition.ANY });
  }
}

export function restartOf(service: View): RestartPolicy | null {
  const deploy = service.child("deploy");
  if (!deploy.has("restart_policy")) return engineRestart(service);
  const policy = deploy.child("restart_policy");
  const conditions: Readonly<Record<string, RestartPolicy_RestartCondition>> = {
    none: RestartPolicy_RestartCondition.NONE,
    "on-failure": RestartPolicy_RestartCondition.ON_FAILURE,
  };
  return RestartPolicy.create({
    condition: conditions[policy.text("condition")] ?? RestartPolicy_RestartCondition.ANY,
    delay: policy.duration("delay"),
    maxAttempts: policy.whole("max_attempts") ?? 0,
    window: policy.duration("window"),
  });
}

export function rolloutOf(service: View, key: "update_config" | "rollback_config"): UpdateConfig | null {
  const deploy = service.child("deploy");
  if (!deploy.has(key)) return null;
  const config = deploy.child(key);
  const action = config.text("failure_action");
  if (key === "rollback_config" && action === "rollback") {
    throw config.mistake("failure_action", "must be one of continue, pause: a failed rollback cannot roll back");
  }
  const isStartFirst = config.text("order") === "start-first";
  return UpdateConfig.create({
    parallelism: config.whole("parallelism") ?? 1,
    delay: config.duration("delay") ?? Duration.create({}),
    failureAction: failureActions[action] ?? UpdateConfig_FailureAction.PAUSE,
    monitor: config.duration("monitor"),
    // The field is a single-precision float: round now, for later comparisons.
    maxFailureRatio: Math.fround(Number(config.text("max_failure_ratio") || "0")),
    order: isStartFirst ? UpdateConfig_UpdateOrder.START_FIRST : UpdateConfig_UpdateOrder.STOP_FIRST,
  });
}

export function placementOf(service: View): Placement {
  const placement = service.child("deploy").child("placement");
  return Placement.create({
    constraints: placement.texts("constraints"),
    preferences: placement
      .items("preferences")
      .map((item) =>
        PlacementPreference.create({ spread: SpreadOver.create({ spreadDescriptor: item.text("spread") }) }),
      ),
    maxReplicas: placement.whole("max_replicas_per_node") ?? 0,
  });
}
