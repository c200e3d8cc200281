/** The machine of an agent breaks for good. */
import type { Fault } from "./fault.ts";

/** Maximum number of broken machines: a cluster has up to five agents, and loses a minority. */
const goneMax = 2;

export const machineGone = {
  kind: "machine.gone",
  share: 0.4,
  meanMs: [6_000, 16_000],
  begin({ agents, losePower, mayBreak, simulation: { trace } }) {
    let left = goneMax;
    return {
      strike(random) {
        const process = random.pick(agents);
        if (left === 0 || process.goneAt !== null || !mayBreak(process)) return;
        left -= 1;
        losePower(process);
        process.discard();
        trace.write(process.name, "gone for good");
        trace.mark("machine.thrown.away");
      },
    };
  },
} as const satisfies Fault;
