/**
 * SwarmKit's Dispatcher service, on every manager: everything between the nodes and the store. Each registered node is a
 * session actor, each open stream an assignments actor; the dispatcher's own machine judges whether missing nodes may be
 * declared DOWN. One watcher of the store serves them all.
 */
import {
  HeartbeatResponse,
  NodeStatus_State,
  Operation,
  Reason,
  SessionRegistered,
  type DispatcherService,
  type Node,
  type SessionMessage,
  type SessionRequest,
} from "../../proto/gen/messages.ts";
import { durationMs, durationOf } from "../../proto/time.ts";
import { jitterMs, nextHeartbeatMs } from "../../machines/dispatcher/heartbeat.ts";
import type { Wait } from "../../machines/dispatcher/mass-down-breaker.machine.ts";
import { assignmentLimits } from "../../machines/dispatcher/assignments.machine.ts";
import { newerSession } from "../../machines/agent/session-format.ts";
import { describedAt } from "../../machines/node.ts";
import { sessionTimes, type SessionEnd } from "../../machines/dispatcher/session.machine.ts";
import { nodeWatchMachine } from "../../machines/dispatcher/node-watch.machine.ts";
import { readmission } from "../../machines/dispatcher/readmission.ts";
import { waitOf } from "../../machines/wait-meta.ts";
import { inTrace } from "../../runtime/observation/cause.ts";
import { newId } from "../../runtime/ids.ts";
import type { BusMessage, Random } from "../../runtime/ports/index.ts";
import { RpcError, Status, type CallContext, type ServiceHandlers, type Sink } from "../../runtime/ports/rpc.ts";
import type { Commit } from "../../runtime/store/store.ts";
import { sessionRegistered } from "../../runtime/subjects.ts";
import { AssignmentRouter, type StreamTarget } from "./assignments.ts";
import { busMessage } from "../bus-message.ts";
import { commit } from "../control/write.ts";
import { sentence } from "../sentence.ts";
import type { Environment, Running } from "../environment.ts";
import { MassDownBreaker, type NodeTrouble } from "./mass-down-breaker.ts";
import { ProposalBatch } from "../ledger/proposal-batch.ts";
import { Descriptions, isNews } from "./descriptions.ts";
import { RegistrationHistories } from "./registration-histories.ts";
import { NodeSession, isCalled, sessionRemoval, type SessionPorts, type Verdict } from "./session.ts";
import { SessionMessages } from "./session-messages.ts";
import { TaskReports } from "./task-reports.ts";

export interface DispatcherOptions {
  /** Own host:port for workers; always in the managers list. */
  readonly addr: string;
  /**
   * True while the own link to the bus and the log are healthy. No node is declared DOWN unless they were healthy for a whole
   * grace period, and no session is resumed from memory while they are not. True does not imply that the replica is at the
   * log's end: S5 does not depend on that.
   */
  readonly settled: () => boolean;
  /** For how long the node has waited, in milliseconds, that has waited longest for this process to take its connection or call. */
  readonly nodesWaitMs: () => number;
  /** Used while the cluster object sets no period, in milliseconds. */
  readonly heartbeatPeriodMs?: number;
}

export interface SessionInfo {
  readonly nodeId: string;
  readonly sessionId: string;
  /** State of its machine, such as `serving.connected`. */
  readonly state: string;
}

interface Dispatcher extends Running {
  readonly handlers: ServiceHandlers<typeof DispatcherService>;
  /** The sessions that this manager holds. */
  sessions(): Iterable<SessionInfo>;
  /** Why the node is waiting, as far as this manager knows; empty when the node does not exist. */
  explain(nodeId: string): readonly Reason[];
  /** State of the node's session here, such as `serving.connected`; empty when this manager holds none. */
  stateOf(nodeId: string): string;
  /** This manager's view of its nodes, for its beats; also counts sessions by state. */
  trouble(): NodeTrouble;
  /** Ends all sessions, and rejects new ones until `serveNodes`: this manager is cut off from the log, and others are not. */
  sendNodesAway(): void;
  /** Adopts the sessions that the log still assigns to this manager, and accepts new ones. */
  serveNodes(): void;
  /** Whether a missing node may be declared DOWN: for the leader's watch over nodes without a session. */
  verdict(wait: Wait): Verdict;
}

/**
 * How long the first registration of a batch waits for others, in milliseconds: a thousand joins must not become a thousand
 * proposals.
 */
const registrationBatchMs = 5;

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
  readonly #histories: RegistrationHistories;
  readonly #descriptions: Descriptions;
  readonly #registrations: ProposalBatch<boolean>;
  readonly #downs: ProposalBatch<boolean>;
  readonly #reports: TaskReports;
  readonly #router: AssignmentRouter;
  readonly #ports: SessionPorts;
  readonly #breaker: MassDownBreaker;
  readonly #messages: SessionMessages;
  readonly #stops: (() => void)[] = [];
  #periodMs: number;
  #stopped = false;
  #isApart = false;

  constructor(env: Environment, options: DispatcherOptions) {
    this.#env = env;
    this.#options = options;
    this.#ids = env.random.fork("sessions");
    this.#jitter = env.random.fork("heartbeats");
    const batch = { delayMs: registrationBatchMs, done: true };
    this.#registrations = new ProposalBatch(env, { ...batch, name: "registrations", unavailable: null });
    this.#downs = new ProposalBatch(env, { ...batch, name: "downs", unavailable: false });
    this.#reports = new TaskReports(env);
    this.#histories = new RegistrationHistories(env);
    this.#descriptions = new Descriptions(env);
    this.#router = new AssignmentRouter(env, (task, flaw) => this.#reports.refuse(task, flaw));
    this.#periodMs = this.#readPeriod();
    this.#messages = new SessionMessages(env, options.addr, this.#sessions);
    this.#ports = {
      env,
      registrations: this.#registrations,
      downs: this.#downs,
      graceMs: () => this.#graceMs(this.#periodMs + jitterMs(this.#periodMs)),
      unknownGraceMs: () => this.#periodMs * sessionTimes.unknownGraceFactor,
      verdict: (wait) => this.#breaker.verdict(wait),
      message: (session) => this.#messages.make(session),
      announce: (session) => this.#announce(session),
      ended: (session, end) => this.#onEnded(session, end),
      remarks: (nodeId) => this.#histories.remarks(nodeId),
    };
    this.#breaker = new MassDownBreaker(env, {
      settleMs: this.#graceMs(this.#periodMs),
      settled: options.settled,
      nodesWaitMs: options.nodesWaitMs,
      sessions: () => this.#sessions.values(),
    });
    this.handlers = this.#makeHandlers();
    const watch = env.store.watch((commit) => this.#onCommit(commit));
    const heard = env.bus.subscribe(sessionRegistered, (message) => this.#onRegisteredElsewhere(message));
    this.#stops.push(
      () => watch.unsubscribe(),
      () => heard.unsubscribe(),
    );
    for (const record of env.store.all("session")) this.#adopt(record.id);
  }

  *sessions(): Iterable<SessionInfo> {
    for (const { nodeId, sessionId, state } of this.#sessions.values()) yield { nodeId, sessionId, state };
  }

  stateOf(nodeId: string): string {
    return this.#sessions.get(nodeId)?.state ?? "";
  }

  trouble(): NodeTrouble {
    return this.#breaker.trouble();
  }

  verdict(wait: Wait): Verdict {
    return this.#breaker.verdict(wait);
  }

  sendNodesAway(): void {
    this.#isApart = true;
    for (const session of this.#sessions.values()) session.send({ type: "dispatcher.stopped" });
  }

  serveNodes(): void {
    this.#isApart = false;
    for (const record of this.#env.store.all("session")) this.#adopt(record.id);
  }

  explain(nodeId: string): readonly Reason[] {
    const held = this.#sessions.get(nodeId);
    if (held !== undefined) return held.explain();
    const { store } = this.#env;
    const node = store.get("node", nodeId);
    if (node === undefined) return [];
    const record = store.get("session", nodeId);
    const since = node.meta?.updatedAt ?? null;
    const tried = this.#histories.remarks(nodeId);
    if (record !== undefined && store.get("manager", record.managerId)?.alive !== false) {
      return [
        Reason.create({
          waitingFor: `nothing: the node is served by manager ${record.managerId}`,
          wokenBy: "a heartbeat there",
          since,
          tried,
        }),
      ];
    }
    if (record !== undefined) {
      const facts = { "its manager": `its manager ${record.managerId}` };
      return [Reason.create({ ...waitOf(nodeWatchMachine, "unknown", facts), since, tried })];
    }
    const wait = waitOf(nodeWatchMachine, "down");
    return [Reason.create({ ...wait, waitingFor: wait.waitingFor + downReason(node), since, tried })];
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    for (const stop of this.#stops) stop();
    for (const session of this.#sessions.values()) session.send({ type: "dispatcher.stopped" });
    this.#breaker.stop();
    this.#messages.stop();
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
        const nowMs = this.#env.clock.monotonic();
        const periodMs = nextHeartbeatMs(nowMs, this.#periodMs, this.#jitter.next());
        session.heartbeat(nowMs, this.#graceMs(periodMs));
        return HeartbeatResponse.create({ period: durationOf(periodMs) });
      },
      UpdateTaskStatus: (request, call) =>
        inTrace(call.traceparent, () =>
          this.#reports.update(this.#heard(call, request.sessionId).nodeId, request.updates, call.traceparent),
        ),
      UpdateVolumeStatus: (request, call) =>
        this.#reports.updateVolumes(this.#heard(call, request.sessionId).nodeId, request.updates),
      Assignments: (request, sink, call) => this.#openStream({ method: "Assignments", sink }, request.sessionId, call),
      Tasks: (request, sink, call) => this.#openStream({ method: "Tasks", sink }, request.sessionId, call),
    };
  }

  /**
   * Resumes a session if the id is that of the one held here; else opens a new one, which is registered in the log first. The
   * new session continues the agent's session with another manager if the id is that one's. S5
   */
  #openSession(request: SessionRequest, sink: Sink<SessionMessage>, call: CallContext): void {
    const nodeId = this.#caller(call);
    const { store } = this.#env;
    const node = store.get("node", nodeId);
    if (node === undefined) {
      this.#readmit(request, sink, call);
      return;
    }
    const newer = newerSession(request.description);
    if (newer !== null) throw new RpcError(Status.FAILED_PRECONDITION, newer);
    const description = describedAt(request.description, call.peer.site);
    this.#descriptions.admit(node, description);
    const registrant = { description, addr: call.peer.address };
    const held = this.#sessions.get(nodeId);
    const record = store.get("session", nodeId);
    if (held !== undefined && isCalled(held, request.sessionId)) {
      held.open(sink, call.signal);
      const isOwn = record?.managerId === this.#env.managerId && record.sessionId === held.sessionId;
      held.resume(registrant, isNews(node, registrant) || !isOwn || !this.#options.settled());
      return;
    }
    const continues = record !== undefined && isCalled(record, request.sessionId);
    if (!continues) {
      this.#histories.admit(nodeId, {
        address: registrant.addr,
        hasSession: held !== undefined || record !== undefined,
      });
      if (held?.isConnected === true) this.#histories.noteEviction(nodeId);
      this.#messages.introduce(nodeId);
    }
    // The newest wins: the node's earlier session here ends at once.
    held?.send({ type: "session.superseded" });
    const sessionId = newId(this.#ids);
    // Only ids of our form are kept in the log: an agent may send anything.
    const takenFrom = request.sessionId.length === sessionId.length ? request.sessionId : "";
    const session = new NodeSession(this.#ports, { nodeId, sessionId, takenFrom, adopted: false, registrant });
    this.#hold(session);
    session.open(sink, call.signal);
  }

  /** Creates again a node that a lost part of the log had, and opens its session. Throws for any other node. */
  #readmit(request: SessionRequest, sink: Sink<SessionMessage>, call: CallContext): void {
    const { store, telemetry } = this.#env;
    const node = this.#caller(call);
    const unknown = { id: node, certifiedFromMs: call.peer.certifiedFromMs };
    const [cluster] = store.all("cluster");
    const operation = cluster === undefined ? null : readmission(unknown, cluster, store.all("manager"));
    if (operation === null) throw new RpcError(Status.UNKNOWN, "node not found");
    const reopen = (): void => {
      if (!call.signal.aborted) this.#openSession(request, sink, call);
    };
    commit(this.#env, call, operation)
      .then(
        () => {
          telemetry.log.warn({ node }, "readmitting a node that joined in lost records of the log, as a worker");
          reopen();
        },
        (error: unknown) => {
          // Another stream of the node may have created it first.
          if (store.get("node", node) === undefined) throw error;
          reopen();
        },
      )
      .catch((error: unknown) => {
        sink.end(error instanceof RpcError ? error : new RpcError(Status.UNAVAILABLE, sentence(error)));
      });
  }

  /** Adopts a session that the log assigns to this manager and that it does not hold: one of an earlier process. */
  #adopt(nodeId: string): void {
    const { store, managerId } = this.#env;
    const record = store.get("session", nodeId);
    const node = store.get("node", nodeId);
    if (record?.managerId !== managerId || node === undefined || this.#sessions.has(nodeId) || this.#isApart) return;
    const registrant = { description: null, addr: node.status?.addr ?? "" };
    const { sessionId, takenFrom } = record;
    const session = new NodeSession(this.#ports, { nodeId, sessionId, takenFrom, adopted: true, registrant });
    session.version = record.meta?.version?.index ?? store.version;
    this.#hold(session);
  }

  #hold(session: NodeSession): void {
    this.#sessions.set(session.nodeId, session);
    this.#showCount();
  }

  #showCount(): void {
    this.#env.telemetry.metrics.gauge("muster_sessions", "Sessions that this manager holds.").set(this.#sessions.size);
  }

  #openStream(target: StreamTarget, sessionId: string, call: CallContext): void {
    const session = this.#sessionOf(call, sessionId);
    if (session.streams.size >= assignmentLimits.streamsMax) {
      const [oldest] = session.streams;
      oldest?.end(new RpcError(Status.ABORTED, "too many assignment streams: closing the oldest"));
    }
    const stream = this.#router.open(session.nodeId, sessionId, target, (ended) => session.streams.delete(ended));
    session.streams.add(stream);
    call.signal.addEventListener("abort", () => stream.end(), { once: true });
    if (call.signal.aborted) stream.end();
  }

  #caller(call: CallContext): string {
    if (this.#stopped) throw new RpcError(Status.ABORTED, "dispatcher is stopped");
    if (this.#isApart)
      throw new RpcError(Status.UNAVAILABLE, "this manager is cut off from the log: register with another");
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

  /** A node that reports is alive, even if its heartbeat is queued behind its reports. */
  #heard(call: CallContext, sessionId: string): NodeSession {
    const session = this.#sessionOf(call, sessionId);
    session.heard(this.#env.clock.monotonic());
    return session;
  }

  #onCommit(commit: Commit): void {
    this.#router.onCommit(commit);
    for (const change of commit.changes) {
      switch (change.table) {
        case "session":
          this.#onRecord(change.object.id, commit.version);
          break;
        case "node":
          this.#onNode(change.object, change.old, change.action === "remove");
          break;
        case "manager":
          this.#messages.onShared();
          break;
        case "cluster":
          this.#periodMs = this.#readPeriod();
          this.#messages.onShared();
          break;
        default:
      }
    }
  }

  /** The node's Session record changed: the log decides which manager has the node. */
  #onRecord(nodeId: string, version: number): void {
    const held = this.#sessions.get(nodeId);
    const record = this.#env.store.get("session", nodeId);
    if (held === undefined) this.#adopt(nodeId);
    else if (record?.sessionId === held.sessionId && record.managerId === this.#env.managerId) held.version = version;
    // Until the own registration is in the log, the record is older than it.
    else if (held.version === 0) return;
    else if (record === undefined) held.send({ type: "session.forgotten" });
    else {
      this.#supersede(held);
      // During a replay of the log, one earlier session follows another.
      this.#adopt(nodeId);
    }
  }

  #onNode(node: Node, old: Node | null, removed: boolean): void {
    this.#breaker.onNode(removed ? null : node, old);
    this.#messages.onAnyNode(removed ? null : node, old ?? node);
    const held = this.#sessions.get(node.id);
    if (held === undefined) return;
    if (removed) {
      held.send({ type: "node.removed" });
      return;
    }
    if (node.status?.state !== NodeStatus_State.READY) held.send({ type: "node.doubted" });
    this.#messages.onNode(node, old);
  }

  /** A hint that arrives before the log; its version shows whether it is newer than the session held here. */
  #onRegisteredElsewhere(heard: BusMessage): void {
    const message = busMessage(this.#env, SessionRegistered, heard);
    if (message === null || message.managerId === this.#env.managerId) return;
    const held = this.#sessions.get(message.nodeId);
    if (held !== undefined && held.version > 0 && held.version < message.version) this.#supersede(held);
  }

  /**
   * A registration with another manager is newer. If it continues the session held here, it is the same machine, not a
   * duplicate identity.
   */
  #supersede(held: NodeSession): void {
    const { nodeId, sessionId } = held;
    const record = this.#env.store.get("session", nodeId);
    if (held.isConnected && (record === undefined || !isCalled(record, sessionId)))
      this.#histories.noteEviction(nodeId);
    held.send({ type: "session.superseded" });
  }

  #onEnded(session: NodeSession, end: SessionEnd): void {
    const { nodeId } = session;
    if (this.#sessions.get(nodeId) === session) {
      this.#sessions.delete(nodeId);
      this.#reports.forget(nodeId);
    }
    this.#showCount();
    if (end === "removed") {
      void this.#registrations.add(
        `session/${nodeId}`,
        Operation.create({ remove: sessionRemoval(nodeId), sessionId: session.sessionId }),
        100,
      );
    }
  }

  #announce(session: NodeSession): void {
    const { bus, managerId } = this.#env;
    const message = { nodeId: session.nodeId, sessionId: session.sessionId, managerId, version: session.version };
    bus.publish(sessionRegistered, SessionRegistered.encode(SessionRegistered.create(message)));
  }

  #readPeriod(): number {
    const [cluster] = this.#env.store.all("cluster");
    const ms = durationMs(cluster?.spec?.dispatcher?.heartbeatPeriod ?? null, 0);
    // A period of 0 would make every agent heartbeat in a busy loop (trap 8).
    return ms >= 1 ? ms : (this.#options.heartbeatPeriodMs ?? sessionTimes.heartbeatPeriodMs);
  }

  #graceMs(periodMs: number): number {
    return periodMs * sessionTimes.graceFactor;
  }
}

/** The reason for which the node was declared DOWN, as the end of a sentence; empty for any other node. */
function downReason({ status }: Node): string {
  if (status?.state !== NodeStatus_State.DOWN) return "";
  return status.message === "" ? ": the node is DOWN" : `: the node is DOWN (${status.message})`;
}
