/** All kinds of faults. A new one is a file of this folder and a line here. */
import type { SimRandom } from "../../runtime/sim/random.ts";
import { agentCrash } from "./agent-crash.ts";
import { appendAnswerLost } from "./append-answer-lost.ts";
import { clockJump } from "./clock-jump.ts";
import { diskFull } from "./disk-full.ts";
import { diskOlder } from "./disk-older.ts";
import type { Fault } from "./fault.ts";
import { leaderPause } from "./leader-pause.ts";
import { logFull } from "./log-full.ts";
import { logSilent } from "./log-silent.ts";
import { machineGone } from "./machine-gone.ts";
import { managerCrash } from "./manager-crash.ts";
import { managerOlder } from "./manager-older.ts";
import { natsCrash } from "./nats-crash.ts";
import { natsOlder } from "./nats-older.ts";
import { partition } from "./partition.ts";
import { pause } from "./pause.ts";
import { powerFailure } from "./power-failure.ts";
import { routeCut } from "./route-cut.ts";
import { snapshotTorn } from "./snapshot-torn.ts";
import { snapshotsStale } from "./snapshots-stale.ts";

export const faults = [
  partition,
  managerCrash,
  managerOlder,
  agentCrash,
  powerFailure,
  natsCrash,
  natsOlder,
  pause,
  leaderPause,
  clockJump,
  logFull,
  logSilent,
  appendAnswerLost,
  routeCut,
  snapshotTorn,
  snapshotsStale,
  diskFull,
  diskOlder,
  machineGone,
] as const satisfies readonly Fault[];

export type FaultKind = (typeof faults)[number]["kind"];

/** By kind: mean milliseconds between two strikes; 0: never. To switch a kind off, set it to 0: other kinds draw the same. */
export type FaultRates = Readonly<Record<FaultKind, number>>;

function ratesOf(rate: (fault: Fault) => number): FaultRates {
  return Object.fromEntries(faults.map((fault) => [fault.kind, rate(fault)])) as FaultRates;
}

/** `randomOf`: a stream for each kind, so that a new kind does not change what others draw. */
export function drawRates(randomOf: (kind: string) => SimRandom): FaultRates {
  return ratesOf(({ kind, meanMs: [least, most], share }) => {
    const random = randomOf(kind);
    return random.chance(share) ? Math.round(random.between(least, most)) : 0;
  });
}

export const noRates: FaultRates = ratesOf(() => 0);
