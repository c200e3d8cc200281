/** A machine loses power: its tasks end, and its disk loses what was not synced. */
import { crash, type Fault } from "./fault.ts";

export const powerFailure = {
  kind: "power.failure",
  share: 0.35,
  meanMs: [5_000, 20_000],
  begin: (world) => ({ strike: (random) => crash(world, random.pick(world.processes), random, true) }),
} as const satisfies Fault;
