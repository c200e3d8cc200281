/**
 * The TCP side of a TLS port, up to the completed handshake.
 *
 * Stages of a connection: silent (accepted) → waiting (first bytes received) → shaking hands → handed to the TLS server.
 *
 * E1: connections without a completed handshake are bounded in number, bytes and time, and never keep others out.
 */
import { createServer, type Server, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Server as TlsServer, TLSSocket } from "node:tls";
import { beginHandshake, carriedNow, sourceOfCarried, type Carrier } from "../carried.ts";
import { FirstBytes } from "../first-bytes.ts";
import { http1Refusal, isHttp1Request } from "../http1.ts";
import type { Admission } from "./admission.ts";
import { Crowd } from "./crowd.ts";
import { HeldBytes } from "./held-bytes.ts";
import { sourceOf } from "../../../runtime/source-of.ts";
import { Handshakes } from "./handshakes.ts";
import type { Port, RefusalReason } from "./refusals.ts";

/** A TCP connection's ends, or another connection itself. */
type Key = string | Duplex;

interface Arrival {
  readonly socket: Duplex;
  readonly source: string;
  /** IP address of the peer. */
  readonly address: string;
  readonly key: Key;
  /** Null for a TCP connection. */
  readonly carrier: Carrier | null;
  readonly cameAt: number;
  /** It waits for us to start the handshake. */
  isServed: boolean;
  /** While it waits. */
  held: HeldBytes | null;
  handshakeSince: number;
}

interface EntranceOptions {
  readonly port: Port;
  readonly admission: Admission;
  /** Timeouts for the first bytes and for the handshake, each in milliseconds. */
  readonly handshakeTimeoutMs: number;
  /** Idle time after which the kernel probes the peer, in milliseconds. */
  readonly keepAliveMs: number;
}

type Ends = Pick<Socket, "remoteAddress" | "remotePort" | "localAddress">;

const endsOf = ({ remoteAddress, remotePort, localAddress }: Ends): string =>
  `${remoteAddress ?? ""} ${remotePort ?? 0} ${localAddress ?? ""}`;

const keyOf = (socket: TLSSocket): Key => carriedNow()?.stream ?? endsOf(socket);

export class Entrance {
  /** The owner calls `listen`. */
  readonly server: Server;
  readonly #tls: TlsServer;
  readonly #options: EntranceOptions;
  readonly #pending: Crowd<Arrival>;
  /** Handshakes in progress, oldest first. */
  readonly #handshaking = new Map<Key, Arrival>();
  readonly #handshakes: Handshakes;
  readonly #firstBytes: FirstBytes<Duplex>;
  readonly #arrivals = new WeakMap<Duplex, Arrival>();

  /** `tls` gets each connection when its handshake may start, and must not listen itself. */
  constructor(tls: TlsServer, options: EntranceOptions) {
    this.#tls = tls;
    this.#options = options;
    const { limits } = options.admission;
    this.#pending = new Crowd(limits.pendingMax);
    this.#handshakes = new Handshakes(limits.handshakeTurnMs, () => this.#mayHandshake());
    // For data that TLS has not read yet, Node keeps a buffer as large as the first piece that does not come from the kernel
    // (at least 1 KiB), or 64 KiB if everything comes from the kernel.
    this.#firstBytes = new FirstBytes(options.handshakeTimeoutMs, (socket, head) => this.#onFirstBytes(socket, head));
    tls.on("secureConnection", (socket: TLSSocket) => this.#handshakeEnded(keyOf(socket)));
    // TLS reports the failure to the peer.
    tls.on("tlsClientError", (error: NodeJS.ErrnoException, socket: TLSSocket) => {
      if (error.code === "ERR_TLS_HANDSHAKE_TIMEOUT")
        this.#count("handshake-time", carriedNow()?.carrier.address ?? socket.remoteAddress ?? "");
      socket.destroy();
    });
    const { keepAliveMs } = options;
    this.server = createServer({ noDelay: true, keepAlive: true, keepAliveInitialDelay: keepAliveMs }, (socket) =>
      this.#onArrival(socket),
    );
  }

  /** Connections whose handshake is not complete. */
  get pending(): number {
    return this.#pending.size;
  }

  /** For how long connections have waited to be accepted, or the oldest for its handshake, in milliseconds; 0: none waits. */
  waitMs(): number {
    return this.#handshakes.waitMs();
  }

  /** A connection that another edge has accepted: treated as those of `server`. */
  accept(socket: Duplex, carrier: Carrier): void {
    this.#arrived(socket, { source: sourceOfCarried(carrier), address: carrier.address, key: socket, carrier });
  }

  /** Stops accepting, and closes connections that have sent nothing. */
  close(): void {
    this.#firstBytes.close();
    this.server.close();
  }

  #count(reason: RefusalReason, peer: string): void {
    this.#options.admission.refusals.count(this.#options.port, reason, peer);
  }

  #onArrival(socket: Socket): void {
    const { remoteAddress } = socket;
    // The peer left before it was accepted.
    if (remoteAddress === undefined) return void socket.destroy();
    this.#arrived(socket, {
      source: sourceOf(remoteAddress),
      address: remoteAddress,
      key: endsOf(socket),
      carrier: null,
    });
  }

  #arrived(socket: Duplex, from: Pick<Arrival, "source" | "address" | "key" | "carrier">): void {
    const arrival: Arrival = {
      ...from,
      socket,
      cameAt: performance.now(),
      isServed: false,
      held: null,
      handshakeSince: 0,
    };
    this.#arrivals.set(socket, arrival);
    this.#handshakes.arrived();
    const displaced = this.#pending.add(arrival.source, arrival, this.#options.admission.limits.pendingPerAddressMax);
    if (displaced !== null) {
      this.#count("pending-limit", displaced.address);
      displaced.socket.destroy();
    }
    socket.once("close", () => this.#leave(arrival));
    if (!socket.destroyed) this.#firstBytes.await(socket);
  }

  #onFirstBytes(socket: Duplex, head: Buffer): void {
    const arrival = this.#arrivals.get(socket);
    if (arrival === undefined) return void socket.destroy();
    if (socket.readableLength > this.#options.admission.limits.firstBytesMax) {
      this.#count("first-bytes", arrival.address);
      return void socket.destroy();
    }
    if (this.#options.port === "grpc" && isHttp1Request(head)) {
      this.#count("protocol", arrival.address);
      socket.on("error", () => socket.destroy());
      // Closed right after the answer; further bytes from the peer are not read.
      return void socket.end(http1Refusal(head), () => socket.destroy());
    }
    arrival.isServed = true;
    socket.on("error", () => socket.destroy());
    arrival.held = new HeldBytes(socket, this.#options.admission.limits.firstBytesMax, () => {
      this.#count("first-bytes", arrival.address);
      socket.destroy();
    });
    this.#handshakes.offer(
      arrival.source,
      () => this.#handshake(arrival),
      () => this.#isWanted(arrival),
    );
  }

  #isWanted({ address, cameAt, socket }: Arrival): boolean {
    if (socket.destroyed) return false;
    if (performance.now() - cameAt < 2 * this.#options.handshakeTimeoutMs) return true;
    this.#count("handshake-time", address);
    socket.destroy();
    return false;
  }

  #mayHandshake(): boolean {
    const { limits } = this.#options.admission;
    if (this.#handshaking.size < limits.handshakesMax) return true;
    const [oldest] = this.#handshaking.values();
    if (oldest === undefined || performance.now() - oldest.handshakeSince < limits.handshakePatienceMs) return false;
    this.#count("handshake-time", oldest.address);
    oldest.socket.destroy();
    this.#leave(oldest);
    return true;
  }

  #handshake(arrival: Arrival): void {
    arrival.isServed = false;
    arrival.held?.release();
    arrival.held = null;
    arrival.handshakeSince = performance.now();
    this.#handshaking.set(arrival.key, arrival);
    const { carrier, socket } = arrival;
    beginHandshake(carrier === null ? null : { carrier, stream: socket }, () => this.#tls.emit("connection", socket));
  }

  #handshakeEnded(key: Key): void {
    const arrival = this.#handshaking.get(key);
    if (arrival !== undefined) this.#leave(arrival);
  }

  #leave(arrival: Arrival): void {
    this.#pending.remove(arrival.source, arrival);
    if (this.#handshaking.get(arrival.key) !== arrival) return;
    this.#handshaking.delete(arrival.key);
    this.#handshakes.ended();
  }
}
