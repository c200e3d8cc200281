/** The nats-server is killed, and started again after a while. Its disk has everything that it acknowledged. */
import type { Fault } from "./fault.ts";

const downMsMax = 5_000;

export const natsCrash = {
  kind: "nats.crash",
  share: 0.35,
  meanMs: [6_000, 40_000],
  begin: ({ later, simulation: { nats } }) => ({
    strike(random) {
      if (!nats.isUp) return;
      nats.crash({ loseTail: false });
      later(random.between(50, downMsMax), () => nats.start());
    },
  }),
} as const satisfies Fault;
