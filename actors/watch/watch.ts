/**
 * The Watch service: every manager streams the changes of its own replica. One message per transaction, with its version, so
 * that a client knows its position and can resume from it at any manager (`machines/watch/watch.machine.ts`).
 *
 * L1: neither one watcher nor all of them together make memory grow without bound: a watcher that reads too slowly is cut off.
 */
import { scheduleKind } from "../../machines/orchestration/jobs/runs.ts";
import { watchEntriesMax, watchFilter, type WatchFilter } from "../../machines/watch/filter.ts";
import { WatchRequest, type WatchService } from "../../proto/gen/messages.ts";
import type { Blobs, Log } from "../../runtime/ports/index.ts";
import { RpcError, Status, type ServiceHandlers, type CallSignal } from "../../runtime/ports/rpc.ts";
import type { Commit } from "../../runtime/store/store.ts";
import { rejection } from "../control/answer.ts";
import type { Environment, Running } from "../environment.ts";
import { Fanout, type Question } from "./fanout.ts";
import { RecentCommits, recentBytesMax } from "./recent.ts";
import { Replays } from "./replay.ts";
import { WatchStream, type WatchShared } from "./stream.ts";

export { watchBufferBytesMax } from "./stream.ts";

/** Ten times the most watchers known of any cluster; each costs about 10 kB. */
const watchersMax = 10_000;
/** Maximum unread bytes of all watchers together; watchers of one question share the same bytes, which count once. */
export const watchersBufferBytesMax = 256 * 1024 * 1024;
/** Interval of checking that limit, in milliseconds, while there are commits. */
const budgetEveryMs = 100;
/**
 * Maximum unread bytes of a watcher during a replay: enough to stay busy between two checks, and, when many replay at once such
 * as after a crash of a manager, its share of a quarter of the limit for all.
 */
const roomBytes = { min: 16 * 1024, max: 1024 * 1024, all: watchersBufferBytesMax / 4 } as const;

/** Where the history is stored. */
export interface Retained {
  readonly log: Log;
  readonly blobs: Blobs;
}

export interface WatchOptions {
  /** For tests. */
  readonly recentBytesMax?: number;
}

export interface Watch extends Running {
  readonly handlers: ServiceHandlers<typeof WatchService>;
  /** Number of open streams. */
  readonly size: () => number;
}

export function createWatch(env: Environment, { log, blobs }: Retained, options: WatchOptions = {}): Watch {
  const { store, clock, host, telemetry } = env;
  const streams = new Set<WatchStream>();
  const ahead = new Set<WatchStream>();
  const live = new Fanout();
  const recent = new RecentCommits(store.version, options.recentBytesMax ?? recentBytesMax);
  const replays = new Replays({ log, blobs, clock, telemetry, recent });
  const open = telemetry.metrics.gauge("muster_watchers", "Open watch streams.");
  const told = telemetry.metrics.counter("muster_watch_messages_total", "Messages sent to live watchers.");
  const ended = telemetry.metrics.counter(
    "muster_watch_endings_total",
    "Watch streams ended by the manager, by reason.",
  );
  let isStopped = false;
  let opened = 0;
  let budgetAt = 0;

  const shared: WatchShared = {
    host,
    clock,
    store,
    log,
    recent,
    live,
    replays,
    ahead,
    roomBytes: () =>
      Math.max(roomBytes.min, Math.min(roomBytes.max, roomBytes.all / Math.max(1, streams.size - live.size))),
    onReleased: (stream, ending) => {
      streams.delete(stream);
      open.set(streams.size);
      if (ending === null) return;
      ended.add(1, { why: ending });
      telemetry.log.debug({ watcher: stream.id, why: ending, version: stream.position }, "ended a watch");
    },
  };

  const watching = store.watch((commit) => onCommit(commit));

  function onCommit(commit: Commit): void {
    // The commit comes from a snapshot, maybe of the very next version: the changes and their order are unknown.
    if (commit.writer === undefined || commit.version !== recent.version + 1) {
      recent.restart(commit.version);
      for (const stream of streams) stream.onJumped();
    } else {
      recent.push(commit);
      const handed = live.tell(commit);
      if (handed > 0) told.add(handed);
    }
    if (ahead.size > 0) for (const stream of ahead) stream.onVersion(commit.version);
    if (streams.size > 0 && clock.monotonic() - budgetAt >= budgetEveryMs) {
      budgetAt = clock.monotonic();
      keepBudget();
    }
  }

  /** L1: cuts off the watchers furthest behind until the rest is within the limit. */
  function keepBudget(): void {
    const waiting = new Map<string, number>();
    let total = 0;
    for (const stream of streams) {
      const bytes = stream.bufferedBytes();
      if (bytes === 0) continue;
      if (!stream.isLive) {
        // Limited by its own buffer; its messages are not shared.
        total += bytes;
        continue;
      }
      const before = waiting.get(stream.question.key) ?? 0;
      if (bytes <= before) continue;
      waiting.set(stream.question.key, bytes);
      total += bytes - before;
    }
    if (total <= watchersBufferBytesMax) return;
    for (const [key, bytes] of [...waiting].toSorted(([, a], [, b]) => b - a)) {
      if (total <= watchersBufferBytesMax / 2) return;
      total -= bytes;
      for (const stream of streams) {
        if (stream.question.key === key && stream.bufferedBytes() > bytes / 2) stream.cutOff();
      }
    }
  }

  function filtersOf(request: WatchRequest): readonly WatchFilter[] {
    const { entries } = request;
    if (entries.length === 0) throw new RpcError(Status.INVALID_ARGUMENT, "no kind of object specified");
    if (entries.length > watchEntriesMax) {
      throw new RpcError(Status.INVALID_ARGUMENT, `too many entries: ${entries.length}, limit ${watchEntriesMax}`);
    }
    return entries.map((entry) => {
      const outcome = watchFilter(entry, isResourceKind);
      if (outcome.kind === "refused") throw rejection(outcome.refusal);
      return outcome.filter;
    });
  }

  /** True for a kind that an extension registered, or that Muster itself uses. */
  function isResourceKind(kind: string): boolean {
    return kind === scheduleKind || store.byName("extension", kind)?.annotations?.name === kind;
  }

  function questionOf(request: WatchRequest): Question {
    const filters = filtersOf(request);
    const key = Buffer.from(WatchRequest.encode(WatchRequest.patch(request, { resumeFrom: null }))).toString("latin1");
    return { key, filters, includesOld: request.includeOldObject };
  }

  return {
    size: () => streams.size,
    handlers: {
      Watch(request, sink, call) {
        if (isStopped) throw new RpcError(Status.UNAVAILABLE, "the manager is stopping: watch another");
        const question = questionOf(request);
        if (streams.size >= watchersMax) {
          throw new RpcError(Status.RESOURCE_EXHAUSTED, `this manager already has ${watchersMax} watchers`);
        }
        if (call.signal.aborted) return;
        const from = request.resumeFrom?.index ?? null;
        openStream({ question, from, sink }, call.signal);
      },
    },
    stop: () => {
      isStopped = true;
      watching.unsubscribe();
      for (const stream of streams) stream.onManagerStopped();
      replays.stop();
    },
  };

  function openStream(wanted: ConstructorParameters<typeof WatchStream>[2], signal: CallSignal): void {
    const stream = new WatchStream(shared, (opened += 1), wanted);
    if (stream.isOver) return;
    streams.add(stream);
    open.set(streams.size);
    signal.addEventListener("abort", () => stream.onCallerGone(), { once: true });
    // The caller may have left on its first message.
    if (signal.aborted) stream.onCallerGone();
  }
}
