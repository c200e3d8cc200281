/**
 * Faults that hit many nodes at the same time, and clocks that jump.
 *
 * S60: in these scenarios no agent fails for good, so no node is declared DOWN, whatever else fails.
 */
import test from "ava";
import { NodeStatus_State } from "../../proto/gen/messages.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import { ScriptedWorld } from "./scripted.ts";

const hourMs = 3_600_000;

/** S60 */
function nobodyIsDown(replica: Replica, demand: (claim: string | null) => void): void {
  replica.watch((commit) => {
    for (const change of commit.changes) {
      if (change.table !== "node" || change.action === "remove") continue;
      if (change.object.status?.state === NodeStatus_State.DOWN)
        demand(`S60: node ${change.object.description?.hostname ?? change.object.id} is declared DOWN`);
    }
  });
}

test("starved agents with occasional signs of life are never declared DOWN", async (t) => {
  t.timeout(240_000);
  const world = new ScriptedWorld({ seed: 11, managers: 2, agents: 6, onReplica: nobodyIsDown });
  await world.found();
  // Each of the five is suspended most of the time and communicates in between; never longer than 44 s.
  for (let round = 0; round < 6; round += 1) {
    for (const [at, agent] of world.agents.slice(0, 5).entries()) agent.pause(18_000 + 5_000 * ((at + round) % 5));
    await world.pass(44_000);
  }
  await world.until("all nodes to be READY", () => world.areAllReady());
  t.is(world.scene.failure, null);
});

// The fault comes within a second or two of the first sessions: managers must not take themselves for just started (D1).
// In seeds 13 and 16, some agents return before any of the others would be declared DOWN (D2).
for (const seed of [1, 11, 12, 13, 16])
  test(`no agent is declared DOWN when two managers, the nats-server and most agents are hit at the same time: seed ${seed}`, async (t) => {
    t.timeout(240_000);
    const world = new ScriptedWorld({ seed, managers: 3, agents: 6, onReplica: nobodyIsDown });
    await world.found();
    const [, second, third] = world.managers.processes;
    const { nats } = world.scene.simulation;
    second?.crash();
    third?.crash();
    nats.crash({ loseTail: false });
    for (const agent of world.agents.slice(0, 5)) agent.pause(36_000);
    await world.pass(6_000);
    nats.start();
    await world.pass(50_000);
    second?.start();
    third?.start();
    await world.pass(40_000);
    await world.until("all nodes to be READY", () => world.areAllReady());
    t.is(world.scene.failure, null);
  });

test("no node is declared DOWN when clocks of managers and agents jump by hours in both directions", async (t) => {
  t.timeout(240_000);
  const world = new ScriptedWorld({ seed: 13, managers: 2, agents: 4, onReplica: nobodyIsDown });
  await world.found();
  for (const [at, process] of [...world.managers.processes, ...world.agents].entries()) {
    process.jumpClock((at % 2 === 0 ? 1 : -1) * (1 + at) * hourMs);
    await world.pass(7_000);
  }
  await world.pass(60_000);
  for (const process of [...world.managers.processes, ...world.agents]) process.setClockRight();
  await world.pass(60_000);
  t.true(world.areAllReady());
});
