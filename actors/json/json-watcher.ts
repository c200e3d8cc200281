/** Hosts the charts of the JSON API's watchers, and carries their answers to whoever asked. */
import { jsonWatcherMachine, type JsonWatcherEvent, type WatcherRefusal } from "../../machines/json/json-watcher.ts";
import type { JsonWatcher, JsonWatchers, News } from "../../runtime/json-watch.ts";
import type { Subscription } from "../../runtime/ports.ts";
import type { Environment } from "../environment.ts";
import { hosted } from "../hosted.ts";

const watchers = hosted(jsonWatcherMachine, ["answer", "refuse", "awaitNews", "stopAwaitingNews", "release"]);

interface Ask<Answer> {
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
}

export function createJsonWatchers({ host }: Pick<Environment, "host">): JsonWatchers {
  let started = 0;

  return {
    start<Answer>(news: News<Answer>): JsonWatcher<Answer> {
      started += 1;
      let last = 0;
      const asks = new Map<number, Ask<Answer>>();
      let waiting: Subscription | null = null;

      function taken(id: number): Ask<Answer> | undefined {
        const ask = asks.get(id);
        asks.delete(id);
        return ask;
      }

      const actor = watchers.start(host, `json-watcher/${started}`, undefined, {
        effects: {
          answer: ({ ask }: { ask: number }) => taken(ask)?.resolve(news.take()),
          refuse: ({ asks: refused, reason }: { asks: readonly number[]; reason: WatcherRefusal }) => {
            for (const ask of refused) taken(ask)?.reject(news.refusal(reason));
          },
          awaitNews: () => {
            waiting = news.wait(() => {
              // What one answer has no room for is the next one's, where somebody waits for it.
              while (waiting !== null && news.has()) send({ type: "news.found" });
              noticeEnd();
            });
          },
          stopAwaitingNews: () => {
            waiting?.unsubscribe();
            waiting = null;
          },
          release: () => news.release(),
        },
      });
      const isOver = (): boolean => actor.actor.getSnapshot().status !== "active";
      function send(event: JsonWatcherEvent): void {
        if (isOver()) return;
        actor.actor.send(event);
        if (isOver()) actor.stop();
      }

      const noticeEnd = (): void => {
        if (news.isOver?.() === true && !news.has()) send({ type: "news.ended" });
      };

      return {
        next: () =>
          new Promise((resolve, reject) => {
            if (isOver()) return reject(news.refusal("asked"));
            noticeEnd();
            last += 1;
            asks.set(last, { resolve, reject });
            send({ type: "next.asked", ask: last, hasNews: news.has() });
          }),
        stop: () => send({ type: "stop.asked" }),
        close: () => send({ type: "connection.closed" }),
      };
    },
  };
}
