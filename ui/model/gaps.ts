/** Gaps as the time line draws them: those that are too near to each other to be told apart are one. */
import type { Span } from "./span.ts";

/** `who`: a process, or what was not connected. */
export interface Gap extends Span {
  readonly who: string;
}

interface DrawnGap extends Span {
  readonly who: readonly string[];
}

/** Gaps within `span`, in the order of their begins. `nearMs`: a gap that begins by this much after another one's end joins it. */
export function drawnGaps(gaps: Iterable<Gap>, span: Span, nearMs: number): readonly DrawnGap[] {
  const drawn: { fromMs: number; toMs: number; who: string[] }[] = [];
  const sorted = [...gaps]
    .filter(({ fromMs, toMs }) => toMs >= span.fromMs && fromMs <= span.toMs)
    .sort((a, b) => a.fromMs - b.fromMs);
  for (const { fromMs, toMs, who } of sorted) {
    const last = drawn.at(-1);
    if (last !== undefined && fromMs <= last.toMs + nearMs) {
      last.toMs = Math.max(last.toMs, toMs);
      if (!last.who.includes(who)) last.who.push(who);
    } else drawn.push({ fromMs, toMs, who: [who] });
  }
  return drawn.map(({ fromMs, toMs, who }) => ({
    fromMs: Math.max(span.fromMs, fromMs),
    toMs: Math.min(span.toMs, toMs),
    who,
  }));
}
