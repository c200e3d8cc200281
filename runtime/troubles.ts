/**
 * The port through which every part of a process reports what is wrong with it: one registry for each process, which
 * `muster info`, `/healthz`, the Health service, `muster why`, the metrics and the errors of refused writes all read.
 */
import type { Trouble, Trouble_Kind } from "../proto/gen/messages.ts";

export interface TroubleReport {
  readonly kind: Trouble_Kind;
  /** What is wrong, with the figures that show it: part of a sentence, without a full stop. */
  readonly sentence: string;
  /** While it lasts no change can be written: the manager is not healthy. False for a warning. */
  readonly blocking: boolean;
}

export interface Troubles {
  /** Begins a trouble, or gives the one of this kind its newest sentence; `since` stays that of its beginning. */
  raise(report: TroubleReport): void;
  /** Ends it; does nothing when there is none of this kind. */
  clear(kind: Trouble_Kind): void;
  /** What is wrong now, causes before their consequences. */
  all(): readonly Trouble[];
  /** The sentence of the first blocking trouble; null when there is none. */
  cause(): string | null;
}
