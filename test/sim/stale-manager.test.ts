// A manager's link is back before the log answers, and meanwhile the agent was with another manager.
import test from "ava";
import type { SimManager } from "../../simulation/managers/managers.ts";
import { ScriptedWorld } from "./scripted.ts";

/** The agent notices the cut by a heartbeat, at most 5 s after the last one, and retries its manager once. */
const awayMs = 10_000;
/** In some seeds the agent moves in time: before its manager is declared dead and listed as alive again. */
const seedsMax = 24;
const wanted = 3;

/**
 * False if, by the seed's timing, the manager learns of the other one, or the agent forgets it, before anything can go wrong.
 */
async function returnsToThePast(seed: number): Promise<boolean> {
  const world = new ScriptedWorld({ seed, managers: 2 });
  await world.found();
  const { nats } = world.scene.simulation;
  await world.pass(5_000);
  const home = world.home(world.managers.all[0] as SimManager) as SimManager;
  const other = world.managers.all.find((each) => each !== home) as SimManager;
  const { name } = home.process;

  world.cut(name, "a1");
  await world.pass(awayMs);
  world.cut(name, "nats");
  await world.until("the agent to be with the other", () => world.isAssignedBy(other));
  const known = other.running?.store;
  const isListed = known?.get("manager", known.byName("node", name)?.id ?? "")?.alive === true;
  await world.pass(200);

  // The NATS servers are back, and the log's stream has no leader yet.
  nats.isLogSilent = true;
  world.heal(name, "nats");
  world.heal(name, "a1");
  await world.pass(1_800);
  if (!isListed || world.home(home) !== home) return false;
  other.process.crash();
  // Every message to the agent is checked for S51.
  await world.pass(9_000);
  if (world.home(home) !== home) throw new Error(`seed ${seed}: the manager learned of the other one without the log`);
  nats.isLogSilent = false;
  await world.until("the agent to be back, by way of the log", () => world.isAssignedBy(home));
  return true;
}

test("an agent that returns to a stale manager gets no stale assignments", async (t) => {
  t.timeout(120_000);
  let met = 0;
  for (let seed = 1; seed <= seedsMax && met < wanted; seed += 1) if (await returnsToThePast(seed)) met += 1;
  t.is(met, wanted, "the expected number of seeds reach the scenario");
});
