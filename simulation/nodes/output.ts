/** Output of simulated tasks: numbered lines at regular intervals, while they run. */
import type { OutputLine, OutputReader, OutputRequest } from "../../actors/agent/ports.ts";

/** Interval between two lines of a task, in milliseconds. */
export const linePeriodMs = 400;
const helpingLines = 20;

export interface SimLine {
  readonly atMs: number;
  readonly text: string;
}

/** `written`: all lines so far. `later` calls back when there may be more. */
export function simOutput(
  written: () => readonly SimLine[],
  request: OutputRequest,
  later: (resolve: () => void) => unknown,
): OutputReader {
  let follows = request.follow;
  let isClosed = false;
  let at: number | null = request.from?.["line"] ?? null;
  return {
    async next(): Promise<readonly OutputLine[] | null> {
      for (;;) {
        if (isClosed) return null;
        const isOver = !follows || request.isOver();
        const lines = written();
        if (at === null) {
          at = request.tail === null ? 0 : Math.max(0, lines.length - request.tail);
          while (at < lines.length && (lines[at]?.atMs ?? 0) < request.sinceMs) at += 1;
        }
        const found = lines.slice(at, at + helpingLines);
        at += found.length;
        if (found.length > 0)
          return found.map(({ atMs, text }) => ({
            stream: "stdout",
            atMs,
            data: new TextEncoder().encode(`${text}\n`),
          }));
        if (isOver) return null;
        await new Promise<void>((resolve) => void later(resolve));
      }
    },
    position: (): Readonly<Record<string, number>> => (at === null ? {} : { line: at }),
    stopFollowing: () => {
      follows = false;
    },
    close: () => {
      isClosed = true;
    },
  };
}
