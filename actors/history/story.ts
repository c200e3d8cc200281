/**
 * Streams the history of an object: rebuilds the oldest requested state, applies the log to it up to now, and sends the entries
 * that the story makes of it (`machines/history/story.ts`). With `follow` it continues with the commits of this manager's
 * replica.
 *
 * H1: the replay takes its turn with the other rebuilds, and stops reading while its caller's buffer is full.
 * H2: nothing is missed between the last replayed record and the first live one: both are at the same version at the switch.
 */
import { nodeNames } from "../../machines/node-names.ts";
import { Story, type Attribution } from "../../machines/history/story.ts";
import { subjectOf, toldKinds, type StoreChange, type Subject, type ToldKind } from "../../machines/history/objects.ts";
import {
  HistoryResponse,
  Origin,
  type HistoryEntry,
  type HistoryRequest,
  type Timestamp,
} from "../../proto/gen/messages.ts";
import { timeMs } from "../../proto/time.ts";
import { RpcError, Status, type CallContext, type Sink } from "../../runtime/ports/rpc.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";
import { sleep } from "../../runtime/store/wait.ts";
import type { Environment } from "../environment.ts";
import { findVersion, unreadable } from "./version-at.ts";
import { loadBase, type Extent, type PastParts } from "./base.ts";
import { replayTo } from "./replay.ts";
import type { Turns } from "./turns.ts";

/** Maximum entries per message, and maximum unread bytes while more is read for the caller. */
const entriesPerMessage = 100;
const bufferedBytesMax = 1024 * 1024;
/** Interval of checking a caller whose buffer is full, in milliseconds. */
const paceMs = 20;
/** Maximum unread bytes of a follower; beyond it, it is cut off. */
const followerBytesMax = 8 * 1024 * 1024;
/** Interval in which entries are collected before they are sent to a follower, in milliseconds. */
const followEveryMs = 500;
/** Maximum of `last`: this many entries may wait in memory. */
const lastMax = 10_000;
/** Maximum concurrent followers; each is called on every change. */
const followersMax = 200;

interface StreamParts extends PastParts {
  readonly env: Environment;
  readonly turns: Turns;
  /** Current followers, each by its stop function. */
  readonly followers: Set<() => void>;
}

const unknown: Attribution = { caller: null, origin: Origin.ORIGIN_UNKNOWN };

/** Returns at once and never throws: an error ends the stream. */
export function streamHistory(
  parts: StreamParts,
  request: HistoryRequest,
  sink: Sink<HistoryResponse>,
  call: CallContext,
): void {
  const work = async (): Promise<void> => {
    const asked = read(parts.env, request);
    const live = await parts.turns.take(() => replay(parts, request, asked, sink, call), call.signal);
    if (live === null) sink.end();
  };
  work().catch((error: unknown) => {
    const known = error instanceof RpcError ? error : new RpcError(Status.INTERNAL, "cannot read the history");
    if (known !== error) parts.telemetry.log.error({ err: error }, "cannot read a history");
    sink.end(known);
  });
}

interface Asked {
  readonly kind: ToldKind;
  readonly subject: Subject;
}

function read({ store, managerId }: Environment, request: HistoryRequest): Asked {
  const { follow, until, since } = request;
  const kind = toldKinds.find((each) => each === request.kind);
  if (kind === undefined) {
    throw new RpcError(
      Status.INVALID_ARGUMENT,
      `no history of kind "${request.kind}": expected one of ${toldKinds.join(", ")}`,
    );
  }
  const text = kind === "node" && request.subject === "self" ? managerId : request.subject;
  if (text === "") throw new RpcError(Status.INVALID_ARGUMENT, `specify the id or name of a ${kind}`);
  if (follow && until !== null) throw new RpcError(Status.INVALID_ARGUMENT, "'follow' and 'until' exclude each other");
  if (since !== null && until !== null && timeMs(since) > timeMs(until)) {
    throw new RpcError(Status.INVALID_ARGUMENT, "'since' is after 'until'");
  }
  const subject = subjectOf(kind, text, store.all(kind));
  if (subject === "ambiguous") throw new RpcError(Status.INVALID_ARGUMENT, `${kind} ${text} is ambiguous`);
  return { kind, subject };
}

/** Sends everything up to now; null when that is the end, else following continues on its own. */
async function replay(
  parts: StreamParts,
  request: HistoryRequest,
  { kind, subject }: Asked,
  sink: Sink<HistoryResponse>,
  call: CallContext,
): Promise<"live" | null> {
  const { env, clock } = parts;
  const { store } = env;
  const from = await versionAt(parts, request.since);
  // Later writes belong to the followers.
  const to = request.until === null ? store.version : await versionAt(parts, request.until);
  const replica = await baseBefore(parts, Math.min(from, to));
  // Node names at the time of each entry.
  const names = { store: replica as Store };
  const story = new Story(
    {
      kind,
      subject,
      sinceMs: timeMs(request.since),
      untilMs: request.until === null ? Number.POSITIVE_INFINITY : timeMs(request.until),
      nodeName: (id) => nodeNames(names.store.all("node"))(id),
    },
    replica.all(kind),
  );
  const writer = new EntryWriter(sink, request.last, replica);
  const listening = replica.watch((commit) => {
    takeCommit(story, commit);
    if (story.size >= entriesPerMessage) writer.take(story.flush());
  });
  const isGone = (): boolean => call.signal.aborted;
  const isEnough = (): boolean => isGone() || sink.bufferedBytes() > bufferedBytesMax;
  for (let target = to; ; target = store.version) {
    while (replica.version < target) {
      const outcome = await replayTo(parts, replica, target, isEnough);
      if (isGone()) return null;
      writer.take(story.flush());
      if (outcome === "gap")
        throw new RpcError(Status.OUT_OF_RANGE, "the retained history was just shortened: try again");
      if (outcome === "broken") {
        throw new RpcError(Status.DATA_LOSS, `cannot read the log beyond version ${replica.version}`);
      }
      if (outcome === "silent") throw unreadable();
      while (sink.bufferedBytes() > bufferedBytesMax && !isGone()) await sleep(clock, paceMs);
    }
    if (!request.follow || replica.version >= store.version) break;
  }
  listening.unsubscribe();
  writer.take(story.flush());
  writer.end();
  if (!story.hasSubject && !request.follow) {
    throw new RpcError(Status.NOT_FOUND, `${kind} ${request.subject} not found, nor in the retained history`);
  }
  if (!request.follow) return null;
  // H2: no await between here and the check of the versions above.
  names.store = store;
  follow(parts, story, sink, call);
  return "live";
}

function follow(
  { env, clock, followers }: StreamParts,
  story: Story,
  sink: Sink<HistoryResponse>,
  { signal }: CallContext,
): void {
  if (followers.size >= followersMax) throw new RpcError(Status.RESOURCE_EXHAUSTED, "too many history followers");
  const watching = env.store.watch((commit) => takeCommit(story, commit));
  let timer = clock.setTimeout(look, followEveryMs);
  const end = (error?: RpcError): void => {
    if (!followers.delete(stop)) return;
    watching.unsubscribe();
    clock.clearTimeout(timer);
    sink.end(error, "drop");
  };
  const stop = (): void => end(new RpcError(Status.UNAVAILABLE, "the manager is stopping"));
  followers.add(stop);
  signal.addEventListener("abort", () => end());
  function look(): void {
    const entries = story.flush();
    if (entries.length > 0) sink.write(HistoryResponse.create({ entries }));
    if (sink.bufferedBytes() > followerBytesMax) {
      end(new RpcError(Status.RESOURCE_EXHAUSTED, "the history was read too slowly"));
      return;
    }
    timer = clock.setTimeout(look, followEveryMs);
  }
}

function takeCommit(story: Story, { version, time, writer = "", changes, causes }: Commit): void {
  const commit = { version, timeMs: time, writer };
  let at = 0;
  for (const cause of causes) {
    const end = Math.min(changes.length, at + cause.changes);
    for (; at < end; at += 1) story.take(commit, changes[at] as StoreChange, cause);
  }
  for (; at < changes.length; at += 1) story.take(commit, changes[at] as StoreChange, unknown);
}

/** The version at a time; 0 for a time before the retained history. */
async function versionAt(parts: PastParts, time: Timestamp | null): Promise<number> {
  if (time === null) return 0;
  try {
    return (await findVersion(parts, time)).version;
  } catch (error) {
    if (error instanceof RpcError && error.code === Status.OUT_OF_RANGE) return 0;
    throw error;
  }
}

/** The newest state at or before `version` that can be rebuilt; the oldest of all if there is none. */
async function baseBefore(parts: PastParts, version: number): Promise<Replica> {
  const base = await loadBase(parts, ({ bases }: Extent) =>
    bases.some((each) => each <= version) ? version : (bases.at(-1) ?? 0),
  );
  if (base === null || base.kind !== "base") throw unreadable();
  return base.replica;
}

/** Sends entries as they come, or only the last of them. */
class EntryWriter {
  readonly #sink: Sink<HistoryResponse>;
  readonly #last: number;
  readonly #oldest: Partial<HistoryResponse>;
  #waiting: HistoryEntry[] = [];
  #omitted = 0;
  #isBegun = false;

  constructor(sink: Sink<HistoryResponse>, last: number, { version, time }: Replica) {
    this.#sink = sink;
    this.#last = last === 0 ? 0 : Math.min(last, lastMax);
    this.#oldest = { oldestVersion: version, oldestTime: time };
  }

  take(entries: readonly HistoryEntry[]): void {
    if (this.#last === 0) {
      for (let at = 0; at < entries.length; at += entriesPerMessage) {
        this.#write(entries.slice(at, at + entriesPerMessage));
      }
      return;
    }
    this.#waiting.push(...entries);
    const over = this.#waiting.length - this.#last;
    if (over <= 0) return;
    this.#omitted += over;
    this.#waiting = this.#waiting.slice(over);
  }

  end(): void {
    const waiting = this.#waiting;
    for (let at = 0; at < waiting.length; at += entriesPerMessage) {
      this.#write(waiting.slice(at, at + entriesPerMessage));
    }
    if (!this.#isBegun) this.#write([]);
  }

  #write(entries: readonly HistoryEntry[]): void {
    const begin = this.#isBegun ? {} : { ...this.#oldest, omitted: this.#omitted };
    this.#isBegun = true;
    this.#sink.write(HistoryResponse.create({ ...begin, entries }));
  }
}
