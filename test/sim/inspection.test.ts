/**
 * Somebody watches all actors at one manager while the other managers and the agents crash and links are cut.
 *
 * S138: when faults have ended, the viewer sees each process's actors in the states that they are in.
 * S139: a viewer never gets a step of a process whose snapshot it lacks.
 */
import test from "ava";
import { InspectionService, WatchActorsRequest } from "../../proto/gen/messages.ts";
import { noFaults } from "../../runtime/sim/network.ts";
import { addToView, type FeedView } from "../support/feed-view.ts";
import type { SimManager } from "../../simulation/managers/managers.ts";
import { ScriptedWorld, steadyTasks } from "./scripted.ts";
import { simService } from "../../simulation/workloads/services.ts";

const seeds = [21, 22, 23];
const rounds = 4;
/** A viewer is behind a change by the feed's own batching and the network; a lost end is noticed by the second renewal. */
const restMs = 15_000;

/** Faults between two quiet moments, from short to longer than every time limit of the feed. */
const faultMs = [300, 2_000, 6_000, 12_000];

test("S138: after crashes and cut links a viewer sees every actor in the state that it is in", async (t) => {
  t.timeout(240_000);
  let lost = 0;
  for (const seed of seeds) {
    const world = new ScriptedWorld({ seed, managers: 3, agents: 3, tasks: steadyTasks });
    await world.found();
    await world.create(simService({ name: "web", replicas: 4 }));
    const [first, ...others] = world.managers.all as [SimManager, SimManager, SimManager];
    const view: FeedView = new Map();
    const stream = world.dial(first).serverStream(InspectionService.methods.Watch, WatchActorsRequest.create(), {
      onMessage: (message) => {
        if (message.lost !== "") lost += 1;
        try {
          addToView(view, message);
        } catch (error) {
          world.scene.fail(`S139: ${String(error)}`);
        }
      },
      onEnd: (error) => world.scene.fail(`the viewer's stream ended: ${error?.message ?? "OK"}`),
    });
    const names = [...world.managers.processes, ...world.agents].map(({ name }) => name);
    const processOf = (name: string): string => {
      const id = first.running?.store.byName("node", name)?.id ?? "";
      return name.startsWith("m") ? `manager-${id}` : `node-${id}`;
    };
    const isTrue = (name: string): boolean => {
      const [seen, real] = [view.get(processOf(name)), world.actorsOf(name)];
      if (!(seen instanceof Map) || real === null || seen.size !== real.size) return false;
      return [...real].every(([actor, states]) => seen.get(actor) === states);
    };
    /** Each once: at any moment, some message is on its way. */
    const agree = async (): Promise<void> => {
      const open = new Set(names);
      await world.until(`S138: the viewer to see ${names.join(", ")} as they are (seed ${seed})`, () => {
        for (const name of open) if (isTrue(name)) open.delete(name);
        return open.size === 0;
      });
    };
    await agree();
    const { network, random: randoms } = world.scene.simulation;
    const random = randoms.fork("viewer");
    for (let round = 0; round < rounds; round += 1) {
      network.faults = { ...noFaults(), loss: 0.2, duplication: 0.05, reordering: 0.1 };
      const ms = random.pick(faultMs);
      const manager = random.pick(others).process;
      const agent = random.pick(world.agents);
      const [one, other] = random.pick([
        [first.process.name, "nats"],
        [manager.name, "nats"],
        [agent.name, manager.name],
        [agent.name, first.process.name],
      ]) as [string, string];
      const isCrash = random.chance(0.5);
      if (isCrash) random.pick([manager, agent]).crash();
      world.cut(one, other);
      await world.pass(ms);
      world.heal(one, other);
      for (const each of [...world.managers.processes, ...world.agents]) if (!each.isRunning) each.start();
      await world.pass(random.pick([0, 500, 5_000]));
      network.faults = noFaults();
      await world.pass(restMs);
      await agree();
    }
    stream.cancel();
    await world.pass(10_000);
    t.is(world.scene.failure, null);
  }
  t.true(lost > 0, "some process was lost on the way");
});
