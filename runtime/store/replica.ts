/**
 * A process's copy of the cluster's state, built by applying the log's records in order.
 *
 * S1: version increases by one with each record; a record with another sequence is rejected.
 * S2: a record whose checksum (R1) or link to its predecessor (R2) is wrong is rejected.
 * S3: epochs never decrease along the log, so nothing that a deposed leader wrote follows what its successor wrote.
 * S4: a change that cannot be applied to this state (a patch or removal of a missing object, an unknown kind) shows that
 *     replica and log have diverged.
 * S5: two replicas of the same version have the same stateHash.
 * S6: a message that is not a record (R1) counts as a version without changes if the next record follows the one before it:
 *     then something else published it. If the next record follows what was in its place, one of ours was damaged.
 * S7: a transaction with a change of a kind that this version does not know is not applied, not even in part. The same applies
 *     to one that raises the level of the log's format beyond what this version knows, and to a snapshot of such a level.
 *
 * Any violation of S1 to S4, or damage by S6, is a LogBreak: the replica must not be used any more.
 */
import {
  Meta,
  NodePatch,
  Origin,
  Timestamp,
  Version,
  type Change,
  type Format,
  type Node,
  type Removal,
  type Task,
  type TaskPatch,
  type TaskSpec,
  type TaskStatus,
  type Transaction,
} from "../../proto/gen/messages.ts";
import type { Subscription } from "../ports/index.ts";
import { inCommit } from "./change-traces.ts";
import { NodeParts } from "./node-parts.ts";
import { FutureRecord, LogBreak } from "./log-break.ts";
import { copyTask, patchNode, patchTask } from "./patch.ts";
import { Receipts, type Completed } from "./receipts.ts";
import { decodeRecord, equalBytes, toHex } from "./record.ts";
import { detached } from "./sharing.ts";
import {
  captureHash,
  decodingSteps,
  encodeSnapshot,
  FutureSnapshot,
  lastOf,
  type Capture,
  type LoadedSnapshot,
} from "./snapshot.ts";
import { State } from "./state.ts";
import type { Cause, Commit, ObjectChange, Store, Tables } from "./store.ts";
import { type TableName, tableNames } from "../../proto/table-names.ts";
import { knownLevel, levelOf } from "../../proto/format-level.ts";
import { codecs, tableOf, unwrap } from "./tables.ts";
import { TaskParts } from "./task-parts.ts";

/** A commit, with the parts of its record that only the ledger needs. */
export interface AppliedRecord extends Commit {
  /** Not a record of this cluster (S6): only the version changed, and the other fields are those of the previous record. */
  readonly isForeign: boolean;
  readonly transactionId: string;
  readonly epoch: number;
  readonly writer: string;
}

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

/** Shared by all objects that one transaction touches. */
interface Stamp {
  readonly version: Version;
  readonly time: Timestamp;
  /** Meta of the objects that the transaction creates. */
  readonly created: Meta;
  /** Meta of the object updated last; the next one often has the same createdAt and so the same meta. */
  updated: Meta;
}

/** Parts that changes of one transaction refer to by index. */
interface Shared {
  readonly specs: readonly TaskSpec[];
  readonly statuses: readonly TaskStatus[];
}

const noChecksum = new Uint8Array(0);
const noCauses: readonly Cause[] = [];
/** Snapshot objects added to the state per loading step: a few milliseconds. */
const stepObjectsMax = 2_000;

function causesOf({ traceparent, causes, changes }: Transaction): readonly Cause[] {
  const [first] = causes;
  if (first === undefined) {
    if (traceparent === "") return noCauses;
    return [{ traceparent, changes: changes.length, caller: null, origin: Origin.ORIGIN_UNKNOWN }];
  }
  // A single cause for all changes omits what the transaction already contains.
  if (first.changes === 0) {
    return [{ traceparent, changes: changes.length, caller: first.caller, origin: first.origin }];
  }
  return causes;
}

export class Replica implements Store {
  #version = 0;
  #checksum: Uint8Array = noChecksum;
  #epoch = 0;
  #writer = "";
  #time: Timestamp | null = null;
  #recordSequence = 0;
  #foreign = 0;
  #recordBytes = 0;
  readonly #state = new State();
  readonly #level: number;
  readonly #receipts: Receipts;
  readonly #parts = new TaskParts();
  readonly #nodeParts = new NodeParts();
  readonly #listeners = new Set<(commit: Commit) => void>();

  /** `level`: the highest level of the log's format that it applies; another one only in simulations of other versions. */
  constructor({ level = knownLevel, receiptsMax }: { readonly level?: number; readonly receiptsMax?: number } = {}) {
    this.#level = level;
    this.#receipts = new Receipts(receiptsMax);
  }

  get version(): number {
    return this.#version;
  }

  /** Checksum of the last record applied, empty before the first: the predecessor that the next record must name. */
  get checksum(): Uint8Array {
    return this.#checksum;
  }

  /** Sequence of the record with that checksum: below `version` while it is followed by foreign messages (S6). */
  get recordSequence(): number {
    return this.#recordSequence;
  }

  /** Foreign messages in the log since this replica started (S6). */
  get foreignMessages(): number {
    return this.#foreign;
  }

  /** Epoch of the last record applied. */
  get epoch(): number {
    return this.#epoch;
  }

  /** Node id of the manager that wrote the last record applied; empty before the first, and after loading a snapshot. */
  get writer(): string {
    return this.#writer;
  }

  /** When the last record applied was written, by its writer's clock; null before the first. */
  get time(): Timestamp | null {
    return this.#time;
  }

  /** Bytes of all records that this replica has applied itself, without those before a loaded snapshot. */
  get recordBytes(): number {
    return this.#recordBytes;
  }

  get<Name extends TableName>(table: Name, id: string): Tables[Name] | undefined {
    return this.#state.get(table, id);
  }

  all<Name extends TableName>(table: Name): Iterable<Tables[Name]> {
    return this.#state.all(table);
  }

  count(table: TableName): number {
    return this.#state.count(table);
  }

  byName<Name extends TableName>(table: Name, name: string): Tables[Name] | undefined {
    return this.#state.byName(table, name);
  }

  tasksByService(serviceId: string): Iterable<Task> {
    return this.#state.tasksByService(serviceId);
  }

  tasksByNode(nodeId: string): Iterable<Task> {
    return this.#state.tasksByNode(nodeId);
  }

  tasksBySlot(serviceId: string, slot: number): Iterable<Task> {
    return this.#state.tasksBySlot(serviceId, slot);
  }

  tasksAt(serviceId: string, slot: number, nodeId: string): Iterable<Task> {
    return this.#state.tasksAt(serviceId, slot, nodeId);
  }

  tasksReferencing(id: string): Iterable<Task> {
    return this.#state.tasksReferencing(id);
  }

  watch(listener: (commit: Commit) => void): Subscription {
    this.#listeners.add(listener);
    return { unsubscribe: () => this.#listeners.delete(listener) };
  }

  /** The outcome of a proposal in the log; undefined if the log does not have it, or it is too long ago. */
  receipt(proposalId: string): Completed | undefined {
    return this.#receipts.find(proposalId);
  }

  /** Applies the record that follows `version`. Throws LogBreak, after which this replica is unusable. */
  apply(sequence: number, data: Uint8Array): AppliedRecord {
    if (sequence !== this.#version + 1) throw new LogBreak(sequence, `sequence does not follow ${this.#version} (S1)`);
    const outcome = decodeRecord(data);
    if (outcome.kind === "broken") return this.#passOver(sequence);
    const { transaction, checksum } = outcome.record;
    if (!equalBytes(transaction.previous, this.#checksum)) {
      if (this.#recordSequence === this.#version)
        throw new LogBreak(sequence, "it does not name the record before it as its predecessor (R2)");
      const damaged =
        this.#version === this.#recordSequence + 1
          ? `${this.#version}`
          : `${this.#recordSequence + 1} to ${this.#version}`;
      throw new LogBreak(
        this.#recordSequence + 1,
        `record ${damaged} cannot be read, and record ${sequence} names the original as its predecessor: it was damaged (S6)`,
      );
    }
    if (transaction.epoch < this.#epoch) {
      throw new LogBreak(sequence, `epoch decreases from ${this.#epoch} to ${transaction.epoch} (S3)`);
    }
    const changes = this.#applyChanges(sequence, transaction);
    for (const { proposalId, skipped } of transaction.receipts)
      this.#receipts.add(proposalId, { version: sequence, skipped });
    this.#version = sequence;
    this.#recordSequence = sequence;
    this.#checksum = checksum;
    this.#epoch = transaction.epoch;
    this.#writer = transaction.writer;
    this.#time = transaction.time;
    this.#recordBytes += data.length;
    const commit: AppliedRecord = {
      isForeign: false,
      version: sequence,
      time: toMilliseconds(transaction.time),
      changes,
      transactionId: transaction.id,
      epoch: transaction.epoch,
      writer: transaction.writer,
      causes: causesOf(transaction),
    };
    this.#publish(commit);
    return commit;
  }

  /** S6 */
  #passOver(sequence: number): AppliedRecord {
    this.#version = sequence;
    this.#foreign += 1;
    const commit: AppliedRecord = {
      isForeign: true,
      version: sequence,
      time: toMilliseconds(this.#time),
      changes: [],
      transactionId: "",
      epoch: this.#epoch,
      writer: this.#writer,
      causes: noCauses,
    };
    this.#publish(commit);
    return commit;
  }

  /** An immutable view of the current state: later records do not change it, so that it can be encoded in steps. */
  capture(): Capture {
    return {
      version: this.#version,
      recordSequence: this.#recordSequence,
      checksum: this.#checksum,
      epoch: this.#epoch,
      time: this.#time,
      tables: tableNames.map((table) => ({ table, objects: [...this.#state.all(table)] })),
      receipts: this.#receipts.toMessages(),
    };
  }

  /** The whole state, in the format of `load`: length-delimited SnapshotParts. */
  snapshot(): Uint8Array<ArrayBuffer> {
    return encodeSnapshot(this.capture());
  }

  /** SHA-256 of the state in hex (S5). Costs a few microseconds per object. */
  stateHash(): string {
    return toHex(captureHash(this.capture()));
  }

  /**
   * Replaces the state with the snapshot's. Watchers see the difference as one commit, so that nobody misses what happened in
   * between. Throws SnapshotError for bytes that are not a whole snapshot, without changing anything; the version never goes
   * back.
   */
  load(bytes: Uint8Array): void {
    lastOf(this.loadingSteps(bytes));
  }

  /** Becomes a replica at the captured version, with the same objects: for a new one, which nobody watches yet. */
  restore({ version, recordSequence, checksum, epoch, time, tables, receipts }: Capture): void {
    for (const { table, objects } of tables)
      for (const object of objects) this.#state.put(table, object as Tables[typeof table], undefined);
    for (const { proposalId, version: at, skipped } of receipts)
      this.#receipts.add(proposalId, { version: at, skipped });
    this.#version = version;
    this.#recordSequence = recordSequence;
    this.#checksum = checksum;
    this.#epoch = epoch;
    this.#time = time;
  }

  /** Like `load`, in steps of a few milliseconds: for a replica that is neither read nor applied to before the last step. */
  *loadingSteps(bytes: Uint8Array): Generator<void, void> {
    const loaded = yield* decodingSteps(bytes);
    for (const { table, object } of loaded.objects)
      if (table === "format" && levelOf(object as Format) > this.#level)
        throw new FutureSnapshot(futureLevel(object as Format, this.#level));
    if (loaded.version < this.#version)
      throw new LogBreak(loaded.version, `the snapshot is older than the replica's ${this.#version}`);
    const changes = yield* this.#replacingSteps(loaded);
    this.#version = loaded.version;
    this.#recordSequence = loaded.recordSequence;
    this.#checksum = loaded.checksum;
    this.#epoch = loaded.epoch;
    this.#writer = "";
    this.#time = loaded.time;
    this.#publish({ version: loaded.version, time: toMilliseconds(loaded.time), changes, causes: [] });
  }

  #publish(commit: Commit): void {
    inCommit(commit, () => {
      for (const listener of this.#listeners) listener(commit);
    });
  }

  #applyChanges(sequence: number, transaction: Transaction): ObjectChange[] {
    const time = transaction.time ?? Timestamp.create();
    const version = Version.create({ index: sequence });
    const created = Meta.create({ version, createdAt: time, updatedAt: time });
    const stamp: Stamp = { version, time, created, updated: created };
    const specs = transaction.specs.map((spec) => this.#parts.spec(spec));
    const shared: Shared = { specs, statuses: transaction.statuses };
    for (const status of transaction.statuses) this.#parts.shareStatus(status);
    for (const each of transaction.changes) {
      const unsupported = this.#unsupported(each);
      if (unsupported !== null)
        throw new FutureRecord(sequence, `${unsupported}; written by ${this.#nameOf(transaction.writer)}`);
    }
    const changes: ObjectChange[] = [];
    for (const change of transaction.changes) {
      const applied = this.#applyChange(change, stamp, shared);
      if (typeof applied === "string") throw new LogBreak(sequence, `${applied} (S4)`);
      changes.push(applied);
    }
    return changes;
  }

  /** S7. Null for a change that this version can apply. */
  #unsupported(change: Change): string | null {
    if (!isKnown(change)) return "it contains a change of a kind that this version of Muster does not support";
    const format = change.put?.format ?? null;
    return format === null || levelOf(format) <= this.#level ? null : futureLevel(format, this.#level);
  }

  #nameOf(writer: string): string {
    const node = this.#state.get("node", writer);
    const engine = node?.description?.engine?.engineVersion ?? "";
    const name = node?.description?.hostname ?? "";
    const who = name === "" ? `manager ${writer}` : `manager ${name} (${writer})`;
    return `${who}${engine === "" ? "" : `, version ${engine}`}`;
  }

  /** The change as watchers see it, or the reason why it cannot be applied. */
  #applyChange(change: Change, stamp: Stamp, { specs, statuses }: Shared): ObjectChange | string {
    if (change.task !== null) {
      if (change.status === 0) return this.#applyTaskPatch(change.task, change.task.status, stamp);
      const status = statuses[change.status - 1];
      if (status === undefined) return `task ${change.task.id} names a status that the transaction does not have`;
      return this.#applyTaskPatch(change.task, status, stamp);
    }
    if (change.node !== null) return this.#applyNodePatch(change.node, stamp);
    if (change.remove !== null) return this.#applyRemoval(change.remove);
    const put = change.put === null ? null : unwrap(change.put);
    if (put === null) return "a change of an unknown kind";
    if (put.table !== "task")
      return this.#put(put.table, detached(codecs[put.table] as never, put.object as never), stamp);
    const task = put.object as Mutable<Task>;
    if (change.spec !== 0) {
      const spec = specs[change.spec - 1];
      if (spec === undefined) return `task ${task.id} names a spec that the transaction does not have`;
      task.spec = spec;
    } else if (task.spec !== null) {
      task.spec = this.#parts.spec(task.spec);
    }
    this.#parts.share(task, this.#state.get("task", task.id));
    return this.#put("task", task, stamp);
  }

  #put<Name extends TableName>(table: Name, object: Tables[Name], stamp: Stamp): ObjectChange {
    const old = this.#state.get(table, object.id);
    const meta = old === undefined ? stamp.created : metaAfter(old.meta, stamp);
    let next: Tables[Name];
    if (table === "task") next = copyTask(object as Task, meta) as Tables[Name];
    else {
      // Not shared yet: it was decoded for this change.
      (object as Mutable<Tables[Name]>).meta = meta;
      if (table === "node") this.#nodeParts.share(object as Mutable<Node>);
      next = object;
    }
    this.#state.put(table, next, old);
    return { table, action: old === undefined ? "create" : "update", object: next, old: old ?? null } as ObjectChange;
  }

  #applyRemoval(removal: Removal): ObjectChange | string {
    const table = tableOf(removal.kind);
    if (table === undefined) return `a removal of the unknown kind ${removal.kind}`;
    const old = this.#state.get(table, removal.id);
    if (old === undefined) return `a removal of the ${table} ${removal.id}, which does not exist`;
    this.#state.remove(table, old);
    return { table, action: "remove", object: old, old } as ObjectChange;
  }

  /** `status` is the patch's own, or a shared one, whose strings are shared already. */
  #applyTaskPatch(patch: TaskPatch, status: TaskStatus | null, stamp: Stamp): ObjectChange | string {
    const old = this.#state.get("task", patch.id);
    if (old === undefined) return `a patch of the task ${patch.id}, which does not exist`;
    const next = patchTask(old, patch, metaAfter(old.meta, stamp)) as Mutable<Task>;
    if (status !== null) next.status = status;
    // The old object's strings are shared already.
    next.id = old.id;
    this.#parts.share(next, old, status === patch.status);
    this.#state.put("task", next, old);
    return { table: "task", action: "update", object: next, old };
  }

  #applyNodePatch(patch: NodePatch, stamp: Stamp): ObjectChange | string {
    const old = this.#state.get("node", patch.id);
    if (old === undefined) return `a patch of the node ${patch.id}, which does not exist`;
    const own = detached(NodePatch, patch) as Mutable<NodePatch>;
    this.#nodeParts.share(own);
    const next = patchNode(old, own, metaAfter(old.meta, stamp));
    this.#state.put("node", next, old);
    return { table: "node", action: "update", object: next, old };
  }

  #asTask(decoded: Task): Task {
    const task = copyTask(decoded, this.#parts.meta(decoded.meta ?? Meta.create()));
    this.#parts.share(task, undefined);
    return task;
  }

  *#replacingSteps(loaded: LoadedSnapshot): Generator<void, ObjectChange[]> {
    const before = new Map<string, ObjectChange>();
    for (const table of tableNames) {
      for (const old of this.#state.all(table)) {
        before.set(`${table}/${old.id}`, { table, action: "remove", object: old, old } as ObjectChange);
      }
    }
    this.#state.clear();
    const changes: ObjectChange[] = [];
    for (const [at, { table, object: decoded }] of loaded.objects.entries()) {
      if (at % stepObjectsMax === stepObjectsMax - 1) yield;
      const object = table === "task" ? this.#asTask(decoded as Task) : decoded;
      if (table === "node") this.#nodeParts.share(object as Mutable<Node>);
      this.#state.put(table, object, undefined);
      const known = before.get(`${table}/${object.id}`);
      before.delete(`${table}/${object.id}`);
      if (known === undefined) changes.push({ table, action: "create", object, old: null } as ObjectChange);
      else if (known.object.meta?.version?.index !== object.meta?.version?.index) {
        changes.push({ table, action: "update", object, old: known.object } as ObjectChange);
      }
    }
    changes.push(...before.values());
    this.#receipts.clear();
    for (const { proposalId, version, skipped } of loaded.receipts)
      this.#receipts.add(proposalId, { version, skipped });
    return changes;
  }
}

/** S7: a kind that a later version adds is a field that this version does not decode. */
function isKnown({ task, node, remove, put }: Change): boolean {
  if (remove !== null) return tableOf(remove.kind) !== undefined;
  return task !== null || node !== null || (put !== null && unwrap(put) !== null);
}

function futureLevel(format: Format, known: number): string {
  return `its format has level ${levelOf(format)}, but this version of Muster knows level ${known} at most`;
}

function metaAfter(old: Meta | null, stamp: Stamp): Meta {
  const createdAt = old?.createdAt ?? null;
  if (stamp.updated.createdAt !== createdAt) {
    stamp.updated = Meta.create({ version: stamp.version, createdAt, updatedAt: stamp.time });
  }
  return stamp.updated;
}

function toMilliseconds(time: Timestamp | null): number {
  return time === null ? 0 : time.seconds * 1000 + Math.floor(time.nanos / 1e6);
}
