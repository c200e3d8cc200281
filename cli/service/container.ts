/** Container settings from the flags of `service create` and `service update`, field by field like Docker's client. */
import {
  BoolValue,
  ContainerSpec,
  ContainerSpec_Isolation,
  ContainerSpec_Ulimit,
  Duration,
  HealthConfig,
} from "../../proto/gen/messages.ts";
import { parseAddress } from "../../lib/ip-address.ts";
import { capabilitiesAfter, newCapabilities } from "./capabilities.ts";
import { credentialAfter, newCredential } from "./credential.ts";
import { dnsAfter, newDns } from "./dns.ts";
import { environmentAfter, newEnvironment } from "./environment.ts";
import type { CreateValues, SettingValues, UpdateValues } from "./flags.ts";
import { secretReferences, type Lookups } from "./references.ts";
import { mountsAfter, parseMount } from "./mount-flag.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import {
  anyNumber,
  parseChoice,
  parseCount,
  parseDuration,
  parseLabels,
  parsePairs,
  parsePositiveDuration,
  shellWords,
} from "../values.ts";

const isolations = {
  default: ContainerSpec_Isolation.ISOLATION_DEFAULT,
  process: ContainerSpec_Isolation.ISOLATION_PROCESS,
  hyperv: ContainerSpec_Isolation.ISOLATION_HYPERV,
};

/** The limits of setrlimit(2). */
const ulimitNames = new Set([
  "core",
  "cpu",
  "data",
  "fsize",
  "locks",
  "memlock",
  "msgqueue",
  "nice",
  "nofile",
  "nproc",
  "rss",
  "rtprio",
  "rttime",
  "sigpending",
  "stack",
]);
/** Bound of the kernel's oom_score_adj. */
const oomScoreMax = 1_000;

/** `nofile=1024:2048`; a single number sets both. */
function parseUlimit(text: string, flag: string): ContainerSpec_Ulimit {
  const match = /^([a-z]+)=(-1|\d+)(?::(-1|\d+))?$/.exec(text);
  if (match === null || !ulimitNames.has(match[1] as string)) {
    throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected a limit such as nofile=1024:2048`);
  }
  const [, name = "", soft = "", hard = soft] = match;
  const limit = { name, soft: Number(soft), hard: Number(hard) };
  if (limit.hard !== -1 && (limit.soft > limit.hard || limit.soft === -1)) {
    throw new UsageError(`--${flag}: the soft limit of "${text}" exceeds the hard limit`);
  }
  return ContainerSpec_Ulimit.create(limit);
}

function ulimitsAfter(
  before: readonly ContainerSpec_Ulimit[],
  added: readonly ContainerSpec_Ulimit[],
  removed: readonly string[],
): readonly ContainerSpec_Ulimit[] {
  const byName = new Map(before.map((limit) => [limit.name, limit]));
  for (const text of removed) byName.delete(text.split("=", 1)[0] as string);
  for (const limit of added) byName.set(limit.name, limit);
  return [...byName.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

/** Converts `db:10.0.0.1` (or `db=10.0.0.1`) to a line of /etc/hosts. */
function hostLine(text: string, flag: string): string {
  const at = text.search(/[:=]/);
  const name = at < 1 ? "" : text.slice(0, at);
  const address = text.slice(at + 1).replace(/^\[(.*)\]$/, "$1");
  if (name === "" || (parseAddress(address) === null && address !== "host-gateway")) {
    throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected NAME:IP`);
  }
  return `${address} ${name}`;
}

/** Removes a name from all lines, or, given an address, from the lines of that address; drops lines without names. */
function hostsAfter(
  before: readonly string[],
  added: readonly string[],
  removed: readonly string[],
): readonly string[] {
  const gone = removed.map((text) => {
    const at = text.indexOf(":");
    return at < 0 ? { name: text, address: "" } : { name: text.slice(0, at), address: text.slice(at + 1) };
  });
  const kept = before.flatMap((line) => {
    const [address = "", ...names] = line.split(/\s+/).filter((word) => word !== "");
    const left = names.filter(
      (name) => !gone.some((each) => each.name === name && (each.address === "" || each.address === address)),
    );
    return left.length === 0 ? [] : [[address, ...left].join(" ")];
  });
  return [...new Set([...kept, ...added.map((text) => hostLine(text, "host-add"))])];
}

/** Removes first, then adds. */
export function pairsAfter(
  before: Readonly<Record<string, string>>,
  added: Readonly<Record<string, string>>,
  removed: readonly string[] | undefined,
): Readonly<Record<string, string>> {
  const gone = new Set((removed ?? []).map((text) => text.split("=", 1)[0]));
  const kept = Object.entries(before).filter(([key]) => !gone.has(key));
  return { ...Object.fromEntries(kept), ...added };
}

const noCheck = "NONE";

/** Absent flags change nothing; the durations are always written, like Docker. Null: no health settings. */
function healthAfter(before: HealthConfig | null, flags: SettingValues): HealthConfig | null {
  const given = [
    flags["health-cmd"],
    flags["health-interval"],
    flags["health-timeout"],
    flags["health-retries"],
    flags["health-start-period"],
    flags["health-start-interval"],
  ];
  const isGiven = given.some((value) => value !== undefined);
  const other = (["health-http", "health-tcp"] as const).find((flag) => flags[flag] !== undefined);
  if (other !== undefined)
    throw new UserError(`--${other} is not supported for containers: engines run commands only (--health-cmd)`);
  const zero = Duration.create({});
  if (flags["no-healthcheck"] === true) {
    if (isGiven) throw new UserError("--no-healthcheck conflicts with --health-* options");
    return HealthConfig.create({ test: [noCheck], interval: zero, timeout: zero, startPeriod: zero });
  }
  if (!isGiven) return before;
  const base = HealthConfig.patch(before ?? HealthConfig.create({}), {
    test: before?.test[0] === noCheck ? [] : (before?.test ?? []),
    interval: before?.interval ?? zero,
    timeout: before?.timeout ?? zero,
    startPeriod: before?.startPeriod ?? zero,
  });
  const duration = (name: "interval" | "timeout" | "start-period" | "start-interval"): Duration | null => {
    const text = flags[`health-${name}`];
    return text === undefined ? null : parsePositiveDuration(text, `health-${name}`);
  };
  const command = flags["health-cmd"];
  const retries = flags["health-retries"];
  return HealthConfig.patch(base, {
    test: command === undefined ? base.test : command === "" ? [] : ["CMD-SHELL", command],
    interval: duration("interval") ?? base.interval,
    timeout: duration("timeout") ?? base.timeout,
    startPeriod: duration("start-period") ?? base.startPeriod,
    startInterval: duration("start-interval") ?? base.startInterval,
    retries: retries === undefined ? base.retries : parseCount(retries, "health-retries", anyNumber),
  });
}

function oomScore(text: string): number {
  const score = parseCount(text, "oom-score-adj", anyNumber);
  if (Math.abs(score) > oomScoreMax)
    throw new UsageError(`invalid argument "${text}" for "--oom-score-adj" flag: expected -1000 to 1000`);
  return score;
}

/** Flags shared by both commands that only apply to containers; absent flags change nothing. */
function withSharedFlags(before: ContainerSpec, flags: SettingValues): ContainerSpec {
  const { entrypoint, isolation, init } = flags;
  const grace = flags["stop-grace-period"];
  const pids = flags["limit-pids"];
  const score = flags["oom-score-adj"];
  return ContainerSpec.patch(before, {
    command: entrypoint === undefined ? before.command : shellWords(entrypoint, "entrypoint"),
    dir: flags.workdir ?? before.dir,
    user: flags.user ?? before.user,
    hostname: flags.hostname ?? before.hostname,
    stopSignal: flags["stop-signal"] ?? before.stopSignal,
    stopGracePeriod: grace === undefined ? before.stopGracePeriod : parseDuration(grace, "stop-grace-period"),
    tty: flags.tty ?? before.tty,
    readOnly: flags["read-only"] ?? before.readOnly,
    init: init === undefined ? before.init : BoolValue.create({ value: init }),
    isolation: isolation === undefined ? before.isolation : parseChoice(isolation, "isolation", isolations),
    pidsLimit: pids === undefined ? before.pidsLimit : parseCount(pids, "limit-pids", anyNumber),
    oomScoreAdj: score === undefined ? before.oomScoreAdj : oomScore(score),
    healthcheck: healthAfter(before.healthcheck, flags),
  });
}

export function newContainer(
  image: string,
  args: readonly string[],
  flags: CreateValues,
  lookups: Lookups,
): ContainerSpec {
  const mounts = (flags.mount ?? []).map((text) => parseMount(text));
  const container = ContainerSpec.create({
    image,
    args,
    env: newEnvironment(flags),
    labels: parseLabels(flags["container-label"] ?? [], "container-label"),
    groups: flags.group ?? [],
    mounts,
    hosts: (flags.host ?? []).map((text) => hostLine(text, "host")),
    dnsConfig: newDns(flags),
    // Docker's client always sets it, so the engine's own default cannot be chosen.
    init: BoolValue.create({ value: false }),
    sysctls: parsePairs(flags.sysctl ?? []),
    ulimits: ulimitsAfter(
      [],
      (flags.ulimit ?? []).map((text) => parseUlimit(text, "ulimit")),
      [],
    ),
    secrets: secretReferences(flags.secret ?? [], lookups),
    ...newCapabilities(flags["cap-add"] ?? [], flags["cap-drop"] ?? []),
    ...newCredential(flags, lookups),
  });
  return withSharedFlags(container, flags);
}

/** Applies the flags to `before`. */
export function containerAfter(before: ContainerSpec, flags: UpdateValues, lookups: Lookups): ContainerSpec {
  const areMountsChanged = (flags["mount-add"] ?? flags["mount-rm"]) !== undefined;
  const areHostsChanged = (flags["host-add"] ?? flags["host-rm"]) !== undefined;
  const areGroupsChanged = (flags["group-add"] ?? flags["group-rm"]) !== undefined;
  const areCapabilitiesChanged = (flags["cap-add"] ?? flags["cap-drop"]) !== undefined;
  const removedGroups = flags["group-rm"] ?? [];
  const removedSecrets = flags["secret-rm"] ?? [];
  const container = ContainerSpec.patch(before, {
    image: flags.image ?? before.image,
    args: flags.args === undefined ? before.args : shellWords(flags.args, "args"),
    env: environmentAfter(before.env, flags),
    labels: pairsAfter(
      before.labels,
      parseLabels(flags["container-label-add"] ?? [], "container-label-add"),
      flags["container-label-rm"],
    ),
    mounts: areMountsChanged
      ? mountsAfter(before.mounts, flags["mount-add"] ?? [], flags["mount-rm"] ?? [])
      : before.mounts,
    hosts: areHostsChanged ? hostsAfter(before.hosts, flags["host-add"] ?? [], flags["host-rm"] ?? []) : before.hosts,
    groups: areGroupsChanged
      ? [...before.groups, ...(flags["group-add"] ?? [])].filter((group) => !removedGroups.includes(group)).toSorted()
      : before.groups,
    dnsConfig: dnsAfter(before.dnsConfig, flags),
    sysctls: pairsAfter(before.sysctls, parsePairs(flags["sysctl-add"] ?? []), flags["sysctl-rm"]),
    ulimits: ulimitsAfter(
      before.ulimits,
      (flags["ulimit-add"] ?? []).map((text) => parseUlimit(text, "ulimit-add")),
      flags["ulimit-rm"] ?? [],
    ),
    secrets: [
      ...before.secrets.filter(({ secretName }) => !removedSecrets.includes(secretName)),
      ...secretReferences(flags["secret-add"] ?? [], lookups, "secret-add"),
    ],
    ...(areCapabilitiesChanged ? capabilitiesAfter(before, flags["cap-add"] ?? [], flags["cap-drop"] ?? []) : {}),
    ...credentialAfter(before, flags, lookups),
  });
  return withSharedFlags(container, flags);
}
