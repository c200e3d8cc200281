import test from "ava";
import { describeOptions, drawOptions } from "../../simulation/options.ts";
import { runSeed } from "../../simulation/world.ts";

const holds = test.macro({
  exec: async (t, seed: number) => {
    const options = drawOptions(seed);
    t.log(describeOptions(options));
    const { failure } = await runSeed(options);
    t.is(failure, null, `again: npm run sim -- --seed ${seed}`);
  },
  title: (_title, seed: number) => `every invariant holds and the cluster comes to rest with seed ${seed}`,
});

// One after the other, so that an unhandled rejection belongs to the running seed.
for (const seed of [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) test.serial(holds, seed);
