/**
 * Task output on its way through managers: lines stay the bytes that they came as. A manager looks at where a line begins and
 * ends, whose it is and when it was written; it makes no object of any.
 *
 * LL1: lines are the encoding of a SubscribeLogsMessage (`docker/swarmkit/v1/logbroker.proto`), so those of several messages
 *      may be put one behind the other, and cut between any two.
 * LL2: what is decoded here is well-formed all through: who subscribed need not fear what a node wrote.
 */
import { isUtf8 } from "node:buffer";
import type { WireCodec, WireMethod } from "./codec.ts";
import { LogBrokerService, LogsService, type PublishLogsResponse, type SubscribeLogsRequest } from "./gen/messages.ts";

export interface PublishedLines {
  readonly subscriptionId: string;
  readonly close: boolean;
  readonly lines: LogLines;
  /** Whose the lines are, each once: one node, where nothing is wrong. */
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

  /** Beyond 2^53 it is not exact: no length that fits a message is. */
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
    throw new Malformed("a number without an end");
  }

  /** Number and wire type of the next field. Readers take no more than 32 bits in five bytes. */
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

  /** Readers are strict about texts, and so is this. */
  text(): string {
    const end = this.length();
    const text = Buffer.from(this.bytes.buffer, this.bytes.byteOffset + this.at, end - this.at);
    if (!isUtf8(text)) throw new Malformed("a text that is not UTF-8");
    this.at = end;
    return text.toString("utf8");
  }
}

/** Goes from line to line; what it tells is of the line that it stands on. */
export class LineCursor {
  readonly #reader: Reader;
  #contextAt = 0;
  #contextEnd = 0;
  /** Lines that follow one another are mostly of one task: its bytes are the same, and are read once. */
  #knownAt = 0;
  #knownEnd = -1;
  #known = noContext;
  /** Where the line begins, its field's header included, and where it ends. */
  start = 0;
  end = 0;
  /** Of the LogMessage itself. */
  bodyStart = 0;
  /** The line's own bytes. */
  dataBytes = 0;
  /** A LogStream; 0 where none is said. */
  stream = 0;
  /** Null seconds: the line has no time. */
  seconds: number | null = null;
  nanos = 0;

  constructor(lines: Uint8Array) {
    this.#reader = new Reader(lines);
  }

  /** False behind the last line. Throws RangeError for what is not well-formed. */
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
    // From the end: ids differ there as well as anywhere, and the task's comes last.
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
    // Readers would merge them, and take the second one's word for whose the line is.
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

/** Key and value are texts. */
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

/** A SubscribeLogsMessage that is encoded already. */
const subscribedLines: WireCodec<LogLines> = {
  typeName: "docker.swarmkit.v1.SubscribeLogsMessage",
  encode: (lines) => lines,
  decode: (bytes) => {
    const lines = Uint8Array.from(bytes);
    checkLines(lines);
    return lines;
  },
};

/** LL2: throws for what is not well-formed; tells whose the lines are. */
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

/** A PublishLogsMessage whose lines are cut out of it. */
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

/** Copied, since the bytes may be part of a greater buffer or somebody else's; and each line with the tag that it is read with. */
function cutOut(bytes: Uint8Array, starts: readonly number[], ends: readonly number[], total: number): LogLines {
  const lines = new Uint8Array(total);
  let to = 0;
  for (let at = 0; at < starts.length;) {
    // Lines mostly stand one behind the other.
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

/** SwarmKit's LogBroker, its lines unread. */
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

/** SwarmKit's Logs, its lines unread. */
export const LogsLines = {
  name: LogsService.name,
  methods: {
    SubscribeLogs: {
      ...LogsService.methods.SubscribeLogs,
      response: subscribedLines,
    } satisfies WireMethod<SubscribeLogsRequest, LogLines>,
  },
} as const;
