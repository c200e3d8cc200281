/** An agent is killed, and started again after a while; its tasks run on. */
import { crash, type Fault } from "./fault.ts";

export const agentCrash = {
  kind: "agent.crash",
  share: 0.35,
  meanMs: [3_000, 20_000],
  begin: (world) => ({ strike: (random) => crash(world, random.pick(world.agents), random, false) }),
} as const satisfies Fault;
