/**
 * A node agent: joins a cluster, keeps a session with one of its managers, and runs its assigned tasks. This file wires its
 * actors: the certificate, the session and one per task.
 *
 * N1: the agent connects only to the managers named by its disk or its join address.
 * N2: a new certificate reaches the session as a changed description, so the manager learns of it.
 * N3: after `shutdown(true)` nothing that the agent started is running; after `shutdown(false)` or a crash, all of it is, and
 *     is found again.
 */
import { overlayDriver } from "../../machines/allocation/network.ts";
import { csiInfoOf } from "../../machines/volumes/csi/node-requests.ts";
import { sessionLabels } from "../../machines/agent/session-format.ts";
import { namesLabels, networkLabels } from "../../machines/driver/labels.ts";
import { nodeProcess } from "../../machines/inspection/selection.ts";
import type { SessionNews } from "../../machines/agent/session.machine.ts";
import {
  EngineDescription,
  IssuanceStatus_State as IssuanceState,
  NodeDescription,
  NodeRole,
  NodeTLSInfo,
  Platform,
  PluginDescription,
  Resources,
  type GenericResource,
  type SessionMessage,
  type TaskState,
} from "../../proto/gen/messages.ts";
import { CertificateActor } from "./certificate.ts";
import { AgentCalls } from "./calls.ts";
import { AgentInspection } from "./inspection.ts";
import type { RecordingRing } from "../../runtime/recording/ring.ts";
import { AgentDrivers, type DriverFacts } from "./drivers.ts";
import { AgentLogs } from "./logs.ts";
import { ManagerList } from "./managers.ts";
import type { AgentPorts, TaskDriver } from "./ports.ts";
import { StatusReports } from "./reports.ts";
import { SessionActor } from "./session.ts";
import { AgentTasks } from "./tasks.ts";
import { Discovery } from "./discovery.ts";
import type { Running } from "../environment.ts";
import { keptRecording } from "../inspection/kept-ring.ts";
import { createProcessFeed, type ProcessFeed } from "../inspection/process-feed.ts";
import { NetworkFollower } from "./network-follower.ts";
import { PolicyFollower, type NodeDataplane } from "./policy-follower.ts";
import { Tunnel } from "./tunnel.ts";
import { sentence } from "../sentence.ts";
import { LastResult } from "../../lib/last-result.ts";

interface AgentOptions {
  /**
   * Manager address and token to join with; null: use only the saved certificate. Ignored when there is one, except that the
   * address is one more place to look for a manager.
   */
  readonly join: { readonly address: string; readonly token: string } | null;
  readonly hostname: string;
  /** The engine's labels (`engine.labels` in constraints). */
  readonly labels: Readonly<Record<string, string>>;
  /** Generic resources that its operator counts or names; absent: none. */
  readonly genericResources?: readonly GenericResource[];
  /** Drivers besides those of its plugins, for simulations; none by default. */
  readonly drivers?: readonly TaskDriver[];
  /** Programs the node's network policy; absent: nothing does. */
  readonly dataplane?: NodeDataplane;
  /** Address for other nodes' packets to its tasks; absent: the address that managers see. */
  readonly dataPathAddress?: string;
  /** Keeps the last minutes of this agent's actors; null or absent: nothing does. */
  readonly recorder?: RecordingRing | null;
  /** Distinguishes this agent's actors from others on one host (`[A-Za-z0-9_-]+`); absent: derived from the host name. */
  readonly name?: string;
}

export type AgentState =
  | { readonly kind: "starting" }
  | { readonly kind: "joining" }
  /** Has a certificate but no session; `reason`: why the last attempt failed. */
  | { readonly kind: "connecting"; readonly reason: string }
  | { readonly kind: "serving"; readonly manager: string; readonly sessionId: string }
  /** Needs an operator; `reason` is one sentence for them. */
  | { readonly kind: "failed"; readonly reason: string }
  | { readonly kind: "stopped" };

export interface Agent extends Running {
  /** Null until the node has joined. */
  nodeId(): string | null;
  state(): AgentState;
  /** Calls the listener on each change of `state()`; the result unsubscribes. */
  onState(listener: (state: AgentState) => void): () => void;
  tasks(): readonly { readonly id: string; readonly state: TaskState }[];
  /** Ends the session; with `stopTasks` also stops every task, and resolves when nothing of any is left. */
  shutdown(stopTasks: boolean): Promise<void>;
}

/** Starts an agent; `state()` reports its progress. */
export function startAgent(options: AgentPorts & AgentOptions): Agent {
  const agent = new NodeAgent(options);
  agent.start();
  return agent;
}

class NodeAgent implements Agent {
  readonly #options: AgentPorts & AgentOptions;
  readonly #managers: ManagerList;
  readonly #reports: StatusReports;
  readonly #drivers: AgentDrivers;
  readonly #description = new LastResult(described);
  readonly #fixed: FixedFacts;
  readonly #tasks: AgentTasks;
  readonly #logs: AgentLogs;
  readonly #certificate: CertificateActor;
  readonly #policy: PolicyFollower | null;
  readonly #networks: NetworkFollower | null;
  readonly #tunnel: Tunnel | null;
  readonly #discovery: Discovery | null;
  readonly #session: SessionActor;
  readonly #listeners = new Set<(state: AgentState) => void>();
  #state: AgentState = { kind: "starting" };
  /** Desired role of the last session message. */
  #desiredRole: NodeRole | null = null;
  /** Reads the state of an earlier process and starts the actors; null before `start`. */
  #reading: Promise<void> | null = null;
  #ending: Promise<void> | null = null;
  #feed: ProcessFeed | null = null;

  constructor(options: AgentPorts & AgentOptions) {
    const { disk, hostname, random, telemetry } = options;
    const name = options.name ?? hostname.replaceAll(/[^A-Za-z0-9_-]/g, "-");
    this.#options = options;
    this.#fixed = fixedFactsOf(options);
    this.#managers = new ManagerList(disk, random.fork("managers"), telemetry.log);
    this.#reports = new StatusReports((error) => this.#session.fail(`status update: ${sentence(error)}`));
    this.#networks =
      options.networks?.problem === null
        ? new NetworkFollower({ ...options, random: random.fork("networks") }, name)
        : null;
    this.#tunnel = this.#openTunnel(name);
    this.#discovery = this.#discover(name);
    this.#drivers = new AgentDrivers(options, options.drivers ?? [], () => this.#descriptionChanged(), this.#discovery);
    this.#tasks = new AgentTasks(options, {
      drivers: this.#drivers,
      reports: this.#reports,
      nodeHostname: hostname,
      onPlugins: () => this.#descriptionChanged(),
      onAssigned: (source) => this.#logs.add(source),
    });
    this.#logs = new AgentLogs(options, { nodeId: () => this.nodeId() ?? "", sources: () => this.#tasks.sources() });
    this.#certificate = new CertificateActor(
      { ...options, random: random.fork("certificate") },
      {
        name,
        join: options.join,
        managers: this.#managers,
        onIdentity: () => this.#identityChanged(),
        onFailure: (reason) => this.#enter({ kind: "failed", reason }),
      },
    );
    this.#policy =
      options.dataplane === undefined
        ? null
        : new PolicyFollower({ ...options, random: random.fork("policy") }, name, options.dataplane);
    this.#session = new SessionActor(
      { ...options, random: random.fork("session") },
      {
        name,
        managers: this.#managers,
        reports: this.#reports,
        volumes: this.#tasks.volumes,
        logs: this.#logs,
        policy: this.#policy,
        networks: this.#networks,
        answerers: [
          new AgentCalls(options, (taskId) => this.#tasks.callable(taskId)),
          new AgentInspection(
            options,
            () => this.#feedOnceKnown(),
            options.recorder == null ? null : keptRecording(options.recorder, options.clock),
          ),
        ],
        identity: () => this.#certificate.identity ?? { rootPem: "", certificatePem: "", keyPem: "" },
        describe: () => this.#describe(),
        onMessage: (message) => this.#sessionMessage(message),
        onAssignments: (message) => {
          if (this.#ending === null) this.#tasks.apply(message);
        },
        onNews: (news) => this.#sessionNews(news),
      },
    );
  }

  start(): void {
    this.#load().catch((error: unknown) =>
      this.#enter({ kind: "failed", reason: `cannot read the agent's data: ${sentence(error)}` }),
    );
  }

  nodeId(): string | null {
    return this.#certificate.identity?.facts.nodeId ?? null;
  }

  state(): AgentState {
    return this.#state;
  }

  onState(listener: (state: AgentState) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  tasks(): readonly { readonly id: string; readonly state: TaskState }[] {
    return this.#tasks.list();
  }

  /** N3 */
  shutdown(stopTasks: boolean): Promise<void> {
    this.#ending ??= this.#end(stopTasks);
    return this.#ending;
  }

  stop(): void {
    void this.shutdown(false);
  }

  async #load(): Promise<void> {
    this.#reading = this.#read();
    await this.#reading;
    await this.#drivers.firstWord();
    if (this.#ending !== null) return;
    const { conflict } = this.#drivers;
    if (conflict !== null) {
      this.#enter({ kind: "failed", reason: conflict });
      return;
    }
    this.#enter({ kind: "joining" });
    await this.#certificate.start();
  }

  async #read(): Promise<void> {
    await this.#managers.load(this.#options.join?.address ?? null);
    await this.#drivers.load();
    await this.#tasks.load();
  }

  async #end(stopTasks: boolean): Promise<void> {
    // Tasks that stop from here on stop because of the shutdown; the manager gets no reports of them (worker protocol §0.15).
    this.#session.stop();
    this.#policy?.stop();
    this.#networks?.stop();
    this.#certificate.stop();
    this.#feed?.stop();
    // It starts plugins and restores tasks, which nobody would own later. `start` reports its failure. N3
    await this.#reading?.catch(() => {});
    if (stopTasks) await this.#tasks.clear();
    await this.#tunnel?.stop(stopTasks);
    this.#tasks.stop();
    await this.#drivers.close();
    await this.#discovery?.stop();
    this.#enter({ kind: "stopped" });
  }

  #openTunnel(name: string): Tunnel | null {
    const { networks: tools, random } = this.#options;
    const networks = this.#networks;
    if (networks === null || tools === undefined) return null;
    const ports = { ...this.#options, random: random.fork("tunnel"), tools };
    return new Tunnel(ports, { name, networks, nodeId: () => this.nodeId() ?? "" });
  }

  #discover(name: string): Discovery | null {
    const { nameServers, networks: tools, random } = this.#options;
    const networks = this.#networks;
    if (networks === null || nameServers === undefined || tools === undefined) return null;
    const ports = { ...this.#options, random: random.fork("discovery"), nameServers, tools };
    return new Discovery(ports, { name, networks, nodeId: () => this.nodeId() ?? "" });
  }

  #enter(state: AgentState): void {
    if (this.#state.kind === "stopped") return;
    this.#state = state;
    this.#options.telemetry.metrics
      .gauge("muster_agent_serving", "1 while the node has a session.")
      .set(state.kind === "serving" ? 1 : 0);
    for (const listener of this.#listeners) listener(state);
  }

  /** Null before the node has an id. */
  #feedOnceKnown(): ProcessFeed | null {
    const { clock, host, hostname, telemetry } = this.#options;
    const nodeId = this.nodeId();
    if (nodeId === null) return null;
    if (this.#feed === null) {
      const feed = createProcessFeed({ host, clock, telemetry, process: nodeProcess(nodeId), hostname });
      this.#feed = feed;
      const { recorder = null } = this.#options;
      if (recorder !== null) feed.record(recorder);
    }
    return this.#feed;
  }

  /** N2 */
  #identityChanged(): void {
    if (this.#ending !== null) return;
    // The recording begins as soon as its process has a name.
    this.#feedOnceKnown();
    if (this.#managers.size === 0) {
      this.#enter({ kind: "failed", reason: "no manager address is known: specify the address of one" });
      return;
    }
    if (this.#state.kind === "joining") this.#session.start();
    else this.#session.identityChanged();
  }

  /** Only a new session sends the new description. */
  #descriptionChanged(): void {
    if (this.#ending === null && this.#state.kind === "serving") this.#session.identityChanged();
  }

  #sessionNews(news: SessionNews): void {
    const { log } = this.#options.telemetry;
    switch (news.kind) {
      case "idle":
        return;
      case "connecting":
        this.#enter({ kind: "connecting", reason: news.reason });
        return;
      case "serving":
        log.info({ manager: news.manager, session: news.sessionId }, "the node established a session");
        this.#enter(news);
        return;
      case "backing-off":
        log.warn({ reason: news.reason }, "the session ended");
        this.#enter({ kind: "connecting", reason: news.reason });
    }
  }

  /**
   * Handles the parts of a session message that do not concern the session: the certificate, the role and the root (worker
   * protocol §5.3).
   */
  #sessionMessage({ node, RootCA }: SessionMessage): void {
    if (node !== null) {
      // Checked in each message, as engines do: the answer to an earlier request may have been lost with a connection.
      if (node.certificate?.status?.state === IssuanceState.ROTATE) this.#certificate.forceRenewal();
      const desiredRole = node.spec?.desiredRole ?? NodeRole.WORKER;
      if (desiredRole !== this.#desiredRole) this.#certificate.wantRole(desiredRole);
      this.#desiredRole = desiredRole;
    }
    if (RootCA.length > 0) this.#certificate.offerRoot(new TextDecoder().decode(RootCA));
  }

  /** The same object while nothing changes: the session compares it with what the manager has, again and again. */
  #describe(): NodeDescription {
    return this.#description.of(
      this.#fixed,
      this.#drivers.facts(),
      this.#certificate.identity,
      this.#options.networks?.problem,
      this.#discovery?.problem ?? "",
      this.#tasks.volumes.plugins.facts(),
    );
  }
}

/** Parts of a node's description that stay the same while its agent runs. */
interface FixedFacts extends Required<
  Pick<AgentOptions & AgentPorts, "facts" | "genericResources" | "hostname" | "labels">
> {
  readonly dataPathAddress: string | null;
}

function fixedFactsOf(options: AgentOptions & AgentPorts): FixedFacts {
  const { dataPathAddress = null, facts, genericResources = [], hostname, labels } = options;
  return { dataPathAddress, facts, genericResources, hostname, labels };
}

/** `networks`: why it has none; null: it has them; undefined: nobody provides them. */
function described(
  { dataPathAddress, facts, genericResources, hostname, labels }: FixedFacts,
  drivers: DriverFacts,
  identity: CertificateActor["identity"],
  networks: string | null | undefined,
  namesProblem: string,
  volumes: Parameters<typeof csiInfoOf>[0],
): NodeDescription {
  const attaches = networks === null ? [PluginDescription.create({ type: "Network", name: overlayDriver })] : [];
  return NodeDescription.create({
    hostname,
    platform: Platform.create({ architecture: facts.architecture, os: facts.os }),
    resources: Resources.create({
      nanoCpus: facts.nanoCpus,
      memoryBytes: facts.memoryBytes,
      generic: genericResources,
    }),
    engine: EngineDescription.create({
      engineVersion: facts.engineVersion,
      // The operator's labels take precedence over a driver's.
      labels: {
        ...drivers.labels,
        ...(networks === undefined ? {} : networkLabels(networks, dataPathAddress)),
        ...namesLabels(namesProblem),
        ...labels,
        ...sessionLabels,
      },
      plugins: [
        ...drivers.kinds.map((kind) => PluginDescription.create({ type: "Driver", name: kind })),
        ...drivers.engine.map(({ name, type }) => PluginDescription.create({ type, name })),
        ...attaches,
      ].sort((a, b) => (a.name < b.name ? -1 : 1)),
    }),
    csiInfo: csiInfoOf(volumes),
    tlsInfo:
      identity === null
        ? null
        : NodeTLSInfo.create({
            trustRoot: new TextEncoder().encode(identity.rootPem),
            certIssuerSubject: identity.facts.issuerSubjectDer,
            certIssuerPublicKey: identity.facts.issuerPublicKeyDer ?? new Uint8Array(),
          }),
  });
}
