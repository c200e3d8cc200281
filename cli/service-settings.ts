/** What the flags that `service create` and `service update` share make of a spec; one not given changes nothing. */
import {
  Any,
  ContainerSpec,
  Driver,
  EndpointSpec,
  EndpointSpec_ResolutionMode,
  ExecSpec,
  GenericRuntimeSpec,
  BoolValue,
  Placement,
  ReplicatedJob,
  ReplicatedService,
  ResourceRequirements,
  Resources,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  ServiceSpec,
  TaskSpec,
  UpdateConfig,
  UpdateConfig_FailureAction,
  UpdateConfig_UpdateOrder,
} from "../proto/gen/messages.ts";
import { UsageError } from "./command.ts";
import type { FlagValues, settingFlags } from "./service-flags.ts";
import { parseBytes, parseChoice, parseCount, parseCpus, parseDuration, parseLabels } from "./values.ts";

type Settings = FlagValues<typeof settingFlags>;

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
export function given<Fields extends object>(fields: {
  readonly [Key in keyof Fields]: (() => Fields[Key]) | null;
}): Partial<Fields> {
  const out: Partial<Fields> = {};
  for (const key of Object.keys(fields) as (keyof Fields)[]) {
    const value = fields[key];
    if (value !== null) out[key] = value();
  }
  return out;
}

export function ifGiven<Value, Out>(value: Value | undefined, make: (value: Value) => Out): (() => Out) | null {
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

export function withExec(spec: ExecSpec): GenericRuntimeSpec {
  return GenericRuntimeSpec.create({
    kind: "exec",
    payload: Any.create({ type_url: execTypeUrl, value: ExecSpec.encode(spec) }),
  });
}

export function execOf(task: TaskSpec): ExecSpec | null {
  const payload = task.generic?.kind === "exec" ? task.generic.payload : null;
  return payload === null ? null : ExecSpec.decode(payload.value);
}

export function placement(before: Placement | null, fields: Partial<Placement>): Placement | null {
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
export function withSettings(spec: ServiceSpec, flags: Settings): ServiceSpec {
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
