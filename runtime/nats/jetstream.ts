/** JetStream's request-reply API, with its outcomes classified here, once. The subjects and fields are its documented API. */
import { headers as newHeaders } from "nats";
import { textOf } from "./errors.ts";
import type { Link } from "./link.ts";
import type { Answer } from "./requests.ts";

export type Fields = Readonly<Record<string, unknown>>;

/** `unavailable` may have taken effect; `refused` has not. An answer without an error has errCode 0. */
type Called =
  | { readonly kind: "ok"; readonly errCode: 0; readonly body: Fields }
  | { readonly kind: "refused"; readonly errCode: number; readonly reason: string }
  | { readonly kind: "unavailable"; readonly errCode: number; readonly reason: string };

type Stored =
  | { readonly kind: "stored"; readonly sequence: number }
  | { readonly kind: "conflict" }
  | { readonly kind: "unknown"; readonly reason: string }
  | { readonly kind: "full"; readonly reason: string }
  | { readonly kind: "refused"; readonly reason: string };

/** The err_code values that matter here, from the server's published list of errors. */
export const JetStreamError = {
  /** Fewer servers run than the number of replicas requested. */
  noPeers: 10005,
  noMessageFound: 10037,
  serverNotMember: 10044,
  streamNameInUse: 10058,
  streamNotFound: 10059,
  replicasWithoutCluster: 10074,
  notEnabledForAccount: 10039,
  notEnabled: 10076,
  /** The server's storage limits are reached; nothing was stored. */
  insufficientResources: 10023,
  storageExceeded: 10047,
  accountResourcesExceeded: 10002,
  wrongLastSequence: 10071,
  /** From 2.12 on also this one, for a subject with a write in progress. */
  wrongLastSequenceInFlight: 10164,
} as const;

const full: ReadonlySet<number> = new Set([
  JetStreamError.insufficientResources,
  JetStreamError.storageExceeded,
  JetStreamError.accountResourcesExceeded,
]);

export const expectLastSequence = "Nats-Expected-Last-Sequence";
export const expectLastSubjectSequence = "Nats-Expected-Last-Subject-Sequence";

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const nothing = new Uint8Array(0);

/** Calls `$JS.API.<verb>`. */
export async function callJetStream(link: Link, verb: string, body: object | null, timeoutMs: number): Promise<Called> {
  const sentAt = performance.now();
  const answer = await link.request(`$JS.API.${verb}`, body === null ? nothing : encoder.encode(JSON.stringify(body)), {
    timeoutMs,
  });
  const called = calledOf(answer);
  link.serving.isOffForAccount =
    called.errCode === JetStreamError.notEnabled || called.errCode === JetStreamError.notEnabledForAccount;
  if (called.kind === "unavailable") link.serving.unanswered("$JS", sentAt, called.reason);
  else link.serving.answered("$JS");
  return called;
}

function calledOf(answer: Answer): Called {
  if (answer.kind !== "reply") return { kind: "unavailable", errCode: 0, reason: silence(answer) };
  const fields = parseFields(answer.message.data);
  if (fields === null) return { kind: "unavailable", errCode: 0, reason: "JetStream's answer is not JSON" };
  const error = errorOf(fields);
  if (error === null) return { kind: "ok", errCode: 0, body: fields };
  // 5xx: currently no leader, insufficient resources, …: says nothing about the request itself.
  return { kind: error.code >= 500 ? "unavailable" : "refused", errCode: error.errCode, reason: error.description };
}

/** Publishes to a stream and waits until the message is stored; `expected` is one of the headers above with its sequence. */
export async function store(
  link: Link,
  subject: string,
  data: Uint8Array,
  expected: { readonly header: string; readonly sequence: number } | null,
  timeoutMs: number,
): Promise<Stored> {
  const headers = expected === null ? undefined : newHeaders();
  if (expected !== null) headers?.set(expected.header, String(expected.sequence));
  const sentAt = performance.now();
  const answer = await link.request(subject, data, { timeoutMs, headers });
  const stored = storedOf(answer);
  const [stream = ""] = subject.split(".", 1);
  if (stored.kind === "unknown") link.serving.unanswered(stream, sentAt, stored.reason);
  else link.serving.answered(stream);
  return stored;
}

function storedOf(answer: Answer): Stored {
  if (answer.kind !== "reply") return { kind: "unknown", reason: silence(answer) };
  const fields = parseFields(answer.message.data);
  if (fields === null) return { kind: "unknown", reason: "JetStream's answer is not JSON" };
  const error = errorOf(fields);
  if (error === null) {
    const sequence = numberField(fields, "seq");
    return sequence > 0
      ? { kind: "stored", sequence }
      : { kind: "unknown", reason: "the acknowledgement has no sequence" };
  }
  if (error.errCode === JetStreamError.wrongLastSequence || error.errCode === JetStreamError.wrongLastSequenceInFlight)
    return { kind: "conflict" };
  if (full.has(error.errCode))
    return { kind: "full", reason: `the log's disk is full: NATS reports "${error.description}"` };
  return { kind: error.code >= 500 ? "unknown" : "refused", reason: error.description };
}

function silence(answer: Exclude<Answer, { kind: "reply" }>): string {
  switch (answer.kind) {
    case "no-responders":
      return "no JetStream server answers for it (it currently has no leader)";
    case "timeout":
      return "no answer in time";
    case "closed":
      return "the link to NATS is down";
  }
}

export function parseFields(data: Uint8Array): Fields | null {
  try {
    const parsed: unknown = JSON.parse(decoder.decode(data));
    return isFields(parsed) ? parsed : null;
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof TypeError) return null;
    throw new Error(textOf(error), { cause: error });
  }
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function fieldsField(fields: Fields, name: string): Fields {
  const value = fields[name];
  return isFields(value) ? value : {};
}

/** 0 if absent: JetStream omits zeros. */
export function numberField(fields: Fields, name: string): number {
  const value = fields[name];
  return typeof value === "number" ? value : 0;
}

export function textField(fields: Fields, name: string): string {
  const value = fields[name];
  return typeof value === "string" ? value : "";
}

function errorOf(fields: Fields): { code: number; errCode: number; description: string } | null {
  const error = fields["error"];
  if (!isFields(error)) return null;
  return {
    code: numberField(error, "code"),
    errCode: numberField(error, "err_code"),
    description: textField(error, "description"),
  };
}
