/**
 * Everything that is shown of the cluster, in the order in which it last changed, so that what a watcher has not been told
 * yet is the end of a list. A watcher keeps one number, the revision up to which it was told everything (its cursor),
 * however much changes: what many watchers are told is kept, and encoded, once.
 *
 * F1: between two cursors an entity is told at most once, as it is now.
 * F2: one that came and went between two cursors is not told at all.
 * F3: what is gone is kept only while a watcher that knew it has not been told: never more than such a watcher knew.
 * F7: watchers of one shape at one cursor are told the same, whoever they belong to: it is made once. Those that may not see
 *     all of it may not have such a watcher.
 *
 * Of a large cluster one answer would be more than clients take: it is told on several pages, the oldest change first. While
 * a watcher has not been told the last of them, it may be told that something went which it was not told of.
 */
import { entityIn, isToldIn, kindIn } from "../entities/deltas.ts";
import { namesAlone } from "../redaction.ts";
import type { Kind, View } from "../entities/views.ts";
import type { Shape } from "../facade.ts";
import { Shared } from "../wire/shared.ts";

export interface Entry {
  readonly key: string;
  /** What in the store it is made of: two services may follow each other under one name. */
  owner: string;
  view: View;
  /** The view as the newer shape has it; equal texts are no change. */
  text: string;
  /** Whoever was told everything up to this revision, or a later one, knows it. */
  born: number;
  revision: number;
  isGone: boolean;
  /** The delta in the older shape; made when somebody asks for it. */
  oldDelta: string;
  newDelta: string;
  before: Entry | null;
  after: Entry | null;
}

export const keyOf = (kind: Kind, id: string): string => `${kind}:${id}`;

/** In the first answer, where it is one: who is referred to comes before who refers to it. */
const kinds: readonly Kind[] = ["model", "machine", "application", "unit", "relation", "annotation", "action"];
/** Below so many that are gone it is not worth looking who still wants them. */
const goneMin = 1_000;
/** Characters of an answer, all but its last delta: in whatever script less than the 4 MiB that stock clients take (reference §1.2). */
const pageCharactersMax = 1_000_000;
/** Of the answers that are kept at a time: watchers that stand at many different places do not keep one each. */
const keptCharactersMax = 16 * pageCharactersMax;

interface Reader {
  readonly shape: Shape;
  readonly seesValues: boolean;
}

/** The result of Next, and the cursor after it. */
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
  /** F7: answers since the last change, by all that they depend on: shape and cursor. */
  readonly #answers = new Map<string, Page>();
  #keptCharacters = 0;

  /** `modelUuid`: each entity of the newer shape names its model. */
  constructor(modelUuid: () => string) {
    this.#modelUuid = modelUuid;
  }

  /** Grows with each change. */
  get revision(): number {
    return this.#revision;
  }

  /** How many are kept, what is gone included. */
  get size(): number {
    return this.#entries.size;
  }

  get goneCount(): number {
    return this.#gone;
  }

  get(kind: Kind, id: string): View | undefined {
    const entry = this.#entries.get(keyOf(kind, id));
    return entry === undefined || entry.isGone ? undefined : entry.view;
  }

  /** Changes whenever the entity does; 0 while there is none. */
  stampOf(kind: Kind, id: string): number {
    const entry = this.#entries.get(keyOf(kind, id));
    return entry === undefined || entry.isGone ? 0 : entry.revision;
  }

  /** True when it is a change. */
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
      // What it is made of may differ all the same, where no client sees it.
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

  /** True when it was there, as `owner`'s. */
  remove(kind: Kind, id: string, owner: string): boolean {
    const entry = this.#entries.get(keyOf(kind, id));
    if (entry === undefined || entry.isGone || entry.owner !== owner) return false;
    entry.isGone = true;
    this.#gone += 1;
    this.#touch(entry);
    return true;
  }

  /** Those that are there, by kind, in no order within a kind. */
  *all(): Iterable<View> {
    for (const entry of this.#entries.values()) if (!entry.isGone) yield entry.view;
  }

  /** Whether somebody who was told everything up to the cursor has something to be told. */
  hasNews(cursor: number, shape: Shape): boolean {
    for (let entry = this.#last; entry !== null && entry.revision > cursor; entry = entry.before) {
      if (isTold(entry, cursor, shape)) return true;
    }
    return false;
  }

  /** `seesValues` false: names of options without their values. */
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

  /** F3. `cursors`: of all watchers. Looks only when enough has gone since it last did. */
  sweep(cursors: () => Iterable<number>): void {
    if (this.#gone < this.#goneAtSweep) return;
    const sorted = [...new Set(cursors())].toSorted((left, right) => left - right);
    for (const entry of this.#entries.values()) {
      if (!entry.isGone || isWaitedFor(entry, sorted)) continue;
      this.#unlink(entry);
      this.#entries.delete(entry.key);
      this.#gone -= 1;
    }
    // So that the work stays in proportion to what goes.
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
      if (isTold(entry, cursor, shape)) since.push(entry);
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
function isTold(entry: Entry, cursor: number, shape: Shape): boolean {
  return (!entry.isGone || entry.born <= cursor) && isToldIn(shape, entry.view);
}

/** Whether one of the cursors, in ascending order, lies from the entry's birth on and before its end. */
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
