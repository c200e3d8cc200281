/**
 * The port through which every part of a process reports its problems: one registry per process, which `muster info`,
 * `/healthz`, the Health service, `muster why`, the metrics and the errors of refused writes all read.
 */
import type { Trouble, Trouble_Kind } from "../../proto/gen/messages.ts";

export interface TroubleReport {
  readonly kind: Trouble_Kind;
  /** The problem, with the figures that show it: part of a sentence, without a full stop. */
  readonly sentence: string;
  /** While it lasts, no change can be written and the manager is unhealthy. False for a warning. */
  readonly blocking: boolean;
}

export interface Troubles {
  /** Starts a trouble, or updates the sentence of the existing one of this kind; `since` stays that of its start. */
  raise(report: TroubleReport): void;
  /** Ends it; does nothing if there is none of this kind. */
  clear(kind: Trouble_Kind): void;
  /** Current troubles, causes before their consequences. */
  all(): readonly Trouble[];
  /** The sentence of the first blocking trouble; null if there is none. */
  cause(): string | null;
}
