/** A cluster's streams and buckets, declared as data, with their idempotent setup. */
import * as subjects from "../subjects.ts";
import { NatsProblem } from "./errors.ts";
import { callJetStream, type Fields, fieldsField, JetStreamError, numberField, textField } from "./jetstream.ts";
import type { Link } from "./link.ts";

/** Bucket names; KV buckets and object stores are streams named by NATS's convention, so its own tools show them. */
const leaseBucket = "muster-leases";
const blobBucket = "muster-blobs";

export const logStream = "muster-log";
export const leaseStream = `KV_${leaseBucket}`;
export const blobStream = `OBJ_${blobBucket}`;
export const leaseSubjectPrefix = `$KV.${leaseBucket}.`;
export const blobChunkPrefix = `$O.${blobBucket}.C.`;
export const blobMetaPrefix = `$O.${blobBucket}.M.`;

/** JetStream's durations are in nanoseconds. */
export function nanos(ms: number): number {
  return ms * 1_000_000;
}

/** Maximum size of a record's headers: one expected-sequence header. Stream and server limits include them. */
export const headerBytesMax = 1024;

/** Largest record of the log that our own server accepts; an external server's lower limit takes precedence. */
const logMessageBytesMax = 8 * 1024 * 1024;

/** Nothing uses message ids, so the window is the server's minimum. */
const duplicateWindow = nanos(100);

interface StreamOptions {
  readonly replicas: 1 | 3;
  /** Duration of a lease; null keeps the bucket's current value, 3 s for a new bucket. */
  readonly leaseTtlMs: number | null;
  readonly maxPayload: number;
}

interface StreamPlan {
  readonly config: Fields;
  /** Fields that are updated in an existing stream. `num_replicas` is only raised; other fields stay unchanged. */
  readonly updatable: readonly string[];
  /** Fields that must match, or else the stream is not ours. */
  readonly fixed: readonly string[];
}

/** A holder that renews each second misses two renewals before it loses its lease. */
const leaseTtlMsDefault = 3_000;

function plans(options: StreamOptions): readonly StreamPlan[] {
  const leaseTtlMs = options.leaseTtlMs ?? leaseTtlMsDefault;
  const common = {
    retention: "limits",
    storage: "file",
    num_replicas: options.replicas,
    max_consumers: -1,
    max_msgs: -1,
    max_bytes: -1,
    discard: "new",
    duplicate_window: duplicateWindow,
  };
  const fixed = ["storage", "retention", "subjects"];
  return [
    {
      config: {
        ...common,
        name: logStream,
        subjects: [subjects.log],
        max_age: 0,
        max_msg_size: Math.min(logMessageBytesMax, options.maxPayload),
      },
      updatable: ["max_age"],
      fixed,
    },
    {
      config: {
        ...common,
        name: leaseStream,
        subjects: [`${leaseSubjectPrefix}>`],
        max_msgs_per_subject: 1,
        max_age: nanos(leaseTtlMs),
        // A TTL shorter than the duplicate window is rejected.
        duplicate_window: Math.min(duplicateWindow, nanos(leaseTtlMs)),
        allow_rollup_hdrs: true,
      },
      updatable: options.leaseTtlMs === null ? [] : ["max_age"],
      fixed,
    },
    {
      config: {
        ...common,
        name: blobStream,
        subjects: [`${blobChunkPrefix}>`, `${blobMetaPrefix}>`],
        max_age: 0,
        allow_rollup_hdrs: true,
        allow_direct: true,
      },
      updatable: [],
      fixed,
    },
  ];
}

/** A newly started cluster elects its leaders within seconds; a loaded one takes longer. */
const setUpMs = 30_000;
/** How long a manager that could start on the existing copies waits for more of them. */
const raiseMs = 10_000;
/** How long a manager that has found the log and the leases waits for the blobs: two calls. */
const blobsMs = 10_000;
/** Delay between attempts to set up the blobs once the manager runs. */
const blobsRetryMs = 5_000;
const callTimeoutMs = 5_000;
const retryDelayMs = 250;

interface StreamsSetUp {
  /** Largest message that the log stream accepts, in bytes, headers included. */
  readonly logMessageBytesMax: number;
  /** Number of copies of every stream; fewer than requested while existing copies cannot be raised. */
  readonly replicas: number;
  /** Duration of a lease in the bucket. */
  readonly leaseTtlMs: number;
  /** The bucket's configuration, as the server returned it. */
  readonly leaseConfig: Fields;
  /** Why the copies were not raised; empty if there are as many as requested. */
  readonly notRaised: string;
  /** Why the blobs' bucket may not be set up; empty if it is. `setUpBlobs` then continues. */
  readonly blobsUnanswered: string;
}

/**
 * Creates missing streams, and raises the copies of existing ones; if a server needed for that is down, they stay unchanged.
 * A server whose disk was full may keep running, lead the blobs and answer nothing until it is restarted (seen with nats-server
 * 2.9.10). The log and the leases have another leader by then and managers must be able to start on them, so setup does not
 * wait for the blobs if both exist. Throws NatsProblem `unusable` or `unavailable`.
 */
export async function setUpStreams(link: Link, options: StreamOptions): Promise<StreamsSetUp> {
  const startedAt = performance.now();
  let logConfig: Fields = {};
  let replicas: number = options.replicas;
  let leaseConfig: Fields = {};
  let notRaised = "";
  let blobsUnanswered = "";
  let isFounded = true;
  for (const plan of plans(options)) {
    const name = textField(plan.config, "name");
    const unheardMs = name === blobStream && isFounded ? blobsMs : Number.POSITIVE_INFINITY;
    const outcome = await setUpStream(link, plan, { startedAt, unheardMs });
    if (outcome.kind === "unanswered") {
      blobsUnanswered = outcome.reason;
      continue;
    }
    if (outcome.kind === "created") isFounded = false;
    if (name === logStream) logConfig = outcome.config;
    if (name === leaseStream) leaseConfig = outcome.config;
    // JetStream omits fields that apply only to clusters.
    replicas = Math.min(replicas, Math.max(1, numberField(outcome.config, "num_replicas")));
    if (outcome.kind === "not raised") notRaised = outcome.reason;
  }
  const limit = numberField(logConfig, "max_msg_size");
  const logMessageBytesMax = limit > 0 ? Math.min(limit, options.maxPayload) : options.maxPayload;
  const leaseTtlMs = Math.round(numberField(leaseConfig, "max_age") / nanos(1));
  return { logMessageBytesMax, replicas, leaseTtlMs, leaseConfig, notRaised, blobsUnanswered };
}

/** Retries until the blobs' bucket is set up or the link is closed. Throws NatsProblem `unusable`. */
export async function setUpBlobs(link: Link, options: StreamOptions): Promise<void> {
  const plan = plans(options).find(({ config }) => textField(config, "name") === blobStream);
  while (plan !== undefined && !link.isClosed()) {
    const outcome = await trySetUp(link, blobStream, plan);
    if (outcome.kind !== "again") return;
    await new Promise((resolve) => setTimeout(resolve, blobsRetryMs).unref());
  }
}

async function setUpStream(
  link: Link,
  plan: StreamPlan,
  { startedAt, unheardMs }: { readonly startedAt: number; readonly unheardMs: number },
): Promise<Exclude<SetUp, { readonly kind: "again" }> | { readonly kind: "unanswered"; readonly reason: string }> {
  const name = textField(plan.config, "name");
  const beganAt = performance.now();
  for (;;) {
    const outcome = await trySetUp(link, name, plan);
    const passedMs = performance.now() - startedAt;
    if (outcome.kind === "ready" || outcome.kind === "created") return outcome;
    if (outcome.kind === "not raised" && passedMs >= raiseMs) return outcome;
    if (outcome.kind === "again" && performance.now() - beganAt >= unheardMs)
      return { kind: "unanswered", reason: outcome.reason };
    if (passedMs >= setUpMs) {
      throw new NatsProblem(
        "unavailable",
        `JetStream did not set up the stream ${name} within ${setUpMs / 1_000} s (${outcome.reason})`,
      );
    }
    await new Promise((resolve) => setTimeout(resolve, retryDelayMs));
  }
}

type SetUp =
  | { readonly kind: "ready"; readonly config: Fields }
  | { readonly kind: "created"; readonly config: Fields }
  | { readonly kind: "not raised"; readonly config: Fields; readonly reason: string }
  | { readonly kind: "again"; readonly reason: string };

async function trySetUp(link: Link, name: string, plan: StreamPlan): Promise<SetUp> {
  const found = await callJetStream(link, `STREAM.INFO.${name}`, null, callTimeoutMs);
  if (found.kind === "unavailable") return { kind: "again", reason: found.reason };
  if (found.kind === "refused") {
    if (found.errCode !== JetStreamError.streamNotFound) throw unusable(name, found.reason);
    const created = await callJetStream(link, `STREAM.CREATE.${name}`, plan.config, callTimeoutMs);
    if (created.kind === "ok") return { kind: "created", config: fieldsField(created.body, "config") };
    if (created.errCode === JetStreamError.replicasWithoutCluster) throw unusable(name, needsCluster);
    if (created.errCode === JetStreamError.noPeers)
      return { kind: "again", reason: `${created.reason}: ${needsServers}` };
    // Another manager created it at the same time: check what it created.
    if (created.kind === "unavailable" || created.errCode === JetStreamError.streamNameInUse)
      return { kind: "again", reason: created.reason };
    throw unusable(name, created.reason);
  }
  let config = fieldsField(found.body, "config");
  for (const field of plan.fixed) {
    if (JSON.stringify(config[field]) !== JSON.stringify(plan.config[field]))
      throw unusable(name, `its ${field} is ${JSON.stringify(config[field])}`);
  }
  const changed = plan.updatable.filter((field) => numberField(config, field) !== numberField(plan.config, field));
  if (changed.length > 0) {
    const changes = Object.fromEntries(changed.map((field) => [field, plan.config[field]]));
    const updated = await callJetStream(link, `STREAM.UPDATE.${name}`, { ...config, ...changes }, callTimeoutMs);
    if (updated.kind === "unavailable") return { kind: "again", reason: updated.reason };
    if (updated.kind === "refused") throw unusable(name, updated.reason);
    config = fieldsField(updated.body, "config");
  }
  const replicas = numberField(plan.config, "num_replicas");
  if (Math.max(1, numberField(config, "num_replicas")) >= replicas) return { kind: "ready", config };
  const raised = await callJetStream(
    link,
    `STREAM.UPDATE.${name}`,
    { ...config, num_replicas: replicas },
    callTimeoutMs,
  );
  if (raised.kind === "ok") return { kind: "ready", config: fieldsField(raised.body, "config") };
  if (raised.errCode === JetStreamError.replicasWithoutCluster) throw unusable(name, needsCluster);
  return { kind: "not raised", config, reason: raised.reason };
}

const needsServers = "three replicas need three running nats-servers of one cluster";
const needsCluster = "its replicas need a cluster of nats-servers, and this one is standalone";

function unusable(stream: string, reason: string): NatsProblem {
  return new NatsProblem("unusable", `the NATS server cannot host Muster's stream ${stream}: ${reason}`);
}

/** Servers also describe a replicated stream without a leader. */
export function isLed(info: Fields): boolean {
  const replicas = numberField(fieldsField(info, "config"), "num_replicas");
  return replicas <= 1 || textField(fieldsField(info, "cluster"), "leader") !== "";
}

/** First and last sequence of a stream; null if it does not answer or has no leader, because a copy may be behind. */
export async function streamBounds(
  link: Link,
  stream: string,
  timeoutMs: number,
): Promise<{ readonly first: number; readonly last: number } | null> {
  const called = await callJetStream(link, `STREAM.INFO.${stream}`, null, timeoutMs);
  if (called.kind !== "ok" || !isLed(called.body)) return null;
  const state = fieldsField(called.body, "state");
  const last = numberField(state, "last_seq");
  // A stream that never had a message reports 0 and 0; an emptied one reports last + 1 and last.
  return numberField(state, "messages") === 0
    ? { first: last + 1, last }
    : { first: numberField(state, "first_seq"), last };
}

/** Copies of a stream, and how many of them are complete and on servers that follow it; null if it does not answer. */
export async function streamCopies(
  link: Link,
  stream: string,
  timeoutMs: number,
): Promise<{ readonly wanted: number; readonly current: number } | null> {
  const called = await callJetStream(link, `STREAM.INFO.${stream}`, null, timeoutMs);
  if (called.kind !== "ok" || !isLed(called.body)) return null;
  const wanted = Math.max(1, numberField(fieldsField(called.body, "config"), "num_replicas"));
  return { wanted, current: 1 + currentFollowers(called.body).length };
}

/** The servers beside the leader, as JetStream describes them. */
export function followersOf(info: Fields): readonly Fields[] {
  const { replicas } = fieldsField(info, "cluster");
  return Array.isArray(replicas) ? (replicas as readonly Fields[]) : [];
}

/** Names of the servers beside the leader that follow the stream. */
export function currentFollowers(info: Fields): readonly string[] {
  return followersOf(info).flatMap((each) =>
    each["current"] === true && each["offline"] !== true ? [textField(each, "name")] : [],
  );
}

/** Size of a stream in bytes; null if it does not answer. */
export async function streamBytes(link: Link, stream: string, timeoutMs: number): Promise<number | null> {
  const called = await callJetStream(link, `STREAM.INFO.${stream}`, null, timeoutMs);
  return called.kind === "ok" ? numberField(fieldsField(called.body, "state"), "bytes") : null;
}
