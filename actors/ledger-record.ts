/** What the ledger's batches are in the log: records, and whose the changes in them are. */
import type { Span } from "@opentelemetry/api";
import type { Batch } from "../machines/batch.ts";
import { Cause, Timestamp, Transaction } from "../proto/gen/messages.ts";
import { encodeRecord } from "../runtime/store/record.ts";
import type { Replica } from "../runtime/store/replica.ts";
import { traceparentOf } from "../runtime/telemetry/tracing.ts";
import type { Environment } from "./environment.ts";
import { linksTo, startSpan } from "./tracing.ts";

/** Traces that a transaction tells apart; the changes of further ones count as untraced. */
const causesMax = 64;
/** Bytes of a transaction beside changes, specs and receipts: id, writer, time, predecessor and the trace contexts (64 each). */
export const headerBytesMax = 512 + causesMax * 64;

/** The record that follows what the replica has. `batch`: null for a barrier or probe. */
export function transactionRecord(
  env: Pick<Environment, "clock" | "managerId">,
  replica: Replica,
  id: string,
  epoch: number,
  batch: Batch | null,
  causes: readonly Cause[],
): Uint8Array {
  const now = env.clock.now();
  const header = Transaction.create({
    id,
    epoch,
    previous: replica.checksum,
    time: Timestamp.create({ seconds: Math.floor(now / 1000), nanos: Math.floor(now % 1000) * 1e6 }),
    writer: env.managerId,
    specs: batch?.specs ?? [],
    statuses: batch?.statuses ?? [],
    receipts: batch?.receipts ?? [],
    traceparent: causes.find(({ traceparent }) => traceparent !== "")?.traceparent ?? "",
    causes: causes.length > 1 ? causes : [],
  });
  return encodeRecord(header, batch?.changes ?? []);
}

/** Whose the changes of a batch are: one for each run of changes of one trace; none when nothing is traced. `traces`: of each proposal, with its number of changes in `counts`. */
export function causesOf(traces: readonly string[], counts: readonly number[]): readonly Cause[] {
  if (traces.every((trace) => trace === "")) return [];
  const causes: { traceparent: string; changes: number }[] = [];
  for (const [at, trace] of traces.entries()) {
    const changes = counts[at] ?? 0;
    if (changes === 0) continue;
    const traceparent = causes.length < causesMax - 1 ? trace : "";
    const last = causes.at(-1);
    if (last?.traceparent === traceparent) last.changes += changes;
    else causes.push({ traceparent, changes });
  }
  return causes.map((cause) => Cause.create(cause));
}

/** The append of the traced proposals of a batch: a child of the first, linked with the others; null when none is traced. */
export function startAppendSpan(
  env: Pick<Environment, "clock" | "telemetry">,
  spans: readonly Span[],
  proposals: number,
  changes: number,
): Span | null {
  const [parent, ...others] = spans.filter((span) => span.isRecording()).map(traceparentOf);
  if (parent === undefined) return null;
  const span = startSpan(env, "log append", parent);
  span.addLinks(linksTo(others));
  return span.setAttributes({ "muster.proposals": proposals, "muster.changes": changes });
}
