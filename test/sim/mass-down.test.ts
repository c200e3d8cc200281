/**
 * Faults that take many nodes at once, and clocks that are set.
 *
 * S60: in these scenarios no node dies, so none is declared DOWN, whatever else is hit.
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

test("starved agents that are heard now and then are held, and never declared DOWN", async (t) => {
  t.timeout(240_000);
  const world = new ScriptedWorld({ seed: 11, managers: 2, agents: 6, onReplica: nobodyIsDown });
  await world.found();
  // Each of five is stopped for most of the time, and hears or says something in between; never longer than 44 s.
  for (let round = 0; round < 6; round += 1) {
    for (const [at, agent] of world.agents.slice(0, 5).entries()) agent.pause(18_000 + 5_000 * ((at + round) % 5));
    await world.pass(44_000);
  }
  await world.until("all nodes to be READY", () => world.areAllReady());
  t.is(world.scene.failure, null);
});

test("two managers, the nats-server and most agents are hit at once: none of the agents is declared DOWN", async (t) => {
  t.timeout(240_000);
  const world = new ScriptedWorld({ seed: 12, managers: 3, agents: 6, onReplica: nobodyIsDown });
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

test("clocks that are set by hours in both directions, of managers and agents, cost nobody anything", async (t) => {
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
