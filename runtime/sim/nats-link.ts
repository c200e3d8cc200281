/**
 * One process's connection to the simulated NATS, and the bus on it. It reconnects by itself after a break, with all its
 * subscriptions.
 *
 * States: up (this side believes it is connected), down (reconnecting). `isUp` tells which, and may be wrong for the duration
 * of a keepalive, as in reality.
 *
 * K1: each server request resolves once: with its result, or with null if it gets none.
 */
import type { Bus, BusMessage, Headers, RequestOutcome, Subscription } from "../ports/index.ts";
import type { SimNatsServer, ServerSession } from "./nats-server.ts";
import type { ConnectionEnd, Endpoint, Keepalive, SimNetwork } from "./network.ts";
import type { SimRandom } from "./random.ts";

/** A client pings every 1 to 2 s and gives up after two unanswered pings. */
const clientKeepalive: Keepalive = { leastMs: 2_000, mostMs: 4_000 };
/** The server takes longer to notice a dead client. */
const serverKeepalive: Keepalive = { leastMs: 4_000, mostMs: 10_000 };
const reconnectMsMin = 200;
const reconnectMsMax = 1_500;
/** How long a new connection waits for the server's first message, in milliseconds. */
const handshakeMsMax = 2_000;
/** Share of messages sent while the link is down that leave once it is up, whatever their outcome; others are lost. */
const lateShare = 0.1;

interface Subscribed {
  readonly pattern: string;
  readonly queue: string | null;
  readonly handler: (message: BusMessage) => void;
}

/** Result of server-side work that sends no answer. */
export const noAnswer = Symbol("no answer");

const noWait = (): number => 0;

/** A pending request, notified when this connection can no longer answer it. */
interface Pending {
  readonly onLost: () => void;
}

/** State on the link that must be re-established after each reconnect. */
interface Rejoining {
  onUp(): void;
}

export class SimNatsLink implements Bus {
  readonly #network: SimNetwork;
  readonly #server: SimNatsServer;
  readonly #endpoint: Endpoint;
  readonly #random: SimRandom;
  readonly #subscribed = new Map<number, Subscribed>();
  readonly #listeners = new Set<(up: boolean) => void>();
  readonly #rejoining = new Set<Rejoining>();
  readonly #pending = new Set<Pending>();
  #late: ((session: ServerSession) => void)[] = [];
  #connection: { readonly end: ConnectionEnd; readonly session: ServerSession } | null = null;
  #nextId = 1;

  constructor(network: SimNetwork, server: SimNatsServer, endpoint: Endpoint, random: SimRandom) {
    this.#network = network;
    this.#server = server;
    this.#endpoint = endpoint;
    this.#random = random;
    // A process waits for its first connection before it starts its actors, so connect immediately if possible.
    if (this.#isReachable()) this.#open();
    else this.#retry();
  }

  isUp(): boolean {
    return this.#connection !== null;
  }

  onLink(listener: (up: boolean) => void): Subscription {
    this.#listeners.add(listener);
    return { unsubscribe: () => this.#listeners.delete(listener) };
  }

  /** Calls `onUp` after each reconnect, before the listeners of `onLink`. */
  rejoin(rejoining: Rejoining): Subscription {
    this.#rejoining.add(rejoining);
    return { unsubscribe: () => this.#rejoining.delete(rejoining) };
  }

  publish(subject: string, data: Uint8Array, headers: Headers = {}): void {
    const copy = data.slice();
    this.#send(() => this.#server.publish({ from: this.#endpoint.name, subject, data: copy, headers, reply: null }));
  }

  subscribe(subject: string, handler: (message: BusMessage) => void, queue?: string): Subscription {
    const id = this.#nextId++;
    const subscribed = { pattern: subject, queue: queue ?? null, handler };
    this.#subscribed.set(id, subscribed);
    const { end, session } = this.#connection ?? {};
    if (end !== undefined && session !== undefined) this.#declare(end, session, id, subscribed);
    return {
      unsubscribe: () => {
        this.#subscribed.delete(id);
        const connection = this.#connection;
        connection?.end.send(() => connection.session.interests.delete(id));
      },
    };
  }

  request(
    subject: string,
    data: Uint8Array,
    options: { timeoutMs: number; headers?: Headers },
  ): Promise<RequestOutcome> {
    const copy = data.slice();
    return this.#await<RequestOutcome>(options.timeoutMs, { kind: "timeout" }, { kind: "closed" }, (finish) => {
      this.#send((session) => {
        const own = this.#endpoint.name;
        const answer = (from: string, outcome: RequestOutcome) =>
          this.#server.answer(from, session, () => finish(outcome));
        const reply = (bytes: Uint8Array, from: string) => {
          this.#server.onAnswer?.(bytes);
          answer(from, { kind: "reply", data: bytes });
        };
        const headers = options.headers ?? {};
        const receivers = this.#server.publish({ from: own, subject, data: copy, headers, reply });
        if (receivers === 0) answer(own, { kind: "no-responders" });
      });
    });
  }

  /**
   * Runs `work` at the server; null if no answer arrives within `timeoutMs`: the work may have been done, or may still be.
   * `waitMs`: how long the work waits at the server, in milliseconds; by default not at all.
   */
  ask<Result>(
    work: (server: SimNatsServer, session: ServerSession) => Result | typeof noAnswer,
    timeoutMs: number,
    waitMs: (server: SimNatsServer) => number = noWait,
  ): Promise<Result | null> {
    return this.#await<Result | null>(timeoutMs, null, null, (finish) => {
      this.#send((session) => {
        const run = (): void => {
          const result = work(this.#server, session);
          if (result !== noAnswer) session.end.send(() => finish(result));
        };
        const ms = waitMs(this.#server);
        if (ms > 0) session.end.endpoint.clock.after(ms, run);
        else run();
      });
    });
  }

  /** Runs `work` at the server on arrival, without an answer; lost while the link is down. */
  tell(work: (session: ServerSession) => void): void {
    const connection = this.#connection;
    if (this.#endpoint.clock.alive) connection?.end.send(() => work(connection.session));
  }

  /**
   * K1: `begin` gets the callback for the answer; without one, the outcome is `late` after the timeout, `lost` with the link.
   */
  #await<Outcome>(
    timeoutMs: number,
    late: Outcome,
    lost: Outcome,
    begin: (finish: (outcome: Outcome) => void) => void,
  ): Promise<Outcome> {
    return new Promise((resolve) => {
      const { clock } = this.#endpoint;
      const finish = (outcome: Outcome) => {
        if (!this.#pending.delete(pending)) return;
        clock.clearTimeout(timer);
        resolve(outcome);
      };
      const pending: Pending = { onLost: () => finish(lost) };
      const timer = clock.setTimeout(() => finish(late), timeoutMs);
      this.#pending.add(pending);
      if (this.#connection === null) clock.soon(() => finish(lost));
      begin(finish);
    });
  }

  /** Runs `work` at the server on arrival. */
  #send(work: (session: ServerSession) => void): void {
    if (!this.#endpoint.clock.alive) return;
    const connection = this.#connection;
    if (connection !== null) connection.end.send(() => work(connection.session));
    else if (this.#random.chance(lateShare)) this.#late.push(work);
  }

  #declare(end: ConnectionEnd, session: ServerSession, id: number, { pattern, queue }: Subscribed): void {
    const deliver = (delivery: {
      subject: string;
      data: Uint8Array;
      headers: Headers;
      reply: ((data: Uint8Array, from: string) => void) | null;
    }) => {
      // Looked up on arrival: it may have been unsubscribed while the message was in flight.
      this.#subscribed.get(id)?.handler({
        subject: delivery.subject,
        data: delivery.data,
        headers: delivery.headers,
        respond: (data) => {
          const { reply } = delivery;
          const copy = data.slice();
          if (reply !== null) this.#send(() => reply(copy, this.#endpoint.name));
        },
      });
    };
    end.send(() => session.interests.set({ id, pattern, queue, deliver }));
  }

  #isReachable(): boolean {
    const { name } = this.#endpoint;
    return (
      this.#server.isUp &&
      !this.#network.isCut(name, this.#server.name) &&
      !this.#network.isCut(this.#server.name, name)
    );
  }

  /** Connects immediately, without waiting for the server to be ready. */
  #open(): void {
    const server = this.#server.endpoint;
    if (server === null) return;
    const ends = this.#network.connect(this.#endpoint, server, { client: clientKeepalive, server: serverKeepalive });
    this.#use(ends.client, this.#server.accept(ends.server));
  }

  #use(end: ConnectionEnd, session: ServerSession): void {
    this.#connection = { end, session };
    end.onBroken = () => this.#lose();
    for (const [id, subscribed] of this.#subscribed) this.#declare(end, session, id, subscribed);
    const late = this.#late;
    this.#late = [];
    for (const work of late) end.send(() => work(session));
    for (const rejoining of Array.from(this.#rejoining)) rejoining.onUp();
    for (const listener of Array.from(this.#listeners)) listener(true);
  }

  #lose(): void {
    this.#connection = null;
    this.#network.trace.write(this.#endpoint.name, "link down");
    this.#network.trace.mark("link.down");
    for (const pending of Array.from(this.#pending)) pending.onLost();
    for (const listener of Array.from(this.#listeners)) listener(false);
    this.#retry();
  }

  #retry(): void {
    this.#endpoint.clock.after(this.#random.between(reconnectMsMin, reconnectMsMax), () => this.#dial());
  }

  #dial(): void {
    const server = this.#server.endpoint;
    if (server === null) {
      this.#retry();
      return;
    }
    const ends = this.#network.connect(this.#endpoint, server, { client: clientKeepalive, server: serverKeepalive });
    const giveUp = () => {
      this.#endpoint.clock.clearTimeout(timer);
      ends.client.close();
      this.#retry();
    };
    const timer = this.#endpoint.clock.after(handshakeMsMax, giveUp);
    ends.client.onBroken = giveUp;
    ends.client.send(() => {
      const session = this.#server.accept(ends.server);
      ends.server.send(() => {
        this.#endpoint.clock.clearTimeout(timer);
        this.#network.trace.write(this.#endpoint.name, "link up");
        this.#use(ends.client, session);
      });
    });
  }
}
