/**
 * Questions and replies in wire format (RFC 1035), using the package `dns-packet`.
 *
 * DP1: no input throws. An unreadable packet is answered FORMERR if it has the header of a question (RFC 1035, §4.1.1), and
 *      ignored otherwise. Replies are never answered, so two servers cannot keep each other busy.
 * DP2: a reply repeats the question exactly. A question that would be encoded differently matches no name here.
 */
import dns, { type Answer as DnsRecord, type OptAnswer, type Question } from "dns-packet";
import type { NameReply } from "../../runtime/ports/name-server.ts";

/** Maximum size of a reply over UDP, in bytes, for a client without EDNS (RFC 1035, §2.3.4). */
const udpBytes = 512;
/** Maximum size for any client, in bytes: passes every network in one packet (DNS Flag Day 2020). */
const udpBytesMax = 1_232;
/** Includes the four record counts. */
const headerBytes = 12;
/** The flag that marks a reply. */
const replyBit = 0x80;
/** The upper bits of BADVERS (RFC 6891, §9). */
const badVersion = 1;

/** Response codes (RFC 1035, §4.1.1). */
const codes = { none: 0, malformed: 1, failed: 2, unknown: 3, notImplemented: 4, refused: 5 } as const;

interface WireQuestion {
  readonly raw: Buffer;
  readonly id: number;
  /** As asked, without the trailing dot. */
  readonly name: string;
  readonly type: Question["type"];
  /** Maximum size of a reply over UDP, in bytes. */
  readonly udpMax: number;
  readonly hasOptions: boolean;
  readonly isRecursionDesired: boolean;
  /** The reply repeats this question exactly. DP2 */
  readonly isPlain: boolean;
}

type Read =
  | { readonly kind: "question"; readonly question: WireQuestion }
  /** Can be answered without looking up a name. */
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
    isPlain: roundTrips(asked, raw),
  };
  if (asked.class !== "IN") return answered(raw, codes.notImplemented);
  if ((options?.ednsVersion ?? 0) > 0 && question.isPlain)
    return { kind: "answered", reply: encoded(question, codes.none, [], badVersion) };
  return { kind: "question", question };
}

/** DP2 */
function roundTrips(asked: Question, raw: Buffer): boolean {
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

/** A reply of only the header. */
function headerOf(raw: Buffer, code: number): Buffer {
  const reply = Buffer.alloc(headerBytes);
  raw.copy(reply, 0, 0, 3);
  reply[2] = (reply[2] as number) | replyBit;
  reply[3] = code;
  return reply;
}

/** Leaves out records beyond `maxBytes`, and marks the reply as truncated. */
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

/** As many records as fit, so that a client that does not retry over TCP gets at least some. */
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

/** Whether a reply matches a question: the same id, name and type; case does not matter. */
export function isReplyTo(reply: Buffer, question: Buffer, id: number): boolean {
  if (reply.length < headerBytes || ((reply[2] as number) & replyBit) === 0 || reply.readUInt16BE(0) !== id)
    return false;
  const end = endOfQuestion(question);
  const questionIn = (of: Buffer): string => of.toString("latin1", headerBytes, end).toLowerCase();
  // A server that could not read the question may omit it.
  return reply.readUInt16BE(4) === 0 || questionIn(reply) === questionIn(question);
}

/** Offset of the end of a question that has been parsed. */
function endOfQuestion(question: Buffer): number {
  let at = headerBytes;
  while (at < question.length && question[at] !== 0) at += (question[at] as number) + 1;
  return at + 5;
}

export function codeOf(reply: Buffer): number {
  return (reply[3] as number) & 15;
}

/** A copy of the packet with another id. */
export function numbered(packet: Buffer, id: number): Buffer {
  const copy = Buffer.from(packet);
  copy.writeUInt16BE(id, 0);
  return copy;
}

export function failure({ raw }: WireQuestion): Buffer {
  return headerOf(raw, codes.failed);
}
