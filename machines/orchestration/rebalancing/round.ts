/** Plans the moves of one round (for the leader) and of all rounds (for a dry run). */
import type { Service, Task } from "../../../proto/gen/messages.ts";
import { paceOf } from "./moves.ts";
import type { SteadyLoads } from "../../scheduling/balance.ts";
import { ServiceMoves, type Move } from "../../scheduling/moves.ts";
import type { WhatIf } from "../../scheduling/what-if.ts";

export interface Candidate {
  readonly service: Service;
  /** Its tasks that may be moved. */
  readonly tasks: readonly Task[];
}

export interface RoundMove extends Move {
  readonly service: Service;
  readonly isStartFirst: boolean;
}

/** One service's moves; computed when its turn comes, since the budget may be spent before. */
class Mover {
  readonly service: Service;
  readonly parallelism: number;
  readonly isStartFirst: boolean;
  readonly #begin: () => ServiceMoves;
  #moves: ServiceMoves | null = null;

  constructor({ service, tasks }: Candidate, whatIf: WhatIf, steady: SteadyLoads) {
    const { isStartFirst, parallelism } = paceOf(service);
    this.service = service;
    this.parallelism = parallelism;
    this.isStartFirst = isStartFirst;
    this.#begin = () => new ServiceMoves(service, tasks, isStartFirst, whatIf, steady);
  }

  next(): Move | null {
    this.#moves ??= this.#begin();
    return this.#moves.next();
  }
}

function roundOf(movers: readonly Mover[], movesMax: number): readonly RoundMove[] {
  const found: RoundMove[] = [];
  for (const mover of movers) {
    const { service, parallelism, isStartFirst } = mover;
    for (let count = 0; count < parallelism && found.length < movesMax; count += 1) {
      const move = mover.next();
      if (move === null) break;
      found.push({ ...move, service, isStartFirst });
    }
    if (found.length >= movesMax) break;
  }
  return found;
}

/**
 * R3, R5: at most `movesMax` moves, and for each service at most its update parallelism. Charged in `whatIf` and `steady`.
 */
export function planRound(
  candidates: readonly Candidate[],
  movesMax: number,
  whatIf: WhatIf,
  steady: SteadyLoads,
): readonly RoundMove[] {
  const movers = candidates.map((candidate) => new Mover(candidate, whatIf, steady));
  return roundOf(movers, movesMax);
}

/** Plans rounds until no move gains anything; each task moves at most once. `totalMax`: moves in all. */
export function planRounds(
  candidates: readonly Candidate[],
  movesMax: number,
  totalMax: number,
  whatIf: WhatIf,
  steady: SteadyLoads,
): { readonly rounds: readonly (readonly RoundMove[])[]; readonly isPartial: boolean } {
  const movers = candidates.map((candidate) => new Mover(candidate, whatIf, steady));
  const rounds: (readonly RoundMove[])[] = [];
  let total = 0;
  while (total < totalMax) {
    const round = roundOf(movers, Math.min(movesMax, totalMax - total));
    if (round.length === 0) return { rounds, isPartial: false };
    rounds.push(round);
    total += round.length;
  }
  return { rounds, isPartial: true };
}
