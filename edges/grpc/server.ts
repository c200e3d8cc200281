/**
 * The gRPC server: a table of methods, the check of who may call them, and the connections. It is our own layer, down to the
 * HTTP/2 frames, because an engine reconnects without ALPN after its first certificate renewal, which Node's secure HTTP/2
 * server refuses, and because answering a heartbeat must be cheap.
 *
 * G1: no handler runs for a caller that `roles.ts` does not admit, or whose role is too low for the request (`users.ts`).
 * G2: replaced credentials apply from the next handshake on; no connection ends because of them, unless the roots have
 *     changed and the new ones do not vouch for its caller.
 * G3: a call continues only while `roles.ts` would admit it. When its caller's standing changes, or its certificate expires
 *     or its root is no longer trusted, the connection ends (certified-connections.ts), and each call ends with the error that
 *     it would get if it started now. Exception: a user's change of that same user (US3) is answered.
 * G4: peers without a valid certificate have separate, small budgets, and never take the place of peers with one
 *     (`admission/limits.ts`).
 */
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import type { MethodDescriptor } from "../../proto/codec.ts";
import { assert } from "../../lib/assert.ts";
import { DispatcherService } from "../../proto/gen/messages.ts";
import type { Service } from "../../runtime/calls/served.ts";
import type { Clock, Gauge, Telemetry } from "../../runtime/ports/index.ts";
import { Status, type CallSignal, type Peer, type ServiceHandlers } from "../../runtime/ports/rpc.ts";
import { createAdmission, type Admission, type AdmissionLimits } from "./admission/admission.ts";
import type { CallClass } from "./admission/call-turns.ts";
import { Crowd, type Member } from "./admission/crowd.ts";
import { sourceOf } from "../../runtime/source-of.ts";
import { localCaller } from "./caller.ts";
import type { Carrier } from "./carried.ts";
import { parseCaller } from "./calling-process.ts";
import { CertifiedConnections, type EndReason } from "./certified-connections.ts";
import { isVouchedFor } from "./cross-signed.ts";
import { erase } from "./erase.ts";
import { refusesForeign } from "./foreign-request.ts";
import { framedOnce } from "./framing.ts";
import { BudgetError, ConnectionError, anonymousLimits, knownLimits } from "./http2/protocol.ts";
import { ServerConnection } from "./http2/server-connection.ts";
import type { RequestHeaders } from "./http2/request-headers.ts";
import type { Http2Stream } from "./http2/stream.ts";
import {
  handshakeTimeoutMs,
  listenTls,
  listenUnix,
  type Credentials,
  type TlsListener,
  type UnixListener,
} from "./listener.ts";
import { messageBytesMaxDefault, requestBytesMax } from "./message-limits.ts";
import { isForNodes, NodeCalls } from "./node-calls.ts";
import { OwnCalls } from "./own-calls.ts";
import { MethodMetrics, ServerMetrics } from "./method-metrics.ts";
import {
  accessByPath,
  authorize,
  certifiedId,
  isRole,
  standingOf,
  type Access,
  type Caller,
  type Membership,
} from "./roles.ts";
import { ServerCall, refuse, type ServedMethod } from "./server-call.ts";
import { parseTimeout } from "./status.ts";
import { changesCaller, forUsers } from "./users.ts";

export type { Credentials } from "./listener.ts";

/** Time for a peer whose connection ends to read why, in milliseconds; then the socket is closed. */
const endGraceMs = 1_000;

/** Timeout until the answer to users who changed themselves (US3) is on disk, in milliseconds. */
const changeGraceMs = 10_000;

/** Why a certificate is not accepted, in the words used where OpenSSL rejects it. */
const rejections: Readonly<Record<EndReason, string | null>> = {
  standing: null,
  expired: "CERT_HAS_EXPIRED",
  root: "no root of the cluster vouches for it any longer",
};

interface GrpcServerOptions {
  readonly telemetry: Telemetry;
  /** Maximum size of a request message, in bytes. */
  readonly messageBytesMax?: number;
  /** The limits that all ports of the process share; if absent, the server creates its own. */
  readonly admission?: Admission;
}

interface ListenTlsOptions extends Membership {
  readonly host: string;
  /** 0 chooses a free port. */
  readonly port: number;
  readonly credentials: Credentials;
  /** Decides when certificates expire. */
  readonly clock: Clock;
}

/** A user who has logged in within this process. */
interface LocalUser {
  readonly name: string;
  /** Identifies the password: see `Membership.userRole`. */
  readonly mark: string;
  /** IP address of the user. */
  readonly address: string;
  /** Time until the login ends, in milliseconds. */
  readonly leftMs: number;
}

/** Whose limits a connection has: `local` is the control socket. */
type Kind = "anonymous" | "known" | "local";

interface Connection extends Member {
  readonly http2: ServerConnection;
  readonly kind: Kind;
  /** The source it is counted under: a node's id, a user's tag, or an address. */
  readonly source: string;
  caller: Caller;
  readonly membership: Membership;
  /** Null on the control socket. */
  readonly certified: CertifiedConnections<Connection> | null;
  /** Calls whose handler runs or will run. */
  readonly calls: Set<ServerCall>;
  /** Time of its last complete request, or of the connect; from `performance.now`. */
  usefulAt: number;
}

interface TableEntry extends ServedMethod {
  readonly access: Access;
  /** Null: its calls are handled as they arrive. */
  readonly turn: CallClass | null;
}

/** Calls of nodes that wait for their turn when the process is overloaded. Heartbeats and reports do not. */
const turnsOfNodes: ReadonlyMap<string, CallClass> = new Map<string, CallClass>([
  [DispatcherService.methods.Assignments.path, "assignments"],
  [DispatcherService.methods.Tasks.path, "assignments"],
  [DispatcherService.methods.Session.path, "registrations"],
]);

/** The control socket belongs to no organization, and none of its callers has an identity that could be removed. */
const localMembership: Membership = {
  organization: () => "",
  isRemoved: () => false,
  onChange: () => ({ unsubscribe: () => {} }),
};

export class GrpcServer {
  readonly #telemetry: Telemetry;
  readonly #messageBytesMax: number;
  readonly #metrics: ServerMetrics;
  readonly #open: Gauge;
  readonly #methods = new Map<string, TableEntry>();
  readonly #connections = new Set<Connection>();
  readonly #tlsListeners: TlsListener[] = [];
  readonly #unixListeners: UnixListener[] = [];
  readonly #certified: CertifiedConnections<Connection>[] = [];
  /** Services with methods of nodes, and those methods' handlers. */
  readonly #nodeServices: Service[] = [];
  readonly #nodeCalls: NodeCalls[] = [];
  readonly #admission: Admission;
  readonly #anonymous: Crowd<Connection>;
  readonly #known: Crowd<Connection>;
  readonly #sweeps: readonly NodeJS.Timeout[];
  /** Resolves when the last connection has closed. */
  readonly #emptied = Promise.withResolvers<void>();
  #credentials: Credentials | null = null;
  /** The first TLS port. */
  #tls: { readonly options: ListenTlsOptions; readonly certified: CertifiedConnections<Connection> } | null = null;
  #isClosing = false;

  constructor(options: GrpcServerOptions) {
    this.#telemetry = options.telemetry;
    this.#messageBytesMax = options.messageBytesMax ?? messageBytesMaxDefault;
    this.#metrics = new ServerMetrics(options.telemetry.metrics);
    this.#admission = options.admission ?? createAdmission(options.telemetry);
    const { limits } = this.#admission;
    this.#anonymous = new Crowd(limits.anonymousMax);
    this.#known = new Crowd(limits.knownMax);
    this.#open = options.telemetry.metrics.gauge("muster_grpc_connections", "Open gRPC connections, by kind.");
    this.#sweeps = [
      setInterval(() => this.#sweepAnonymous(), limits.anonymousSweepMs).unref(),
      setInterval(() => this.#sweepCalls(), limits.knownSweepMs).unref(),
    ];
  }

  /** Serves a generated service, such as `add(DispatcherService, { Session, Heartbeat, … })`. */
  add<Table extends { readonly name: string; readonly methods: object }>(
    service: Table,
    handlers: ServiceHandlers<Table>,
  ): void {
    const table = handlers as Readonly<Record<string, unknown>>;
    const forNodes: Record<string, unknown> = {};
    for (const [name, method] of Object.entries(
      service.methods as Readonly<Record<string, MethodDescriptor<unknown, unknown>>>,
    )) {
      const access = accessByPath.get(method.path);
      assert(access !== undefined, `G1: ${method.path} has a row in roles.ts`);
      assert(!this.#methods.has(method.path), `G1: ${method.path} is served once`);
      if (isForNodes(method.path)) forNodes[name] = table[name];
      this.#methods.set(method.path, {
        path: method.path,
        access,
        turn: turnsOfNodes.get(method.path) ?? (access === "read-only" ? "reads" : null),
        messageBytesMax: Math.min(this.#messageBytesMax, requestBytesMax(method.path)),
        decode: (bytes) => method.request.decode(bytes),
        frame: framedOnce((message) => method.response.encode(message)),
        metrics: new MethodMetrics(this.#metrics, method.path),
        log: this.#telemetry.log,
        changesCaller: changesCaller(method.path),
        handler: isRole(access) ? forUsers(method, erase(method, table[name])) : erase(method, table[name]),
      });
    }
    this.#nodeServices.push({ service, handlers: forNodes });
  }

  /** Resolves with the port once it accepts connections. Rejects with ListenError. */
  async listenTls(options: ListenTlsOptions): Promise<{ readonly port: number }> {
    this.#credentials = options.credentials;
    const certified = new CertifiedConnections<Connection>({
      clock: options.clock,
      membership: options,
      rootPem: options.credentials.rootPem,
      handshakeTimeoutMs,
      end: (connection, reason) => this.#endConnection(connection, reason),
    });
    this.#certified.push(certified);
    this.#tls ??= { options, certified };
    const listener = await listenTls({ ...options, admission: this.#admission }, (socket, caller) =>
      this.#serve(socket, caller, options, certified),
    );
    this.#tlsListeners.push(listener);
    return { port: listener.port };
  }

  /** Serves a connection that another edge has accepted, as one to the first TLS port. `listenTls` comes first. */
  accept(socket: Duplex, carrier: Carrier): void {
    const [listener] = this.#tlsListeners;
    assert(listener !== undefined, "G1: connections are accepted after listenTls");
    listener.accept(socket, carrier);
  }

  /** For how long the oldest connection to a TLS port, or call of a node, has waited for this process, in milliseconds. */
  nodesWaitMs(): number {
    const connections = this.#tlsListeners.map((listener) => listener.waitMs());
    return Math.max(this.#admission.callTurns.nodesWaitMs(), ...connections);
  }

  /**
   * Serves the control socket: a file that only its owner may open, with and without TLS. TLS uses the credentials of the
   * last `listenTls` or `setCredentials`. Rejects with ListenError.
   */
  async listenUnix(path: string): Promise<void> {
    const listener = await listenUnix(path, (socket: Socket) =>
      this.#serve(socket, localCaller, localMembership, null),
    );
    if (this.#credentials !== null) listener.setCredentials(this.#credentials);
    this.#unixListeners.push(listener);
  }

  /**
   * Serves a user over a connection within the process, as over TLS with a certificate of that user that ends with the login: R3
   * and G3 apply. `listenTls` comes first.
   */
  serveUser(socket: Duplex, { name, mark, address, leftMs }: LocalUser): void {
    const tls = this.#tls;
    assert(tls !== null, "G1: users are served after listenTls");
    const { options, certified } = tls;
    const anonymous = { identity: null, local: false, address };
    const caller: Caller = {
      peer: { ...anonymous, user: `user-${name}` },
      anonymous,
      rejection: null,
      isCertified: true,
      user: { name, mark, organization: options.organization() },
      notAfterMs: options.clock.now() + leftMs,
    };
    this.#serve(socket, caller, options, certified);
  }

  /** Serves this process itself, as on the control socket. */
  serveSelf(socket: Duplex): void {
    this.#serve(socket, localCaller, localMembership, null);
  }

  /**
   * The methods, for another edge of this process. `caller`: null has the rights of the control socket; one with a certificate
   * is checked as on the first TLS port, and `listenTls` comes first. `signal` aborts when the caller is gone.
   */
  ownCalls(caller: Caller | null, signal: CallSignal): OwnCalls {
    if (caller === null) return new OwnCalls(this.#methods, localCaller, localMembership, signal);
    assert(this.#tls !== null, "G1: users are served after listenTls");
    return new OwnCalls(this.#methods, caller, this.#tls.options, signal);
  }

  /** The methods of nodes, for another transport. `listenTls` comes first. */
  nodeCalls(): NodeCalls {
    assert(this.#tls !== null && this.#credentials !== null, "G1: nodes are served after listenTls");
    const { options } = this.#tls;
    const calls = new NodeCalls({
      clock: options.clock,
      membership: options,
      rootPem: this.#credentials.rootPem,
      services: this.#nodeServices,
      inTurn: (peer, path, start) => {
        const turn = turnsOfNodes.get(path);
        if (turn !== undefined) return this.#inTurn(turn, start, peer);
        start();
        return true;
      },
    });
    this.#nodeCalls.push(calls);
    return calls;
  }

  /** Replaces the credentials, including roots, from the next connection on (G2). */
  setCredentials(credentials: Credentials): void {
    this.#credentials = credentials;
    for (const listener of [...this.#tlsListeners, ...this.#unixListeners]) listener.setCredentials(credentials);
    for (const certified of [...this.#certified, ...this.#nodeCalls]) certified.setRoots(credentials.rootPem);
  }

  /** The number of open connections. */
  get connectionCount(): number {
    return this.#connections.size;
  }

  /** Accepts nothing new, ends streams with UNAVAILABLE, waits up to `graceMs` for unary calls, then closes what is left. */
  async close(graceMs: number): Promise<void> {
    if (this.#isClosing) return;
    this.#isClosing = true;
    for (const sweep of this.#sweeps) clearInterval(sweep);
    for (const listener of [...this.#tlsListeners, ...this.#unixListeners]) listener.close();
    for (const certified of [...this.#certified, ...this.#nodeCalls]) certified.close();
    if (this.#connections.size === 0) this.#emptied.resolve();
    this.#shutDownCalls(true);
    for (const { http2 } of this.#connections) http2.close();
    let graceOver: NodeJS.Timeout | undefined;
    const grace = new Promise<void>((resolve) => (graceOver = setTimeout(resolve, graceMs)));
    await Promise.race([this.#emptied.promise, grace]);
    clearTimeout(graceOver);
    this.#shutDownCalls(false);
    // One turn, so that the last statuses are written before the sockets close.
    await new Promise((resolve) => setImmediate(resolve));
    for (const { http2 } of this.#connections) http2.destroy();
    await this.#emptied.promise;
    this.#metrics.flush();
  }

  #shutDownCalls(onlyStreams: boolean): void {
    for (const { calls } of this.#connections) for (const call of calls) call.shutDown(onlyStreams);
  }

  #serve(socket: Duplex, caller: Caller, membership: Membership, certified: Connection["certified"]): void {
    const kind = kindOf(caller, membership);
    const { anonymousBytes, anonymousTime, knownBytes } = this.#admission;
    const http2 = new ServerConnection(
      socket,
      {
        onRequest: (stream, headers) => this.#onRequest(connection, stream, headers),
        onClose: (error) => this.#onClose(connection, error),
      },
      kind === "anonymous" ? anonymousLimits : knownLimits,
      kind === "anonymous" ? { bytes: anonymousBytes, time: anonymousTime } : { bytes: knownBytes, time: null },
    );
    const calls = new Set<ServerCall>();
    const { peer } = caller;
    const connection: Connection = {
      http2,
      kind,
      source: kind === "known" ? certifiedId(caller) : sourceOf(peer.address),
      caller,
      membership,
      certified,
      calls,
      usefulAt: performance.now(),
      get isServed() {
        return isAnyServed(calls);
      },
    };
    this.#connections.add(connection);
    this.#admit(connection);
    if (socket instanceof TLSSocket)
      certified?.add(connection, (rootPem, nowMs) => isVouchedFor(socket, rootPem, nowMs));
    // No root vouches for a login.
    else certified?.add(connection, () => true);
    // Its handshake was in progress when the listener closed.
    if (this.#isClosing) http2.destroy();
  }

  /** G4: displaces a connection of the same kind if necessary. */
  #admit(connection: Connection): void {
    const { kind, source, caller } = connection;
    const { limits, refusals } = this.#admission;
    let displaced: Connection | null = null;
    if (kind === "anonymous") displaced = this.#anonymous.add(source, connection, limits.anonymousPerAddressMax);
    else if (kind === "known") {
      displaced = this.#known.add(source, connection, connectionsMaxOf(caller, limits));
    }
    this.#showOpen();
    if (displaced === null) return;
    refusals.count("grpc", kind === "anonymous" ? "anonymous-limit" : "known-limit", displaced.caller.peer.address);
    displaced.http2.destroy();
  }

  #onClose(connection: Connection, error: Error | null): void {
    const { kind, source, caller, certified } = connection;
    this.#connections.delete(connection);
    certified?.remove(connection);
    if (kind === "anonymous") this.#anonymous.remove(source, connection);
    else if (kind === "known") this.#known.remove(source, connection);
    this.#showOpen();
    const overBudget = kind === "anonymous" ? "anonymous-bytes" : "known-bytes";
    if (error instanceof ConnectionError)
      this.#admission.refusals.count(
        "grpc",
        error instanceof BudgetError ? overBudget : "protocol",
        caller.peer.address,
      );
    // A peer that breaks the connection or the protocol is not our error; its calls see their streams close.
    if (error !== null) this.#telemetry.log.debug({ err: error, peer: caller.peer.address }, "connection failed");
    if (this.#isClosing && this.#connections.size === 0) this.#emptied.resolve();
  }

  #showOpen(): void {
    this.#open.set(this.#anonymous.size, { kind: "anonymous" });
    this.#open.set(this.#known.size, { kind: "known" });
  }

  #onRequest(connection: Connection, stream: Http2Stream, headers: RequestHeaders): void {
    if (refusesForeign(stream, headers)) return;
    const method = this.#methods.get(headers.path);
    if (method === undefined) {
      refuse(stream, Status.UNIMPLEMENTED, `unknown method ${headers.path}`);
      return;
    }
    connection.certified?.checkExpiry(connection);
    const admitted = authorize(method.access, connection.caller, connection.membership);
    if (typeof admitted === "string") {
      method.metrics.ended(Status.PERMISSION_DENIED, 0);
      refuse(stream, Status.PERMISSION_DENIED, admitted);
      return;
    }
    const timeoutMs = headers.timeout === "" ? null : parseTimeout(headers.timeout);
    if (headers.timeout !== "" && timeoutMs === null) {
      refuse(stream, Status.INTERNAL, "malformed grpc-timeout"); // as grpc-go answers it
      return;
    }
    const peer =
      admitted.local && headers.caller !== "" ? { ...admitted, process: parseCaller(headers.caller) } : admitted;
    const { http2, kind } = connection;
    const { anonymousMessageBytesMax } = this.#admission.limits;
    const { turn } = method;
    const call = new ServerCall(stream, method, peer, headers.traceparent, connection.calls, {
      canQueue: () => http2.canQueue,
      // Calls of managers carry those of many others, and their own health.
      ...(turn === null || peer.identity?.role === "swarm-manager"
        ? {}
        : { inTurn: (start: () => void) => this.#inTurn(turn, start, peer) }),
      ...(kind === "anonymous"
        ? {
            messageBytesMax: Math.min(method.messageBytesMax, anonymousMessageBytesMax),
            onServed: () => (connection.usefulAt = performance.now()),
          }
        : {}),
    });
    if (timeoutMs !== null) call.startDeadline(timeoutMs);
    call.startClientStream();
  }

  #inTurn(turn: CallClass, start: () => void, peer: Peer): boolean {
    if (this.#admission.callTurns.offer(turn, start)) return true;
    this.#admission.refusals.count("grpc", "waiting-calls", peer.address);
    return false;
  }

  /** G3 */
  #endConnection(connection: Connection, reason: EndReason): void {
    const { http2, membership } = connection;
    const rejection = rejections[reason];
    if (rejection !== null) connection.caller = { ...connection.caller, rejection };
    const { caller } = connection;
    let graceMs = endGraceMs;
    for (const call of connection.calls) {
      if (reason === "standing" && call.isChangingCaller) {
        graceMs = changeGraceMs;
        continue;
      }
      const { access } = this.#methods.get(call.method) as TableEntry;
      const admitted = authorize(access, caller, membership);
      if (typeof admitted === "string") call.revoke(Status.PERMISSION_DENIED, admitted);
      else call.revoke(Status.UNAVAILABLE, "the caller's role has changed: connect again");
    }
    const { identity, address: peer, user } = caller.peer;
    this.#telemetry.log.info(
      { peer, node: identity?.nodeId, user, reason },
      "connection closed: its caller's standing has changed",
    );
    http2.close();
    setTimeout(() => http2.destroy(), graceMs).unref();
  }

  /** Callers without certificate fetch the root or join, and leave: those that stay would accumulate. */
  #sweepAnonymous(): void {
    const { limits, refusals } = this.#admission;
    const now = performance.now();
    for (const connection of this.#anonymous) {
      const { http2, calls, caller } = connection;
      if (connection.isServed) connection.usefulAt = now;
      if (now - connection.usefulAt < limits.anonymousIdleMs) continue;
      if (calls.size > 0) refusals.count("grpc", "anonymous-idle", caller.peer.address);
      // Idle connections get a GOAWAY; those with an unfinished request or unread answer do not.
      if (calls.size === 0 && http2.isOpen) http2.close();
      else http2.destroy();
    }
  }

  #sweepCalls(): void {
    for (const { calls, caller } of this.#connections) {
      for (const call of calls) {
        if (!call.isStalled()) continue;
        this.#admission.refusals.count("grpc", "unfinished-request", caller.peer.address);
        call.expire();
      }
    }
  }
}

/** A certificate without a current identity in this cluster counts as none. */
function kindOf(caller: Caller, membership: Membership): Kind {
  if (caller.peer.local) return "local";
  return standingOf(caller, membership) === "nobody" ? "anonymous" : "known";
}

function connectionsMaxOf({ peer, user }: Caller, limits: AdmissionLimits): number {
  if (user !== undefined) return limits.userConnectionsMax;
  return peer.identity?.role === "swarm-manager" ? limits.managerConnectionsMax : limits.workerConnectionsMax;
}

function isAnyServed(calls: ReadonlySet<ServerCall>): boolean {
  for (const call of calls) if (call.isServed) return true;
  return false;
}

export function createGrpcServer(options: GrpcServerOptions): GrpcServer {
  return new GrpcServer(options);
}
