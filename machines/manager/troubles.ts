/**
 * The troubles of one manager: which exist, their order, and which of them is the cause.
 *
 * H1: at most one trouble of each kind; it keeps its start time while its text changes.
 * H2: the cause is the first blocking trouble in the order of kinds: there, causes precede their consequences.
 */
import { Trouble, Trouble_Kind, type Timestamp } from "../../proto/gen/messages.ts";

interface NewTrouble {
  readonly kind: Trouble_Kind;
  readonly sentence: string;
  readonly blocking: boolean;
  readonly at: Timestamp;
}

/** H2. Kinds are numbered in this order, except for one that was added later. */
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

/** The name in metrics and logs, such as `disk-full`. */
export function kindName(kind: Trouble_Kind): string {
  const found = Object.entries(Trouble_Kind).find(([, number]) => number === kind);
  return (found?.[0] ?? String(kind)).toLowerCase().replaceAll("_", "-");
}
