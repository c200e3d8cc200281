/**
 * A leader whose wall clock jumps during an update, as after a laptop's sleep.
 *
 * S127: a clock that jumps cuts no monitoring period of an update short, at most doubles it, and expires no deadline.
 */
import test from "ava";
import { Duration, UpdateConfig, UpdateStatus_UpdateState } from "../../proto/gen/messages.ts";
import type { SimManager } from "../../simulation/managers/managers.ts";
import { ScriptedWorld, steadyTasks } from "./scripted.ts";
import { simService, updatedAgain } from "../../simulation/workloads/services.ts";

const monitorMs = 20_000;
const { COMPLETED, UPDATING } = UpdateStatus_UpdateState;

/** One manager, two nodes, and a service of two tasks; an update replaces one task after the other. */
async function updating(seed: number) {
  const world = new ScriptedWorld({ seed, managers: 1, agents: 2, tasks: steadyTasks });
  await world.found();
  const manager = world.leader as SimManager;
  const spec = simService({
    name: "web",
    replicas: 2,
    update: UpdateConfig.create({ parallelism: 1, monitor: Duration.create({ seconds: monitorMs / 1_000 }) }),
  });
  const serviceId = await world.create(spec);
  await world.until("two tasks", () => world.running("a1").length + world.running("a2").length === 2);
  const before = new Set([...world.running("a1"), ...world.running("a2")]);
  await world.update(serviceId, updatedAgain(spec));
  const stored = () => manager.running?.store.get("service", serviceId);
  await world.until("the update", () => stored()?.updateStatus?.state === UPDATING);
  /** Running tasks of the new spec. */
  const changed = (): number => [...world.running("a1"), ...world.running("a2")].filter((id) => !before.has(id)).length;
  return { world, manager, changed, state: () => stored()?.updateStatus?.state };
}

test("S127: a clock that jumps forward cuts no monitoring period of an update short", async (t) => {
  const { changed, manager, state, world } = await updating(31);
  await world.until("all tasks of the new spec", () => changed() === 2);
  const fromMs = world.scene.simulation.clock.elapsed;
  await world.pass(2_000);
  manager.process.jumpClock(3_600_000);
  await world.until("the end of the update", () => state() === COMPLETED);
  const watchedMs = world.scene.simulation.clock.elapsed - fromMs;
  t.true(watchedMs >= monitorMs - 500, `${watchedMs} ms`);
  t.true(watchedMs <= 2 * monitorMs, `${watchedMs} ms`);
});

for (const byMs of [12 * 3_600_000, -12 * 3_600_000])
  test(`S127: a clock that jumps by ${byMs / 3_600_000} h during an update expires no deadline`, async (t) => {
    const { changed, manager, state, world } = await updating(32);
    for (let set = 0; set < 2; set += 1) {
      manager.process.jumpClock(byMs);
      await world.pass(300);
      t.is(state(), UPDATING);
    }
    await world.until("all tasks of the new spec", () => changed() === 2);
    await world.until("the end of the update", () => state() !== UPDATING);
    t.is(state(), COMPLETED);
  });
