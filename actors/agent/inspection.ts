/**
 * Answers the manager's questions about this process: its live feed, one stream of answers for each listener.
 *
 * AI1: a listener without room gets nothing more: the feed leaves steps out, and nothing queues here.
 */
import {
  ActorSelection,
  InspectionAnswer,
  InspectionPace,
  TaskCallsService,
  type InspectionAnswerResponse,
  type NodeQuestion,
} from "../../proto/gen/messages.ts";
import type { Clock, Telemetry, TimerHandle } from "../../runtime/ports/index.ts";
import type { RpcChannel, SendingCall } from "../../runtime/ports/rpc.ts";
import type { FeedHandle, ProcessFeed } from "../inspection/process-feed.ts";
import { sentence } from "../sentence.ts";

/** Listeners that one agent feeds: each costs a share of every step. Beyond: refused, with a reason. */
export const listenersMax = 64;
/** Unsent bytes of one listener; beyond it the feed leaves steps out. AI1 */
const sendBytesMax = 128 * 1024;
/** Interval of saying that this process is there, in milliseconds; managers wait for three and a half. */
const pulseMs = 2_000;

interface AgentInspectionPorts {
  readonly clock: Clock;
  readonly telemetry: Telemetry;
}

export class AgentInspection {
  readonly #ports: AgentInspectionPorts;
  readonly #feed: () => ProcessFeed | null;
  readonly #listeners = new Map<string, Listener>();

  /** `feed`: null before the node has an id. */
  constructor(ports: AgentInspectionPorts, feed: () => ProcessFeed | null) {
    this.#ports = ports;
    this.#feed = feed;
  }

  /** To be called with each message of the manager's stream of questions. */
  hear(channel: RpcChannel, { callId, cancel, inspect, pace }: NodeQuestion): void {
    const known = this.#listeners.get(callId);
    if (cancel) this.#end(callId);
    else if (known !== undefined) known.pace(pace);
    else if (inspect !== null) this.#begin(channel, callId, inspect.selection ?? ActorSelection.create());
  }

  /** To be called when the session ends: every listener ends with it. */
  detach(): void {
    for (const callId of this.#listeners.keys()) this.#end(callId);
  }

  #begin(channel: RpcChannel, callId: string, selection: ActorSelection): void {
    const answers = channel.clientStream(TaskCallsService.methods.Inspect);
    const feed = this.#feed();
    const refused =
      feed === null
        ? "the node's agent has no feed yet"
        : this.#listeners.size >= listenersMax
          ? `the node's agent already feeds ${listenersMax} listeners`
          : "";
    if (feed !== null && refused === "") {
      this.#listeners.set(callId, new Listener(this.#ports.clock, answers, callId, feed, selection));
      return;
    }
    answers.write(InspectionAnswer.create({ callId, refused }));
    answers.finish().catch((error: unknown) => {
      this.#ports.telemetry.log.debug({ error: sentence(error), call: callId }, "cannot send the end of a feed");
    });
  }

  #end(callId: string): void {
    this.#listeners.get(callId)?.stop();
    this.#listeners.delete(callId);
  }
}

class Listener {
  readonly #clock: Clock;
  readonly #answers: SendingCall<InspectionAnswer, InspectionAnswerResponse>;
  readonly #callId: string;
  readonly #handle: FeedHandle;
  #isWaiting = false;
  #timer: TimerHandle;

  constructor(
    clock: Clock,
    answers: SendingCall<InspectionAnswer, InspectionAnswerResponse>,
    callId: string,
    feed: ProcessFeed,
    selection: ActorSelection,
  ) {
    this.#clock = clock;
    this.#answers = answers;
    this.#callId = callId;
    this.#timer = clock.setTimeout(() => this.#pulse(), pulseMs);
    this.#handle = feed.listen(selection, {
      ready: () => !this.#isWaiting && this.#answers.bufferedBytes() <= sendBytesMax,
      onFeed: (each) => this.#answers.write(InspectionAnswer.create({ callId, feed: each })),
    });
  }

  pace(pace: InspectionPace): void {
    if (pace === InspectionPace.INSPECTION_PACE_AGAIN) this.#handle.again();
    else if (pace !== InspectionPace.INSPECTION_PACE_UNCHANGED)
      this.#isWaiting = pace === InspectionPace.INSPECTION_PACE_WAIT;
  }

  stop(): void {
    this.#clock.clearTimeout(this.#timer);
    this.#handle.close();
    this.#answers.cancel();
  }

  #pulse(): void {
    this.#timer = this.#clock.setTimeout(() => this.#pulse(), pulseMs);
    if (this.#answers.bufferedBytes() <= sendBytesMax)
      this.#answers.write(InspectionAnswer.create({ callId: this.#callId }));
  }
}
