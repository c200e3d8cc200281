/** News for watchers: each watcher stores its position, and gets the changes since then from the feed. */
import type { News } from "../../../runtime/ports/json-watch.ts";
import type { Kind } from "../entities/views.ts";
import type { Shape } from "../shape.ts";
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

/** Clients of all-watchers match on these texts (reference §6); 1.x clients get another text when the server shuts down. */
function allRefusal(shape: Shape, reason: Reason): RequestError {
  if (reason === "crowded") return crowded();
  const isServers = shape === "V0" && reason === "closed";
  return new RequestError(isServers ? "shared state watcher was stopped" : "watcher was stopped", "stopped");
}

/**
 * News of everything: the first reply is the whole state, later ones are the changes. `seesValues` is called for each reply,
 * because a user's role may change.
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

/** Reports that one entity changed, appeared or was removed, without details. The current state counts as reported. */
export function entityNews(feed: Feed, kind: Kind, id: string): News<Json> {
  feed.refresh();
  let sent = feed.entities.stampOf(kind, id);
  return {
    has: () => feed.entities.stampOf(kind, id) !== sent,
    take() {
      sent = feed.entities.stampOf(kind, id);
      return {};
    },
    wait: (wake) => feed.wait(keyOf(kind, id), wake),
    release: () => undefined,
    refusal,
  };
}

export interface Watched {
  readonly topic: Topic;
  /** The current set; a name is news when its value changes, and when it is added or removed. */
  read(): ReadonlyMap<string, string>;
  answer(change: { readonly names: readonly string[]; readonly gone: readonly string[] }): Json;
}

/** Names in a set; `first` are reported at once. Stores the names that it has reported. */
export function setNews(
  feed: Feed,
  watched: Watched,
): { readonly news: News<Json>; readonly first: readonly string[] } {
  feed.refresh();
  let sent = watched.read();
  const first = [...sent.keys()];
  const changed = (now: ReadonlyMap<string, string>): boolean => {
    if (now.size !== sent.size) return true;
    for (const [name, stamp] of now) if (sent.get(name) !== stamp) return true;
    return false;
  };
  return {
    first,
    news: {
      has: () => changed(watched.read()),
      take() {
        const now = watched.read();
        const names = [...now].filter(([name, stamp]) => sent.get(name) !== stamp).map(([name]) => name);
        const gone = [...sent.keys()].filter((name) => !now.has(name));
        sent = now;
        return watched.answer({ names, gone });
      },
      wait: (wake) => feed.wait(watched.topic, wake),
      release: () => undefined,
      refusal,
    },
  };
}

/** One value, reported whole when it changes. */
export function valueNews(feed: Feed, topic: Topic, read: () => Json): News<Json> {
  feed.refresh();
  let sent = JSON.stringify(read());
  return {
    has: () => JSON.stringify(read()) !== sent,
    take() {
      const value = read();
      sent = JSON.stringify(value);
      return value;
    },
    wait: (wake) => feed.wait(topic, wake),
    release: () => undefined,
    refusal,
  };
}
