/**
 * The NATS of a simulation, modelled as one service: core messages, one log stream, lease buckets and blobs. Acknowledged data
 * survives a crash, unless the machine loses an unsynced tail (`crash({ loseTail: true })`), as a nats-server 2.9 without
 * `sync_interval` may.
 *
 * V1: a record is appended only if the expected last sequence is the log's.
 * V2: a queue group gets each message once.
 */
import { assert } from "../../lib/assert.ts";
import type { AppendOutcome, Headers, KvOutcome } from "../ports/index.ts";
import type { ConnectionEnd, Endpoint, SimNetwork } from "./network.ts";
import type { SimRandom } from "./random.ts";
import { matches } from "./subject.ts";

/** Additional delay of a reordered message, in milliseconds. */
const reorderMsMax = 20;
/** Subjects whose listeners are kept; then all are forgotten. */
const subjectsMax = 1_000;
/** A redelivered record is among this many newest ones. */
const redeliveredMax = 8;

/** A message in flight to a subscriber. `reply` is null for a published one. */
interface Delivery {
  /** The process that sent it. */
  readonly from: string;
  readonly subject: string;
  readonly data: Uint8Array;
  readonly headers: Headers;
  readonly reply: ((data: Uint8Array, from: string) => void) | null;
}

interface Interest {
  readonly id: number;
  readonly pattern: string;
  readonly queue: string | null;
  readonly deliver: (delivery: Delivery) => void;
}

/** Interests of one connection, by number. */
class Interests {
  readonly #all = new Map<number, Interest>();
  readonly #onChange: () => void;

  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  set(interest: Interest): void {
    this.#all.set(interest.id, interest);
    this.#onChange();
  }

  delete(id: number): void {
    if (this.#all.delete(id)) this.#onChange();
  }

  matching(subject: string): readonly Interest[] {
    return [...this.#all.values()].filter(({ pattern }) => matches(pattern, subject));
  }
}

interface Listening {
  readonly session: ServerSession;
  readonly interest: Interest;
}

/** The server's state of one client's connection. */
export interface ServerSession {
  readonly end: ConnectionEnd;
  readonly interests: Interests;
  readonly readers: Map<object, (sequence: number, data: Uint8Array) => void>;
}

/** The contents of the server's disk at one moment. */
export interface NatsDiskCopy {
  readonly records: readonly Uint8Array[];
  readonly first: number;
  readonly buckets: ReadonlyMap<string, ReadonlyMap<string, Entry>>;
  readonly revision: number;
  readonly blobs: ReadonlyMap<string, Uint8Array>;
}

interface Entry {
  value: Uint8Array;
  revision: number;
  writtenAt: number;
}

export class SimNatsServer {
  /** Its name on the network. */
  readonly name = "nats";
  /** Called with the last kept sequence when a tail of acknowledged records is lost. */
  onTailLost: ((kept: number) => void) | null = null;
  /** Called with every answer in flight, for an attacker who sees all traffic. */
  onAnswer: ((data: Uint8Array) => void) | null = null;
  /** Called with the name of a process that received a damaged record. */
  onDamaged: ((name: string) => void) | null = null;
  /** While true, nobody leads the log's stream: its requests stay unanswered, and everything else works. */
  isLogSilent = false;
  /** Names of processes to which the log is silent, as if their consumers were stuck; everything else answers them. */
  readonly logSilentTo = new Set<string>();
  /** While not `none`: appends (`all`: also writes of leases) are stored, and their answers are lost. */
  losesAnswersOf: "none" | "appends" | "all" = "none";
  /** Names of blobs that cannot be read, because a chunk is missing or their digest is wrong. */
  readonly unreadable = new Set<string>();
  /** While not null, reads and lists of blobs see this older state, as on a server that lags behind; writes are not lost. */
  staleBlobs: ReadonlyMap<string, Uint8Array> | null = null;
  /** While true, the disk under the log has space for leases only: appends and snapshots are refused. */
  isDiskFull = false;
  /** Time that each append takes on the disk, one after the other, in milliseconds. */
  appendMs = 0;
  /** True time at which the disk has finished the last append. */
  #appendedAt = 0;
  /** While true, it refuses to store anything, leases included, like a server whose storage fails. */
  storesNothing = false;
  readonly #network: SimNetwork;
  readonly #random: SimRandom;
  #endpoint: Endpoint | null = null;
  #sessions = new Set<ServerSession>();
  /** Interests that match a subject, in the order of connections and of subscriptions; empty after every change of either. */
  readonly #listening = new Map<string, readonly Listening[]>();
  /** The log: `#records[0]` has sequence `#first`. */
  #records: Uint8Array[] = [];
  #first = 1;
  /** Total size of the records. */
  #bytes = 0;
  /** Last sequence known to be on disk; used only by `crash({ loseTail })`. */
  #synced = 0;
  readonly #buckets = new Map<string, Map<string, Entry>>();
  #revision = 0;
  readonly #blobs = new Map<string, Uint8Array>();
  /** Cut routes (`from>to`) between the servers of two processes. */
  readonly #cutRoutes = new Set<string>();

  constructor(network: SimNetwork, random: SimRandom) {
    this.#network = network;
    this.#random = random;
    this.start();
  }

  get endpoint(): Endpoint | null {
    return this.#endpoint;
  }

  get isUp(): boolean {
    return this.#endpoint !== null;
  }

  get first(): number {
    return this.#first;
  }

  get last(): number {
    return this.#first + this.#records.length - 1;
  }

  /** The stored bytes of a record; null if it does not exist. */
  record(sequence: number): Uint8Array | null {
    return this.#records[sequence - this.#first] ?? null;
  }

  start(): void {
    if (this.#endpoint !== null) return;
    this.#endpoint = { name: this.name, clock: this.#network.clock.forProcess(), handshakes: null };
    this.#network.trace.write(this.name, `start first=${this.#first} last=${this.last}`);
  }

  /** Ends the process. `loseTail`: some records after the last sync are lost, although they were acknowledged. */
  crash(options: { readonly loseTail: boolean }): void {
    const endpoint = this.#endpoint;
    if (endpoint === null) return;
    this.#endpoint = null;
    this.#network.vanish(endpoint);
    endpoint.clock.kill();
    this.#sessions = new Set();
    this.#listening.clear();
    const kept = options.loseTail ? this.#synced + this.#random.below(this.last - this.#synced + 1) : this.last;
    if (kept < this.last) {
      this.#network.trace.mark("log.tail.lost");
      this.#bytes -= sizeOf(this.#records.splice(Math.max(0, kept - this.#first + 1)));
      this.onTailLost?.(this.last);
    }
    this.#network.trace.write(this.name, `crash last=${this.last}`);
  }

  /** Flushes everything written so far to disk. */
  sync(): void {
    this.#synced = this.last;
  }

  copyDisk(): NatsDiskCopy {
    return {
      records: [...this.#records],
      first: this.#first,
      buckets: new Map([...this.#buckets].map(([name, entries]) => [name, new Map(entries)])),
      revision: this.#revision,
      blobs: new Map(this.#blobs),
    };
  }

  /** Ends the process, and replaces its disk by an earlier state, as from a backup: acknowledged data is lost. */
  crashWithOlderDisk({ blobs, buckets, first, records, revision }: NatsDiskCopy): void {
    if (this.#endpoint === null) return;
    const kept = first + records.length - 1;
    const isLost = kept < this.last;
    this.crash({ loseTail: false });
    this.#records = [...records];
    this.#bytes = sizeOf(records);
    this.#first = first;
    this.#buckets.clear();
    for (const [name, entries] of buckets) this.#buckets.set(name, new Map(entries));
    this.#revision = revision;
    this.#blobs.clear();
    for (const [name, data] of blobs) this.#blobs.set(name, data);
    this.#synced = kept;
    this.#network.trace.write(this.name, `older disk first=${first} last=${kept}`);
    if (!isLost) return;
    this.#network.trace.mark("log.tail.lost");
    this.onTailLost?.(kept);
  }

  /** Stops messages on the bus from one process to another, in this direction; the log, leases and blobs work. */
  cutRoute(from: string, to: string): void {
    this.#cutRoutes.add(`${from}>${to}`);
    this.#network.trace.write(this.name, `route cut ${from}>${to}`);
  }

  healRoute(from: string, to: string): void {
    if (this.#cutRoutes.delete(`${from}>${to}`)) this.#network.trace.write(this.name, `route heals ${from}>${to}`);
  }

  pause(ms: number): void {
    const endpoint = this.#endpoint;
    if (endpoint === null || endpoint.clock.isPaused) return;
    this.#network.trace.write(this.name, `pause ${ms}ms`);
    endpoint.clock.pause();
    this.#network.suspect(this.name, () => endpoint.clock.isPaused);
    this.#network.clock.schedule(() => endpoint.clock.resume(), ms, null);
  }

  accept(end: ConnectionEnd): ServerSession {
    const forget = (): void => this.#listening.clear();
    const session: ServerSession = { end, interests: new Interests(forget), readers: new Map() };
    this.#sessions.add(session);
    end.onBroken = () => {
      this.#sessions.delete(session);
      forget();
    };
    return session;
  }

  #listeningTo(subject: string): readonly Listening[] {
    let found = this.#listening.get(subject);
    if (found === undefined) {
      found = [...this.#sessions].flatMap((session) =>
        session.interests.matching(subject).map((interest) => ({ session, interest })),
      );
      if (this.#listening.size >= subjectsMax) this.#listening.clear();
      this.#listening.set(subject, found);
    }
    return found;
  }

  /** Delivers the message to its subscribers and returns their number (a queue group counts once). */
  publish(delivery: Delivery): number {
    const groups = new Map<string, Listening[]>();
    let count = 0;
    for (const listening of this.#listeningTo(delivery.subject)) {
      const { interest, session } = listening;
      if (interest.queue === null) {
        count += 1;
        this.#route(delivery.from, session.end, () => interest.deliver(delivery));
      } else {
        const group = `${interest.pattern} ${interest.queue}`;
        const members = groups.get(group);
        if (members === undefined) groups.set(group, [listening]);
        else members.push(listening);
      }
    }
    for (const members of groups.values()) {
      count += 1;
      const { session, interest } = this.#random.pick(members);
      this.#route(delivery.from, session.end, () => interest.deliver(delivery));
    }
    return count;
  }

  /** A cut route loses the message, although the sender's server knows that somebody listens. */
  #route(from: string, end: ConnectionEnd, receive: () => void): void {
    const isCut = this.#cutRoutes.size > 0 && this.#cutRoutes.has(`${from}>${end.peer.endpoint.name}`);
    if (isCut) this.#network.trace.mark("route.lost");
    else this.#sendCore(end, receive);
  }

  /** Core NATS delivers at most once, most of the time. */
  #sendCore(end: ConnectionEnd, receive: () => void): void {
    const { faults, random, trace } = this.#network;
    if (random.chance(faults.loss)) {
      trace.mark("message.lost");
      return;
    }
    const copies = random.chance(faults.duplication) ? 2 : 1;
    if (copies === 2) trace.mark("message.duplicated");
    for (let copy = 0; copy < copies; copy += 1) {
      if (random.chance(faults.reordering)) {
        trace.mark("message.reordered");
        end.sendLoose(receive, reorderMsMax);
      } else {
        end.send(receive);
      }
    }
  }

  /** The answer to a request travels like a core message. */
  answer(from: string, session: ServerSession, receive: () => void): void {
    const { faults, random, trace } = this.#network;
    if (faults.answerLoss > 0 && random.chance(faults.answerLoss)) {
      trace.mark("answer.lost");
      return;
    }
    this.#route(from, session.end, receive);
  }

  /** Milliseconds that the append which arrives now waits for the disk; takes its place in the queue. */
  takeAppendTurn(): number {
    const { elapsed } = this.#network.clock;
    this.#appendedAt = Math.max(elapsed, this.#appendedAt) + this.appendMs;
    return this.#appendedAt - elapsed;
  }

  append(data: Uint8Array, expectedLast: number): AppendOutcome {
    if (this.isDiskFull) {
      this.#network.trace.mark("append.full");
      return { kind: "full", reason: "the log's disk is full" };
    }
    if (expectedLast !== this.last) return { kind: "conflict" };
    if (this.storesNothing) {
      this.#network.trace.mark("append.refused");
      return { kind: "refused", reason: "insufficient storage resources available" };
    }
    // The given array may be a small part of a shared buffer, which would live as long as the record.
    this.#records.push(new Uint8Array(data));
    this.#bytes += data.length;
    const sequence = this.last;
    for (const { end, readers } of this.#sessions) {
      for (const push of readers.values()) {
        if (this.isSilentTo(end.peer.endpoint.name)) continue;
        if (this.#random.chance(this.#network.faults.stall)) this.#network.trace.mark("log.push.stalled");
        else {
          const shown = this.#shown(end, data);
          end.send(() => push(sequence, shown));
          this.#pushAgain(end, push, sequence);
        }
      }
    }
    return { kind: "appended", sequence };
  }

  /** Whether the log does not answer this process. */
  isSilentTo(name: string): boolean {
    return this.isLogSilent || this.logSilentTo.has(name);
  }

  /** Occasionally pushes one of the newest records again, as a consumer does that missed the acknowledgement. */
  #pushAgain(end: ConnectionEnd, push: (sequence: number, data: Uint8Array) => void, newest: number): void {
    const { faults, trace } = this.#network;
    if (faults.redelivery === 0 || !this.#random.chance(faults.redelivery)) return;
    const sequence = newest - this.#random.below(redeliveredMax);
    const data = this.record(sequence);
    if (data === null) return;
    trace.mark("record.redelivered");
    end.send(() => push(sequence, data));
  }

  /** Total size of the retained records. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Up to `count` records from `sequence`, which must be retained; empty if there are none yet. Undamaged without a `session`.
   */
  records(sequence: number, count: number, session: ServerSession | null = null): readonly Uint8Array[] {
    assert(sequence >= this.#first, "L0: the requested records are retained");
    const found = this.#records.slice(sequence - this.#first, sequence - this.#first + count);
    return session === null ? found : found.map((data) => this.#shown(session.end, data));
  }

  /**
   * Occasionally damages a record, as bit rot on one disk does. The stored record stays intact, like another copy of the log.
   */
  #shown(end: ConnectionEnd, data: Uint8Array): Uint8Array {
    const { faults, trace } = this.#network;
    if (faults.damage === 0 || !this.#random.chance(faults.damage)) return data;
    trace.mark("record.damaged");
    trace.write(this.name, `record damaged for ${end.peer.endpoint.name}`);
    this.onDamaged?.(end.peer.endpoint.name);
    // Not `slice`, which returns a view of a Buffer.
    const damaged = Uint8Array.from(data);
    const at = this.#random.below(damaged.length);
    damaged[at] = (damaged[at] as number) ^ (1 + this.#random.below(255));
    return damaged;
  }

  purgeBefore(sequence: number): void {
    const drop = Math.min(sequence, this.last + 1) - this.#first;
    if (drop <= 0) return;
    this.#bytes -= sizeOf(this.#records.splice(0, drop));
    this.#first += drop;
  }

  createKey(bucket: string, key: string, value: Uint8Array, ttlMs: number): KvOutcome {
    if (this.storesNothing) return { kind: "unknown", reason: "insufficient storage resources available" };
    if (this.#entry(bucket, key, ttlMs) !== null) return { kind: "conflict" };
    return this.#store(bucket, key, value);
  }

  updateKey(bucket: string, key: string, value: Uint8Array, revision: number, ttlMs: number): KvOutcome {
    if (this.storesNothing) return { kind: "unknown", reason: "insufficient storage resources available" };
    if (this.#entry(bucket, key, ttlMs)?.revision !== revision) return { kind: "conflict" };
    return this.#store(bucket, key, value);
  }

  getKey(bucket: string, key: string, ttlMs: number): { readonly value: Uint8Array; readonly revision: number } | null {
    return this.#entry(bucket, key, ttlMs);
  }

  removeKey(bucket: string, key: string, revision: number): void {
    if (this.#buckets.get(bucket)?.get(key)?.revision === revision) this.#buckets.get(bucket)?.delete(key);
  }

  get blobs(): Map<string, Uint8Array> {
    return this.#blobs;
  }

  #store(bucket: string, key: string, value: Uint8Array): KvOutcome {
    const revision = (this.#revision += 1);
    let entries = this.#buckets.get(bucket);
    if (entries === undefined) this.#buckets.set(bucket, (entries = new Map<string, Entry>()));
    entries.set(key, { value, revision, writtenAt: this.#network.clock.elapsed });
    return { kind: "stored", revision };
  }

  #entry(bucket: string, key: string, ttlMs: number): Entry | null {
    const entry = this.#buckets.get(bucket)?.get(key);
    if (entry === undefined || this.#network.clock.elapsed - entry.writtenAt >= ttlMs) return null;
    return entry;
  }
}

function sizeOf(records: readonly Uint8Array[]): number {
  return records.reduce((sum, { length }) => sum + length, 0);
}
