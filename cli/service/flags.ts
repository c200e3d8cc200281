/** Flags of `service create` and `service update`, with Docker's names: one table per command, with help texts. */
import type { FlagHelp } from "../help/description.ts";
import { UserError } from "../../lib/user-error.ts";

type Help = Required<Pick<FlagHelp, "group" | "help">> &
  Pick<FlagHelp, "value"> & {
    readonly short?: string;
    /** For containers only; rejected for services of plain processes. */
    readonly containers?: true;
  };

const text = (help: Help) => ({ type: "string", ...help }) as const;
const texts = (help: Help) => ({ type: "string", multiple: true, ...help }) as const;
const yes = (help: Help) => ({ type: "boolean", ...help }) as const;

const general = "Service";
const runs = "What runs";
const system = "System (containers)";
const files = "Files";
const health = "Health";
const network = "Network";
const placed = "Placement and resources";
const restarts = "Restarts";
const updates = "Updates";
const rollbacks = "Rollbacks";
const command = "This command";

function rolloutFlags<Prefix extends "update" | "rollback">(prefix: Prefix, group: string, actions: string) {
  type Names =
    | `${Prefix}-parallelism`
    | `${Prefix}-delay`
    | `${Prefix}-monitor`
    | `${Prefix}-failure-action`
    | `${Prefix}-max-failure-ratio`
    | `${Prefix}-order`;
  return {
    [`${prefix}-parallelism`]: text({
      group,
      value: "N",
      help: "Maximum number of tasks changed simultaneously (0 = all at once; default 1)",
    }),
    [`${prefix}-delay`]: text({ group, value: "DURATION", help: "Delay after each group of tasks (default 0s)" }),
    [`${prefix}-monitor`]: text({
      group,
      value: "DURATION",
      help: "Duration to monitor each new task for failure (default 5s)",
    }),
    [`${prefix}-failure-action`]: text({
      group,
      value: "ACTION",
      help: `Action on ${prefix} failure: ${actions} (default pause)`,
    }),
    [`${prefix}-max-failure-ratio`]: text({
      group,
      value: "RATIO",
      help: "Fraction of tasks that may fail before the failure action applies (default 0)",
    }),
    [`${prefix}-order`]: text({ group, value: "ORDER", help: "Order: stop-first or start-first (default stop-first)" }),
  } as { readonly [Name in Names]: ReturnType<typeof text> };
}

/** Flags of both commands that set a single value. */
const settingFlags = {
  replicas: text({ group: general, value: "N", help: "Number of tasks, or of completions of a job (default 1)" }),
  "max-concurrent": text({
    group: general,
    value: "N",
    help: "Number of tasks of a job to run concurrently (default: all)",
  }),
  "endpoint-mode": text({ group: network, value: "MODE", help: "Endpoint mode: vip or dnsrr (default vip)" }),

  entrypoint: text({ group: runs, value: "COMMAND", help: "Override the entrypoint of the image", containers: true }),
  workdir: text({ group: runs, value: "PATH", help: "Working directory in the task", short: "w" }),
  user: text({ group: runs, value: "USER", help: "Username or UID (format: NAME|UID[:GROUP|GID])", short: "u" }),
  hostname: text({ group: network, value: "NAME", help: "Container hostname (may be a template)", containers: true }),
  "stop-signal": text({ group: runs, value: "SIGNAL", help: "Signal to stop a task" }),
  "stop-grace-period": text({
    group: runs,
    value: "DURATION",
    help: "Time to wait before force killing a task (default 10s)",
  }),
  tty: yes({ group: runs, help: "Allocate a pseudo-TTY", short: "t", containers: true }),
  init: yes({
    group: runs,
    help: "Run an init inside each task that forwards signals and reaps processes",
    containers: true,
  }),
  "log-driver": text({
    group: runs,
    value: "NAME",
    help: "Logging driver for the service's containers",
    containers: true,
  }),
  "log-opt": texts({ group: runs, value: "KEY=VALUE", help: "Logging driver option", containers: true }),

  "read-only": yes({ group: system, help: "Mount the root file system read-only", containers: true }),
  "cap-add": texts({ group: system, value: "CAPABILITY", help: "Linux capability to add", containers: true }),
  "cap-drop": texts({ group: system, value: "CAPABILITY", help: "Linux capability to drop", containers: true }),
  "credential-spec": text({
    group: system,
    value: "SOURCE",
    help: "Credential spec: config://, file:// or registry:// (Windows)",
    containers: true,
  }),
  isolation: text({
    group: system,
    value: "MODE",
    help: "Isolation mode: default, process or hyperv (Windows)",
    containers: true,
  }),
  "oom-score-adj": text({
    group: system,
    value: "N",
    help: "OOM score adjustment from -1000 (killed last) to 1000 (killed first)",
    containers: true,
  }),
  "limit-pids": text({
    group: placed,
    value: "N",
    help: "Maximum number of processes (0 = unlimited)",
    containers: true,
  }),

  "health-cmd": text({ group: health, value: "COMMAND", help: "Command to run in the task to check its health" }),
  "health-http": text({
    group: health,
    value: "URL|:PORT/PATH",
    help: "URL to request as the health check; healthy on 2xx or 3xx (process services only)",
  }),
  "health-tcp": text({
    group: health,
    value: ":PORT",
    help: "Address to connect to as the health check (process services only)",
  }),
  "health-interval": text({ group: health, value: "DURATION", help: "Time between running the check (default 30s)" }),
  "health-timeout": text({ group: health, value: "DURATION", help: "Maximum time for one check to run (default 30s)" }),
  "health-retries": text({
    group: health,
    value: "N",
    help: "Consecutive failures needed to report unhealthy (default 3)",
  }),
  "health-start-period": text({
    group: health,
    value: "DURATION",
    help: "Start period during which failures do not count (default 0s)",
  }),
  "health-start-interval": text({
    group: health,
    value: "DURATION",
    help: "Time between checks during the start period (default 5s)",
  }),
  "no-healthcheck": yes({ group: health, help: "Disable the health check, including the image's own" }),

  "limit-cpu": text({ group: placed, value: "CORES", help: "Limit CPUs" }),
  "limit-memory": text({ group: placed, value: "BYTES", help: "Limit memory" }),
  "reserve-cpu": text({ group: placed, value: "CORES", help: "Reserve CPUs" }),
  "reserve-memory": text({ group: placed, value: "BYTES", help: "Reserve memory" }),
  "replicas-max-per-node": text({
    group: placed,
    value: "N",
    help: "Maximum number of tasks per node (0 = unlimited)",
  }),

  "restart-condition": text({
    group: restarts,
    value: "CONDITION",
    help: "Restart when the condition is met: none, on-failure or any (default any)",
  }),
  "restart-delay": text({ group: restarts, value: "DURATION", help: "Delay before each restart (default 5s)" }),
  "restart-max-attempts": text({
    group: restarts,
    value: "N",
    help: "Maximum number of restarts before giving up (0 = unlimited)",
  }),
  "restart-window": text({ group: restarts, value: "DURATION", help: "Window in which restart attempts are counted" }),
  "on-disconnect": text({
    group: restarts,
    value: "ACTION",
    help: "Action for running tasks on a node that is down: replace, or keep until it returns (default replace)",
  }),
  "disconnect-after": text({
    group: restarts,
    value: "DURATION",
    help: "Time that a node must be down before its running tasks are replaced, at most 24h (default 0s)",
  }),

  ...rolloutFlags("update", updates, "pause, continue or rollback"),
  ...rolloutFlags("rollback", rollbacks, "pause or continue"),
} as const;

/** Flags of both commands that affect the command, not the service. */
export const behaviourFlags = {
  detach: yes({ group: command, help: "Exit immediately instead of waiting for the service to converge", short: "d" }),
  quiet: yes({ group: command, help: "Suppress progress output", short: "q" }),
  "with-registry-auth": yes({ group: command, help: "Send registry authentication details to the nodes" }),
  // Accepted for Docker's scripts: Muster never resolves an image on the manager.
  "no-resolve-image": yes({ group: command, help: "Accepted for compatibility; managers never resolve images" }),
} as const;

export const createFlags = {
  name: text({ group: general, value: "NAME", help: "Service name (default: generated)" }),
  mode: text({
    group: general,
    value: "MODE",
    help: "Service mode: replicated, global, replicated-job or global-job (default replicated)",
  }),
  driver: text({
    group: general,
    value: "NAME",
    help: "Driver that runs the tasks: container, exec (plain processes), or a driver plugin (default container)",
  }),
  "driver-config": text({
    group: runs,
    value: "JSON|@FILE",
    help: "Task configuration for a driver plugin, as JSON or YAML",
  }),
  label: texts({ group: general, value: "KEY=VALUE", help: "Service label", short: "l" }),
  "container-label": texts({ group: general, value: "KEY=VALUE", help: "Container label", containers: true }),
  env: texts({
    group: runs,
    value: "NAME[=VALUE]",
    help: "Set an environment variable; without a value it is taken from this shell",
    short: "e",
  }),
  "env-file": texts({ group: runs, value: "FILE", help: "Read environment variables from a file, one per line" }),
  group: texts({ group: runs, value: "GROUP", help: "Supplementary group of the task's user", containers: true }),
  sysctl: texts({ group: system, value: "KEY=VALUE", help: "Kernel parameter (sysctl)", containers: true }),
  ulimit: texts({ group: system, value: "NAME=SOFT[:HARD]", help: "Resource limit (ulimit)", containers: true }),
  mount: texts({
    group: files,
    value: "type=…,target=…",
    help: "Attach a file system mount (process services: only type=cluster)",
  }),
  device: texts({
    group: files,
    value: "HOST[:TASK[:rwm]]",
    help: "Device of the node to add to the task (driver plugins only)",
  }),
  secret: texts({ group: files, value: "NAME|source=…", help: "Secret to expose as a file" }),
  config: texts({ group: files, value: "NAME|source=…", help: "Config to expose as a file" }),
  network: texts({ group: network, value: "NAME|name=…,alias=…", help: "Network to attach" }),
  publish: texts({
    group: network,
    value: "PORT:PORT|target=…",
    help: "Port to publish on nodes; name=NAME makes it available to network policies",
    short: "p",
  }),
  host: texts({ group: network, value: "NAME:IP", help: "Host-to-IP mapping to add to /etc/hosts", containers: true }),
  dns: texts({ group: network, value: "IP", help: "DNS server" }),
  "dns-option": texts({ group: network, value: "OPTION", help: "DNS resolver option" }),
  "dns-search": texts({ group: network, value: "DOMAIN", help: "DNS search domain" }),
  constraint: texts({ group: placed, value: "EXPR", help: "Placement constraint, such as node.labels.zone==eu" }),
  "placement-pref": texts({
    group: placed,
    value: "spread=LABEL",
    help: "Placement preference: the label to spread tasks over",
  }),
  "generic-resource": texts({ group: placed, value: "KIND=N", help: "User-defined resource to reserve" }),
  ...settingFlags,
  ...behaviourFlags,
} as const;

const ofAll = (group: string, value: string, help: string) => texts({ group, value, help });
const ofContainers = (group: string, value: string, help: string) => texts({ group, value, help, containers: true });

export const updateFlags = {
  image: text({ group: general, value: "IMAGE", help: "Image of the service", containers: true }),
  args: text({ group: general, value: "COMMAND", help: "Command arguments, quoted as in a shell" }),
  force: yes({ group: general, help: "Replace the tasks even if no changes require it" }),
  rollback: yes({ group: general, help: "Roll back to the previous spec; excludes all other flags" }),
  "driver-config": text({ group: runs, value: "JSON|@FILE", help: "Task configuration for a driver plugin" }),
  "label-add": ofAll(general, "KEY=VALUE", "Add or update a label"),
  "label-rm": ofAll(general, "KEY", "Remove a label by its key"),
  "container-label-add": ofContainers(general, "KEY=VALUE", "Add or update a container label"),
  "container-label-rm": ofContainers(general, "KEY", "Remove a container label by its key"),
  "env-add": ofAll(runs, "NAME[=VALUE]", "Add or update an environment variable"),
  "env-rm": ofAll(runs, "NAME", "Remove an environment variable"),
  "group-add": ofContainers(runs, "GROUP", "Add a supplementary group"),
  "group-rm": ofContainers(runs, "GROUP", "Remove a supplementary group"),
  "sysctl-add": ofContainers(system, "KEY=VALUE", "Add or update a kernel parameter"),
  "sysctl-rm": ofContainers(system, "KEY", "Remove a kernel parameter"),
  "ulimit-add": ofContainers(system, "NAME=SOFT[:HARD]", "Add or update a resource limit"),
  "ulimit-rm": ofContainers(system, "NAME", "Remove a resource limit"),
  "mount-add": ofAll(files, "type=…,target=…", "Add or update a mount, by its target"),
  "mount-rm": ofAll(files, "TARGET", "Remove a mount by its target path"),
  "device-add": ofAll(files, "HOST[:TASK[:rwm]]", "Add or update a device (driver plugins only)"),
  "device-rm": ofAll(files, "HOST", "Remove a device by its path on the node"),
  "secret-add": ofAll(files, "NAME|source=…", "Add or update a secret"),
  "secret-rm": ofAll(files, "NAME", "Remove a secret"),
  "config-add": ofAll(files, "NAME|source=…", "Add or update a config"),
  "config-rm": ofAll(files, "NAME", "Remove a config"),
  "network-add": ofAll(network, "NAME|name=…,alias=…", "Add a network"),
  "network-rm": ofAll(network, "NAME", "Remove a network"),
  "publish-add": ofAll(network, "PORT:PORT|target=…", "Add or update a published port"),
  "publish-rm": ofAll(network, "TARGET[/PROTOCOL]", "Remove a published port by its target port"),
  "host-add": ofContainers(network, "NAME:IP", "Add a host-to-IP mapping to /etc/hosts"),
  "host-rm": ofContainers(network, "NAME[:IP]", "Remove a host-to-IP mapping from /etc/hosts"),
  "dns-add": ofAll(network, "IP", "Add a DNS server"),
  "dns-rm": ofAll(network, "IP", "Remove a DNS server"),
  "dns-option-add": ofAll(network, "OPTION", "Add a DNS resolver option"),
  "dns-option-rm": ofAll(network, "OPTION", "Remove a DNS resolver option"),
  "dns-search-add": ofAll(network, "DOMAIN", "Add a DNS search domain"),
  "dns-search-rm": ofAll(network, "DOMAIN", "Remove a DNS search domain"),
  "constraint-add": ofAll(placed, "EXPR", "Add a placement constraint"),
  "constraint-rm": ofAll(placed, "EXPR", "Remove a placement constraint"),
  "placement-pref-add": ofAll(placed, "spread=LABEL", "Add a placement preference, after the existing ones"),
  "placement-pref-rm": ofAll(placed, "spread=LABEL", "Remove a placement preference"),
  "generic-resource-add": ofAll(placed, "KIND=N", "Add or update a user-defined resource"),
  "generic-resource-rm": ofAll(placed, "KIND", "Remove a user-defined resource"),
  ...settingFlags,
  ...behaviourFlags,
} as const;

type FlagTypes = Readonly<Record<string, { readonly type: string; readonly multiple?: boolean }>>;

/** Values as returned by `parseArgs`. */
export type FlagValues<Flags extends FlagTypes> = {
  readonly [Name in keyof Flags]?:
    | (Flags[Name] extends { readonly multiple: true }
        ? string[]
        : Flags[Name] extends { readonly type: "boolean" }
          ? boolean
          : string)
    | undefined;
};

export type CreateValues = FlagValues<typeof createFlags>;
export type UpdateValues = FlagValues<typeof updateFlags>;
export type SettingValues = FlagValues<typeof settingFlags>;

/** The first given flag that is for containers only; null if there is none. */
export function containerFlagIn(values: Readonly<Record<string, unknown>>): string | null {
  const flags: Readonly<Record<string, { readonly containers?: true }>> = { ...createFlags, ...updateFlags };
  return Object.keys(values).find((name) => values[name] !== undefined && flags[name]?.containers === true) ?? null;
}

/** A rollback restores the whole previous spec, so other changes would be lost. Throws UserError. */
export function refuseOtherFlags(values: UpdateValues): void {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  const other = given.find(([flag]) => !["rollback", "detach", "quiet"].includes(flag));
  if (other !== undefined) throw new UserError(`other flags may not be combined with --rollback: --${other[0]}`);
}
