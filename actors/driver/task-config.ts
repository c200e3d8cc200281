/**
 * Converts a service's task to a driver plugin's start request (nomad-driver-protocol.md §6.2), and the driver's exit result
 * back.
 */
import type { DriverTaskExit } from "../../machines/driver/task.machine.ts";
import {
  containerPlan,
  type ContainerFile,
  type ContainerLimits,
  type ContainerPlan,
  type TaskContainer,
} from "../../machines/driver/container-task.ts";
import { driverSpecType, execAsDriver, execSpecType, isDriverSpec, isExecSpec } from "../../machines/driver/spec.ts";
import { DriverSpec, ExecSpec } from "../../proto/gen/messages.ts";
import {
  AllocatedCpuResources,
  AllocatedMemoryResources,
  AllocatedTaskResources,
  DNSConfig,
  Device,
  DriverCapabilities_FSIsolation as FsIsolation,
  LinuxResources,
  Mount,
  Resources,
  TaskConfig,
  type NomadDriverConfig,
} from "../../proto/gen/nomad.ts";
import { durationMs } from "../../proto/time.ts";
import {
  encodeConfig,
  environmentScope,
  problemText,
  type ConfigInput,
  type EncodeOutcome,
} from "../../lib/hclspec/index.ts";
import type { DriverTask, FileIsolation, NodeFacts, PlannedMount, TaskExit, TaskHome } from "../agent/ports.ts";
import type { DriverDescription } from "./plugin.ts";
import { sentence } from "../sentence.ts";

const mebibyte = 1024 * 1024;
/** CPU shares of a task that reserves nothing, in MHz (Nomad's value). */
const cpuSharesDefault = 100;
/** SwarmKit's default (worker protocol §5.6). */
const stopGraceMsDefault = 10_000;

type Refused = { readonly kind: "refused"; readonly reason: string };

/** A task's requirements on its driver. */
export interface DriverWants {
  readonly kind: "wants";
  readonly spec: DriverSpec;
  readonly config: ConfigInput;
  /** For a container service. */
  readonly container: ContainerPlan | null;
  readonly stopSignal: string;
  readonly stopGraceMs: number;
}

export function wantsOf(task: DriverTask): DriverWants | Refused {
  return task.container === undefined ? driverWants(task) : containerWants(task, task.container);
}

function containerWants(task: DriverTask, container: TaskContainer): DriverWants | Refused {
  const plan = containerPlan(task, container);
  return plan.kind === "refused" ? plan : wants(plan.spec, plan.config, plan);
}

function driverWants({ payload }: DriverTask): DriverWants | Refused {
  const isExec = isExecSpec(payload?.type_url ?? "");
  if (payload === null || !(isExec || isDriverSpec(payload.type_url)))
    return refused(`invalid task payload: expected a ${driverSpecType}, not "${payload?.type_url ?? ""}"`);
  let spec: DriverSpec;
  try {
    spec = isExec ? execAsDriver(ExecSpec.decode(payload.value)) : DriverSpec.decode(payload.value);
  } catch {
    return refused(`invalid task payload: malformed ${isExec ? execSpecType : driverSpecType}`);
  }
  let config: ConfigInput;
  try {
    config = spec.config === "" ? {} : (JSON.parse(spec.config) as ConfigInput);
  } catch (error) {
    return refused(`the driver's configuration is not valid JSON: ${sentence(error)}`);
  }
  return wants(spec, config, null);
}

function wants(spec: DriverSpec, config: ConfigInput, container: ContainerPlan | null): DriverWants | Refused {
  const { stopGracePeriod: grace, stopSignal } = spec;
  if (stopSignal !== "" && !isSignal(stopSignal)) return refused(`invalid stop signal "${stopSignal}"`);
  const stopGraceMs = Math.max(0, durationMs(grace, stopGraceMsDefault));
  return { kind: "wants", spec, config, container, stopSignal, stopGraceMs };
}

/** Nomad's name of the task, which is also a directory's name: the service's name, with allowed characters only. */
export function taskNameOf({ serviceName }: DriverTask): string {
  const name = serviceName.replaceAll(/[^A-Za-z0-9_-]/g, "-").slice(0, 64);
  // Names that every allocation's directory contains besides the task's.
  return name === "" || name === "alloc" || name === "output" ? "task" : name;
}

export function isolationOf({ capabilities }: DriverDescription): FileIsolation {
  switch (capabilities?.fsIsolation ?? FsIsolation.NONE) {
    case FsIsolation.IMAGE:
      return "image";
    // An unveiling driver gets paths of the node, and shows its task no others.
    case FsIsolation.NONE:
    case FsIsolation.UNVEIL:
      return "none";
    case FsIsolation.CHROOT:
      return "chroot";
  }
}

/** Encodes the driver's configuration by its schema. `variables`: values of `${…}` in it. */
export function encodedConfig(
  config: ConfigInput,
  { taskSchema }: DriverDescription,
  variables: Readonly<Record<string, string>>,
): { readonly kind: "encoded"; readonly bytes: Uint8Array } | Refused {
  if (taskSchema === null) return { kind: "encoded", bytes: new Uint8Array(0) };
  return worded(encodeConfig(taskSchema, config, environmentScope(variables)));
}

function worded(outcome: EncodeOutcome): { readonly kind: "encoded"; readonly bytes: Uint8Array } | Refused {
  switch (outcome.kind) {
    case "encoded":
      return outcome;
    case "invalid":
      return refused(`invalid driver configuration: ${outcome.problems.map(problemText).join("; ")}`);
    case "bad-schema":
      return refused(`cannot read the driver's schema: ${outcome.reason}`);
  }
}

export function taskConfigOf(
  task: DriverTask,
  from: {
    readonly id: string;
    readonly home: TaskHome;
    readonly wants: DriverWants;
    readonly mounts: readonly Mount[];
    readonly driverConfig: Uint8Array;
    readonly agent: NomadDriverConfig;
    readonly facts: NodeFacts;
    /** As created by Nomad's client; empty: none. */
    readonly cgroup: string;
  },
): TaskConfig {
  const { cgroup, driverConfig, home, id, mounts, wants } = from;
  const { container, spec } = wants;
  return TaskConfig.create({
    id,
    name: taskNameOf(task),
    msgpackDriverConfig: driverConfig,
    env: home.env,
    resources:
      container === null ? resourcesOf(task, from.agent, from.facts, cgroup) : containerResources(container.limits),
    mounts: [...mounts],
    devices: spec.devices.map(({ hostPath, permissions, taskPath }) =>
      Device.create({ hostPath, taskPath: taskPath || hostPath, cgroupPermissions: permissions || "rwm" }),
    ),
    user: home.user,
    dns: dnsOf(spec),
    allocDir: home.allocDir,
    stdoutPath: home.stdoutPath,
    stderrPath: home.stderrPath,
    taskGroupName: task.serviceName,
    jobName: task.serviceName,
    jobId: task.serviceId,
    allocId: task.id,
    namespace: "default",
    nodeName: task.nodeHostname,
    nodeId: task.nodeId,
  });
}

/** Null when nothing is requested. */
export function dnsOf({ dns }: DriverSpec): DNSConfig | null {
  if (dns === null || dns.nameservers.length + dns.search.length + dns.options.length === 0) return null;
  const { nameservers: servers, options, search: searches } = dns;
  return DNSConfig.create({ servers, searches, options });
}

/** `paths`: path of each on the node. */
export function mountsOf(
  planned: readonly PlannedMount[],
  paths: readonly string[],
  isolation: FileIsolation,
): readonly Mount[] {
  return planned.map(({ isReadOnly, propagation, target }, at) =>
    Mount.create({
      // A task without file isolation finds them where MUSTER_VOLUMES says.
      taskPath: isolation === "none" ? `volumes/${target.replace(/^\/+/, "")}` : target,
      hostPath: paths[at] as string,
      readonly: isReadOnly,
      propagationMode: propagation,
    }),
  );
}

/** Mounts of the task's files at a container's own paths. */
export function fileMountsOf({ allocDir }: TaskHome, name: string, files: readonly ContainerFile[]): readonly Mount[] {
  return files.map(({ kind, path, target }) =>
    Mount.create({ taskPath: target, hostPath: `${allocDir}/${name}/${kind}/${path}`, readonly: true }),
  );
}

/** Mounts that a task in a chroot shares with its allocation, and its secrets. */
export function chrootMountsOf(
  mounts: readonly { readonly source: string; readonly target: string }[],
): readonly Mount[] {
  return mounts.map(({ source: hostPath, target: taskPath }) =>
    Mount.create({ hostPath, taskPath, readonly: taskPath !== "/alloc" }),
  );
}

/** The kernel's default period, in microseconds. */
const cpuPeriodUs = 100_000;
/** The kernel's minimum quota, in microseconds per period. */
const cpuQuotaUsMin = 1_000;

/** Limits a task to this many cores; 0: no limit. */
function quotaOf(nanoCpus: number): Partial<LinuxResources> {
  if (nanoCpus === 0) return {};
  return { cpuPeriod: cpuPeriodUs, cpuQuota: Math.max(cpuQuotaUsMin, Math.round((nanoCpus / 1e9) * cpuPeriodUs)) };
}

/** Limits as an engine sets them for a container: unset values are unlimited, and no weights are set. */
function containerResources({ memoryBytes, memoryReservedBytes, nanoCpus, oomScoreAdj }: ContainerLimits): Resources {
  const reservedMb = Math.floor(memoryReservedBytes / mebibyte);
  return Resources.create({
    allocatedResources: AllocatedTaskResources.create({
      cpu: AllocatedCpuResources.create(),
      memory: AllocatedMemoryResources.create({ memoryMb: reservedMb, memoryMaxMb: reservedMb }),
    }),
    linuxResources: LinuxResources.create({
      memoryLimitBytes: memoryBytes,
      oomScoreAdj,
      ...quotaOf(nanoCpus),
    }),
  });
}

/** Always sets both parts: drivers expect both. */
function resourcesOf(
  { resources }: DriverTask,
  agent: NomadDriverConfig,
  facts: NodeFacts,
  cpusetCgroup: string,
): Resources {
  const mhz = agent.Topology?.cores[0]?.baseSpeed || 1_000;
  const cores = Math.max(1, facts.nanoCpus / 1e9);
  const nanoCpus = resources?.nanoCpus ?? 0;
  const cpuShares = nanoCpus === 0 ? cpuSharesDefault : Math.max(1, Math.round((nanoCpus / 1e9) * mhz));
  // Drivers read 0 as a limit of 0 bytes: a task without a limit may use the node's memory.
  const limit = resources?.memoryLimitBytes || facts.memoryBytes;
  const reserved = resources?.memoryBytes || limit;
  return Resources.create({
    allocatedResources: AllocatedTaskResources.create({
      cpu: AllocatedCpuResources.create({ cpuShares }),
      memory: AllocatedMemoryResources.create({
        memoryMb: Math.floor(reserved / mebibyte),
        memoryMaxMb: limit > reserved ? Math.floor(limit / mebibyte) : 0,
      }),
    }),
    linuxResources: LinuxResources.create({
      cpuShares,
      memoryLimitBytes: limit,
      PercentTicks: Math.min(1, cpuShares / (cores * mhz)),
      cpusetCgroup,
      ...quotaOf(resources?.nanoCpusLimit ?? 0),
    }),
  });
}

/** Linux's signals by number from 1; the same on all supported processors. */
const signalNames =
  "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS".split(
    " ",
  );

/** As `SIGTERM`, `TERM` or `15`; real-time signals only by number. */
function isSignal(text: string): boolean {
  if (/^\d+$/.test(text)) return Number(text) >= 1 && Number(text) <= 64;
  return signalNames.includes(text.toUpperCase().replace(/^SIG/, ""));
}

export function exitOf({ code, err, oomKilled, signal }: DriverTaskExit, lastOutput: string): TaskExit {
  const name = signalNames[signal - 1];
  const reason = [oomKilled ? "out of memory" : "", err].filter((part) => part !== "").join(": ");
  return {
    // As a shell reports it, when the driver reports only the signal.
    code: code === 0 && signal > 0 ? 128 + signal : code,
    signal: name === undefined ? (signal > 0 ? `signal ${signal}` : "") : `SIG${name}`,
    reason,
    lastOutput: code === 0 && signal === 0 ? "" : lastOutput,
  };
}

function refused(reason: string): Refused {
  return { kind: "refused", reason };
}
