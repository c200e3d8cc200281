/** The call of `Inspection.Watch`: applies the feed to a model of the actors, and says what is new. */
import type { Actor, Actors, Process } from "../../proto/feed/actors.ts";
import {
  InspectionService,
  WatchActorsRequest,
  type ActorFeed,
  type ActorSelection,
  type ActorStep,
} from "../../proto/gen/messages.ts";
import type { RpcChannel, RpcError } from "../../runtime/ports/rpc.ts";
import { UserError } from "../../lib/user-error.ts";

/**
 * Milliseconds without another process or snapshot after which the answers are complete, once the processes that are expected have
 * answered: others may come, such as a manager that has just joined.
 */
const quietMs = 400;
/** The same while an expected process is missing: an agent's answer passes two processes on its way, and one that hangs gives none. */
const missingMs = 2_000;
/** Milliseconds after which a command goes on without snapshots that are unfinished, and says so. */
const answersMs = 5_000;

export type News =
  /** Its whole state, in a snapshot. */
  | { readonly kind: "actor"; readonly process: Process; readonly actor: Actor }
  | { readonly kind: "step"; readonly process: Process; readonly step: ActorStep }
  | { readonly kind: "ended"; readonly process: Process; readonly actor: string }
  /** Steps that the feed left out because this command was too slow for it. */
  | { readonly kind: "dropped"; readonly process: Process; readonly steps: number }
  /** Messages were lost: a snapshot follows. */
  | { readonly kind: "gap"; readonly process: Process }
  | { readonly kind: "lost"; readonly process: Process; readonly reason: string };

interface WatchOptions {
  readonly channel: RpcChannel;
  readonly selection: ActorSelection;
  readonly actors: Actors;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Ids of the processes that should answer; default: unknown. */
  readonly expected?: () => Iterable<string>;
  readonly onNews?: (news: News) => void;
}

interface ActorWatch {
  /** Resolves when the processes have sent their snapshots; rejects if the call fails before. */
  readonly settled: Promise<void>;
  /** Resolves at the end of the call. */
  readonly ended: Promise<RpcError | UserError>;
  cancel(): void;
}

/** Applies one message, and yields its news in order. */
export function* newsOf(actors: Actors, feed: ActorFeed, nowMs: number): Iterable<News> {
  const gaps = actors.processes.get(feed.process)?.gaps ?? 0;
  actors.apply(feed, nowMs);
  const process = actors.processes.get(feed.process) as Process;
  const { snapshot } = feed;
  if (process.gaps > gaps) yield { kind: "gap", process };
  if (feed.droppedSteps > 0) yield { kind: "dropped", process, steps: feed.droppedSteps };
  if (snapshot?.ends === true && !process.stale)
    for (const actor of process.actors.values()) yield { kind: "actor", process, actor };
  else if (snapshot !== null && process.incoming === null && !process.stale)
    for (const { actor: id } of snapshot.actors) {
      const actor = process.actors.get(id);
      if (actor !== undefined) yield { kind: "actor", process, actor };
    }
  for (const step of feed.steps) yield { kind: "step", process, step };
  for (const actor of feed.ended) yield { kind: "ended", process, actor };
  if (feed.lost !== "") yield { kind: "lost", process, reason: feed.lost };
}

export function watchActors({ channel, selection, actors, now, expected, onNews }: WatchOptions): ActorWatch {
  const settled = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<RpcError | UserError>();
  settled.promise.catch(() => undefined);
  let quiet: NodeJS.Timeout | null = null;
  const latest = setTimeout(() => {
    if (actors.processes.size > 0) settled.resolve();
    else settled.reject(new UserError(`the manager sent no actors within ${answersMs / 1_000} s: try again`));
  }, answersMs);
  const stop = (): void => {
    clearTimeout(latest);
    if (quiet !== null) clearTimeout(quiet);
  };

  function wait(): void {
    if (quiet !== null) clearTimeout(quiet);
    const processes = [...actors.processes.values()];
    const isWhole = processes.every(({ stale, lost }) => !stale || lost !== "");
    if (!isWhole) return;
    const isMissing = [...(expected?.() ?? [])].some((id) => !actors.processes.has(id));
    quiet = setTimeout(settled.resolve, isMissing ? missingMs : quietMs);
  }

  const request = WatchActorsRequest.create({ selection });
  const stream = channel.serverStream(InspectionService.methods.Watch, request, {
    onMessage(feed) {
      const known = actors.processes.size;
      for (const news of newsOf(actors, feed, now())) onNews?.(news);
      // Steps and signs of life come all the time.
      if (feed.snapshot !== null || feed.lost !== "" || actors.processes.size > known) wait();
    },
    onEnd(error) {
      stop();
      const failure = error ?? new UserError("the manager ended the feed of actors: is it shutting down?");
      settled.reject(failure);
      ended.resolve(failure);
    },
  });
  void settled.promise.then(stop, stop);
  return {
    settled: settled.promise,
    ended: ended.promise,
    cancel() {
      stop();
      stream.cancel();
    },
  };
}

/** Remarks about processes whose actors are missing or not current. `expected`: those that should answer, with their hostnames. */
export function shortcomings(actors: Actors, expected: ReadonlyMap<string, string>): readonly string[] {
  const nameOf = (id: string, hostname: string): string => (hostname === "" ? id : `${id} on ${hostname}`);
  const known = [...actors.processes.values()].flatMap(({ id, hostname, lost, stale }) => {
    const name = nameOf(id, hostname === "" ? (expected.get(id) ?? "") : hostname);
    if (lost !== "") return [`${name} cannot be watched: ${lost}`];
    return stale ? [`${name} has not sent all of its actors`] : [];
  });
  const silent = [...expected].filter(([id]) => !actors.processes.has(id));
  return [...known, ...silent.map(([id, hostname]) => `${nameOf(id, hostname)} has not answered`)];
}
