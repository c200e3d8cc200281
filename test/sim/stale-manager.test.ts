// The log does not answer yet when a manager's link is back, and the agent was with another manager meanwhile.
import test from "ava";
import type { SimManager } from "./managers.ts";
import { ScriptedWorld } from "./scripted.ts";

/** The agent notices that it is cut off from its manager by its heartbeat, 5 s after it sent it at most, and tries it once more. */
const awayMs = 10_000;
/** In some seeds the agent goes elsewhere in time: before its manager is taken for dead, and is heard of by the log. */
const seedsMax = 24;
const wanted = 3;

/** False where the seed's times are such that the manager learns, or is forgotten by the agent, before anything can go wrong. */
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

  // The servers are back, and nobody leads the log's stream yet.
  nats.isLogSilent = true;
  world.mend(name, "nats");
  world.mend(name, "a1");
  await world.pass(1_800);
  if (!isListed || world.home(home) !== home) return false;
  other.process.crash();
  // S51 is looked at with every message that the agent gets.
  await world.pass(9_000);
  if (world.home(home) !== home) throw new Error(`seed ${seed}: it learned of the other without the log`);
  nats.isLogSilent = false;
  await world.until("the agent to be back, by way of the log", () => world.isAssignedBy(home));
  return true;
}

test("an agent that returns to a manager of the past is assigned nothing of the past", async (t) => {
  t.timeout(120_000);
  let met = 0;
  for (let seed = 1; seed <= seedsMax && met < wanted; seed += 1) if (await returnsToThePast(seed)) met += 1;
  t.is(met, wanted, "so often the scenario came about");
});
