/**
 * One log subscription at its home: hosts its chart, watches its selection, and forwards the nodes' output. A delivery is
 * answered at once with whether there is space; nothing is queued here beyond the follower's own stream.
 *
 * LH1: at most `followerBytesMax` and one batch wait for a follower.
 * LH2: a line is forwarded once, even if its node was asked again after it was lost.
 */
import type { Span } from "@opentelemetry/api";
import {
  logSubscriptionMachine,
  type LogEnd,
  type LogSubscriptionEvent,
} from "../../machines/logs/subscription.machine.ts";
import type { HeldNode, LogNodes } from "../../machines/logs/nodes.ts";
import { noticeAttribute } from "../../machines/logs/publish.ts";
import { isSelected, selectLogs } from "../../machines/logs/selection.ts";
import {
  LogAttr,
  LogAsk,
  LogContext,
  LogMessage,
  LogStream,
  SubscribeLogsMessage,
  Timestamp,
  type LogDelivery,
  type LogSelector,
  type LogSubscriptionOptions,
} from "../../proto/gen/messages.ts";
import { joinedLines, LineCursor, type LineContext, type LogLines } from "../../proto/log-lines.ts";
import type { HostedActor } from "../../runtime/host.ts";
import type { Subscription, TimerHandle } from "../../runtime/ports/index.ts";
import { RpcError, Status, type Sink } from "../../runtime/ports/rpc.ts";
import type { Commit } from "../../runtime/store/store.ts";
import { spans } from "../../runtime/telemetry/spans.ts";
import { traceparentOf } from "../../runtime/telemetry/tracing.ts";
import type { Environment } from "../environment.ts";
import { describeSpan, endSpan, startSpan } from "../tracing.ts";
import type { Fate } from "./outlet.ts";

/** Maximum unread bytes of a follower: a few round trips at 100 MB/s. */
export const followerBytesMax = 4 * 1024 * 1024;
/** A follower without space for this long, in milliseconds, is cut off: longer than a person pauses a terminal to read. */
export const followerStalledMsMax = 120_000;
/** Tasks change in bursts: the selection is computed once for all changes within this time, in milliseconds. */
const selectionMs = 100;
/** Number of node streams whose last delivery is remembered: more than a follower sees while one message is in transit. */
const streamsMax = 10_000;
/** Number of outputs whose last time is remembered, before those of removed tasks are dropped. */
const lastTimesMax = 4_096;

/** Time of the last line of one output, according to its lines. */
interface LastTime {
  context: LineContext;
  readonly stream: number;
  seconds: number | null;
  nanos: number;
  streamId: string;
  /** The same when this stream started or resumed: repeated lines are not later. Several lines may have the same time. */
  before: { readonly seconds: number; readonly nanos: number } | null;
}

interface HomeOptions {
  readonly id: string;
  readonly selector: LogSelector;
  readonly options: LogSubscriptionOptions;
  readonly sink: Sink<LogLines>;
  /** Trace context of the caller; empty: none. */
  readonly traceparent: string;
  /** Publishes to all managers; `asks` are the nodes that are not over. */
  readonly announce: (home: LogHome, asks: readonly LogAsk[], close: boolean) => void;
  readonly onEnded: (home: LogHome, end: LogEnd) => void;
}

export class LogHome {
  readonly id: string;
  readonly selector: LogSelector;
  readonly options: LogSubscriptionOptions;
  readonly #env: Environment;
  readonly #home: HomeOptions;
  readonly #actor: HostedActor<typeof logSubscriptionMachine>;
  readonly #watching: Subscription | null = null;
  readonly #taken = new Map<string, number>();
  readonly #span: Span;
  /** The span's W3C trace context; empty if it is not recorded. */
  readonly traceparent: string;
  #sentBytes = 0;
  /** Time of the last line by node, task and stream. Only for followers. LH2 */
  readonly #lastTimes = new Map<string, Map<string, LastTime>>();
  readonly #bytes;
  #selecting: TimerHandle | null = null;
  #fullSince: number | null = null;
  #isEnded = false;

  constructor(env: Environment, home: HomeOptions) {
    this.#env = env;
    this.#home = home;
    this.id = home.id;
    this.selector = home.selector;
    this.options = home.options;
    this.#span = startSpan(env, spans.logsSubscribe, home.traceparent);
    this.traceparent = traceparentOf(this.#span);
    this.#bytes = env.telemetry.metrics.counter(
      "muster_log_bytes_total",
      "Bytes of task output sent to subscribers, including each line's source and time.",
    );
    const { follow } = home.options;
    this.#actor = env.host.start(
      logSubscriptionMachine,
      `log-subscription/${home.id}`,
      { follow },
      {
        effects: {
          announce: ({ close, nodes }) => this.#announce(nodes, close),
          tellMissing: ({ reasons }) => this.#tellMissing(reasons),
          finish: (end) => this.#finish(end),
        },
      },
    );
    if (follow) this.#watching = env.store.watch((commit) => this.#onCommit(commit));
  }

  /** To be called once it is registered: an announcement may be answered at once. */
  begin(): void {
    this.#select();
  }

  send(event: LogSubscriptionEvent): void {
    if (!this.#isEnded) this.#actor.send(event);
  }

  held(nodes: readonly HeldNode[], holder: string): void {
    if (nodes.length > 0) this.send({ type: "nodes.held", held: nodes, holder });
  }

  /** LH1 */
  take(delivery: LogDelivery): Fate {
    const { attempt, end, error, holder, lines, nodeId, number, probe, slow, streamId } = delivery;
    if (this.#isEnded) return "gone";
    const node = this.#actor.snapshot.context.nodes[nodeId];
    if (node === undefined || node.attempt !== attempt || node.phase === "ended" || node.phase === "lost")
      return "gone";
    // Its output may arrive before its manager's answer that it holds the subscription; the first of two managers counts.
    if (node.holder === "") this.held([{ nodeId, attempt }], holder);
    else if (node.holder !== holder) return "gone";
    const isFull = this.#home.sink.bufferedBytes() > followerBytesMax;
    if (probe || (isFull && !end)) {
      if (isFull) this.#fullSince ??= this.#env.clock.monotonic();
      return isFull ? "full" : "taken";
    }
    this.#fullSince = null;
    if (number <= (this.#taken.get(streamId) ?? 0)) return "taken";
    this.#taken.set(streamId, number);
    // A repeated message of a stream that ended long ago must not look new, but need not be remembered forever.
    if (this.#taken.size > streamsMax) this.#taken.delete(this.#taken.keys().next().value ?? "");
    if (lines.length > 0) this.#pass(nodeId, streamId, lines as LogLines);
    if (!end) return "taken";
    if (slow) this.send({ type: "follower.stalled", limit: "nodes are waiting for it with full connections" });
    else this.send({ type: "node.ended", nodeId, attempt, error });
    return "taken";
  }

  #pass(nodeId: string, streamId: string, lines: LogLines): void {
    const passed = this.options.follow ? this.#onlyNew(nodeId, streamId, lines) : lines;
    if (passed.length === 0) return;
    this.#bytes.add(passed.length);
    this.#sentBytes += passed.length;
    this.#home.sink.write(passed);
  }

  /**
   * LH2: an engine that is asked again repeats its tasks' output from the requested time; so does a node that received the same
   *      request in two sessions, in two streams at once.
   */
  #onlyNew(nodeId: string, streamId: string, lines: LogLines): LogLines {
    let times = this.#lastTimes.get(nodeId);
    if (times === undefined) this.#lastTimes.set(nodeId, (times = new Map<string, LastTime>()));
    const cursor = new LineCursor(lines);
    const kept: LogLines[] = [];
    let from = 0;
    let output: LastTime | undefined;
    while (cursor.next()) {
      const { context, nanos, seconds, stream } = cursor;
      if (output?.context !== context || output.stream !== stream) {
        const key = `${context.taskId}/${stream}`;
        output = times.get(key);
        if (output === undefined) times.set(key, (output = newTime(context, stream, streamId)));
        output.context = context;
        if (output.streamId !== streamId) {
          output.streamId = streamId;
          output.before = output.seconds === null ? null : { seconds: output.seconds, nanos: output.nanos };
        }
      }
      const { before } = output;
      if (before !== null && seconds !== null && (seconds - before.seconds || nanos - before.nanos) <= 0) {
        if (cursor.start > from) kept.push(lines.subarray(from, cursor.start));
        from = cursor.end;
        continue;
      }
      if (seconds !== null) [output.seconds, output.nanos] = [seconds, nanos];
    }
    if (lines.length > from) kept.push(lines.subarray(from));
    if (times.size > lastTimesMax) {
      for (const [key, { context }] of times)
        if (this.#env.store.get("task", context.taskId) === undefined) times.delete(key);
    }
    return joinedLines(kept);
  }

  #announce(nodes: LogNodes, close: boolean): void {
    const asks: LogAsk[] = [];
    for (const [nodeId, { attempt, holder, phase }] of Object.entries(nodes)) {
      if (phase === "ended" || phase === "lost") continue;
      asks.push(LogAsk.create({ nodeId, attempt, holder, since: attempt === 1 ? null : this.#since(nodeId) }));
    }
    const { clock } = this.#env;
    // Deferred out of the transition: an answer of this process would come before it is over.
    clock.soon(() => {
      if (this.#isEnded) return;
      this.#home.announce(this, asks, close);
      if (this.#fullSince !== null && clock.monotonic() - this.#fullSince > followerStalledMsMax)
        this.send({ type: "follower.stalled", limit: `it has not read for ${followerStalledMsMax / 1_000} s` });
    });
  }

  /** The earliest of the last times: everything written before has arrived. */
  #since(nodeId: string): Timestamp | null {
    let first: LastTime | null = null;
    for (const time of this.#lastTimes.get(nodeId)?.values() ?? [])
      if (time.seconds !== null && (first === null || isEarlier(time, first))) first = time;
    return first === null ? null : Timestamp.create({ seconds: first.seconds ?? 0, nanos: first.nanos });
  }

  #tellMissing(reasons: readonly string[]): void {
    if (reasons.length === 0) return;
    const messages = reasons.map((reason) =>
      LogMessage.create({
        context: LogContext.create({}),
        stream: LogStream.LOG_STREAM_UNKNOWN,
        data: new TextEncoder().encode(`${reason}\n`),
        attrs: [LogAttr.create({ key: noticeAttribute, value: "missing" })],
      }),
    );
    this.#home.sink.write(SubscribeLogsMessage.encode(SubscribeLogsMessage.create({ messages })));
  }

  #onCommit(commit: Commit): void {
    if (this.#selecting !== null || !commit.changes.some((change) => this.#concerns(change))) return;
    this.#selecting = this.#env.clock.setTimeout(() => {
      this.#selecting = null;
      this.#select();
    }, selectionMs);
  }

  #concerns({ action, object, table }: Commit["changes"][number]): boolean {
    const { nodeIds, serviceIds } = this.selector;
    switch (table) {
      case "task":
        return isSelected(this.selector, object);
      case "service":
        return action === "remove" && serviceIds.includes(object.id);
      case "node":
        return action === "remove" && nodeIds.includes(object.id);
      default:
        return false;
    }
  }

  #select(): void {
    if (this.#isEnded) return;
    this.send({ type: "selection.changed", ...selectLogs(this.selector, this.#env.store, this.options.follow) });
  }

  #finish(end: LogEnd): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    const { clock } = this.#env;
    if (this.#selecting !== null) clock.clearTimeout(this.#selecting);
    this.#watching?.unsubscribe();
    const { sink } = this.#home;
    const error = failureOf(end);
    if (this.#span.isRecording()) describeSpan(this.#span, spans.logsSubscribe, { "muster.bytes": this.#sentBytes });
    endSpan(this.#env, this.#span, error?.message ?? null);
    if (error === null) sink.end();
    else sink.end(error);
    clock.soon(() => this.#actor.stop());
    this.#home.onEnded(this, end);
  }
}

function failureOf(end: LogEnd): RpcError | null {
  switch (end.kind) {
    case "complete":
    case "left":
      return null;
    case "incomplete":
      // The code that grpc-go uses for SwarmKit's plain error.
      return new RpcError(Status.UNKNOWN, end.warning);
    case "stalled":
      return new RpcError(Status.RESOURCE_EXHAUSTED, `the follower reads too slowly: ${end.limit}`);
    case "stopped":
      return new RpcError(Status.UNAVAILABLE, "log broker is stopped");
  }
}

function newTime(context: LineContext, stream: number, streamId: string): LastTime {
  return { context, stream, seconds: null, nanos: 0, streamId, before: null };
}

function isEarlier(a: LastTime, b: LastTime): boolean {
  return ((a.seconds ?? 0) - (b.seconds ?? 0) || a.nanos - b.nanos) < 0;
}
