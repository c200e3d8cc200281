/**
 * Snapshots: the whole state after one sequence as bytes, and back. Objects are in the order of the replica's tables, so that a
 * replica loaded from a snapshot iterates like one that applied every record. Specs that tasks share are written once.
 */
import {
  SnapshotHeader,
  SnapshotPart,
  StoreObject,
  Task,
  TaskSpec,
  Receipt,
  type Timestamp,
} from "../../proto/gen/messages.ts";
import { equalBytes, joinDelimited, sha256, splitDelimited, startSha256 } from "./record.ts";
import { detached } from "./sharing.ts";
import type { TableName } from "../../proto/table-names.ts";
import { codecs, kindOf, unwrap, type AnyObject } from "./tables.ts";

/** Objects in one part: some ten kilobytes, a millisecond or two of work before the next turn of the event loop. */
const partObjectsMax = 100;
/** Bytes of objects in one part, with one more object at most: configs and secrets are large, and a part is one message of a backup. */
const partObjectBytesMax = 1024 * 1024;

/** Receipts hashed in one step: a millisecond or two, as a part takes. A replica keeps some ten thousand. */
const stepReceiptsMax = 500;

/** Bytes passed to the hash at once. */
const gatheredBytes = 65_536;

const noBytes = new Uint8Array(0);

/** The bytes are not a whole snapshot. */
export class SnapshotError extends Error {
  override readonly name: string = "SnapshotError";
}

/** A later version of Muster wrote it: it contains something that this version does not support. */
export class FutureSnapshot extends SnapshotError {
  override readonly name = "FutureSnapshot";
}

export interface Capture {
  readonly version: number;
  /** Sequence of the record that has `checksum`. */
  readonly recordSequence: number;
  readonly checksum: Uint8Array;
  readonly epoch: number;
  readonly time: Timestamp | null;
  readonly tables: readonly { readonly table: TableName; readonly objects: readonly AnyObject[] }[];
  readonly receipts: readonly Receipt[];
}

export interface LoadedSnapshot {
  readonly version: number;
  readonly recordSequence: number;
  readonly checksum: Uint8Array;
  readonly epoch: number;
  readonly time: Timestamp | null;
  readonly objects: readonly { readonly table: TableName; readonly object: AnyObject }[];
  readonly receipts: readonly Receipt[];
}

/** Hash of the state, from its objects and receipts in order; independent of which objects share a spec. */
class StateHasher {
  readonly #hash = startSha256();
  readonly #specs = new Map<TaskSpec, Uint8Array>();
  readonly #gathered = new Uint8Array(gatheredBytes);
  #filled = 0;

  /** Returns the size of the object in bytes, without the spec of a task. */
  add(table: TableName, object: AnyObject): number {
    this.#addFramed(Uint8Array.of(kindOf(table)));
    if (table === "task") return this.#addTask(object as Task);
    const encoded = codecs[table].encode(object as never);
    this.#addFramed(encoded);
    return encoded.length;
  }

  /** To be called once, after the last object. In steps: each `next` adds some of the receipts. */
  *digestSteps(receipts: readonly Receipt[]): Generator<undefined, Uint8Array> {
    this.#addFramed(noBytes);
    for (const [at, receipt] of receipts.entries()) {
      if (at > 0 && at % stepReceiptsMax === 0) yield;
      this.#addFramed(Receipt.encode(receipt));
    }
    this.#flush();
    return this.#hash.digest();
  }

  #addTask(task: Task): number {
    const encoded = Task.encode(Task.patch(task, { spec: null }));
    this.#addFramed(encoded);
    const { spec } = task;
    if (spec === null) return encoded.length;
    let digest = this.#specs.get(spec);
    if (digest === undefined) {
      digest = sha256(TaskSpec.encode(spec));
      this.#specs.set(spec, digest);
    }
    this.#addFramed(digest);
    return encoded.length;
  }

  /** Small pieces are gathered: a call of the hash costs as much as hashing half a kilobyte. */
  #addFramed(bytes: Uint8Array): void {
    const { length } = bytes;
    if (this.#filled + length + 4 > this.#gathered.length) this.#flush();
    const at = this.#filled;
    this.#gathered[at] = length & 0xff;
    this.#gathered[at + 1] = (length >> 8) & 0xff;
    this.#gathered[at + 2] = (length >> 16) & 0xff;
    this.#gathered[at + 3] = length >>> 24;
    this.#filled = at + 4;
    if (length + 4 > this.#gathered.length) {
      this.#flush();
      this.#hash.add(bytes);
      return;
    }
    this.#gathered.set(bytes, this.#filled);
    this.#filled += length;
  }

  #flush(): void {
    this.#hash.add(this.#gathered.subarray(0, this.#filled));
    this.#filled = 0;
  }
}

export function captureHash(capture: Capture): Uint8Array {
  const hasher = new StateHasher();
  for (const { table, objects } of capture.tables) for (const object of objects) hasher.add(table, object);
  return lastOf(hasher.digestSteps(capture.receipts));
}

/** Encodes in steps: each `next` yields an encoded part without a header, or nothing; the last returns the header. */
export function* snapshotParts(capture: Capture): Generator<Uint8Array | undefined, SnapshotHeader> {
  const hasher = new StateHasher();
  const places = new Map<TaskSpec, number>();
  let records = 0;
  for (const { table, objects } of capture.tables) {
    records += objects.length;
    let slice: AnyObject[] = [];
    let bytes = 0;
    for (const [at, object] of objects.entries()) {
      slice.push(object);
      bytes += hasher.add(table, object);
      if (slice.length < partObjectsMax && bytes < partObjectBytesMax && at < objects.length - 1) continue;
      yield encodePart(table, slice, places);
      slice = [];
      bytes = 0;
    }
  }
  return SnapshotHeader.create({
    sequence: capture.version,
    recordSequence: capture.recordSequence,
    checksum: capture.checksum,
    epoch: capture.epoch,
    time: capture.time,
    stateHash: yield* hasher.digestSteps(capture.receipts),
    records,
    receipts: capture.receipts,
  });
}

/** The bytes of a snapshot with these parts. */
export function joinedSnapshot(header: SnapshotHeader, parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  return joinDelimited([SnapshotPart.encode(SnapshotPart.create({ header })), ...parts]);
}

/** Encodes in steps of a millisecond or two; the last returns the bytes. */
export function* encodingSteps(capture: Capture): Generator<void, Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array[] = [];
  const steps = snapshotParts(capture);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return joinedSnapshot(step.value, parts);
    if (step.value !== undefined) parts.push(step.value);
    yield;
  }
}

export function encodeSnapshot(capture: Capture): Uint8Array<ArrayBuffer> {
  return lastOf(encodingSteps(capture));
}

function encodePart(table: TableName, slice: readonly AnyObject[], places: Map<TaskSpec, number>): Uint8Array {
  if (table !== "task") {
    const objects = slice.map((object) => StoreObject.create({ [table]: object }));
    return SnapshotPart.encode(SnapshotPart.create({ objects }));
  }
  const specs: TaskSpec[] = [];
  const spec: number[] = [];
  const objects = (slice as readonly Task[]).map((task) => {
    if (task.spec === null) {
      spec.push(0);
      return StoreObject.create({ task });
    }
    let place = places.get(task.spec);
    if (place === undefined) {
      place = places.size + 1;
      places.set(task.spec, place);
      specs.push(task.spec);
    }
    spec.push(place);
    return StoreObject.create({ task: Task.patch(task, { spec: null }) });
  });
  return SnapshotPart.encode(SnapshotPart.create({ objects, specs, spec }));
}

/** Runs all steps at once. */
export function lastOf<Result>(steps: Generator<void, Result>): Result {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** Checksum of the last record in the snapshot. Throws SnapshotError if there is no header. */
export function snapshotChecksum(bytes: Uint8Array): Uint8Array {
  return headerOf(splitDelimited(bytes)?.[0]).checksum;
}

function headerOf(first: Uint8Array | undefined): SnapshotHeader {
  const header = first === undefined ? null : decodePart(first).header;
  if (header === null) throw new SnapshotError("the snapshot has no header");
  return header;
}

/**
 * Throws SnapshotError unless the bytes are a whole snapshot whose objects have the stated hash. In steps: each `next` decodes
 * a part, the last returns the loaded state.
 */
export function* decodingSteps(bytes: Uint8Array): Generator<void, LoadedSnapshot> {
  const parts = splitDelimited(bytes);
  if (parts === null) throw new SnapshotError("the snapshot ends inside a part");
  const [first, ...rest] = parts;
  const header = headerOf(first);
  const objects: { table: TableName; object: AnyObject }[] = [];
  const specs: TaskSpec[] = [];
  const hasher = new StateHasher();
  for (const encoded of rest) {
    const part = decodePart(encoded);
    for (const spec of part.specs) specs.push(detached(TaskSpec, spec));
    for (const [at, wrapped] of part.objects.entries()) {
      const found = unwrap(wrapped);
      if (found === null) throw new FutureSnapshot("the snapshot contains an object of an unknown kind");
      const place = part.spec[at] ?? 0;
      const object = found.table === "task" ? withSpec(found.object as Task, place, specs) : detachedObject(found);
      hasher.add(found.table, object);
      objects.push({ table: found.table, object });
    }
    yield;
  }
  if (objects.length !== header.records) {
    throw new SnapshotError(`the snapshot contains ${objects.length} of ${header.records} objects`);
  }
  if (!equalBytes(yield* hasher.digestSteps(header.receipts), header.stateHash)) {
    throw new SnapshotError("the hash of the snapshot's objects does not match its header");
  }
  return {
    version: header.sequence,
    recordSequence: header.recordSequence === 0 ? header.sequence : header.recordSequence,
    checksum: Uint8Array.from(header.checksum),
    epoch: header.epoch,
    time: header.time,
    objects,
    receipts: header.receipts,
  };
}

function decodePart(bytes: Uint8Array): SnapshotPart {
  try {
    return SnapshotPart.decode(bytes);
  } catch (cause) {
    throw new SnapshotError("a part of the snapshot is malformed", { cause });
  }
}

function detachedObject(found: { readonly table: TableName; readonly object: AnyObject }): AnyObject {
  return detached(codecs[found.table] as never, found.object as never);
}

function withSpec(task: Task, place: number, specs: readonly TaskSpec[]): Task {
  if (place === 0) return task;
  const spec = specs[place - 1];
  if (spec === undefined) throw new SnapshotError(`task ${task.id} names a spec that the snapshot does not have`);
  return Task.patch(task, { spec });
}
