/**
 * The `LeaseBucket` port: a KV bucket in the layout of NATS's own tools. A key's age is the stream's `max_age`, the only expiry
 * before nats-server 2.11; the server's clock decides, to within a fraction of a second.
 *
 * E1: at most one of two writers with the same revision (or both with none) is `stored`.
 * E2: revisions only grow, also across expiry, removal and restarts: they are the stream's sequences. If the bucket itself is
 *     recreated (lease-repair.ts), they continue after those that this process has seen.
 */
import { assert } from "../../lib/assert.ts";
import type { KvOutcome, LeaseBucket, Telemetry } from "../ports/index.ts";
import {
  callJetStream,
  expectLastSubjectSequence,
  type Fields,
  fieldsField,
  JetStreamError,
  numberField,
  store,
  textField,
} from "./jetstream.ts";
import { LeaseRepair } from "./lease-repair.ts";
import type { Link } from "./link.ts";
import { leaseStream, leaseSubjectPrefix } from "./streams.ts";

export class NatsLeases implements LeaseBucket {
  readonly ttlMs: number;
  readonly #link: Link;
  readonly #telemetry: Telemetry;
  readonly #timeoutMs: number;
  readonly #repair: LeaseRepair;

  constructor(link: Link, options: { readonly ttlMs: number; readonly config: Fields; readonly telemetry: Telemetry }) {
    this.#repair = new LeaseRepair(link, options);
    this.#link = link;
    this.#telemetry = options.telemetry;
    this.ttlMs = options.ttlMs;
    // An answer that arrives after the lease has expired is useless to its holder.
    this.#timeoutMs = Math.max(500, Math.min(2_000, options.ttlMs / 2));
  }

  create(key: string, value: Uint8Array): Promise<KvOutcome> {
    return this.#write(key, value, 0);
  }

  async update(key: string, value: Uint8Array, revision: number): Promise<KvOutcome> {
    assert(revision > 0, "E1: an update names the revision it replaces");
    return this.#write(key, value, revision);
  }

  async #write(key: string, value: Uint8Array, revision: number): Promise<KvOutcome> {
    const stored = await store(
      this.#link,
      subjectOf(key),
      value,
      { header: expectLastSubjectSequence, sequence: revision },
      this.#timeoutMs,
    );
    if (stored.kind === "unknown") this.#repair.unanswered();
    else this.#repair.answered(stored.kind === "stored" ? stored.sequence : 0);
    switch (stored.kind) {
      case "stored":
        return { kind: "stored", revision: stored.sequence };
      case "full":
      case "refused":
        this.#telemetry.log.error({ key, reason: stored.reason }, "the NATS server refused a lease");
        return { kind: "unknown", reason: stored.reason };
      default:
        return stored;
    }
  }

  /** Answered by the stream's leader: a direct get may be answered by a follower that is behind. */
  async get(key: string): ReturnType<LeaseBucket["get"]> {
    const called = await callJetStream(
      this.#link,
      `STREAM.MSG.GET.${leaseStream}`,
      { last_by_subj: subjectOf(key) },
      this.#timeoutMs,
    );
    const isAbsent = called.kind === "refused" && called.errCode === JetStreamError.noMessageFound;
    if (isAbsent || called.kind === "ok") this.#repair.answered(0);
    else this.#repair.unanswered();
    if (isAbsent) return { kind: "absent" };
    if (called.kind !== "ok") return { kind: "unknown", reason: called.reason };
    const message = fieldsField(called.body, "message");
    this.#repair.answered(numberField(message, "seq"));
    // Other tools remove a key by writing a marker; to `create`, that is a value until it expires.
    if (
      textField(message, "hdrs") !== "" &&
      /KV-Operation: ?(DEL|PURGE)/.test(Buffer.from(textField(message, "hdrs"), "base64").toString())
    ) {
      return { kind: "absent" };
    }
    return {
      kind: "found",
      value: new Uint8Array(Buffer.from(textField(message, "data"), "base64")),
      revision: numberField(message, "seq"),
    };
  }

  /**
   * Deletes exactly the message of this revision: a newer one is unaffected, and no marker blocks the next `create`. If this
   * fails, the key expires by itself.
   */
  async remove(key: string, revision: number): Promise<void> {
    const called = await callJetStream(
      this.#link,
      `STREAM.MSG.DELETE.${leaseStream}`,
      { seq: revision, no_erase: true },
      this.#timeoutMs,
    );
    if (called.kind === "unavailable")
      this.#telemetry.log.debug({ key, reason: called.reason }, "lease not removed; it will expire");
  }
}

function subjectOf(key: string): string {
  assert(/^[-/=\w]+(\.[-/=\w]+)*$/.test(key), `E3: '${key}' is a valid key of a bucket`);
  return leaseSubjectPrefix + key;
}
