/** The disk of the nats-server is full for a while: it stores nothing, or only leases. */
import type { Fault } from "./fault.ts";

const fullMsMax = 10_000;

export const logFull = {
  kind: "log.full",
  share: 0.3,
  meanMs: [4_000, 20_000],
  begin({ later, simulation: { nats } }) {
    const heal = (): void => void (nats.storesNothing = nats.isDiskFull = false);
    return {
      strike(random) {
        const isAll = random.chance(0.5);
        if (isAll) nats.storesNothing = true;
        else nats.isDiskFull = true;
        later(random.between(100, fullMsMax), heal);
      },
      heal,
    };
  },
} as const satisfies Fault;
