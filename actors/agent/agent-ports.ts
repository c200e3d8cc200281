/**
 * What a node agent is handed. The real ones are wired in `cli/agent-process.ts`; the simulator has its own, so an agent
 * runs unchanged on either.
 */
import type { Any, DriverSpec, GenericResource } from "../../proto/gen/messages.ts";
import type { TaskContainer } from "../../machines/driver/container-task.ts";
import type { VolumePlaces } from "../../machines/volumes/csi/node-requests.ts";
import type { PlannedMount } from "../../machines/driver/driver-mounts.ts";
import type { NetworkDecision } from "../../machines/driver/task-network/plan.ts";
import { tunnelDevice, type FoundTunnel } from "../../machines/networks/tunnel-lines.ts";
import { interfacePrefix } from "../../machines/policy/facts.ts";
import type { NomadDriverConfig } from "../../proto/gen/nomad.ts";
import type { ConfigInput } from "../../runtime/hclspec/index.ts";
import type { PluginBinary, PluginLauncher } from "../../runtime/plugins.ts";
import type { CsiSockets } from "../../runtime/csi-sockets.ts";
import type { Host } from "../../runtime/host.ts";
import type { CertificateOutcome } from "../../runtime/pki/index.ts";
import type { NameServers } from "../../runtime/name-server.ts";
import type { Clock, Random, Telemetry } from "../../runtime/ports.ts";
import type { Probes } from "../../runtime/probes.ts";
import type { RpcChannel } from "../../runtime/rpc.ts";

/**
 * How far a connection can be trusted: `bootstrap-unverified` checks nothing (what comes over it is checked by the join
 * token's digest), `bootstrap` verifies the server as `swarm-ca` against the root and shows no certificate, `node`
 * verifies it as `swarm-manager` and shows the node's own.
 */
export type Credentials = "bootstrap-unverified" | "bootstrap" | "node";

/** PEM texts; each is empty where the credentials have no use for it. */
export interface TlsMaterial {
  readonly rootPem: string;
  readonly certificatePem: string;
  readonly keyPem: string;
}

export interface Dialer {
  /** `address` is `host:port`. Rejects with RpcError UNAVAILABLE when nobody can be reached there in a few seconds. */
  dial(address: string, credentials: Credentials, material: TlsMaterial): Promise<RpcChannel>;
}

/** Small records by name (`[A-Za-z0-9._-]+`), each either whole or absent, readable by the agent alone. */
export interface AgentDisk {
  load(name: string): Promise<Uint8Array | null>;
  /** Resolves once the record survives a crash of the machine. Of two saves of one name the later one stays. */
  save(name: string, data: Uint8Array): Promise<void>;
  remove(name: string): Promise<void>;
  /** Names that begin with `prefix`, in no particular order. */
  list(prefix: string): Promise<readonly string[]>;
}

/** The parts of `runtime/pki` that make or read keys and certificates; a simulation may have cheaper and repeatable ones. */
export interface CertificateMaker {
  /** A new key pair (PKCS#8) and a PKCS#10 request with an empty subject; both PEM. */
  createKeyAndCsr(): Promise<{ readonly keyPem: string; readonly csrPem: string }>;
  /** Reads the first certificate of a chain. Never throws. */
  describe(certificatePem: string, rootPem: string): CertificateOutcome;
}

/** What the agent tells of the machine that it runs on. */
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

/** A task in the form that a driver gets it: nothing of the cluster but what it may use. */
export interface DriverTask {
  readonly id: string;
  readonly name: string;
  readonly slot: number;
  readonly serviceId: string;
  readonly serviceName: string;
  readonly serviceLabels: Readonly<Record<string, string>>;
  readonly nodeId: string;
  readonly nodeHostname: string;
  readonly nodePlatform: { readonly architecture: string; readonly os: string };
  /** The GenericRuntimeSpec's payload. */
  readonly payload: Any | null;
  /** Of a container service, in place of a payload. */
  readonly container?: TaskContainer;
  /** The secrets and configs that the task references, by id; those not assigned are missing. */
  readonly secrets: ReadonlyMap<string, Content>;
  readonly configs: ReadonlyMap<string, Content>;
  /** The cluster volumes that it was given, ready for use; absent: none. */
  readonly volumes?: readonly TaskVolume[];
  /** W3C trace context for the task's own environment; empty when it is not traced. */
  readonly traceparent: string;
  /** What it may take of the node; absent: nothing was said. */
  readonly resources?: TaskResources;
  /** What the scheduler has given it of the node's generic resources; absent: nothing. */
  readonly genericResources?: readonly GenericResource[];
  /** The network of its own that it is to have; absent: the node's. */
  readonly network?: NetworkDecision;
}

/** Each 0 where nothing was said: cores times 10^9, and bytes. */
export interface TaskResources {
  /** Its share when all want more than there is. */
  readonly nanoCpus: number;
  /** What it never gets more than. */
  readonly nanoCpusLimit: number;
  readonly memoryBytes: number;
  readonly memoryLimitBytes: number;
}

/** What a secret or config holds. */
export interface Content {
  readonly data: Uint8Array;
  /** Name of the language that the data is a template in; null for data that is used as it is. */
  readonly template: string | null;
}

/** A cluster volume as a task sees it. */
export interface TaskVolume {
  /** As the task's mount names it: the volume's name, or `group:` and a group's. */
  readonly source: string;
  /** Where the task wants it. */
  readonly target: string;
  /** Absolute path on this node at which its storage plugin has mounted it. */
  readonly path: string;
}

/** How a run ended. */
export interface TaskExit {
  /** As a shell gives it: 128 + n after signal n. -1 when nobody knows. */
  readonly code: number;
  /** Name such as `SIGKILL`; empty when it exited by itself. */
  readonly signal: string;
  /** One sentence when the code does not tell what happened, else empty. */
  readonly reason: string;
  /** Last lines of its output, at most a few hundred bytes. */
  readonly lastOutput: string;
}

/** What a driver still has of a task. */
export type FoundTask =
  | { readonly kind: "absent" }
  | { readonly kind: "running"; readonly pid: number }
  | { readonly kind: "exited"; readonly pid: number; readonly exit: TaskExit };

export type DriverOutcome = { readonly kind: "done" } | { readonly kind: "refused"; readonly reason: string };
export type StartOutcome =
  | { readonly kind: "started"; readonly pid: number }
  | { readonly kind: "refused"; readonly reason: string };

/** What somebody wants to read of a task's output. */
export interface OutputRequest {
  readonly stdout: boolean;
  readonly stderr: boolean;
  /** How many of the last lines, of both together; null: all. */
  readonly tail: number | null;
  /** Lines written before are left out, as far as the driver knows when they were. Milliseconds since the epoch; 0: none. */
  readonly sinceMs: number;
  readonly follow: boolean;
  /** Where an earlier reader stood: goes on there, whatever `tail` and `sinceMs` say. */
  readonly from: OutputPosition | null;
  /** Whether the task has ended, so that nothing more will be written. */
  readonly isOver: () => boolean;
}

/** Only the driver that made it knows what it means. */
export type OutputPosition = Readonly<Record<string, number>>;

export interface OutputLine {
  readonly stream: "stdout" | "stderr";
  /** Milliseconds since the epoch, with a fraction; as near as the driver knows. */
  readonly atMs: number;
  /** One line with its end, or a piece of a very long one. */
  readonly data: Uint8Array;
}

/** Hands out what is there as fast as it is asked for; never more than some 64 KiB at once. */
export interface OutputReader {
  /** Null when there is nothing more: all is read, and the task has ended or nobody follows. Waits while one may come. */
  next(): Promise<readonly OutputLine[] | null>;
  position(): OutputPosition;
  /** What is there is still read; what comes later is not waited for. */
  stopFollowing(): void;
  close(): void;
}

/**
 * Runs tasks of one kind. Calls for one task are serialised by the driver in the order in which they were made. Nothing
 * here rejects for a reason that lies in the task: that is an outcome.
 */
export interface TaskDriver {
  /** The GenericRuntimeSpec kind that it runs, which the node advertises as a plugin of type `Driver`. */
  readonly kind: string;
  /** Makes everything ready that starting needs. A second call is harmless. */
  prepare(task: DriverTask): Promise<DriverOutcome>;
  start(task: DriverTask): Promise<StartOutcome>;
  /** Resolves when the run has ended and nothing of it is left; for a run that was found again as well. */
  wait(taskId: string): Promise<TaskExit>;
  /** Looks for what an earlier life of the agent started. */
  find(taskId: string): Promise<FoundTask>;
  /** Ends the run: stop signal, the task's grace, then kill. Resolves when nothing is left; null when nothing ran. */
  stop(taskId: string): Promise<TaskExit | null>;
  /** A start under way is no longer wanted: it may end as refused, once nothing of it is left. Absent where starts are short. */
  giveUpStart?(taskId: string): void;
  /** The address that a running task has of its own; null, or absent: its node's. */
  address?(taskId: string): string | null;
  /** Reads a task's output, which may not have begun; absent in a driver that has none to show. */
  output?(taskId: string, request: OutputRequest): OutputReader;
  /** Forgets a task that has ended, its output included. */
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
  /** Whom the task runs as, by the node's rules; empty: whom the driver or the image says. */
  readonly user: string;
}

export type HomeOutcome =
  | { readonly kind: "ready"; readonly home: TaskHome }
  | { readonly kind: "refused"; readonly reason: string };

/** How a driver keeps its tasks from the node's files: what paths in their environment mean. */
export type FileIsolation = "none" | "image" | "chroot";

export type { PlannedMount };

export interface HomeWants {
  /** The task's, which is one of its directories' too. */
  readonly name: string;
  readonly isolation: FileIsolation;
  readonly hasOutput: boolean;
  /** Nothing is in its environment but what its spec says. */
  readonly isBare: boolean;
}

/** The directories, files and output of tasks that run on driver plugins (nomad-driver-protocol.md §6.3). */
export interface TaskHomes {
  /** Makes all of it; a second call is harmless. */
  prepare(task: DriverTask, spec: DriverSpec, wants: HomeWants): Promise<HomeOutcome>;
  /** Of a prepared task: where each is on this node, once it is there. A second call is harmless; rejects with a sentence. */
  mount(taskId: string, mounts: readonly PlannedMount[]): Promise<readonly string[]>;
  /** Of a task that an earlier life of the agent prepared and that still runs: its output is kept on. */
  resume(taskId: string): Promise<void>;
  output(taskId: string, request: OutputRequest): OutputReader;
  /** Where the task finds its secrets and configs, by the path that the driver mounts them at; for a task in a chroot. */
  chrootMounts(taskId: string): Promise<readonly { readonly source: string; readonly target: string }[]>;
  /** Its last lines, at most a few hundred bytes. */
  lastOutput(taskId: string): Promise<string>;
  /** Nothing of the task runs: its output is made whole, its secrets go. */
  end(taskId: string): Promise<void>;
  /** Takes away all of it. */
  remove(taskId: string): Promise<void>;
  /** Ends the watching, not the tasks. */
  close(): void | Promise<void>;
}

/** Where storage plugins mount volumes on this node. */
export interface NodeVolumePlaces {
  /** Always the same for one volume; a second call is harmless. */
  make(volumeId: string): Promise<VolumePlaces>;
  /** Takes away what `make` made; what is still mounted stays. */
  remove(volumeId: string): Promise<void>;
}

/** The storage plugins of this node. */
export interface AgentCsi {
  readonly sockets: CsiSockets;
  readonly places: NodeVolumePlaces;
}

/** A driver plugin of this node, and what it is configured with. */
export interface DriverBinary {
  readonly binary: PluginBinary;
  /** As somebody wrote it; null: nothing. */
  readonly config: ConfigInput;
  /** It makes its tasks' control groups itself, as our own do: the client's are not for it. */
  readonly makesCgroups: boolean;
}

export type { FoundTunnel };

/** First letters of the names of interfaces that agents make: nodes' ends of tasks' links, and of the tunnel between nodes. */
export const agentInterfaces = { links: interfacePrefix, tunnels: tunnelDevice("") } as const;

/**
 * The system's programs that make networks, iproute2 and nftables. A call rejects with what the program said; of a batch of
 * lines or a script nothing is said about how far it came.
 */
export interface NetworkTools {
  /** Null: networks can be made here. Else why not, one clause. */
  readonly problem: string | null;
  /** Tells what is this agent's on this machine from what is another's (`[0-9a-f]+`, 12 letters at most). */
  readonly tag: string;
  /** Names of the namespaces that `ip netns` knows. */
  namespaces(): Promise<readonly string[]>;
  /** Where the kernel has a named one. */
  pathOf(namespace: string): string;
  /**
   * The path by which the process `pid` reaches what is at `path` here, for as long as this agent lives: another one where that
   * process has mounts of its own, in which what this agent has mounted is not. Never rejects.
   */
  pathFor(path: string, pid: number): Promise<string>;
  /** Kernel settings by their path under /proc/sys. */
  set(values: Readonly<Record<string, string>>): Promise<void>;
  /**
   * Runs the lines by one `ip -batch`, in the node's own network or in the namespace at a path. With `goesOn` a line that
   * fails is left out.
   */
  ip(lines: readonly string[], options?: { readonly inside?: string; readonly goesOn?: boolean }): Promise<void>;
  /** The same with `bridge -batch`, in the node's own network. */
  bridge(lines: readonly string[], options?: { readonly goesOn?: boolean }): Promise<void>;
  /** One transaction: all of the script, or nothing of it. */
  nft(script: string): Promise<void>;
  /** What the kernel has of the tunnel of that name; null: there is none. */
  tunnel(device: string): Promise<FoundTunnel | null>;
  /** Bytes that a packet may have on every interface that leads out of this node. */
  readonly mtu: number;
}

/** Control groups as Nomad's client makes them for its drivers' tasks. */
export interface TaskCgroups {
  /** What the driver is told (`CpusetCgroup`). A second call is harmless. */
  make(taskId: string, name: string): Promise<string>;
  /** Nothing of the task should run: kills what does in its groups, and removes them. */
  end(taskId: string, name: string): Promise<void>;
}

/** The driver plugins of this node. */
export interface AgentPlugins {
  readonly launcher: PluginLauncher;
  readonly homes: TaskHomes;
  /** Null: this node makes none. */
  readonly cgroups: TaskCgroups | null;
  readonly binaries: readonly DriverBinary[];
  /** What every driver is told of the node. */
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
  /** Absent: this node makes no networks for its tasks, and says nothing of it. */
  readonly networks?: NetworkTools;
  /** Absent: tasks with networks ask whom the node asks for names, which knows no services. */
  readonly nameServers?: NameServers;
}
