/**
 * The simulated network: named endpoints, reliable connections between them, and their faults. It behaves like TCP: data
 * arrives once, in order and late; while a direction is cut, it waits. A connection ends when one side closes it, when a
 * process ends, or when a side's keepalive gives up on a silent peer, which the other side may not notice yet.
 *
 * N1: messages on one connection arrive in order, except those sent with `sendLoose`.
 * N2: nothing reaches a side after it has closed the connection or given up on it.
 */
import type { ProcessClock, SimClock } from "./clock.ts";
import type { SimHandshakes } from "./handshakes.ts";
import type { SimRandom } from "./random.ts";
import type { SimTrace } from "./trace.ts";

/** Probabilities per message, from 0 to 1. */
export interface NetworkFaults {
  /** A core NATS message (or an answer) is lost. */
  loss: number;
  /** A core NATS message arrives twice. */
  duplication: number;
  /** A core NATS message overtakes another or is overtaken. */
  reordering: number;
  /** Any message takes up to `delayMsMax` longer. */
  delay: number;
  delayMsMax: number;
  /** The connection breaks instead of delivering the message. */
  breakage: number;
  /** The answer to a request on the bus is lost after the request was carried out. */
  answerLoss: number;
  /** A record reaches a reader of the log with a wrong byte. */
  damage: number;
  /** A record is not pushed to a reader of the log, which finds it at its next check. */
  stall: number;
  /** With a pushed record, a reader of the log gets that or an earlier one again. */
  redelivery: number;
}

export function noFaults(): NetworkFaults {
  return {
    loss: 0,
    duplication: 0,
    reordering: 0,
    delay: 0,
    delayMsMax: 0,
    breakage: 0,
    stall: 0,
    redelivery: 0,
    answerLoss: 0,
    damage: 0,
  };
}

/** The network's view of a process, from its start to its end. */
export interface Endpoint {
  readonly name: string;
  readonly clock: ProcessClock;
  /** The handshakes of its servers; null: they take no time. */
  readonly handshakes: SimHandshakes | null;
}

/** One-way latency between two machines on one switch, in milliseconds. */
const latencyMsMin = 0.1;
const latencyMsMax = 0.6;

export interface Keepalive {
  /** Bounds of how long a side waits for a silent peer, in milliseconds; drawn for each connection. */
  readonly leastMs: number;
  readonly mostMs: number;
}

export class SimNetwork {
  /** May change while the simulation runs. */
  faults: NetworkFaults = noFaults();
  readonly clock: SimClock;
  readonly random: SimRandom;
  readonly trace: SimTrace;
  /** Ends of open connections, by endpoint name. */
  readonly #ends = new Map<string, Set<ConnectionEnd>>();
  /** Cut directions (`from>to`), with the number of the cut. */
  readonly #cuts = new Map<string, number>();
  #cutCount = 0;

  constructor(clock: SimClock, random: SimRandom, trace: SimTrace) {
    this.clock = clock;
    this.random = random;
    this.trace = trace;
  }

  latencyMs(): number {
    const { faults, random } = this;
    const extra = random.chance(faults.delay) ? random.between(0, faults.delayMsMax) : 0;
    return random.between(latencyMsMin, latencyMsMax) + extra;
  }

  isCut(from: string, to: string): boolean {
    return this.#cuts.size > 0 && this.#cuts.has(`${from}>${to}`);
  }

  /** Stops traffic from `from` to `to`; the other direction continues. */
  cut(from: string, to: string): void {
    const direction = `${from}>${to}`;
    if (this.#cuts.has(direction)) return;
    const number = (this.#cutCount += 1);
    this.#cuts.set(direction, number);
    this.trace.write("network", `cut ${direction}`);
    for (const end of [...this.#endsOf(from), ...this.#endsOf(to)]) {
      const peer = end.peer.endpoint.name;
      if (peer !== from && peer !== to) continue;
      // Both sides miss something: data in one direction, acknowledgements in the other.
      end.suspect(() => this.#cuts.get(direction) === number);
    }
  }

  /** Ends a cut; waiting messages are delivered. */
  heal(from: string, to: string): void {
    if (!this.#cuts.delete(`${from}>${to}`)) return;
    this.trace.write("network", `heal ${from}>${to}`);
    for (const end of this.#endsOf(to)) if (end.peer.endpoint.name === from) end.flush();
  }

  healAll(): void {
    for (const direction of Array.from(this.#cuts.keys())) {
      const [from = "", to = ""] = direction.split(">");
      this.heal(from, to);
    }
  }

  /** Starts the keepalive timers of a silent process's peers. `isSilent` tells whether it still is. */
  suspect(name: string, isSilent: () => boolean): void {
    for (const end of Array.from(this.#endsOf(name))) end.peer.suspect(isSilent);
  }

  /** The kernel closes the open connections of a process that has ended. */
  vanish(endpoint: Endpoint): void {
    for (const end of Array.from(this.#endsOf(endpoint.name))) if (end.endpoint === endpoint) end.close();
  }

  /** The machine of an ended process sends nothing more: its connections stay open at the other ends until those give up. */
  fallSilent(endpoint: Endpoint): void {
    for (const end of Array.from(this.#endsOf(endpoint.name))) {
      if (end.endpoint !== endpoint) continue;
      end.peer.suspect(() => true);
      end.drop();
    }
  }

  /** A connection that is open on both sides; whether packets get through shows only in use. */
  connect(
    client: Endpoint,
    server: Endpoint,
    keepalive: { client: Keepalive; server: Keepalive },
  ): { client: ConnectionEnd; server: ConnectionEnd } {
    const clientEnd = new ConnectionEnd(this, client, this.#draw(keepalive.client));
    const serverEnd = new ConnectionEnd(this, server, this.#draw(keepalive.server));
    clientEnd.peer = serverEnd;
    serverEnd.peer = clientEnd;
    for (const end of [clientEnd, serverEnd]) {
      let ends = this.#ends.get(end.endpoint.name);
      if (ends === undefined) this.#ends.set(end.endpoint.name, (ends = new Set()));
      ends.add(end);
    }
    return { client: clientEnd, server: serverEnd };
  }

  forget(end: ConnectionEnd): void {
    this.#ends.get(end.endpoint.name)?.delete(end);
  }

  #draw(keepalive: Keepalive): number {
    return this.random.between(keepalive.leastMs, keepalive.mostMs);
  }

  #endsOf(name: string): Iterable<ConnectionEnd> {
    return this.#ends.get(name) ?? [];
  }
}

/** One side of a connection. */
export class ConnectionEnd {
  readonly endpoint: Endpoint;
  /** Called once, in this side's process, when the connection ended for any reason other than this side's `close`. */
  onBroken: (() => void) | null = null;
  #peer: ConnectionEnd | null = null;
  readonly #network: SimNetwork;
  readonly #keepaliveMs: number;
  #isOpen = true;
  /** A message was lost; this side is about to notice. */
  #isBreaking = false;
  /** Arrival time of the last message sent in order. */
  #lastArrival = 0;
  /** Messages that arrived while the way to this side was cut. */
  #held: (() => void)[] = [];

  constructor(network: SimNetwork, endpoint: Endpoint, keepaliveMs: number) {
    this.#network = network;
    this.endpoint = endpoint;
    this.#keepaliveMs = keepaliveMs;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  get peer(): ConnectionEnd {
    if (this.#peer === null) throw new Error("the connection has no peer");
    return this.#peer;
  }

  set peer(peer: ConnectionEnd) {
    this.#peer = peer;
  }

  /** `receive` runs in the peer's process when the message arrives. */
  send(receive: () => void): void {
    // Everything sent after a lost message is lost too: a stream has no gaps.
    if (!this.#isOpen || this.#isBreaking) return;
    if (this.#network.random.chance(this.#network.faults.breakage)) {
      this.#isBreaking = true;
      this.#network.trace.mark("connection.broken");
      // The sender is busy; it notices afterwards.
      this.endpoint.clock.soon(() => this.#fail());
      return;
    }
    this.#carry(receive);
  }

  /** Like `send`, but unordered, and delayed by up to `extraMs`. */
  sendLoose(receive: () => void, extraMs: number): void {
    if (!this.#isOpen) return;
    const wait = this.#network.latencyMs() + this.#network.random.between(0, extraMs);
    this.peer.endpoint.clock.after(wait, () => this.peer.#arrive(receive));
  }

  /** Closes the connection from this side; the peer notices when the close arrives. */
  close(): void {
    if (!this.#isOpen) return;
    this.#shut();
    this.#carry(() => this.peer.#lose());
  }

  /** This side disappears without notifying the peer. */
  drop(): void {
    this.#shut();
  }

  /** Gives up on the peer once its keepalive has expired, if `isSilent` still holds. */
  suspect(isSilent: () => boolean): void {
    this.endpoint.clock.after(this.#keepaliveMs, () => {
      if (this.#isOpen && isSilent()) this.#fail();
    });
  }

  /** Delivers what waited while the way to this side was cut. */
  flush(): void {
    if (this.#held.length === 0) return;
    this.endpoint.clock.after(this.#network.latencyMs(), () => {
      while (this.#isOpen && !this.#isCutOff()) {
        const receive = this.#held.shift();
        if (receive === undefined) return;
        receive();
      }
    });
  }

  #carry(receive: () => void): void {
    const now = this.#network.clock.elapsed;
    const arrival = Math.max(now + this.#network.latencyMs(), this.#lastArrival);
    this.#lastArrival = arrival;
    this.peer.endpoint.clock.after(arrival - now, () => this.peer.#arrive(receive));
  }

  #arrive(receive: () => void): void {
    if (!this.#isOpen) return;
    if (this.#held.length > 0 || this.#isCutOff()) this.#held.push(receive);
    else receive();
  }

  #isCutOff(): boolean {
    return this.#network.isCut(this.peer.endpoint.name, this.endpoint.name);
  }

  /** This side finds the connection broken, and notifies the peer. */
  #fail(): void {
    if (!this.#isOpen) return;
    this.close();
    this.onBroken?.();
  }

  #lose(): void {
    if (!this.#isOpen) return;
    this.#shut();
    this.onBroken?.();
  }

  #shut(): void {
    this.#isOpen = false;
    this.#held = [];
    this.#network.forget(this);
  }
}
