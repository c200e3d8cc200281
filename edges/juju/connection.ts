/**
 * One client connection: reads messages, lets its chart decide on them, runs requests and writes each reply as soon as it is
 * ready.
 *
 * C1: every request with an id is answered exactly once, unless the connection ends first.
 * C2: a request starts only while fewer than `outstandingMax` are outstanding and at most `unsentBytesMax` are unsent;
 *     otherwise reading pauses, so that a fast client waits instead of using memory.
 * C3: a login by certificate ends with the certificate, and none is possible after that.
 */
import type { ConnectionChart, Identity, JsonApi, LoginName } from "../../runtime/ports/json-api.ts";
import type { Clock, Counter, Histogram, Logger, Subscription } from "../../runtime/ports/index.ts";
import type { Peer } from "../../runtime/ports/rpc.ts";
import { loginResult, readAdmin, redirectInfo, redirection, type AdminRequest, type Server } from "./admin.ts";
import { run, type Registry } from "./dispatch.ts";
import type { Session } from "./facade.ts";
import { Params } from "./params.ts";
import { permissionDenied, RequestError } from "./request-error.ts";
import { Resources } from "./resources.ts";
import type { Json } from "./results.ts";
import { requestErrorOf } from "./rpc-failure.ts";
import { decode, type Request } from "./wire/decode.ts";
import { encodeError, encodeHead, encodeResult } from "./wire/encode.ts";
import { dischargeRequired, type Tickets } from "./tickets.ts";
import { Shared } from "./wire/shared.ts";
import { outstandingMax, unsentBytesFatal, unsentBytesMax } from "./wire/limits.ts";

/** The WebSocket below a connection. */
export interface Wire {
  send(text: string): void;
  /** Sends one message: the text, the result, and the closing brace. */
  sendShared(beginning: string, result: Shared): void;
  ping(): void;
  /** Pauses and resumes reading; either may be called twice. */
  pause(): void;
  resume(): void;
  /** The client has logged in: larger limits apply from now on. */
  loggedIn(): void;
  /** Bytes sent but not yet read by the client. */
  unsentBytes(): number;
  close(code: number, reason: string): void;
  /** Closes the socket without a close frame. */
  cut(): void;
}

/** Shared by all connections of a listener. */
export interface ConnectionParts {
  readonly api: JsonApi;
  readonly registry: Registry;
  readonly tickets: Tickets;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: { readonly requests: Counter; readonly seconds: Histogram; readonly logins: Counter };
  clusterId(): string;
  /** Addresses of managers, returned in logins. */
  servers(): readonly Server[];
  /** Redirects logins to these servers; null: logins are accepted here. */
  readonly redirect: { readonly servers: readonly Server[]; rootPem(): string } | null;
  /** The user or agent that a tag names; null if none. */
  loginName(tag: string): LoginName | null;
}

/** Data from the handshake. */
export interface Arrival {
  readonly id: string;
  readonly address: string;
  readonly scope: "controller" | "model";
  /** Error for every request, such as an unknown model; null if there is none. */
  readonly refusal: RequestError | null;
  /** Identity of the client's node certificate, verified against the cluster's root; null without one. */
  readonly certificate: Peer["identity"];
  /** Calls `certificateEnded` if the certificate has expired by now. */
  checkCertificate(): void;
  /** The client's version from the handshake; may be empty. */
  readonly clientVersion: string;
  /** The `Host` header; may be empty. */
  readonly host: string;
}

interface Pending {
  readonly request: Request;
  readonly admin: Extract<AdminRequest, { kind: "login" }> | null;
}

/** Interval between checks of unsent output, in milliseconds. */
const outputCheckMs = 1_000;
const closeReasonBytesMax = 120;

export class Connection {
  readonly #parts: ConnectionParts;
  readonly #arrival: Arrival;
  readonly #chart: ConnectionChart;
  readonly #resources = new Resources();
  readonly #ending = new AbortController();
  /** Logins and refused requests that await the chart's decision. */
  readonly #pending = new Map<number, Pending>();
  #wire: Wire | null = null;
  #keys = 0;
  #protocolVersion = 0;
  #outstanding = 0;
  #isPaused = false;
  #isRedirected = false;
  #isCertificateOver = false;
  #isByCertificate = false;
  #login: { readonly identity: Identity; readonly session: Session; readonly lastLoginMs: number | null } | null = null;
  #gone: Subscription | null = null;
  #outputTimer: ReturnType<Clock["setTimeout"]> | null = null;
  #unsentBefore = 0;

  constructor(parts: ConnectionParts, arrival: Arrival) {
    this.#parts = parts;
    this.#arrival = arrival;
    this.#chart = parts.api.startConnection(arrival.id, {
      checkLogin: (key) => void this.#checkLogin(key),
      welcome: (key) => this.#welcome(key),
      refuseLogin: (key, reason) => this.#refuseLogin(key, reason),
      refuseRequest: (key) => this.#refuse(this.#take(key), arrival.refusal ?? permissionDenied()),
      ping: () => this.#wire?.ping(),
      release: () => this.#release(),
      sayGoodbye: (code, reason) => this.#wire?.close(code, reason.slice(0, closeReasonBytesMax)),
      cutOff: () => this.#wire?.cut(),
    });
  }

  /** Number of outstanding requests; for tests and metrics. */
  get outstanding(): number {
    return this.#outstanding;
  }

  /** The WebSocket is open. */
  opened(wire: Wire): void {
    this.#wire = wire;
    this.#chart.opened();
  }

  closed(): void {
    this.#chart.closed();
    this.#wire = null;
  }

  heard(): void {
    this.#chart.heard();
  }

  /** The client's certificate has expired, or its root is no longer trusted. C3 */
  certificateEnded(): void {
    this.#isCertificateOver = true;
    if (this.#isByCertificate) this.#chart.identityGone();
  }

  /** The manager is shutting down. */
  stop(): void {
    this.#chart.serverStopping();
  }

  broken(reason: string): void {
    this.#chart.messageBroken(reason);
  }

  /** Handles one message; called in the order of arrival. */
  take(text: string): void {
    if (this.#ending.signal.aborted) return;
    this.#arrival.checkCertificate();
    if (this.#ending.signal.aborted) return;
    const decoded = decode(text);
    switch (decoded.kind) {
      case "broken":
        return this.#chart.messageBroken(decoded.reason);
      case "malformed": {
        const error = this.#login === null ? permissionDenied() : new RequestError(decoded.reason, "bad request");
        return this.#send(encodeError(decoded.shape, decoded.requestId, error));
      }
      case "request":
        return this.#takeRequest(decoded.request);
    }
  }

  #takeRequest(request: Request): void {
    if (request.type === "Admin") return this.#takeAdmin(request);
    // First, so that an unknown client cannot find out which types exist.
    if (this.#login === null) return this.#chart.requestAsked(this.#keep({ request, admin: null }));
    void this.#run(request, this.#login.session);
  }

  #takeAdmin(request: Request): void {
    let admin: AdminRequest;
    try {
      admin = readAdmin(request, this.#arrival.clientVersion);
    } catch (error) {
      return this.#fail(request, error);
    }
    switch (admin.kind) {
      case "login":
        return this.#chart.loginAsked(this.#keep({ request, admin }));
      case "version":
        // In the order of reading, so that it applies to the requests sent after it (reference §2.4).
        this.#protocolVersion = admin.version;
        return this.#answer(request, { version: admin.version });
      case "redirectInfo": {
        const { redirect } = this.#parts;
        if (redirect === null || !this.#isRedirected)
          return this.#fail(request, new RequestError("not redirected", ""));
        return this.#answer(request, redirectInfo(redirect.servers, redirect.rootPem()));
      }
    }
  }

  #keep(pending: Pending): number {
    this.#keys += 1;
    this.#pending.set(this.#keys, pending);
    return this.#keys;
  }

  #take(key: number): Pending | undefined {
    const pending = this.#pending.get(key);
    this.#pending.delete(key);
    return pending;
  }

  #refuse(pending: Pending | undefined, error: RequestError): void {
    if (pending !== undefined) this.#fail(pending.request, error);
  }

  #refuseLogin(key: number, reason: "checking" | "already"): void {
    const text = reason === "already" ? "already logged in" : "a login is being checked";
    this.#refuse(this.#take(key), new RequestError(text, reason === "already" ? "" : "try again"));
  }

  async #checkLogin(key: number): Promise<void> {
    const { api, clusterId, metrics, redirect } = this.#parts;
    const pending = this.#pending.get(key);
    if (pending?.admin === null || pending === undefined) return;
    const { tag, password, tickets, canDischarge } = pending.admin.credentials;
    const refuse = (error: RequestError, outcome: string): void => {
      metrics.logins.add(1, { outcome });
      this.#refuse(this.#take(key), error);
      this.#chart.loginRefused(key);
    };
    // Wait until the chart has entered its state: it must receive the outcome after that.
    await Promise.resolve();
    if (this.#arrival.refusal !== null) return refuse(this.#arrival.refusal, "elsewhere");
    if (redirect !== null) {
      this.#isRedirected = true;
      return refuse(redirection(redirect.servers, redirect.rootPem(), clusterId()), "redirected");
    }
    const { address, certificate, host } = this.#arrival;
    const isCertified = certificate?.organization === clusterId() && !this.#isCertificateOver;
    const certifiedNode = isCertified ? certificate.nodeId : null;
    const name = this.#parts.loginName(tag);
    const holder = password === "" ? this.#parts.tickets.redeem(tickets, name) : null;
    if (holder === null && name?.kind === "user" && password === "" && canDischarge && host !== "") {
      metrics.logins.add(1, { outcome: "elsewhere" });
      this.#take(key);
      this.#answer(pending.request, dischargeRequired(host, tag));
      return this.#chart.loginRefused(key);
    }
    const lacksPassword = password === "" && certifiedNode === null && holder === null;
    if (pending.request.shape === "V1" && (tag === "" || lacksPassword)) {
      return refuse(new RequestError("no credentials provided", "no credentials provided"), "refused");
    }
    let outcome: Awaited<ReturnType<JsonApi["checkLogin"]>>;
    try {
      outcome =
        holder === null
          ? await api.checkLogin({ name, password, address, certifiedNode })
          : { kind: "accepted", identity: holder, lastLoginMs: null };
    } catch (error) {
      this.#parts.log.error({ err: error }, "cannot check a login of the JSON API");
      return refuse(new RequestError("internal error", ""), "failed");
    }
    if (this.#ending.signal.aborted) return;
    switch (outcome.kind) {
      case "busy":
        return refuse(new RequestError("try again", "try again"), "busy");
      case "refused":
        return refuse(new RequestError("invalid entity name or password", "unauthorized access"), "refused");
      case "accepted": {
        const session: Session = {
          tag,
          identity: outcome.identity,
          scope: this.#arrival.scope,
          resources: this.#resources,
          clientMajor: pending.admin.credentials.clientMajor,
          signal: this.#ending.signal,
        };
        this.#login = { identity: outcome.identity, session, lastLoginMs: outcome.lastLoginMs };
        this.#wire?.loggedIn();
        this.#gone = api.onGone(outcome.identity, () => this.#chart.identityGone());
        this.#isByCertificate = outcome.identity.kind === "machine" && outcome.identity.nodeId === certifiedNode;
        if (this.#isByCertificate && this.#isCertificateOver) return this.#chart.identityGone();
        metrics.logins.add(1, { outcome: "accepted" });
        // The user may have been removed during the check of the password.
        if (api.identityNow(outcome.identity) === null) return this.#chart.identityGone();
        this.#chart.loginAccepted(key, tag);
      }
    }
  }

  #welcome(key: number): void {
    const pending = this.#take(key);
    if (pending?.admin === null || pending === undefined || this.#login === null) return;
    const { session, lastLoginMs } = this.#login;
    const result = loginResult(pending.admin.version, {
      ...session,
      lastLoginMs,
      clusterId: this.#parts.clusterId(),
      servers: this.#parts.servers(),
      facades: this.#parts.registry.list(pending.request.shape, session),
    });
    this.#answer(pending.request, result);
  }

  async #run(request: Request, session: Session): Promise<void> {
    const { api, clock, metrics, registry } = this.#parts;
    const begun = clock.monotonic();
    this.#outstanding += 1;
    this.#pauseOrResume();
    let outcome = "ok";
    try {
      const { facade, version } = registry.find(request, this.#protocolVersion);
      const identity = api.identityNow(session.identity);
      if (identity === null) throw permissionDenied();
      const { shape, type, id } = request;
      const peer: Peer = { identity: null, local: false, address: this.#arrival.address, user: session.tag };
      const result = await run(facade, {
        shape,
        type,
        version,
        id,
        request: request.request,
        params: Params.of(request.params),
        session: { ...session, identity },
        rpc: { peer, signal: session.signal, traceparent: "", method: `${type}/${request.request}` },
      });
      this.#answer(request, result);
    } catch (error) {
      outcome = "error";
      this.#fail(request, error);
    } finally {
      this.#outstanding -= 1;
      this.#pauseOrResume();
      metrics.requests.add(1, { outcome });
      metrics.seconds.observe((clock.monotonic() - begun) / 1_000);
    }
  }

  #answer({ shape, requestId }: Request, result: Json): void {
    if (!(result instanceof Shared)) return this.#send(encodeResult(shape, requestId, result));
    this.#openWire()?.sendShared(encodeHead(shape, requestId), result);
    this.#pauseOrResume();
  }

  #fail({ shape, requestId, type, request }: Request, error: unknown): void {
    const refused = requestErrorOf(error);
    if (refused !== null) return this.#send(encodeError(shape, requestId, refused));
    // Without its params, which may contain secrets (reference §10).
    this.#parts.log.error({ err: error, type, request }, "a request of the JSON API failed with an internal error");
    this.#send(encodeError(shape, requestId, new RequestError("internal error", "")));
  }

  #send(text: string): void {
    this.#openWire()?.send(text);
    this.#pauseOrResume();
  }

  #openWire(): Wire | null {
    return this.#ending.signal.aborted ? null : this.#wire;
  }

  /** C2: pauses or resumes reading, by the outstanding requests and the unsent bytes. */
  #pauseOrResume(): void {
    const wire = this.#openWire();
    if (wire === null) return;
    const unsent = wire.unsentBytes();
    if (unsent > unsentBytesFatal) return this.#chart.outputOverflowed();
    const mustWait = this.#outstanding >= outstandingMax || unsent > unsentBytesMax;
    if (mustWait !== this.#isPaused) {
      this.#isPaused = mustWait;
      if (mustWait) wire.pause();
      else wire.resume();
    }
    if (unsent > 0 && this.#outputTimer === null) this.#watchOutput(unsent);
  }

  /** Reports to the chart whether the peer reads what is written. */
  #watchOutput(unsent: number): void {
    this.#unsentBefore = unsent;
    this.#outputTimer = this.#parts.clock.setTimeout(() => {
      this.#outputTimer = null;
      const now = this.#wire?.unsentBytes() ?? 0;
      if (now === 0) this.#chart.outputEmpty();
      else if (now < this.#unsentBefore) this.#chart.outputMoved();
      else this.#chart.outputStuck();
      this.#pauseOrResume();
    }, outputCheckMs);
  }

  #release(): void {
    this.#ending.abort();
    this.#gone?.unsubscribe();
    if (this.#outputTimer !== null) this.#parts.clock.clearTimeout(this.#outputTimer);
    this.#outputTimer = null;
    this.#pending.clear();
    this.#resources.stopAll();
  }
}
