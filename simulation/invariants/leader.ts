/**
 * Invariants of leadership.
 *
 * S125: no two managers lead at the same time, unless a process was suspended and resumed: a new leader has waited for the end
 *       of the previous term, by any manager's clock.
 */
import type { SimManagers } from "../managers/managers.ts";

export function checkLeaders({ all }: SimManagers): string | null {
  const leading = all.filter(({ process: each, running }) => each.isRunning && running?.isLeading() === true);
  if (leading.length < 2) return null;
  return `S125: ${leading.map(({ process: { name } }) => name).join(" and ")} lead at the same time`;
}
