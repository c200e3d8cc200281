/** A machine's wall clock jumps forward or back by up to hours, as with a missing battery, a wrong time zone or a laptop's sleep. */
import type { Fault } from "./fault.ts";

/** Less than the lifetime of a certificate. */
const jumpMsMax = 12 * 3_600_000;

export const clockJump = {
  kind: "clock.jump",
  share: 0.35,
  meanMs: [2_000, 12_000],
  begin: ({ processes }) => ({
    strike(random) {
      const ms = Math.round(random.between(1_000, jumpMsMax));
      random.pick(processes).jumpClock(random.chance(0.5) ? ms : -ms);
    },
    heal() {
      for (const process of processes) process.setClockRight();
    },
  }),
} as const satisfies Fault;
