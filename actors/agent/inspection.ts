/**
 * Answers the manager's questions about this process: its live feed, and what it keeps of its last minutes; one
 * stream of answers for each listener and each reading.
 *
 * AI1: a listener without room gets nothing more: the feed leaves steps out, and nothing queues here.
 * AI2: a stream that the manager has ended gets nothing more, and its listener is gone; asked again, it begins with a snapshot.
 */
import {
  ActorSelection,
  InspectionAnswer,
  InspectionPace,
  TaskCallsService,
  type InspectionAnswerResponse,
  type NodeQuestion,
  type RecentQuestion,
} from "../../proto/gen/messages.ts";
import type { Clock, Telemetry, TimerHandle } from "../../runtime/ports/index.ts";
import type { RpcChannel, SendingCall } from "../../runtime/ports/rpc.ts";
import { RecordingReader, type KeptRecording } from "../inspection/kept-recording.ts";
import type { FeedHandle, ProcessFeed } from "../inspection/process-feed.ts";
import { sentence } from "../sentence.ts";

/** Listeners that one agent feeds: each costs a share of every step. Beyond: refused, with a reason. */
export const listenersMax = 64;
/** Readings of the recording that one agent serves: each may hold a copy of some MB. Beyond: refused, with a reason. */
const readingsMax = 16;
/** Unsent bytes of one listener; beyond it the feed leaves steps out. AI1 */
const sendBytesMax = 128 * 1024;
/** Interval of saying that this process is there, in milliseconds; managers wait for three and a half. */
const pulseMs = 2_000;

interface AgentInspectionPorts {
  readonly clock: Clock;
  readonly telemetry: Telemetry;
}

type Answers = SendingCall<InspectionAnswer, InspectionAnswerResponse>;

interface Reading {
  readonly answers: Answers;
  readonly reader: RecordingReader;
}

export class AgentInspection {
  readonly #ports: AgentInspectionPorts;
  readonly #feed: () => ProcessFeed | null;
  readonly #kept: KeptRecording | null;
  readonly #readings = new Map<string, Reading>();
  readonly #listeners = new Map<string, Listener>();

  /** `feed`: null before the node has an id. `kept`: what this process keeps of its last minutes; null: nothing. */
  constructor(ports: AgentInspectionPorts, feed: () => ProcessFeed | null, kept: KeptRecording | null = null) {
    this.#ports = ports;
    this.#feed = feed;
    this.#kept = kept;
  }

  /** To be called with each message of the manager's stream of questions. */
  hear(channel: RpcChannel, { callId, cancel, inspect, pace, recent }: NodeQuestion): void {
    const known = this.#listeners.get(callId);
    if (cancel) this.#end(callId);
    else if (recent !== null) this.#read(channel, callId, recent);
    else if (known !== undefined) known.pace(pace);
    else if (inspect !== null) this.#begin(channel, callId, inspect.selection ?? ActorSelection.create());
  }

  /** To be called when the session ends: every listener ends with it. */
  detach(): void {
    for (const callId of [...this.#listeners.keys(), ...this.#readings.keys()]) this.#end(callId);
  }

  #begin(channel: RpcChannel, callId: string, selection: ActorSelection): void {
    const answers: Answers = channel.clientStream(TaskCallsService.methods.Inspect, () => this.#over(callId, answers));
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
    this.#close(answers, InspectionAnswer.create({ callId, refused }));
  }

  /** The last answer ends the stream. */
  #read(channel: RpcChannel, callId: string, { number, sinceMs }: RecentQuestion): void {
    let reading = this.#readings.get(callId);
    if (reading === undefined) {
      const answers: Answers = channel.clientStream(TaskCallsService.methods.Inspect, () =>
        this.#over(callId, answers),
      );
      const refused =
        this.#kept === null
          ? "the process keeps no recording"
          : this.#readings.size >= readingsMax
            ? `the node's agent already serves ${readingsMax} readings of recordings`
            : "";
      if (this.#kept === null || refused !== "")
        return this.#close(answers, InspectionAnswer.create({ callId, refused }));
      reading = { answers, reader: new RecordingReader(this.#kept, sinceMs) };
      this.#readings.set(callId, reading);
    }
    const recent = reading.reader.next(number);
    const answer = InspectionAnswer.create({ callId, recent });
    if (!recent.ended && recent.failed === "") return reading.answers.write(answer);
    this.#readings.delete(callId);
    this.#close(reading.answers, answer);
  }

  #close(answers: Answers, last: InspectionAnswer): void {
    answers.write(last);
    answers.finish().catch((error: unknown) => {
      const { callId: call } = last;
      this.#ports.telemetry.log.debug({ error: sentence(error), call }, "cannot send the end of an inspection");
    });
  }

  /** AI2. The same id may be asked for again meanwhile. */
  #over(callId: string, answers: Answers): void {
    if (this.#listeners.get(callId)?.answers === answers || this.#readings.get(callId)?.answers === answers)
      this.#end(callId);
  }

  #end(callId: string): void {
    this.#readings.get(callId)?.answers.cancel();
    this.#readings.delete(callId);
    this.#listeners.get(callId)?.stop();
    this.#listeners.delete(callId);
  }
}

class Listener {
  readonly #clock: Clock;
  readonly answers: Answers;
  readonly #callId: string;
  readonly #handle: FeedHandle;
  #isWaiting = false;
  #timer: TimerHandle;

  constructor(clock: Clock, answers: Answers, callId: string, feed: ProcessFeed, selection: ActorSelection) {
    this.#clock = clock;
    this.answers = answers;
    this.#callId = callId;
    this.#timer = clock.setTimeout(() => this.#pulse(), pulseMs);
    this.#handle = feed.listen(selection, {
      ready: () => !this.#isWaiting && this.answers.bufferedBytes() <= sendBytesMax,
      onFeed: (each) => this.answers.write(InspectionAnswer.create({ callId, feed: each })),
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
    this.answers.cancel();
  }

  #pulse(): void {
    this.#timer = this.#clock.setTimeout(() => this.#pulse(), pulseMs);
    if (this.answers.bufferedBytes() <= sendBytesMax)
      this.answers.write(InspectionAnswer.create({ callId: this.#callId }));
  }
}
