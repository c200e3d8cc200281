// The log does not answer yet when a manager's link is back, and the agent was with another manager meanwhile.
import test from "ava";
import type { SimManager } from "./managers.ts";
import { ScriptedWorld } from "./scripted.ts";

/** The agent notices that it is cut off from its manager by its heartbeat, 5 s after it sent it at most, and tries it once more. */
const awayMs = 10_000;

// With these the agent goes elsewhere in time: before the manager, which gets nothing done, notices that by its probes.
for (const seed of [4, 5, 8])
  test(`an agent that returns to a manager of the past is assigned nothing of the past (seed ${seed})`, async (t) => {
    t.timeout(60_000);
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
    await world.pass(200);

    // The servers are back, and nobody leads the log's stream yet.
    nats.isLogSilent = true;
    world.mend(name, "nats");
    world.mend(name, "a1");
    await world.pass(1_800);
    t.is(world.home(home), home, "it knows nothing of what happened");
    other.process.crash();
    // S51 is looked at with every message that the agent gets.
    await world.pass(9_000);
    t.is(world.home(home), home);
    nats.isLogSilent = false;
    await world.until("the agent to be back, by way of the log", () => world.isAssignedBy(home));
    t.not(world.home(home), undefined);
  });
