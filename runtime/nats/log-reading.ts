/**
 * One reading of the log: a consumer of our own, replaced whenever it is in doubt. It pushes records as fast as the link takes
 * them, or, for a reader that says how many bytes to send ahead, is asked for that many at a time.
 *
 * States: `attaching` (asking the stream for its bounds, then for a consumer) → `reading` → `attaching` again after a gap,
 * silence, or a new connection; `waiting` while there is no connection or after a failure; `stopped`.
 *
 * R1: records are delivered with consecutive sequences, each once, whatever consumers do.
 * R2: a consumer that has been silent for `silentTicksMax` heartbeats, or that stays behind the stream, is replaced.
 * R3: a stream that keeps ending before what was delivered has lost acknowledged records: the reader is notified, and nothing
 *     is delivered until the stream has them again.
 * R4: with `aheadBytes`, the next records are requested in a later turn of the event loop than the last ones were delivered in, after a
 *     pause as long as that delivery took: other work of this process gets as much time as the reading.
 * R5: a request that the server ends without a word, because its records have exactly the requested bytes, is followed by another.
 */
import { createInbox, type Msg } from "nats";
import { type Backoff, backoffMs, drawUpperHalf } from "../../lib/backoff.ts";
import type { Counter, LogReader, Random, Subscription, Telemetry } from "../ports/index.ts";
import { crash } from "./errors.ts";
import { callJetStream, JetStreamError, textField } from "./jetstream.ts";
import type { Link } from "./link.ts";
import { logStream, nanos, streamBounds } from "./streams.ts";

/** With the library's default of 30 s, a killed stream leader goes unnoticed for long. */
const heartbeatMs = 1_000;
/** Heartbeat intervals without any message. One may pass because ticks and beats drift; a false alarm costs two requests. */
const silentTicksMax = 2;
/** After this many idle ticks, the consumer is compared with the stream's end. */
const idleTicksUntilCompare = 5;
const callTimeoutMs = 2_000;
/** Silence in milliseconds after a record of a request that has not ended; the server sends at once what it has. R5 */
const pullSilentMs = 100;
/** Longest pause before the next request, in milliseconds: the delivery of one of the largest records. R4 */
const pullPauseMsMax = 50;
/** No record is as small: its checksum alone has as many bytes. */
const recordBytesMin = 32;
/** Records of one request, and how long the server keeps a request for records that do not exist yet. */
const pullRecordsMax = 1_000;
const pullMs = 5_000;
/** `conflict`: among others, the next record is larger than what is left of the request's bytes. */
const PullStatus = { heartbeat: 100, noMessages: 404, timeout: 408, conflict: 409 } as const;
const requestEnds: ReadonlySet<number> = new Set([PullStatus.noMessages, PullStatus.timeout, PullStatus.conflict]);
/** The server deletes a consumer whose reader has been absent for this long. */
const consumerKeptMs = 10_000;
const retryBackoff: Backoff = { stepMs: 50, msMax: 2_000 };
/** A new stream leader may still be applying its entries: only after this long are records considered lost. */
const shorterMsMax = 10_000;

interface LogReadingOptions {
  readonly link: Link;
  readonly telemetry: Telemetry;
  readonly random: Random;
  readonly fromSequence: number;
  readonly reader: LogReader;
  /** R4. Null: no limit. */
  readonly aheadBytes: number | null;
}

type Why = "started" | "reconnected" | "gap" | "silent" | "behind" | "retry";

export class LogReading implements Subscription {
  readonly #options: LogReadingOptions;
  readonly #restarts: Counter;
  readonly #connections: Subscription;
  /** The next sequence to deliver. */
  #next: number;
  /** Counts attachments; messages for an earlier one are ignored. */
  #attachment = 0;
  #stopped = false;
  #inbox: Subscription | null = null;
  #consumer: string | null = null;
  /** Subject of `#inbox`. */
  #inboxName = "";
  /** Records that the last request may still bring, and whether it has brought one. R4 */
  #requested = 0;
  #hasBrought = false;
  /** When the first message for the last request arrived; null before that. R4 */
  #broughtFrom: number | null = null;
  /** Counts requests: messages about their ends have subjects of their own. R5 */
  #pulls = 0;
  /** At most one of both: the next request, unless another message arrives before. */
  #pullTimer: NodeJS.Timeout | undefined;
  #pullTurn: NodeJS.Immediate | undefined;
  /** "Caught up" is reported once everything up to this sequence is delivered; null once reported. */
  #caughtUpAt: number | null = null;
  #hasReceived = false;
  #silentTicks = 0;
  #idleTicks = 0;
  #failures = 0;
  #ticker: NodeJS.Timeout | undefined;
  #retryTimer: NodeJS.Timeout | undefined;
  /** The expected sequence at the last gap. */
  #gapAt = 0;
  #shorterSince: number | null = null;

  constructor(options: LogReadingOptions) {
    this.#options = options;
    this.#next = Math.max(1, options.fromSequence);
    this.#restarts = options.telemetry.metrics.counter(
      "muster_log_consumers_total",
      "Consumers created to read the log, by reason.",
    );
    this.#connections = options.link.onConnection((connected) => {
      if (connected) this.#attach("reconnected");
      else this.#detach();
    });
    // Only after `read` has returned: the caller does not have its subscription yet.
    this.#retryTimer = setTimeout(() => this.#attach("started"), 0);
  }

  unsubscribe(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#connections.unsubscribe();
    this.#detach();
  }

  /** Drops the consumer, if any; messages that it still sends are ignored. */
  #detach(): void {
    this.#attachment += 1;
    clearTimeout(this.#retryTimer);
    this.#cancelPull();
    clearInterval(this.#ticker);
    this.#inbox?.unsubscribe();
    this.#inbox = null;
    if (this.#consumer !== null && this.#options.link.isConnected()) {
      void callJetStream(this.#options.link, `CONSUMER.DELETE.${logStream}.${this.#consumer}`, null, callTimeoutMs);
    }
    this.#consumer = null;
  }

  #attach(why: Why): void {
    if (this.#stopped) return;
    this.#detach();
    this.#restarts.add(1, { why });
    if (why !== "started") this.#options.telemetry.log.debug({ why, next: this.#next }, "new consumer of the log");
    this.#tryAttach(this.#attachment).catch(crash);
  }

  #retry(attachment: number): void {
    if (!this.#isCurrent(attachment)) return;
    this.#detach();
    // Without a connection no request is possible; the next connection attaches.
    if (!this.#options.link.isConnected()) return;
    this.#failures += 1;
    const waitMs = drawUpperHalf(this.#options.random)(backoffMs(retryBackoff, this.#failures));
    this.#retryTimer = setTimeout(() => this.#attach("retry"), waitMs);
  }

  #isCurrent(attachment: number): boolean {
    return !this.#stopped && attachment === this.#attachment;
  }

  async #tryAttach(attachment: number): Promise<void> {
    const { link } = this.#options;
    const bounds = await streamBounds(link, logStream, callTimeoutMs);
    if (!this.#isCurrent(attachment)) return;
    if (bounds === null) return this.#retry(attachment);
    if (this.#next < bounds.first) return this.#stopAtGap(bounds.first);
    if (bounds.last < this.#next - 1) return this.#shorter(attachment, bounds.last);
    this.#shorterSince = null;
    this.#caughtUpAt = bounds.last;
    this.#hasReceived = true;
    this.#silentTicks = this.#idleTicks = 0;
    const inbox = createInbox();
    this.#inboxName = inbox;
    const isPulled = this.#options.aheadBytes !== null;
    this.#inbox = link.subscribe(isPulled ? `${inbox}.*` : inbox, (message) => {
      if (this.#isCurrent(attachment)) this.#take(message);
    });
    const created = await callJetStream(
      link,
      `CONSUMER.CREATE.${logStream}`,
      consumerRequest(isPulled ? null : inbox, this.#next),
      callTimeoutMs,
    );
    if (!this.#isCurrent(attachment)) return;
    if (created.kind !== "ok") return this.#retry(attachment);
    this.#consumer = textField(created.body, "name");
    this.#failures = 0;
    const { aheadBytes } = this.#options;
    if (aheadBytes !== null) this.#pull(aheadBytes < recordBytesMin ? null : aheadBytes);
    this.#ticker = setInterval(() => {
      // After the sockets have been read: our own pause must not count as the consumer's silence.
      setImmediate(() => this.#isCurrent(attachment) && this.#tick(attachment));
    }, heartbeatMs);
    this.#reportCaughtUp();
  }

  /** R4. Without `bytesMax`: one record of any size. */
  #pull(bytesMax: number | null): void {
    this.#requested = bytesMax === null ? 1 : pullRecordsMax;
    this.#hasBrought = false;
    this.#broughtFrom = null;
    const request = {
      batch: this.#requested,
      ...(bytesMax === null ? {} : { max_bytes: bytesMax }),
      expires: nanos(pullMs),
      idle_heartbeat: nanos(heartbeatMs),
    };
    const subject = `$JS.API.CONSUMER.MSG.NEXT.${logStream}.${this.#consumer}`;
    this.#pulls += 1;
    this.#options.link.publish(subject, Buffer.from(JSON.stringify(request)), undefined, this.#pullSubject());
  }

  #cancelPull(): void {
    clearTimeout(this.#pullTimer);
    clearImmediate(this.#pullTurn);
  }

  #pullSubject(): string {
    return `${this.#inboxName}.${this.#pulls}`;
  }

  /** R4, R5. `subject`: of the message; `status`: of one without a record, else null. */
  #pullOn(subject: string, status: number | null): void {
    if (status === PullStatus.heartbeat || (status !== null && subject !== this.#pullSubject())) return;
    this.#broughtFrom ??= performance.now();
    this.#cancelPull();
    const { aheadBytes } = this.#options;
    if (status === null) {
      this.#hasBrought = true;
      this.#requested -= 1;
      if (this.#requested > 0) {
        this.#pullTimer = setTimeout(() => {
          // After the sockets have been read: our own pause must not count as the server's silence.
          this.#pullTurn = setImmediate(() => this.#pull(aheadBytes));
        }, pullSilentMs);
        return;
      }
    } else if (!requestEnds.has(status)) return this.#retry(this.#attachment);
    const isNextLarger = status === PullStatus.conflict && !this.#hasBrought;
    const from = this.#broughtFrom;
    // In the next turn, when this one has delivered its records.
    this.#pullTurn = setImmediate(() => {
      const pauseMs = Math.min(pullPauseMsMax, performance.now() - from);
      this.#pullTimer = setTimeout(() => this.#pull(isNextLarger ? null : aheadBytes), pauseMs);
    });
  }

  #take(message: Msg): void {
    this.#hasReceived = true;
    const { headers, reply } = message;
    const sequence = streamSequence(reply);
    if (this.#options.aheadBytes !== null)
      this.#pullOn(message.subject, sequence === null ? (headers?.code ?? 0) : null);
    if (sequence === null) return this.#takeStatus(message);
    if (sequence < this.#next) return;
    if (sequence > this.#next) return this.#gap(sequence);
    this.#idleTicks = 0;
    this.#next = sequence + 1;
    this.#options.reader.onRecord(sequence, message.data);
    this.#reportCaughtUp();
  }

  /** Idle heartbeats and flow control: messages without payload, with status 100. */
  #takeStatus(message: Msg): void {
    const { link } = this.#options;
    const { headers, reply } = message;
    if (headers === undefined) return;
    if (reply !== undefined && reply !== "") {
      // Flow control: everything before has been delivered, since delivery is synchronous.
      link.publish(reply, nothing);
      return;
    }
    const stalled = headers.get("Nats-Consumer-Stalled");
    if (stalled !== "") link.publish(stalled, nothing);
    const sent = Number(headers.get("Nats-Last-Stream"));
    // The consumer has sent a record that never arrived.
    if (sent >= this.#next) this.#gap(sent);
  }

  #reportCaughtUp(): void {
    if (this.#stopped || this.#caughtUpAt === null || this.#next <= this.#caughtUpAt) return;
    this.#caughtUpAt = null;
    this.#options.reader.onCaughtUp(this.#next - 1);
  }

  #gap(arrived: number): void {
    if (this.#gapAt !== this.#next) {
      this.#gapAt = this.#next;
      this.#attach("gap");
      return;
    }
    // A second consumer, created for that very record, does not have it either.
    this.#detach();
    this.#checkForHole(this.#attachment, arrived).catch(crash);
  }

  async #checkForHole(attachment: number, arrived: number): Promise<void> {
    const { link, telemetry } = this.#options;
    const found = await callJetStream(link, `STREAM.MSG.GET.${logStream}`, { seq: this.#next }, callTimeoutMs);
    if (!this.#isCurrent(attachment)) return;
    if (found.kind !== "refused" || found.errCode !== JetStreamError.noMessageFound) return this.#retry(attachment);
    telemetry.log.error({ missing: this.#next, next: arrived }, "the log has a gap: the NATS server lost a record");
    this.#stopAtGap(arrived);
  }

  #stopAtGap(firstKept: number): void {
    this.unsubscribe();
    this.#options.reader.onGap(firstKept);
  }

  #shorter(attachment: number, last: number): void {
    this.#shorterSince ??= performance.now();
    if (performance.now() - this.#shorterSince > shorterMsMax) this.#options.reader.onShorter?.(last);
    this.#retry(attachment);
  }

  #tick(attachment: number): void {
    this.#silentTicks = this.#hasReceived ? 0 : this.#silentTicks + 1;
    this.#hasReceived = false;
    if (this.#silentTicks >= silentTicksMax) return this.#attach("silent");
    this.#idleTicks += 1;
    if (this.#idleTicks % idleTicksUntilCompare === 0) this.#compare(attachment).catch(crash);
  }

  /** R2: it sends heartbeats but no records, although the stream has more. */
  async #compare(attachment: number): Promise<void> {
    const next = this.#next;
    const bounds = await streamBounds(this.#options.link, logStream, callTimeoutMs);
    if (!this.#isCurrent(attachment) || bounds === null || bounds.last < next) return;
    // Records may be in flight: only one that has not arrived a whole interval later counts.
    await new Promise((resolve) => setTimeout(resolve, heartbeatMs));
    if (this.#isCurrent(attachment) && this.#next === next) this.#attach("behind");
  }
}

const nothing = new Uint8Array(0);

/** `inbox`: where records are pushed; null: they are requested. */
function consumerRequest(inbox: string | null, fromSequence: number): object {
  const pushed = { deliver_subject: inbox, idle_heartbeat: nanos(heartbeatMs), flow_control: true };
  return {
    stream_name: logStream,
    config: {
      ...(inbox === null ? {} : pushed),
      deliver_policy: "by_start_sequence",
      opt_start_seq: fromSequence,
      ack_policy: "none",
      max_deliver: 1,
      replay_policy: "instant",
      // The position is kept here, not on the server.
      mem_storage: true,
      num_replicas: 1,
      inactive_threshold: nanos(consumerKeptMs),
    },
  };
}

/**
 * The stream sequence in the reply subject of a delivered record, null for any other message:
 * `$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.…` (9 tokens), or, with a domain and an account before the stream,
 * 11 or more. Exported for tests.
 */
export function streamSequence(reply: string | undefined): number | null {
  if (reply === undefined || !reply.startsWith("$JS.ACK.")) return null;
  const tokens = reply.split(".");
  const sequence = Number(tokens.length === 9 ? tokens[5] : tokens[7]);
  return Number.isSafeInteger(sequence) && sequence > 0 ? sequence : null;
}
