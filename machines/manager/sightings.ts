/**
 * How long ago something in the log happened, by this manager's monotonic clock. All durations are measured this way,
 * whichever wall clock wrote the log's times and however often it was set.
 *
 * H6: a change that arrives while the manager follows the log happened when it arrived. All managers that saw it, including
 *     the leader and its successor, measure the same, whatever their wall clocks say. A manager that was cut off measures
 *     from when it learned of the change: waits then end later by that time, never earlier.
 * H7: older changes are placed by the clock of the manager that wrote them, once a record from that manager shows the offset
 *     of its clock; those from a snapshot, by the first record from any manager. Until then this manager trusts its own
 *     clock. A change that would lie in the future happens when it arrives.
 */
import type { Node, Rollout, Service, Task } from "../../proto/gen/messages.ts";
import { stampedTimes, type LogTimes } from "../elapsed.ts";
import type { ClockReading } from "./clock-jump.ts";

interface Sighting {
  /** The time in the log, in milliseconds since the epoch. */
  readonly stampMs: number;
  /** When that was, in milliseconds of the monotonic clock. */
  atMs: number;
  /** When this manager learned of it, likewise. */
  readonly heardMs: number;
  /** The manager whose clock offset is still unknown (H7); empty: any manager's; null: the offset is known. */
  unsure: string | null;
}

type Kind = keyof LogTimes;

/** How a change arrives: live (H6), or later (H7). */
export interface Intake extends ClockReading {
  readonly isLive: boolean;
  /** Node id of the manager whose clock wrote the times; empty if unknown. */
  readonly writer: string;
}

export class Sightings implements LogTimes {
  readonly #read: () => ClockReading;
  readonly #seen: Readonly<Record<Kind, Map<string, Sighting>>> = {
    madeMs: new Map(),
    reachedMs: new Map(),
    changedMs: new Map(),
    countedMs: new Map(),
    executedMs: new Map(),
  };
  /** By manager: offset from its clock to the monotonic clock, in milliseconds. */
  readonly #offsets = new Map<string, number>();

  /** `read`: reads this machine's clocks. */
  constructor(read: () => ClockReading) {
    this.#read = read;
  }

  /** A record that was written at `timeMs` has arrived. H7 */
  noteRecord(timeMs: number, intake: Intake): void {
    if (intake.isLive) this.#learn(intake.writer, timeMs, intake.monotonic);
  }

  noteTask(task: Task, intake: Intake): void {
    this.#note("madeMs", task.id, stampedTimes.madeMs(task), intake);
    const writer = task.status?.appliedBy ?? "";
    const reachedMs = stampedTimes.reachedMs(task);
    const isNew = this.#note("reachedMs", task.id, reachedMs, { ...intake, writer });
    if (isNew && intake.isLive && writer !== "") this.#learn(writer, reachedMs, intake.monotonic);
  }

  noteNode(node: Node, intake: Intake): void {
    this.#note("changedMs", node.id, stampedTimes.changedMs(node), intake);
  }

  noteRollout(rollout: Rollout, intake: Intake): void {
    this.#note("countedMs", rollout.id, stampedTimes.countedMs(rollout), intake);
  }

  noteService(service: Service, intake: Intake): void {
    if (service.jobStatus !== null) this.#note("executedMs", service.id, stampedTimes.executedMs(service), intake);
  }

  /** It was removed from the log. */
  forget(id: string, kinds: readonly Kind[]): void {
    for (const kind of kinds) this.#seen[kind].delete(id);
  }

  madeMs(task: Task): number {
    return this.#present("madeMs", task.id, stampedTimes.madeMs(task));
  }

  reachedMs(task: Task): number {
    return this.#present("reachedMs", task.id, stampedTimes.reachedMs(task));
  }

  changedMs(node: Node): number {
    return this.#present("changedMs", node.id, stampedTimes.changedMs(node));
  }

  countedMs(rollout: Rollout): number {
    return this.#present("countedMs", rollout.id, stampedTimes.countedMs(rollout));
  }

  executedMs(service: Service): number {
    return this.#present("executedMs", service.id, stampedTimes.executedMs(service));
  }

  /** Whether it is new: a known time is a repetition. */
  #note(kind: Kind, id: string, stampMs: number, { isLive, monotonic, wall, writer }: Intake): boolean {
    const known = this.#seen[kind].get(id);
    if (known?.stampMs === stampMs) return false;
    const offsetMs = this.#offsets.get(writer);
    const atMs = isLive ? monotonic : Math.min(monotonic, stampMs + (offsetMs ?? monotonic - wall));
    const unsure = isLive || offsetMs !== undefined ? null : writer;
    this.#seen[kind].set(id, { stampMs, atMs, heardMs: monotonic, unsure });
    return true;
  }

  /** H7. A record takes time to arrive, so waits are measured as longer by that time, never shorter. */
  #learn(writer: string, timeMs: number, atMs: number): void {
    const isFirst = this.#offsets.size === 0;
    const isNew = !this.#offsets.has(writer);
    const offsetMs = atMs - timeMs;
    this.#offsets.set(writer, offsetMs);
    if (!isNew) return;
    for (const sightings of Object.values(this.#seen))
      for (const sighting of sightings.values()) {
        if (sighting.unsure !== writer && !(isFirst && sighting.unsure === "")) continue;
        sighting.atMs = Math.min(sighting.heardMs, sighting.stampMs + offsetMs);
        sighting.unsure = null;
      }
  }

  /** The time of an object that this replica never had, such as a draft in a plan, is by the current clock. */
  #present(kind: Kind, id: string, stampMs: number): number {
    const known = this.#seen[kind].get(id);
    if (known === undefined || known.stampMs !== stampMs) return stampMs;
    const { monotonic, wall } = this.#read();
    return wall - (monotonic - known.atMs);
  }
}
