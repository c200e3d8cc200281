/**
 * Group commit: puts the proposals that are waiting together into one transaction. Decides each operation against the
 * state as the operations before it leave it, and says what to answer to whom once the transaction is in the log.
 *
 * G1: an atomic proposal is in one transaction whole, or not at all.
 * G2: proposals are taken in the order in which they came; a transaction never exceeds its limits.
 * G3: no answer stands before the append has succeeded, refusals included: they too rest on what the append changes.
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

export interface StagedView extends StateView {
  stage(change: Change): void;
  mark(): number;
  rollback(mark: number): void;
}

export interface BatchLimits {
  /** Bytes of changes, specs and receipts in one transaction. */
  readonly bytesMax: number;
  /** The same for an atomic proposal that is alone in its transaction, which has fewer causes to name; `bytesMax` when absent. */
  readonly aloneBytesMax?: number;
  /** Changes in one transaction; an atomic proposal alone may have more. */
  readonly changesMax: number;
  /** Most that the framing adds to an encoded change. */
  readonly changeFramingBytes: number;
}

/** A proposal and how far earlier transactions have brought it. */
export interface Progress {
  readonly request: ProposeRequest;
  /** Operations before this place are done. */
  readonly from: number;
  readonly skipped: number;
}

export type Settlement =
  | { readonly kind: "done"; readonly skipped: number }
  /** Mode EACH: the rest goes into the next transaction. */
  | { readonly kind: "partial"; readonly from: number; readonly skipped: number }
  | Refused;

export interface Batch {
  /** As they follow the rest of a Transaction. */
  readonly changes: ListWriter<Change>;
  readonly specs: readonly TaskSpec[];
  readonly statuses: readonly TaskStatus[];
  readonly receipts: readonly Receipt[];
  /** One for each of the first proposals given, in order; the others wait for the next batch. */
  readonly settlements: readonly Settlement[];
  /** For each settlement: how many of `changes` are that proposal's, in their order. */
  readonly counts: readonly number[];
}

/** For whoever asked: what is proposed is one object, or a few that go together. */
export function tooLargeMessage(bytes: number, bytesMax: number): string {
  return `the change takes ${bytes} bytes, and one transaction has room for ${bytesMax}: use less data or shorter labels`;
}

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

/** Transaction.changes. */
const changesField = 6;
/** Bytes of a receipt beside its proposal's id: tags, lengths and a count. */
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

/** What a change that has been written costs, and what the transaction must have for it. */
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
  /** Places of specs, by identity and by their bytes: what came over the bus has a copy of the spec in each task. */
  readonly #places = new Map<TaskSpec, number>();
  readonly #placesByBytes = new Map<string, number>();
  /** Of the patch before; by identity, as whoever writes the same status to many tasks makes it once. */
  #lastStatus: TaskStatus | null = null;

  constructor(view: StagedView, limits: BatchLimits) {
    this.#view = view;
    this.#limits = limits;
  }

  /** Null when the proposal has to wait for the next transaction. */
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
      // Too large for any transaction: it fails for itself, as the mode says.
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

  /** The change that was written last stays. */
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

  /** The first patch of a run that writes the same status carries it; from the second on they name its place. */
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
    // Copies of it point there too; forgetting all costs the next look-up its encoding, nothing else.
    this.#places.clear();
  }
}

/** Set directly, not by way of `patch`, which goes through its argument's keys: this runs for each assignment. */
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
