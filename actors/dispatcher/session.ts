/** Hosts `machines/dispatcher/session.machine.ts`: one node's registration, its heartbeats, its Session stream and its assignment streams. */
import { isReady } from "../../machines/node.ts";
import {
  Kind,
  NodePatch,
  NodeStatus,
  NodeStatus_State,
  Operation,
  Reason,
  Removal,
  Session,
  StoreObject,
  type NodeDescription,
  type SessionMessage,
} from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import {
  reconnectGraceMs,
  sessionMachine,
  type SessionEnd,
  type SessionEvent,
} from "../../machines/dispatcher/session.machine.ts";
import type { EffectsOf, HostedActor } from "../../runtime/host.ts";
import { RpcError, Status, type Sink, type CallSignal } from "../../runtime/ports/rpc.ts";
import type { AssignmentStream } from "./assignments.ts";
import type { Environment } from "../environment.ts";
import type { Wait as NodeWait } from "../../machines/dispatcher/mass-down-breaker.machine.ts";
import { waitOf, type StatePath, type Wait } from "../../machines/wait-meta.ts";
import type { ProposalBatch } from "../ledger/proposal-batch.ts";
import { HeartbeatTimer } from "./heartbeat-timer.ts";

export type Verdict =
  | { readonly kind: "granted" }
  | { readonly kind: "held"; readonly recheckMs: number; readonly reason: string };

/** A session's interface to its dispatcher. */
export interface SessionPorts {
  readonly env: Environment;
  /** Never gives up: READY and Session records. */
  readonly registrations: ProposalBatch<boolean>;
  /** Gives up when the log is unavailable (answer false): a DOWN must not be written long after its verdict. */
  readonly downs: ProposalBatch<boolean>;
  /** Milliseconds from a sign of life until the node is suspect, for a new registration. */
  graceMs(): number;
  unknownGraceMs(): number;
  verdict(wait: NodeWait): Verdict;
  /** Null when the node was removed. */
  message(session: NodeSession): SessionMessage | null;
  announce(session: NodeSession): void;
  /** The session ended; it is no longer the node's. */
  ended(session: NodeSession, end: SessionEnd): void;
  /** Further warnings about the node for an operator. */
  remarks(nodeId: string): readonly string[];
}

export interface Registrant {
  readonly description: NodeDescription | null;
  /** IP address without port. */
  readonly addr: string;
}

/** Where a session is in its chart. */
interface Place {
  readonly state: StatePath<typeof sessionMachine>;
  readonly standing: "connected" | "missing" | "beginning";
}

/** Approximate encoded size of a registration without its description. */
const registrationBytes = 200;

export class NodeSession {
  static readonly #effects: EffectsOf<typeof sessionMachine, NodeSession> = {
    register() {
      this.#register();
    },
    sendSessionMessage() {
      this.sendMessage();
    },
    announceRegistration() {
      this.#ports.announce(this);
    },
    confirmReady() {
      this.#confirmReady();
    },
    requestVerdict() {
      this.#requestVerdict();
    },
    declareDown() {
      this.#declareDown();
    },
    countHeartbeats({ at, graceMs }) {
      this.#heartbeatTimer.heard(at, graceMs);
      this.#heartbeatTimer.start();
    },
    endSession({ end }) {
      this.#end(end);
    },
  };

  readonly nodeId: string;
  readonly sessionId: string;
  /** Session with another manager that this one continues; empty: none. */
  readonly takenFrom: string;
  /** Version of the log at which this became the node's session here; 0 before. */
  version = 0;
  readonly streams = new Set<AssignmentStream>();
  readonly #ports: SessionPorts;
  readonly #hosted: HostedActor<typeof sessionMachine>;
  #registrant: Registrant;
  #sink: Sink<SessionMessage> | null = null;
  #ended = false;
  readonly #heartbeatTimer: HeartbeatTimer;
  /** Snapshot for which `#place` was computed. */
  #snapshot: object | null = null;
  #lastPlace: Place = { state: "starting", standing: "beginning" };

  constructor(
    ports: SessionPorts,
    options: { nodeId: string; sessionId: string; takenFrom: string; adopted: boolean; registrant: Registrant },
  ) {
    const { env } = ports;
    this.nodeId = options.nodeId;
    this.sessionId = options.sessionId;
    this.takenFrom = options.takenFrom;
    this.#ports = ports;
    this.#registrant = options.registrant;
    const input = {
      nodeId: this.nodeId,
      sessionId: this.sessionId,
      at: env.clock.monotonic(),
      adopted: options.adopted,
      graceMs: ports.graceMs(),
      unknownGraceMs: ports.unknownGraceMs(),
    };
    this.#heartbeatTimer = new HeartbeatTimer(env.clock, input, () => this.send({ type: "heartbeats.missed" }));
    this.#hosted = env.host.start(sessionMachine, `session/${this.nodeId}`, input, {
      effects: NodeSession.#effects,
      self: this,
    });
  }

  send(event: SessionEvent): void {
    this.#hosted.send(event);
  }

  /** Hot path: stores two numbers, unless the chart has to know. */
  heartbeat(at: number, graceMs: number): void {
    this.#heartbeatTimer.heard(at, graceMs);
    if (this.#place().standing !== "connected") this.send({ type: "heartbeat", at, graceMs });
  }

  /** Another call of the node: a sign of life that does not change when the next heartbeat is due. */
  heard(at: number): void {
    this.heartbeat(at, this.#heartbeatTimer.graceMs);
  }

  /** A Session call of this session. The newest stream wins. */
  open(sink: Sink<SessionMessage>, signal: CallSignal): void {
    this.#sink?.end(new RpcError(Status.ABORTED, "node must disconnect"));
    this.#sink = sink;
    const onAbort = (): void => {
      if (this.#sink !== sink) return;
      this.#sink = null;
      this.send({
        type: "stream.broken",
        at: this.#ports.env.clock.monotonic(),
        graceMs: this.#heartbeatTimer.graceMs,
      });
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  }

  /** The agent returned with its session id; `changed` when its data must be written to the log. */
  resume(registrant: Registrant, changed: boolean): void {
    this.#registrant = registrant;
    this.send({
      type: "session.resumed",
      at: this.#ports.env.clock.monotonic(),
      graceMs: this.#ports.graceMs(),
      changed,
    });
  }

  /** XState's state value as a path, such as `serving.connected`. */
  get state(): StatePath<typeof sessionMachine> {
    return this.#place().state;
  }

  get isConnected(): boolean {
    return this.#place().standing === "connected";
  }

  /** Whether the node is missing: disconnected, or one and a half periods without a heartbeat. */
  isMissing(at: number): boolean {
    const { standing } = this.#place();
    return (
      standing === "missing" ||
      (standing === "connected" && at - this.#heartbeatTimer.heardAt > this.#heartbeatTimer.graceMs / 2)
    );
  }

  /** Read at each heartbeat, and for all sessions once a second: computed once per transition. */
  #place(): Place {
    const { snapshot } = this.#hosted;
    if (snapshot !== this.#snapshot) {
      const { value } = snapshot;
      const missing = snapshot.hasTag("missing") ? "missing" : "beginning";
      this.#snapshot = snapshot;
      this.#lastPlace = {
        state: typeof value === "string" ? value : `serving.${value.serving}`,
        standing: snapshot.matches({ serving: "connected" }) ? "connected" : missing,
      };
    }
    return this.#lastPlace;
  }

  sendMessage(): void {
    if (this.#sink === null || this.version === 0) return;
    const message = this.#ports.message(this);
    if (message !== null) this.#sink.write(message);
  }

  explain(): Reason[] {
    const { context } = this.#hosted.snapshot;
    const { state } = this;
    const { heardAt, dueAt: heartbeatBy } = this.#heartbeatTimer;
    const tried = this.#ports.remarks(this.nodeId);
    const { clock } = this.#ports.env;
    /** Session times are monotonic; readers want the time of day. */
    const timeOf = (at: number) => timestampOf(clock.now() + at - clock.monotonic());
    const wait = waitOf(sessionMachine, state);
    const reason = (since: number, deadline: number | null, atDeadline = "gives up", words: Partial<Wait> = {}) => [
      Reason.create({
        ...wait,
        ...words,
        since: timeOf(since),
        deadline: deadline === null ? null : timeOf(deadline),
        atDeadline,
        tried,
      }),
    ];
    switch (state) {
      case "registering":
        return reason(context.linkAt, null);
      case "adopted":
        return reason(context.linkAt, context.linkAt + context.unknownGraceMs);
      case "serving.disconnected":
        return reason(context.linkAt, Math.min(context.linkAt + reconnectGraceMs(context.graceMs), heartbeatBy));
      case "serving.connected": {
        const silentMs = clock.monotonic() - heardAt;
        if (silentMs <= this.#heartbeatTimer.graceMs / 2) return reason(heardAt, heartbeatBy, "suspected");
        return reason(heardAt, heartbeatBy, "suspected", {
          waitingFor: `a heartbeat of the node, which has been silent for ${Math.round(silentMs / 1_000)} s: heartbeats are overdue`,
          wokenBy: "a heartbeat; else the node is suspected to be down",
        });
      }
      case "suspect":
      case "checking": {
        const held = context.heldBecause === "" ? "" : `; held back because ${context.heldBecause}`;
        const asked = context.heldBecause === "" ? heartbeatBy : context.heldAt;
        return reason(heardAt, asked + context.recheckMs, "is checked", { waitingFor: wait.waitingFor + held });
      }
      default:
        return reason(heardAt, null);
    }
  }

  #register(): void {
    const { env, registrations } = this.#ports;
    const { description, addr } = this.#registrant;
    const patch = NodePatch.create({
      id: this.nodeId,
      description,
      status: NodeStatus.create({ state: NodeStatus_State.READY, addr }),
    });
    const { managerId } = env;
    const { nodeId: id, sessionId, takenFrom } = this;
    const record = Session.create({ id, sessionId, managerId, takenFrom });
    const bytes = registrationBytes + descriptionBytes(description);
    void registrations.add(`node/${this.nodeId}`, Operation.create({ node: patch }), bytes);
    registrations
      .add(
        `session/${this.nodeId}`,
        Operation.create({ put: StoreObject.create({ session: record }) }),
        registrationBytes,
      )
      .then(
        () => this.#onRegistered(),
        () => {},
      );
  }

  /** Decides by the log's current state, not by the request. */
  #onRegistered(): void {
    if (this.#ended) return;
    const { env } = this.#ports;
    const record = env.store.get("session", this.nodeId);
    if (env.store.get("node", this.nodeId) === undefined) this.send({ type: "node.removed" });
    else if (record?.sessionId === this.sessionId && record.managerId === env.managerId) {
      // The store has the description from here on; a new registration brings another.
      this.#registrant = { description: null, addr: this.#registrant.addr };
      this.send({ type: "registration.committed", at: env.clock.monotonic(), graceMs: this.#ports.graceMs() });
    } else this.send({ type: "session.superseded" });
  }

  #confirmReady(): void {
    const { env, registrations } = this.#ports;
    const node = env.store.get("node", this.nodeId);
    if (node === undefined || isReady(node)) return;
    const status = NodeStatus.create({
      state: NodeStatus_State.READY,
      addr: node.status?.addr ?? this.#registrant.addr,
    });
    const operation = Operation.create({
      node: NodePatch.create({ id: this.nodeId, status }),
      sessionId: this.sessionId,
    });
    void registrations.add(`ready/${this.nodeId}`, operation, registrationBytes);
  }

  #requestVerdict(): void {
    const verdict = this.#ports.verdict(this.#wait());
    if (verdict.kind === "granted") this.send({ type: "verdict.granted" });
    else
      this.send({
        type: "verdict.held",
        at: this.#ports.env.clock.monotonic(),
        recheckMs: verdict.recheckMs,
        reason: verdict.reason,
      });
  }

  /** The unsuccessful wait that the verdict judges. */
  #wait(): NodeWait {
    const { adopted, connected, linkAt, unknownGraceMs } = this.#hosted.snapshot.context;
    const { graceMs, heardAt } = this.#heartbeatTimer;
    const since = Math.max(heardAt, linkAt);
    if (connected) return { since, graceMs };
    return { since, graceMs: adopted ? unknownGraceMs : Math.min(reconnectGraceMs(graceMs), graceMs) };
  }

  #declareDown(): void {
    const { env, downs } = this.#ports;
    const status = NodeStatus.create({
      state: NodeStatus_State.DOWN,
      message: "heartbeat failure",
      addr: env.store.get("node", this.nodeId)?.status?.addr ?? "",
    });
    const { sessionId } = this;
    env.telemetry.log.warn({ node: this.nodeId, session: sessionId }, "node is missing: declaring it DOWN");
    void downs.add(
      `node/${this.nodeId}`,
      Operation.create({ node: NodePatch.create({ id: this.nodeId, status }), sessionId }),
      registrationBytes,
    );
    downs
      .add(
        `session/${this.nodeId}`,
        Operation.create({ remove: sessionRemoval(this.nodeId), sessionId }),
        registrationBytes,
      )
      .then(
        (reached) => this.#onDown(reached),
        () => {},
      );
  }

  #onDown(reached: boolean): void {
    if (this.#ended) return;
    const { env } = this.#ports;
    const record = env.store.get("session", this.nodeId);
    if (record === undefined) this.send({ type: "down.committed" });
    else if (record.sessionId !== this.sessionId) this.send({ type: "down.overtaken" });
    else {
      const reason = reached ? "the log did not accept it" : "no leader could be reached";
      this.send({ type: "down.unavailable", at: env.clock.monotonic(), recheckMs: 1_000, reason });
    }
  }

  #end(end: SessionEnd): void {
    this.#ended = true;
    this.#heartbeatTimer.stop();
    const error = endError(end, this.nodeId);
    this.#sink?.end(error);
    this.#sink = null;
    for (const stream of this.streams) stream.end(error);
    this.streams.clear();
    this.#hosted.stop();
    this.#ports.ended(this, end);
  }
}

/** Whether an agent that sends `id` means this session: it sends the previous id until it has received this one. S5 */
export function isCalled(session: { readonly sessionId: string; readonly takenFrom: string }, id: string): boolean {
  return id !== "" && (session.sessionId === id || session.takenFrom === id);
}

export function sessionRemoval(nodeId: string): Removal {
  return Removal.create({ kind: Kind.KIND_SESSION, id: nodeId });
}

/** The error for a caller without a session or whose session ended (worker protocol §2.2). */
function endError(end: SessionEnd, nodeId: string): RpcError {
  switch (end) {
    case "expired":
    case "forgotten":
      return new RpcError(Status.NOT_FOUND, "node not registered");
    case "replaced":
      return new RpcError(Status.INVALID_ARGUMENT, "session invalid");
    case "removed":
      return new RpcError(Status.PERMISSION_DENIED, `Permission denied: node ${nodeId} was removed from swarm`);
    case "stopped":
      return new RpcError(Status.ABORTED, "node must disconnect");
  }
}

/** Descriptions differ mostly in the number of plugins and labels. */
function descriptionBytes(description: NodeDescription | null): number {
  if (description === null) return 0;
  const { engine, tlsInfo } = description;
  const labels = Object.entries(engine?.labels ?? {}).reduce(
    (sum, [key, value]) => sum + key.length + value.length + 8,
    0,
  );
  return (
    300 +
    40 * (engine?.plugins.length ?? 0) +
    labels +
    (tlsInfo?.trustRoot.length ?? 0) +
    (tlsInfo?.certIssuerPublicKey.length ?? 0)
  );
}
