/** The log, leases and blobs of one process, over its link to the simulated NATS. */
import type {
  AppendOutcome,
  Blobs,
  KvOutcome,
  LeaseBucket,
  Log,
  LogReader,
  LogSpace,
  Subscription,
} from "../ports/index.ts";
import type { ProcessClock } from "./clock.ts";
import { noAnswer, type SimNatsLink } from "./nats-link.ts";
import type { ServerSession, SimNatsServer } from "./nats-server.ts";
import type { SimTrace } from "./trace.ts";

/** Timeout of each request, in milliseconds, as in the NATS implementation. */
const requestTimeoutMs = 5_000;
/** Milliseconds between two checks of the log's end by an idle reader: the idle heartbeat of a consumer. */
const idleCheckMs = 1_000;
/** Records fetched at a time. */
const fetchMax = 256;
/** NATS's default `max_payload`, with room for headers. */
const recordBytesMax = 1_000_000;

export class SimLog implements Log {
  readonly recordBytesMax = recordBytesMax;
  readonly #link: SimNatsLink;
  readonly #clock: ProcessClock;
  readonly #trace: SimTrace;

  constructor(link: SimNatsLink, clock: ProcessClock, trace: SimTrace) {
    this.#link = link;
    this.#clock = clock;
    this.#trace = trace;
  }

  async append(data: Uint8Array, expectedLast: number): Promise<AppendOutcome> {
    if (data.length > recordBytesMax)
      return { kind: "refused", reason: `a record of ${data.length} bytes is too large` };
    const copy = data.slice();
    const append = (server: SimNatsServer) => {
      const outcome = server.append(copy, expectedLast);
      if (outcome.kind !== "appended" || server.losesAnswersOf === "none") return outcome;
      this.#trace.mark("append.answer.lost");
      return noAnswer;
    };
    const outcome = await askLog(this.#link, append, requestTimeoutMs, (server) => server.takeAppendTurn());
    if (outcome === null) this.#trace.mark("append.unknown");
    else if (outcome.kind === "conflict") this.#trace.mark("append.conflict");
    return outcome ?? { kind: "unknown", reason: "the log did not answer in time" };
  }

  read(fromSequence: number, reader: LogReader): Subscription {
    return new Reading(this.#link, this.#clock, fromSequence, reader);
  }

  bounds(timeoutMs: number): Promise<{ readonly first: number; readonly last: number } | null> {
    return askLog(this.#link, (server) => ({ first: server.first, last: server.last }), timeoutMs);
  }

  bytes(timeoutMs: number): Promise<number | null> {
    return askLog(this.#link, (server) => server.bytes, timeoutMs);
  }

  /** As with an external NATS, whose disk is unknown: refusals show that it is full. */
  space(): LogSpace {
    return "ample";
  }

  async purgeBefore(sequence: number): Promise<void> {
    const purge = (server: SimNatsServer): true => {
      server.purgeBefore(sequence);
      return true;
    };
    const done = await askLog(this.#link, purge, requestTimeoutMs);
    if (done === null) throw new Error("the log did not answer in time");
  }
}

function askLog<Result>(
  link: SimNatsLink,
  work: (server: SimNatsServer, session: ServerSession) => Result | typeof noAnswer,
  timeoutMs: number,
  waitMs?: (server: SimNatsServer) => number,
): Promise<Result | null> {
  const isSilent = (server: SimNatsServer, { end }: ServerSession) => server.isSilentTo(end.peer.endpoint.name);
  return link.ask(
    (server, session) => (isSilent(server, session) ? noAnswer : work(server, session)),
    timeoutMs,
    waitMs,
  );
}

/** One reader of the log: receives pushed records while the link holds, and polls when it receives nothing. */
class Reading implements Subscription {
  readonly #link: SimNatsLink;
  readonly #clock: ProcessClock;
  readonly #reader: LogReader;
  readonly #rejoined: Subscription;
  #next: number;
  /** Sequence to deliver before the reader is told that it has caught up; null once told. */
  #target: number | null = null;
  #fetching = false;
  #hasReceived = false;
  #isActive = true;

  constructor(link: SimNatsLink, clock: ProcessClock, from: number, reader: LogReader) {
    this.#link = link;
    this.#clock = clock;
    this.#next = from;
    this.#reader = reader;
    this.#rejoined = link.rejoin({ onUp: () => void this.#begin() });
    void this.#begin();
    this.#watch();
  }

  unsubscribe(): void {
    if (!this.#isActive) return;
    this.#isActive = false;
    this.#rejoined.unsubscribe();
    this.#link.tell(({ readers }) => readers.delete(this));
  }

  /** Subscribes, and learns how far it must read to catch up. */
  async #begin(): Promise<void> {
    const join = (server: SimNatsServer, session: ServerSession): number => {
      session.readers.set(this, (sequence, data) => this.#receive(sequence, data));
      return server.last;
    };
    const last = await askLog(this.#link, join, idleCheckMs);
    // The next check starts again.
    if (last === null || !this.#isActive) return;
    this.#target = last;
    this.#catchUp();
    void this.#fetch();
  }

  #receive(sequence: number, data: Uint8Array): void {
    if (!this.#isActive) return;
    this.#hasReceived = true;
    if (sequence === this.#next) this.#hand(data);
    else if (sequence > this.#next) void this.#fetch();
  }

  #hand(data: Uint8Array): void {
    const sequence = this.#next;
    this.#next += 1;
    this.#reader.onRecord(sequence, data);
    this.#catchUp();
  }

  #catchUp(): void {
    const target = this.#target;
    if (!this.#isActive || target === null || this.#next <= target) return;
    this.#target = null;
    this.#reader.onCaughtUp(target);
  }

  async #fetch(): Promise<void> {
    if (this.#fetching) return;
    this.#fetching = true;
    for (;;) {
      const from = this.#next;
      const readRecords = (server: SimNatsServer, session: ServerSession) => {
        const { first, last } = server;
        return { first, last, records: from < first ? [] : server.records(from, fetchMax, session) };
      };
      const found = await askLog(this.#link, readRecords, idleCheckMs);
      if (found === null || !this.#isActive || !this.#clock.alive) break;
      if (this.#next < found.first) {
        this.unsubscribe();
        this.#reader.onGap(found.first);
        break;
      }
      for (const [at, data] of found.records.entries()) {
        // Pushed records may have arrived in between.
        if (this.#isActive && this.#clock.alive && from + at === this.#next) this.#hand(data);
      }
      if (!this.#isActive || this.#next > found.last) break;
    }
    this.#fetching = false;
  }

  /** Polls when nothing has arrived for a while: the link may be up although the push was lost. */
  #watch(): void {
    this.#clock.setTimeout(() => {
      if (!this.#isActive) return;
      if (!this.#hasReceived && this.#link.isUp()) void (this.#target === null ? this.#fetch() : this.#begin());
      this.#hasReceived = false;
      this.#watch();
    }, idleCheckMs);
  }
}

export class SimLeases implements LeaseBucket {
  readonly ttlMs: number;
  readonly #link: SimNatsLink;
  readonly #bucket: string;

  constructor(link: SimNatsLink, bucket: string, ttlMs: number) {
    this.#link = link;
    this.#bucket = bucket;
    this.ttlMs = ttlMs;
  }

  async create(key: string, value: Uint8Array): Promise<KvOutcome> {
    const copy = value.slice();
    return this.#write((server) => server.createKey(this.#bucket, key, copy, this.ttlMs));
  }

  async #write(work: (server: SimNatsServer) => KvOutcome): Promise<KvOutcome> {
    const write = (server: SimNatsServer) => {
      const outcome = work(server);
      return outcome.kind === "stored" && server.losesAnswersOf === "all" ? noAnswer : outcome;
    };
    return (await this.#link.ask(write, requestTimeoutMs)) ?? unknown;
  }

  async update(key: string, value: Uint8Array, revision: number): Promise<KvOutcome> {
    const copy = value.slice();
    return this.#write((server) => server.updateKey(this.#bucket, key, copy, revision, this.ttlMs));
  }

  async get(
    key: string,
  ): Promise<
    | { readonly kind: "found"; readonly value: Uint8Array; readonly revision: number }
    | { readonly kind: "absent" }
    | { readonly kind: "unknown"; readonly reason: string }
  > {
    const answer = await this.#link.ask(
      (server) => ({ entry: server.getKey(this.#bucket, key, this.ttlMs) }),
      requestTimeoutMs,
    );
    if (answer === null) return unknown;
    if (answer.entry === null) return { kind: "absent" };
    return { kind: "found", value: answer.entry.value, revision: answer.entry.revision };
  }

  async remove(key: string, revision: number): Promise<void> {
    await this.#link.ask((server) => server.removeKey(this.#bucket, key, revision), requestTimeoutMs);
  }
}

const unknown = { kind: "unknown", reason: "the bucket did not answer in time" } as const;

export class SimBlobs implements Blobs {
  readonly #link: SimNatsLink;

  constructor(link: SimNatsLink) {
    this.#link = link;
  }

  /** Rejects while the server's disk is full. */
  async put(name: string, data: Uint8Array): Promise<void> {
    const copy = data.slice();
    const isStored = await this.#ask((blobs, server) => {
      const hasSpace = !server.isDiskFull && !server.storesNothing;
      if (hasSpace) {
        blobs.set(name, copy);
        server.unreadable.delete(name);
      }
      return hasSpace;
    });
    if (!isStored) throw new Error("the log's disk is full");
  }

  async get(name: string): Promise<Uint8Array | null> {
    return this.#ask((blobs, server) => {
      if (server.unreadable.has(name)) return null;
      return (server.staleBlobs ?? blobs).get(name) ?? null;
    });
  }

  async list(): Promise<readonly string[]> {
    return this.#ask((blobs, server) => [...(server.staleBlobs ?? blobs).keys()].sort());
  }

  async remove(name: string): Promise<void> {
    await this.#ask((blobs) => void blobs.delete(name));
  }

  async #ask<Result>(work: (blobs: Map<string, Uint8Array>, server: SimNatsServer) => Result): Promise<Result> {
    const answer = await this.#link.ask((server) => ({ result: work(server.blobs, server) }), requestTimeoutMs);
    if (answer === null) throw new Error("the object store did not answer in time");
    return answer.result;
  }
}
