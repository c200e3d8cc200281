/** The disk of a manager or agent is full for a while. */
import type { Fault } from "./fault.ts";

const fullMsMax = 10_000;

export const diskFull = {
  kind: "disk.full",
  share: 0.3,
  meanMs: [4_000, 20_000],
  begin: ({ later, processes, simulation: { trace } }) => ({
    strike(random) {
      const { disk, name } = random.pick(processes);
      trace.write(name, "disk full");
      disk.isFull = true;
      later(random.between(100, fullMsMax), () => (disk.isFull = false));
    },
    heal() {
      for (const { disk } of processes) disk.isFull = false;
    },
  }),
} as const satisfies Fault;
