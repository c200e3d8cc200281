/** Translates a task to the container that the engine is asked to create. */
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { TaskRequest } from "../../edges/plugin/server/index.ts";
import {
  NetworkIsolationSpec_NetworkIsolationMode as Isolation,
  type PortMapping,
  type TaskConfig,
} from "../../proto/gen/nomad.ts";
import type { DockerConfig, DriverConfig } from "./fields.ts";
import { dnsOf, type NameFile } from "./name-files.ts";

/** Marks the containers of our tasks. */
export const taskLabel = "io.muster.task";
/** Marks a task's container, and the one that holds its network, with the host's allocation id. */
export const allocLabel = "io.muster.alloc";
/** Names the container whose network a group shares; Nomad's label. */
export const sandboxLabel = "docker_sandbox_container_id";
/** Limits the engine's copy of a container's output: the host has its own copy. */
const logOptions = { "max-size": "10m", "max-file": "2" };

interface MountSpec {
  readonly Type: string;
  readonly Source: string;
  readonly Target: string;
  readonly ReadOnly: boolean;
  readonly BindOptions?: object;
  readonly VolumeOptions?: object;
  readonly TmpfsOptions?: object;
}

/** Mount propagations: the host's terms to the kernel's. */
const propagations: Readonly<Record<string, string>> = {
  private: "rprivate",
  "host-to-task": "rslave",
  bidirectional: "rshared",
};

export function containerName({ id, task }: Pick<TaskRequest<unknown>, "id" | "task">): string {
  const hash = createHash("sha256").update(`${task.allocDir}\0${id}`).digest("hex").slice(0, 16);
  const readable = task.name.replaceAll(/[^a-zA-Z0-9_.-]/g, "-");
  return `${readable === "" ? "task" : readable}-${hash}`;
}

/** The directories that hosts create for a task, at the paths that its environment names. */
function ownDirectories({ allocDir, env, name }: TaskConfig): readonly MountSpec[] {
  const places = [
    [join(allocDir, "alloc"), env["NOMAD_ALLOC_DIR"]],
    [join(allocDir, name, "local"), env["NOMAD_TASK_DIR"]],
    [join(allocDir, name, "secrets"), env["NOMAD_SECRETS_DIR"]],
  ] as const;
  if (allocDir === "") return [];
  return places.flatMap(([Source, Target]) =>
    Target === undefined || Target === "" || !existsSync(Source)
      ? []
      : [{ Type: "bind", Source, Target, ReadOnly: false }],
  );
}

function mountsOf(config: DockerConfig, task: TaskConfig, names: readonly NameFile[]): readonly MountSpec[] {
  const given = task.mounts.map(({ hostPath, taskPath, readonly, propagationMode }): MountSpec => {
    const propagation = propagations[propagationMode];
    return {
      Type: "bind",
      Source: hostPath,
      Target: taskPath,
      ReadOnly: readonly,
      ...(propagation === undefined ? {} : { BindOptions: { Propagation: propagation } }),
    };
  });
  const all = [...ownDirectories(task), ...given, ...config.mount.map(askedMount)];
  // A mount at the same path replaces the file.
  const files = names.filter(({ target }) => all.every(({ Target }) => Target !== target));
  return [
    ...all,
    ...files.map(({ path, target }): MountSpec => ({ Type: "bind", Source: path, Target: target, ReadOnly: false })),
  ];
}

function askedMount(mount: DockerConfig["mount"][number]): MountSpec {
  const { bind_options: bind, readonly, source, target, tmpfs_options: tmpfs, type, volume_options: volume } = mount;
  const common = { Type: type, Source: source ?? "", Target: target, ReadOnly: readonly };
  switch (type) {
    case "bind":
      if (bind === null) return common;
      return {
        ...common,
        BindOptions: {
          Propagation: bind.propagation ?? "",
          NonRecursive: bind.non_recursive,
          CreateMountpoint: bind.create_mountpoint,
          ReadOnlyNonRecursive: bind.read_only_non_recursive,
          ReadOnlyForceRecursive: bind.read_only_force_recursive,
        },
      };
    case "volume":
      if (volume === null) return common;
      return {
        ...common,
        VolumeOptions: {
          NoCopy: volume.no_copy,
          Labels: volume.labels,
          Subpath: volume.subpath ?? "",
          ...(volume.driver_config === null
            ? {}
            : { DriverConfig: { Name: volume.driver_config.name ?? "", Options: volume.driver_config.options } }),
        },
      };
    case "tmpfs":
      if (tmpfs === null) return common;
      return { ...common, TmpfsOptions: { SizeBytes: tmpfs.size, Mode: tmpfs.mode } };
    default:
      throw new Error(`invalid mount type "${type}": expected bind, volume or tmpfs`);
  }
}

interface Published {
  readonly ExposedPorts: Record<string, object>;
  readonly PortBindings: Record<string, { HostIp: string; HostPort: string }[]>;
}

function publish({ ports: labels, publish: asked }: DockerConfig, ports: readonly PortMapping[]): Published {
  const found: Published = { ExposedPorts: {}, PortBindings: {} };
  for (const { protocol, published, target } of asked) {
    const name = `${target}/${protocol}`;
    found.ExposedPorts[name] = {};
    // If empty, the engine chooses a port.
    (found.PortBindings[name] ??= []).push({ HostIp: "", HostPort: published === 0 ? "" : String(published) });
  }
  for (const label of labels) {
    const port = ports.find((each) => each.label === label);
    if (port === undefined) throw new Error(`the task has no port with the label "${label}"`);
    for (const protocol of ["tcp", "udp"]) {
      const name = `${port.to === 0 ? port.value : port.to}/${protocol}`;
      found.ExposedPorts[name] = {};
      (found.PortBindings[name] ??= []).push({ HostIp: port.hostIp, HostPort: String(port.value) });
    }
  }
  return found;
}

/** Empty: the engine's default. */
function networkOf({ network_mode }: DockerConfig, { networkIsolationSpec: spec }: TaskConfig): string {
  if (spec !== null && spec.mode === Isolation.GROUP) {
    const sandbox = spec.labels[sandboxLabel];
    if (sandbox === undefined) throw new Error("the group's network was not created by this driver");
    return `container:${sandbox}`;
  }
  if (spec !== null && spec.mode === Isolation.NONE) return "none";
  return network_mode ?? "";
}

/** The engine expects nanoseconds. */
function healthOf({ healthcheck: check }: DockerConfig): object {
  if (check === null) return {};
  const nanos = (seconds: number): number => Math.round(seconds * 1e9);
  return {
    Healthcheck: {
      // Empty: the image's.
      Test: check.test,
      Interval: nanos(check.interval),
      Timeout: nanos(check.timeout),
      Retries: check.retries,
      StartPeriod: nanos(check.start_period),
      StartInterval: nanos(check.start_interval),
    },
  };
}

function ulimitsOf({ ulimit }: DockerConfig): readonly object[] {
  return Object.entries(ulimit).map(([Name, text]) => {
    const [, soft, hard] = /^(-?\d+)(?::(-?\d+))?$/.exec(text) ?? [];
    if (soft === undefined) throw new Error(`invalid ulimit ${Name} "${text}": expected soft:hard`);
    return { Name, Soft: Number(soft), Hard: Number(hard ?? soft) };
  });
}

/** The request body that creates a container. `names`: files mounted over the engine's. Throws if the task is invalid. */
export function containerOf(
  { id, config, task }: TaskRequest<DockerConfig>,
  driver: DriverConfig,
  names: readonly NameFile[] = [],
): object {
  if (config.privileged && !driver.allow_privileged)
    throw new Error("privileged containers are not allowed on this node (allow_privileged)");
  const linux = task.resources?.linuxResources;
  const memory = task.resources?.allocatedResources?.memory;
  const memoryBytes = Math.max(0, linux?.memoryLimitBytes ?? 0);
  const reservation = memory !== null && memory !== undefined && memory.memoryMaxMb !== 0 ? memory.memoryMb : 0;
  const network = networkOf(config, task);
  const isShared = network.startsWith("container:");
  const dns = dnsOf(config, task);
  const { ExposedPorts, PortBindings } = publish(config, task.resources?.ports ?? []);
  const command = [...(config.command === null ? [] : [config.command]), ...config.args];
  return {
    Image: config.image,
    ...(config.entrypoint === null ? {} : { Entrypoint: config.entrypoint }),
    ...(command.length === 0 ? {} : { Cmd: command }),
    Env: Object.entries(task.env).map(([name, value]) => `${name}=${value}`),
    User: task.user,
    WorkingDir: config.work_dir ?? "",
    // In a shared network the hostname is that of the network's container.
    ...(isShared || config.hostname === null ? {} : { Hostname: config.hostname }),
    Labels: { ...config.labels, [taskLabel]: id, [allocLabel]: task.allocId },
    Tty: config.tty,
    OpenStdin: config.interactive,
    ...healthOf(config),
    ExposedPorts: isShared ? {} : ExposedPorts,
    HostConfig: {
      NetworkMode: network === "" ? "default" : network,
      PortBindings: isShared ? {} : PortBindings,
      Mounts: mountsOf(config, task, names),
      Tmpfs: config.tmpfs,
      Devices: task.devices.map(({ hostPath, taskPath, cgroupPermissions }) => ({
        PathOnHost: hostPath,
        PathInContainer: taskPath,
        CgroupPermissions: cgroupPermissions,
      })),
      Memory: memoryBytes,
      // No swap by default, as everywhere in Muster.
      MemorySwap: config.memory_swap ?? memoryBytes,
      ...(config.memory_swappiness === null ? {} : { MemorySwappiness: config.memory_swappiness }),
      MemoryReservation: Math.max(0, reservation) * 1024 * 1024,
      CpuShares: Math.max(0, linux?.cpuShares ?? 0),
      CpuQuota: linux?.cpuQuota ?? 0,
      CpuPeriod: linux?.cpuPeriod ?? 0,
      CpusetCpus: linux?.cpusetCpus ?? "",
      OomScoreAdj: linux?.oomScoreAdj ?? 0,
      Ulimits: ulimitsOf(config),
      GroupAdd: config.group_add,
      SecurityOpt: config.security_opt,
      PidsLimit: config.pids_limit,
      ShmSize: config.shm_size,
      Sysctls: config.sysctl,
      Init: config.init,
      Privileged: config.privileged,
      CapAdd: config.cap_add,
      CapDrop: config.cap_drop,
      ReadonlyRootfs: config.readonly_rootfs,
      ExtraHosts: isShared ? [] : config.extra_hosts,
      Dns: isShared ? [] : dns.servers,
      DnsSearch: isShared ? [] : dns.searches,
      DnsOptions: isShared ? [] : dns.options,
      LogConfig:
        config.logging === null
          ? { Type: "json-file", Config: logOptions }
          : { Type: config.logging.type, Config: config.logging.config },
      RestartPolicy: { Name: "no" },
      AutoRemove: false,
    },
  };
}
