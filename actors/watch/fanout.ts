/**
 * Sends each transaction to many watchers. Watchers with the same question form one audience: a change is matched once for it,
 * and all that get the same answer share one message, so that the edge encodes it once.
 */
import { WatchIndex } from "../../machines/watch/subscribers.ts";
import { isWanted, type WatchedChange, type WatchFilter } from "../../machines/watch/filter.ts";
import { Version, WatchMessage, type WatchMessage_Event } from "../../proto/gen/messages.ts";
import type { ObjectChange } from "../../runtime/store/store.ts";
import { actionOf, eventOf } from "./events.ts";
import type { RecentCommit } from "./recent.ts";

/** A watcher's question; equal keys mean equal answers. */
export interface Question {
  readonly key: string;
  readonly filters: readonly WatchFilter[];
  readonly includesOld: boolean;
}

export interface Listener {
  readonly question: Question;
  /** Receives a message, the same object as all others that get this answer. */
  tell(message: WatchMessage, version: number): void;
}

interface Audience {
  readonly question: Question;
  readonly listeners: Set<Listener>;
  /** Indexes of the commit's changes that it wants; refilled for each commit. */
  wanted: number[];
}

export class Fanout {
  readonly #audiences = new Map<string, Audience>();
  readonly #index = new WatchIndex<Audience>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Number of different questions. */
  get audiences(): number {
    return this.#audiences.size;
  }

  add(listener: Listener): void {
    const { question } = listener;
    let audience = this.#audiences.get(question.key);
    if (audience === undefined) {
      audience = { question, listeners: new Set(), wanted: [] };
      this.#audiences.set(question.key, audience);
      this.#index.add(audience, question.filters);
    }
    if (!audience.listeners.has(listener)) this.#size += 1;
    audience.listeners.add(listener);
  }

  remove(listener: Listener): void {
    const { key } = listener.question;
    const audience = this.#audiences.get(key);
    if (audience?.listeners.delete(listener) !== true) return;
    this.#size -= 1;
    if (audience.listeners.size > 0) return;
    this.#audiences.delete(key);
    this.#index.remove(audience);
  }

  /** Returns the number of messages sent. */
  tell(commit: RecentCommit): number {
    if (this.#size === 0) return 0;
    const reached = this.#match(commit.changes);
    if (reached.length === 0) return 0;
    const answers = new Answers(commit);
    const told: { readonly message: WatchMessage; readonly audience: Audience }[] = [];
    for (const audience of reached) {
      const { wanted, question } = audience;
      audience.wanted = [];
      const message = answers.message(wanted, question.includesOld);
      if (message !== null) told.push({ message, audience });
    }
    // Groups equal answers: the edge remembers what it encoded last.
    if (told.length > 1) told.sort((a, b) => answers.place(a.message) - answers.place(b.message));
    let handed = 0;
    for (const { message, audience } of told) {
      for (const listener of audience.listeners) {
        listener.tell(message, commit.version);
        handed += 1;
      }
    }
    return handed;
  }

  #match(changes: readonly ObjectChange[]): readonly Audience[] {
    const reached: Audience[] = [];
    let place = 0;
    const onFound = (audience: Audience): void => {
      const { wanted } = audience;
      // Several of its filters may match.
      if (wanted.at(-1) === place) return;
      if (wanted.length === 0) reached.push(audience);
      wanted.push(place);
    };
    for (; place < changes.length; place += 1) {
      this.#index.find(watchedOf(changes[place] as ObjectChange), onFound);
    }
    return reached;
  }
}

/** The messages of one commit: each event, and each selection of events, is built once. */
class Answers {
  readonly #commit: RecentCommit;
  readonly #version: Version;
  readonly #events = new Map<number, WatchMessage_Event | null>();
  readonly #messages = new Map<string, WatchMessage>();
  readonly #places = new Map<WatchMessage, number>();

  constructor(commit: RecentCommit) {
    this.#commit = commit;
    this.#version = Version.create({ index: commit.version });
  }

  message(wanted: readonly number[], includesOld: boolean): WatchMessage | null {
    const key = `${includesOld ? "+" : "-"}${wanted.join()}`;
    const known = this.#messages.get(key);
    if (known !== undefined) return known;
    const events: WatchMessage_Event[] = [];
    for (const place of wanted) {
      const event = this.#event(place, includesOld);
      if (event !== null) events.push(event);
    }
    if (events.length === 0) return null;
    const message = WatchMessage.create({ events, version: this.#version });
    this.#messages.set(key, message);
    this.#places.set(message, this.#places.size);
    return message;
  }

  place(message: WatchMessage): number {
    return this.#places.get(message) ?? 0;
  }

  #event(place: number, includesOld: boolean): WatchMessage_Event | null {
    const key = includesOld ? -1 - place : place;
    let event = this.#events.get(key);
    if (event === undefined) {
      event = eventOf(this.#commit.changes[place] as ObjectChange, includesOld);
      this.#events.set(key, event);
    }
    return event;
  }
}

/** The answer to a question about one commit; null when nothing matches. */
export function answerOf({ filters, includesOld }: Question, commit: RecentCommit): WatchMessage | null {
  const wanted: number[] = [];
  for (const [place, change] of commit.changes.entries()) {
    if (isWanted(filters, watchedOf(change))) wanted.push(place);
  }
  return wanted.length === 0 ? null : new Answers(commit).message(wanted, includesOld);
}

function watchedOf({ table, action, object, old }: ObjectChange): WatchedChange {
  return { table, action: actionOf[action], object, old };
}
