/**
 * Every entity of the cluster in the order of its last change, so that the news for a watcher is the end of a list. A watcher
 * stores one number, the revision up to which it is informed (its cursor), however much changes; replies for many watchers are
 * cached and encoded once.
 *
 * F1: between two cursors, an entity is reported at most once, in its current state.
 * F2: an entity that was created and removed between two cursors is not reported at all.
 * F3: a removed entity is kept only until every watcher that has reported it has reported its removal.
 * F7: watchers of one shape at one cursor get the same reply, whoever owns them: it is made once. Clients that may not see
 *     all of it may not have such a watcher.
 *
 * A reply for a large cluster would exceed the message limit of clients, so it is split into pages, oldest change first. Until
 * a watcher has the last page, it may report the removal of an entity that it has not reported before.
 */
import { entityIn, existsIn, kindIn } from "../entities/deltas.ts";
import { namesAlone } from "../redaction.ts";
import type { Kind, View } from "../entities/views.ts";
import type { Shape } from "../shape.ts";
import { Shared } from "../wire/shared.ts";

interface Entry {
  readonly key: string;
  /** The store object behind it: two services may have the same name one after the other. */
  owner: string;
  view: View;
  /** The view in the newer shape; an equal text is not a change. */
  text: string;
  /** Watchers that have reported this revision know the entity. */
  born: number;
  revision: number;
  isGone: boolean;
  /** The delta in the older shape; created on demand. */
  oldDelta: string;
  newDelta: string;
  before: Entry | null;
  after: Entry | null;
}

export const keyOf = (kind: Kind, id: string): string => `${kind}:${id}`;

/** Order of kinds in the first reply: referenced entities come before those that refer to them. */
const kinds: readonly Kind[] = ["model", "machine", "application", "unit", "relation", "annotation", "action"];
/** Minimum number of removed entities before a sweep. */
const goneMin = 1_000;
/**
 * Characters of a reply without its last delta: less than the 4 MiB that stock clients accept, in any script (reference §1.2).
 */
const pageCharactersMax = 1_000_000;
/** Total size of cached replies, so that watchers at many different cursors do not keep one each. */
const keptCharactersMax = 16 * pageCharactersMax;

interface Reader {
  readonly shape: Shape;
  readonly seesValues: boolean;
}

/** A result of Next, and the cursor after it. */
export interface Page {
  readonly result: Shared;
  readonly cursor: number;
}

export class Entities {
  readonly #modelUuid: () => string;
  readonly #entries = new Map<string, Entry>();
  #last: Entry | null = null;
  #revision = 0;
  #gone = 0;
  #goneAtSweep = goneMin;
  /** F7: replies since the last change, by shape and cursor. */
  readonly #answers = new Map<string, Page>();
  #keptCharacters = 0;

  /** `modelUuid`: part of every entity of the newer shape. */
  constructor(modelUuid: () => string) {
    this.#modelUuid = modelUuid;
  }

  /** Increases with each change. */
  get revision(): number {
    return this.#revision;
  }

  /** Number of kept entities, including removed ones. */
  get size(): number {
    return this.#entries.size;
  }

  get(kind: Kind, id: string): View | undefined {
    const entry = this.#entries.get(keyOf(kind, id));
    return entry === undefined || entry.isGone ? undefined : entry.view;
  }

  /** Changes with the entity; 0 if there is none. */
  stampOf(kind: Kind, id: string): number {
    const entry = this.#entries.get(keyOf(kind, id));
    return entry === undefined || entry.isGone ? 0 : entry.revision;
  }

  /** Returns whether the entity changed. */
  put(view: View, owner: string): boolean {
    const key = keyOf(view.kind, view.id);
    const text = JSON.stringify(entityIn("V1", view, this.#modelUuid()));
    const entry = this.#entries.get(key);
    if (entry === undefined) {
      const revision = this.#next();
      const made: Entry = {
        key,
        owner,
        view,
        text,
        born: revision,
        revision,
        isGone: false,
        oldDelta: "",
        newDelta: "",
        before: null,
        after: null,
      };
      this.#entries.set(key, made);
      this.#append(made);
      return true;
    }
    entry.owner = owner;
    if (!entry.isGone && entry.text === text) {
      // The source objects may have changed without a visible difference.
      entry.view = view;
      return false;
    }
    if (entry.isGone) {
      entry.isGone = false;
      this.#gone -= 1;
    }
    entry.view = view;
    entry.text = text;
    this.#touch(entry);
    return true;
  }

  /** Returns whether the entity existed with this owner. */
  remove(kind: Kind, id: string, owner: string): boolean {
    const entry = this.#entries.get(keyOf(kind, id));
    if (entry === undefined || entry.isGone || entry.owner !== owner) return false;
    entry.isGone = true;
    this.#gone += 1;
    this.#touch(entry);
    return true;
  }

  /** All existing entities, by kind, in no order within a kind. */
  *all(): Iterable<View> {
    for (const entry of this.#entries.values()) if (!entry.isGone) yield entry.view;
  }

  /** Whether a watcher at this cursor has news. */
  hasNews(cursor: number, shape: Shape): boolean {
    for (let entry = this.#last; entry !== null && entry.revision > cursor; entry = entry.before) {
      if (isReported(entry, cursor, shape)) return true;
    }
    return false;
  }

  /** With `seesValues` false, options are shown without their values. */
  answer(cursor: number, shape: Shape, seesValues: boolean): Page {
    const name = `${shape}${seesValues ? "" : "-"}${cursor}`;
    const known = this.#answers.get(name);
    if (known !== undefined) return known;
    const answer = this.#page(this.#since(cursor, shape), cursor, { shape, seesValues });
    const characters = answer.result.text.length;
    if (this.#keptCharacters + characters > keptCharactersMax) this.#forgetAnswers();
    this.#keptCharacters += characters;
    this.#answers.set(name, answer);
    return answer;
  }

  #forgetAnswers(): void {
    this.#answers.clear();
    this.#keptCharacters = 0;
  }

  /** F3. `cursors`: of all watchers. Does nothing until enough entities have been removed since the last sweep. */
  sweep(cursors: () => Iterable<number>): void {
    if (this.#gone < this.#goneAtSweep) return;
    const sorted = [...new Set(cursors())].toSorted((left, right) => left - right);
    for (const entry of this.#entries.values()) {
      if (!entry.isGone || isWaitedFor(entry, sorted)) continue;
      this.#unlink(entry);
      this.#entries.delete(entry.key);
      this.#gone -= 1;
    }
    // Keeps the work proportional to the number of removals.
    this.#goneAtSweep = Math.max(goneMin, 2 * this.#gone);
  }

  #page(since: readonly Entry[], cursor: number, reader: Reader): Page {
    const { shape } = reader;
    const deltas: string[] = [];
    let characters = 0;
    for (const entry of since) {
      if (characters > pageCharactersMax) break;
      const delta = this.#deltaOf(entry, reader);
      deltas.push(delta);
      characters += delta.length;
    }
    const isLast = deltas.length === since.length;
    if (isLast && cursor === 0) {
      const ordered = since.toSorted((left, right) => kinds.indexOf(left.view.kind) - kinds.indexOf(right.view.kind));
      for (const [at, entry] of ordered.entries()) deltas[at] = this.#deltaOf(entry, reader);
    }
    return {
      result: new Shared(`{"${shape === "V0" ? "Deltas" : "deltas"}":[${deltas.join(",")}]}`),
      cursor: isLast ? this.#revision : (since[deltas.length - 1]?.revision ?? this.#revision),
    };
  }

  /** Oldest first. */
  #since(cursor: number, shape: Shape): readonly Entry[] {
    const since: Entry[] = [];
    for (let entry = this.#last; entry !== null && entry.revision > cursor; entry = entry.before) {
      if (isReported(entry, cursor, shape)) since.push(entry);
    }
    return since.reverse();
  }

  #deltaOf(entry: Entry, { seesValues, shape }: Reader): string {
    const action = entry.isGone ? "remove" : "change";
    if (!seesValues && entry.view.kind === "application") {
      const shown = { ...entry.view, env: namesAlone(entry.view.env) };
      return `["${kindIn(shape, shown)}","${action}",${JSON.stringify(entityIn(shape, shown, this.#modelUuid()))}]`;
    }
    if (shape === "V1") {
      if (entry.newDelta === "") entry.newDelta = `["${kindIn(shape, entry.view)}","${action}",${entry.text}]`;
      return entry.newDelta;
    }
    if (entry.oldDelta === "") {
      const text = JSON.stringify(entityIn(shape, entry.view, this.#modelUuid()));
      entry.oldDelta = `["${kindIn(shape, entry.view)}","${action}",${text}]`;
    }
    return entry.oldDelta;
  }

  #next(): number {
    this.#revision += 1;
    this.#forgetAnswers();
    return this.#revision;
  }

  #touch(entry: Entry): void {
    entry.revision = this.#next();
    entry.oldDelta = "";
    entry.newDelta = "";
    this.#unlink(entry);
    this.#append(entry);
  }

  #append(entry: Entry): void {
    entry.before = this.#last;
    entry.after = null;
    if (this.#last !== null) this.#last.after = entry;
    this.#last = entry;
  }

  #unlink({ before, after }: Entry): void {
    if (before !== null) before.after = after;
    if (after === null) this.#last = before;
    else after.before = before;
  }
}

/** F2 */
function isReported(entry: Entry, cursor: number, shape: Shape): boolean {
  return (!entry.isGone || entry.born <= cursor) && existsIn(shape, entry.view);
}

/** Whether one of the cursors, in ascending order, lies between the entity's creation and its removal. */
function isWaitedFor({ born, revision }: Entry, cursors: readonly number[]): boolean {
  let low = 0;
  let high = cursors.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((cursors[middle] as number) < born) low = middle + 1;
    else high = middle;
  }
  return low < cursors.length && (cursors[low] as number) < revision;
}
