/** A manager is killed, and started again after a while. */
import { crash, type Fault } from "./fault.ts";

export const managerCrash = {
  kind: "manager.crash",
  share: 0.35,
  meanMs: [3_000, 20_000],
  begin: (world) => ({ strike: (random) => crash(world, random.pick(world.managers), random, false) }),
} as const satisfies Fault;
