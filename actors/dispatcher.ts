/**
 * Everything between the nodes and the store, on every manager: SwarmKit's Dispatcher service. Each registered node is a
 * session actor, each open stream an assignments actor; the dispatcher's own machine judges whether missing nodes may be
 * declared DOWN. One watcher of the store serves them all.
 */
import {
  Duration,
  HeartbeatResponse,
  NodeDescription,
  NodeStatus_State,
  Operation,
  Reason,
  SessionRegistered,
  type DispatcherService,
  type Node,
  type SessionMessage,
  type SessionRequest,
} from "../proto/gen/messages.ts";
import { assignmentLimits } from "../machines/assignments.ts";
import { dispatcherMachine, massDown } from "../machines/dispatcher.ts";
import { evicted, isDuplicate, isStale, noHistory, registered, type RegistrationHistory } from "../machines/registration-rate.ts";
import { concernsAgent, sameBytes, sessionMessage, sharedPart, type SharedPart } from "../machines/session-message.ts";
import { sessionTimes, type SessionEnd } from "../machines/session.ts";
import { newId } from "../runtime/ids.ts";
import type { Random, TimerHandle } from "../runtime/ports.ts";
import { RpcError, Status, type CallContext, type ServiceHandlers, type Sink } from "../runtime/rpc.ts";
import type { Commit } from "../runtime/store/store.ts";
import { sessionRegistered } from "../runtime/subjects.ts";
import { AssignmentRouter, type StreamTarget } from "./assignments.ts";
import type { Environment, Running } from "./environment.ts";
import { ProposalBatch } from "./proposal-batch.ts";
import { NodeSession, sessionRemoval, type Registrant, type SessionPorts, type Verdict } from "./session.ts";
import { TaskReports } from "./task-reports.ts";

export interface DispatcherOptions {
  /** Own host:port as workers reach it; always in the managers list. */
  readonly addr: string;
  /** True when the own link to the bus and the log were healthy for a whole grace period: without that nobody is declared DOWN. */
  readonly settled: () => boolean;
  /** Used while the cluster object names no period, in milliseconds. */
  readonly heartbeatPeriodMs?: number;
}

export interface SessionInfo {
  readonly nodeId: string;
  readonly sessionId: string;
  /** State of its machine, such as `serving.connected`. */
  readonly state: string;
}

export interface Dispatcher extends Running {
  readonly handlers: ServiceHandlers<typeof DispatcherService>;
  /** The sessions that this manager holds. */
  sessions(): Iterable<SessionInfo>;
  /** What the node's session waits for; null when this manager holds none. */
  explain(nodeId: string): Reason[] | null;
}

/** How long the first registration of a batch waits for others, in milliseconds: a thousand joins must not be a thousand proposals. */
const registrationBatchMs = 5;
/** Between two looks at how things are, in milliseconds. */
const lookPeriodMs = 500;
/** How long a count of missing nodes stands, in milliseconds: a mass of verdicts asked for at once counts once. */
const countAgeMsMax = 50;

export function createDispatcher(env: Environment, options: DispatcherOptions): Dispatcher {
  return new DispatcherActor(env, options);
}

class DispatcherActor implements Dispatcher {
  readonly handlers: ServiceHandlers<typeof DispatcherService>;
  readonly #env: Environment;
  readonly #options: DispatcherOptions;
  readonly #ids: Random;
  readonly #jitter: Random;
  readonly #sessions = new Map<string, NodeSession>();
  readonly #histories = new Map<string, RegistrationHistory>();
  readonly #registrations: ProposalBatch<boolean>;
  readonly #downs: ProposalBatch<boolean>;
  readonly #reports: TaskReports;
  readonly #router: AssignmentRouter;
  readonly #ports: SessionPorts;
  readonly #judge;
  readonly #stops: (() => void)[] = [];
  /** When this manager declared nodes DOWN, oldest first, within the window. */
  #downAt: number[] = [];
  #counted = { at: Number.NEGATIVE_INFINITY, missing: 0, nodes: 0 };
  #lookedAt: number;
  #shared: SharedPart;
  #periodMs: number;
  /** Nodes to send a SessionMessage at the end of the batch; "all" when the shared part changed. */
  #untold: Set<string> | "all" | null = null;
  #timers = new Map<"look" | "tell", TimerHandle>();
  #stopped = false;

  constructor(env: Environment, options: DispatcherOptions) {
    this.#env = env;
    this.#options = options;
    this.#ids = env.random.fork("sessions");
    this.#jitter = env.random.fork("heartbeats");
    const batch = { delayMs: registrationBatchMs, done: true };
    this.#registrations = new ProposalBatch(env, { ...batch, name: "registrations", unavailable: null });
    this.#downs = new ProposalBatch(env, { ...batch, name: "downs", unavailable: false });
    this.#reports = new TaskReports(env);
    this.#router = new AssignmentRouter(env, (task, flaw) => this.#reports.refuse(task, flaw));
    this.#periodMs = this.#readPeriod();
    this.#shared = this.#readShared();
    this.#lookedAt = env.clock.now();
    this.#ports = {
      env,
      registrations: this.#registrations,
      downs: this.#downs,
      graceMs: () => this.#graceMs(this.#periodMs + jitterOf(this.#periodMs)),
      unknownGraceMs: () => this.#periodMs * sessionTimes.unknownGraceFactor,
      verdict: () => this.#verdict(),
      message: (session) => this.#message(session),
      announce: (session) => this.#announce(session),
      ended: (session, end) => this.#onEnded(session, end),
      remarks: (nodeId) => this.#remarks(nodeId),
    };
    const { log, metrics } = env.telemetry;
    const machine = dispatcherMachine.provide({
      actions: {
        reportPause: (_, { lateMs }) => log.warn({ lateMs }, "this process was stopped for a while: no node is declared DOWN until the nodes had time to be heard"),
        reportHold: (_, counts) => {
          metrics.counter("muster_mass_down_holds_total", "Times that too many nodes were missing at once to declare them DOWN.").add();
          log.error({ ...counts, holdMs: massDown.holdMs }, "too many nodes are missing at once: declaring none of them DOWN for a while");
        },
        reportRelease: (_, counts) => log.error(counts, "the nodes are still missing after the hold: declaring them DOWN"),
      },
    });
    this.#judge = env.host.start(machine, "dispatcher/judge", { settleMs: this.#graceMs(this.#periodMs) });
    this.handlers = this.#makeHandlers();
    const watch = env.store.watch((commit) => this.#onCommit(commit));
    const heard = env.bus.subscribe(sessionRegistered, ({ data }) => this.#onRegisteredElsewhere(data));
    this.#stops.push(() => watch.unsubscribe(), () => heard.unsubscribe());
    for (const record of env.store.all("session")) this.#adopt(record.id);
    this.#look();
  }

  *sessions(): Iterable<SessionInfo> {
    for (const { nodeId, sessionId, state } of this.#sessions.values()) yield { nodeId, sessionId, state };
  }

  explain(nodeId: string): Reason[] | null {
    return this.#sessions.get(nodeId)?.explain() ?? null;
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    for (const stop of this.#stops) stop();
    for (const timer of this.#timers.values()) this.#env.clock.clearTimeout(timer);
    for (const session of [...this.#sessions.values()]) session.send({ type: "dispatcher.stopped" });
    this.#judge.stop();
    this.#router.stop();
    this.#reports.stop();
    this.#registrations.stop();
    this.#downs.stop();
  }

  #makeHandlers(): ServiceHandlers<typeof DispatcherService> {
    return {
      Session: (request, sink, call) => this.#openSession(request, sink, call),
      Heartbeat: (request, call) => {
        const session = this.#sessionOf(call, request.sessionId);
        const periodMs = this.#nextPeriod();
        session.heartbeat(this.#env.clock.now(), this.#graceMs(periodMs));
        return HeartbeatResponse.create({ period: duration(periodMs) });
      },
      UpdateTaskStatus: (request, call) => this.#reports.update(this.#sessionOf(call, request.sessionId).nodeId, request.updates),
      UpdateVolumeStatus: (request, call) => this.#reports.updateVolumes(this.#sessionOf(call, request.sessionId).nodeId, request.updates),
      Assignments: (request, sink, call) => this.#openStream({ method: "Assignments", sink }, request.sessionId, call),
      Tasks: (request, sink, call) => this.#openStream({ method: "Tasks", sink }, request.sessionId, call),
    };
  }

  /** A resumed session when the id is the node's present one, wherever it was held; a new registration otherwise. */
  #openSession(request: SessionRequest, sink: Sink<SessionMessage>, call: CallContext): void {
    const nodeId = this.#caller(call);
    const { store } = this.#env;
    const node = store.get("node", nodeId);
    if (node === undefined) throw new RpcError(Status.UNKNOWN, "node not found");
    const registrant = { description: request.description, addr: call.peer.address };
    const held = this.#sessions.get(nodeId);
    const record = store.get("session", nodeId);
    const current = held?.sessionId ?? record?.sessionId ?? "";
    if (current !== "" && request.sessionId === current) {
      if (held === undefined) this.#start(nodeId, current, registrant).open(sink, call.signal);
      else {
        held.open(sink, call.signal);
        held.resume(registrant, isNews(node, registrant) || record?.managerId !== this.#env.managerId || record.sessionId !== current);
      }
      return;
    }
    this.#admit(nodeId, registrant.addr, held !== undefined || record !== undefined);
    this.#replace(nodeId);
    this.#start(nodeId, newId(this.#ids), registrant).open(sink, call.signal);
  }

  /** SwarmKit's rate limit; throws UNAVAILABLE. */
  #admit(nodeId: string, address: string, hasSession: boolean): void {
    const history = this.#histories.get(nodeId) ?? noHistory;
    const outcome = registered(history, { at: this.#env.clock.now(), hasSession, address });
    if (outcome.kind === "limited") throw new RpcError(Status.UNAVAILABLE, `node ${nodeId} exceeded rate limit count of registrations`);
    this.#histories.set(nodeId, outcome.history);
  }

  /** Newest wins: what the node had here ends at once. */
  #replace(nodeId: string): void {
    const held = this.#sessions.get(nodeId);
    if (held === undefined) return;
    this.#noteEviction(held);
    held.send({ type: "session.superseded" });
  }

  #start(nodeId: string, sessionId: string, registrant: Registrant): NodeSession {
    const session = new NodeSession(this.#ports, { nodeId, sessionId, adopted: false, registrant });
    this.#sessions.set(nodeId, session);
    return session;
  }

  /** A session that the log gives to this manager, which knows nothing of it: left by its earlier life. */
  #adopt(nodeId: string): void {
    const { store, managerId } = this.#env;
    const record = store.get("session", nodeId);
    const node = store.get("node", nodeId);
    if (record?.managerId !== managerId || node === undefined || this.#sessions.has(nodeId)) return;
    const registrant = { description: null, addr: node.status?.addr ?? "" };
    const session = new NodeSession(this.#ports, { nodeId, sessionId: record.sessionId, adopted: true, registrant });
    session.version = record.meta?.version?.index ?? store.version;
    this.#sessions.set(nodeId, session);
  }

  #openStream(target: StreamTarget, sessionId: string, call: CallContext): void {
    const session = this.#sessionOf(call, sessionId);
    if (session.streams.size >= assignmentLimits.streamsMax) {
      const [oldest] = session.streams;
      oldest?.end(new RpcError(Status.ABORTED, "too many streams of assignments: the oldest ends"));
    }
    const stream = this.#router.open(session.nodeId, sessionId, target, (ended) => session.streams.delete(ended));
    session.streams.add(stream);
    call.signal.addEventListener("abort", () => stream.end(), { once: true });
    if (call.signal.aborted) stream.end();
  }

  #caller(call: CallContext): string {
    if (this.#stopped) throw new RpcError(Status.ABORTED, "dispatcher is stopped");
    const { identity } = call.peer;
    if (identity === null) {
      const why = "rpc error: code = PermissionDenied desc = no client certificates in request";
      throw new RpcError(Status.PERMISSION_DENIED, `Permission denied: unauthorized peer role: ${why}`);
    }
    return identity.nodeId;
  }

  #sessionOf(call: CallContext, sessionId: string): NodeSession {
    const session = this.#sessions.get(this.#caller(call));
    if (session === undefined) throw new RpcError(Status.NOT_FOUND, "node not registered");
    if (session.sessionId !== sessionId) throw new RpcError(Status.INVALID_ARGUMENT, "session invalid");
    return session;
  }

  #onCommit(commit: Commit): void {
    this.#router.onCommit(commit);
    for (const change of commit.changes) {
      switch (change.table) {
        case "session":
          this.#onRecord(change.object.id, change.action === "remove", commit.version);
          break;
        case "node":
          this.#onNode(change.object, change.old, change.action === "remove");
          break;
        case "manager":
          this.#onShared();
          break;
        case "cluster":
          this.#periodMs = this.#readPeriod();
          this.#onShared();
          break;
        default:
      }
    }
  }

  /** The node's Session record changed: the log decides whose the node is. */
  #onRecord(nodeId: string, removed: boolean, version: number): void {
    const held = this.#sessions.get(nodeId);
    if (held === undefined) {
      if (!removed) this.#adopt(nodeId);
      return;
    }
    if (removed) {
      if (held.version > 0) held.send({ type: "session.forgotten" });
      return;
    }
    const record = this.#env.store.get("session", nodeId);
    if (record === undefined) return;
    if (record.sessionId === held.sessionId && record.managerId === this.#env.managerId) held.version = version;
    // Before the own registration is in the log, another's is the older one.
    else if (held.version > 0) this.#supersede(held);
  }

  #onNode(node: Node, old: Node | null, removed: boolean): void {
    const held = this.#sessions.get(node.id);
    if (held === undefined) return;
    if (removed) {
      held.send({ type: "node.removed" });
      return;
    }
    if (node.status?.state !== NodeStatus_State.READY) held.send({ type: "node.doubted" });
    if (old === null || concernsAgent(old, node)) this.#tell(node.id);
  }

  #onShared(): void {
    const shared = this.#readShared();
    if (shared.fingerprint === this.#shared.fingerprint) return;
    this.#shared = shared;
    this.#tell("all");
  }

  /** A hint that comes sooner than the log; the version tells whether it is newer than what is held here. */
  #onRegisteredElsewhere(data: Uint8Array): void {
    let message: SessionRegistered;
    try {
      message = SessionRegistered.decode(data);
    } catch (error) {
      this.#env.telemetry.log.warn({ error: String(error) }, "malformed SessionRegistered: ignored");
      return;
    }
    if (message.managerId === this.#env.managerId) return;
    const held = this.#sessions.get(message.nodeId);
    if (held !== undefined && held.version > 0 && held.version < message.version) this.#supersede(held);
  }

  /** A registration with another manager is newer. Its own session id, taken there, is no other identity's. */
  #supersede(held: NodeSession): void {
    if (this.#env.store.get("session", held.nodeId)?.sessionId !== held.sessionId) this.#noteEviction(held);
    held.send({ type: "session.superseded" });
  }

  #noteEviction(held: NodeSession): void {
    if (!held.isConnected) return;
    const { nodeId } = held;
    const at = this.#env.clock.now();
    const history = evicted(this.#histories.get(nodeId) ?? noHistory, at);
    this.#histories.set(nodeId, history);
    if (!isDuplicate(history, at)) return;
    const { log, metrics } = this.#env.telemetry;
    metrics.counter("muster_duplicate_identities_total", "Evictions of a live session by another holder of the same identity.").add();
    log.warn({ node: nodeId, addresses: history.addresses }, "two live machines seem to hold one node identity: each evicts the other");
  }

  #remarks(nodeId: string): readonly string[] {
    const history = this.#histories.get(nodeId);
    if (history === undefined || !isDuplicate(history, this.#env.clock.now())) return [];
    const from = history.addresses.join(" and ");
    return [`two live machines seem to hold this identity (registrations come from ${from}): remove one, and let it join as a node of its own`];
  }

  #onEnded(session: NodeSession, end: SessionEnd): void {
    const { nodeId } = session;
    if (this.#sessions.get(nodeId) === session) this.#sessions.delete(nodeId);
    if (end === "expired") this.#downAt.push(this.#env.clock.now());
    if (end === "removed") {
      void this.#registrations.add(`session/${nodeId}`, Operation.create({ remove: sessionRemoval(nodeId), sessionId: session.sessionId }), 100);
    }
  }

  #announce(session: NodeSession): void {
    const { bus, managerId } = this.#env;
    const message = { nodeId: session.nodeId, sessionId: session.sessionId, managerId, version: session.version };
    bus.publish(sessionRegistered, SessionRegistered.encode(SessionRegistered.create(message)));
  }

  #message(session: NodeSession): SessionMessage | null {
    const node = this.#env.store.get("node", session.nodeId);
    return node === undefined ? null : sessionMessage(session.sessionId, node, this.#shared);
  }

  /** Whatever changes in one batch makes one message a node. */
  #tell(whom: string | "all"): void {
    if (whom === "all") this.#untold = "all";
    else if (this.#untold !== "all") this.#untold = (this.#untold ?? new Set()).add(whom);
    if (this.#timers.has("tell")) return;
    const tell = (): void => {
      this.#timers.delete("tell");
      const untold = this.#untold;
      this.#untold = null;
      if (untold === "all") for (const session of this.#sessions.values()) session.sendMessage();
      else for (const nodeId of untold ?? []) this.#sessions.get(nodeId)?.sendMessage();
    };
    this.#timers.set("tell", this.#env.clock.setTimeout(tell, assignmentLimits.batchMs));
  }

  /** Looks regularly, so that a pause of this process is noticed and a hold can end. */
  #look(): void {
    const at = this.#env.clock.now();
    this.#feedJudge(at);
    this.#lookedAt = at;
    for (const [nodeId, history] of this.#histories) if (isStale(history, at) && !this.#sessions.has(nodeId)) this.#histories.delete(nodeId);
    this.#env.telemetry.metrics.gauge("muster_sessions", "Sessions that this manager holds.").set(this.#sessions.size);
    this.#timers.set("look", this.#env.clock.setTimeout(() => this.#look(), lookPeriodMs));
  }

  #feedJudge(at: number): void {
    if (at - this.#counted.at > countAgeMsMax) this.#counted = this.#count(at);
    const { missing, nodes } = this.#counted;
    const lateMs = at - this.#lookedAt - lookPeriodMs;
    this.#judge.actor.send({ type: "looked", at, settled: this.#options.settled(), lateMs, missing, nodes });
  }

  #count(at: number): { at: number; missing: number; nodes: number } {
    this.#downAt = this.#downAt.filter((time) => at - time < massDown.windowMs);
    let missing = this.#downAt.length;
    for (const session of this.#sessions.values()) if (session.isMissing(at)) missing += 1;
    return { at, missing, nodes: this.#sessions.size + this.#downAt.length };
  }

  #verdict(): Verdict {
    this.#feedJudge(this.#env.clock.now());
    const snapshot = this.#judge.actor.getSnapshot();
    if (snapshot.hasTag("granting")) return { kind: "granted" };
    const { missing, nodes } = snapshot.context;
    const reason = snapshot.matches("holding")
      ? `${missing} of ${nodes} nodes are missing at once, which is more often a fault of the network or of this manager`
      : "this manager's own link to the bus, the log or its process was not healthy for a whole grace period";
    return { kind: "held", recheckMs: massDown.recheckMs, reason };
  }

  #readShared(): SharedPart {
    const { store, managerId } = this.#env;
    const [cluster] = store.all("cluster");
    const own = { id: managerId, addr: this.#options.addr };
    const shared = sharedPart(own, store.all("manager"), cluster);
    if (cluster !== undefined && cluster.networkBootstrapKeys.length > 0 && shared.keys.length === 0) {
      this.#env.telemetry.log.error({ keys: cluster.networkBootstrapKeys.length }, "the cluster's network keys are not three of each subsystem: not sent, for engines crash on them");
    }
    return shared;
  }

  #readPeriod(): number {
    const [cluster] = this.#env.store.all("cluster");
    const period = cluster?.spec?.dispatcher?.heartbeatPeriod ?? null;
    const ms = period === null ? 0 : period.seconds * 1_000 + period.nanos / 1_000_000;
    // A period of nothing would have every agent heartbeat in a busy loop (trap 8).
    return ms >= 1 ? ms : (this.#options.heartbeatPeriodMs ?? sessionTimes.heartbeatPeriodMs);
  }

  #nextPeriod(): number {
    const jitter = jitterOf(this.#periodMs);
    return this.#periodMs - jitter + this.#jitter.next() * 2 * jitter;
  }

  #graceMs(periodMs: number): number {
    return periodMs * sessionTimes.graceFactor;
  }
}

/** Whether the log must hear of what the node says on resuming. */
function isNews(node: Node, { description, addr }: Registrant): boolean {
  if (node.status?.state !== NodeStatus_State.READY || node.status.addr !== addr) return true;
  if (description === null) return false;
  return node.description === null || !sameBytes(NodeDescription.encode(node.description), NodeDescription.encode(description));
}

function jitterOf(periodMs: number): number {
  return Math.min(sessionTimes.heartbeatJitterMsMax, periodMs / 10);
}

function duration(ms: number): Duration {
  const seconds = Math.floor(ms / 1_000);
  return Duration.create({ seconds, nanos: Math.floor((ms - seconds * 1_000) * 1_000_000) });
}

