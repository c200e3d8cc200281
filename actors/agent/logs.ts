/**
 * Output of the node's tasks for log subscriptions: one PublishLogs stream per subscription, fed by a reader for each selected
 * task. Data bypasses the statecharts.
 *
 * AL1: no more is read than the manager has space to accept: a stream holds `sendBytesMax` and one more message.
 * AL2: a follower's subscription that returns after a lost session resumes where it was, within `resumeMs`.
 * AL3: a task is read once per subscription, also when it is assigned meanwhile.
 * AL4: a stream ends as complete only if all output was sent. Otherwise it is reset, which SwarmKit's managers, too, report to the
 *      reader as missing output.
 */
import type { Span } from "@opentelemetry/api";
import { unreadable } from "../../machines/logs/nodes.ts";
import { noticeAttribute } from "../../machines/logs/publish.ts";
import { isSelected } from "../../machines/logs/selection.ts";
import { subscriptionOfNode } from "../../machines/logs/subscription-id.ts";
import { timeMs, timestampOf } from "../../proto/time.ts";
import {
  LogAttr,
  LogBrokerService,
  LogContext,
  LogMessage,
  LogSelector,
  LogStream,
  LogSubscriptionOptions,
  PublishLogsMessage,
  type PublishLogsResponse,
  type SubscriptionMessage,
} from "../../proto/gen/messages.ts";
import type { RpcChannel, SendingCall } from "../../runtime/ports/rpc.ts";
import { spans } from "../../runtime/telemetry/spans.ts";
import { continueSpan, describeSpan, endSpan } from "../tracing.ts";
import type { AgentPorts, OutputLine, OutputPosition, OutputReader, OutputRequest } from "./ports.ts";

/** Maximum unsent bytes of one subscription: twice a reader's chunk. */
const sendBytesMax = 128 * 1024;
/** Interval of checking whether the manager has read the data, in milliseconds. */
const roomLookMs = 5;
/**
 * How long a follower's position is kept after its session was lost, in milliseconds: longer than rebuilding a session takes.
 */
const resumeMs = 60_000;
/**
 * How long remaining output is still sent after the manager's close, in milliseconds; then the stream is reset (AL4). Shorter than
 * managers wait (`closingTicksMax`).
 */
const closingMs = 3_000;

/** The output of one task. */
export interface LogSource {
  readonly taskId: string;
  readonly serviceId: string;
  /** Null when the task's driver provides no output. */
  read(request: Omit<OutputRequest, "isOver">): OutputReader | null;
}

interface Live {
  readonly id: string;
  /** As the manager names it in its messages. */
  readonly named: string;
  /** Null: nobody traces it. */
  readonly span: Span | null;
  readonly selector: LogSelector;
  readonly options: LogSubscriptionOptions;
  readonly stream: SendingCall<PublishLogsMessage, PublishLogsResponse>;
  readonly readers: Map<string, OutputReader | null>;
  readonly places: ReadonlyMap<string, OutputPosition>;
  /** Number of active readers. */
  reading: number;
  follow: boolean;
  /** Whether some output cannot be sent. AL4 */
  isCut: boolean;
  isClosing: boolean;
  isOver: boolean;
}

interface Place {
  readonly lostAt: number;
  readonly positions: ReadonlyMap<string, OutputPosition>;
}

export class AgentLogs {
  readonly #ports: Pick<AgentPorts, "clock" | "telemetry">;
  readonly #node: { readonly nodeId: () => string; readonly sources: () => readonly LogSource[] };
  readonly #live = new Map<string, Live>();
  readonly #places = new Map<string, Place>();

  constructor(
    ports: Pick<AgentPorts, "clock" | "telemetry">,
    node: { readonly nodeId: () => string; readonly sources: () => readonly LogSource[] },
  ) {
    this.#ports = ports;
    this.#node = node;
  }

  /** To be called with each message of the manager's stream of subscriptions. */
  hear(channel: RpcChannel, message: SubscriptionMessage): void {
    const { id, traceparent } = subscriptionOfNode(message.id);
    const known = this.#live.get(id);
    if (message.close) {
      if (known !== undefined) this.#close(known);
      return;
    }
    if (known?.isClosing === false) return;
    // Requested again before the earlier request has ended.
    if (known !== undefined) this.#end(known);
    const options = message.options ?? LogSubscriptionOptions.create({});
    const live: Live = {
      id,
      named: message.id,
      span: continueSpan(this.#ports, spans.logsRead, traceparent),
      selector: message.selector ?? LogSelector.create({}),
      options,
      stream: channel.clientStream(LogBrokerService.methods.PublishLogs),
      readers: new Map(),
      places: this.#placesOf(id),
      reading: 0,
      follow: options.follow,
      isCut: false,
      isClosing: false,
      isOver: false,
    };
    this.#live.set(live.id, live);
    for (const source of this.#node.sources()) this.#read(live, source);
    this.#endIfDone(live);
  }

  /** To be called for a newly assigned task. AL3 */
  add(source: LogSource): void {
    for (const live of this.#live.values()) if (live.follow) this.#read(live, source);
  }

  /** To be called when the session ends: every stream ends with it. AL2 */
  detach(): void {
    const { clock } = this.#ports;
    const lostAt = clock.monotonic();
    for (const live of this.#live.values()) {
      live.isOver = true;
      const positions = new Map(live.places);
      for (const [taskId, reader] of live.readers) {
        if (reader === null) continue;
        positions.set(taskId, reader.position());
        reader.close();
      }
      if (live.follow) this.#places.set(live.id, { lostAt, positions });
      live.stream.cancel();
      this.#endSpan(live);
    }
    this.#live.clear();
  }

  #placesOf(id: string): ReadonlyMap<string, OutputPosition> {
    const now = this.#ports.clock.monotonic();
    for (const [each, { lostAt }] of this.#places) if (now - lostAt > resumeMs) this.#places.delete(each);
    const place = this.#places.get(id);
    this.#places.delete(id);
    return place?.positions ?? new Map<string, OutputPosition>();
  }

  #read(live: Live, source: LogSource): void {
    const { taskId, serviceId } = source;
    const nodeId = this.#node.nodeId();
    if (live.readers.has(taskId) || !isSelected(live.selector, { id: taskId, serviceId, nodeId })) return;
    const { since, streams, tail } = live.options;
    const reader = source.read({
      stdout: streams.length === 0 || streams.includes(LogStream.LOG_STREAM_STDOUT),
      stderr: streams.length === 0 || streams.includes(LogStream.LOG_STREAM_STDERR),
      tail: tail < 0 ? -tail - 1 : null,
      sinceMs: timeMs(since),
      follow: live.follow,
      from: live.places.get(taskId) ?? null,
    });
    live.readers.set(taskId, reader);
    if (reader === null) return;
    live.reading += 1;
    const context = LogContext.create({ taskId, serviceId, nodeId });
    this.#publish(live, reader, context)
      .catch((error: unknown) => this.#missing(live, context, error))
      .finally(() => {
        reader.close();
        live.reading -= 1;
        this.#endIfDone(live);
      });
  }

  async #publish(live: Live, reader: OutputReader, context: LogContext): Promise<void> {
    const { clock } = this.#ports;
    for (;;) {
      const lines = await reader.next();
      if (lines === null || live.isOver) return;
      const messages = lines.map((line) => messageOf(line, context));
      live.stream.write(PublishLogsMessage.create({ subscriptionId: live.named, messages }));
      while (!live.isOver && live.stream.bufferedBytes() > sendBytesMax)
        await new Promise<void>((resolve) => clock.setTimeout(resolve, roomLookMs));
      if (live.isOver) return;
    }
  }

  /** A follower's stream goes on, for its other tasks. AL4 */
  #missing(live: Live, context: LogContext, error: unknown): void {
    const { nodeId, taskId } = context;
    this.#ports.telemetry.log.warn({ error, task: taskId }, "cannot read a task's output");
    live.isCut = true;
    if (!live.follow || live.isOver) return;
    const notice = LogMessage.create({
      context: LogContext.create({ nodeId }),
      stream: LogStream.LOG_STREAM_UNKNOWN,
      data: new TextEncoder().encode(`${unreadable(nodeId, taskId)}\n`),
      attrs: [LogAttr.create({ key: noticeAttribute, value: "missing" })],
    });
    live.stream.write(PublishLogsMessage.create({ subscriptionId: live.named, messages: [notice] }));
  }

  #close(live: Live): void {
    live.follow = false;
    live.isClosing = true;
    for (const reader of live.readers.values()) reader?.stopFollowing();
    this.#endIfDone(live);
    if (live.isOver) return;
    this.#ports.clock.setTimeout(() => this.#end(live), closingMs);
  }

  #endIfDone(live: Live): void {
    if (!live.follow && live.reading === 0) this.#end(live);
  }

  #end(live: Live): void {
    if (live.isOver) return;
    live.isOver = true;
    this.#live.delete(live.id);
    for (const reader of live.readers.values()) reader?.close();
    this.#endSpan(live);
    const { isCut, named, reading, stream } = live;
    if (isCut || reading > 0) {
      // A reset drops unsent output, which other tasks may have.
      void this.#reset(stream, reading > 0 ? 0 : closingMs);
      return;
    }
    stream.write(PublishLogsMessage.create({ subscriptionId: named, close: true }));
    stream
      .finish()
      .catch((error: unknown) =>
        this.#ports.telemetry.log.debug({ error, subscription: live.id }, "cannot send the end of a log subscription"),
      );
  }

  /** AL4 */
  async #reset(stream: Live["stream"], waitMs: number): Promise<void> {
    const { clock } = this.#ports;
    const until = clock.monotonic() + waitMs;
    while (stream.bufferedBytes() > 0 && clock.monotonic() < until)
      await new Promise<void>((resolve) => clock.setTimeout(resolve, roomLookMs));
    stream.cancel();
  }

  #endSpan({ readers, span }: Live): void {
    if (span === null) return;
    describeSpan(span, spans.logsRead, { "muster.node.id": this.#node.nodeId(), "muster.tasks": readers.size });
    endSpan(this.#ports, span);
  }
}

const streamOf = { stdout: LogStream.LOG_STREAM_STDOUT, stderr: LogStream.LOG_STREAM_STDERR } as const;

function messageOf({ atMs, data, stream }: OutputLine, context: LogContext): LogMessage {
  return LogMessage.create({
    context,
    timestamp: timestampOf(atMs),
    stream: streamOf[stream],
    data,
  });
}
