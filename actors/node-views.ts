/**
 * Views that a manager calculates for each follower node from this process's replica, and streams to it. Without followers,
 * nothing is calculated or stored.
 *
 * PL1: a node never gets a view older than its last one, from whichever manager, unless nobody has that version any more.
 * PL2: a node that does not read uses no growing memory: its view only records that something changed.
 */
import type { Span } from "@opentelemetry/api";
import type { TimerHandle } from "../runtime/ports/index.ts";
import { RpcError, Status, type CallContext, type Sink } from "../runtime/ports/rpc.ts";
import type { Environment, Running } from "./environment.ts";
import { traceparentOf } from "../runtime/telemetry/tracing.ts";
import { endSpan } from "./tracing.ts";

/** Minimum interval between two updates of a node, in milliseconds (Felix's own interval). Changes in between are merged. */
const paceMs = 10;
/** Maximum unread bytes per node; beyond it, changes are merged instead of sent. */
const unreadBytesMax = 256 * 1024;
/** Interval of checking whether the node has read or the replica has caught up, in milliseconds. */
const lookMs = 50;
/** After this time, in milliseconds, the node's version is taken for lost: the log was lost and restarted. */
const behindMsMax = 30_000;

/** One follower's pending changes. */
interface View<Update> {
  /** Changes since the last call, up to this version of the replica; null when nothing changed. */
  take(version: number): Update | null;
}

/** Fed with changes while there are followers. */
interface Calculation<Update, Of extends View<Update>> {
  /** `onDirty`: called when there are changes to take, once until they are taken. */
  follow(nodeId: string, onDirty: () => void): Of;
  unfollow(view: Of): void;
  stop(): void;
}

interface NodeViewsOptions<Update, Of extends View<Update>> {
  /** Name and help text of the gauge that counts followers. */
  readonly gauge: string;
  readonly help: string;
  /** Whether this manager's replica has caught up with the log. */
  readonly isCurrent: () => boolean;
  calculate(): Calculation<Update, Of>;
  /**
   * Starts the span of a message with changes since that version of the replica, to that node; null: nobody traces them. It ends
   * when the message is written.
   */
  startSpan?(nodeId: string, sinceVersion: number): Span | null;
  /** Splits an update into messages small enough for a stream. `traceparent`: of the message's span; empty if there is none. */
  piecesOf(update: Update, traceparent: string): readonly Update[];
}

interface NodeViews<Update> extends Running {
  /** Streams updates to the calling node until it disconnects; `known`: the version of its last update. */
  follow(known: number, sink: Sink<Update>, call: CallContext): void;
  /** Id of the calling node; throws when the caller is not a node. */
  callerOf(call: CallContext): string;
}

export function createNodeViews<Update, Of extends View<Update>>(
  env: Environment,
  { calculate, gauge: name, help, isCurrent, piecesOf, startSpan }: NodeViewsOptions<Update, Of>,
): NodeViews<Update> {
  const { clock, store, telemetry } = env;
  const streams = new Set<() => void>();
  const gauge = telemetry.metrics.gauge(name, help);
  let calculation: { readonly of: Calculation<Update, Of>; followers: number } | null = null;
  let isStopped = false;

  function callerOf({ peer: { identity } }: CallContext): string {
    if (isStopped) throw new RpcError(Status.UNAVAILABLE, "the manager is stopping");
    if (identity === null) throw new RpcError(Status.PERMISSION_DENIED, "permission denied: this call is for nodes");
    return identity.nodeId;
  }

  function follow(known: number, sink: Sink<Update>, call: CallContext): void {
    const nodeId = callerOf(call);
    let view: Of | null = null;
    let timer: TimerHandle | null = null;
    let isOver = false;
    /** Version of the replica at the last look: a change since is news. */
    let seenVersion = store.version;
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
      if (update === null) return;
      const span = startSpan?.(nodeId, seenVersion) ?? null;
      seenVersion = store.version;
      for (const piece of piecesOf(update, span === null ? "" : traceparentOf(span))) sink.write(piece);
      if (span !== null) endSpan(env, span);
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
      sink.end(new RpcError(Status.UNAVAILABLE, "the manager is stopping"));
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
