/** From flags to a service's spec: made whole by `service create`, changed in places by `service update`. */
import { createHash, randomBytes } from "node:crypto";
import {
  Annotations,
  Any,
  ContainerSpec,
  DiscreteGenericResource,
  Driver,
  EndpointSpec,
  EndpointSpec_ResolutionMode,
  ExecSpec,
  GenericResource,
  GenericRuntimeSpec,
  GlobalJob,
  GlobalService,
  BoolValue,
  NetworkAttachmentConfig,
  Placement,
  PlacementPreference,
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
} from "../proto/gen/messages.ts";
import { UsageError } from "./command.ts";
import { parseMount, parsePublish } from "./publish-flag.ts";
import type { createFlags, FlagValues, settingFlags, updateFlags } from "./service-flags.ts";
import { parseBytes, parseChoice, parseCount, parseCpus, parseDuration, parseLabels } from "./values.ts";

type Settings = FlagValues<typeof settingFlags>;
export type CreateValues = FlagValues<typeof createFlags>;
export type UpdateValues = FlagValues<typeof updateFlags>;

/** How the payload of a process task is named. */
const execTypeUrl = "type.googleapis.com/muster.v1.ExecSpec";

const conditions = {
  none: RestartPolicy_RestartCondition.NONE,
  "on-failure": RestartPolicy_RestartCondition.ON_FAILURE,
  any: RestartPolicy_RestartCondition.ANY,
};
const failureActions = {
  pause: UpdateConfig_FailureAction.PAUSE,
  continue: UpdateConfig_FailureAction.CONTINUE,
  rollback: UpdateConfig_FailureAction.ROLLBACK,
};
const orders = {
  "stop-first": UpdateConfig_UpdateOrder.STOP_FIRST,
  "start-first": UpdateConfig_UpdateOrder.START_FIRST,
};

/** The fields whose value is given, as one object: a flag that was not given changes nothing. */
function given<Fields extends object>(fields: {
  readonly [Key in keyof Fields]: (() => Fields[Key]) | null;
}): Partial<Fields> {
  const out: Partial<Fields> = {};
  for (const key of Object.keys(fields) as (keyof Fields)[]) {
    const value = fields[key];
    if (value !== null) out[key] = value();
  }
  return out;
}

function ifGiven<Value, Out>(value: Value | undefined, make: (value: Value) => Out): (() => Out) | null {
  return value === undefined ? null : () => make(value);
}

function isEmpty(fields: object): boolean {
  return Object.keys(fields).length === 0;
}

function resources(before: ResourceRequirements | null, flags: Settings): ResourceRequirements | null {
  const limits = given<Pick<Resources, "nanoCpus" | "memoryBytes">>({
    nanoCpus: ifGiven(flags["limit-cpu"], (value) => parseCpus(value, "limit-cpu")),
    memoryBytes: ifGiven(flags["limit-memory"], (value) => parseBytes(value, "limit-memory")),
  });
  const reservations = given<Pick<Resources, "nanoCpus" | "memoryBytes">>({
    nanoCpus: ifGiven(flags["reserve-cpu"], (value) => parseCpus(value, "reserve-cpu")),
    memoryBytes: ifGiven(flags["reserve-memory"], (value) => parseBytes(value, "reserve-memory")),
  });
  if (isEmpty(limits) && isEmpty(reservations)) return before;
  const base = before ?? ResourceRequirements.create({});
  const nothing = Resources.create({});
  return ResourceRequirements.patch(base, {
    limits: isEmpty(limits) ? base.limits : Resources.patch(base.limits ?? nothing, limits),
    reservations: isEmpty(reservations)
      ? base.reservations
      : Resources.patch(base.reservations ?? nothing, reservations),
  });
}

function restart(before: RestartPolicy | null, flags: Settings): RestartPolicy | null {
  const fields = given<RestartPolicy>({
    condition: ifGiven(flags["restart-condition"], (value) => parseChoice(value, "restart-condition", conditions)),
    delay: ifGiven(flags["restart-delay"], (value) => parseDuration(value, "restart-delay")),
    maxAttempts: ifGiven(flags["restart-max-attempts"], (value) => parseCount(value, "restart-max-attempts")),
    window: ifGiven(flags["restart-window"], (value) => parseDuration(value, "restart-window")),
  });
  if (isEmpty(fields)) return before;
  // A policy without a condition would read as "never": the default of one that is given in part is Docker's "any".
  return RestartPolicy.patch(before ?? RestartPolicy.create({ condition: RestartPolicy_RestartCondition.ANY }), fields);
}

function rollout(before: UpdateConfig | null, flags: Settings, prefix: "update" | "rollback"): UpdateConfig | null {
  const fields = given<UpdateConfig>({
    parallelism: ifGiven(flags[`${prefix}-parallelism`], (value) => parseCount(value, `${prefix}-parallelism`)),
    delay: ifGiven(flags[`${prefix}-delay`], (value) => parseDuration(value, `${prefix}-delay`)),
    failureAction: ifGiven(flags[`${prefix}-failure-action`], (value) =>
      parseChoice(value, `${prefix}-failure-action`, failureActions),
    ),
    monitor: ifGiven(flags[`${prefix}-monitor`], (value) => parseDuration(value, `${prefix}-monitor`)),
    maxFailureRatio: ifGiven(flags[`${prefix}-max-failure-ratio`], Number),
    order: ifGiven(flags[`${prefix}-order`], (value) => parseChoice(value, `${prefix}-order`, orders)),
  });
  return isEmpty(fields) ? before : UpdateConfig.patch(before ?? UpdateConfig.create({ parallelism: 1 }), fields);
}

function logDriver(before: Driver | null, flags: Settings): Driver | null {
  if (flags["log-driver"] === undefined && flags["log-opt"] === undefined) return before;
  return Driver.create({
    name: flags["log-driver"] ?? before?.name ?? "",
    options: { ...before?.options, ...parseLabels(flags["log-opt"] ?? []) },
  });
}

function containerSettings(before: ContainerSpec, flags: Settings): ContainerSpec {
  return ContainerSpec.patch(
    before,
    given<ContainerSpec>({
      dir: ifGiven(flags.workdir, String),
      user: ifGiven(flags.user, String),
      hostname: ifGiven(flags.hostname, String),
      stopSignal: ifGiven(flags["stop-signal"], String),
      stopGracePeriod: ifGiven(flags["stop-grace-period"], (value) => parseDuration(value, "stop-grace-period")),
      command: ifGiven(flags.entrypoint, (value) => value.split(" ").filter((word) => word !== "")),
      tty: ifGiven(flags.tty, Boolean),
      readOnly: ifGiven(flags["read-only"], Boolean),
      init: ifGiven(flags.init, (value) => BoolValue.create({ value })),
      pidsLimit: ifGiven(flags["limit-pids"], (value) => parseCount(value, "limit-pids")),
    } as never),
  );
}

function execSettings(before: ExecSpec, flags: Settings): ExecSpec {
  return ExecSpec.patch(
    before,
    given<ExecSpec>({
      dir: ifGiven(flags.workdir, String),
      user: ifGiven(flags.user, String),
      stopSignal: ifGiven(flags["stop-signal"], String),
      stopGracePeriod: ifGiven(flags["stop-grace-period"], (value) => parseDuration(value, "stop-grace-period")),
    } as never),
  );
}

function withExec(spec: ExecSpec): GenericRuntimeSpec {
  return GenericRuntimeSpec.create({
    kind: "exec",
    payload: Any.create({ type_url: execTypeUrl, value: ExecSpec.encode(spec) }),
  });
}

function execOf(task: TaskSpec): ExecSpec | null {
  const payload = task.generic?.kind === "exec" ? task.generic.payload : null;
  return payload === null ? null : ExecSpec.decode(payload.value);
}

function placement(before: Placement | null, fields: Partial<Placement>): Placement | null {
  return isEmpty(fields) ? before : Placement.patch(before ?? Placement.create({}), fields);
}

function scaled(spec: ServiceSpec, flags: Settings): Partial<ServiceSpec> {
  const concurrent = flags["max-concurrent"];
  if (flags.replicas === undefined && concurrent === undefined) return {};
  if (spec.replicatedJob !== null) {
    return {
      replicatedJob: ReplicatedJob.patch(
        spec.replicatedJob,
        given<ReplicatedJob>({
          totalCompletions: ifGiven(flags.replicas, (value) => parseCount(value, "replicas")),
          maxConcurrent: ifGiven(concurrent, (value) => parseCount(value, "max-concurrent")),
        }),
      ),
    };
  }
  if (spec.replicated === null) throw new UsageError("--replicas fits replicated services only");
  if (concurrent !== undefined) throw new UsageError("--max-concurrent fits replicated jobs only");
  return { replicated: ReplicatedService.create({ replicas: parseCount(flags.replicas ?? "", "replicas") }) };
}

/** What the flags that both commands know make of a spec. */
function withSettings(spec: ServiceSpec, flags: Settings): ServiceSpec {
  const task = spec.task ?? TaskSpec.create({});
  const exec = execOf(task);
  const maxReplicas = given<Pick<Placement, "maxReplicas">>({
    maxReplicas: ifGiven(flags["replicas-max-per-node"], (value) => parseCount(value, "replicas-max-per-node")),
  });
  const mode = ifGiven(flags["endpoint-mode"], (value) =>
    parseChoice(value, "endpoint-mode", {
      vip: EndpointSpec_ResolutionMode.VIP,
      dnsrr: EndpointSpec_ResolutionMode.DNSRR,
    }),
  );
  return ServiceSpec.patch(spec, {
    task: TaskSpec.patch(task, {
      container: task.container === null ? null : containerSettings(task.container, flags),
      generic: exec === null ? task.generic : withExec(execSettings(exec, flags)),
      resources: resources(task.resources, flags),
      restart: restart(task.restart, flags),
      placement: placement(task.placement, maxReplicas),
      logDriver: logDriver(task.logDriver, flags),
    }),
    update: rollout(spec.update, flags, "update"),
    rollback: rollout(spec.rollback, flags, "rollback"),
    ...scaled(spec, flags),
    ...(mode === null
      ? {}
      : { endpoint: EndpointSpec.patch(spec.endpoint ?? EndpointSpec.create({}), { mode: mode() }) }),
  });
}

function modeFields(flags: CreateValues): Partial<ServiceSpec> {
  const mode = flags.mode ?? "replicated";
  switch (mode) {
    case "replicated":
      return { replicated: ReplicatedService.create({ replicas: 1 }) };
    case "global":
      return { global: GlobalService.create({}) };
    case "global-job":
      return { globalJob: GlobalJob.create({}) };
    case "replicated-job": {
      const total = flags.replicas === undefined ? 1 : parseCount(flags.replicas, "replicas");
      // Docker's: all at once unless told otherwise.
      return { replicatedJob: ReplicatedJob.create({ totalCompletions: total, maxConcurrent: total }) };
    }
    default:
      throw new UsageError(`--mode takes one of replicated, global, replicated-job, global-job, not '${mode}'`);
  }
}

function preferences(texts: readonly string[]): readonly PlacementPreference[] {
  return texts.map((text) => {
    if (!text.startsWith("spread=")) throw new UsageError(`--placement-pref takes spread=LABEL, not '${text}'`);
    return PlacementPreference.create({
      spread: SpreadOver.create({ spreadDescriptor: text.slice("spread=".length) }),
    });
  });
}

function genericResources(texts: readonly string[]): readonly GenericResource[] {
  return Object.entries(parseLabels(texts)).map(([kind, value]) =>
    GenericResource.create({
      discreteResourceSpec: DiscreteGenericResource.create({ kind, value: parseCount(value, "generic-resource") }),
    }),
  );
}

/** Environment as given: `NAME=value`, or `NAME` for the value that it has here. */
function environment(texts: readonly string[]): readonly string[] {
  return texts.map((text) => (text.includes("=") ? text : `${text}=${process.env[text] ?? ""}`));
}

/** Engines have no name for a service; Docker makes one up, and so does this. */
function inventedName(words: readonly string[]): string {
  const base =
    (words[0] ?? "service")
      .split("/")
      .at(-1)
      ?.split(":")[0]
      ?.replaceAll(/[^a-zA-Z0-9]+/g, "-") ?? "";
  const stem = base.replaceAll(/^-+|-+$/g, "").slice(0, 50) || "service";
  return `${stem}-${createHash("sha256").update(randomBytes(16)).digest("hex").slice(0, 6)}`;
}

function runtime(flags: CreateValues, words: readonly string[]): Partial<TaskSpec> {
  const driver = flags.driver ?? "container";
  const env = environment(flags.env ?? []);
  if (driver === "exec") {
    const [program, ...args] = words;
    if (program === undefined)
      throw new UsageError("say what to run: muster service create --driver exec -- COMMAND [ARG...]");
    if (flags.mount !== undefined) throw new UsageError("--mount fits containers only");
    if (flags["container-label"] !== undefined) throw new UsageError("--container-label fits containers only");
    return { generic: withExec(ExecSpec.create({ command: program, args, env })) };
  }
  if (driver !== "container") throw new UsageError(`--driver takes container or exec, not '${driver}'`);
  const [image, ...args] = words;
  if (image === undefined)
    throw new UsageError("say which image: muster service create [OPTIONS] IMAGE [COMMAND] [ARG...]");
  return {
    container: ContainerSpec.create({
      image,
      args,
      env,
      labels: parseLabels(flags["container-label"] ?? []),
      mounts: (flags.mount ?? []).map((text) => parseMount(text)),
    }),
  };
}

/** `words`: the image or program, and its arguments. */
export function newSpec(flags: CreateValues, words: readonly string[]): ServiceSpec {
  const generic = genericResources(flags["generic-resource"] ?? []);
  const ports = (flags.publish ?? []).map((text) => parsePublish(text));
  const placed = given<Pick<Placement, "constraints" | "preferences">>({
    constraints: ifGiven(flags.constraint, (texts) => texts),
    preferences: ifGiven(flags["placement-pref"], preferences),
  });
  const spec = ServiceSpec.create({
    annotations: Annotations.create({
      name: flags.name ?? inventedName(words),
      labels: parseLabels(flags.label ?? []),
    }),
    task: TaskSpec.create({
      ...runtime(flags, words),
      placement: placement(null, placed),
      networks: (flags.network ?? []).map((target) => NetworkAttachmentConfig.create({ target })),
      ...(generic.length === 0
        ? {}
        : { resources: ResourceRequirements.create({ reservations: Resources.create({ generic }) }) }),
    }),
    ...modeFields(flags),
    ...(ports.length === 0 ? {} : { endpoint: EndpointSpec.create({ ports }) }),
  });
  return withSettings(spec, flags);
}

function without(
  texts: readonly string[],
  removed: readonly string[] | undefined,
  keyOf = (text: string) => text,
): readonly string[] {
  return texts.filter((text) => !(removed ?? []).includes(keyOf(text)));
}

const envName = (entry: string): string => entry.split("=")[0] as string;

function environmentAfter(before: readonly string[], flags: UpdateValues): readonly string[] {
  const added = environment(flags["env-add"] ?? []);
  return [...without(before, [...(flags["env-rm"] ?? []), ...added.map(envName)], envName), ...added];
}

function labelsAfter(
  before: Readonly<Record<string, string>>,
  added: readonly string[] | undefined,
  removed: readonly string[] | undefined,
): Readonly<Record<string, string>> {
  const labels = { ...before, ...parseLabels(added ?? []) };
  for (const label of removed ?? []) delete labels[label];
  return labels;
}

function portsAfter(before: EndpointSpec | null, flags: UpdateValues): EndpointSpec | null {
  if (flags["publish-add"] === undefined && flags["publish-rm"] === undefined) return before;
  // As Docker's: a port goes by its target.
  const removed = (flags["publish-rm"] ?? []).map((text) => parseCount(text.split("/")[0] as string, "publish-rm"));
  const added = (flags["publish-add"] ?? []).map((text) => parsePublish(text, "publish-add"));
  const kept = (before?.ports ?? []).filter(
    ({ targetPort, protocol }) =>
      !removed.includes(targetPort) &&
      !added.some((port) => port.targetPort === targetPort && port.protocol === protocol),
  );
  return EndpointSpec.patch(before ?? EndpointSpec.create({}), { ports: [...kept, ...added] });
}

function updatedContainer(before: ContainerSpec, flags: UpdateValues): ContainerSpec {
  const added = (flags["mount-add"] ?? []).map((text) => parseMount(text, "mount-add"));
  const gone = [...(flags["mount-rm"] ?? []), ...added.map(({ target }) => target)];
  return ContainerSpec.patch(before, {
    image: flags.image ?? before.image,
    args: flags.args === undefined ? before.args : flags.args.split(" ").filter((word) => word !== ""),
    env: environmentAfter(before.env, flags),
    labels: labelsAfter(before.labels, flags["container-label-add"], flags["container-label-rm"]),
    mounts: [...before.mounts.filter(({ target }) => !gone.includes(target)), ...added],
  });
}

function updatedTask(before: TaskSpec, flags: UpdateValues): TaskSpec {
  const exec = execOf(before);
  if (before.container === null && flags.image !== undefined) throw new UsageError("--image fits containers only");
  const constraints = [
    ...without(before.placement?.constraints ?? [], flags["constraint-rm"]),
    ...(flags["constraint-add"] ?? []),
  ];
  const isPlaced = flags["constraint-add"] !== undefined || flags["constraint-rm"] !== undefined;
  return TaskSpec.patch(before, {
    container: before.container === null ? null : updatedContainer(before.container, flags),
    generic:
      exec === null
        ? before.generic
        : withExec(
            ExecSpec.patch(exec, {
              env: environmentAfter(exec.env, flags),
              args: flags.args === undefined ? exec.args : flags.args.split(" ").filter((word) => word !== ""),
            }),
          ),
    placement: isPlaced ? placement(before.placement, { constraints }) : before.placement,
    forceUpdate: before.forceUpdate + (flags.force === true ? 1 : 0),
  });
}

/** `before` with what the flags say changed, and nothing else. */
export function changedSpec(before: ServiceSpec, flags: UpdateValues): ServiceSpec {
  const annotations = before.annotations ?? Annotations.create({});
  const spec = ServiceSpec.patch(before, {
    annotations: Annotations.patch(annotations, {
      labels: labelsAfter(annotations.labels, flags["label-add"], flags["label-rm"]),
    }),
    task: updatedTask(before.task ?? TaskSpec.create({}), flags),
    endpoint: portsAfter(before.endpoint, flags),
  });
  return withSettings(spec, flags);
}
