/** The checks of `muster doctor` on one machine: pure decisions about what `probes.ts` has measured. */
import { spaceKind, spaceLimits } from "../../runtime/nats/disk-space.ts";
import { ok, problem, warning, type Finding } from "./finding.ts";

export interface DiskFacts {
  readonly path: string;
  readonly sizeBytes: number;
  readonly freeBytes: number;
  /** 0: the file system has no fixed number. */
  readonly inodes: number;
  readonly freeInodes: number;
}

export interface MachineFacts {
  readonly disk: DiskFacts;
  /** Milliseconds that each small write took to be on the disk; null: the folder cannot be written. */
  readonly fsyncMs: readonly number[] | null;
  /** Ports that another program has taken; null: a manager runs here, which has taken them itself. */
  readonly takenPorts: readonly string[] | null;
  /** Names in /proc/self/ns. */
  readonly namespaces: readonly string[];
  /** Names in /proc/filesystems. */
  readonly filesystems: readonly string[];
  readonly cgroups: { readonly version: 1 | 2; readonly controllers: readonly string[] } | null;
  /** System programs that were found. */
  readonly programs: readonly string[];
  /** Whether the kernel's clock is synchronized; null: nothing on this machine says so. */
  readonly isClockSynchronized: boolean | null;
  readonly nats: { readonly version: string; readonly isCurrent: boolean } | { readonly missing: string };
}

/** Milliseconds. etcd asks for 10 ms of its disks; above the second, leases of 3 s are in danger under load. */
const fsyncSlowMs = 10;
const fsyncTooSlowMs = 100;
/** Shares of inodes. */
const inodesScarce = 0.05;
const inodesFull = 0.01;

const wantedNamespaces = ["ipc", "mnt", "net", "pid", "uts"];
const wantedControllers = ["cpu", "memory", "pids"];
export const wantedPrograms = ["ip", "nft"] as const;

const mebibytes = (bytes: number): string => `${Math.round(bytes / 2 ** 20).toLocaleString("en")} MiB`;
const list = (names: readonly string[]): string => names.join(", ");

export function machineFindings(facts: MachineFacts): readonly Finding[] {
  return [
    space(facts.disk),
    inodes(facts.disk),
    fsync(facts.fsyncMs, facts.disk.path),
    ports(facts.takenPorts),
    clock(facts.isClockSynchronized),
    nats(facts.nats),
    kernel(facts),
    cgroups(facts.cgroups),
    programs(facts.programs),
  ];
}

function space({ freeBytes, path, sizeBytes }: DiskFacts): Finding {
  const found = `${mebibytes(freeBytes)} of ${mebibytes(sizeBytes)} are free at ${path}`;
  const limits = spaceLimits(sizeBytes);
  switch (spaceKind(freeBytes, limits, "ample")) {
    case "full":
      return problem("disk", found, `free space: below ${mebibytes(limits.fullBytes)}, a manager rejects changes`);
    case "scarce":
      return warning("disk", found, `free space: below ${mebibytes(limits.scarceBytes)}, a manager drops old history`);
    case "ample":
      return ok("disk", found);
  }
}

function inodes({ freeInodes, inodes: total, path }: DiskFacts): Finding {
  if (total === 0) return ok("inodes", `the file system at ${path} has no fixed number`);
  const share = freeInodes / total;
  const found = `${freeInodes.toLocaleString("en")} of ${total.toLocaleString("en")} are free at ${path}`;
  const remedy = "remove small files, or use another file system: no file can be created without one";
  return share < inodesFull
    ? problem("inodes", found, remedy)
    : share < inodesScarce
      ? warning("inodes", found, remedy)
      : ok("inodes", found);
}

function fsync(times: readonly number[] | null, path: string): Finding {
  if (times === null)
    return problem("fsync", `${path} cannot be written`, "run as the user of the manager or agent, or set --data-dir");
  const sorted = times.toSorted((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)] ?? 0;
  const found = `a write is on the disk of ${path} after ${median.toFixed(1)} ms (median), ${(sorted.at(-1) ?? 0).toFixed(1)} ms at most`;
  const remedy = "put the data dir of a manager, or NATS's, on an SSD that nothing else uses: each change waits for it";
  return median > fsyncTooSlowMs
    ? problem("fsync", found, remedy)
    : median > fsyncSlowMs
      ? warning("fsync", found, remedy)
      : ok("fsync", found);
}

function ports(taken: readonly string[] | null): Finding {
  if (taken === null) return ok("ports", "a manager runs on this machine");
  if (taken.length === 0) return ok("ports", "those of a manager are free");
  const remedy = "stop the program that listens there ('ss -ltnp'), or choose another port with --listen";
  return warning("ports", `in use: ${list(taken)}`, remedy);
}

function clock(isSynchronized: boolean | null): Finding {
  const remedy = "run an NTP client: certificates, schedules and the times in histories follow the wall clock";
  if (isSynchronized === null)
    return warning("clock", "nothing says whether this machine's clock is synchronized", remedy);
  return isSynchronized
    ? ok("clock", "synchronized by NTP")
    : warning("clock", "this machine's clock is not synchronized", remedy);
}

function nats(found: MachineFacts["nats"]): Finding {
  if ("missing" in found)
    return warning("nats-server", "not found: needed for a manager without --nats", found.missing);
  if (found.isCurrent) return ok("nats-server", `version ${found.version}`);
  return warning(
    "nats-server",
    `version ${found.version} is no longer maintained and can stop answering after a full disk`,
    "install 2.11 or newer, or set MUSTER_NATS_SERVER to one",
  );
}

function kernel({ filesystems, namespaces }: MachineFacts): Finding {
  const missing = [
    ...wantedNamespaces.filter((name) => !namespaces.includes(name)).map((name) => `${name} namespaces`),
    ...(filesystems.includes("overlay") ? [] : ["overlay file systems"]),
  ];
  if (missing.length === 0) return ok("kernel", "has the namespaces and file systems of tasks");
  return warning(
    "kernel",
    `lacks ${list(missing)}`,
    "load the module ('modprobe overlay') or use another kernel, if this machine is to run tasks",
  );
}

function cgroups(found: MachineFacts["cgroups"]): Finding {
  const remedy =
    "mount cgroup v2 with these controllers, if this machine is to run tasks: limits have no effect without them";
  if (found === null) return warning("cgroups", "none are mounted", remedy);
  const missing = wantedControllers.filter((name) => !found.controllers.includes(name));
  if (missing.length === 0) return ok("cgroups", `version ${found.version} with ${list(wantedControllers)}`);
  return warning("cgroups", `version ${found.version} without ${list(missing)}`, remedy);
}

function programs(found: readonly string[]): Finding {
  const missing = wantedPrograms.filter((name) => !found.includes(name));
  if (missing.length === 0) return ok("programs", `${list(wantedPrograms)} are installed`);
  return warning(
    "programs",
    `not installed: ${list(missing)}`,
    "install iproute2 and nftables, if this machine is to run tasks with networks",
  );
}
