/**
 * Builds the history of an object from the commits of the log: each of its changes is an entry, and the consequences
 * elsewhere are summarised below it. Takes every commit from some version on, in order.
 *
 * T1: entries come in version order; consequences of an entry that arrive after a later entry are sent in another entry of
 *     the same version, without fields.
 */
import { HistoryEntry, type Caller, type Origin, type Service, type Task } from "../../proto/gen/messages.ts";
import { Consequences, countTask } from "./consequences.ts";
import { timestampOf } from "../../proto/time.ts";
import { differenceOf } from "./fields.ts";
import { isMeant, nameOf, type StoreChange, type Subject, type ToldKind, type ToldObjects } from "./objects.ts";
import { differentReferences, rolloutWord } from "./references.ts";

interface ToldCommit {
  readonly version: number;
  readonly timeMs: number;
  /** Node id of the manager that wrote the commit. */
  readonly writer: string;
}

export interface Attribution {
  readonly caller: Caller | null;
  readonly origin: Origin;
}

type Told = Extract<StoreChange, { readonly action: string }>;

interface Tracked {
  readonly id: string;
  name: string;
  /** The entry to which consequences belong; null: its change came before the start of the history. */
  entry: Pick<HistoryEntry, "version" | "time"> | null;
  readonly followed: Consequences;
}

interface StoryOptions {
  readonly kind: ToldKind;
  readonly subject: Subject;
  /** Changes before this time, in milliseconds, are recorded but not shown. */
  readonly sinceMs: number;
  /** Later changes are not shown. */
  readonly untilMs: number;
  nodeName(id: string): string;
}

export class Story {
  readonly #options: StoryOptions;
  readonly #tracked = new Map<string, Tracked>();
  #ready: HistoryEntry[] = [];

  /** `present`: the objects of its kind before the first commit. */
  constructor(options: StoryOptions, present: Iterable<ToldObjects[ToldKind]>) {
    this.#options = options;
    for (const object of present) this.#find(object);
  }

  /** Whether an object was selected so far. */
  get hasSubject(): boolean {
    return this.#tracked.size > 0;
  }

  /** Number of entries to send. */
  get size(): number {
    return this.#ready.length;
  }

  take(commit: ToldCommit, change: StoreChange, by: Attribution): void {
    const { kind, sinceMs, untilMs } = this.#options;
    if (!("action" in change)) return;
    const isTold = commit.timeMs >= sinceMs && commit.timeMs <= untilMs;
    if (change.table === kind) {
      const tracked = this.#find(change.object as ToldObjects[ToldKind]);
      if (tracked !== undefined && isTold) this.#takeOwn(tracked, commit, change, by);
    }
    if (isTold && this.#tracked.size > 0 && change.table !== kind) this.#takeOther(commit, change, by);
  }

  /** The entries to send now, with their consequences so far. */
  flush(): readonly HistoryEntry[] {
    for (const tracked of this.#tracked.values()) this.#tellFollowed(tracked);
    const ready = this.#ready;
    this.#ready = [];
    return ready;
  }

  #find(object: ToldObjects[ToldKind]): Tracked | undefined {
    const { kind, subject } = this.#options;
    const name = nameOf(kind, object);
    const known = this.#tracked.get(object.id);
    if (known !== undefined) {
      if (name !== "") known.name = name;
      return known;
    }
    if (!isMeant(subject, kind, object.id, name)) return undefined;
    const tracked = { id: object.id, name, entry: null, followed: new Consequences() };
    this.#tracked.set(object.id, tracked);
    return tracked;
  }

  #takeOwn(tracked: Tracked, { version, timeMs, writer }: ToldCommit, change: Told, by: Attribution): void {
    const { kind } = this.#options;
    const [object, old] = [change.object as ToldObjects[ToldKind], change.old as ToldObjects[ToldKind] | null];
    const isUpdate = change.action === "update" && old !== null;
    const { fields, omitted } =
      change.action === "remove" ? { fields: [], omitted: 0 } : differenceOf(kind, isUpdate ? old : null, object);
    // A request to a task may change none of its stored fields: a signal, or a command in it.
    const isAsked = kind === "task" && by.caller !== null;
    if (isUpdate && fields.length === 0 && !isAsked) {
      this.#takeNotes(tracked, object, old, by, timeMs);
      return;
    }
    for (const other of this.#tracked.values()) this.#tellFollowed(other);
    const time = timestampOf(timeMs);
    const entry = HistoryEntry.create({
      version,
      time,
      kind,
      objectId: tracked.id,
      name: tracked.name,
      action: isUpdate && fields.length === 0 ? "ask" : change.action,
      fields,
      fieldsOmitted: omitted,
      caller: by.caller,
      origin: by.origin,
      writer,
    });
    this.#ready.push(entry);
    tracked.entry = { version, time };
    if (isUpdate) this.#takeNotes(tracked, object, old, by, timeMs);
  }

  /** Fields that the system itself writes to the object are consequences. */
  #takeNotes(
    tracked: Tracked,
    object: ToldObjects[ToldKind],
    old: ToldObjects[ToldKind],
    by: Attribution,
    atMs: number,
  ): void {
    if (this.#options.kind !== "service") return;
    const [now, before] = [object as Service, old as Service];
    const word = rolloutWord(now);
    if (word === rolloutWord(before) || word === "") return;
    tracked.followed.say(`rollout ${word}`, by.origin, atMs, now.updateStatus?.message ?? "");
  }

  #takeOther({ timeMs }: ToldCommit, change: Told, { origin }: Attribution): void {
    const { kind, nodeName } = this.#options;
    if (change.table === "task" && (kind === "service" || kind === "node")) {
      const task: Task = change.object;
      const tracked = this.#tracked.get(kind === "service" ? task.serviceId : task.nodeId);
      if (tracked === undefined) return;
      const where =
        kind === "node"
          ? (task.serviceAnnotations?.name ?? task.serviceId)
          : task.nodeId === ""
            ? ""
            : nodeName(task.nodeId);
      const isGone = change.action === "remove";
      countTask(tracked.followed, change.old, isGone ? null : task, where, origin, timeMs);
    } else if (change.table === "service" && (kind === "secret" || kind === "config" || kind === "network")) {
      const service = change.action === "remove" ? null : change.object;
      const { begun, ended } = differentReferences(kind, change.old, service);
      const name = nameOf("service", change.object);
      for (const id of begun) this.#tracked.get(id)?.followed.say(`service ${name} started to use it`, origin, timeMs);
      for (const id of ended) this.#tracked.get(id)?.followed.say(`service ${name} stopped using it`, origin, timeMs);
    } else if (change.table === "manager" && kind === "node") {
      const isAlive = change.action !== "remove" && change.object.alive;
      if (isAlive === (change.old?.alive ?? false)) return;
      const tracked = this.#tracked.get(change.object.id);
      tracked?.followed.say(isAlive ? "its manager is running" : "its manager is gone", origin, timeMs);
    }
  }

  /** T1 */
  #tellFollowed(tracked: Tracked): void {
    if (tracked.followed.isEmpty) return;
    const followed = tracked.followed.take();
    const { entry, id, name } = tracked;
    const last = this.#ready.at(-1);
    if (entry !== null && last?.objectId === id && last.version === entry.version && last.followed.length === 0) {
      this.#ready[this.#ready.length - 1] = HistoryEntry.patch(last, { followed });
      return;
    }
    this.#ready.push(
      HistoryEntry.create({
        version: entry?.version ?? 0,
        time: entry?.time ?? null,
        kind: this.#options.kind,
        objectId: id,
        name,
        action: entry === null ? "before" : "",
        followed,
      }),
    );
  }
}
