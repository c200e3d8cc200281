/** Human-readable service: the sections of `docker service inspect --pretty`, in the same order and wording. */
import {
  ContainerSpec_Isolation,
  Duration,
  EndpointSpec_ResolutionMode,
  Mount_Type,
  PortConfig_Protocol,
  PortConfig_PublishMode,
  RestartPolicy_RestartCondition,
  UpdateConfig_FailureAction,
  UpdateConfig_UpdateOrder,
  UpdateStatus_UpdateState,
  type ContainerSpec,
  type HealthCheck,
  type ResourceRequirements,
  type Resources,
  type Service,
  type ServiceSpec,
  type TaskSpec,
  type UpdateConfig,
} from "../../proto/gen/messages.ts";
import { driverRuntimeOf } from "../../machines/driver/spec.ts";
import { healthOf, healthTimes, healthWords } from "../../machines/driver/health-spec.ts";
import { execOf } from "./settings.ts";
import { bytesText } from "../../machines/bytes-text.ts";
import { ago, durationText } from "../values.ts";

/** Docker's name of an enum value: `ON_FAILURE` → `on-failure`. */
function word(names: Readonly<Record<string, number>>, value: number): string {
  const found = Object.keys(names).find((name) => names[name] === value) ?? String(value);
  return found.toLowerCase().replaceAll("_", "-");
}

/** Docker's API state, which has one word where the wire has two. */
function stateWord(state: UpdateStatus_UpdateState): string {
  return word(UpdateStatus_UpdateState, state).replaceAll("-", "_");
}

type Lines = readonly string[];

const nameColumn = 18;

/** ` Name:           value`, indented; empty without a value. */
function field(name: string, value: string | number, indent = 1): Lines {
  if (value === "" || value === 0) return [];
  return [`${" ".repeat(indent)}${`${name}: `.padEnd(nameColumn - indent)}${value}`];
}

/** A heading and its lines; empty without lines. */
function section(name: string, lines: Lines): Lines {
  return lines.length === 0 ? [] : [`${name}:`, ...lines];
}

function pairs(of: Readonly<Record<string, string>>, join: string): Lines {
  return Object.entries(of)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => ` ${key}${value === "" ? "" : `${join}${value}`}`);
}

function positive(duration: Duration | null): string {
  const text = durationText(duration);
  return text === "0s" ? "" : text;
}

function modeLines(spec: ServiceSpec): Lines {
  const line = (name: string): string => `Service Mode:     ${name}`;
  if (spec.replicated !== null) return [line("Replicated"), ...field("Replicas", String(spec.replicated.replicas))];
  if (spec.global !== null) return [line("Global")];
  const job = spec.replicatedJob;
  if (job === null) return [line("GlobalJob")];
  return [
    line("ReplicatedJob"),
    ...field("Max Concurrent", String(job.maxConcurrent)),
    ...field("Total Completions", String(job.totalCompletions)),
  ];
}

function statusLines({ updateStatus }: Service, now: number): Lines {
  if (updateStatus === null || updateStatus.state === UpdateStatus_UpdateState.UNKNOWN) return [];
  return section("UpdateStatus", [
    ...field("State", stateWord(updateStatus.state)),
    ...field("Started", ago(updateStatus.startedAt, now)),
    ...field("Completed", ago(updateStatus.completedAt, now)),
    ...field("Message", updateStatus.message),
  ]);
}

function placementLines({ placement }: TaskSpec): Lines {
  const preferences = (placement?.preferences ?? []).map(({ spread }) => `spread=${spread?.spreadDescriptor ?? ""}`);
  return [
    "Placement:",
    ...field("Constraints", (placement?.constraints ?? []).join(" ")),
    ...field("Preferences", preferences.join(" ")),
    ...field("Max Replicas Per Node", placement?.maxReplicas ?? 0),
  ];
}

function rolloutLines(name: string, config: UpdateConfig | null, order: string): Lines {
  if (config === null) return [];
  return section(name, [
    ...field("Parallelism", String(config.parallelism)),
    ...field("Delay", positive(config.delay)),
    ...field("On failure", word(UpdateConfig_FailureAction, config.failureAction)),
    ...field("Monitoring Period", positive(config.monitor)),
    ...field("Max failure ratio", String(Number(config.maxFailureRatio.toPrecision(7)))),
    ...field(order, word(UpdateConfig_UpdateOrder, config.order)),
  ]);
}

function restartLines({ restart }: TaskSpec): Lines {
  if (restart === null) return [];
  return section("RestartPolicy", [
    ...field("Condition", word(RestartPolicy_RestartCondition, restart.condition)),
    ...field("Delay", positive(restart.delay)),
    ...field("Max attempts", restart.maxAttempts),
    ...field("Window", positive(restart.window)),
  ]);
}

function containerLines(container: ContainerSpec): Lines {
  const { command, args, env, dir, user, init, hostname, groups } = container;
  const isolation = container.isolation === ContainerSpec_Isolation.ISOLATION_DEFAULT ? "" : container.isolation;
  return [
    ...section("ContainerSpec", [
      ...field("Image", container.image),
      ...field("Command", command.join(" ")),
      ...field("Args", args.join(" ")),
      ...field("Env", env.join(" ")),
      ...field("Dir", dir),
      ...field("Init", init === null ? "" : String(init.value)),
      ...field("User", user),
      ...field("Groups", groups.join(" ")),
      ...field("Hostname", hostname),
      ...field("Hosts", container.hosts.join(", ")),
      ...field("Stop signal", container.stopSignal),
      ...field("Stop grace period", positive(container.stopGracePeriod)),
      ...field("Isolation", isolation === "" ? "" : word(ContainerSpec_Isolation, isolation).replace("isolation-", "")),
    ]),
    ...section("Capabilities", [
      ...field("Add", container.capabilityAdd.join(", ")),
      ...field("Drop", container.capabilityDrop.join(", ")),
    ]),
    ...section("SysCtls", pairs(container.sysctls, ": ")),
    ...section(
      "Ulimits",
      container.ulimits.map(({ name, soft, hard }) => ` ${name}: ${soft}:${hard}`),
    ),
    ...section(
      "Mounts",
      container.mounts.flatMap(({ target, source, readonly, type }) => [
        ...field("Target", target),
        ...field("Source", source, 2),
        ...field("ReadOnly", String(readonly), 2),
        ...field("Type", word(Mount_Type, type), 2),
      ]),
    ),
    ...fileLines(container),
  ];
}

function fileLines({ configs, secrets }: Pick<ContainerSpec, "configs" | "secrets">): Lines {
  return [
    ...section(
      "Configs",
      configs.flatMap(({ file, configName }) => [
        ...field("Target", file?.name ?? "(the runtime)"),
        ...field("Source", configName, 2),
      ]),
    ),
    ...section(
      "Secrets",
      secrets.flatMap(({ file, secretName }) => [
        ...field("Target", file?.name ?? ""),
        ...field("Source", secretName, 2),
      ]),
    ),
  ];
}

function execLines(task: TaskSpec): Lines {
  const exec = execOf(task);
  if (exec === null) return driverLines(task);
  const process = section("Process", [
    ...field("Command", exec.command),
    ...field("Args", exec.args.join(" ")),
    ...field("Env", exec.env.join(" ")),
    ...field("Dir", exec.dir),
    ...field("User", exec.user),
    ...field("Stop signal", exec.stopSignal),
    ...field("Stop grace period", positive(exec.stopGracePeriod)),
  ]);
  return [...process, ...fileLines(exec)];
}

function driverLines(task: TaskSpec): Lines {
  const runtime = driverRuntimeOf(task);
  if (runtime === null) return field("Runtime", task.generic?.kind ?? "", 0);
  const { kind, spec } = runtime;
  const driver = section("Driver", [
    ...field("Name", kind),
    ...field("Config", spec.config),
    ...field("Env", spec.env.join(" ")),
    ...field("User", spec.user),
    ...field("Stop signal", spec.stopSignal),
    ...field("Stop grace period", positive(spec.stopGracePeriod)),
  ]);
  return [...driver, ...fileLines(spec)];
}

function logLines({ logDriver }: TaskSpec): Lines {
  if (logDriver === null) return [];
  return [
    "Log Driver:",
    ...field("Name", logDriver.name),
    ...section(
      " LogOpts",
      pairs(logDriver.options, ": ").map((line) => ` ${line}`),
    ),
  ];
}

function amountLines(name: string, amounts: Resources | null, pids: number): Lines {
  if (amounts === null) return [];
  return section(` ${name}`, [
    ...field("CPU", amounts.nanoCpus / 1e9, 2),
    ...field("Memory", amounts.memoryBytes === 0 ? "" : bytesText(amounts.memoryBytes), 2),
    ...field("PIDs", pids, 2),
    ...amounts.generic.flatMap(({ discreteResourceSpec, namedResourceSpec }) =>
      field(
        discreteResourceSpec?.kind ?? namedResourceSpec?.kind ?? "",
        discreteResourceSpec?.value ?? namedResourceSpec?.value ?? "",
        2,
      ),
    ),
  ]);
}

function resourceLines(resources: ResourceRequirements | null, pids: number): Lines {
  return [
    "Resources:",
    ...amountLines("Reservations", resources?.reservations ?? null, 0),
    ...amountLines("Limits", resources?.limits ?? null, pids),
  ];
}

function checkLines(check: HealthCheck | null): Lines {
  if (check === null) return [];
  const { intervalMs, retries, startIntervalMs, startPeriodMs, timeoutMs } = healthTimes(check);
  const time = (ms: number): string => durationText(Duration.create({ nanos: ms * 1e6 }));
  return [
    "Healthcheck:",
    ` Interval = ${time(intervalMs)}`,
    ` Retries = ${retries}`,
    ` StartPeriod = ${time(startPeriodMs)}`,
    ` Timeout = ${time(timeoutMs)}`,
    ` StartInterval = ${time(startIntervalMs)}`,
    " Tests:",
    `  Test = ${healthWords(check)}`,
  ];
}

function healthLines({ healthcheck }: ContainerSpec): Lines {
  if (healthcheck === null) return [];
  return [
    "Healthcheck:",
    ` Interval = ${durationText(healthcheck.interval)}`,
    ` Retries = ${healthcheck.retries}`,
    ` StartPeriod = ${durationText(healthcheck.startPeriod)}`,
    ` Timeout = ${durationText(healthcheck.timeout)}`,
    ...(healthcheck.startInterval === null ? [] : [` StartInterval = ${durationText(healthcheck.startInterval)}`]),
    ...(healthcheck.test.length === 0 ? [] : [" Tests:", ...healthcheck.test.map((test) => `  Test = ${test}`)]),
  ];
}

function endpointLines({ endpoint, spec }: Service): Lines {
  const mode = spec?.endpoint?.mode ?? EndpointSpec_ResolutionMode.VIP;
  // The allocator chooses ports that the spec leaves open.
  const ports = endpoint?.ports ?? spec?.endpoint?.ports ?? [];
  return [
    ...field("Endpoint Mode", word(EndpointSpec_ResolutionMode, mode), 0),
    ...section(
      "Ports",
      ports.flatMap(({ publishedPort, protocol, targetPort, publishMode }) => [
        ` PublishedPort = ${publishedPort}`,
        `  Protocol = ${word(PortConfig_Protocol, protocol)}`,
        `  TargetPort = ${targetPort}`,
        `  PublishMode = ${word(PortConfig_PublishMode, publishMode)}`,
      ]),
    ),
  ];
}

/** `networkNames`: by id; other networks are shown by id. */
export function prettyService(service: Service, networkNames: ReadonlyMap<string, string>, now: number): string {
  const { spec } = service;
  const task = spec?.task;
  if (spec === null || task == null) return `ID:               ${service.id}`;
  const { container } = task;
  const networks = [...task.networks, ...spec.networks].map(({ target }) => networkNames.get(target) ?? target);
  return [
    ...field("ID", service.id, 0),
    ...field("Name", spec.annotations?.name ?? "", 0),
    ...section("Labels", pairs(spec.annotations?.labels ?? {}, "=")),
    ...modeLines(spec),
    ...statusLines(service, now),
    ...placementLines(task),
    ...rolloutLines("UpdateConfig", spec.update, "Update order"),
    ...rolloutLines("RollbackConfig", spec.rollback, "Rollback order"),
    ...restartLines(task),
    ...(container === null ? execLines(task) : containerLines(container)),
    ...logLines(task),
    ...resourceLines(task.resources, container?.pidsLimit ?? 0),
    ...field("Networks", networks.join(" "), 0),
    ...endpointLines(service),
    ...(container === null ? checkLines(healthOf(task)) : healthLines(container)),
  ].join("\n");
}
