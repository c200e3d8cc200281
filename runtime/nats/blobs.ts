/**
 * The `Blobs` port: an object store in the layout of NATS's own tools (chunks, then one meta message that names them). Our own
 * code, because every step here is a request with a deadline, and several chunks are in flight; the library reads objects
 * through its ordered consumer, which waits without end while a server is frozen (docs/adr/0047-own-nats-clients.md).
 *
 * O1: a value is whole or absent: the meta message is written after the chunks, and contains their digest.
 * O2: chunks that no meta message names are swept once they are older than any writer could be.
 */
import { createHash } from "node:crypto";
import type { Blobs, Random, Telemetry } from "../ports/index.ts";
import { NatsProblem } from "./errors.ts";
import {
  callJetStream,
  type Fields,
  fieldsField,
  JetStreamError,
  numberField,
  parseFields,
  store,
  textField,
} from "./jetstream.ts";
import type { Link } from "./link.ts";
import { blobChunkPrefix, blobMetaPrefix, blobStream, headerBytesMax } from "./streams.ts";

/** Fewer round trips than with NATS's customary 128 kB, and still far from delaying a ping. */
const chunkBytesMax = 512 * 1024;
/** Chunks in flight: keeps the link busy without queueing a whole snapshot ahead of other messages. */
const chunksInFlightMax = 8;
const chunkTimeoutMs = 5_000;
const callTimeoutMs = 5_000;
/** A read starts over if the value is replaced meanwhile, and waits for a follower that is behind. */
const readAttemptsMax = 5;
const readRetryDelayMs = 200;
const orphanAgeMsMin = 3_600_000;
/** Ids begin with the time of writing in base 36: 9 digits until the year 5188. */
const idTimeDigits = 9;

const digestPrefix = "SHA-256=";
const encoder = new TextEncoder();

interface BlobMeta {
  readonly name: string;
  readonly nuid: string;
  readonly size: number;
  readonly chunks: number;
  readonly digest: string;
}

interface NatsBlobsOptions {
  readonly telemetry: Telemetry;
  readonly random: Random;
}

export class NatsBlobs implements Blobs {
  readonly #link: Link;
  readonly #options: NatsBlobsOptions;

  constructor(link: Link, options: NatsBlobsOptions) {
    this.#link = link;
    this.#options = options;
  }

  /** Throws NatsProblem if the value may not be stored. */
  async put(name: string, data: Uint8Array): Promise<void> {
    const before = await this.#meta(name);
    const nuid =
      Date.now().toString(36).padStart(idTimeDigits, "0") + Buffer.from(this.#options.random.bytes(10)).toString("hex");
    const chunkBytes = Math.min(chunkBytesMax, this.#link.maxPayload - headerBytesMax);
    try {
      const chunks = await this.#putChunks(blobChunkPrefix + nuid, data, chunkBytes);
      const meta = {
        name,
        bucket: blobStream.slice("OBJ_".length),
        nuid,
        size: data.length,
        chunks,
        digest: digestOf(data),
        mtime: new Date().toISOString(),
        options: { max_chunk_size: chunkBytes },
      };
      await this.#store(metaSubject(name), encoder.encode(JSON.stringify(meta)));
    } catch (error) {
      await this.#purge(blobChunkPrefix + nuid);
      throw error;
    }
    // Only the newest meta message counts, so a crash before these purges only leaves garbage.
    await this.#purge(metaSubject(name), 1);
    if (before !== null) await this.#purge(blobChunkPrefix + before.nuid);
    await this.#sweep();
  }

  async #putChunks(subject: string, data: Uint8Array, chunkBytes: number): Promise<number> {
    let count = 0;
    const inFlight: Promise<void>[] = [];
    for (let at = 0; at < data.length; at += chunkBytes) {
      if (inFlight.length >= chunksInFlightMax) await inFlight.shift();
      // One link carries them in order, and one stream stores them in that order.
      const stored = this.#store(subject, data.subarray(at, at + chunkBytes));
      // If a chunk fails while an earlier one is awaited, it is reported in its turn.
      stored.catch(() => undefined);
      inFlight.push(stored);
      count += 1;
    }
    await Promise.all(inFlight);
    return count;
  }

  /**
   * Null for a name that is absent, and, with an error in the log, for a damaged value. Throws NatsProblem if the store does
   * not answer.
   */
  async get(name: string): Promise<Uint8Array | null> {
    for (let attempt = 1; ; attempt++) {
      const meta = await this.#meta(name);
      if (meta === null) return null;
      const data = await this.#chunks(meta);
      if (data !== null) return data;
      if (attempt === readAttemptsMax) {
        this.#options.telemetry.log.error(
          { blob: name, bytes: meta.size },
          "a stored value is incomplete or its digest is wrong: treated as absent",
        );
        return null;
      }
      await new Promise((resolve) => setTimeout(resolve, readRetryDelayMs));
    }
  }

  async list(): Promise<readonly string[]> {
    const subjects = await this.#subjects(`${blobMetaPrefix}>`);
    return subjects.map((subject) => Buffer.from(subject.slice(blobMetaPrefix.length), "base64url").toString()).sort();
  }

  async remove(name: string): Promise<void> {
    const meta = await this.#meta(name);
    if (meta === null) return;
    // The name first: a partial removal must not leave a name without its chunks.
    if (!(await this.#purge(metaSubject(name))))
      throw new NatsProblem("unavailable", `cannot remove the blob "${name}": NATS did not answer`);
    await this.#purge(blobChunkPrefix + meta.nuid);
  }

  async #meta(name: string): Promise<BlobMeta | null> {
    const called = await callJetStream(
      this.#link,
      `STREAM.MSG.GET.${blobStream}`,
      { last_by_subj: metaSubject(name) },
      callTimeoutMs,
    );
    if (called.kind === "refused" && called.errCode === JetStreamError.noMessageFound) return null;
    if (called.kind !== "ok") throw new NatsProblem(called.kind, `cannot look up the blob "${name}": ${called.reason}`);
    const fields = parseFields(Buffer.from(textField(fieldsField(called.body, "message"), "data"), "base64"));
    if (fields === null || fields["deleted"] === true) return null;
    return {
      name,
      nuid: textField(fields, "nuid"),
      size: numberField(fields, "size"),
      chunks: numberField(fields, "chunks"),
      digest: textField(fields, "digest"),
    };
  }

  /** Null if a chunk is missing or the digest differs. */
  async #chunks(meta: BlobMeta): Promise<Uint8Array | null> {
    const subject = blobChunkPrefix + meta.nuid;
    const data = new Uint8Array(meta.size);
    let filled = 0;
    let sequence = 1;
    for (let chunk = 0; chunk < meta.chunks; chunk++) {
      const request = encoder.encode(JSON.stringify({ seq: sequence, next_by_subj: subject }));
      const answer = await this.#link.request(`$JS.API.DIRECT.GET.${blobStream}`, request, {
        timeoutMs: chunkTimeoutMs,
      });
      if (answer.kind !== "reply")
        throw new NatsProblem("unavailable", `cannot read the blob "${meta.name}": NATS did not answer`);
      const { headers, data: bytes } = answer.message;
      const found = Number(headers?.get("Nats-Sequence"));
      if (!(found > 0) || filled + bytes.length > data.length) return null;
      data.set(bytes, filled);
      filled += bytes.length;
      sequence = found + 1;
    }
    return filled === meta.size && digestOf(data) === meta.digest ? data : null;
  }

  async #store(subject: string, data: Uint8Array): Promise<void> {
    const stored = await store(this.#link, subject, data, null, chunkTimeoutMs);
    if (stored.kind === "stored") return;
    const reason = stored.kind === "conflict" ? "conflict" : stored.reason;
    throw new NatsProblem(
      stored.kind === "refused" ? "refused" : "unavailable",
      `NATS did not store a blob: ${reason}`,
    );
  }

  /** False if it may have failed; a later sweep removes the garbage. */
  async #purge(subject: string, keep = 0): Promise<boolean> {
    const called = await callJetStream(
      this.#link,
      `STREAM.PURGE.${blobStream}`,
      { filter: subject, ...(keep > 0 ? { keep } : {}) },
      callTimeoutMs,
    );
    return called.kind === "ok";
  }

  async #subjects(filter: string): Promise<readonly string[]> {
    const found: string[] = [];
    for (;;) {
      const called = await callJetStream(
        this.#link,
        `STREAM.INFO.${blobStream}`,
        { subjects_filter: filter, offset: found.length },
        callTimeoutMs,
      );
      if (called.kind !== "ok") throw new NatsProblem(called.kind, `cannot list the blobs: ${called.reason}`);
      const page: Fields = fieldsField(fieldsField(called.body, "state"), "subjects");
      const subjects = Object.keys(page);
      found.push(...subjects);
      if (subjects.length === 0 || found.length >= numberField(called.body, "total")) return found;
    }
  }

  async #sweep(): Promise<void> {
    try {
      const newestOrphan = Date.now() - orphanAgeMsMin;
      const old = (await this.#subjects(`${blobChunkPrefix}>`)).filter((subject) => {
        const writtenAt = Number.parseInt(
          subject.slice(blobChunkPrefix.length, blobChunkPrefix.length + idTimeDigits),
          36,
        );
        return writtenAt < newestOrphan;
      });
      if (old.length === 0) return;
      const named = new Set<string>();
      for (const name of await this.list()) {
        const meta = await this.#meta(name);
        if (meta !== null) named.add(blobChunkPrefix + meta.nuid);
      }
      for (const subject of old) if (!named.has(subject)) await this.#purge(subject);
    } catch (error) {
      if (!(error instanceof NatsProblem)) throw error;
      this.#options.telemetry.log.debug({ reason: error.message }, "old chunks not swept; the next write tries again");
    }
  }
}

/** NATS's tools write the padded form. */
function metaSubject(name: string): string {
  return blobMetaPrefix + padded(Buffer.from(name).toString("base64url"));
}

function digestOf(data: Uint8Array): string {
  return digestPrefix + padded(createHash("sha256").update(data).digest("base64url"));
}

function padded(base64: string): string {
  return base64.padEnd(Math.ceil(base64.length / 4) * 4, "=");
}
