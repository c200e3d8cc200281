/** `ServiceSpec`: the body of a service's creation and update. */
import {
  Annotations,
  DiscreteGenericResource,
  EndpointSpec,
  EndpointSpec_ResolutionMode,
  GenericResource,
  GlobalJob,
  GlobalService,
  NamedGenericResource,
  NetworkAttachmentConfig,
  Placement,
  PlacementPreference,
  Platform,
  PortConfig,
  PortConfig_Protocol,
  PortConfig_PublishMode,
  ReplicatedJob,
  ReplicatedService,
  ResourceRequirements,
  Resources,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  ServiceSpec,
  SpreadOver,
  TaskSpec,
  UpdateConfig,
  UpdateConfig_FailureAction,
  UpdateConfig_UpdateOrder,
  ContainerSpec,
  Duration,
} from "../../../proto/gen/messages.ts";
import { badRequest } from "../failure.ts";
import { isOlder } from "../api-version.ts";
import { checked, duration, integer, list, map, object, real, shape, text, texts, word, type Json } from "../shape.ts";
import { annotations, driver } from "./common.ts";
import { container, enumOf } from "./container.ts";

const generic = shape("swarm.GenericResource", GenericResource, {
  NamedResourceSpec: object(
    "namedResourceSpec",
    shape("swarm.NamedGenericResource", NamedGenericResource, { Kind: text("kind"), Value: text("value") }),
  ),
  DiscreteResourceSpec: object(
    "discreteResourceSpec",
    shape("swarm.DiscreteGenericResource", DiscreteGenericResource, {
      Kind: text("kind"),
      Value: integer("value", "int64"),
    }),
  ),
});

const resources = shape("swarm.ResourceRequirements", ResourceRequirements, {
  Limits: object(
    "limits",
    shape("swarm.Limit", Resources, {
      NanoCPUs: integer("nanoCpus", "int64"),
      MemoryBytes: integer("memoryBytes", "int64"),
      // Part of the container in SwarmKit: `finishTask`.
      Pids: checked(integer("pids", "int64")),
    }),
  ),
  Reservations: object(
    "reservations",
    shape("swarm.Resources", Resources, {
      NanoCPUs: integer("nanoCpus", "int64"),
      MemoryBytes: integer("memoryBytes", "int64"),
      GenericResources: list("generic", generic),
    }),
  ),
});

const restart = shape(
  "swarm.RestartPolicy",
  RestartPolicy,
  {
    Condition: word(
      "condition",
      "swarm.RestartPolicyCondition",
      enumOf(
        RestartPolicy_RestartCondition,
        RestartPolicy_RestartCondition.ANY,
        (given) => `invalid RestartCondition: ${JSON.stringify(given)}`,
      ),
    ),
    Delay: duration("delay"),
    MaxAttempts: integer("maxAttempts", "uint64"),
    Window: duration("window"),
  },
  (policy, { Condition: given }) =>
    given === undefined || given === null
      ? RestartPolicy.patch(policy, { condition: RestartPolicy_RestartCondition.ANY })
      : policy,
);

const placement = shape(
  "swarm.Placement",
  Placement,
  {
    Constraints: texts("constraints"),
    Preferences: list(
      "preferences",
      shape("swarm.PlacementPreference", PlacementPreference, {
        Spread: object("spread", shape("swarm.SpreadOver", SpreadOver, { SpreadDescriptor: text("spreadDescriptor") })),
      }),
    ),
    MaxReplicas: integer("maxReplicas", "uint64"),
    Platforms: list(
      "platforms",
      shape("swarm.Platform", Platform, { Architecture: text("architecture"), OS: text("os") }),
    ),
  },
  (read) => Placement.patch(read, { preferences: read.preferences.filter(({ spread }) => spread !== null) }),
);

const attachment = shape("swarm.NetworkAttachmentConfig", NetworkAttachmentConfig, {
  Target: text("target"),
  Aliases: texts("aliases"),
  DriverOpts: map("driverAttachmentOpts"),
});

/** The runtime and the limit of processes are decided here. */
function finishTask(task: TaskSpec, given: Json): TaskSpec {
  const runtime = (given["Runtime"] as string | null | undefined) ?? "";
  if (runtime !== "" && runtime !== "container" && runtime !== "plugin") throw badRequest("unsupported runtime");
  if (runtime === "plugin" && (given["PluginSpec"] ?? null) !== null)
    throw badRequest('runtime type "plugin" is not supported: Muster runs no services of engine plugins');
  if (runtime === "plugin" || task.container === null) throw badRequest("mismatched Runtime and *Spec fields");
  const limits = (given["Resources"] as Json | null | undefined)?.["Limits"] as Json | null | undefined;
  const pidsLimit = (limits?.["Pids"] as number | null | undefined) ?? 0;
  return pidsLimit === 0
    ? task
    : TaskSpec.patch(task, { container: ContainerSpec.patch(task.container, { pidsLimit }) });
}

const task = shape(
  "swarm.TaskSpec",
  TaskSpec,
  {
    ContainerSpec: object("container", container),
    PluginSpec: checked(object("plugin", shape("runtime.PluginSpec", TaskSpec, {}))),
    Resources: object("resources", resources),
    RestartPolicy: object("restart", restart),
    Placement: object("placement", placement),
    Networks: list("networks", attachment),
    LogDriver: object("logDriver", driver),
    ForceUpdate: integer("forceUpdate", "uint64"),
    Runtime: checked(text("runtime")),
  },
  finishTask,
);

/** Counts are pointers in Go: absent is not 0. */
function counted(given: unknown, name: string): number | undefined {
  return ((given as Json)[name] as number | null | undefined) ?? undefined;
}

function modeOf(mode: Json): Partial<ServiceSpec> {
  const { Global, GlobalJob: globalJob, Replicated, ReplicatedJob: replicatedJob } = mode;
  const set = [Global, globalJob, Replicated, replicatedJob].filter((each) => each !== undefined && each !== null);
  if (set.length > 1) throw badRequest("must specify only one service mode");
  if (set[0] !== undefined && set[0] === Global) return { global: GlobalService.create({}) };
  if (set[0] !== undefined && set[0] === globalJob) return { globalJob: GlobalJob.create({}) };
  if (set[0] !== undefined && set[0] === replicatedJob) {
    const maxConcurrent = counted(replicatedJob, "MaxConcurrent") ?? 1;
    const totalCompletions = counted(replicatedJob, "TotalCompletions") ?? maxConcurrent;
    return { replicatedJob: ReplicatedJob.create({ maxConcurrent, totalCompletions }) };
  }
  const replicas = Replicated === undefined || Replicated === null ? undefined : counted(Replicated, "Replicas");
  return { replicated: ReplicatedService.create({ replicas: replicas ?? 1 }) };
}

const mode = shape("swarm.ServiceMode", ServiceSpec, {
  Replicated: checked(
    object(
      "replicated",
      shape("swarm.ReplicatedService", ReplicatedService, { Replicas: integer("replicas", "uint64") }),
    ),
  ),
  Global: checked(object("global", shape("swarm.GlobalService", GlobalService, {}))),
  ReplicatedJob: checked(
    object(
      "replicatedJob",
      shape("swarm.ReplicatedJob", ReplicatedJob, {
        MaxConcurrent: integer("maxConcurrent", "uint64"),
        TotalCompletions: integer("totalCompletions", "uint64"),
      }),
    ),
  ),
  GlobalJob: checked(object("globalJob", shape("swarm.GlobalJob", GlobalJob, {}))),
});

const update = shape(
  "swarm.UpdateConfig",
  UpdateConfig,
  {
    Parallelism: integer("parallelism", "uint64"),
    Delay: duration("delay"),
    FailureAction: word(
      "failureAction",
      "string",
      enumOf(
        UpdateConfig_FailureAction,
        UpdateConfig_FailureAction.PAUSE,
        (given) => `unrecognized update failure action ${given}`,
      ),
    ),
    Monitor: duration("monitor"),
    MaxFailureRatio: real("maxFailureRatio", "float32"),
    Order: word(
      "order",
      "string",
      enumOf(
        UpdateConfig_UpdateOrder,
        UpdateConfig_UpdateOrder.STOP_FIRST,
        (given) => `unrecognized update order ${given}`,
      ),
    ),
  },
  // Durations that are not pointers in Go are always written, except for one of 0 in `Monitor`.
  (config) => UpdateConfig.patch(config, config.delay === null ? { delay: Duration.create({}) } : {}),
);

/** Words that SwarmKit does not know become its defaults, as in a stock engine. */
function lenient<Value extends number>(values: Readonly<Record<string, Value>>, otherwise: Value) {
  return (given: string): Value => values[given.toUpperCase()] ?? otherwise;
}

const endpoint = shape("swarm.EndpointSpec", EndpointSpec, {
  Mode: word(
    "mode",
    "swarm.ResolutionMode",
    enumOf(
      EndpointSpec_ResolutionMode,
      EndpointSpec_ResolutionMode.VIP,
      (given) => `invalid resolution mode: ${JSON.stringify(given)}`,
    ),
  ),
  Ports: list(
    "ports",
    shape("swarm.PortConfig", PortConfig, {
      Name: text("name"),
      Protocol: word("protocol", "swarm.PortConfigProtocol", lenient(PortConfig_Protocol, PortConfig_Protocol.TCP)),
      TargetPort: integer("targetPort", "uint32"),
      PublishedPort: integer("publishedPort", "uint32"),
      PublishMode: word(
        "publishMode",
        "swarm.PortConfigPublishMode",
        lenient(PortConfig_PublishMode, PortConfig_PublishMode.INGRESS),
      ),
    }),
  ),
});

export const serviceBody = shape(
  "swarm.ServiceSpec",
  ServiceSpec,
  {
    ...annotations,
    TaskTemplate: object("task", task),
    UpdateConfig: object("update", update),
    RollbackConfig: object("rollback", update),
    Networks: list("networks", attachment),
    EndpointSpec: object("endpoint", endpoint),
    Mode: checked(object("mode", mode)),
  },
  (spec, given) => {
    if (spec.task === null) throw badRequest("mismatched Runtime and *Spec fields");
    const annotated = spec.annotations ?? Annotations.create({});
    return ServiceSpec.patch(spec, { annotations: annotated, ...modeOf((given["Mode"] as Json | null) ?? {}) });
  },
);

/** Fields that a version of the API does not know yet are not taken from its requests. */
const fieldsSince: readonly (readonly [version: string, path: string])[] = [
  ["1.40", "TaskTemplate.ContainerSpec.Sysctls"],
  ["1.40", "TaskTemplate.ContainerSpec.Privileges.CredentialSpec.Config"],
  ["1.40", "TaskTemplate.ContainerSpec.Configs.Runtime"],
  ["1.40", "TaskTemplate.Placement.MaxReplicas"],
  ["1.41", "TaskTemplate.ContainerSpec.CapabilityAdd"],
  ["1.41", "TaskTemplate.ContainerSpec.CapabilityDrop"],
  ["1.41", "TaskTemplate.ContainerSpec.Ulimits"],
  ["1.41", "TaskTemplate.Resources.Limits.Pids"],
  ["1.41", "Mode.ReplicatedJob"],
  ["1.41", "Mode.GlobalJob"],
  ["1.44", "TaskTemplate.ContainerSpec.Healthcheck.StartInterval"],
  ["1.44", "TaskTemplate.ContainerSpec.Mounts.BindOptions.ReadOnlyNonRecursive"],
  ["1.44", "TaskTemplate.ContainerSpec.Mounts.BindOptions.ReadOnlyForceRecursive"],
  ["1.44", "TaskTemplate.ContainerSpec.Privileges.Seccomp"],
  ["1.44", "TaskTemplate.ContainerSpec.Privileges.AppArmor"],
  ["1.44", "TaskTemplate.ContainerSpec.Privileges.NoNewPrivileges"],
  ["1.45", "TaskTemplate.ContainerSpec.Mounts.VolumeOptions.Subpath"],
  ["1.46", "TaskTemplate.ContainerSpec.OomScoreAdj"],
];

function without(value: unknown, path: readonly string[]): unknown {
  const [name = "", ...rest] = path;
  if (Array.isArray(value)) return value.map((each) => without(each, path));
  if (typeof value !== "object" || value === null || !Object.hasOwn(value, name)) return value;
  const { [name]: held, ...others } = value as Json;
  return rest.length === 0 ? others : { ...others, [name]: without(held, rest) };
}

/** The body as that version of the API means it. */
export function knownTo(version: string, body: Json): Json {
  let known: unknown = body;
  for (const [since, path] of fieldsSince) if (isOlder(version, since)) known = without(known, path.split("."));
  return known as Json;
}
