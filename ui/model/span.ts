/** Parts of the time line: zoom, pan, and where a moment is. Times are milliseconds since the epoch. */

export interface Span {
  readonly fromMs: number;
  /** Not before `fromMs`. */
  readonly toMs: number;
}

/** The shortest part that is shown: a bucket of a millisecond is some pixels wide then. */
export const spanMsMin = 200;

const lengthOf = ({ fromMs, toMs }: Span): number => toMs - fromMs;

/** A part as long as `span`, or as `whole` if that is shorter, moved into `whole`. */
function within(span: Span, whole: Span): Span {
  const length = Math.min(lengthOf(span), lengthOf(whole));
  const fromMs = Math.max(whole.fromMs, Math.min(whole.toMs - length, span.fromMs));
  return { fromMs, toMs: fromMs + length };
}

/** `factor` above 1 shows less time; `aroundMs` keeps its place. */
export function zoomed(span: Span, factor: number, aroundMs: number, whole: Span): Span {
  const length = Math.max(spanMsMin, lengthOf(span) / factor);
  const share = placeOf(span, aroundMs);
  const fromMs = Math.round(aroundMs - share * length);
  return within({ fromMs, toMs: fromMs + Math.round(length) }, whole);
}

export function panned({ fromMs, toMs }: Span, byMs: number, whole: Span): Span {
  const by = Math.round(byMs);
  return within({ fromMs: fromMs + by, toMs: toMs + by }, whole);
}

/** The part moved as little as needed to contain a moment. */
export function revealing(span: Span, atMs: number, whole: Span): Span {
  if (atMs < span.fromMs) return panned(span, atMs - span.fromMs, whole);
  if (atMs > span.toMs) return panned(span, atMs - span.toMs, whole);
  return span;
}

/** 0 at its begin, 1 at its end; outside of it less or more. */
export function placeOf(span: Span, atMs: number): number {
  const length = lengthOf(span);
  return length === 0 ? 1 : (atMs - span.fromMs) / length;
}

/** Opposite of `placeOf`, in whole milliseconds, within the part. */
export function momentAt(span: Span, place: number): number {
  return Math.round(span.fromMs + Math.max(0, Math.min(1, place)) * lengthOf(span));
}

/** The moment of `whole` that is nearest to a wanted one. */
export const nearest = ({ fromMs, toMs }: Span, atMs: number): number => Math.max(fromMs, Math.min(toMs, atMs));

export const contains = ({ fromMs, toMs }: Span, atMs: number): boolean => atMs >= fromMs && atMs <= toMs;
