/**
 * The link to the bus: one connection of the library at a time, replaced whenever it is lost, until the owner closes the link.
 *
 * States: `up` (pings are answered) ⇄ `suspect` (connected, but a ping has been unanswered for a whole interval); either →
 * `down` (dialling) → `up`; any → `closed` by its owner. The library's own reconnecting is off: it buffers messages published
 * meanwhile and sends them much later, and with a full socket it waits forever for a frozen server.
 *
 * K1: `isUp` is true in `up` only; a frozen server is noticed within two intervals and dropped within three.
 * K2: a request is never sent late: while the link is down, it fails immediately.
 * K3: subscriptions survive reconnects until their owner ends them; messages in between are lost.
 * K4: if several servers are configured, one that answers pings but does not serve the log is left for another.
 */
import {
  connect,
  nkeyAuthenticator,
  type Msg,
  type MsgHdrs,
  type NatsConnection,
  type NatsError,
  type Sub,
} from "nats";
import { type Backoff, backoffMs, drawUpperHalf } from "../../lib/backoff.ts";
import type { BusServers, Random, Subscription, Telemetry } from "../ports/index.ts";
import { type NatsAddress, parseAddress, showAddress } from "./address.ts";
import { asDialProblem, dialProblem } from "./dial-problem.ts";
import { crash, NatsProblem, textOf } from "./errors.ts";
import { type Greeting, type GreetingOutcome, greet } from "./greeting.ts";
import { openServerProblem } from "./open-server.ts";
import { identifying, type NatsTls } from "./nats-tls.ts";
import { silentTicksLost, silentTicksSuspect, startPinging } from "./pings.ts";
import { type Answer, Requests } from "./requests.ts";
import { Serving } from "./serving.ts";

/** Timeout for the greeting, and again for the handshake. Longer than a busy server needs, short enough to try the next one. */
const dialMs = 2_000;
/** Timeout for each server's greeting when they are counted, in milliseconds: a distant one needs a few round trips. */
const countMs = 1_500;
/** A server that restarts is back within a second or two; thousands of managers do not share one NATS. */
const redialBackoff: Backoff = { stepMs: 50, msMax: 1_000 };
/** The back-off resets only after a link has held this long, to avoid hammering a server that accepts and drops. */
const linkHeldMsMin = 5_000;
/**
 * With several servers, one that has not served the log for this long is left for another. A killed stream leader has a
 * successor within 4 to 9 s, which the link then finds on whatever server it is.
 */
const unservedMsMin = 8_000;
/** Doubled for each server that does not serve the log either: without a majority, none does. */
const unservedMsMax = 60_000;
/** Time for the last messages to leave and their handlers to finish during a drain. */
const drainMs = 3_000;

interface LinkOptions {
  readonly servers: readonly string[];
  readonly user?: string;
  readonly pass?: string;
  readonly token?: string;
  /** An nkey's seed, instead of user and password. */
  readonly seed?: Uint8Array;
  readonly tls?: NatsTls;
  /** Accept servers beyond loopback without TLS or authentication. Default false. */
  readonly insecure?: boolean;
  /** Shown by the server's own tools. */
  readonly name: string;
  /** The name, in metrics, of a link to a manager's NATS for nodes; absent for a link to the log's. */
  readonly nodesLink?: string;
  readonly telemetry: Telemetry;
  readonly random: Random;
  /** How long to search for the first server. */
  readonly firstConnectMs: number;
  /** Aborts the search for the first server; the current attempt may take another 2 s. */
  readonly signal?: AbortSignal;
}

interface Wanted {
  readonly subject: string;
  readonly queue: string | undefined;
  readonly handler: (message: Msg) => void;
  live: Sub<Msg> | null;
}

export class Link {
  readonly #options: LinkOptions;
  #addresses: readonly NatsAddress[];
  readonly #wanted = new Set<Wanted>();
  readonly #requests = new Requests();
  readonly #upListeners = new Set<(up: boolean) => void>();
  readonly #connectionListeners = new Set<(connected: boolean) => void>();
  #connection: NatsConnection | null = null;
  #greeting: Greeting | null = null;
  #state: "up" | "suspect" | "down" | "closed" = "down";
  #pinger: NodeJS.Timeout | undefined;
  #redialTimer: NodeJS.Timeout | undefined;
  #redials = 0;
  #connectedAt = 0;
  #nextAddress = 0;
  #draining = false;
  #leaveAfterMs = unservedMsMin;
  /** Updated by every JetStream request. */
  readonly serving = new Serving();

  private constructor(options: LinkOptions) {
    this.#options = options;
    this.#addresses = options.servers.map(parseAddress);
    if (this.#addresses.length === 0)
      throw new NatsProblem("unusable", "no nats-server given: specify at least one address");
    this.#nextAddress = options.random.below(this.#addresses.length);
    this.subscribe(this.#requests.subject, (message) => this.#requests.take(message));
  }

  /** Resolves with the first connection; rejects with NatsProblem `unreachable`, `unauthorized` or `unusable`. */
  static async open(options: LinkOptions): Promise<Link> {
    const link = new Link(options);
    const deadline = performance.now() + options.firstConnectMs;
    for (;;) {
      try {
        await link.#dial();
        return link;
      } catch (error) {
        const problem = asDialProblem(error);
        if (problem.kind !== "unreachable" || performance.now() >= deadline || options.signal?.aborted === true) {
          link.close();
          throw problem;
        }
        await new Promise((resolve) => setTimeout(resolve, link.#redialDelayMs()));
      }
    }
  }

  isUp(): boolean {
    return this.#state === "up";
  }

  /** For the next connections. Does nothing without servers. */
  useServers(servers: readonly string[]): void {
    if (servers.length > 0) this.#addresses = servers.map(parseAddress);
  }

  isConnected(): boolean {
    return this.#connection !== null;
  }

  get serverVersion(): string {
    return this.#greeting?.version ?? "0.0.0";
  }

  get maxPayload(): number {
    return this.#greeting?.maxPayload ?? 0;
  }

  get hasJetStream(): boolean {
    return this.#greeting?.jetstream ?? false;
  }

  /**
   * Where JetStream is off: in this connection's server, according to its latest greeting, or for this link's account. Null
   * while it is on, and without a connection.
   */
  get jetStreamOff(): "server" | "account" | null {
    const info = this.#connection?.info;
    if (info === undefined) return null;
    if (info.jetstream !== true) return "server";
    return this.serving.isOffForAccount ? "account" : null;
  }

  /** How many of the configured servers greet a new connection now; frozen and dead ones do not. */
  async servers(): Promise<BusServers> {
    const greeted = await this.#greetAll();
    return { named: greeted.length, answering: greeted.filter(({ kind }) => kind === "greeted").length };
  }

  /** Number of configured servers. */
  get named(): number {
    return this.#addresses.length;
  }

  /** Names of the configured servers that greet a new connection now. Takes at most 1.5 s. */
  async greetingNames(): Promise<readonly string[]> {
    return (await this.#greetAll()).flatMap((outcome) =>
      outcome.kind === "greeted" ? [outcome.greeting.serverName] : [],
    );
  }

  #greetAll(): Promise<readonly GreetingOutcome[]> {
    return Promise.all(this.#addresses.map(({ host, port }) => greet(host, port, countMs)));
  }

  /** Reports each change of `isUp`. */
  onUp(listener: (up: boolean) => void): Subscription {
    this.#upListeners.add(listener);
    return { unsubscribe: () => void this.#upListeners.delete(listener) };
  }

  /** Reports each loss of the connection, and each new one once it has the subscriptions. */
  onConnection(listener: (connected: boolean) => void): Subscription {
    this.#connectionListeners.add(listener);
    return { unsubscribe: () => void this.#connectionListeners.delete(listener) };
  }

  /** False if there is no connection: the message is dropped. */
  publish(subject: string, data: Uint8Array, headers?: MsgHdrs, reply?: string): boolean {
    if (this.#connection === null) return false;
    try {
      this.#connection.publish(subject, data, publishOptions(headers, reply));
      return true;
    } catch (error) {
      this.#options.telemetry.log.warn({ subject, bytes: data.length, reason: textOf(error) }, "message not published");
      return false;
    }
  }

  /** If a handler throws, the process ends: see `crash`. */
  subscribe(subject: string, handler: (message: Msg) => void, queue?: string): Subscription {
    const wanted: Wanted = { subject, queue, handler, live: null };
    this.#wanted.add(wanted);
    if (this.#connection !== null) this.#subscribeOn(this.#connection, wanted);
    return {
      unsubscribe: () => {
        if (!this.#wanted.delete(wanted)) return;
        wanted.live?.unsubscribe();
        wanted.live = null;
      },
    };
  }

  request(
    subject: string,
    data: Uint8Array,
    options: { timeoutMs: number; headers?: MsgHdrs | undefined },
  ): Promise<Answer> {
    const connection = this.#connection;
    if (connection === null) return Promise.resolve({ kind: "closed" });
    return this.#requests.start(options.timeoutMs, (reply) =>
      connection.publish(subject, data, publishOptions(options.headers, reply)),
    );
  }

  /** Stops receiving, flushes published messages, then closes. Bounded. */
  async drain(): Promise<void> {
    const connection = this.#connection;
    if (connection !== null) {
      this.#draining = true;
      const timer = setTimeout(() => this.close(), drainMs);
      await connection.drain().catch(() => undefined);
      clearTimeout(timer);
    }
    this.close();
  }

  close(): void {
    if (this.#state === "closed") return;
    this.#setState("closed");
    clearTimeout(this.#redialTimer);
    this.#drop();
  }

  async #dial(): Promise<void> {
    const address = this.#addresses[this.#nextAddress++ % this.#addresses.length] as NatsAddress;
    const { user, pass, seed, token } = { ...this.#options, ...address };
    const outcome = await greet(address.host, address.port, dialMs);
    if (outcome.kind === "silent") {
      throw new NatsProblem(
        "unreachable",
        `no nats-server answers at ${showAddress(address)} (${outcome.reason}): start it, or use another address`,
      );
    }
    // Servers outside of one cluster would each have their own log, and it would be arbitrary which one is used.
    if (this.#addresses.length > 1 && outcome.greeting.cluster === "") {
      throw new NatsProblem(
        "unusable",
        `several nats-servers given, but the one at ${showAddress(address)} belongs to no cluster: use one server, or the servers of one cluster`,
      );
    }
    if (this.#addresses.length > 1 && !outcome.greeting.jetstream) {
      throw new NatsProblem(
        "unreachable",
        `the nats-server at ${showAddress(address)} runs without JetStream: check its log and restart it`,
      );
    }
    const tls = this.#options.tls ?? (address.tls || outcome.greeting.tlsRequired ? {} : undefined);
    const open = openServerProblem(address, outcome.greeting, tls !== undefined);
    if (open !== null && this.#options.insecure !== true) throw open;
    let connection: NatsConnection;
    try {
      connection = await connect({
        servers: showAddress(address),
        name: this.#options.name,
        ...(seed !== undefined ? { authenticator: nkeyAuthenticator(seed) } : {}),
        ...(token !== undefined ? { token } : user !== undefined ? { user, pass: pass ?? "" } : {}),
        ...(tls !== undefined ? { tls: identifying(tls, address) } : {}),
        reconnect: false,
        ignoreClusterUpdates: true,
        noAsyncTraces: true,
        timeout: dialMs,
        // Our own pings decide (see startPinging); the library's would fire once a day.
        pingInterval: 86_400_000,
      });
    } catch (error) {
      throw dialProblem(error, showAddress(address));
    }
    if (this.isClosed()) {
      void connection.close().catch(() => undefined);
      throw new NatsProblem("closed", "the link to NATS is closed");
    }
    this.#adopt(connection, outcome.greeting);
  }

  #adopt(connection: NatsConnection, greeting: Greeting): void {
    this.#connection = connection;
    this.#greeting = greeting;
    this.#connectedAt = performance.now();
    for (const wanted of this.#wanted) this.#subscribeOn(connection, wanted);
    void connection
      .closed()
      .then((error) => this.#lost(connection, error instanceof Error ? textOf(error) : "closed by the server"));
    void this.#logStatus(connection);
    this.#pinger = startPinging(connection, (silentTicks) => {
      if (this.#connection !== connection) return;
      if (silentTicks >= silentTicksLost) this.#lost(connection, "pings unanswered");
      else {
        this.#setState(silentTicks >= silentTicksSuspect ? "suspect" : "up");
        this.#leaveIfUnserved(connection);
      }
    });
    this.#setState("up");
    notifyAll(this.#connectionListeners, true);
  }

  #subscribeOn(connection: NatsConnection, wanted: Wanted): void {
    const { subject, queue, handler } = wanted;
    const callback = (error: NatsError | null, message: Msg): void => {
      if (error !== null) {
        this.#options.telemetry.log.error(
          { subject, reason: textOf(error) },
          "subscription refused by the NATS server",
        );
        return;
      }
      try {
        handler(message);
      } catch (thrown) {
        crash(thrown);
      }
    };
    try {
      wanted.live = connection.subscribe(subject, queue === undefined ? { callback } : { callback, queue });
    } catch {
      // The connection has just closed; the next one gets this subscription.
      wanted.live = null;
    }
  }

  #lost(connection: NatsConnection, reason: string): void {
    if (this.#connection !== connection) return;
    if (this.#draining) return this.close();
    this.#options.telemetry.log.warn({ reason }, "link to NATS lost");
    if (performance.now() - this.#connectedAt >= linkHeldMsMin) this.#redials = 0;
    this.#setState("down");
    this.#drop();
    this.#redialLater();
  }

  /** K4 */
  #leaveIfUnserved(connection: NatsConnection): void {
    if (this.#addresses.length < 2) return;
    const now = performance.now();
    const silence = this.serving.silence(now);
    if (silence === null) this.#leaveAfterMs = unservedMsMin;
    else if (Math.min(silence.ms, now - this.#connectedAt) >= this.#leaveAfterMs) {
      this.#leaveAfterMs = Math.min(unservedMsMax, 2 * this.#leaveAfterMs);
      this.#lost(connection, `the server does not serve the log: ${silence.reason}`);
    }
  }

  /** Drops the connection, if any. Closing destroys its socket without waiting for unsent data. */
  #drop(): void {
    const connection = this.#connection;
    this.#connection = null;
    clearInterval(this.#pinger);
    for (const wanted of this.#wanted) wanted.live = null;
    this.#requests.closeAll();
    if (connection === null) return;
    void connection.close().catch(() => undefined);
    notifyAll(this.#connectionListeners, false);
  }

  #redialLater(): void {
    if (this.isClosed()) return;
    this.#redialTimer = setTimeout(() => {
      this.#dial().then(
        () => {
          this.#options.telemetry.log.info(
            { server: this.#greeting?.serverName, version: this.serverVersion },
            "link to NATS is back",
          );
          this.#options.telemetry.metrics
            .counter("muster_nats_reconnects_total", "Reconnects of the link to NATS.")
            .add();
        },
        (error: unknown) => {
          this.#options.telemetry.log.debug({ reason: textOf(error) }, "NATS not reached");
          this.#redialLater();
        },
      );
    }, this.#redialDelayMs());
  }

  #redialDelayMs(): number {
    this.#redials += 1;
    return drawUpperHalf(this.#options.random)(backoffMs(redialBackoff, this.#redials));
  }

  #setState(state: "up" | "suspect" | "down" | "closed"): void {
    if (this.#state === state || this.isClosed()) return;
    const wasUp = this.isUp();
    this.#state = state;
    if (wasUp === this.isUp()) return;
    this.#showUp();
    notifyAll(this.#upListeners, this.isUp());
  }

  #showUp(): void {
    const { nodesLink, telemetry } = this.#options;
    const up = this.isUp() ? 1 : 0;
    if (nodesLink === undefined)
      telemetry.metrics.gauge("muster_nats_up", "1 while the link to NATS answers its pings.").set(up);
    else
      telemetry.metrics
        .gauge("muster_nodes_nats_up", "1 while the link to the NATS for nodes answers its pings.")
        .set(up, { link: nodesLink });
  }

  /** Whether the owner closed it. A method, so that the compiler does not assume an unchanged state across an await. */
  isClosed(): boolean {
    return this.#state === "closed";
  }

  async #logStatus(connection: NatsConnection): Promise<void> {
    for await (const status of connection.status()) {
      if (status.type === "error")
        this.#options.telemetry.log.error(
          { status: status.data, about: status.permissionContext },
          "the NATS server reported an error",
        );
    }
  }
}

/** An error from a listener is a broken invariant of its own; thrown here, it would look like a failure to connect. */
function notifyAll(listeners: ReadonlySet<(value: boolean) => void>, value: boolean): void {
  for (const listener of listeners) {
    try {
      listener(value);
    } catch (error) {
      crash(error);
    }
  }
}

function publishOptions(headers: MsgHdrs | undefined, reply?: string): { headers?: MsgHdrs; reply?: string } {
  return { ...(headers === undefined ? {} : { headers }), ...(reply === undefined ? {} : { reply }) };
}
