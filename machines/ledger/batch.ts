/**
 * Group commit: puts waiting proposals into one transaction. Decides each operation against the state after the operations
 * before it, and determines the answer to each proposer once the transaction is in the log.
 *
 * G1: an atomic proposal is in one transaction as a whole, or not at all.
 * G2: proposals are taken in the order of arrival; a transaction never exceeds its limits.
 * G3: no answer is valid before the append has succeeded, including refusals: they too depend on what the append changes.
 */
import {
  Change,
  ProposeRequest_Mode,
  Receipt,
  StoreObject,
  Task,
  TaskPatch,
  TaskSpec,
  TaskStatus,
  type ProposeRequest,
} from "../../proto/gen/messages.ts";
import { ListWriter } from "../../proto/list-writer.ts";
import { decide, type Decision, type Refused, type StateView } from "./proposals.ts";

interface StagedView extends StateView {
  stage(change: Change): void;
  mark(): number;
  rollback(mark: number): void;
}

export interface BatchLimits {
  /** Bytes of changes, specs and receipts in one transaction. */
  readonly bytesMax: number;
  /** The same for an atomic proposal that is alone in its transaction, with fewer causes to list; defaults to `bytesMax`. */
  readonly aloneBytesMax?: number;
  /** Maximum number of changes in one transaction; an atomic proposal alone may have more. */
  readonly changesMax: number;
  /** Maximum overhead of framing per encoded change. */
  readonly changeFramingBytes: number;
}

/** A proposal, and how much of it earlier transactions have done. */
interface Progress {
  readonly request: ProposeRequest;
  /** Operations before this index are done. */
  readonly from: number;
  readonly skipped: number;
}

export type Settlement =
  | { readonly kind: "done"; readonly skipped: number }
  /** Mode EACH: the rest goes into the next transaction. */
  | { readonly kind: "partial"; readonly from: number; readonly skipped: number }
  | Refused;

export interface Batch {
  /** In the encoding that follows the rest of a Transaction. */
  readonly changes: ListWriter<Change>;
  readonly specs: readonly TaskSpec[];
  readonly statuses: readonly TaskStatus[];
  readonly receipts: readonly Receipt[];
  /** One for each of the first proposals, in order; the others wait for the next batch. */
  readonly settlements: readonly Settlement[];
  /** For each settlement: how many of `changes` belong to that proposal, in order. */
  readonly counts: readonly number[];
}

/** For the proposer: a proposal is one object, or a few that belong together. */
export function tooLargeMessage(bytes: number, bytesMax: number): string {
  return `the change has ${bytes} bytes, but a transaction can hold only ${bytesMax}: use less data or shorter labels`;
}

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

/** Transaction.changes. */
const changesField = 6;
/** Bytes of a receipt besides its proposal's id: tags, lengths and a count. */
const receiptOverheadBytes = 12;

export function assemble(view: StagedView, waiting: Iterable<Progress>, limits: BatchLimits): Batch {
  const assembly = new Assembly(view, limits);
  const settlements: Settlement[] = [];
  const counts: number[] = [];
  for (const progress of waiting) {
    const before = assembly.changes.length;
    const settlement = assembly.take(progress);
    if (settlement === null) break;
    settlements.push(settlement);
    counts.push(assembly.changes.length - before);
    if (settlement.kind === "partial") break;
  }
  const { changes, specs, statuses, receipts } = assembly;
  return { changes, specs, statuses, receipts, settlements, counts };
}

/** The size of an encoded change, and what it adds to the transaction's tables. */
interface Written {
  readonly newSpec: TaskSpec | null;
  readonly newStatus: TaskStatus | null;
  readonly size: number;
}

class Assembly {
  readonly changes = new ListWriter(Change, changesField);
  readonly specs: TaskSpec[] = [];
  readonly statuses: TaskStatus[] = [];
  readonly receipts: Receipt[] = [];
  readonly #view: StagedView;
  readonly #limits: BatchLimits;
  #bytes = 0;
  /** Indexes of specs, by identity and by bytes: a proposal from the bus has a copy of the spec in each task. */
  readonly #places = new Map<TaskSpec, number>();
  readonly #placesByBytes = new Map<string, number>();
  /** Of the previous patch; by identity, because a writer of the same status for many tasks creates it once. */
  #lastStatus: TaskStatus | null = null;

  constructor(view: StagedView, limits: BatchLimits) {
    this.#view = view;
    this.#limits = limits;
  }

  /** Null if the proposal must wait for the next transaction. */
  take(progress: Progress): Settlement | null {
    const receiptBytes = progress.request.id.length + receiptOverheadBytes;
    if (this.#isFull(receiptBytes)) return null;
    this.#bytes += receiptBytes;
    const settlement =
      progress.request.mode === ProposeRequest_Mode.ATOMIC ? this.#takeWhole(progress) : this.#takeEach(progress);
    if (settlement?.kind === "done") {
      this.receipts.push(Receipt.create({ proposalId: progress.request.id, skipped: settlement.skipped }));
    } else this.#bytes -= receiptBytes;
    return settlement;
  }

  #isFull(moreBytes: number): boolean {
    if (this.changes.length === 0 && this.receipts.length === 0) return false;
    return this.changes.length >= this.#limits.changesMax || this.#bytes + moreBytes > this.#limits.bytesMax;
  }

  /** G1 */
  #takeWhole({ request }: Progress): Settlement | null {
    const before = {
      mark: this.#view.mark(),
      changes: this.changes.mark(),
      specs: this.specs.length,
      statuses: this.statuses.length,
      bytes: this.#bytes,
    };
    const undo = (): void => {
      this.#view.rollback(before.mark);
      this.changes.truncate(before.changes);
      for (const spec of this.specs.slice(before.specs)) this.#forgetSpec(spec);
      this.specs.length = before.specs;
      this.statuses.length = before.statuses;
      this.#lastStatus = null;
      this.#bytes = before.bytes;
    };
    let skipped = 0;
    for (const operation of request.operations) {
      const decision = decide(this.#view, operation);
      if (decision.kind === "refused") {
        undo();
        return decision;
      }
      if (decision.kind === "skipped") skipped += 1;
      else this.#keep(decision.change, this.#write(decision.change));
    }
    const isAlone = before.changes.length === 0 && this.receipts.length === 0;
    const { bytesMax, aloneBytesMax = bytesMax } = this.#limits;
    const limit = isAlone ? aloneBytesMax : bytesMax;
    if (this.#bytes <= limit) return { kind: "done", skipped };
    const bytes = this.#bytes - before.bytes;
    undo();
    if (!isAlone) return null;
    return { kind: "refused", code: "tooLarge", message: tooLargeMessage(bytes, limit) };
  }

  #takeEach({ request, from, skipped: skippedBefore }: Progress): Settlement | null {
    let skipped = skippedBefore;
    for (let at = from; at < request.operations.length; at += 1) {
      const operation = request.operations[at];
      const decision: Decision = operation === undefined ? { kind: "skipped" } : decide(this.#view, operation);
      if (decision.kind !== "change") {
        skipped += 1;
        continue;
      }
      const before = this.changes.mark();
      const written = this.#write(decision.change);
      // Too large for any transaction: it fails alone, according to the mode.
      if (written.size > this.#limits.bytesMax - request.id.length - receiptOverheadBytes) {
        this.changes.truncate(before);
        skipped += 1;
        continue;
      }
      const isFull = before.length >= this.#limits.changesMax || this.#bytes + written.size > this.#limits.bytesMax;
      if (isFull) {
        this.changes.truncate(before);
        return at === from ? null : { kind: "partial", from: at, skipped };
      }
      this.#keep(decision.change, written);
    }
    return { kind: "done", skipped };
  }

  /** Keeps the change that was written last. */
  #keep(change: Change, { newSpec, newStatus, size }: Written): void {
    if (newSpec !== null) this.#rememberSpec(newSpec);
    if (newStatus !== null) this.statuses.push(newStatus);
    this.#lastStatus = change.task?.status ?? null;
    this.#bytes += size;
    this.#view.stage(change);
  }

  #write(change: Change): Written {
    if (change.task !== null) return this.#writePatch(change, change.task);
    const task = change.put?.task ?? null;
    const spec = task?.spec ?? null;
    if (task === null || spec === null) return this.#sized(this.changes.add(change), null, null);
    const known = this.#placeOf(spec);
    const bare = Task.patch(task, { spec: null, meta: null });
    const shared = Change.create({ put: StoreObject.create({ task: bare }), spec: known ?? this.specs.length + 1 });
    return this.#sized(this.changes.add(shared), known === null ? spec : null, null);
  }

  /** In a run of patches with the same status, the first one contains it; the others refer to its index. */
  #writePatch(change: Change, patch: TaskPatch): Written {
    const { status } = patch;
    if (status === null || status !== this.#lastStatus) return this.#sized(this.changes.add(change), null, null);
    const isKnown = this.statuses.at(-1) === status;
    const shared = Change.create() as Mutable<Change>;
    shared.task = withoutStatus(patch);
    shared.status = isKnown ? this.statuses.length : this.statuses.length + 1;
    return this.#sized(this.changes.add(shared), null, isKnown ? null : status);
  }

  /** `bytes`: of the change. */
  #sized(bytes: number, newSpec: TaskSpec | null, newStatus: TaskStatus | null): Written {
    const framing = this.#limits.changeFramingBytes;
    const specBytes = newSpec === null ? 0 : TaskSpec.encode(newSpec).length + framing;
    const statusBytes = newStatus === null ? 0 : TaskStatus.encode(newStatus).length + framing;
    return { newSpec, newStatus, size: bytes + framing + specBytes + statusBytes };
  }

  #placeOf(spec: TaskSpec): number | null {
    const place = this.#places.get(spec);
    if (place !== undefined) return place;
    if (this.specs.length === 0) return null;
    const equal = this.#placesByBytes.get(specKey(spec));
    if (equal === undefined) return null;
    this.#places.set(spec, equal);
    return equal;
  }

  #rememberSpec(spec: TaskSpec): void {
    this.specs.push(spec);
    this.#places.set(spec, this.specs.length);
    this.#placesByBytes.set(specKey(spec), this.specs.length);
  }

  #forgetSpec(spec: TaskSpec): void {
    this.#placesByBytes.delete(specKey(spec));
    // Copies refer to it too; clearing everything costs only the encoding at the next look-up.
    this.#places.clear();
  }
}

/** Set directly, not with `patch`, which iterates over its argument's keys: this runs for each assignment. */
function withoutStatus(patch: TaskPatch): TaskPatch {
  const bare = TaskPatch.create() as Mutable<TaskPatch>;
  bare.id = patch.id;
  bare.desiredState = patch.desiredState;
  bare.nodeId = patch.nodeId;
  bare.networks = patch.networks;
  bare.endpoint = patch.endpoint;
  bare.assignedGenericResources = patch.assignedGenericResources;
  bare.volumes = patch.volumes;
  return bare;
}

function specKey(spec: TaskSpec): string {
  let key = "";
  for (const byte of TaskSpec.encode(spec)) key += String.fromCharCode(byte);
  return key;
}
