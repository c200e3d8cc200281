/** Records the range of the log of a test's manager. */
import { recordLogRange, type LogRangeParts } from "../../actors/history/log-range.ts";
import { Pasts } from "../../actors/history/pasts.ts";
import { rebuildsWaitingMax, Turns } from "../../actors/history/turns.ts";
import type { RecordedTransaction, RecordingPart } from "../../proto/gen/messages.ts";
import { collectedStream, testManager, type CollectedStream } from "./manager.ts";
import { retainedOf } from "./retained.ts";

export interface RecordedRange {
  readonly parts: readonly RecordingPart[];
  readonly transactions: readonly RecordedTransaction[];
  readonly missing: readonly string[];
}

export function rangeWorld() {
  const manager = testManager();
  const retained = retainedOf(manager);
  const { clock, store, telemetry } = manager.env;
  const log = { log: retained.log, blobs: retained.blobs, clock, telemetry };
  const pasts = new Pasts(log, new Turns(rebuildsWaitingMax));

  /** Begins to record; `run` advances the clock. */
  function begin(fromMs: number, fields: Partial<LogRangeParts> = {}) {
    const stream: CollectedStream<RecordingPart> = collectedStream<RecordingPart>();
    const leaving = new AbortController();
    const outcome: { missing: readonly string[] | null } = { missing: null };
    void recordLogRange({ ...log, store, pasts, ...fields }, { fromMs, signal: leaving.signal }, stream).then(
      (missing) => (outcome.missing = missing),
    );
    return { stream, outcome, leave: () => leaving.abort() };
  }

  async function record(fromMs: number, fields: Partial<LogRangeParts> = {}): Promise<RecordedRange> {
    const { stream, outcome } = begin(fromMs, fields);
    await manager.clock.run({ until: () => outcome.missing !== null });
    const transactions = stream.messages.flatMap(({ transaction }) => (transaction === null ? [] : [transaction]));
    return { parts: stream.messages, transactions, missing: outcome.missing ?? ["never ended"] };
  }

  /** Lets the manager's clock advance. */
  const wait = async (ms: number): Promise<void> => {
    await manager.clock.run({ untilMs: manager.clock.now() + ms });
  };
  return { manager, retained, pasts, begin, record, wait };
}
