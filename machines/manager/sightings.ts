/**
 * How long ago something in the log happened, by this manager's monotonic clock. Durations are measured by this, whichever
 * wall clock wrote the log's times and however often it was set.
 *
 * H6: a change that arrives while the manager follows the log happened when it arrived. All managers that saw it, the leader and
 *     the next one, measure the same, whatever their wall clocks say. A manager that was cut off measures from when it heard
 *     of the change: waits end later by that time, never early.
 * H7: older changes are placed by the clock of the manager that wrote them, as soon as a record from that manager shows how far its
 *     clock is off; those from a snapshot, by the first record of any manager. Until then this manager trusts its own clock.
 *     A change that would lie in the future happens when it arrives.
 */
import type { Node, Rollout, Service, Task } from "../../proto/gen/messages.ts";
import { stampedTimes, type LogTimes } from "../elapsed.ts";
import type { ClockReading } from "./clock-jump.ts";

interface Sighting {
  /** As the log says it, in milliseconds since the epoch. */
  readonly stampMs: number;
  /** When that was, in milliseconds of the monotonic clock. */
  atMs: number;
  /** When it was taken in, likewise. */
  readonly heardMs: number;
  /** Whose clock is still to be found out (H7); empty: anybody's; null: nobody's. */
  unsure: string | null;
}

type Kind = keyof LogTimes;

/** How something is taken in: as it happens (H6), or after that (H7). */
export interface Intake extends ClockReading {
  readonly isLive: boolean;
  /** Node id of the manager whose clock gave its times; empty where that is not known. */
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
  /** By manager: what is to be added to a time of its clock, for the monotonic one; milliseconds. */
  readonly #offsets = new Map<string, number>();

  /** `read`: this machine's clocks as they are now. */
  constructor(read: () => ClockReading) {
    this.#read = read;
  }

  /** A record is taken in that was written at `timeMs`. H7 */
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

  /** It is gone from the log. */
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

  /** Answers whether it is news: what has the time that it had is a repetition. */
  #note(kind: Kind, id: string, stampMs: number, { isLive, monotonic, wall, writer }: Intake): boolean {
    const known = this.#seen[kind].get(id);
    if (known?.stampMs === stampMs) return false;
    const offsetMs = this.#offsets.get(writer);
    const atMs = isLive ? monotonic : Math.min(monotonic, stampMs + (offsetMs ?? monotonic - wall));
    const unsure = isLive || offsetMs !== undefined ? null : writer;
    this.#seen[kind].set(id, { stampMs, atMs, heardMs: monotonic, unsure });
    return true;
  }

  /** H7. A record takes a while to come, so that waits are reckoned longer by that, never shorter. */
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

  /** What this manager's replica never had, as a draft of a plan, is of this moment's clock. */
  #present(kind: Kind, id: string, stampMs: number): number {
    const known = this.#seen[kind].get(id);
    if (known === undefined || known.stampMs !== stampMs) return stampMs;
    const { monotonic, wall } = this.#read();
    return wall - (monotonic - known.atMs);
  }
}
