/** Faults of disks and machines: full disks, older disks, and machines that break for good. */
import type { DiskCopy } from "../../runtime/sim/disk.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { SimProcess, Simulation } from "../../runtime/sim/simulation.ts";

import type { FaultRates } from "../options.ts";

export interface FaultTargets {
  readonly managers: readonly SimProcess[];
  readonly agents: readonly SimProcess[];
  /** Also ends the runs of the agent's tasks. */
  readonly losePower: (agent: SimProcess) => void;
  /** Whether NATS may lose acknowledged records; an agent whose membership is lost has to join again manually. */
  readonly mayLoseTail: () => boolean;
  /** Whether the machine may break or get an older disk, because the cluster does not depend on it. */
  readonly mayBreak: (process: SimProcess) => boolean;
  /** The disk of an agent's machine was replaced by an older one. */
  readonly diskWentBack: (agent: SimProcess) => void;
}

const fullMsMax = 10_000;
const downMsMax = 8_000;
/** Interval between copies of a machine's disk, in milliseconds. */
const copyMs = 5_000;

interface DiskFaultParts extends FaultTargets {
  /** Calls `strike` repeatedly, `meanMs` apart on average; never if that is 0. */
  readonly every: (name: string, meanMs: number, strike: (random: SimRandom) => void) => void;
  /** Calls `work` after a while, unless faults are over by then. */
  readonly later: (ms: number, work: () => void) => void;
}

/** `heal`: empties full disks; broken machines stay broken. */
export function startDiskFaults(
  simulation: Simulation,
  rates: FaultRates,
  { agents, diskWentBack, every, later, losePower, managers, mayBreak }: DiskFaultParts,
): { heal(): void } {
  const { nats, trace } = simulation;
  const processes = [...managers, ...agents];

  every("log.full", rates.logFullMs, (random) => {
    const isAll = random.chance(0.5);
    if (isAll) nats.storesNothing = true;
    else nats.isDiskFull = true;
    later(random.between(100, fullMsMax), () => (nats.storesNothing = nats.isDiskFull = false));
  });
  every("disk.full", rates.diskFullMs, (random) => {
    const { disk, name } = random.pick(processes);
    trace.write(name, "disk full");
    disk.isFull = true;
    later(random.between(100, fullMsMax), () => (disk.isFull = false));
  });

  const copies = new Map<SimProcess, DiskCopy>();
  every("disk.copied", rates.restoredMs === 0 ? 0 : copyMs, (random) => {
    const process = random.pick(processes);
    if (mayBreak(process)) copies.set(process, process.disk.copy());
  });
  every("disk.restored", rates.restoredMs, (random) => {
    if (copies.size === 0) return;
    const [process, copy] = random.pick([...copies]);
    if (!process.isRunning || !mayBreak(process)) return;
    process.crash({ losePower: true });
    losePower(process);
    process.disk.restore(copy);
    diskWentBack(process);
    trace.mark("disk.older");
    later(random.between(0, downMsMax), () => process.start());
  });

  let left = rates.gone;
  // In the first half of the run, so that its consequences meet other faults as well.
  every("machine.gone", rates.gone === 0 ? 0 : 8_000, (random) => {
    const process = random.pick(agents);
    if (left === 0 || process.goneAt !== null || !mayBreak(process)) return;
    left -= 1;
    losePower(process);
    process.discard();
    trace.write(process.name, "gone for good");
    trace.mark("machine.thrown.away");
  });

  return {
    heal() {
      nats.storesNothing = nats.isDiskFull = false;
      for (const { disk } of processes) disk.isFull = false;
    },
  };
}
