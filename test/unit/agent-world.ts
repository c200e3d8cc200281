// A simulated cluster of one scripted manager and one real agent, for the tests of the agent.
import type { AgentPlugins, CertificateMaker } from "../../actors/agent/ports.ts";
import { startAgent, type Agent, type AgentState } from "../../actors/agent/agent.ts";
import {
  Any,
  Assignment,
  AssignmentChange,
  AssignmentChange_AssignmentAction as Action,
  AssignmentsMessage,
  AssignmentsMessage_Type as Kind,
  CAService,
  Certificate,
  Annotations,
  DispatcherService,
  Duration,
  GenericRuntimeSpec,
  GetRootCACertificateResponse,
  HeartbeatResponse,
  IssuanceStatus,
  IssuanceStatus_State,
  IssueNodeCertificateResponse,
  LogBrokerService,
  Node,
  NodeCAService,
  NodeCertificateStatusResponse,
  NodeSpec,
  Peer,
  SessionMessage,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  UpdateTaskStatusResponse,
  WeightedPeer,
  type IssueNodeCertificateRequest,
  type NodeCertificateStatusRequest,
  type SessionRequest,
  type UpdateTaskStatusRequest,
} from "../../proto/gen/messages.ts";
import { Host } from "../../runtime/host.ts";
import type { ProbeOutcome } from "../../runtime/ports/probes.ts";
import { makeJoinToken } from "../../lib/pki/index.ts";
import { RpcError, Status, type CallContext, type Sink } from "../../runtime/ports/rpc.ts";
import type { ProcessClock } from "../../runtime/sim/clock.ts";
import { Simulation, type SimProcess } from "../../runtime/sim/simulation.ts";
import { identityOf, simulatedAuthority } from "../../simulation/managers/authority.ts";
import { agentDisk, SimMachine } from "../../simulation/nodes/machine.ts";

export const address = "10.0.0.1:2377";
const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
const bytes = (value: string): Uint8Array => new TextEncoder().encode(value);
const calm = { refusal: 0, failure: 0, lifeMsMax: 1, prepareMsMax: 5, startMsMax: 5, stopMsMax: 5 };

interface Report {
  readonly taskId: string;
  readonly state: TaskState;
  readonly status: TaskStatus;
}

/** The manager's behaviour; tests change it while the world runs. */
interface Script {
  rootPem: string;
  issuerRoot: string;
  validitySeconds: number;
  periodMs: number;
  managers: readonly WeightedPeer[];
  /** Throws to reject. */
  onSession: (request: SessionRequest) => void;
  onReport: (request: UpdateTaskStatusRequest) => void;
  node: (nodeId: string) => Node | null;
  /** Roots, besides its own, to which a certificate chains, as during a rotation. */
  crossRoots: readonly string[];
}

export class World {
  readonly simulation = new Simulation({ seed: 7 });
  readonly clock = this.simulation.clock;
  readonly sessions: { readonly request: SessionRequest; readonly sink: Sink<SessionMessage>; isOpen: boolean }[] = [];
  readonly streams: Sink<AssignmentsMessage>[] = [];
  readonly reports: Report[] = [];
  readonly requests: { readonly nodeId: string; readonly token: string; readonly identity: string }[] = [];
  readonly states: AgentState[] = [];
  heartbeats = 0;
  readonly script: Script;
  readonly machine: SimMachine;
  /** Results of checks of the node's ports. */
  probe: () => Promise<ProbeOutcome> = async () => ({ kind: "passed" });
  /** For each life of the agent; null: it has none. */
  plugins: ((clock: ProcessClock) => AgentPlugins) | null = null;
  /** How long its disk takes to read a record. */
  readMs = 0;
  readonly manager: SimProcess;
  readonly node: SimProcess;
  token: string;
  join = true;
  agent!: Agent;
  readonly #authority = simulatedAuthority(this.simulation.random.fork("authority"));
  readonly #issued = new Map<string, { csr: Uint8Array; pem: Uint8Array }>();
  #nodes = 0;

  constructor() {
    const rootPem = "SIMULATED ROOT 1\n";
    this.script = {
      rootPem,
      issuerRoot: rootPem,
      validitySeconds: 90 * 86_400,
      periodMs: 5_000,
      managers: [peer(address)],
      onSession: () => {},
      onReport: () => {},
      crossRoots: [],
      node: (id) => Node.create({ id, spec: NodeSpec.create() }),
    };
    this.token = makeJoinToken(bytes(rootPem), new Uint8Array(16));
    this.machine = new SimMachine("node", {
      clock: this.clock,
      random: this.simulation.random.fork("machine"),
      trace: this.simulation.trace,
      habits: calm,
    });
    this.manager = this.simulation.process("manager", ({ rpc }) => void rpc.serve(address, this.#services()));
    this.node = this.simulation.process("node", (ports) => {
      const { clock, random, rpc, telemetry } = ports;
      const disk = agentDisk(ports.disk, clock, random.fork("disk"));
      this.agent = startAgent({
        clock,
        random,
        telemetry,
        host: new Host({ clock, telemetry, onCrash: (id, error) => ports.fail(id, error) }),
        dialer: {
          dial: (to, credentials, material) =>
            rpc.connect(to, credentials === "node" ? identityOf(material.certificatePem, clock.now()) : null),
        },
        disk: {
          ...disk,
          load: async (name) => {
            if (this.readMs > 0) await new Promise<void>((resolve) => void clock.after(this.readMs, resolve));
            return disk.load(name);
          },
        },
        certificates: this.#crossing(simulatedAuthority(random.fork("certificates"))),
        facts: { architecture: "x86_64", os: "linux", nanoCpus: 4e9, memoryBytes: 1e9, engineVersion: "1.2.3" },
        probes: { http: () => this.probe(), tcp: () => this.probe() },
        join: this.join ? { address, token: this.token } : null,
        hostname: "host.example",
        labels: { zone: "a" },
        drivers: [this.machine.driver("exec", clock)],
        ...(this.plugins === null ? {} : { plugins: this.plugins(clock) }),
      });
      this.agent.onState((state) => this.states.push(state));
    });
    this.manager.start();
  }

  /** Starts the agent and waits until it serves. */
  async serving(): Promise<this> {
    this.node.start();
    await this.until(() => this.agent.state().kind === "serving" && this.streams.length > 0);
    return this;
  }

  async until(condition: () => boolean, withinMs = 60_000): Promise<void> {
    const end = await this.clock.run({ until: condition, untilMs: this.clock.now() + withinMs });
    if (end !== "until")
      throw new Error(`timed out after ${withinMs} ms; the agent is ${JSON.stringify(this.agent?.state())}`);
  }

  async pass(ms: number): Promise<void> {
    await this.clock.run({ untilMs: this.clock.now() + ms });
  }

  assign(message: Partial<AssignmentsMessage>): void {
    this.streams.at(-1)?.write(AssignmentsMessage.create(message));
  }

  assignAll(...tasks: readonly Task[]): void {
    this.assign({ type: Kind.COMPLETE, resultsIn: "1", changes: tasks.map((task) => change(task)) });
  }

  statesOf(taskId: string): readonly TaskState[] {
    return this.reports.filter((report) => report.taskId === taskId).map(({ state }) => state);
  }

  lastReport(taskId: string): TaskStatus {
    const report = this.reports.findLast((candidate) => candidate.taskId === taskId);
    if (report === undefined) throw new Error(`no report of ${taskId}`);
    return report.status;
  }

  /** Sends a session message over the newest session. */
  tell(fields: Partial<SessionMessage> = {}): void {
    this.sessions.at(-1)?.sink.write(this.#message(this.agent.nodeId() ?? "", fields));
  }

  #crossing(maker: CertificateMaker): CertificateMaker {
    return {
      createKeyAndCsr: () => maker.createKeyAndCsr(),
      describe: (pem, rootPem) => {
        const facts = maker.describe(pem, rootPem);
        if (facts.kind === "malformed") return facts;
        // A simulated root's key is the root.
        const issuerPem = text(facts.issuerPublicKeyDer ?? new Uint8Array());
        return {
          ...facts,
          verify: (root, nowMs) => facts.verify(this.script.crossRoots.includes(root) ? issuerPem : root, nowMs),
        };
      },
    };
  }

  #message(nodeId: string, fields: Partial<SessionMessage> = {}): SessionMessage {
    return SessionMessage.create({
      sessionId: `s${this.sessions.length}`,
      node: this.script.node(nodeId),
      managers: this.script.managers,
      RootCA: bytes(this.script.rootPem),
      ...fields,
    });
  }

  #services(): readonly { service: { name: string; methods: object }; handlers: object }[] {
    return [
      {
        service: CAService,
        handlers: {
          GetRootCACertificate: () => GetRootCACertificateResponse.create({ certificate: bytes(this.script.rootPem) }),
        },
      },
      {
        service: NodeCAService,
        handlers: {
          IssueNodeCertificate: (request: IssueNodeCertificateRequest, call: CallContext) => this.#issue(request, call),
          NodeCertificateStatus: (request: NodeCertificateStatusRequest) => this.#status(request),
        },
      },
      {
        service: DispatcherService,
        handlers: {
          Session: (request: SessionRequest, sink: Sink<SessionMessage>, call: CallContext) => {
            this.script.onSession(request);
            const session = { request, sink, isOpen: true };
            this.sessions.push(session);
            call.signal.addEventListener("abort", () => (session.isOpen = false));
            const sessionId = request.sessionId === "" ? `s${this.sessions.length}` : request.sessionId;
            sink.write(this.#message(call.peer.identity?.nodeId ?? "", { sessionId }));
          },
          Heartbeat: () => {
            this.heartbeats += 1;
            const { periodMs } = this.script;
            return HeartbeatResponse.create({
              period: Duration.create({ seconds: Math.floor(periodMs / 1_000), nanos: (periodMs % 1_000) * 1e6 }),
            });
          },
          Assignments: (_: object, sink: Sink<AssignmentsMessage>) => void this.streams.push(sink),
          UpdateTaskStatus: (request: UpdateTaskStatusRequest) => {
            this.script.onReport(request);
            for (const { status, taskId } of request.updates)
              if (status !== null) this.reports.push({ taskId, state: status.state, status });
            return UpdateTaskStatusResponse.create();
          },
        },
      },
      { service: LogBrokerService, handlers: { ListenSubscriptions: () => {} } },
    ];
  }

  async #issue(request: IssueNodeCertificateRequest, call: CallContext): Promise<IssueNodeCertificateResponse> {
    const known = call.peer.identity?.nodeId ?? "";
    this.requests.push({ nodeId: known, token: request.token, identity: known });
    if (known === "" && request.token !== this.goodToken) {
      throw new RpcError(Status.INVALID_ARGUMENT, "A valid join token is necessary to join this cluster");
    }
    const nodeId = known === "" ? `node${(this.#nodes += 1)}` : known;
    const pem = await this.#authority.issue({
      nodeId,
      role: "swarm-worker",
      organization: "cluster1",
      csrPem: request.csr,
      rootCertificatePem: this.script.issuerRoot,
      rootKeyPem: "",
      nowMs: this.clock.now(),
      validitySeconds: this.script.validitySeconds,
    });
    this.#issued.set(nodeId, { csr: request.csr, pem: bytes(pem) });
    return IssueNodeCertificateResponse.create({ nodeId });
  }

  get goodToken(): string {
    return makeJoinToken(bytes("SIMULATED ROOT 1\n"), new Uint8Array(16));
  }

  #status({ nodeId }: NodeCertificateStatusRequest): NodeCertificateStatusResponse {
    const issued = this.#issued.get(nodeId);
    if (issued === undefined) throw new RpcError(Status.NOT_FOUND, "NotFound");
    const status = IssuanceStatus.create({ state: IssuanceStatus_State.ISSUED });
    return NodeCertificateStatusResponse.create({
      status,
      certificate: Certificate.create({ csr: issued.csr, certificate: issued.pem, cn: nodeId, status }),
    });
  }
}

export function peer(addr: string, weight = 10): WeightedPeer {
  return WeightedPeer.create({ peer: Peer.create({ nodeId: `manager-${addr}`, addr }), weight });
}

export function change(task: Task, action: Action = Action.UPDATE): AssignmentChange {
  return AssignmentChange.create({ action, assignment: Assignment.create({ task }) });
}

export function task(id: string, fields: Partial<Task> = {}): Task {
  return Task.create({
    id,
    serviceId: "svc",
    slot: 1,
    nodeId: "node1",
    serviceAnnotations: Annotations.create({ name: "web" }),
    spec: TaskSpec.create({
      generic: GenericRuntimeSpec.create({ kind: "exec", payload: Any.create({ type_url: "muster.v1.ExecSpec" }) }),
    }),
    status: TaskStatus.create({ state: TaskState.ASSIGNED }),
    desiredState: TaskState.RUNNING,
    ...fields,
  });
}

export { text };
