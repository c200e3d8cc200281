/** Lines of a task's output. */
import { LogStream, type LogMessage } from "../../../proto/gen/cluster.ts";
import { timeOf } from "./tasks.ts";

/** Lines kept. The oldest are dropped, and counted. */
export const logLinesMax = 5_000;

export interface LogLine {
  readonly atMs: number;
  readonly isError: boolean;
  readonly text: string;
}

const decoder = new TextDecoder();
/** Colours and cursor movements of terminals. */
// oxlint-disable-next-line no-control-regex
const escapes = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

export function logLine({ data, stream, timestamp }: LogMessage): LogLine {
  return {
    atMs: timeOf(timestamp) ?? 0,
    isError: stream === LogStream.LOG_STREAM_STDERR,
    text: decoder
      .decode(data)
      .replace(escapes, "")
      .replace(/\r?\n$/, ""),
  };
}

/** SwarmKit's encoding of the number of last lines: -(n+1); 0 means all. */
export function tailOf(lines: number | null): number {
  return lines === null ? 0 : -lines - 1;
}
