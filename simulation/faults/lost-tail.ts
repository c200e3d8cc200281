/** The machine of the nats-server loses power, and with it acknowledged records that were not synced. */
import type { Fault } from "./fault.ts";

const downMsMax = 5_000;
/** Interval between two syncs, in milliseconds: some records are lost, and most are not. */
const syncMs = 2_000;

export const lostTail = {
  kind: "log.tail.lost",
  share: 0.07,
  meanMs: [6_000, 40_000],
  begin({ later, mayLoseTail, repeat, simulation: { nats } }) {
    repeat(syncMs, () => nats.sync());
    return {
      strike(random) {
        if (!nats.isUp) return;
        nats.crash({ loseTail: mayLoseTail() });
        later(random.between(50, downMsMax), () => nats.start());
      },
    };
  },
} as const satisfies Fault;
