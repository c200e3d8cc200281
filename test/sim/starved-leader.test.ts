// A leader whose process is starved loses the lead: what it then measured of its link says nothing once another leads.
import test from "ava";
import type { SimManager } from "./managers.ts";
import { ScriptedWorld } from "./scripted.ts";

/** What each callback takes the leader, in milliseconds: a write of the lease is answered after more than it lasts. */
const starvedMs = 1_200;

test("S126: a leader that was starved and lost the lead is healthy again while another keeps it", async (t) => {
  const world = new ScriptedWorld({ seed: 5, managers: 2 });
  await world.found();
  const starved = world.leader as SimManager;
  starved.process.slow(starvedMs);
  await world.until("its own view of a link that is too slow", () =>
    /for a write of the lease/.test(starved.running?.unhealthy() ?? ""),
  );
  await world.until("another leader", () => world.leader !== undefined && world.leader !== starved);
  starved.process.slow(0);
  await world.until("all managers to be healthy", () =>
    world.managers.all.every(({ running }) => running?.unhealthy() === null),
  );
  t.not(world.leader, starved, "it has written no lease since");
});
