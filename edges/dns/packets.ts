/**
 * Questions and replies as they are on the wire (RFC 1035), by the package `dns-packet`.
 *
 * DP1: whatever comes, nothing throws: what cannot be read is answered FORMERR where it has the header of a question (RFC 1035,
 *      §4.1.1), and else not at all. A reply is never answered, so two servers cannot keep each other busy.
 * DP2: a reply says again exactly what was asked; a question that would come out differently is nobody's here.
 */
import dns, { type Answer as DnsRecord, type OptAnswer, type Question } from "dns-packet";
import type { NameReply } from "../../runtime/name-server.ts";

/** Bytes. What a reply may have over UDP where nobody says anything (RFC 1035, §2.3.4) … */
const udpBytes = 512;
/** … and at most: what passes everywhere in one packet (DNS Flag Day 2020). */
const udpBytesMax = 1_232;
/** With a number of questions and three of records. */
const headerBytes = 12;
/** Of flags: the bit that a reply has. */
const replyBit = 0x80;
/** The upper bits of BADVERS (RFC 6891, §9). */
const badVersion = 1;

/** By their numbers (RFC 1035, §4.1.1). */
const codes = { none: 0, malformed: 1, failed: 2, unknown: 3, notImplemented: 4, refused: 5 } as const;

export interface WireQuestion {
  readonly raw: Buffer;
  readonly id: number;
  /** As it was asked, without the dot at its end. */
  readonly name: string;
  readonly type: Question["type"];
  /** Bytes that a reply over UDP may have. */
  readonly udpMax: number;
  readonly hasOptions: boolean;
  readonly isRecursionDesired: boolean;
  /** DP2 */
  readonly isPlain: boolean;
}

export type Read =
  | { readonly kind: "question"; readonly question: WireQuestion }
  /** It can be answered without looking at names. */
  | { readonly kind: "answered"; readonly reply: Buffer }
  | { readonly kind: "silence" };

/** DP1 */
export function readQuestion(raw: Buffer): Read {
  if (raw.length < headerBytes || ((raw[2] as number) & replyBit) !== 0) return { kind: "silence" };
  const opcode = ((raw[2] as number) >> 3) & 15;
  if (opcode !== 0) return answered(raw, codes.notImplemented);
  let packet: ReturnType<typeof dns.decode>;
  try {
    packet = dns.decode(raw);
  } catch {
    return answered(raw, codes.malformed);
  }
  const [asked, ...others] = packet.questions ?? [];
  const options = (packet.additionals ?? []).find((each): each is OptAnswer => each.type === "OPT");
  if (asked === undefined || others.length > 0) return answered(raw, codes.malformed);
  const question: WireQuestion = {
    raw,
    id: packet.id ?? 0,
    name: asked.name,
    type: asked.type,
    udpMax: Math.min(udpBytesMax, Math.max(udpBytes, options?.udpPayloadSize ?? 0)),
    hasOptions: options !== undefined,
    isRecursionDesired: packet.flag_rd === true,
    isPlain: comesOutSame(asked, raw),
  };
  if (asked.class !== "IN") return answered(raw, codes.notImplemented);
  if ((options?.ednsVersion ?? 0) > 0 && question.isPlain)
    return { kind: "answered", reply: encoded(question, codes.none, [], badVersion) };
  return { kind: "question", question };
}

/** DP2 */
function comesOutSame(asked: Question, raw: Buffer): boolean {
  try {
    const again = dns.encode({ type: "query", questions: [asked] });
    return again.subarray(headerBytes).equals(raw.subarray(headerBytes, again.length));
  } catch {
    return false;
  }
}

function answered(raw: Buffer, code: number): Read {
  return { kind: "answered", reply: headerOf(raw, code) };
}

/** The header alone, which says what it is a reply to. */
function headerOf(raw: Buffer, code: number): Buffer {
  const reply = Buffer.alloc(headerBytes);
  raw.copy(reply, 0, 0, 3);
  reply[2] = (reply[2] as number) | replyBit;
  reply[3] = code;
  return reply;
}

/** `maxBytes`: more does not fit, and is left out; the reply says so. */
export function replyTo(
  question: WireQuestion,
  reply: Exclude<NameReply, { readonly kind: "forward" }>,
  maxBytes: number,
): Buffer {
  if (!question.isPlain) return headerOf(question.raw, reply.kind === "unknown" ? codes.unknown : codes.refused); // DP2
  switch (reply.kind) {
    case "empty":
      return encoded(question, codes.none, []);
    case "unknown":
      return encoded(question, codes.unknown, []);
    case "failed":
      return encoded(question, codes.failed, []);
    case "refused":
      return encoded(question, codes.refused, []);
    case "pointers": {
      const { names, ttlS: ttl } = reply;
      return fitting(
        question,
        names.map((data) => ({ type: "PTR", name: question.name, ttl, data })),
        maxBytes,
      );
    }
    case "addresses": {
      const { addresses, ttlS: ttl } = reply;
      return fitting(
        question,
        addresses.map((data) => ({ type: data.includes(":") ? "AAAA" : "A", name: question.name, ttl, data })),
        maxBytes,
      );
    }
  }
}

/** As many as have room: who does not ask again over TCP has some of them at least. */
function fitting(question: WireQuestion, records: readonly DnsRecord[], maxBytes: number): Buffer {
  const whole = encoded(question, codes.none, records);
  if (whole.length <= maxBytes) return whole;
  const bare = encoded(question, codes.none, []).length;
  const count = Math.floor((maxBytes - bare) / ((whole.length - bare) / records.length));
  return encoded(question, codes.none, records.slice(0, count), 0, dns.TRUNCATED_RESPONSE);
}

function encoded(
  { hasOptions, id, isRecursionDesired, name, type }: WireQuestion,
  code: number,
  answers: readonly DnsRecord[],
  extendedRcode = 0,
  flags = 0,
): Buffer {
  const options: OptAnswer = {
    type: "OPT",
    name: ".",
    udpPayloadSize: udpBytesMax,
    extendedRcode,
    ednsVersion: 0,
    flags: 0,
    flag_do: false,
    options: [],
  };
  const desired = isRecursionDesired ? dns.RECURSION_DESIRED : 0;
  const isOurs = code === codes.none || code === codes.unknown ? dns.AUTHORITATIVE_ANSWER : 0;
  return dns.encode({
    id,
    type: "response",
    flags: flags | desired | dns.RECURSION_AVAILABLE | isOurs | code,
    questions: [{ name, type }],
    answers: [...answers],
    additionals: hasOptions ? [options] : [],
  });
}

/** Whether a reply is one to a question: the same number, and the same name and type said again, in letters of whatever case. */
export function isReplyTo(reply: Buffer, question: Buffer, id: number): boolean {
  if (reply.length < headerBytes || ((reply[2] as number) & replyBit) === 0 || reply.readUInt16BE(0) !== id)
    return false;
  const end = endOfQuestion(question);
  const said = (of: Buffer): string => of.toString("latin1", headerBytes, end).toLowerCase();
  // One that could not read it may leave it out.
  return reply.readUInt16BE(4) === 0 || said(reply) === said(question);
}

/** Of one that could be read. */
function endOfQuestion(question: Buffer): number {
  let at = headerBytes;
  while (at < question.length && question[at] !== 0) at += (question[at] as number) + 1;
  return at + 5;
}

export function codeOf(reply: Buffer): number {
  return (reply[3] as number) & 15;
}

/** The same question by another number. */
export function numbered(packet: Buffer, id: number): Buffer {
  const copy = Buffer.from(packet);
  copy.writeUInt16BE(id, 0);
  return copy;
}

export function failure({ raw }: WireQuestion): Buffer {
  return headerOf(raw, codes.failed);
}
