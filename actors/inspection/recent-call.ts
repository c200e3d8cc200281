/**
 * One call of Recent, on the manager that the client called: reads the recordings of the chosen processes one after the other, each
 * batch when the client has read the one before.
 *
 * RC1: the last part names each process that could not be read to its end, with the reason, and what is missing of the range of the log.
 */
import { managerProcess } from "../../machines/inspection/selection.ts";
import {
  ActorSelection,
  RecentQuestion,
  RecentReply,
  RecordingEnd,
  RecordingPart,
  type RecentActorsRequest,
} from "../../proto/gen/messages.ts";
import type { Sink } from "../../runtime/ports/rpc.ts";
import * as subjects from "../../runtime/subjects.ts";
import { busMessage } from "../bus-message.ts";
import type { Environment } from "../environment.ts";
import type { LogRangeRequest } from "../history/log-range.ts";
import { wantedOf, type Readings } from "./readings.ts";

/** Unread bytes of the client; beyond it the next batch waits. */
const clientBytesMax = 512 * 1024;
/** Interval of checking whether the client has read, in milliseconds. */
const roomLookMs = 20;
/** For another manager's answer, in milliseconds: longer than it waits for a node. */
const answerMs = 7_000;
/** Questions without an answer, after which the process counts as unreadable. */
const triesMax = 3;

/** Milliseconds before now from which the range of the log is recorded if no manager keeps its last minutes. */
const defaultRangeMs = 10 * 60_000;

/** Sends the range of the log. Resolves with a sentence for each part of it that is missing; never rejects. */
export type LogRange = (request: LogRangeRequest, sink: Sink<RecordingPart>) => Promise<readonly string[]>;

export class RecentCall {
  readonly #env: Environment;
  readonly #readings: Readings;
  readonly #id: string;
  readonly #request: RecentActorsRequest;
  readonly #sink: Sink<RecordingPart>;
  readonly #missing: string[] = [];
  readonly #range: LogRange | null;
  readonly #stopping = new AbortController();
  /** When the oldest part was recorded, by the managers' clocks; an agent may say anything. */
  #oldestMs = Number.POSITIVE_INFINITY;
  #parts = 0;

  constructor(
    env: Environment,
    readings: Readings,
    {
      id,
      request,
      sink,
      range = null,
    }: {
      readonly id: string;
      readonly request: RecentActorsRequest;
      readonly sink: Sink<RecordingPart>;
      /** Null: without the range of the log. */
      readonly range?: LogRange | null;
    },
  ) {
    this.#env = env;
    this.#readings = readings;
    this.#id = id;
    this.#request = request;
    this.#sink = sink;
    this.#range = range;
  }

  get #isStopped(): boolean {
    return this.#stopping.signal.aborted;
  }

  /** Resolves when everything was read. */
  async run(): Promise<void> {
    const { managerId: own, store } = this.#env;
    const selection = this.#request.selection ?? ActorSelection.create();
    const managers = [own, ...[...store.all("manager")].map(({ id }) => id).filter((id) => id !== own)];
    const lists = await Promise.all(managers.map(async (id) => [id, await this.#ask(id, "", 1)] as const));
    const seen = new Set<string>();
    for (const [managerId, { failed, processes }] of lists) {
      if (failed !== "") this.#miss(managerProcess(managerId), failed, selection, seen);
      for (const process of wantedOf(selection, processes)) {
        if (this.#isStopped || seen.has(process)) continue;
        seen.add(process);
        await this.#read(managerId, process);
      }
    }
    for (const process of selection.processes) this.#miss(process, unreached, selection, seen);
    if (this.#range !== null && !this.#isStopped) await this.#readRange(this.#range);
    if (this.#isStopped) return;
    this.#sink.write(
      RecordingPart.create({ end: RecordingEnd.create({ parts: this.#parts, missing: this.#missing }) }),
    );
    this.#sink.end();
  }

  stop(): void {
    this.#stopping.abort();
  }

  /** RC1 */
  #miss(process: string, reason: string, selection: ActorSelection, seen: Set<string>): void {
    if (seen.has(process) || wantedOf(selection, [process]).length === 0) return;
    seen.add(process);
    this.#missing.push(`${process}: ${reason}`);
  }

  async #read(managerId: string, process: string): Promise<void> {
    for (let number = 1; !this.#isStopped; number += 1) {
      const { ended, failed, parts } = await this.#ask(managerId, process, number);
      for (const part of parts) this.#sink.write(part);
      if (process === managerProcess(managerId))
        for (const { feed } of parts) if (feed !== null) this.#oldestMs = Math.min(this.#oldestMs, feed.atMs);
      this.#parts += parts.length;
      if (failed !== "") this.#missing.push(`${process}: ${failed}`);
      if (ended || failed !== "") return;
      await this.#room();
    }
  }

  /** From the requested time, or the oldest part. */
  async #readRange(range: LogRange): Promise<void> {
    const { sinceMs } = this.#request;
    const nowMs = this.#env.clock.now();
    const oldestMs = Number.isFinite(this.#oldestMs) ? this.#oldestMs : nowMs - defaultRangeMs;
    const fromMs = sinceMs === 0 ? oldestMs : nowMs - sinceMs;
    this.#missing.push(...(await range({ fromMs, signal: this.#stopping.signal }, this.#sink)));
  }

  async #ask(managerId: string, process: string, number: number): Promise<RecentReply> {
    const question = RecentQuestion.create({ reading: this.#id, process, sinceMs: this.#request.sinceMs, number });
    if (managerId === this.#env.managerId) return this.#readings.answer(question);
    const subject = subjects.recentRead(managerId);
    for (let tries = 0; tries < triesMax && !this.#isStopped; tries += 1) {
      const data = RecentQuestion.encode(question);
      const outcome = await this.#env.bus.request(subject, data, { timeoutMs: answerMs });
      if (outcome.kind === "no-responders") return RecentReply.create({ failed: absent });
      const reply = outcome.kind === "reply" ? busMessage(this.#env, RecentReply, { ...outcome, subject }) : null;
      if (reply !== null) return reply;
    }
    return RecentReply.create({ failed: `manager ${managerId} does not answer` });
  }

  async #room(): Promise<void> {
    while (!this.#isStopped && this.#sink.bufferedBytes() > clientBytesMax)
      await new Promise<void>((resolve) => this.#env.clock.setTimeout(resolve, roomLookMs));
  }
}

const absent = "no process of the manager is on the bus, or its version keeps no recordings";
const unreached = "the node's agent is not connected to a manager that can be reached, or is not an agent of Muster";
