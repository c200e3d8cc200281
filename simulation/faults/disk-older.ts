/** A machine loses power, and comes back with an earlier state of its disk, as from a backup. */
import type { DiskCopy } from "../../runtime/sim/disk.ts";
import type { SimProcess } from "../../runtime/sim/simulation.ts";
import type { Fault } from "./fault.ts";

const downMsMax = 8_000;
/** Interval between two rounds of copies, in milliseconds; each copies the disks of about a third of the machines. */
const copyMs = 1_500;
const copiedShare = 0.3;

export const diskOlder = {
  kind: "disk.older",
  share: 0.3,
  meanMs: [6_000, 20_000],
  begin({ diskWentBack, later, losePower, mayBreak, processes, repeat, simulation: { random: source, trace } }) {
    const copies = new Map<SimProcess, DiskCopy>();
    const copying = source.fork("faults.disk.copies");
    repeat(copyMs, () => {
      for (const process of processes)
        if (copying.chance(copiedShare) && mayBreak(process)) copies.set(process, process.disk.copy());
    });
    return {
      strike(random) {
        if (copies.size === 0) return;
        const [process, copy] = random.pick([...copies]);
        if (!process.isRunning || !mayBreak(process)) return;
        process.crash({ losePower: true });
        losePower(process);
        process.disk.restore(copy);
        diskWentBack(process);
        trace.mark("disk.older");
        later(random.between(0, downMsMax), () => process.start());
      },
    };
  },
} as const satisfies Fault;
