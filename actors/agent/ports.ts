/**
 * The ports of a node agent. `processes/agent.ts` wires the real ones; the simulator has its own, so an agent runs unchanged
 * on either.
 */
import type { Any, DriverSpec, GenericResource } from "../../proto/gen/messages.ts";
import type { TaskContainer } from "../../machines/driver/container-task.ts";
import type { VolumePlaces } from "../../machines/volumes/csi/node-requests.ts";
import type { PlannedMount } from "../../machines/driver/mounts.ts";
import type { NetworkDecision, NetworkPlan } from "../../machines/driver/task-network/plan.ts";
import { tunnelDevice, type FoundTunnel } from "../../machines/networks/tunnel-lines.ts";
import { interfacePrefix } from "../../machines/policy/facts.ts";
import type { NetworkIsolationSpec, NomadDriverConfig } from "../../proto/gen/nomad.ts";
import type { TemplatedTask } from "../../lib/template/task-context.ts";
import type { ConfigInput } from "../../lib/hclspec/index.ts";
import type { PluginBinary, PluginLauncher } from "../../runtime/ports/plugins.ts";
import type { CsiSockets } from "../../runtime/ports/csi-sockets.ts";
import type { Host } from "../../runtime/host.ts";
import type { CertificateOutcome } from "../../lib/pki/index.ts";
import type { NameServers } from "../../runtime/ports/name-server.ts";
import type { Clock, Random, Telemetry } from "../../runtime/ports/index.ts";
import type { Probes } from "../../runtime/ports/probes.ts";
import type { RpcChannel } from "../../runtime/ports/rpc.ts";

/**
 * How far a connection can be trusted: `bootstrap-unverified` checks nothing (its contents are checked against the join token's
 * digest), `bootstrap` verifies the server as `swarm-ca` against the root and presents no certificate, `node` verifies it as
 * `swarm-manager` and presents the node's own.
 */
export type Credentials = "bootstrap-unverified" | "bootstrap" | "node";

/** PEM texts; those that the credentials do not need are empty. */
export interface TlsMaterial {
  readonly rootPem: string;
  readonly certificatePem: string;
  readonly keyPem: string;
}

export interface Dialer {
  /**
   * `address` is `host:port`; over NATS, `managerId` says which manager it is, and is empty for any one. Rejects with RpcError UNAVAILABLE
   * when it is not reachable within a few seconds.
   */
  dial(address: string, credentials: Credentials, material: TlsMaterial, managerId?: string): Promise<RpcChannel>;
}

/** Small records by name (`[A-Za-z0-9._-]+`), each either whole or absent, readable by the agent alone. */
export interface AgentDisk {
  load(name: string): Promise<Uint8Array | null>;
  /** Resolves once the record survives a crash of the machine. Of two saves of one name, the later one wins. */
  save(name: string, data: Uint8Array): Promise<void>;
  remove(name: string): Promise<void>;
  /** Names that begin with `prefix`, in no particular order. */
  list(prefix: string): Promise<readonly string[]>;
}

/** The parts of `lib/pki` that create or read keys and certificates; a simulation may use cheaper, repeatable ones. */
export interface CertificateMaker {
  /** A new key pair (PKCS#8) and a PKCS#10 request with an empty subject; both PEM. */
  createKeyAndCsr(): Promise<{ readonly keyPem: string; readonly csrPem: string }>;
  /** Reads the first certificate of a chain. Never throws. */
  describe(certificatePem: string, rootPem: string): CertificateOutcome;
}

/** Facts that the agent reports of its machine. */
export interface NodeFacts {
  /** `x86_64` or `aarch64`. */
  readonly architecture: string;
  /** `linux`. */
  readonly os: string;
  /** Cores times 10^9. */
  readonly nanoCpus: number;
  readonly memoryBytes: number;
  /** Version of Muster, shown where an engine shows its own. */
  readonly engineVersion: string;
}

/** A task as passed to a driver: nothing of the cluster but what the task may use. */
export interface DriverTask extends TemplatedTask {
  /** The GenericRuntimeSpec's payload. */
  readonly payload: Any | null;
  /** A container service's task, instead of a payload. */
  readonly container?: TaskContainer;
  /** The secrets and configs that the task references, by id; those not assigned are missing. */
  readonly secrets: ReadonlyMap<string, Content>;
  readonly configs: ReadonlyMap<string, Content>;
  /** Its cluster volumes, ready for use; absent: none. */
  readonly volumes?: readonly TaskVolume[];
  /** W3C trace context for the task's own environment; empty when it is not traced. */
  readonly traceparent: string;
  /** Its resources; absent: unspecified. */
  readonly resources?: TaskResources;
  /** Its share of the node's generic resources; absent: none. */
  readonly genericResources?: readonly GenericResource[];
  /** Its own network; absent: the node's. */
  readonly network?: NetworkDecision;
}

/** Cores times 10^9, and bytes; 0 when unspecified. */
export interface TaskResources {
  /** Its share when the node is overcommitted. */
  readonly nanoCpus: number;
  /** Its maximum. */
  readonly nanoCpusLimit: number;
  readonly memoryBytes: number;
  readonly memoryLimitBytes: number;
}

/** The contents of a secret or config. */
export interface Content {
  readonly data: Uint8Array;
  /** Template language of the data; null for data used unchanged. */
  readonly template: string | null;
}

/** A cluster volume as a task sees it. */
export interface TaskVolume {
  /** Source of the task's mount: the volume's name, or `group:` and a group's name. */
  readonly source: string;
  /** Target of the task's mount. */
  readonly target: string;
  /** Absolute path on this node where its storage plugin has mounted it. */
  readonly path: string;
}

/** How a run ended. */
export interface TaskExit {
  /** As a shell reports it: 128 + n after signal n. -1 when unknown. */
  readonly code: number;
  /** Name such as `SIGKILL`; empty when it exited by itself. */
  readonly signal: string;
  /** One sentence when the code does not explain the exit, else empty. */
  readonly reason: string;
  /** Last lines of its output, up to a few hundred bytes. */
  readonly lastOutput: string;
}

/** A driver's state of a task of an earlier agent process. */
export type FoundTask =
  | { readonly kind: "absent" }
  | { readonly kind: "running"; readonly pid: number }
  | { readonly kind: "exited"; readonly pid: number; readonly exit: TaskExit };

export type DriverOutcome = { readonly kind: "done" } | { readonly kind: "refused"; readonly reason: string };
export type StartOutcome =
  | { readonly kind: "started"; readonly pid: number }
  | { readonly kind: "refused"; readonly reason: string };

/** A request for a task's output. */
export interface OutputRequest {
  readonly stdout: boolean;
  readonly stderr: boolean;
  /** Number of last lines of both streams together; null: all. */
  readonly tail: number | null;
  /** Earlier lines are omitted, as far as the driver knows their times. Milliseconds since the epoch; 0: none are omitted. */
  readonly sinceMs: number;
  readonly follow: boolean;
  /** Position of an earlier reader: continues there and ignores `tail` and `sinceMs`. */
  readonly from: OutputPosition | null;
  /** Whether the task has ended, so that it will write nothing more. */
  readonly isOver: () => boolean;
}

/** Opaque to all but the driver that created it. */
export type OutputPosition = Readonly<Record<string, number>>;

export interface OutputLine {
  readonly stream: "stdout" | "stderr";
  /** Milliseconds since the epoch, with a fraction; as exact as the driver knows. */
  readonly atMs: number;
  /** One line with its line end, or a part of a very long one. */
  readonly data: Uint8Array;
}

/** Reads available output as fast as requested; at most about 64 KiB at once. */
export interface OutputReader {
  /** Null at the end: everything is read, and the task has ended or `follow` is not set. Waits while more may come. */
  next(): Promise<readonly OutputLine[] | null>;
  position(): OutputPosition;
  /** Existing output is still read; later output is not awaited. */
  stopFollowing(): void;
  close(): void;
}

/**
 * Runs tasks of one kind. The driver serializes calls for one task in call order. Failures that lie in the task are outcomes,
 * not rejections.
 */
export interface TaskDriver {
  /** The GenericRuntimeSpec kind that it runs, which the node advertises as a plugin of type `Driver`. */
  readonly kind: string;
  /** Plugins that the node advertises instead, such as those of the engine behind the driver. */
  readonly advertised?: readonly { readonly type: string; readonly name: string }[];
  /** Prepares everything that starting needs. A second call is harmless. */
  prepare(task: DriverTask): Promise<DriverOutcome>;
  start(task: DriverTask): Promise<StartOutcome>;
  /** Resolves when the run has ended and nothing of it is left, including a run found by `find`. */
  wait(taskId: string): Promise<TaskExit>;
  /** Looks for a run started by an earlier agent process. */
  find(taskId: string): Promise<FoundTask>;
  /** Stops the run: stop signal, the task's grace period, then kill. Resolves when nothing is left; null when nothing ran. */
  stop(taskId: string): Promise<TaskExit | null>;
  /** Abandons a pending start: it may end as refused, once nothing of it is left. Absent where starts are short. */
  giveUpStart?(taskId: string): void;
  /** A running task's own address; null or absent: its node's. */
  address?(taskId: string): string | null;
  /** Reads a task's output, which may not have begun; absent when the driver provides none. */
  output?(taskId: string, request: OutputRequest): OutputReader;
  /** Forgets an ended task, including its output. */
  remove(taskId: string): Promise<void>;
  /** Ends the watching, not the tasks. */
  close(): void;
}

/** Where a task of a driver plugin lives on this node. Paths are absolute. */
export interface TaskHome {
  readonly allocDir: string;
  /** A pipe, or `/dev/null` for a driver that keeps the output itself. */
  readonly stdoutPath: string;
  readonly stderrPath: string;
  readonly env: Readonly<Record<string, string>>;
  /** The task's user by the node's rules; empty: the driver or the image decides. */
  readonly user: string;
}

export type HomeOutcome =
  | { readonly kind: "ready"; readonly home: TaskHome }
  | { readonly kind: "refused"; readonly reason: string };

/** How a driver isolates its tasks from the node's files, which decides the paths in their environment. */
export type FileIsolation = "none" | "image" | "chroot";

export type { PlannedMount };

export interface HomeWants {
  /** Name of the task, and of one of its directories. */
  readonly name: string;
  readonly isolation: FileIsolation;
  readonly hasOutput: boolean;
  /** Its environment has only the variables of its spec. */
  readonly isBare: boolean;
}

/** `reason`: a sentence. */
export type UserOutcome =
  | { readonly kind: "user"; readonly name: string }
  | { readonly kind: "refused"; readonly reason: string };

/** The directories, files and output of tasks that run on driver plugins (nomad-driver-protocol.md §6.3). */
export interface TaskHomes {
  /** Creates everything; a second call is harmless. */
  prepare(task: DriverTask, spec: DriverSpec, wants: HomeWants): Promise<HomeOutcome>;
  /**
   * Mounts for a prepared task: resolves with the path of each on this node. A second call is harmless; rejects with a
   * sentence.
   */
  mount(taskId: string, mounts: readonly PlannedMount[]): Promise<readonly string[]>;
  /** Continues to keep the output of a running task that an earlier agent process prepared. */
  resume(taskId: string): Promise<void>;
  output(taskId: string, request: OutputRequest): OutputReader;
  /** Where the task finds its secrets and configs, by the path at which the driver mounts them; for a task in a chroot. */
  chrootMounts(taskId: string): Promise<readonly { readonly source: string; readonly target: string }[]>;
  /** The user of a command in a task that asks for this one, by the node's rules. */
  userOf(requested: string, isolation: FileIsolation): UserOutcome;
  /** Its last lines, up to a few hundred bytes. */
  lastOutput(taskId: string): Promise<string>;
  /** To be called when nothing of the task runs: completes its output and removes its secrets. */
  end(taskId: string): Promise<void>;
  /** Removes everything. */
  remove(taskId: string): Promise<void>;
  /** Ends the watching, not the tasks. */
  close(): void | Promise<void>;
}

/** Where storage plugins mount volumes on this node. */
export interface NodeVolumePlaces {
  /** Always the same places for one volume; a second call is harmless. */
  make(volumeId: string): Promise<VolumePlaces>;
  /** Removes what `make` created; anything still mounted stays. */
  remove(volumeId: string): Promise<void>;
}

/** The storage plugins of this node. */
export interface AgentCsi {
  readonly sockets: CsiSockets;
  readonly places: NodeVolumePlaces;
}

/** A driver plugin of this node, and its configuration. */
export interface DriverBinary {
  readonly binary: PluginBinary;
  /** As written by the operator; null: none. */
  readonly config: ConfigInput;
  /** It creates its tasks' control groups itself, as our own plugins do, instead of the client. */
  readonly makesCgroups: boolean;
}

export type { FoundTunnel };

/** Prefixes of the names of interfaces that agents create: nodes' ends of tasks' links, and of the tunnel between nodes. */
export const agentInterfaces = { links: interfacePrefix, tunnels: tunnelDevice("") } as const;

/**
 * The system's network programs, iproute2 and nftables. A call rejects with the program's message; how far a batch or a script
 * got is unknown.
 */
export interface NetworkTools {
  /** Null when networks can be created here, else why not, in one clause. */
  readonly problem: string | null;
  /** Distinguishes this agent's objects on this machine from others (`[0-9a-f]+`, up to 12 letters). */
  readonly tag: string;
  /** Names of the namespaces that `ip netns` lists. */
  namespaces(): Promise<readonly string[]>;
  /** Path of a named namespace. */
  pathOf(namespace: string): string;
  /**
   * The path by which the process `pid` reaches `path`, while this agent lives: a different one if that process has its own
   * mount namespace, which lacks this agent's mounts. Never rejects.
   */
  pathFor(path: string, pid: number): Promise<string>;
  /** Kernel settings by their path under /proc/sys. */
  set(values: Readonly<Record<string, string>>): Promise<void>;
  /**
   * Runs the lines with one `ip -batch`, in the node's own network or in the namespace at a path. With `goesOn`, failing lines
   * are skipped.
   */
  ip(lines: readonly string[], options?: { readonly inside?: string; readonly goesOn?: boolean }): Promise<void>;
  /** The same with `bridge -batch`, in the node's own network. */
  bridge(lines: readonly string[], options?: { readonly goesOn?: boolean }): Promise<void>;
  /** Runs the script as one transaction. */
  nft(script: string): Promise<void>;
  /** The kernel's state of the tunnel of that name; null: none. */
  tunnel(device: string): Promise<FoundTunnel | null>;
  /** Maximum packet size in bytes on every interface that leads out of this node. */
  readonly mtu: number;
}

/** Control groups as Nomad's client creates them for its drivers' tasks. */
export interface TaskCgroups {
  /** Returns the group for the driver (`CpusetCgroup`). A second call is harmless. */
  make(taskId: string, name: string): Promise<string>;
  /** Kills all processes in the task's groups, and removes the groups. */
  end(taskId: string, name: string): Promise<void>;
}

/** The driver plugins of this node. */
export interface AgentPlugins {
  readonly launcher: PluginLauncher;
  readonly homes: TaskHomes;
  /** Null when this node creates none. */
  readonly cgroups: TaskCgroups | null;
  readonly binaries: readonly DriverBinary[];
  /** Facts on the node for every driver. */
  readonly agent: NomadDriverConfig;
}

export interface AgentPorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly telemetry: Telemetry;
  readonly host: Host;
  readonly dialer: Dialer;
  readonly disk: AgentDisk;
  readonly certificates: CertificateMaker;
  readonly facts: NodeFacts;
  /** For the health checks of its tasks. */
  readonly probes: Probes;
  /** Absent: this node has no cluster volumes. */
  readonly csi?: AgentCsi;
  /** Absent: this node runs no driver plugins. */
  readonly plugins?: AgentPlugins;
  /** Absent when this node creates no networks for its tasks, and reports nothing on it. */
  readonly networks?: NetworkTools;
  /** Absent when tasks with networks use the node's name servers, which know no services. */
  readonly nameServers?: NameServers;
}

/** A network that was created, at least in part. */
export interface TaskNetwork {
  readonly plan: NetworkPlan;
  /**
   * The network that the task's driver reported; `asked`: it may have created one, without a report; null: the namespace is
   * ours.
   */
  readonly ofDriver: NetworkIsolationSpec | "asked" | null;
  /** Name servers for the task's other queries; empty: the node's. */
  readonly nameservers: readonly string[];
}
