// A leader whose process is starved loses the lead: its measurements of the link are obsolete once another manager leads.
import test from "ava";
import type { SimManager } from "../../simulation/managers/managers.ts";
import { ScriptedWorld } from "./scripted.ts";

/** Duration of each of the leader's callbacks, in milliseconds: renewing the lease takes longer than the lease lasts. */
const starvedMs = 1_200;

test("S126: a starved leader that lost the lead is healthy again while another manager leads", async (t) => {
  // With some seeds the other manager leads before the starved one has reported anything.
  const world = new ScriptedWorld({ seed: 6, managers: 2 });
  await world.found();
  const starved = world.leader as SimManager;
  starved.process.slow(starvedMs);
  await world.until("its report of a slow link", () =>
    /for a write of the lease/.test(starved.running?.unhealthy() ?? ""),
  );
  await world.until("another leader", () => world.leader !== undefined && world.leader !== starved);
  starved.process.slow(0);
  await world.until("all managers to be healthy", () =>
    world.managers.all.every(({ running }) => running?.unhealthy() === null),
  );
  t.not(world.leader, starved, "it has not led since");
});
