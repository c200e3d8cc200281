/**
 * Moves a cluster's streams from one NATS to another without changes: records keep their sequences, under which they are
 * sealed, and leases keep counting, so that epochs still increase. Uses JetStream's own snapshots, as `nats stream backup` and
 * `restore` do.
 *
 * V1: the log is moved last: if it exists at the target, everything else does too.
 * V2: streams at the target are replaced only if no log record was ever written there, or while they are marked.
 * V3: a marked copy is used by nobody. The mark is in the configuration of its log, which the servers agree on, so it is
 *     removed for all at once.
 */
import { createInbox, type Msg } from "nats";
import { SystemRandom } from "../system/random.ts";
import type { NatsOptions } from "./connection.ts";
import { NatsProblem } from "./errors.ts";
import {
  callJetStream,
  type Fields,
  fieldsField,
  JetStreamError,
  numberField,
  parseFields,
  textField,
} from "./jetstream.ts";
import { Link } from "./link.ts";
import { blobStream, followersOf, isLed, leaseStream, logStream, streamBounds } from "./streams.ts";

const streams = [blobStream, leaseStream, logStream];
const callTimeoutMs = 10_000;
/** A part is written to disk before it is acknowledged; the last answer arrives once the stream is restored. */
const partTimeoutMs = 30_000;
/** A sender that is silent for this long has failed: its server waits 5 s for acknowledgements. */
const silenceMs = 15_000;
/** A cluster of nats-servers that has just started elects its leaders within seconds. */
const restoreMs = 30_000;
const retryDelayMs = 500;
/** NATS's customary size, which every server accepts. */
const partBytes = 128 * 1024;
const firstConnectMs = 10_000;
/** How long the servers may take to have as many current copies as were asked for. */
const copiesMs = 60_000;
/** The description of a log that is not valid yet. V3 */
const mark = "copied by Muster, and not in use yet";

type Moved =
  /** It is now at the target, up to the sequence of the last record. */
  | { readonly kind: "moved"; readonly last: number }
  /** It was at the target already: an earlier move ended without learning that it had succeeded. */
  | { readonly kind: "was moved" }
  /** There is no record to move. */
  | { readonly kind: "nothing" };

/** Nobody may write to the source meanwhile. Throws NatsProblem; the source is then unchanged, and the move can be retried. */
export function moveStreams(from: NatsOptions, to: NatsOptions): Promise<Moved> {
  return using(from, (source) =>
    using(to, (target) => move(source, target, { replicas: to.replicas ?? 1, marks: false })),
  );
}

/**
 * Copies the streams unchanged but marked, and waits until all copies are current. Nobody may write to the source meanwhile. Throws
 * NatsProblem; the copy can then be repeated.
 */
export function copyStreams(from: NatsOptions, to: NatsOptions): Promise<Moved> {
  return using(from, (source) =>
    using(to, async (target) => {
      const replicas = to.replicas ?? 1;
      const moved = await move(source, target, { replicas, marks: true });
      for (const stream of streams) await waitForCopies(target, stream, replicas);
      return moved;
    }),
  );
}

/** Removes the mark. V3. Throws NatsProblem; the mark may then be removed or not. */
export function commitCopy(to: NatsOptions): Promise<void> {
  return using(to, async (target) => {
    const info = await infoOf(target, logStream);
    if (info === null) throw unmoved(logStream, "the copy is no longer there");
    if (!isMarked(info)) return;
    await called(target, `STREAM.UPDATE.${logStream}`, { ...fieldsField(info, "config"), description: "" });
  });
}

/** Whether the target has a log that is valid. V3. Throws NatsProblem while its servers do not answer for certain. */
export function isCommitted(to: NatsOptions): Promise<boolean> {
  return using(to, async (target) => {
    const found = await callJetStream(target, `STREAM.INFO.${logStream}`, null, callTimeoutMs);
    if (found.kind === "ok" && isLed(found.body)) return !isMarked(found.body);
    if (found.errCode === JetStreamError.streamNotFound) return false;
    throw unmoved(logStream, found.kind === "ok" ? "it has no leader" : found.reason);
  });
}

/** Resolves once the servers of a new cluster have elected a leader. Throws NatsProblem after half a minute. */
export function waitForLeader(to: NatsOptions): Promise<void> {
  return using(to, async (target) => void (await infoOf(target, logStream)));
}

async function using<Result>(options: NatsOptions, work: (link: Link) => Promise<Result>): Promise<Result> {
  const link = await open(options);
  try {
    return await work(link);
  } finally {
    link.close();
  }
}

function isMarked(info: Fields): boolean {
  return textField(fieldsField(info, "config"), "description") === mark;
}

async function waitForCopies(target: Link, stream: string, replicas: number): Promise<void> {
  const deadline = performance.now() + copiesMs;
  for (;;) {
    const info = await infoOf(target, stream);
    if (info === null) return;
    const current = followersOf(info).filter((each) => each["current"] === true && numberField(each, "lag") === 0);
    if (isLed(info) && current.length + 1 >= replicas) return;
    if (performance.now() >= deadline)
      throw unmoved(stream, `only ${current.length + 1} of ${replicas} copies are current`);
    await new Promise((resolve) => setTimeout(resolve, retryDelayMs / 5));
  }
}

function open(options: NatsOptions): Promise<Link> {
  const random = (options.random ?? new SystemRandom()).fork("nats-move");
  return Link.open({ firstConnectMs, ...options, random });
}

interface Copying {
  readonly replicas: number;
  readonly marks: boolean;
}

async function move(source: Link, target: Link, copying: Copying): Promise<Moved> {
  const own = await streamBounds(source, logStream, callTimeoutMs);
  if (own === null || own.last === 0) return { kind: "nothing" };
  const there = await infoOf(target, logStream);
  const hasRecords = there !== null && numberField(fieldsField(there, "state"), "last_seq") > 0;
  if (hasRecords && !(copying.marks && isMarked(there))) {
    const [ours, theirs] = [await recordAt(source, own.last), await recordAt(target, own.last)];
    if (ours !== "" && ours === theirs) return { kind: "was moved" };
    throw new NatsProblem("unusable", "the target NATS contains the log of another cluster: nothing was moved");
  }
  for (const stream of streams) {
    // V2
    if ((await infoOf(target, stream)) !== null) await called(target, `STREAM.DELETE.${stream}`, null);
  }
  // V1
  for (const stream of streams)
    if ((await infoOf(source, stream)) !== null) await moveStream(source, target, stream, copying);
  return { kind: "moved", last: own.last };
}

async function moveStream(source: Link, target: Link, stream: string, { marks, replicas }: Copying): Promise<void> {
  const parts = new Parts(source);
  try {
    const snapshot = await called(source, `STREAM.SNAPSHOT.${stream}`, {
      deliver_subject: parts.subject,
      no_consumers: true,
      chunk_size: partBytes,
    });
    const state = fieldsField(snapshot, "state");
    const marked = marks && stream === logStream ? { description: mark } : {};
    const config = { ...fieldsField(snapshot, "config"), num_replicas: replicas, ...marked };
    const deliverTo = textField(await beginRestore(target, stream, { config, state }), "deliver_subject");
    for (;;) {
      const part = await parts.next();
      const answer = await target.request(deliverTo, part.data, { timeoutMs: partTimeoutMs });
      if (answer.kind !== "reply") throw unmoved(stream, "a part of it was not acknowledged");
      const error = fieldsField(parseFields(answer.message.data) ?? {}, "error");
      if (textField(error, "description") !== "")
        throw unmoved(
          stream,
          `${textField(error, "description")}; servers older than this manager's own cannot restore its streams: run the same version there, or a newer one`,
        );
      if (part.reply !== undefined && part.reply !== "") source.publish(part.reply, new Uint8Array());
      // An empty part is the last one.
      if (part.data.length === 0) break;
    }
    const bounds = await streamBounds(target, stream, callTimeoutMs);
    if (bounds === null || bounds.last !== numberField(state, "last_seq"))
      throw unmoved(stream, `it ends at ${bounds?.last ?? "nothing"}, not at ${numberField(state, "last_seq")}`);
  } finally {
    parts.end();
  }
}

/** The parts of a snapshot in the order of arrival. */
class Parts {
  readonly subject = createInbox();
  readonly #waiting: Msg[] = [];
  readonly #subscription: { unsubscribe(): void };
  #wake: () => void = () => {};

  constructor(link: Link) {
    this.#subscription = link.subscribe(this.subject, (message) => {
      this.#waiting.push(message);
      this.#wake();
    });
  }

  async next(): Promise<Msg> {
    if (this.#waiting.length === 0) {
      let timer: NodeJS.Timeout | undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        timer = setTimeout(resolve, silenceMs);
      });
      clearTimeout(timer);
    }
    const part = this.#waiting.shift();
    if (part === undefined)
      throw new NatsProblem("unavailable", "the source NATS stopped sending before the end: nothing was moved");
    return part;
  }

  end(): void {
    this.#subscription.unsubscribe();
  }
}

async function beginRestore(target: Link, stream: string, request: object): Promise<Fields> {
  const deadline = performance.now() + restoreMs;
  for (;;) {
    const begun = await callJetStream(target, `STREAM.RESTORE.${stream}`, request, callTimeoutMs);
    if (begun.kind === "ok") return begun.body;
    const mayCome = begun.kind === "unavailable" || begun.errCode === JetStreamError.noPeers;
    if (!mayCome || performance.now() >= deadline) throw unmoved(stream, begun.reason);
    await new Promise((resolve) => setTimeout(resolve, retryDelayMs));
  }
}

/** Null if the stream does not exist. */
async function infoOf(link: Link, stream: string): Promise<Fields | null> {
  const deadline = performance.now() + restoreMs;
  for (;;) {
    const found = await callJetStream(link, `STREAM.INFO.${stream}`, null, callTimeoutMs);
    if (found.kind === "ok") return found.body;
    if (found.errCode === JetStreamError.streamNotFound) return null;
    if (found.kind === "refused" || performance.now() >= deadline) throw unmoved(stream, found.reason);
    await new Promise((resolve) => setTimeout(resolve, retryDelayMs));
  }
}

/** In base64, as JetStream returns it; empty if it does not have the record. */
async function recordAt(link: Link, sequence: number): Promise<string> {
  const found = await callJetStream(link, `STREAM.MSG.GET.${logStream}`, { seq: sequence }, callTimeoutMs);
  return found.kind === "ok" ? textField(fieldsField(found.body, "message"), "data") : "";
}

async function called(link: Link, verb: string, body: object | null): Promise<Fields> {
  const outcome = await callJetStream(link, verb, body, callTimeoutMs);
  if (outcome.kind !== "ok")
    throw new NatsProblem(outcome.kind, `JetStream rejected or did not answer ${verb}: ${outcome.reason}`);
  return outcome.body;
}

function unmoved(stream: string, reason: string): NatsProblem {
  return new NatsProblem("unavailable", `cannot move the stream ${stream}: ${reason}`);
}
