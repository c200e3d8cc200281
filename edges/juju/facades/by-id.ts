/** Common parts of requests on entities by id, the seed's object style (reference §3). */
import type { Kind } from "../entities/views.ts";
import type { Call, FacadeSources, Method } from "../facade.ts";
import { entityNews, setNews, type Watched } from "../feed/news.ts";
import { addWatcher } from "./watchers.ts";

export const seed = { versions: [0], shape: "V0", isUnlisted: true } as const;

/** The life of each entity, for watchers of sets. */
export const livesOf = (views: Iterable<{ readonly id: string; readonly life: string }>): Map<string, string> =>
  new Map(Array.from(views, ({ id, life }) => [id, life]));

/** Watch of one entity: the id is valid for NotifyWatcher, and for EntityWatcher, its older name. */
export function watching(sources: FacadeSources, kind: Kind): Method {
  return {
    needs: "read-only",
    run(call) {
      const id = addWatcher(sources, call, "NotifyWatcher", entityNews(sources.feed, kind, call.id));
      return { NotifyWatcherId: id, EntityWatcherId: id };
    },
  };
}

export function addSetWatcher(
  sources: FacadeSources,
  call: Call,
  type: string,
  watched: Watched,
): { id: string; first: readonly string[] } {
  const { news, first } = setNews(sources.feed, watched);
  return { id: addWatcher(sources, call, type, news), first };
}

/** A watcher that reports names, such as a StringsWatcher. */
export function watchingNames(
  sources: FacadeSources,
  type: string,
  watched: (id: string) => Pick<Watched, "topic" | "read">,
): Method {
  return {
    needs: "read-only",
    run(call) {
      const { id, first } = addSetWatcher(sources, call, type, {
        ...watched(call.id),
        answer: ({ names, gone }) => ({ changes: [...names, ...gone] }),
      });
      return { [`${type}Id`]: id, changes: first };
    },
  };
}
