/**
 * Makes the bucket of leases anew when all of its copies have lost what their consensus says that they had: each of them then
 * waits for a leader to get it from, and none ever leads. A power failure in all places at once can do that (seen with
 * nats-server 2.15.1; `nats-server: catchup aborted, no leader for stream`), and the log may be whole all the same.
 *
 * A lease is worth nothing after its TTL, so nothing is lost with the bucket. Should it be removed while somebody holds one after
 * all, that holder loses it as if it had expired: the log refuses whoever leads no more (S1), not the lease.
 */
import type { Telemetry } from "../ports.ts";
import { callJetStream, type Fields, JetStreamError } from "./jetstream.ts";
import type { Link } from "./link.ts";
import { isLed, leaseStream, logStream } from "./streams.ts";

/** Three times as long as the elections of a loaded cluster have been seen to take. */
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

  /** `config` is the stream's, as the server returned it. */
  constructor(link: Link, options: { readonly config: Fields; readonly telemetry: Telemetry }) {
    this.#link = link;
    this.#config = options.config;
    this.#telemetry = options.telemetry;
  }

  /** The bucket has answered; `revision` is what the answer named, 0 where it named none. */
  answered(revision: number): void {
    this.#failingSince = null;
    this.#revisionMax = Math.max(this.#revisionMax, revision);
  }

  /** It has not; after `leaderlessMsMin` of nothing else, while the log does answer, it is made anew. */
  unanswered(): void {
    const now = performance.now();
    this.#failingSince ??= now;
    if (this.#isRepairing || now - this.#failingSince < leaderlessMsMin) return;
    this.#isRepairing = true;
    void this.#repair().finally(() => (this.#isRepairing = false));
  }

  async #repair(): Promise<void> {
    // Where the log does not answer either it is no matter of the bucket: servers are missing, or cannot be reached.
    const log = await callJetStream(this.#link, `STREAM.INFO.${logStream}`, null, callTimeoutMs);
    if (log.kind !== "ok") return;
    const bucket = await callJetStream(this.#link, `STREAM.INFO.${leaseStream}`, null, callTimeoutMs);
    if (bucket.kind === "ok" && isLed(bucket.body)) return this.answered(0);
    if (bucket.kind !== "refused") {
      this.#telemetry.log.warn({}, "the bucket of leases has no leader: making it anew");
      // Carried out by whoever leads JetStream itself, and answered by whoever leads the stream: by nobody.
      await callJetStream(this.#link, `STREAM.DELETE.${leaseStream}`, null, callTimeoutMs);
    } else if (bucket.errCode !== JetStreamError.streamNotFound) return;
    const made = await callJetStream(
      this.#link,
      `STREAM.CREATE.${leaseStream}`,
      // Revisions go on from the last one that is known here (nats-server 2.10; before, they begin anew).
      { ...this.#config, first_seq: this.#revisionMax + 1 },
      callTimeoutMs,
    );
    if (made.kind !== "ok") {
      this.#telemetry.log.warn({ reason: made.reason }, "the bucket of leases could not be made anew yet");
      return;
    }
    this.#telemetry.log.warn({ after: this.#revisionMax }, "the bucket of leases was made anew");
    this.answered(0);
  }
}
