/** The leader is stopped for longer than its lease: it continues as a leader that another has replaced. */
import type { Fault } from "./fault.ts";

/** The lease lasts 3 s, and another manager takes it within a second after that. */
const pauseMsMin = 3_000;
const pauseMsMax = 9_000;

export const leaderPause = {
  kind: "leader.pause",
  share: 0.3,
  meanMs: [5_000, 20_000],
  begin: ({ leader }) => ({
    strike: (random) => leader()?.pause(random.between(pauseMsMin, pauseMsMax)),
  }),
} as const satisfies Fault;
