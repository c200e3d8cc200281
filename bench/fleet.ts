/**
 * Simulated agents for load: each joins a SwarmKit-compatible manager with a token, holds a session and reports its tasks as
 * SwarmKit's agent does, but runs nothing. They are plain objects rather than statecharts, so that the load costs less than
 * what it measures.
 *
 * Reports are sent as SwarmKit's agent sends them: one task per call, one call at a time per agent, every state on the way.
 * With `batch`, a call carries everything that is waiting, as those of Muster's agents. Periods of heartbeats count from the heartbeat,
 * as with Muster's agents; SwarmKit's count from the answer.
 */
import {
  AssignmentChange_AssignmentAction,
  AssignmentsMessage_Type,
  AssignmentsRequest,
  CAService,
  DispatcherService,
  EngineDescription,
  GetRootCACertificateRequest,
  HeartbeatRequest,
  IssuanceStatus_State,
  IssueNodeCertificateRequest,
  ListenSubscriptionsRequest,
  LogBrokerService,
  NodeCAService,
  NodeCertificateStatusRequest,
  NodeDescription,
  NodeSpec_Availability,
  Platform,
  PluginDescription,
  Resources,
  SessionRequest,
  TaskState,
  TaskStatus,
  UpdateTaskStatusRequest,
  UpdateTaskStatusRequest_TaskStatusUpdate,
  type AssignmentsMessage,
  type SessionMessage,
  type Task,
} from "../proto/gen/messages.ts";
import { connectTls } from "../edges/grpc/client.ts";
import { createKeyAndCsr } from "../lib/pki/index.ts";
import { natsDialer } from "../processes/nats-dialer.ts";
import { sealedDialer } from "../processes/sealed-dialer.ts";
import { findManager } from "../runtime/calls/site-link.ts";
import { connectSite } from "../runtime/nats/node-connection.ts";
import { RpcError, Status, type RpcChannel } from "../runtime/ports/rpc.ts";
import { SystemClock } from "../runtime/system/clock.ts";
import { SystemRandom } from "../runtime/system/random.ts";
import { until } from "./peers.ts";

const callTimeoutMs = 60_000;
/** As SwarmKit's agent: bounds of 0.1, 0.3, 0.7 … up to 8 s, delays uniform below them. */
const backoffMsMax = 8_000;
/** Milliseconds between two heartbeats of a probe. */
const probeBeatMs = 200;
/** States that an agent reports on the way to RUNNING. */
const path: readonly TaskState[] = [
  TaskState.ACCEPTED,
  TaskState.PREPARING,
  TaskState.READY,
  TaskState.STARTING,
  TaskState.RUNNING,
];

interface FleetOptions {
  readonly host: string;
  readonly port: number;
  readonly token: string;
  readonly agents: number;
  readonly batch: boolean;
  /** Number of agents that join concurrently; the others wait for them. */
  readonly joinsAtOnce: number;
  /** Index of the first agent among all agents, if this fleet is a part of them; default 0. */
  readonly first?: number;
  /** Agents without tasks that send a heartbeat every `probeBeatMs`, in turns, whatever period the manager requests. */
  readonly isProbe?: boolean;
  /** Network drivers of the nodes; default: overlay only. */
  readonly networks?: readonly string[];
  /** URL of the manager's NATS for nodes; absent: the agents' sessions are over gRPC. They join over gRPC. */
  readonly nodesNats?: string;
  /** With `nodesNats`: that is the URL of the site's leaf node, through which sessions are sealed. */
  readonly site?: string;
  /** Receives every message to an agent. */
  readonly observe?: (sent: Sent) => void;
}

type Sent =
  | { readonly kind: "session"; readonly message: SessionMessage }
  | { readonly kind: "assignments"; readonly message: AssignmentsMessage };

export interface FleetCounts {
  registered: number;
  registrations: number;
  statusCalls: number;
  heartbeats: number;
  /** 99th percentile of heartbeats sent since `isLoaded`, in milliseconds; 0 before. */
  heartbeatP99Ms: number;
  /** Tasks whose RUNNING report was acknowledged and that were not stopped since. */
  running: number;
  errors: number;
  lastError: string;
}

interface Identity {
  readonly nodeId: string;
  readonly certificatePem: string;
  readonly keyPem: string;
}

export class Fleet {
  readonly counts: FleetCounts = {
    registered: 0,
    registrations: 0,
    statusCalls: 0,
    heartbeats: 0,
    heartbeatP99Ms: 0,
    running: 0,
    errors: 0,
    lastError: "",
  };
  readonly agents: SimulatedAgent[] = [];
  #requests: { readonly keyPem: string; readonly csrPem: string }[] = [];
  /** Durations of heartbeats since `isLoaded`, in milliseconds. */
  readonly #heartbeatsMs: number[] = [];
  /** True since the first task was assigned, or since it was set. */
  isLoaded = false;
  rootPem = "";
  readonly options: FleetOptions;

  constructor(options: FleetOptions) {
    this.options = options;
  }

  /** Creates the keys and certificate requests that the agents join with: the generator's own work, which is not measured. */
  async prepare(): Promise<void> {
    while (this.#requests.length < this.options.agents) this.#requests.push(await createKeyAndCsr());
  }

  /** Resolves when every agent has received its first session message. */
  async join(): Promise<void> {
    await this.prepare();
    const { host, port } = this.options;
    const channel = await connectTls({ host, port, serverName: "swarm-ca", timeoutMs: callTimeoutMs });
    const root = await channel.unary(CAService.methods.GetRootCACertificate, GetRootCACertificateRequest.create(), {
      timeoutMs: callTimeoutMs,
    });
    channel.close();
    this.rootPem = Buffer.from(root.certificate).toString();
    await this.#reachManager();
    let next = 0;
    const joinOne = async (): Promise<void> => {
      while (next < this.options.agents) {
        const request = this.#requests[next] as { keyPem: string; csrPem: string };
        const agent = new SimulatedAgent(this, (this.options.first ?? 0) + next++);
        this.agents.push(agent);
        await agent.start(request);
      }
    };
    await Promise.all(Array.from({ length: Math.min(this.options.joinsAtOnce, this.options.agents) }, joinOne));
  }

  /** Resolves when the site's leaf node, which may just have started, has found the manager. */
  async #reachManager(): Promise<void> {
    const { nodesNats: url, site } = this.options;
    if (url === undefined || site === undefined) return;
    const [clock, random] = [new SystemClock(), new SystemRandom()];
    await until(`the leaf node of ${site} to reach the manager`, async () => {
      const connection = await connectSite({ url, ca: null, credentials: null, name: "bench" }).catch(() => null);
      const found =
        connection && (await findManager({ clock, random, bus: connection.bus, site }, "").catch(() => null));
      connection?.close();
      return found !== null;
    });
  }

  /** A connection of a node to the manager. */
  connect({ certificatePem, keyPem }: Identity): Promise<RpcChannel> {
    const { options, rootPem } = this;
    const { host, nodesNats, port, site } = options;
    if (nodesNats !== undefined) {
      const shared = { clock: new SystemClock(), random: new SystemRandom(), urls: [nodesNats] };
      const dialer =
        site === undefined
          ? natsDialer({ ...shared, token: "" })
          : sealedDialer({ ...shared, site, caFile: null, credentialsFile: null });
      return dialer.dial("", "node", { certificatePem, keyPem, rootPem });
    }
    return connectTls({
      host,
      port,
      rootPem,
      serverName: "swarm-manager",
      certificatePem,
      keyPem,
      timeoutMs: callTimeoutMs,
    });
  }

  noteHeartbeat(ms: number): void {
    this.counts.heartbeats += 1;
    if (this.isLoaded) this.#heartbeatsMs.push(ms);
  }

  /** Computes the counts that are not updated continuously. */
  summarize(): void {
    const sorted = this.#heartbeatsMs.toSorted((a, b) => a - b);
    this.counts.heartbeatP99Ms = sorted[Math.ceil(sorted.length * 0.99) - 1] ?? 0;
  }

  stop(): void {
    for (const agent of this.agents) agent.stop();
  }
}

export class SimulatedAgent {
  readonly #fleet: Fleet;
  readonly #index: number;
  readonly #description: NodeDescription;
  #identity: Identity | null = null;
  #channel: RpcChannel | null = null;
  #sessionId = "";
  #heartbeat: NodeJS.Timeout | null = null;
  #retry: NodeJS.Timeout | null = null;
  #backoffMs = 0;
  #stopped = false;
  /** The state of each task that was reported last, or is waiting to be reported. */
  readonly #tasks = new Map<string, TaskState>();
  readonly #reports: UpdateTaskStatusRequest_TaskStatusUpdate[] = [];
  #reporting = false;

  constructor(fleet: Fleet, index: number) {
    this.#fleet = fleet;
    this.#index = index;
    this.#description = NodeDescription.create({
      hostname: `${fleet.options.isProbe === true ? "probe" : "sim"}-${index}`,
      platform: Platform.create({ architecture: "x86_64", os: "linux" }),
      resources: Resources.create({ nanoCpus: 8e9, memoryBytes: 32 * 2 ** 30 }),
      engine: EngineDescription.create({
        engineVersion: "20.10.24",
        plugins: [
          PluginDescription.create({ type: "Log", name: "json-file" }),
          ...(fleet.options.networks ?? ["overlay"]).map((name) => PluginDescription.create({ type: "Network", name })),
          PluginDescription.create({ type: "Volume", name: "local" }),
        ],
      }),
    });
  }

  async start(request: { readonly keyPem: string; readonly csrPem: string }): Promise<void> {
    this.#identity = await this.#certificate(request);
    await this.#connect();
  }

  /** Its session, and another connection of the same node. */
  async connectAgain(): Promise<{ readonly channel: RpcChannel; readonly sessionId: string }> {
    return { channel: await this.#fleet.connect(this.#identity as Identity), sessionId: this.#sessionId };
  }

  stop(): void {
    this.#stopped = true;
    this.#drop();
    if (this.#retry !== null) clearTimeout(this.#retry);
  }

  async #certificate({ keyPem, csrPem }: { keyPem: string; csrPem: string }): Promise<Identity> {
    const { options, rootPem } = this.#fleet;
    const csr = Buffer.from(csrPem);
    const channel = await connectTls({
      host: options.host,
      port: options.port,
      rootPem,
      serverName: "swarm-ca",
      timeoutMs: callTimeoutMs,
    });
    try {
      const { nodeId } = await channel.unary(
        NodeCAService.methods.IssueNodeCertificate,
        IssueNodeCertificateRequest.create({
          csr,
          token: options.token,
          availability: options.isProbe === true ? NodeSpec_Availability.DRAIN : NodeSpec_Availability.ACTIVE,
        }),
        { timeoutMs: callTimeoutMs },
      );
      for (;;) {
        const answer = await channel.unary(
          NodeCAService.methods.NodeCertificateStatus,
          NodeCertificateStatusRequest.create({ nodeId }),
          { timeoutMs: callTimeoutMs },
        );
        if (answer.status?.state === IssuanceStatus_State.ISSUED && answer.certificate !== null) {
          return { nodeId, keyPem, certificatePem: Buffer.from(answer.certificate.certificate).toString() };
        }
      }
    } finally {
      channel.close();
    }
  }

  async #connect(): Promise<void> {
    const { counts } = this.#fleet;
    const channel = await this.#fleet.connect(this.#identity as Identity);
    this.#channel = channel;
    await new Promise<void>((resolve, reject) => {
      let isFirst = true;
      channel.serverStream(
        DispatcherService.methods.Session,
        SessionRequest.create({ description: this.#description, sessionId: this.#sessionId }),
        {
          onMessage: (message) => {
            this.#fleet.options.observe?.({ kind: "session", message });
            this.#sessionId = message.sessionId;
            if (!isFirst) return;
            isFirst = false;
            counts.registered += 1;
            counts.registrations += 1;
            this.#backoffMs = 0;
            this.#serve(channel);
            resolve();
          },
          onEnd: (error) => {
            if (isFirst) reject(error ?? new RpcError(Status.UNAVAILABLE, "the session ended"));
            else this.#lost(channel, error);
          },
        },
      );
    });
  }

  #serve(channel: RpcChannel): void {
    const onEnd = (error: RpcError | null): void => this.#lost(channel, error);
    channel.serverStream(
      DispatcherService.methods.Assignments,
      AssignmentsRequest.create({ sessionId: this.#sessionId }),
      {
        onMessage: (message) => this.#assign(message),
        onEnd,
      },
    );
    channel.serverStream(LogBrokerService.methods.ListenSubscriptions, ListenSubscriptionsRequest.create(), {
      onMessage: () => {},
      onEnd,
    });
    this.#beat(channel);
    void this.#report();
  }

  #beat(channel: RpcChannel): void {
    const sentAt = performance.now();
    channel
      .unary(DispatcherService.methods.Heartbeat, HeartbeatRequest.create({ sessionId: this.#sessionId }), {
        timeoutMs: 5_000,
      })
      .then(
        ({ period }) => {
          const tookMs = performance.now() - sentAt;
          this.#fleet.noteHeartbeat(tookMs);
          if (this.#channel !== channel) return;
          const periodMs = (period?.seconds ?? 5) * 1_000 + (period?.nanos ?? 0) / 1e6;
          const isProbe = this.#fleet.options.isProbe === true;
          this.#heartbeat = setTimeout(() => this.#beat(channel), isProbe ? this.#toNextProbeMs() : periodMs - tookMs);
        },
        (error: RpcError) => this.#lost(channel, error),
      );
  }

  /** Probes take turns at fixed times: one of them is always about to send, and a slow answer to one delays none after it. */
  #toNextProbeMs(): number {
    const offsetMs = (this.#index * probeBeatMs) / this.#fleet.options.agents;
    return probeBeatMs - ((performance.now() + offsetMs) % probeBeatMs);
  }

  #assign(message: AssignmentsMessage): void {
    this.#fleet.options.observe?.({ kind: "assignments", message });
    const kept = new Set<string>();
    for (const { assignment, action } of message.changes) {
      const task = assignment?.task;
      if (task === null || task === undefined) continue;
      kept.add(task.id);
      this.#fleet.isLoaded = true;
      if (action === AssignmentChange_AssignmentAction.REMOVE) this.#forget(task.id);
      else this.#update(task);
    }
    if (message.type === AssignmentsMessage_Type.COMPLETE)
      for (const id of this.#tasks.keys()) if (!kept.has(id)) this.#forget(id);
    void this.#report();
  }

  #forget(id: string): void {
    if (this.#tasks.get(id) === TaskState.RUNNING) this.#fleet.counts.running -= 1;
    this.#tasks.delete(id);
  }

  #update(task: Task): void {
    const known = this.#tasks.get(task.id);
    if (task.desiredState > TaskState.COMPLETE) {
      if (known === undefined || known > TaskState.RUNNING) return;
      if (known === TaskState.RUNNING) this.#fleet.counts.running -= 1;
      this.#queue(task.id, TaskState.SHUTDOWN);
      return;
    }
    const from = known ?? task.status?.state ?? TaskState.ASSIGNED;
    for (const state of path) if (state > from && state <= task.desiredState) this.#queue(task.id, state);
    if (known === undefined && !this.#tasks.has(task.id)) this.#tasks.set(task.id, from);
  }

  #queue(taskId: string, state: TaskState): void {
    this.#tasks.set(taskId, state);
    const now = Date.now();
    this.#reports.push(
      UpdateTaskStatusRequest_TaskStatusUpdate.create({
        taskId,
        status: TaskStatus.create({
          state,
          message: "simulated",
          timestamp: { seconds: Math.floor(now / 1_000), nanos: (now % 1_000) * 1e6 },
        }),
      }),
    );
  }

  async #report(): Promise<void> {
    if (this.#reporting) return;
    this.#reporting = true;
    while (this.#reports.length > 0 && this.#channel !== null) {
      const channel = this.#channel;
      const updates = this.#reports.slice(0, this.#fleet.options.batch ? 1_000 : 1);
      try {
        await channel.unary(
          DispatcherService.methods.UpdateTaskStatus,
          UpdateTaskStatusRequest.create({ sessionId: this.#sessionId, updates }),
        );
      } catch (error) {
        this.#lost(channel, error as RpcError);
        break;
      }
      this.#reports.splice(0, updates.length);
      this.#fleet.counts.statusCalls += 1;
      for (const { taskId, status } of updates) {
        if (status?.state === TaskState.RUNNING && this.#tasks.get(taskId) === TaskState.RUNNING)
          this.#fleet.counts.running += 1;
      }
    }
    this.#reporting = false;
  }

  #lost(channel: RpcChannel, error: RpcError | null): void {
    if (this.#channel !== channel) return;
    this.#fleet.counts.registered -= 1;
    if (!this.#stopped) {
      this.#fleet.counts.errors += 1;
      this.#fleet.counts.lastError = error === null ? "a stream ended" : `${error.code} ${error.message}`;
    }
    this.#drop();
    this.#again();
  }

  #again(): void {
    if (this.#stopped) return;
    this.#backoffMs = Math.min(backoffMsMax, 100 + 2 * this.#backoffMs);
    this.#retry = setTimeout(() => void this.#connect().catch(() => this.#again()), Math.random() * this.#backoffMs);
  }

  #drop(): void {
    if (this.#heartbeat !== null) clearTimeout(this.#heartbeat);
    this.#channel?.close();
    this.#channel = null;
  }
}
