/**
 * The feed of one process: its actors, and each step that they take, to any number of listeners in the process.
 *
 * PF1: without a listener, the host has no observer.
 * PF2: nothing that a listener does or fails to do slows an actor down: steps are noted as they happen, and sent later in batches.
 * PF3: a listener that throws is closed, and the others go on.
 * PF4: a recorder gets each step as it happens: nothing is kept for it, and it never waits.
 */
import { ActorSelection, type ActorFeed, type ActorStep } from "../../proto/gen/messages.ts";
import type { Host } from "../../runtime/host.ts";
import type { ObservedStep } from "../../runtime/observation/step.ts";
import type { Clock, Subscription, Telemetry, TimerHandle } from "../../runtime/ports/index.ts";
import type { Running } from "../environment.ts";
import { contentBytesMax, FeedLine, type FeedSource } from "./feed-line.ts";
import type { FeedListener } from "./feed-listener.ts";
import { changesContext, fittingStep, stepFields } from "./feed-messages.ts";

/** Milliseconds from a step to its message: one message has many steps, and a viewer sees no delay. */
const flushMs = 50;

/** Characters of a step's context and fields with which it certainly fits a message. */
const smallChars = 8 * 1024;

export type { FeedListener };

export interface FeedHandle {
  /** Sends a snapshot again, because messages were lost. */
  again(): void;
  /** A second call does nothing. */
  close(): void;
}

/** Keeps the whole feed, as the ring of the last minutes does. Its methods do not throw. */
interface FeedRecorder {
  /** Part of the snapshot. */
  onFeed(feed: ActorFeed): void;
  onStep(step: ActorStep): void;
  /** A step cannot be shown. */
  onMissing(): void;
}

export interface ProcessFeed extends Running {
  /** `manager-ID` or `node-ID`. */
  readonly process: string;
  /** Of the selection, only `actors` and `withoutSteps` count. The snapshot follows in a later turn. */
  listen(selection: ActorSelection, listener: FeedListener): FeedHandle;
}

interface RecordableFeed extends ProcessFeed {
  /** Gives a snapshot now, and then each step. PF4 */
  record(recorder: FeedRecorder): Subscription;
}

interface ProcessFeedOptions {
  readonly host: Host;
  readonly clock: Clock;
  readonly telemetry: Pick<Telemetry, "log">;
  readonly process: string;
  /** Hostname of the process's node; empty if unknown. */
  readonly hostname: string;
  /** Steps that wait for one listener; by default `pendingStepsMax`. */
  readonly pendingMax?: number;
}

export function createProcessFeed(options: ProcessFeedOptions): RecordableFeed {
  const { host, clock, process, hostname, pendingMax } = options;
  const lines = new Set<FeedLine>();
  const recorders = new Set<FeedRecorder>();
  let observing: Subscription | null = null;
  let timer: TimerHandle | null = null;
  const source: FeedSource = {
    clock,
    process,
    hostname,
    *ids() {
      yield* host.ids();
      yield* host.tables.ids();
    },
    look: (id) => host.look(id),
  };

  function arm(): void {
    timer ??= clock.setTimeout(flush, flushMs);
  }

  function flush(): void {
    timer = null;
    let isWaiting = false;
    for (const line of lines)
      try {
        if (line.flush()) isWaiting = true;
      } catch (error) {
        // PF3
        options.telemetry.log.error({ error: String(error) }, "a listener of the actors' feed failed: closed");
        close(line);
      }
    if (isWaiting) arm();
  }

  function close(line: FeedLine): void {
    if (!lines.delete(line) || lines.size > 0) return;
    if (timer !== null) clock.clearTimeout(timer);
    timer = null;
    endUnwatched();
  }

  /** PF1 */
  function endUnwatched(): void {
    if (lines.size + recorders.size > 0) return;
    observing?.unsubscribe();
    observing = null;
  }

  function observe(): Subscription {
    return host.observe((step) => {
      for (const recorder of recorders) record(recorder, step);
      if (lines.size === 0) return;
      for (const line of lines) line.take(step);
      // The process ends, and no timer fires any more.
      if (step.status === "error") flush();
      else arm();
    });
  }

  /** PF4 */
  function record(recorder: FeedRecorder, step: ObservedStep): void {
    let message: ActorStep;
    try {
      message = stepFields(step, changesContext(step), 0);
      if (message.context.length + message.fields.length > smallChars) message = fittingStep(message, contentBytesMax);
    } catch {
      return recorder.onMissing();
    }
    recorder.onStep(message);
  }

  return {
    process,
    listen(selection, listener) {
      observing ??= observe();
      const line = new FeedLine(source, selection, listener, pendingMax);
      lines.add(line);
      arm();
      return {
        again() {
          line.again();
          if (lines.has(line)) arm();
        },
        close: () => close(line),
      };
    },
    record(recorder) {
      observing ??= observe();
      const line = new FeedLine(source, ActorSelection.create(), {
        ready: () => true,
        onFeed: (feed) => recorder.onFeed(feed),
      });
      while (line.flush());
      recorders.add(recorder);
      return {
        unsubscribe() {
          recorders.delete(recorder);
          endUnwatched();
        },
      };
    },
    stop() {
      recorders.clear();
      for (const line of lines) close(line);
      endUnwatched();
    },
  };
}
