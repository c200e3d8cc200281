/**
 * The troubles of one manager: which are there, in which order they are told, and which of them is the cause.
 *
 * H1: at most one trouble of each kind; it keeps the time of its beginning while its sentence changes.
 * H2: the cause is the blocking trouble that comes first in the order of kinds: causes precede their consequences there.
 */
import { Trouble, Trouble_Kind, type Timestamp } from "../../proto/gen/messages.ts";

export interface NewTrouble {
  readonly kind: Trouble_Kind;
  readonly sentence: string;
  readonly blocking: boolean;
  readonly at: Timestamp;
}

/** H2. Kinds are numbered in this order, but for the one that was added where there was no number left. */
function rank(kind: Trouble_Kind): number {
  return kind === Trouble_Kind.KEY_LACKING ? Trouble_Kind.LOG_DAMAGED + 0.5 : kind;
}

/** H1 */
export function raised(troubles: readonly Trouble[], { at, blocking, kind, sentence }: NewTrouble): readonly Trouble[] {
  const since = troubles.find((trouble) => trouble.kind === kind)?.since ?? at;
  return [...cleared(troubles, kind), Trouble.create({ kind, sentence, blocking, since })].toSorted(
    (a, b) => rank(a.kind) - rank(b.kind),
  );
}

export function cleared(troubles: readonly Trouble[], kind: Trouble_Kind): readonly Trouble[] {
  return troubles.filter((trouble) => trouble.kind !== kind);
}

/** H2 */
export function causeOf(troubles: readonly Trouble[]): string | null {
  return troubles.find(({ blocking }) => blocking)?.sentence ?? null;
}

/** As metrics and logs name it, such as `disk-full`. */
export function kindName(kind: Trouble_Kind): string {
  const found = Object.entries(Trouble_Kind).find(([, number]) => number === kind);
  return (found?.[0] ?? String(kind)).toLowerCase().replaceAll("_", "-");
}
