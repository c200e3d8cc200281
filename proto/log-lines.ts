/**
 * Task output in transit through managers: lines stay encoded. A manager reads only the bounds, source and time of each line,
 * and creates no object per line.
 *
 * LL1: lines are the encoding of a SubscribeLogsMessage (`docker/swarmkit/v1/logbroker.proto`), so the lines of several
 * messages can be concatenated, and cut between any two.
 *
 * LL2: everything decoded here is well-formed, so a subscriber is safe from malformed output of a node.
 */
import { isUtf8 } from "node:buffer";
import type { WireCodec, WireMethod } from "./codec.ts";
import { LogBrokerService, LogsService, type PublishLogsResponse, type SubscribeLogsRequest } from "./gen/messages.ts";

export interface PublishedLines {
  readonly subscriptionId: string;
  readonly close: boolean;
  readonly lines: LogLines;
  /** Nodes of the lines, without duplicates; normally one. */
  readonly nodeIds: readonly string[];
}

/** LL1 */
export type LogLines = Uint8Array<ArrayBuffer>;

export interface LineContext {
  readonly serviceId: string;
  readonly nodeId: string;
  readonly taskId: string;
}

const [varintType, fixed64Type, bytesType, fixed32Type] = [0, 1, 2, 5] as const;
/** Field 1, length-delimited: `messages` of a SubscribeLogsMessage. */
const lineTag = (1 << 3) | bytesType;
const noContext: LineContext = { serviceId: "", nodeId: "", taskId: "" };

class Malformed extends RangeError {
  constructor(what: string) {
    super(`malformed task output: ${what}`);
  }
}

class Reader {
  readonly bytes: Uint8Array;
  at: number;
  end: number;

  constructor(bytes: Uint8Array, at = 0, end = bytes.length) {
    this.bytes = bytes;
    this.at = at;
    this.end = end;
  }

  /** Inexact above 2^53, which no valid length reaches. */
  varint(): number {
    const { bytes, end } = this;
    let value = 0;
    let scale = 1;
    for (let count = 0; count < 10; count += 1) {
      if (this.at >= end) break;
      const byte = bytes[this.at++] as number;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 0x80;
    }
    throw new Malformed("an unterminated number");
  }

  /** Number and wire type of the next field. Like other readers, accepts at most 32 bits in five bytes. */
  tag(): number {
    const start = this.at;
    const tag = this.varint();
    if (tag < 1 << 3 || tag >= 2 ** 32 || this.at - start > 5) throw new Malformed("a field without a number");
    return tag;
  }

  /** The end of a length-delimited field, whose content is next. */
  length(): number {
    const length = this.varint();
    const end = this.at + length;
    if (end > this.end) throw new Malformed("a field longer than its message");
    return end;
  }

  skip(wireType: number): void {
    if (wireType === varintType) this.varint();
    else if (wireType === bytesType) this.at = this.length();
    else if (wireType === fixed64Type || wireType === fixed32Type) {
      this.at += wireType === fixed64Type ? 8 : 4;
      if (this.at > this.end) throw new Malformed("a field longer than its message");
    } else throw new Malformed(`a field of wire type ${wireType}`);
  }

  /** Other readers reject invalid UTF-8, and so does this. */
  text(): string {
    const end = this.length();
    const text = Buffer.from(this.bytes.buffer, this.bytes.byteOffset + this.at, end - this.at);
    if (!isUtf8(text)) throw new Malformed("a text that is not UTF-8");
    this.at = end;
    return text.toString("utf8");
  }
}

/** Iterates over lines; its fields describe the current line. */
export class LineCursor {
  readonly #reader: Reader;
  #contextAt = 0;
  #contextEnd = 0;
  /** Consecutive lines are mostly of one task: equal bytes are decoded once. */
  #knownAt = 0;
  #knownEnd = -1;
  #known = noContext;
  /** Start of the line, including its field's header, and its end. */
  start = 0;
  end = 0;
  /** Start of the LogMessage itself. */
  bodyStart = 0;
  /** Size of the line's text, in bytes. */
  dataBytes = 0;
  /** A LogStream; 0 if unset. */
  stream = 0;
  /** Null seconds: the line has no time. */
  seconds: number | null = null;
  nanos = 0;

  constructor(lines: Uint8Array) {
    this.#reader = new Reader(lines);
  }

  /** False after the last line. Throws RangeError for malformed bytes. */
  next(): boolean {
    const reader = this.#reader;
    if (reader.at >= reader.bytes.length) return false;
    this.start = reader.at;
    if (reader.tag() !== lineTag) throw new Malformed("something between lines");
    this.end = reader.length();
    this.bodyStart = reader.at;
    this.#read();
    return true;
  }

  get context(): LineContext {
    if (this.#isKnown()) return this.#known;
    this.#known = contextIn(this.#reader.bytes, this.#contextAt, this.#contextEnd);
    this.#knownAt = this.#contextAt;
    this.#knownEnd = this.#contextEnd;
    return this.#known;
  }

  #isKnown(): boolean {
    const length = this.#contextEnd - this.#contextAt;
    if (this.#knownEnd - this.#knownAt !== length) return false;
    const { bytes } = this.#reader;
    // Compare from the end: the task's id, which differs most, comes last.
    for (let at = length - 1; at >= 0; at -= 1)
      if (bytes[this.#knownAt + at] !== bytes[this.#contextAt + at]) return false;
    return true;
  }

  #read(): void {
    const reader = this.#reader;
    const outer = reader.end;
    reader.end = this.end;
    this.#contextAt = this.#contextEnd = reader.at;
    this.dataBytes = this.stream = this.nanos = 0;
    this.seconds = null;
    let contexts = 0;
    while (reader.at < reader.end) {
      const tag = reader.tag();
      switch (tag) {
        case (1 << 3) | bytesType:
          this.#contextEnd = reader.length();
          this.#contextAt = reader.at;
          reader.at = this.#contextEnd;
          contexts += 1;
          break;
        case (2 << 3) | bytesType:
          this.#readTime(reader.length());
          break;
        case 3 << 3:
          this.stream = reader.varint();
          break;
        case (4 << 3) | bytesType: {
          const end = reader.length();
          this.dataBytes = end - reader.at;
          reader.at = end;
          break;
        }
        case (5 << 3) | bytesType:
          skipAttribute(reader, reader.length());
          break;
        default:
          reader.skip(tag & 7);
      }
    }
    reader.end = outer;
    // Other readers would merge them and attribute the line to the second.
    if (contexts > 1) throw new Malformed("a line of two contexts");
  }

  #readTime(end: number): void {
    const reader = this.#reader;
    const outer = reader.end;
    reader.end = end;
    this.seconds = this.nanos = 0;
    while (reader.at < end) {
      const tag = reader.tag();
      if (tag === 1 << 3) this.seconds = reader.varint();
      else if (tag === 2 << 3) this.nanos = reader.varint();
      else reader.skip(tag & 7);
    }
    reader.end = outer;
  }
}

function contextIn(bytes: Uint8Array, from: number, to: number): LineContext {
  const reader = new Reader(bytes, from, to);
  const found = { serviceId: "", nodeId: "", taskId: "" };
  while (reader.at < to) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | bytesType)) found.serviceId = reader.text();
    else if (tag === ((2 << 3) | bytesType)) found.nodeId = reader.text();
    else if (tag === ((3 << 3) | bytesType)) found.taskId = reader.text();
    else reader.skip(tag & 7);
  }
  return found;
}

/** Key and value are strings. */
function skipAttribute(reader: Reader, end: number): void {
  const outer = reader.end;
  reader.end = end;
  while (reader.at < end) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | bytesType) || tag === ((2 << 3) | bytesType)) reader.text();
    else reader.skip(tag & 7);
  }
  reader.end = outer;
}

export function joinedLines(parts: readonly LogLines[]): LogLines {
  const [only] = parts;
  if (parts.length === 1 && only !== undefined) return only;
  let length = 0;
  for (const part of parts) length += part.length;
  const joined = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/** A SubscribeLogsMessage that is already encoded. */
const subscribedLines: WireCodec<LogLines> = {
  typeName: "docker.swarmkit.v1.SubscribeLogsMessage",
  encode: (lines) => lines,
  decode: (bytes) => {
    const lines = Uint8Array.from(bytes);
    checkLines(lines);
    return lines;
  },
};

/** LL2: throws for malformed lines; returns the ids of their nodes. */
function checkLines(lines: LogLines): readonly string[] {
  const cursor = new LineCursor(lines);
  const nodeIds = new Set<string>();
  let known: LineContext | null = null;
  while (cursor.next()) {
    if (cursor.context === known) continue;
    known = cursor.context;
    nodeIds.add(known.nodeId);
  }
  return [...nodeIds];
}

const subscriptionTag = (1 << 3) | bytesType;
const publishedTag = (2 << 3) | bytesType;
const closeTag = 3 << 3;

/** A PublishLogsMessage, with its lines extracted. */
export const publishedLines: WireCodec<PublishedLines> = {
  typeName: "docker.swarmkit.v1.PublishLogsMessage",
  encode: ({ close, lines, subscriptionId }) => {
    const id = Buffer.from(subscriptionId, "utf8");
    const parts: Uint8Array<ArrayBuffer>[] = [Uint8Array.from([subscriptionTag, ...varintOf(id.length), ...id])];
    const retagged = Uint8Array.from(lines);
    const cursor = new LineCursor(lines);
    while (cursor.next()) retagged[cursor.start] = publishedTag;
    parts.push(retagged);
    if (close) parts.push(Uint8Array.from([closeTag, 1]));
    return joinedLines(parts);
  },
  decode: (bytes) => {
    const reader = new Reader(bytes);
    let subscriptionId = "";
    let close = false;
    const starts: number[] = [];
    const ends: number[] = [];
    let total = 0;
    while (reader.at < reader.end) {
      const start = reader.at;
      const tag = reader.tag();
      if (tag === publishedTag) {
        reader.at = reader.length();
        starts.push(start);
        ends.push(reader.at);
        total += reader.at - start;
      } else if (tag === subscriptionTag) subscriptionId = reader.text();
      else if (tag === closeTag) close = reader.varint() !== 0;
      else reader.skip(tag & 7);
    }
    const lines = cutOut(bytes, starts, ends, total);
    return { subscriptionId, close, lines, nodeIds: checkLines(lines) };
  },
};

/** Copies lines, since the bytes may belong to a larger or foreign buffer, each with the tag of the target message. */
function cutOut(bytes: Uint8Array, starts: readonly number[], ends: readonly number[], total: number): LogLines {
  const lines = new Uint8Array(total);
  let to = 0;
  for (let at = 0; at < starts.length;) {
    // Lines are mostly adjacent: copy them together.
    let last = at;
    while (last + 1 < starts.length && starts[last + 1] === ends[last]) last += 1;
    const from = starts[at] as number;
    lines.set(bytes.subarray(from, ends[last]), to);
    for (; at <= last; at += 1) lines[to + (starts[at] as number) - from] = lineTag;
    to += (ends[last] as number) - from;
  }
  return lines;
}

function varintOf(value: number): readonly number[] {
  const bytes: number[] = [];
  let rest = value;
  for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes.push((rest % 0x80) | 0x80);
  return [...bytes, rest];
}

/** SwarmKit's LogBroker, with undecoded lines. */
export const LogBrokerLines = {
  name: LogBrokerService.name,
  methods: {
    ListenSubscriptions: LogBrokerService.methods.ListenSubscriptions,
    PublishLogs: {
      ...LogBrokerService.methods.PublishLogs,
      request: publishedLines,
    } satisfies WireMethod<PublishedLines, PublishLogsResponse>,
  },
} as const;

/** SwarmKit's Logs, with undecoded lines. */
export const LogsLines = {
  name: LogsService.name,
  methods: {
    SubscribeLogs: {
      ...LogsService.methods.SubscribeLogs,
      response: subscribedLines,
    } satisfies WireMethod<SubscribeLogsRequest, LogLines>,
  },
} as const;
