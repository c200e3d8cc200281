/**
 * Log lines and spans for the ring of a process, redacted: a line has its message, which is part of the program, and only those
 * fields that identify or count something; errors and texts of others may quote secrets.
 */
import { RecordedLine, type RecordedSpan } from "../../proto/gen/messages.ts";
import type { Logger } from "../ports/index.ts";
import type { RecordingRing } from "./ring.ts";

type Level = "info" | "warn" | "error";

/** Fields of log lines that may be recorded, if their value is a number, a boolean or a short name. */
const recordedFields: ReadonlySet<string> = new Set(
  (
    "actor event machine node nodeId manager managerId service serviceId task taskId network volume plugin driver session sessionId " +
    "id name kind type state version versions sequence epoch port bytes count length lines dropped refused released signal code " +
    "method subject origin keyId ms pid"
  ).split(" "),
);
/** Characters of a recorded value: longer than ids and names, shorter than texts. */
const valueCharsMax = 128;
/** Characters of a message. */
const textCharsMax = 1_000;

function recorded(fields: object, isRecorded: (name: string) => boolean): string {
  const kept: Record<string, string | number | boolean> = {};
  for (const [name, value] of Object.entries(fields as Readonly<Record<string, unknown>>)) {
    if (!isRecorded(name)) continue;
    const isName = typeof value === "string" && value.length <= valueCharsMax && !/\s/.test(value);
    if (isName || typeof value === "number" || typeof value === "boolean") kept[name] = value;
  }
  return Object.keys(kept).length === 0 ? "" : JSON.stringify(kept);
}

/** The same logger, whose lines from level info on are also recorded. */
export function recordingLogger(log: Logger, ring: RecordingRing, now: () => number): Logger {
  const both =
    (level: Level) =>
    (fields: object, message: string): void => {
      log[level](fields, message);
      try {
        const line = {
          atMs: now(),
          level,
          text: message.slice(0, textCharsMax),
          fields: recorded(fields, (name) => recordedFields.has(name)),
        };
        ring.addLine(RecordedLine.create(line));
      } catch {
        // A line that cannot be recorded was logged all the same; whoever logs must not fail.
      }
    };
  return {
    debug: (fields, message) => log.debug(fields, message),
    info: both("info"),
    warn: both("warn"),
    error: both("error"),
  };
}

/** A finished span of OpenTelemetry, as far as it is recorded. Times are seconds and nanoseconds since the epoch. */
export interface FinishedSpan {
  readonly name: string;
  readonly startTime: readonly [number, number];
  readonly endTime: readonly [number, number];
  readonly attributes: object;
  readonly status: { readonly code: number };
  readonly parentSpanContext?: { readonly spanId: string } | undefined;
  spanContext(): { readonly traceId: string; readonly spanId: string };
}

/** Attributes of spans are ids and counts (`rpc.…`, `muster.…`), never texts. */
const attributePattern = /^(?:muster|rpc)\./;
const failedStatus = 2;
const ms = ([seconds, nanos]: readonly [number, number]): number => Math.round(seconds * 1_000 + nanos / 1e6);

/** Adds the span to the ring; one that cannot be recorded is left out. */
export function recordSpan(span: FinishedSpan, ring: RecordingRing): void {
  try {
    ring.addSpan(recordedSpan(span));
  } catch {
    // The end of a span must not fail.
  }
}

function recordedSpan(span: FinishedSpan): Omit<RecordedSpan, "process"> {
  const { traceId, spanId } = span.spanContext();
  return {
    traceId,
    spanId,
    parentId: span.parentSpanContext?.spanId ?? "",
    name: span.name,
    startMs: ms(span.startTime),
    endMs: ms(span.endTime),
    attributes: recorded(span.attributes, (name) => attributePattern.test(name)),
    failed: span.status.code === failedStatus,
  };
}
