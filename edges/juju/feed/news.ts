/** What the watchers watch: each keeps how far it was told, and finds in the feed what came since. */
import type { News } from "../../../runtime/json-watch.ts";
import type { Kind } from "../entities/views.ts";
import type { Shape } from "../facade.ts";
import { RequestError } from "../request-error.ts";
import type { Json } from "../results.ts";
import { topics, type Feed } from "./feed.ts";
import { keyOf } from "./entities.ts";
import type { Topic } from "./wakers.ts";

type Reason = Parameters<News<Json>["refusal"]>[0];

const crowded = (): RequestError => new RequestError("too many requests wait for this watcher", "quota limit exceeded");

export function refusal(reason: Reason): RequestError {
  return reason === "crowded" ? crowded() : new RequestError("watcher has been stopped", "stopped");
}

/** Clients of the all-watchers look for these words (reference §6); old ones know a server's end by others. */
function allRefusal(shape: Shape, reason: Reason): RequestError {
  if (reason === "crowded") return crowded();
  const isServers = shape === "V0" && reason === "closed";
  return new RequestError(isServers ? "shared state watcher was stopped" : "watcher was stopped", "stopped");
}

/**
 * Everything: the first answer is the whole state, and later ones what is different. `seesValues` is asked at each answer,
 * as a user may get another role meanwhile.
 */
export function allNews(feed: Feed, shape: Shape, seesValues: () => boolean): News<Json> {
  const holder = { cursor: 0 };
  const following = feed.follow(holder);
  return {
    has: () => feed.entities.hasNews(holder.cursor, shape),
    take() {
      const { result, cursor } = feed.entities.answer(holder.cursor, shape, seesValues());
      holder.cursor = cursor;
      return result;
    },
    wait: (wake) => feed.wait(topics.everything, wake),
    release: () => following.unsubscribe(),
    refusal: (reason) => allRefusal(shape, reason),
  };
}

/** That one entity has changed, come or gone; not how. What it is now has been told. */
export function entityNews(feed: Feed, kind: Kind, id: string): News<Json> {
  feed.refresh();
  let told = feed.entities.stampOf(kind, id);
  return {
    has: () => feed.entities.stampOf(kind, id) !== told,
    take() {
      told = feed.entities.stampOf(kind, id);
      return {};
    },
    wait: (wake) => feed.wait(keyOf(kind, id), wake),
    release: () => undefined,
    refusal,
  };
}

export interface Watched {
  readonly topic: Topic;
  /** What is there by now; a name is news when what is said of it changes, and when it comes or goes. */
  read(): ReadonlyMap<string, string>;
  answer(change: { readonly names: readonly string[]; readonly gone: readonly string[] }): Json;
}

/** Names of a set, of which `first` are told at once. It remembers what it told: no more than there was. */
export function setNews(
  feed: Feed,
  watched: Watched,
): { readonly news: News<Json>; readonly first: readonly string[] } {
  feed.refresh();
  let told = watched.read();
  const first = [...told.keys()];
  const changed = (now: ReadonlyMap<string, string>): boolean => {
    if (now.size !== told.size) return true;
    for (const [name, said] of now) if (told.get(name) !== said) return true;
    return false;
  };
  return {
    first,
    news: {
      has: () => changed(watched.read()),
      take() {
        const now = watched.read();
        const names = [...now].filter(([name, said]) => told.get(name) !== said).map(([name]) => name);
        const gone = [...told.keys()].filter((name) => !now.has(name));
        told = now;
        return watched.answer({ names, gone });
      },
      wait: (wake) => feed.wait(watched.topic, wake),
      release: () => undefined,
      refusal,
    },
  };
}

/** One value, which is told whole when it is another one. */
export function valueNews(feed: Feed, topic: Topic, read: () => Json): News<Json> {
  feed.refresh();
  let told = JSON.stringify(read());
  return {
    has: () => JSON.stringify(read()) !== told,
    take() {
      const value = read();
      told = JSON.stringify(value);
      return value;
    },
    wait: (wake) => feed.wait(topic, wake),
    release: () => undefined,
    refusal,
  };
}
