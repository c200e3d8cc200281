/**
 * The flags of `service create` and `service update`, named as Docker names them: one table for each command, with what
 * the help says of each.
 */
import type { FlagHelp } from "../command.ts";
import { UserError } from "../user-error.ts";

type Help = Required<Pick<FlagHelp, "group" | "help">> &
  Pick<FlagHelp, "value"> & {
    readonly short?: string;
    /** It says something of containers alone; a service of plain processes refuses it. */
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
    [`${prefix}-parallelism`]: text({ group, value: "N", help: "tasks at a time, 0: all at once (1)" }),
    [`${prefix}-delay`]: text({ group, value: "DURATION", help: "pause after each (0s)" }),
    [`${prefix}-monitor`]: text({ group, value: "DURATION", help: "how long a new task is watched (5s)" }),
    [`${prefix}-failure-action`]: text({ group, value: "ACTION", help: `${actions} (pause)` }),
    [`${prefix}-max-failure-ratio`]: text({ group, value: "RATIO", help: "share of failures that is borne (0)" }),
    [`${prefix}-order`]: text({ group, value: "ORDER", help: "stop-first or start-first (stop-first)" }),
  } as { readonly [Name in Names]: ReturnType<typeof text> };
}

/** What both commands take: each sets one value, whatever it was before. */
const settingFlags = {
  replicas: text({ group: general, value: "N", help: "how many tasks, or completions of a job (1)" }),
  "max-concurrent": text({ group: general, value: "N", help: "tasks of a job at a time (all)" }),
  "endpoint-mode": text({ group: network, value: "MODE", help: "vip or dnsrr (vip)" }),

  entrypoint: text({ group: runs, value: "COMMAND", help: "instead of the image's", containers: true }),
  workdir: text({ group: runs, value: "PATH", help: "working directory", short: "w" }),
  user: text({ group: runs, value: "USER", help: "name or uid, with :group or :gid", short: "u" }),
  hostname: text({ group: network, value: "NAME", help: "of each container", containers: true }),
  "stop-signal": text({ group: runs, value: "SIGNAL", help: "asks a task to end" }),
  "stop-grace-period": text({ group: runs, value: "DURATION", help: "from that signal to the kill (10s)" }),
  tty: yes({ group: runs, help: "gives it a terminal", short: "t", containers: true }),
  init: yes({ group: runs, help: "an init passes signals on and reaps", containers: true }),
  "log-driver": text({ group: runs, value: "NAME", help: "where a container's output goes", containers: true }),
  "log-opt": texts({ group: runs, value: "KEY=VALUE", help: "option of the log driver", containers: true }),

  "read-only": yes({ group: system, help: "root file system cannot be written", containers: true }),
  "cap-add": texts({ group: system, value: "CAPABILITY", help: "a Linux capability more", containers: true }),
  "cap-drop": texts({ group: system, value: "CAPABILITY", help: "a Linux capability less", containers: true }),
  "credential-spec": text({
    group: system,
    value: "SOURCE",
    help: "config://, file:// or registry:// (Windows)",
    containers: true,
  }),
  isolation: text({ group: system, value: "MODE", help: "default, process or hyperv (Windows)", containers: true }),
  "oom-score-adj": text({ group: system, value: "N", help: "-1000 to 1000: later or sooner killed", containers: true }),
  "limit-pids": text({ group: placed, value: "N", help: "processes at most, 0: any number", containers: true }),

  "health-cmd": text({ group: health, value: "COMMAND", help: "finds out in the task whether it is well" }),
  "health-http": text({ group: health, value: "URL|:PORT/PATH", help: "so does a GET (not of containers)" }),
  "health-tcp": text({ group: health, value: ":PORT", help: "so does a connection (not of containers)" }),
  "health-interval": text({ group: health, value: "DURATION", help: "between two checks (30s)" }),
  "health-timeout": text({ group: health, value: "DURATION", help: "a check may take (30s)" }),
  "health-retries": text({ group: health, value: "N", help: "failures in a row that count (3)" }),
  "health-start-period": text({ group: health, value: "DURATION", help: "failures do not count yet (0s)" }),
  "health-start-interval": text({ group: health, value: "DURATION", help: "between two checks in that time (5s)" }),
  "no-healthcheck": yes({ group: health, help: "ignores the image's own check, or takes one away" }),

  "limit-cpu": text({ group: placed, value: "CORES", help: "cores at most" }),
  "limit-memory": text({ group: placed, value: "BYTES", help: "memory at most" }),
  "reserve-cpu": text({ group: placed, value: "CORES", help: "cores that must be free" }),
  "reserve-memory": text({ group: placed, value: "BYTES", help: "memory that must be free" }),
  "replicas-max-per-node": text({ group: placed, value: "N", help: "tasks on one node, 0: any number" }),

  "restart-condition": text({ group: restarts, value: "CONDITION", help: "none, on-failure or any (any)" }),
  "restart-delay": text({ group: restarts, value: "DURATION", help: "before each (5s)" }),
  "restart-max-attempts": text({ group: restarts, value: "N", help: "before it is given up, 0: never" }),
  "restart-window": text({ group: restarts, value: "DURATION", help: "in which attempts are counted" }),

  ...rolloutFlags("update", updates, "pause, continue or rollback"),
  ...rolloutFlags("rollback", rollbacks, "pause or continue"),
} as const;

/** Options of both commands that change how the command behaves, not the service. */
export const behaviourFlags = {
  detach: yes({ group: command, help: "does not wait until the tasks run", short: "d" }),
  quiet: yes({ group: command, help: "waits, but shows no progress", short: "q" }),
  "with-registry-auth": yes({ group: command, help: "hands this machine's registry login to the nodes" }),
  // Accepted as Docker's scripts give it: Muster never resolves an image on the manager.
  "no-resolve-image": yes({ group: command, help: "is always so" }),
} as const;

export const createFlags = {
  name: text({ group: general, value: "NAME", help: "made up when not given" }),
  mode: text({ group: general, value: "MODE", help: "replicated, global, replicated-job or global-job" }),
  driver: text({ group: general, value: "NAME", help: "container, exec for plain processes, or a driver plugin" }),
  "driver-config": text({ group: runs, value: "JSON|@FILE", help: "what a driver plugin is to run; in YAML as well" }),
  label: texts({ group: general, value: "KEY=VALUE", help: "of the service", short: "l" }),
  "container-label": texts({ group: general, value: "KEY=VALUE", help: "of each container", containers: true }),
  env: texts({ group: runs, value: "NAME[=VALUE]", help: "environment; without a value, that of here", short: "e" }),
  "env-file": texts({ group: runs, value: "FILE", help: "environment, a line each" }),
  group: texts({ group: runs, value: "GROUP", help: "supplementary group", containers: true }),
  sysctl: texts({ group: system, value: "KEY=VALUE", help: "kernel parameter", containers: true }),
  ulimit: texts({ group: system, value: "NAME=SOFT[:HARD]", help: "resource limit", containers: true }),
  mount: texts({ group: files, value: "type=…,target=…", help: "file system made visible (processes: type=cluster)" }),
  device: texts({ group: files, value: "HOST[:TASK[:rwm]]", help: "device of the node (driver plugins)" }),
  secret: texts({ group: files, value: "NAME|source=…", help: "secret as a file" }),
  config: texts({ group: files, value: "NAME|source=…", help: "config as a file" }),
  network: texts({ group: network, value: "NAME|name=…,alias=…", help: "network to be on" }),
  publish: texts({
    group: network,
    value: "PORT:PORT|target=…",
    help: "port that answers on nodes; with name=NAME, network policies can name it",
    short: "p",
  }),
  host: texts({ group: network, value: "NAME:IP", help: "line of /etc/hosts", containers: true }),
  dns: texts({ group: network, value: "IP", help: "name server" }),
  "dns-option": texts({ group: network, value: "OPTION", help: "option of the resolver" }),
  "dns-search": texts({ group: network, value: "DOMAIN", help: "search domain" }),
  constraint: texts({ group: placed, value: "EXPR", help: "such as node.labels.zone==eu" }),
  "placement-pref": texts({ group: placed, value: "spread=LABEL", help: "what to spread over" }),
  "generic-resource": texts({ group: placed, value: "KIND=N", help: "resource of the user's that must be free" }),
  ...settingFlags,
  ...behaviourFlags,
} as const;

const added = (group: string, value: string, help: string) => texts({ group, value, help });
const removed = (group: string, value: string) => texts({ group, value, help: "takes it away" });
const more = (group: string, value: string, help: string) => texts({ group, value, help, containers: true });
const less = (group: string, value: string) => texts({ group, value, help: "takes it away", containers: true });

export const updateFlags = {
  image: text({ group: general, value: "IMAGE", help: "another image", containers: true }),
  args: text({ group: general, value: "COMMAND", help: "other arguments, quoted as in a shell" }),
  force: yes({ group: general, help: "replaces the tasks even if nothing changes" }),
  rollback: yes({ group: general, help: "back to the spec before; goes with no other flag" }),
  "driver-config": text({ group: runs, value: "JSON|@FILE", help: "what a driver plugin is to run" }),
  "label-add": added(general, "KEY=VALUE", "adds or changes a label"),
  "label-rm": removed(general, "KEY"),
  "container-label-add": more(general, "KEY=VALUE", "adds or changes a container label"),
  "container-label-rm": less(general, "KEY"),
  "env-add": added(runs, "NAME[=VALUE]", "adds or changes a variable"),
  "env-rm": removed(runs, "NAME"),
  "group-add": more(runs, "GROUP", "adds a supplementary group"),
  "group-rm": less(runs, "GROUP"),
  "sysctl-add": more(system, "KEY=VALUE", "adds or changes a kernel parameter"),
  "sysctl-rm": less(system, "KEY"),
  "ulimit-add": more(system, "NAME=SOFT[:HARD]", "adds or changes a limit"),
  "ulimit-rm": less(system, "NAME"),
  "mount-add": added(files, "type=…,target=…", "adds or changes a mount, by target"),
  "mount-rm": removed(files, "TARGET"),
  "device-add": added(files, "HOST[:TASK[:rwm]]", "adds or changes a device (driver plugins)"),
  "device-rm": removed(files, "HOST"),
  "secret-add": added(files, "NAME|source=…", "adds or changes a secret"),
  "secret-rm": removed(files, "NAME"),
  "config-add": added(files, "NAME|source=…", "adds or changes a config"),
  "config-rm": removed(files, "NAME"),
  "network-add": added(network, "NAME|name=…,alias=…", "adds a network"),
  "network-rm": removed(network, "NAME"),
  "publish-add": added(network, "PORT:PORT|target=…", "adds a port"),
  "publish-rm": removed(network, "TARGET[/PROTOCOL]"),
  "host-add": more(network, "NAME:IP", "adds a line of /etc/hosts"),
  "host-rm": less(network, "NAME[:IP]"),
  "dns-add": added(network, "IP", "adds a name server"),
  "dns-rm": removed(network, "IP"),
  "dns-option-add": added(network, "OPTION", "adds an option of the resolver"),
  "dns-option-rm": removed(network, "OPTION"),
  "dns-search-add": added(network, "DOMAIN", "adds a search domain"),
  "dns-search-rm": removed(network, "DOMAIN"),
  "constraint-add": added(placed, "EXPR", "adds a constraint"),
  "constraint-rm": removed(placed, "EXPR"),
  "placement-pref-add": added(placed, "spread=LABEL", "adds a preference, below those there are"),
  "placement-pref-rm": removed(placed, "spread=LABEL"),
  "generic-resource-add": added(placed, "KIND=N", "adds or changes a resource"),
  "generic-resource-rm": removed(placed, "KIND"),
  ...settingFlags,
  ...behaviourFlags,
} as const;

type FlagTypes = Readonly<Record<string, { readonly type: string; readonly multiple?: boolean }>>;

/** Values as `parseArgs` hands them over. */
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

/** The first flag given that says something of containers alone; null when there is none. */
export function containerFlagIn(values: Readonly<Record<string, unknown>>): string | null {
  const flags: Readonly<Record<string, { readonly containers?: true }>> = { ...createFlags, ...updateFlags };
  return Object.keys(values).find((name) => values[name] !== undefined && flags[name]?.containers === true) ?? null;
}

/** A rollback takes all of the spec before, so that a change beside it would be lost. Throws UserError. */
export function refuseOtherFlags(values: UpdateValues): void {
  const said = Object.entries(values).filter(([, value]) => value !== undefined);
  const other = said.find(([flag]) => !["rollback", "detach", "quiet"].includes(flag));
  if (other !== undefined) throw new UserError(`other flags may not be combined with --rollback: --${other[0]}`);
}
