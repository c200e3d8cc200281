/** A process or the nats-server is stopped (SIGSTOP), and continues after a while with its old state. */
import type { Fault } from "./fault.ts";

const pauseMsMax = 12_000;

export const pause = {
  kind: "pause",
  share: 0.35,
  meanMs: [3_000, 15_000],
  begin: ({ processes, simulation: { nats } }) => ({
    strike(random) {
      const ms = random.between(100, pauseMsMax);
      const process = processes[random.below(processes.length + 1)];
      if (process === undefined) nats.pause(ms);
      else process.pause(ms);
    },
  }),
} as const satisfies Fault;
