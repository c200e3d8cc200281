/**
 * The readings of recordings at this manager, for itself and for other managers: its own process's, and those of the agents whose
 * connections it has.
 */
import { isSelectedProcess, nodeProcess, partsOf } from "../../machines/inspection/selection.ts";
import { RecentQuestion, RecentReply, type ActorSelection } from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import * as subjects from "../../runtime/subjects.ts";
import { busMessage } from "../bus-message.ts";
import type { Running } from "../environment.ts";
import { RecordingReader, type KeptRecording } from "./kept-recording.ts";
import { NodeReading } from "./node-reading.ts";
import type { FeedSources } from "./outlet.ts";

/**
 * Readings at one manager: each may hold a copy of a recording of some MB. Beyond: one that has ended makes space; if all are in
 * progress, the new one is refused, with a reason.
 */
export const readingsMax = 64;
/** A reading that nobody continues for this long, in milliseconds, is over: whoever reads has vanished. */
const idleMs = 60_000;
const sweepMs = 10_000;

interface Reading {
  next(question: RecentQuestion): RecentReply | Promise<RecentReply>;
  stop?(): void;
  usedMs: number;
  /** Its last answer was the end. It stays for a while, since that answer may be lost (KR1). */
  isEnded: boolean;
}

export interface Readings extends Running {
  /** Answers a question of this or another manager. */
  answer(question: RecentQuestion): Promise<RecentReply>;
}

/** `kept`: null if this process keeps nothing. */
export function serveReadings({ env, ids, nodes, own }: FeedSources, kept: KeptRecording | null): Readings {
  const { bus, clock, managerId } = env;
  const readings = new Map<string, Reading>();
  let timer: TimerHandle | null = null;

  function begin(question: RecentQuestion): Pick<Reading, "next" | "stop"> | string {
    const { process, sinceMs } = question;
    if (process === own.process) {
      if (kept === null) return "the process keeps no recording";
      const reader = new RecordingReader(kept, sinceMs);
      return { next: ({ number }) => reader.next(number) };
    }
    const nodeId = partsOf(process)?.kind === "node" ? process.slice("node-".length) : "";
    if (![...nodes.listening()].includes(nodeId)) return "the node's agent is not connected to this manager";
    const reading = new NodeReading({ clock, nodes, nodeId, callId: newId(ids) });
    return { next: (each) => reading.next(each), stop: () => reading.stop() };
  }

  function end(key: string): void {
    readings.get(key)?.stop?.();
    readings.delete(key);
  }

  function sweep(): void {
    timer = null;
    const now = clock.monotonic();
    for (const [key, { usedMs }] of readings) if (now - usedMs > idleMs) end(key);
    if (readings.size > 0) timer = clock.setTimeout(sweep, sweepMs);
  }

  /**
   * Ends what nobody asks about any more. A client's manager reads one process after the other, and asks about the next when it
   * has all answers about the ones before. Of the others that have ended, the longest unused one is the least likely to be asked
   * about.
   */
  function makeSpace(id: string): void {
    const ended = [...readings].filter(([, { isEnded }]) => isEnded);
    for (const [key] of ended) if (key.startsWith(`${id} `)) end(key);
    if (readings.size < readingsMax) return;
    const [oldest] = ended.sort(([, a], [, b]) => a.usedMs - b.usedMs);
    if (oldest !== undefined) end(oldest[0]);
  }

  async function answer(question: RecentQuestion): Promise<RecentReply> {
    const { number, process, reading: id } = question;
    if (process === "")
      return RecentReply.create({ processes: [own.process, ...[...nodes.listening()].map(nodeProcess)], ended: true });
    const key = `${id} ${process}`;
    let reading = readings.get(key);
    if (reading === undefined) {
      if (number !== 1) return RecentReply.create({ failed: "the reading is over" });
      makeSpace(id);
      if (readings.size >= readingsMax)
        return RecentReply.create({ failed: `the manager already serves ${readingsMax} readings of recordings` });
      const begun = begin(question);
      if (typeof begun === "string") return RecentReply.create({ failed: begun });
      reading = { ...begun, usedMs: 0, isEnded: false };
      readings.set(key, reading);
      timer ??= clock.setTimeout(sweep, sweepMs);
    }
    reading.usedMs = clock.monotonic();
    const reply = await reading.next(question);
    reading.isEnded = reply.ended || reply.failed !== "";
    return reply;
  }

  const subscription = bus.subscribe(subjects.recentRead(managerId), (message) => {
    const question = busMessage(env, RecentQuestion, message);
    if (question === null) return;
    void answer(question).then((reply) => message.respond(RecentReply.encode(reply)));
  });

  return {
    answer,
    stop() {
      subscription.unsubscribe();
      for (const key of readings.keys()) end(key);
      if (timer !== null) clock.clearTimeout(timer);
      timer = null;
    },
  };
}

/** The processes among those that a manager can read that somebody wants. */
export function wantedOf(selection: ActorSelection, processes: readonly string[]): readonly string[] {
  return processes.filter((process) => isSelectedProcess(selection, process));
}
