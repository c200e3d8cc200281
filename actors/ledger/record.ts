/** Encodes the ledger's batches as records of the log, with the causes of their changes. */
import type { Span } from "@opentelemetry/api";
import type { Batch } from "../../machines/ledger/batch.ts";
import { Cause, Origin, Transaction, type Caller, type ProposeRequest } from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import { encodeRecord } from "../../runtime/store/record.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import { spans as declared } from "../../runtime/telemetry/spans.ts";
import { traceparentOf } from "../../runtime/telemetry/tracing.ts";
import type { Environment } from "../environment.ts";
import { describeSpan, linksTo, startSpan } from "../tracing.ts";

/** Traces that one transaction distinguishes; the changes of further ones count as untraced. */
const causesMax = 64;
/** Bytes of a cause: its trace context (64), and its caller (four texts of up to 64 characters, and two numbers). */
const causeBytesMax = 64 + 288;
/** Bytes of a transaction besides changes, specs and receipts: id, writer, time, predecessor, and one cause or all of them. */
export const aloneHeaderBytesMax = 512 + causeBytesMax;
export const headerBytesMax = 512 + causesMax * causeBytesMax;

/** The next record after the replica's version. `batch`: null for a barrier or probe. */
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
 * The causes of a batch's changes: one for each run of changes with the same trace and origin; none when no proposal has
 * either. `counts`: number of changes per proposal.
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
      // Beyond the causes that one transaction distinguishes.
      last.changes += changes;
      last.traceparent = "";
      last.caller = null;
      last.origin = Origin.ORIGIN_UNKNOWN;
    }
  }
  return causes.map((cause) => Cause.create(cause));
}

/** A single cause is written without the fields that the transaction has anyway: five bytes when only an origin is known. */
function written(causes: readonly Cause[]): readonly Cause[] {
  const [first] = causes;
  if (causes.length !== 1 || first === undefined) return causes;
  const isTraceOnly = first.caller === null && first.origin === Origin.ORIGIN_UNKNOWN;
  return isTraceOnly ? [] : [Cause.patch(first, { traceparent: "", changes: 0 })];
}

/** The span of a batch's append: a child of the first traced proposal, linked to the others; null when none is traced. */
export function startAppendSpan(
  env: Pick<Environment, "clock" | "telemetry">,
  spans: readonly Span[],
  proposals: number,
  changes: number,
): Span | null {
  const [parent, ...others] = spans.filter((span) => span.isRecording()).map(traceparentOf);
  if (parent === undefined) return null;
  const span = startSpan(env, declared.logAppend, parent);
  span.addLinks(linksTo(others));
  describeSpan(span, declared.logAppend, { "muster.proposals": proposals, "muster.changes": changes });
  return span;
}
