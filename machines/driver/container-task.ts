/**
 * Translates a task of a container service into a request to the docker driver, with the container that a stock engine would
 * create.
 *
 * CT1: a setting that cannot be honoured is refused with a message, never ignored, except settings that clients may send for
 *      containers of another platform, and defaults that the engine applies itself.
 */
import {
  ContainerSpec_Isolation as Isolation,
  Mount_BindOptions_Propagation as Propagation,
  Mount_Type as MountType,
  PortConfig_Protocol as Protocol,
  PortConfig_PublishMode as PublishMode,
  Privileges_AppArmorOpts_AppArmorMode as AppArmorMode,
  Privileges_SeccompOpts_SeccompMode as SeccompMode,
  DriverSpec,
  type ContainerSpec,
  type Driver,
  type Duration,
  type HealthConfig,
  type Mount,
  type NetworkAttachment,
  type PortConfig,
  type Privileges,
  type ResourceRequirements,
} from "../../proto/gen/messages.ts";
import { expand } from "../../lib/template/expand.ts";
import { taskContext, type TemplateContext, type TemplatedTask } from "../../lib/template/task-context.ts";
import { nodeLocalDrivers } from "../allocation/network.ts";
import { literalEntry, literally } from "./spec.ts";

/** The driver that runs containers. */
export const containerDriver = "docker";

/** A task's container settings, wherever the task keeps them. */
export interface TaskContainer {
  readonly spec: ContainerSpec;
  readonly networks: readonly NetworkAttachment[];
  readonly ports: readonly PortConfig[];
  readonly logDriver: Driver | null;
  readonly resources: ResourceRequirements | null;
}

/** A file of the task that is mounted read-only into its container. */
export interface ContainerFile {
  readonly kind: "secrets" | "configs";
  /** Relative to the directory of its kind. */
  readonly path: string;
  /** Absolute. */
  readonly target: string;
}

/** Plain JSON in the docker driver's schema. */
type ContainerConfig = { readonly [key: string]: ConfigValue };
type ConfigValue = string | number | boolean | readonly ConfigValue[] | { readonly [key: string]: ConfigValue };

/** CPU and memory limits; 0 if unset. */
export interface ContainerLimits {
  readonly nanoCpus: number;
  readonly memoryBytes: number;
  readonly memoryReservedBytes: number;
  readonly oomScoreAdj: number;
}

export interface ContainerPlan {
  readonly kind: "plan";
  /** Without the configuration. */
  readonly spec: DriverSpec;
  readonly config: ContainerConfig;
  readonly files: readonly ContainerFile[];
  readonly limits: ContainerLimits;
  /** Empty if not set. */
  readonly hostname: string;
}

class Refusal extends Error {}

export function containerPlan(
  task: TemplatedTask,
  of: TaskContainer,
): ContainerPlan | { readonly kind: "refused"; readonly reason: string } {
  try {
    return planOf(task, of);
  } catch (error) {
    if (error instanceof Refusal) return { kind: "refused", reason: error.message };
    throw error;
  }
}

function planOf(task: TemplatedTask, of: TaskContainer): ContainerPlan {
  const { spec } = of;
  const hostname = expanded(spec.hostname, "hostname", taskContext(task));
  const { limits, reservations } = of.resources ?? { limits: null, reservations: null };
  return {
    kind: "plan",
    spec: DriverSpec.create({
      // A name without a value removes a variable of the image, which drivers cannot express.
      env: spec.env.filter((entry) => entry.includes("=")).map(literalEntry),
      user: spec.user,
      stopSignal: spec.stopSignal,
      stopGracePeriod: spec.stopGracePeriod,
      secrets: spec.secrets,
      configs: spec.configs,
      // The engine creates the others.
      mounts: spec.mounts.filter(isCluster),
      dns: spec.dnsConfig,
    }),
    config: literal(configOf(task, of, hostname)) as ContainerConfig,
    files: filesOf(spec),
    limits: {
      nanoCpus: limits?.nanoCpus ?? 0,
      memoryBytes: limits?.memoryBytes ?? 0,
      memoryReservedBytes: reservations?.memoryBytes ?? 0,
      oomScoreAdj: spec.oomScoreAdj,
    },
    hostname,
  };
}

/** Leaves out null and empty values, which the engine or the image sets. */
function present(fields: { readonly [key: string]: ConfigValue | null }): ContainerConfig {
  const isSaid = (value: ConfigValue | null): boolean => {
    if (value === null || value === "" || value === 0 || value === false) return false;
    if (Array.isArray(value)) return value.length > 0;
    return typeof value !== "object" || Object.keys(value).length > 0;
  };
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => isSaid(value))) as ContainerConfig;
}

function configOf(
  task: TemplatedTask,
  { logDriver, networks, ports, resources, spec }: TaskContainer,
  hostname: string,
): ContainerConfig {
  if (spec.isolation !== Isolation.ISOLATION_DEFAULT)
    throw new Refusal("isolation is supported for Windows containers only");
  const context = taskContext(task);
  return {
    ...present({
      image: spec.image,
      // As engines do: a tag may have moved, so it is resolved again; the local image is used if no registry answers.
      refresh: !spec.image.includes("@"),
      registry_auth: spec.pullOptions?.registryAuth ?? "",
      entrypoint: spec.command,
      args: spec.args,
      work_dir: spec.dir,
      hostname,
      labels: { ...spec.labels, ...swarmLabels(task) },
      group_add: spec.groups,
      tty: spec.tty,
      interactive: spec.openStdin,
      readonly_rootfs: spec.readOnly,
      cap_add: spec.capabilityAdd,
      cap_drop: spec.capabilityDrop,
      sysctl: spec.sysctls,
      pids_limit: spec.pidsLimit,
      ulimit: Object.fromEntries(spec.ulimits.map(({ hard, name, soft }) => [name, `${soft}:${hard}`])),
      extra_hosts: spec.hosts.flatMap(hostsOf),
      security_opt: securityOf(spec.privileges),
      network_mode: networkOf(networks),
      publish: areOfCluster(networks)
        ? []
        : ports.filter(({ publishMode }) => publishMode === PublishMode.HOST).map(portOf),
      mount: spec.mounts.filter((mount) => !isCluster(mount)).map((mount) => mountOf(mount, context)),
      healthcheck: healthOf(spec.healthcheck),
      logging: logDriver === null || logDriver.name === "" ? null : logDriverOf(logDriver),
    }),
    // Set explicitly, even if false or 0.
    ...(spec.init === null ? {} : { init: spec.init.value }),
    ...(resources?.memorySwappiness == null ? {} : { memory_swappiness: resources.memorySwappiness.value }),
    // 0 means the engine's default: as much swap as memory.
    memory_swap: swapOf(resources),
  };
}

/** The labels that engines put on containers of a swarm. */
function swarmLabels({ id, name, nodeId, serviceId, serviceName }: TemplatedTask): Readonly<Record<string, string>> {
  return {
    "com.docker.swarm.task": "",
    "com.docker.swarm.task.id": id,
    "com.docker.swarm.task.name": name,
    "com.docker.swarm.node.id": nodeId,
    "com.docker.swarm.service.id": serviceId,
    "com.docker.swarm.service.name": serviceName,
  };
}

function expanded(text: string, what: string, context: TemplateContext): string {
  const expansion = expand(text, context);
  if (expansion.kind === "text") return expansion.text;
  throw new Refusal(`the template of the ${what} cannot be expanded: ${expansion.reason}`);
}

/** Converts an `address name…` line of a hosts file to `name:address` entries. */
function hostsOf(line: string): readonly string[] {
  const [address = "", ...names] = line.split(/\s+/).filter((part) => part !== "");
  return names.map((name) => `${name}:${address}`);
}

function isOfCluster({ network }: NetworkAttachment): boolean {
  return !nodeLocalDrivers.has(network?.driverState?.name ?? "");
}

/** Whether the node creates the networks, as for other tasks, rather than the engine. */
export function areOfCluster(attachments: readonly NetworkAttachment[]): boolean {
  return attachments.some(isOfCluster);
}

/** The engine's network; empty if the node creates it, or the engine uses its default. */
function networkOf(attachments: readonly NetworkAttachment[]): string {
  const [first, second] = attachments.filter((attachment) => !isOfCluster(attachment));
  if (first === undefined) return "";
  const nameOf = ({ network }: NetworkAttachment): string => network?.spec?.annotations?.name ?? network?.id ?? "";
  if (areOfCluster(attachments))
    throw new Refusal(`a container cannot join both the node-local network ${nameOf(first)} and a cluster network`);
  if (second !== undefined) throw new Refusal("a container can join only one node-local network");
  switch (first.network?.driverState?.name) {
    case "host":
      return "host";
    case "null":
      return "none";
    default:
      return nameOf(first);
  }
}

const protocols: { readonly [Of in Protocol]: string } = {
  [Protocol.TCP]: "tcp",
  [Protocol.UDP]: "udp",
  [Protocol.SCTP]: "sctp",
};

function portOf({ protocol, publishedPort, targetPort }: PortConfig): ConfigValue {
  return { target: targetPort, published: publishedPort, protocol: protocols[protocol] };
}

const propagations: { readonly [Of in Propagation]: string } = {
  [Propagation.RPRIVATE]: "rprivate",
  [Propagation.PRIVATE]: "private",
  [Propagation.RSHARED]: "rshared",
  [Propagation.SHARED]: "shared",
  [Propagation.RSLAVE]: "rslave",
  [Propagation.SLAVE]: "slave",
};

function isCluster({ type }: Mount): boolean {
  return type === MountType.CLUSTER;
}

function mountOf(mount: Mount, context: TemplateContext): ConfigValue {
  const { bindOptions, readonly, tmpfsOptions, type, volumeOptions } = mount;
  const common = {
    source: expanded(mount.source, "mount's source", context),
    target: expanded(mount.target, "mount's target", context),
    readonly,
  };
  switch (type) {
    case MountType.BIND: {
      if (bindOptions === null) return present({ type: "bind", ...common });
      const { createmountpoint, nonrecursive, propagation } = bindOptions;
      return present({
        type: "bind",
        ...common,
        bind_options: present({
          propagation: propagations[propagation],
          non_recursive: nonrecursive,
          create_mountpoint: createmountpoint,
          read_only_non_recursive: bindOptions.readonlynonrecursive,
          read_only_force_recursive: bindOptions.readonlyforcerecursive,
        }),
      });
    }
    case MountType.VOLUME: {
      if (volumeOptions === null) return present({ type: "volume", ...common });
      const { driverConfig, labels, nocopy, subpath } = volumeOptions;
      const all = (texts: Readonly<Record<string, string>>, what: string) =>
        Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, expanded(text, what, context)]));
      return present({
        type: "volume",
        ...common,
        volume_options: present({
          no_copy: nocopy,
          labels: all(labels, "volume's label"),
          subpath,
          driver_config:
            driverConfig === null
              ? null
              : present({ name: driverConfig.name, options: all(driverConfig.options, "volume's option") }),
        }),
      });
    }
    case MountType.TMPFS: {
      const { mode = 0, options = "", sizeBytes = 0 } = tmpfsOptions ?? {};
      if (options !== "") throw new Refusal(`tmpfs options "${options}" are not supported`);
      return present({ type: "tmpfs", target: common.target, tmpfs_options: present({ size: sizeBytes, mode }) });
    }
    case MountType.NPIPE:
      throw new Refusal("named pipe mounts are supported on Windows only");
    default:
      throw new Refusal(`the mount at ${common.target} has a type that this node does not support`);
  }
}

function seconds(duration: Duration | null): number {
  return duration === null ? 0 : duration.seconds + duration.nanos / 1e9;
}

/** Empty: the image's health check. */
function healthOf(health: HealthConfig | null): ConfigValue | null {
  if (health === null) return null;
  return present({
    test: health.test,
    interval: seconds(health.interval),
    timeout: seconds(health.timeout),
    retries: health.retries,
    start_period: seconds(health.startPeriod),
    start_interval: seconds(health.startInterval),
  });
}

function securityOf(privileges: Privileges | null): readonly string[] {
  if (privileges === null) return [];
  const { apparmor, credentialSpec, noNewPrivileges, seccomp, selinuxContext } = privileges;
  if (credentialSpec !== null) throw new Refusal("credential specs are supported for Windows containers only");
  const options: string[] = [];
  if (selinuxContext?.disable === true) options.push("label=disable");
  for (const part of ["user", "role", "type", "level"] as const) {
    const value = selinuxContext?.[part] ?? "";
    if (value !== "") options.push(`label=${part}:${value}`);
  }
  if (seccomp?.mode === SeccompMode.UNCONFINED) options.push("seccomp=unconfined");
  if (seccomp?.mode === SeccompMode.CUSTOM) options.push(`seccomp=${new TextDecoder().decode(seccomp.profile)}`);
  if (apparmor?.mode === AppArmorMode.DISABLED) options.push("apparmor=unconfined");
  if (noNewPrivileges) options.push("no-new-privileges");
  return options;
}

function logDriverOf({ name, options }: Driver): ConfigValue {
  return present({ type: name, config: options });
}

/** The engine's value: memory plus swap, -1 for unlimited, 0 if unset. */
function swapOf(resources: ResourceRequirements | null): number {
  const swap = resources?.swapBytes?.value ?? null;
  if (swap === null) return 0;
  return swap < 0 ? -1 : (resources?.limits?.memoryBytes ?? 0) + swap;
}

function filesOf({ configs, secrets }: ContainerSpec): readonly ContainerFile[] {
  const path = (name: string): string => name.replace(/^\/+/, "");
  const under = (folder: string, name: string): string => (name.startsWith("/") ? name : `${folder}/${name}`);
  return [
    ...secrets.flatMap(({ file }): ContainerFile[] =>
      file === null ? [] : [{ kind: "secrets", path: path(file.name), target: under("/run/secrets", file.name) }],
    ),
    ...configs.flatMap(({ file }): ContainerFile[] =>
      file === null ? [] : [{ kind: "configs", path: path(file.name), target: under("", file.name) }],
    ),
  ];
}

/** Escapes template markers: a container's spec contains no expressions. */
function literal(value: ConfigValue): ConfigValue {
  if (typeof value === "string") return literally(value);
  if (typeof value !== "object") return value;
  if (Array.isArray(value)) return (value as readonly ConfigValue[]).map(literal);
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, literal(each)]));
}
