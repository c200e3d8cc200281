/**
 * Recreates the bucket of leases when all of its copies have lost entries that their consensus says they had: each copy then
 * waits for a leader to get them from, and none is ever elected. A power failure of all servers at once can cause this (seen
 * with nats-server 2.15.1; `nats-server: catchup aborted, no leader for stream`), while the log may be intact.
 *
 * A lease is worthless after its TTL, so nothing is lost with the bucket. If the bucket is removed while somebody does hold a
 * lease, the holder loses it as if it had expired: it is the log that rejects a deposed leader (S1), not the lease.
 */
import type { Telemetry } from "../ports/index.ts";
import { callJetStream, type Fields, JetStreamError } from "./jetstream.ts";
import type { Link } from "./link.ts";
import { isLed, leaseStream, logStream } from "./streams.ts";

/** Three times the longest elections seen in a loaded cluster. */
const leaderlessMsMin = 30_000;
const callTimeoutMs = 5_000;

export class LeaseRepair {
  readonly #link: Link;
  readonly #telemetry: Telemetry;
  readonly #config: Fields;
  /** When the bucket first failed to answer, in milliseconds of `performance.now()`; null while it answers. */
  #failingSince: number | null = null;
  #isRepairing = false;
  #revisionMax = 0;

  /** `config` is the stream's configuration, as the server returned it. */
  constructor(link: Link, options: { readonly config: Fields; readonly telemetry: Telemetry }) {
    this.#link = link;
    this.#config = options.config;
    this.#telemetry = options.telemetry;
  }

  /** The bucket has answered; `revision` is from its answer, 0 if it has none. */
  answered(revision: number): void {
    this.#failingSince = null;
    this.#revisionMax = Math.max(this.#revisionMax, revision);
  }

  /** The bucket did not answer. After `leaderlessMsMin` without an answer, while the log does answer, it is recreated. */
  unanswered(): void {
    const now = performance.now();
    this.#failingSince ??= now;
    if (this.#isRepairing || now - this.#failingSince < leaderlessMsMin) return;
    this.#isRepairing = true;
    void this.#repair().finally(() => (this.#isRepairing = false));
  }

  async #repair(): Promise<void> {
    // If the log does not answer either, the bucket is not the cause: servers are down or unreachable.
    const log = await callJetStream(this.#link, `STREAM.INFO.${logStream}`, null, callTimeoutMs);
    if (log.kind !== "ok") return;
    const bucket = await callJetStream(this.#link, `STREAM.INFO.${leaseStream}`, null, callTimeoutMs);
    if (bucket.kind === "ok" && isLed(bucket.body)) return this.answered(0);
    if (bucket.kind !== "refused") {
      this.#telemetry.log.warn({}, "the bucket of leases has no leader: recreating it");
      // Carried out by the leader of JetStream's metadata, but answered by the stream's leader, which does not exist.
      await callJetStream(this.#link, `STREAM.DELETE.${leaseStream}`, null, callTimeoutMs);
    } else if (bucket.errCode !== JetStreamError.streamNotFound) return;
    const created = await callJetStream(
      this.#link,
      `STREAM.CREATE.${leaseStream}`,
      // Revisions continue after the last one known here (nats-server 2.10; before, they restart).
      { ...this.#config, first_seq: this.#revisionMax + 1 },
      callTimeoutMs,
    );
    if (created.kind !== "ok") {
      this.#telemetry.log.warn({ reason: created.reason }, "the bucket of leases could not be recreated yet");
      return;
    }
    this.#telemetry.log.warn({ after: this.#revisionMax }, "the bucket of leases was recreated");
    this.answered(0);
  }
}
