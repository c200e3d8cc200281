/** What the ledger's batches are in the log: records, and whose the changes in them are. */
import type { Span } from "@opentelemetry/api";
import type { Batch } from "../../machines/ledger/batch.ts";
import { Cause, Origin, Transaction, type Caller, type ProposeRequest } from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import { encodeRecord } from "../../runtime/store/record.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import { traceparentOf } from "../../runtime/telemetry/tracing.ts";
import type { Environment } from "../environment.ts";
import { linksTo, startSpan } from "../tracing.ts";

/** Traces that a transaction tells apart; the changes of further ones count as untraced. */
const causesMax = 64;
/** A cause: its trace context (64), and its caller (four texts of 64 characters at most, and two numbers). */
const causeBytesMax = 64 + 288;
/** Bytes of a transaction beside changes, specs and receipts: id, writer, time, predecessor, and one cause or all of them. */
export const aloneHeaderBytesMax = 512 + causeBytesMax;
export const headerBytesMax = 512 + causesMax * causeBytesMax;

/** The record that follows what the replica has. `batch`: null for a barrier or probe. */
export function transactionRecord(
  env: Pick<Environment, "clock" | "managerId">,
  replica: Replica,
  id: string,
  epoch: number,
  batch: Batch | null,
  causes: readonly Cause[],
): Uint8Array {
  const header = Transaction.create({
    id,
    epoch,
    previous: replica.checksum,
    time: timestampOf(Math.floor(env.clock.now())),
    writer: env.managerId,
    specs: batch?.specs ?? [],
    statuses: batch?.statuses ?? [],
    receipts: batch?.receipts ?? [],
    traceparent: causes.find(({ traceparent }) => traceparent !== "")?.traceparent ?? "",
    causes: written(causes),
  });
  return encodeRecord(header, batch?.changes ?? null);
}

type Asking = Pick<ProposeRequest, "traceparent" | "caller" | "origin">;

function isOfNobody({ traceparent, caller, origin }: Asking): boolean {
  return traceparent === "" && caller === null && origin === Origin.ORIGIN_UNKNOWN;
}

/**
 * Whose the changes of a batch are: one for each run of changes of one trace and origin; none when none has either.
 * `counts`: of each proposal, the number of its changes.
 */
export function causesOf(proposals: readonly Asking[], counts: readonly number[]): readonly Cause[] {
  if (proposals.every(isOfNobody)) return [];
  const causes: { traceparent: string; changes: number; caller: Caller | null; origin: Origin }[] = [];
  for (const [at, { traceparent, caller, origin }] of proposals.entries()) {
    const changes = counts[at] ?? 0;
    if (changes === 0) continue;
    const last = causes.at(-1);
    const isSame = last?.traceparent === traceparent && last.caller === caller && last.origin === origin;
    if (isSame) last.changes += changes;
    else if (causes.length < causesMax) causes.push({ traceparent, changes, caller, origin });
    else if (last !== undefined) {
      // Beyond what one transaction tells apart.
      last.changes += changes;
      last.traceparent = "";
      last.caller = null;
      last.origin = Origin.ORIGIN_UNKNOWN;
    }
  }
  return causes.map((cause) => Cause.create(cause));
}

/** One cause for all is written without what the transaction says anyway: five bytes where only an origin is known. */
function written(causes: readonly Cause[]): readonly Cause[] {
  const [first] = causes;
  if (causes.length !== 1 || first === undefined) return causes;
  const isTraceOnly = first.caller === null && first.origin === Origin.ORIGIN_UNKNOWN;
  return isTraceOnly ? [] : [Cause.patch(first, { traceparent: "", changes: 0 })];
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
