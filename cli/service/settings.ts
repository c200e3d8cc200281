/** Applies the flags that `service create` and `service update` share to a spec; absent flags change nothing. */
import { driverRuntimeOf, isDriverSpec } from "../../machines/driver/spec.ts";
import { modeOf } from "../../machines/orchestration/service-mode.ts";
import { disconnectLabel } from "../../machines/orchestration/on-disconnect.ts";
import {
  Annotations,
  Any,
  DiscreteGenericResource,
  Driver,
  Duration,
  EndpointSpec,
  EndpointSpec_ResolutionMode,
  ExecSpec,
  GenericResource,
  GenericRuntimeSpec,
  Placement,
  ReplicatedJob,
  ReplicatedService,
  ResourceReference,
  ResourceRequirements,
  Resources,
  ResourceType,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  ServiceSpec,
  TaskSpec,
  UpdateConfig,
  UpdateConfig_FailureAction,
  UpdateConfig_UpdateOrder,
} from "../../proto/gen/messages.ts";
import { driverPayload, driverSettings } from "./driver.ts";
import type { SettingValues } from "./flags.ts";
import { healthCheckAfter } from "./health.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import {
  anyNumber,
  durationText,
  parseBytes,
  parseChoice,
  parseCount,
  parseCpus,
  parseDuration,
  parsePairs,
  parsePositiveDuration,
  parseRatio,
} from "../values.ts";

/** Type URL of a process task's payload. */
const execTypeUrl = "type.googleapis.com/muster.v1.ExecSpec";

const conditions = {
  none: RestartPolicy_RestartCondition.NONE,
  "on-failure": RestartPolicy_RestartCondition.ON_FAILURE,
  any: RestartPolicy_RestartCondition.ANY,
};
const failureActions = { pause: UpdateConfig_FailureAction.PAUSE, continue: UpdateConfig_FailureAction.CONTINUE };
const actionsOf: Readonly<Record<"update" | "rollback", Readonly<Record<string, UpdateConfig_FailureAction>>>> = {
  update: { ...failureActions, rollback: UpdateConfig_FailureAction.ROLLBACK },
  // A failed rollback cannot roll back further.
  rollback: failureActions,
};
const orders = {
  "stop-first": UpdateConfig_UpdateOrder.STOP_FIRST,
  "start-first": UpdateConfig_UpdateOrder.START_FIRST,
};
const resolutionModes = { vip: EndpointSpec_ResolutionMode.VIP, dnsrr: EndpointSpec_ResolutionMode.DNSRR };

/** SwarmKit's defaults, which Docker's client writes as soon as one of the fields is set. */
const monitorSecondsDefault = 5;
const restartDelaySecondsDefault = 5;

function isGiven(...values: readonly unknown[]): boolean {
  return values.some((value) => value !== undefined);
}

function amounts(
  before: Resources | null,
  cpu: string | undefined,
  memory: string | undefined,
  prefix: string,
): Resources {
  const base = before ?? Resources.create({});
  return Resources.patch(base, {
    nanoCpus: cpu === undefined ? base.nanoCpus : parseCpus(cpu, `${prefix}-cpu`),
    memoryBytes: memory === undefined ? base.memoryBytes : parseBytes(memory, `${prefix}-memory`),
  });
}

function resourcesAfter(before: ResourceRequirements | null, flags: SettingValues): ResourceRequirements | null {
  const limits = [flags["limit-cpu"], flags["limit-memory"]] as const;
  const reservations = [flags["reserve-cpu"], flags["reserve-memory"]] as const;
  if (!isGiven(...limits, ...reservations)) return before;
  return ResourceRequirements.patch(before ?? ResourceRequirements.create({}), {
    limits: amounts(before?.limits ?? null, ...limits, "limit"),
    reservations: amounts(before?.reservations ?? null, ...reservations, "reserve"),
  });
}

function restartAfter(before: RestartPolicy | null, flags: SettingValues): RestartPolicy | null {
  const condition = flags["restart-condition"];
  const delay = flags["restart-delay"];
  const attempts = flags["restart-max-attempts"];
  const window = flags["restart-window"];
  if (!isGiven(condition, delay, attempts, window)) return before;
  // A policy without a condition would mean "never"; a partial one defaults to "any".
  const base =
    before ??
    RestartPolicy.create({
      condition: RestartPolicy_RestartCondition.ANY,
      delay: Duration.create({ seconds: restartDelaySecondsDefault }),
    });
  return RestartPolicy.patch(base, {
    condition: condition === undefined ? base.condition : parseChoice(condition, "restart-condition", conditions),
    delay: delay === undefined ? base.delay : parseDuration(delay, "restart-delay"),
    maxAttempts: attempts === undefined ? base.maxAttempts : parseCount(attempts, "restart-max-attempts"),
    window: window === undefined ? base.window : parseDuration(window, "restart-window"),
  });
}

function rolloutAfter(
  before: UpdateConfig | null,
  flags: SettingValues,
  prefix: "update" | "rollback",
): UpdateConfig | null {
  const parallelism = flags[`${prefix}-parallelism`];
  const delay = flags[`${prefix}-delay`];
  const monitor = flags[`${prefix}-monitor`];
  const action = flags[`${prefix}-failure-action`];
  const ratio = flags[`${prefix}-max-failure-ratio`];
  const order = flags[`${prefix}-order`];
  if (!isGiven(parallelism, delay, monitor, action, ratio, order)) return before;
  const base =
    before ??
    UpdateConfig.create({
      parallelism: 1,
      delay: Duration.create({}),
      monitor: Duration.create({ seconds: monitorSecondsDefault }),
    });
  return UpdateConfig.patch(base, {
    parallelism: parallelism === undefined ? base.parallelism : parseCount(parallelism, `${prefix}-parallelism`),
    delay: delay === undefined ? base.delay : parseDuration(delay, `${prefix}-delay`),
    monitor: monitor === undefined ? base.monitor : parseDuration(monitor, `${prefix}-monitor`),
    failureAction:
      action === undefined ? base.failureAction : parseChoice(action, `${prefix}-failure-action`, actionsOf[prefix]),
    maxFailureRatio: ratio === undefined ? base.maxFailureRatio : parseRatio(ratio, `${prefix}-max-failure-ratio`),
    order: order === undefined ? base.order : parseChoice(order, `${prefix}-order`, orders),
  });
}

/** The flags are labels, so that stock clients can set them, too. */
function annotationsAfter(before: Annotations | null, flags: SettingValues): Annotations | null {
  const [action, after] = [flags["on-disconnect"], flags["disconnect-after"]];
  if (!isGiven(action, after)) return before;
  const labels = { ...before?.labels };
  if (action !== undefined && parseChoice(action, "on-disconnect", { keep: true, replace: false })) {
    labels[disconnectLabel.mode] = "keep";
    // It has no effect any more.
    delete labels[disconnectLabel.after];
  } else if (action !== undefined) delete labels[disconnectLabel.mode];
  if (after !== undefined)
    labels[disconnectLabel.after] = durationText(parsePositiveDuration(after, "disconnect-after"));
  return Annotations.patch(before ?? Annotations.create({}), { labels });
}

/** Like Docker: options without a driver are ignored, and a new driver gets only the given options. */
function logDriverAfter(before: Driver | null, flags: SettingValues): Driver | null {
  const name = flags["log-driver"] ?? "";
  const options = parsePairs(flags["log-opt"] ?? []);
  if (Object.hasOwn(options, "")) throw new UsageError(`invalid argument "=" for "--log-opt" flag: expected KEY=VALUE`);
  return name === "" ? before : Driver.create({ name, options });
}

function execAfter(before: ExecSpec, flags: SettingValues): ExecSpec {
  const grace = flags["stop-grace-period"];
  return ExecSpec.patch(before, {
    dir: flags.workdir ?? before.dir,
    user: flags.user ?? before.user,
    stopSignal: flags["stop-signal"] ?? before.stopSignal,
    stopGracePeriod: grace === undefined ? before.stopGracePeriod : parseDuration(grace, "stop-grace-period"),
    health: healthCheckAfter(before.health, flags),
  });
}

function driverAfter(task: TaskSpec, flags: SettingValues): GenericRuntimeSpec | null {
  const runtime = driverRuntimeOf(task);
  return runtime === null ? task.generic : driverPayload(runtime.kind, driverSettings(runtime.spec, flags));
}

function withExec(spec: ExecSpec): GenericRuntimeSpec {
  return GenericRuntimeSpec.create({
    kind: "exec",
    payload: Any.create({ type_url: execTypeUrl, value: ExecSpec.encode(spec) }),
  });
}

/** Fields of an exec task: the payload, and the references that its nodes need. `before`: references of other kinds stay. */
export function execTask(spec: ExecSpec, before: TaskSpec | null = null): Partial<TaskSpec> {
  const others = (before?.resourceReferences ?? []).filter(({ resourceType }) => resourceType === ResourceType.TASK);
  const reference = (resourceType: ResourceType) => (resourceId: string) =>
    ResourceReference.create({ resourceId, resourceType });
  const secrets = new Set(spec.secrets.map(({ secretId }) => secretId));
  const configs = new Set(spec.configs.map(({ configId }) => configId));
  return {
    generic: withExec(spec),
    resourceReferences: [
      ...others,
      ...[...secrets].map(reference(ResourceType.SECRET)),
      ...[...configs].map(reference(ResourceType.CONFIG)),
    ],
  };
}

export function execOf(task: TaskSpec): ExecSpec | null {
  const payload = task.generic?.kind === "exec" ? task.generic.payload : null;
  return payload === null || isDriverSpec(payload.type_url) ? null : ExecSpec.decode(payload.value);
}

/** Parses `gpu=2`; each kind once, and only as a count. */
export function genericResources(texts: readonly string[], flag: string): readonly GenericResource[] {
  const kinds = new Set<string>();
  return texts.map((text) => {
    const match = /^([^=\s]+)=(\d+)$/.exec(text);
    if (match === null) {
      throw new UsageError(
        `invalid argument "${text}" for "--${flag}" flag: expected KIND=COUNT (a service cannot ask for units by name)`,
      );
    }
    const [, kind = "", count = ""] = match;
    if (kinds.has(kind)) throw new UsageError(`--${flag} sets "${kind}" more than once`);
    kinds.add(kind);
    return GenericResource.create({
      discreteResourceSpec: DiscreteGenericResource.create({ kind, value: parseCount(count, flag) }),
    });
  });
}

function scaled(spec: ServiceSpec, flags: SettingValues): Partial<ServiceSpec> {
  const { replicas } = flags;
  const concurrent = flags["max-concurrent"];
  const mode = modeOf(spec);
  const isReplicated = mode === "replicated" || mode === "replicated-job";
  if (replicas !== undefined && !isReplicated) {
    throw new UserError("replicas can only be used with replicated or replicated-job mode");
  }
  if (concurrent !== undefined && mode !== "replicated-job") {
    throw new UserError("max-concurrent can only be used with replicated-job mode");
  }
  if (flags["replicas-max-per-node"] !== undefined && !isReplicated) {
    throw new UserError("replicas-max-per-node can only be used with replicated or replicated-job mode");
  }
  const total = replicas === undefined ? null : parseCount(replicas, "replicas", anyNumber);
  const job = spec.replicatedJob;
  if (job !== null) {
    const fields = {
      totalCompletions: total ?? job.totalCompletions,
      maxConcurrent: concurrent === undefined ? job.maxConcurrent : parseCount(concurrent, "max-concurrent", anyNumber),
    };
    return { replicatedJob: ReplicatedJob.patch(job, fields) };
  }
  return total === null ? {} : { replicated: ReplicatedService.create({ replicas: total }) };
}

function refuseRolloutOfJob(spec: ServiceSpec, flags: SettingValues): void {
  const mode = modeOf(spec);
  if (mode !== "replicated-job" && mode !== "global-job") return;
  const isGiven = Object.entries(flags).some(
    ([name, value]) => value !== undefined && /^(?:update|rollback)-/.test(name),
  );
  if (isGiven) throw new UserError("update and rollback configuration is not supported for jobs");
}

/** Applies the flags of both commands, except those of containers. */
export function withSettings(spec: ServiceSpec, flags: SettingValues): ServiceSpec {
  refuseRolloutOfJob(spec, flags);
  const task = spec.task ?? TaskSpec.create({});
  const exec = execOf(task);
  const maxReplicas = flags["replicas-max-per-node"];
  const mode = flags["endpoint-mode"];
  const { placement } = task;
  return ServiceSpec.patch(spec, {
    annotations: annotationsAfter(spec.annotations, flags),
    task: TaskSpec.patch(task, {
      generic: exec === null ? driverAfter(task, flags) : withExec(execAfter(exec, flags)),
      resources: resourcesAfter(task.resources, flags),
      restart: restartAfter(task.restart, flags),
      placement:
        maxReplicas === undefined
          ? placement
          : Placement.patch(placement ?? Placement.create({}), {
              maxReplicas: parseCount(maxReplicas, "replicas-max-per-node"),
            }),
      logDriver: logDriverAfter(task.logDriver, flags),
    }),
    update: rolloutAfter(spec.update, flags, "update"),
    rollback: rolloutAfter(spec.rollback, flags, "rollback"),
    ...scaled(spec, flags),
    ...(mode === undefined
      ? {}
      : {
          endpoint: EndpointSpec.patch(spec.endpoint ?? EndpointSpec.create({}), {
            mode: parseChoice(mode.toLowerCase(), "endpoint-mode", resolutionModes),
          }),
        }),
  });
}
