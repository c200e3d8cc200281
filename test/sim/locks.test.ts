// Autolock and its keys change repeatedly while managers are killed at any time; each manager can be unlocked again.
import test from "ava";
import { drawOptions } from "../../simulation/options.ts";
import { runSeed } from "../../simulation/world.ts";

const seeds = [1, 2, 3, 4];

test("managers that are killed while the unlock key changes can be unlocked, and all read the log", async (t) => {
  t.timeout(60_000);
  const reached = new Map<string, number>();
  for (const seed of seeds) {
    const drawn = drawOptions(seed);
    const result = await runSeed({
      ...drawn,
      managers: 3,
      agents: 1,
      faultsMs: 30_000,
      globalOperations: 0,
      jobOperations: 0,
      networkOperations: 0,
      contentionOperations: 0,
      rolloutOperations: 0,
      placementOperations: 0,
      rebalanceOperations: 0,
      certificateOperations: 0,
      logOperations: 0,
      lateAgents: 0,
      watchers: 0,
      looksBack: 0,
      volumeOperations: 0,
      roleOperations: 0,
      lockOperations: 14,
      rates: { ...drawn.rates, "nats.older": 0, "manager.crash": 2_000 },
    });
    t.is(result.failure, null, `seed ${seed}`);
    for (const [mark, times] of result.marks) reached.set(mark, (reached.get(mark) ?? 0) + times);
  }
  const times = (...marks: string[]): number => marks.reduce((sum, mark) => sum + (reached.get(mark) ?? 0), 0);
  for (const mark of ["manager.locked", "autolock.on", "autolock.rotate", "autolock.off", "info: snapshot loaded"])
    t.true(times(mark) > 0, mark);
  t.true(times("unlock.newest", "unlock.older") > 0);
});
