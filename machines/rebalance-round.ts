/** The moves of one round, and of as many rounds as it would take: what the leader does, and what a dry run shows. */
import type { Service, Task } from "../proto/gen/messages.ts";
import { paceOf } from "./rebalancing.ts";
import { findMove, type Move, type SteadyLoads } from "./scheduling/moves.ts";
import type { WhatIf } from "./scheduling/what-if.ts";

export interface Candidate {
  readonly service: Service;
  /** Its tasks that may be moved. */
  readonly tasks: readonly Task[];
}

export interface RoundMove extends Move {
  readonly service: Service;
  readonly isStartFirst: boolean;
}

/**
 * R3, R5: at most `movesMax`, and of each service at most what its update config lets change at once. Charged in `whatIf`
 * and `steady`.
 */
export function planRound(
  candidates: readonly Candidate[],
  movesMax: number,
  whatIf: WhatIf,
  steady: SteadyLoads,
): readonly RoundMove[] {
  const moves: RoundMove[] = [];
  for (const { service, tasks } of candidates) {
    if (moves.length >= movesMax) break;
    const { parallelism, isStartFirst } = paceOf(service);
    let left: readonly Task[] = tasks;
    for (let count = 0; count < parallelism && moves.length < movesMax; count += 1) {
      const move = findMove(service, left, isStartFirst, whatIf, steady);
      if (move === null) break;
      left = left.filter((task) => task !== move.task);
      moves.push({ ...move, service, isStartFirst });
    }
  }
  return moves;
}

/** Round after round until nothing is to be gained; each task moves once at most. `totalMax`: moves in all. */
export function planRounds(
  candidates: readonly Candidate[],
  movesMax: number,
  totalMax: number,
  whatIf: WhatIf,
  steady: SteadyLoads,
): { readonly rounds: readonly (readonly RoundMove[])[]; readonly isPartial: boolean } {
  const rounds: (readonly RoundMove[])[] = [];
  let left = candidates;
  let total = 0;
  while (total < totalMax) {
    const round = planRound(left, Math.min(movesMax, totalMax - total), whatIf, steady);
    if (round.length === 0) return { rounds, isPartial: false };
    rounds.push(round);
    total += round.length;
    const moved = new Set(round.map(({ task }) => task));
    left = left.map(({ service, tasks }) => ({ service, tasks: tasks.filter((task) => !moved.has(task)) }));
  }
  return { rounds, isPartial: true };
}
