/**
 * Reads of encoded feeds what an index needs, and leaves the rest encoded: a step costs a fraction of its decoding, and its bytes
 * can be kept and joined again. Protobuf allows that: the concatenation of a message's fields is the message.
 */
import protobuf from "protobufjs/minimal.js";
import "./patches.ts";

type OpenReader = protobuf.Reader & { pos: number; len: number; tag(): number };

const { latin1Slice } = Buffer.prototype as unknown as {
  latin1Slice(this: Uint8Array, start: number, end: number): string;
};

/** A range of the scanned bytes. */
export interface Range {
  readonly from: number;
  readonly to: number;
}

/** The fields of an ActorFeed, its messages encoded. */
interface ScannedFeed {
  process: string;
  sequence: number;
  atMs: number;
  /** An ActorSnapshot. */
  snapshot: Range | null;
  /** Of ActorStep each. */
  steps: Range[];
  ended: string[];
  droppedSteps: number;
  lost: string;
  hostname: string;
}

const emptyFeed = (): ScannedFeed => ({
  process: "",
  sequence: 0,
  atMs: 0,
  snapshot: null,
  steps: [],
  ended: [],
  droppedSteps: 0,
  lost: "",
  hostname: "",
});

const lengthDelimitedType = 2;

/** The bytes of one length-delimited field. Throws on malformed bytes. */
function rangeOf(reader: OpenReader): Range {
  const length = reader.uint32();
  const from = reader.pos;
  reader.skip(length);
  return { from, to: reader.pos };
}

/** Throws on malformed bytes; unknown fields are left out. */
export function scanFeed(bytes: Uint8Array): ScannedFeed {
  const reader = protobuf.Reader.create(bytes) as OpenReader;
  const feed = emptyFeed();
  while (reader.pos < reader.len) {
    const tag = reader.tag();
    switch (tag) {
      case (1 << 3) | 2:
        feed.process = reader.string();
        break;
      case 2 << 3:
        feed.sequence = Number(reader.uint64());
        break;
      case 3 << 3:
        feed.atMs = Number(reader.int64());
        break;
      case (4 << 3) | 2:
        feed.snapshot = rangeOf(reader);
        break;
      case (5 << 3) | 2:
        feed.steps.push(rangeOf(reader));
        break;
      case (6 << 3) | 2:
        feed.ended.push(reader.string());
        break;
      case 7 << 3:
        feed.droppedSteps = Number(reader.uint64());
        break;
      case (8 << 3) | 2:
        feed.lost = reader.string();
        break;
      case (9 << 3) | 2:
        feed.hostname = reader.string();
        break;
      default:
        reader.skipType(tag & 7);
    }
  }
  return feed;
}

/** A field of RecordingPart and its bytes, without decoding it. Null for an empty message. */
export function scanPart(bytes: Uint8Array): { readonly field: number; readonly value: Uint8Array } | null {
  const reader = protobuf.Reader.create(bytes) as OpenReader;
  let found: { field: number; value: Uint8Array } | null = null;
  while (reader.pos < reader.len) {
    const tag = reader.tag();
    if ((tag & 7) === lengthDelimitedType) {
      const { from, to } = rangeOf(reader);
      found = { field: tag >>> 3, value: bytes.subarray(from, to) };
    } else reader.skipType(tag & 7);
  }
  return found;
}

/** How an index keeps a field of an ActorStep. */
const Kind = {
  /** Kept once for all steps that share it: event, states, status, transitions, guards, effects, unexpected. */
  shape: 0,
  /** Kept for each step: fields, context, timers, trace, source, and fields that this version does not know. */
  own: 1,
  /** Kept as numbers, or once for the actor: its id, machine, number, time. */
  indexed: 2,
} as const;
type Kind = (typeof Kind)[keyof typeof Kind];

const kinds: Readonly<Record<number, Kind>> = {
  1: Kind.indexed,
  2: Kind.indexed,
  3: Kind.indexed,
  4: Kind.indexed,
  5: Kind.shape,
  7: Kind.shape,
  8: Kind.shape,
  9: Kind.shape,
  10: Kind.shape,
  11: Kind.shape,
  16: Kind.shape,
};

const contextField = 12;
const traceField = 14;
const linkedField = 19;
const hashedDigits = 8;

/** One for many steps: no object is created for a step. */
export class StepScan {
  actor = "";
  number = 0;
  atMs = 0;
  status = 0;
  isUnexpected = false;
  skipped = 0;
  /** A hash of the trace id's first digits; 0 without one. */
  traceHash = 0;
  /** The same of its linked traces; null without any. */
  linkedHashes: number[] | null = null;
  /** False: the context is unchanged. */
  hasContext = false;
  /** The states as encoded, in one character for each byte: equal for equal states. */
  states = "";
  /** The whole shape likewise. */
  shape = "";
  /** Pairs of offsets, of the bytes that belong to this step alone; the first `ownOffsets` count. */
  own: number[] = [];
  ownOffsets = 0;
  /** Number of these bytes. */
  ownLength = 0;
  #machineFrom = 0;
  #machineTo = 0;

  /** `states` of a step that leads to these. */
  static statesOf(states: readonly string[]): string {
    const writer = protobuf.Writer.create();
    for (const state of states) writer.uint32((7 << 3) | 2).string(state);
    const bytes = writer.finish();
    return latin1Slice.call(bytes, 0, bytes.length);
  }

  /** Throws on malformed bytes. */
  scan(bytes: Uint8Array, { from, to }: Range): void {
    const reader = protobuf.Reader.create(bytes) as OpenReader;
    reader.pos = from;
    reader.len = to;
    this.#clear();
    let kind: Kind = Kind.indexed;
    let begun = from;
    while (reader.pos < to) {
      const start = reader.pos;
      const tag = reader.tag();
      const next = kinds[tag >>> 3] ?? Kind.own;
      if (next !== kind) {
        this.#keep(bytes, kind, begun, start);
        kind = next;
        begun = start;
      }
      this.#read(reader, bytes, tag, start);
    }
    this.#keep(bytes, kind, begun, to);
  }

  /** The step's machine, from the same bytes: most readers know it by the actor. */
  machineOf(bytes: Uint8Array): string {
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString(
      "utf8",
      this.#machineFrom,
      this.#machineTo,
    );
  }

  #clear(): void {
    this.actor = "";
    this.number = 0;
    this.atMs = 0;
    this.status = 0;
    this.isUnexpected = false;
    this.skipped = 0;
    this.traceHash = 0;
    this.linkedHashes = null;
    this.hasContext = false;
    this.states = "";
    this.shape = "";
    this.ownOffsets = 0;
    this.ownLength = 0;
    this.#machineFrom = 0;
    this.#machineTo = 0;
  }

  #read(reader: OpenReader, bytes: Uint8Array, tag: number, start: number): void {
    switch (tag) {
      case (1 << 3) | 2:
        this.actor = reader.string();
        break;
      case (2 << 3) | 2: {
        const length = reader.uint32();
        this.#machineFrom = reader.pos;
        reader.skip(length);
        this.#machineTo = reader.pos;
        break;
      }
      case 3 << 3:
        this.number = Number(reader.uint64());
        break;
      case 4 << 3:
        this.atMs = Number(reader.int64());
        break;
      case (7 << 3) | 2:
        reader.skip(reader.uint32());
        this.states += latin1Slice.call(bytes, start, reader.pos);
        break;
      case 8 << 3:
        this.status = reader.int32();
        break;
      case (contextField << 3) | 2:
        reader.skip(reader.uint32());
        this.hasContext = true;
        break;
      case (traceField << 3) | 2: {
        const length = reader.uint32();
        const from = reader.pos;
        reader.skip(length);
        this.traceHash = hashOf(bytes, from, Math.min(length, hashedDigits));
        break;
      }
      case (linkedField << 3) | 2: {
        const length = reader.uint32();
        const from = reader.pos;
        reader.skip(length);
        (this.linkedHashes ??= []).push(hashOf(bytes, from, Math.min(length, hashedDigits)));
        break;
      }
      case 16 << 3:
        this.isUnexpected = reader.bool();
        break;
      case 18 << 3:
        this.skipped = Number(reader.uint64());
        break;
      default:
        reader.skipType(tag & 7);
    }
  }

  #keep(bytes: Uint8Array, kind: Kind, from: number, to: number): void {
    if (from === to || kind === Kind.indexed) return;
    if (kind === Kind.shape) {
      this.shape += latin1Slice.call(bytes, from, to);
      return;
    }
    this.own[this.ownOffsets] = from;
    this.own[this.ownOffsets + 1] = to;
    this.ownOffsets += 2;
    this.ownLength += to - from;
  }
}

/** `atMs` of a step: its fourth field, so little is read. Throws on malformed bytes. */
export function timeOfStep(bytes: Uint8Array, { from, to }: Range): number {
  const reader = protobuf.Reader.create(bytes) as OpenReader;
  reader.pos = from;
  reader.len = to;
  while (reader.pos < to) {
    const tag = reader.tag();
    if (tag === 4 << 3) return Number(reader.int64());
    reader.skipType(tag & 7);
  }
  return 0;
}

function hashOf(bytes: Uint8Array, from: number, length: number): number {
  let hash = 0;
  for (let at = from; at < from + length; at += 1) hash = (Math.imul(hash, 31) + (bytes[at] as number)) >>> 0;
  return hash;
}

/** `traceHash` of the steps of a trace. */
export function traceHashOf(traceId: string): number {
  return hashOf(Buffer.from(traceId), 0, Math.min(traceId.length, hashedDigits));
}

/** The fields of an ActorStep that `StepScan` has taken apart, encoded. */
export function encodedIdentity(actor: string, machine: string, number: number, atMs: number): Uint8Array {
  const writer = protobuf.Writer.create();
  writer.uint32((1 << 3) | 2).string(actor);
  writer.uint32((2 << 3) | 2).string(machine);
  writer.uint32(3 << 3).uint64(number);
  writer.uint32(4 << 3).int64(atMs);
  return writer.finish();
}
