/**
 * What a manager calculates for each node that follows here, from this process's replica, and streams to it. While nobody
 * follows, nothing is calculated and nothing kept.
 *
 * PL1: a node is told nothing older than what it was told before, by whatever manager, unless nobody
 *      has that any more.
 * PL2: what a node does not read makes nothing grow: its view keeps only that something changed.
 */
import type { TimerHandle } from "../runtime/ports.ts";
import { RpcError, Status, type CallContext, type Sink } from "../runtime/rpc.ts";
import type { Environment, Running } from "./environment.ts";

/** Between two updates of a node, in milliseconds: Felix's own pace. What happens meanwhile is one update. */
const paceMs = 10;
/** What may wait for a node to read it, in bytes; beyond, its changes are merged instead of sent. */
const unreadBytesMax = 256 * 1024;
/** Between two looks whether the node has read, or the replica caught up, in milliseconds. */
const lookMs = 50;
/** After so long, in milliseconds, nobody has what the node was told: the log was lost and begun anew. */
const behindMsMax = 30_000;

/** What one follower was told and has yet to be told. */
interface View<Update> {
  /** What changed since the last time, up to that version of the replica; null when nothing did. */
  take(version: number): Update | null;
}

/** Fed with what happens, for as long as somebody follows. */
interface Calculation<Update, Of extends View<Update>> {
  /** `onDirty`: when there is something to take, once until it is taken. */
  follow(nodeId: string, onDirty: () => void): Of;
  unfollow(view: Of): void;
  stop(): void;
}

export interface NodeViewsOptions<Update, Of extends View<Update>> {
  /** Name of the gauge of how many follow, and what it says. */
  readonly gauge: string;
  readonly help: string;
  /** Whether this manager's replica has caught up with the log. */
  readonly isCurrent: () => boolean;
  calculate(): Calculation<Update, Of>;
  /** In sizes that a stream can carry. */
  piecesOf(update: Update): readonly Update[];
}

export interface NodeViews<Update> extends Running {
  /** Tells the calling node until it goes; `known`: the version of what it was told last. */
  follow(known: number, sink: Sink<Update>, call: CallContext): void;
  /** Id of the node that calls; throws for who is none. */
  callerOf(call: CallContext): string;
}

export function createNodeViews<Update, Of extends View<Update>>(
  { clock, store, telemetry }: Environment,
  { calculate, gauge: name, help, isCurrent, piecesOf }: NodeViewsOptions<Update, Of>,
): NodeViews<Update> {
  const streams = new Set<() => void>();
  const gauge = telemetry.metrics.gauge(name, help);
  let calculation: { readonly of: Calculation<Update, Of>; followers: number } | null = null;
  let isStopped = false;

  function callerOf({ peer: { identity } }: CallContext): string {
    if (isStopped) throw new RpcError(Status.UNAVAILABLE, "the manager is stopped");
    if (identity === null) throw new RpcError(Status.PERMISSION_DENIED, "this is told to nodes only");
    return identity.nodeId;
  }

  function follow(known: number, sink: Sink<Update>, call: CallContext): void {
    const nodeId = callerOf(call);
    let view: Of | null = null;
    let timer: TimerHandle | null = null;
    let isOver = false;
    const begunMs = clock.monotonic();

    const wait = (ms: number): void => {
      timer = clock.setTimeout(look, ms);
    };
    const begin = (): Of => {
      calculation ??= { of: calculate(), followers: 0 };
      calculation.followers += 1;
      gauge.set(calculation.followers);
      return calculation.of.follow(nodeId, () => {
        if (timer === null) wait(paceMs);
      });
    };
    function look(): void {
      timer = null;
      if (isOver) return;
      // PL1, PL2
      const isBehind = store.version < known && clock.monotonic() - begunMs < behindMsMax;
      if (!isCurrent() || isBehind || sink.bufferedBytes() > unreadBytesMax) {
        wait(lookMs);
        return;
      }
      view ??= begin();
      const update = view.take(store.version);
      if (update !== null) for (const piece of piecesOf(update)) sink.write(piece);
    }
    const end = (): void => {
      if (isOver) return;
      isOver = true;
      streams.delete(stop);
      if (timer !== null) clock.clearTimeout(timer);
      if (view === null || calculation === null) return;
      calculation.of.unfollow(view);
      calculation.followers -= 1;
      gauge.set(calculation.followers);
      if (calculation.followers > 0) return;
      calculation.of.stop();
      calculation = null;
    };
    const stop = (): void => {
      end();
      sink.end(new RpcError(Status.UNAVAILABLE, "the manager is stopped"));
    };
    streams.add(stop);
    call.signal.addEventListener("abort", end, { once: true });
    if (call.signal.aborted) end();
    else look();
  }

  return {
    follow,
    callerOf,
    stop: () => {
      isStopped = true;
      for (const stop of streams) stop();
    },
  };
}
