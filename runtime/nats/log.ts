/**
 * The `Log` port: one JetStream stream, appended to with its expected last sequence.
 *
 * F1: nothing is appended while the disk under the log is full (disk-space.ts).
 * G1: an append is `conflict` or `refused` only if the server said so; silence is `unknown`.
 */
import type {
  AppendOutcome,
  Histogram,
  Log,
  LogReader,
  LogSpace,
  Random,
  Subscription,
  Telemetry,
} from "../ports/index.ts";
import * as subjects from "../subjects.ts";
import { fullSentence, type DiskSpace } from "./disk-space.ts";
import { NatsProblem } from "./errors.ts";
import { callJetStream, expectLastSequence, store } from "./jetstream.ts";
import type { Link } from "./link.ts";
import { LogReading } from "./log-reading.ts";
import { headerBytesMax, logStream, streamBounds, streamBytes } from "./streams.ts";

/**
 * An append takes about a millisecond. One that is lost with a killed stream leader stays silent for this long, so this plus
 * the election (4 to 9 s) is the longest outage.
 */
const appendTimeoutMs = 3_000;
/** Dropping a long history rewrites index files. */
const purgeTimeoutMs = 30_000;

interface NatsLogOptions {
  readonly telemetry: Telemetry;
  readonly random: Random;
  /** Headers included. */
  readonly messageBytesMax: number;
  /** The log's disk, if this process can see it. */
  readonly disk: { readonly space: DiskSpace } | null;
}

export class NatsLog implements Log {
  readonly recordBytesMax: number;
  readonly #link: Link;
  readonly #options: NatsLogOptions;
  readonly #appendSeconds: Histogram;
  /** The log's last sequence when an append was refused for lack of space. */
  #fullAfter = 0;

  constructor(link: Link, options: NatsLogOptions) {
    this.#link = link;
    this.#options = options;
    this.recordBytesMax = options.messageBytesMax - headerBytesMax;
    this.#appendSeconds = options.telemetry.metrics.histogram(
      "muster_log_append_seconds",
      "Time from an append to its acknowledgement.",
    );
  }

  async append(data: Uint8Array, expectedLast: number): Promise<AppendOutcome> {
    if (data.length > this.recordBytesMax) {
      return {
        kind: "refused",
        reason: `a record of ${data.length} bytes is larger than the log's ${this.recordBytesMax}`,
      };
    }
    // F1
    const space = this.#options.disk?.space;
    if (space?.kind === "full") return { kind: "full", reason: fullSentence(space) };
    const startedAt = performance.now();
    const stored = await store(
      this.#link,
      subjects.log,
      data,
      { header: expectLastSequence, sequence: expectedLast },
      appendTimeoutMs,
    );
    if (stored.kind === "full") {
      this.#link.serving.fullReason = stored.reason;
      this.#fullAfter = expectedLast;
    } else if (stored.kind === "stored") this.#link.serving.fullReason = null;
    if (stored.kind !== "stored") return stored;
    this.#appendSeconds.observe((performance.now() - startedAt) / 1_000);
    return { kind: "appended", sequence: stored.sequence };
  }

  read(fromSequence: number, reader: LogReader, aheadBytes?: number): Subscription {
    const onRecord: LogReader["onRecord"] = (...record) => {
      // A leader has appended since, so there is space; this manager may never append itself.
      if (record[0] > this.#fullAfter) this.#link.serving.fullReason = null;
      reader.onRecord(...record);
    };
    return new LogReading({
      ...this.#options,
      link: this.#link,
      fromSequence,
      reader: { ...reader, onRecord },
      aheadBytes: aheadBytes ?? null,
    });
  }

  bounds(timeoutMs: number): Promise<{ readonly first: number; readonly last: number } | null> {
    return streamBounds(this.#link, logStream, timeoutMs);
  }

  bytes(timeoutMs: number): Promise<number | null> {
    return streamBytes(this.#link, logStream, timeoutMs);
  }

  space(): LogSpace {
    return this.#options.disk?.space.kind ?? "ample";
  }

  /** Throws NatsProblem if it may not be done. */
  async purgeBefore(sequence: number): Promise<void> {
    const bounds = await this.bounds(appendTimeoutMs);
    if (bounds === null) throw new NatsProblem("unavailable", "the log does not answer");
    // A purge beyond the end would move the end: sequences would be skipped, and every expected sequence would be wrong.
    const before = Math.min(sequence, bounds.last + 1);
    if (before <= bounds.first) return;
    const purged = await callJetStream(this.#link, `STREAM.PURGE.${logStream}`, { seq: before }, purgeTimeoutMs);
    if (purged.kind !== "ok") throw new NatsProblem(purged.kind, `cannot drop the log's history: ${purged.reason}`);
  }
}
