/** Watchers of the JSON API as its edge uses them: the edge decides what to report, an actor decides when. */
import type { Subscription } from "./index.ts";

/** The source of a watcher's changes. */
export interface News<Answer> {
  /** Whether something has changed since the last `take`. Cheap. */
  has(): boolean;
  /** Returns the changes and marks them as reported. */
  take(): Answer;
  /** Whether no more changes can follow. If absent, the watch never ends. */
  isOver?(): boolean;
  /** Calls back when something may have changed or the watch is over. */
  wait(wake: () => void): Subscription;
  /** Releases the source; it is not used afterwards. */
  release(): void;
  /**
   * The error for a pending request. `asked`: the client stopped the watcher; `closed`: the connection closed; `crowded`: too
   * many requests are waiting; `ended`: the watch is over.
   */
  refusal(reason: "asked" | "closed" | "crowded" | "ended"): Error;
}

export interface JsonWatcher<Answer> {
  /** Resolves once something has changed; rejects with the source's refusal. */
  next(): Promise<Answer>;
  /** The client stops the watcher. */
  stop(): void;
  /** The connection is closed. Does nothing after `stop`. */
  close(): void;
}

export interface JsonWatchers {
  start<Answer>(news: News<Answer>): JsonWatcher<Answer>;
}
