/**
 * The ports for everything that involves time, randomness or I/O. `runtime/nats/` and `runtime/sim/` each implement all of
 * them; machines never see them, and actors receive them as parameters.
 */
import type { Tracer } from "@opentelemetry/api";

export interface TimerHandle {
  readonly brand: "TimerHandle";
}

export interface Clock {
  /**
   * Milliseconds since the Unix epoch: for times that are displayed or stored in the log. An operator or NTP can set the
   * machine's clock in either direction and by any amount, so no wait, deadline or age within a process uses it.
   */
  now(): number;
  /**
   * Milliseconds since some moment in this process's life. It cannot be set and never goes back: for waits, deadlines and ages.
   * Meaningless to other processes. Timers use it.
   */
  monotonic(): number;
  /** Calls back once, at least `ms` later (0 or more). */
  setTimeout(callback: () => void, ms: number): TimerHandle;
  clearTimeout(timer: TimerHandle): void;
  /** Calls back after the current code and before any later timer: the end of a batch. */
  soon(callback: () => void): void;
}

export interface Random {
  /** Uniform in [0, 1). */
  next(): number;
  /** Uniform whole number in [0, bound). */
  below(bound: number): number;
  bytes(count: number): Uint8Array;
  /** An independent stream, so that another draw here does not shift the draws there. */
  fork(name: string): Random;
}

export type Headers = Readonly<Record<string, string>>;

export interface BusMessage {
  readonly subject: string;
  readonly data: Uint8Array;
  readonly headers: Headers;
  /** Answers a request; does nothing for a published message. */
  respond(data: Uint8Array): void;
}

export interface Subscription {
  unsubscribe(): void;
}

/** `no-responders` is known not to have happened; `timeout` and `closed` may have. */
export type RequestOutcome =
  | { readonly kind: "reply"; readonly data: Uint8Array }
  | { readonly kind: "no-responders" }
  | { readonly kind: "timeout" }
  | { readonly kind: "closed" };

export interface Bus {
  publish(subject: string, data: Uint8Array, headers?: Headers): void;
  /** With a queue group, one member of the group gets each message. A handler never throws. */
  subscribe(subject: string, handler: (message: BusMessage) => void, queue?: string): Subscription;
  request(
    subject: string,
    data: Uint8Array,
    options: { timeoutMs: number; headers?: Headers },
  ): Promise<RequestOutcome>;
  /** True while the link to the bus answers its pings. */
  isUp(): boolean;
  /** Reports each change of `isUp` immediately. */
  onLink(listener: (up: boolean) => void): Subscription;
}

/**
 * `conflict`: known not to have happened. `unknown`: it may have, or may still. `full`: it has not, for lack of space.
 * `refused`: the server rejected it permanently.
 */
export type AppendOutcome =
  | { readonly kind: "appended"; readonly sequence: number }
  | { readonly kind: "conflict" }
  | { readonly kind: "unknown"; readonly reason: string }
  | { readonly kind: "full"; readonly reason: string }
  | { readonly kind: "refused"; readonly reason: string };

/** Space for the log: `scarce`: old history is dropped early; `full`: nothing is appended. */
export type LogSpace = "ample" | "scarce" | "full";

export interface LogReader {
  /** Records with consecutive sequences, each once, from the requested one; without gaps, whatever the link does. */
  onRecord(sequence: number, data: Uint8Array): void;
  /** Everything up to the sequence that was the last when reading began has been delivered; again after each reconnect. */
  onCaughtUp(sequence: number): void;
  /** The next record is older than what the log retains: load a newer snapshot. Reading has stopped. */
  onGap(firstKept: number): void;
  /** For some time, the log has ended before what was delivered: it lost its tail. Reading continues if the tail comes back. */
  onShorter?(last: number): void;
}

/** The replicated, ordered list of records: one stream. */
export interface Log {
  /** Appends only if the log's last sequence is `expectedLast`. */
  append(data: Uint8Array, expectedLast: number): Promise<AppendOutcome>;
  /**
   * Starts delivering from `fromSequence`, until `unsubscribe`. `aheadBytes`: the log sends records of about that many bytes, or one
   * larger record, and the next ones in a later turn of the event loop; default: as fast as the link takes them, which
   * is some megabytes before a reader can stop it.
   */
  read(fromSequence: number, reader: LogReader, aheadBytes?: number): Subscription;
  /** First and last retained sequence (first = last + 1 if empty); null if the log does not answer within `timeoutMs`. */
  bounds(timeoutMs: number): Promise<{ readonly first: number; readonly last: number } | null>;
  /** Size of the log in bytes; null if it does not answer within `timeoutMs`. */
  bytes(timeoutMs: number): Promise<number | null>;
  /** As far as this process can see: an external NATS is always `ample`, until it refuses. */
  space(): LogSpace;
  /** Drops the records before `sequence`. */
  purgeBefore(sequence: number): Promise<void>;
  /** Largest record in bytes. */
  readonly recordBytesMax: number;
}

/** The servers that carry the bus and the log. */
export interface BusServers {
  /** Number of configured servers. */
  readonly named: number;
  /** Number of them that greet a new connection now. */
  readonly answering: number;
}

export type KvOutcome =
  | { readonly kind: "stored"; readonly revision: number }
  | { readonly kind: "conflict" }
  | { readonly kind: "unknown"; readonly reason: string };

/** A bucket whose keys expire `ttlMs` after their last write: for leases. */
export interface LeaseBucket {
  readonly ttlMs: number;
  /** Writes the key only if it is absent. */
  create(key: string, value: Uint8Array): Promise<KvOutcome>;
  /** Writes the key only if its revision is still `revision`. */
  update(key: string, value: Uint8Array, revision: number): Promise<KvOutcome>;
  get(
    key: string,
  ): Promise<
    | { readonly kind: "found"; readonly value: Uint8Array; readonly revision: number }
    | { readonly kind: "absent" }
    | { readonly kind: "unknown"; readonly reason: string }
  >;
  remove(key: string, revision: number): Promise<void>;
}

/** Large values by name: snapshots. A value is either whole or absent. */
export interface Blobs {
  put(name: string, data: Uint8Array): Promise<void>;
  get(name: string): Promise<Uint8Array | null>;
  list(): Promise<readonly string[]>;
  remove(name: string): Promise<void>;
}

export interface Counter {
  add(value?: number, labels?: Headers): void;
}
export interface Gauge {
  set(value: number, labels?: Headers): void;
}
export interface Histogram {
  /** In seconds, as Prometheus expects durations. */
  observe(value: number, labels?: Headers): void;
}

/** `help` is shown by `/metrics`. Names are `muster_<noun>_<unit>`; requesting a name twice returns the same metric. */
export interface Metrics {
  counter(name: string, help: string): Counter;
  gauge(name: string, help: string): Gauge;
  histogram(name: string, help: string): Histogram;
}

export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface Telemetry {
  readonly tracer: Tracer;
  readonly metrics: Metrics;
  readonly log: Logger;
}
