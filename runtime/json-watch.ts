/** Watchers of the JSON API, as its edge uses them: what there is to tell is the edge's, when it is told an actor's. */
import type { Subscription } from "./ports.ts";

/** What a watcher watches. */
export interface News<Answer> {
  /** Whether something has changed since `take`. Cheap. */
  has(): boolean;
  /** What has, and the watcher has been told it from now on. */
  take(): Answer;
  /** Whether there will be nothing more; never, when absent. */
  isOver?(): boolean;
  /** Calls back when something may have changed, or is over. */
  wait(wake: () => void): Subscription;
  /** Nobody will ask any more. */
  release(): void;
  /**
   * What an ask that is not answered is told. `asked`: the client stopped it; `closed`: the connection ends; `crowded`: too
   * many wait; `ended`: it is over.
   */
  refusal(reason: "asked" | "closed" | "crowded" | "ended"): Error;
}

export interface JsonWatcher<Answer> {
  /** Resolves once something has changed; rejects with the news' refusal. */
  next(): Promise<Answer>;
  /** Its client wants no more. */
  stop(): void;
  /** The connection is gone. After `stop` does nothing. */
  close(): void;
}

export interface JsonWatchers {
  start<Answer>(news: News<Answer>): JsonWatcher<Answer>;
}
