// Managers are demoted and promoted while others are killed: one always remains, and each promoted one comes back.
import test from "ava";
import { drawOptions } from "../../simulation/options.ts";
import { runSeed } from "../../simulation/world.ts";

const seeds = [1, 2, 3, 4];

test("when managers are demoted and promoted, one always remains, and each promoted one leads and serves again", async (t) => {
  t.timeout(60_000);
  const reached = new Map<string, number>();
  for (const seed of seeds) {
    const drawn = drawOptions(seed);
    const result = await runSeed({
      ...drawn,
      managers: 3,
      agents: 2,
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
      driverOperations: 0,
      lateAgents: 0,
      watchers: 0,
      looksBack: 0,
      volumeOperations: 0,
      lockOperations: 0,
      roleOperations: 12,
      endsWithAllManagers: seed % 2 === 0,
      rates: { ...drawn.rates, "nats.older": 0, "manager.crash": 8_000, "agent.crash": 8_000 },
    });
    t.is(result.failure, null, `seed ${seed}`);
    for (const [mark, times] of result.marks) reached.set(mark, (reached.get(mark) ?? 0) + times);
  }
  for (const mark of ["role.demoted", "role.promoted", "manager.demoted", "manager.started.again"])
    t.true((reached.get(mark) ?? 0) > 0, mark);
});
