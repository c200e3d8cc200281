/**
 * The log does not answer, while the connection to NATS and everything else on it works: for all managers, as when nobody leads
 * its stream, or for one, as when its consumer is stuck.
 */
import type { Fault } from "./fault.ts";

/** Longer than a manager without progress waits until it reports itself unhealthy. */
const silentMsMax = 15_000;

export const logSilent = {
  kind: "log.silent",
  share: 0.3,
  meanMs: [4_000, 20_000],
  begin: ({ later, managers, simulation: { nats } }) => ({
    strike(random) {
      const ms = random.between(100, silentMsMax);
      if (random.chance(0.5)) {
        nats.isLogSilent = true;
        later(ms, () => (nats.isLogSilent = false));
      } else {
        const { name } = random.pick(managers);
        nats.logSilentTo.add(name);
        later(ms, () => nats.logSilentTo.delete(name));
      }
    },
    heal() {
      nats.isLogSilent = false;
      nats.logSilentTo.clear();
    },
  }),
} as const satisfies Fault;
