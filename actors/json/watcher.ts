/**
 * Runs the charts of the JSON API's watchers and returns their answers. There are thousands, with two events per answer, so
 * they are not actors of XState: a table made from the chart runs them. Viewers see them all the same (`host.tables`).
 */
import { flattened, type FlatEffect } from "../../machines/flat.ts";
import { jsonWatcherMachine, type JsonWatcherEvent, type WatcherRefusal } from "../../machines/json/watcher.machine.ts";
import type { JsonWatcher, JsonWatchers, News } from "../../runtime/ports/json-watch.ts";
import type { Subscription } from "../../runtime/ports/index.ts";
import type { Environment } from "../environment.ts";

const table = flattened(jsonWatcherMachine);

interface Ask<Answer> {
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
}

export function createJsonWatchers({ host, telemetry }: Pick<Environment, "host" | "telemetry">): JsonWatchers {
  /** Counts the watchers of this manager. */
  let started = 0;
  return {
    start<Answer>(news: News<Answer>): JsonWatcher<Answer> {
      let at = table.initial;
      let last = 0;
      const asks = new Map<number, Ask<Answer>>();
      let waiting: Subscription | null = null;
      started += 1;
      const seat = host.tables.start(jsonWatcherMachine, `json-watcher/${started}`, () => at);

      function taken(id: number): Ask<Answer> | undefined {
        const ask = asks.get(id);
        asks.delete(id);
        return ask;
      }

      function perform({ type, params }: FlatEffect): void {
        switch (type) {
          case "answer":
            return taken((params as { readonly ask: number }).ask)?.resolve(news.take());
          case "refuse": {
            const { asks: refused, reason } = params as { asks: readonly number[]; reason: WatcherRefusal };
            for (const ask of refused) taken(ask)?.reject(news.refusal(reason));
            return;
          }
          case "awaitNews":
            waiting = news.wait(() => {
              // Changes that do not fit into one answer go into the next, if a caller is waiting.
              while (waiting !== null && news.has()) send({ type: "news.found" });
              noticeEnd();
            });
            return;
          case "stopAwaitingNews":
            waiting?.unsubscribe();
            waiting = null;
            return;
          case "release":
            return news.release();
          default:
            telemetry.log.debug({ effect: type, state: at.value }, "ignored an effect of a watcher");
        }
      }

      const coming: JsonWatcherEvent[] = [];
      let isActing = false;
      /** Handles one event at a time, including those that an effect sends. */
      function send(event: JsonWatcherEvent): void {
        coming.push(event);
        if (isActing) return;
        isActing = true;
        try {
          for (let next = coming.shift(); next !== undefined; next = coming.shift()) {
            if (at.isDone) continue;
            const { isObserved } = seat;
            if (isObserved) seat.begin();
            const [reached, effects, taken] = table.step(at, next);
            at = reached;
            for (const effect of effects) perform(effect);
            if (isObserved) seat.end(next, taken);
            if (at.isDone) seat.leave();
          }
        } finally {
          isActing = false;
        }
      }

      const noticeEnd = (): void => {
        if (news.isOver?.() === true && !news.has()) send({ type: "news.ended" });
      };

      return {
        next: () =>
          new Promise((resolve, reject) => {
            if (at.isDone) return reject(news.refusal("asked"));
            noticeEnd();
            last += 1;
            asks.set(last, { resolve, reject });
            send({ type: "next.requested", ask: last, hasNews: news.has() });
          }),
        stop: () => send({ type: "stop.requested" }),
        close: () => send({ type: "connection.closed" }),
      };
    },
  };
}
