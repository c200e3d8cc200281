/**
 * What must hold of who leads.
 *
 * S125: no two managers lead at once, as long as nobody was stopped and continued: the one that comes to lead has waited until
 *      the other's term was over, by whoever's clock.
 */
import type { SimManagers } from "./managers.ts";

export function checkLeaders({ all }: SimManagers): string | null {
  const leading = all.filter(({ process: each, running }) => each.isRunning && running?.isLeading() === true);
  if (leading.length < 2) return null;
  return `S125: ${leading.map(({ process: { name } }) => name).join(" and ")} lead at once`;
}
