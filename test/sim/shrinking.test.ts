/** A failing seed is shrunk to what the failure needs, and the file of the smallest run fails likewise. */
import test from "ava";
import { SimDisk } from "../../runtime/sim/disk.ts";
import { drawOptions } from "../../simulation/options.ts";
import { runSeed } from "../../simulation/world.ts";
import { invariantOf } from "./shrinking/invariant.ts";
import { readScenario, scenarioText } from "./shrinking/scenario-file.ts";
import { shrink } from "./shrinking/shrink.ts";

/** Far longer than shrinking takes, so that its result does not depend on the machine's speed. */
const limitMs = 600_000;

test.serial("a disk that a power failure erases is found by one manager, one agent and one fault", async (t) => {
  t.timeout(limitMs);
  // The injected bug. Real disks keep what was synced.
  const { loseUnsynced } = SimDisk.prototype;
  SimDisk.prototype.loseUnsynced = function loseAll() {
    this.restore({ files: new Map() });
  };
  t.teardown(() => (SimDisk.prototype.loseUnsynced = loseUnsynced));
  const drawn = drawOptions(11);
  const { failure, marks, strikes } = await runSeed(drawn);
  if (failure === null) return t.fail("the seed passes with the bug");
  t.true(strikes.length > 5);

  const how = { run: runSeed, limitMs, now: () => performance.now() };
  const shrunk = await shrink(drawn, { failure, marks, strikes }, how);
  t.is(shrunk.invariant, invariantOf(failure));
  t.true(shrunk.isMinimal);
  const { agents, managers, operations, onlyTrials } = shrunk.options;
  t.true(managers <= 2 && agents === 1 && operations <= 1, JSON.stringify({ agents, managers, operations }));
  t.deepEqual(onlyTrials, []);
  t.deepEqual(
    shrunk.options.strikes?.map(({ kind }) => kind),
    ["power.failure"],
  );

  const text = scenarioText({ options: shrunk.options, violates: shrunk.invariant }, [shrunk.failure]);
  const read = readScenario(text, "shrunk.yaml");
  const again = await runSeed(read.options);
  t.is(again.failure ?? "it passes", shrunk.failure);
  t.is(read.violates, invariantOf(again.failure ?? ""));

  SimDisk.prototype.loseUnsynced = loseUnsynced;
  t.is((await runSeed(read.options)).failure, null, "without the bug it passes");
  return undefined;
});

test.serial("shrinking stops at its time limit, with the smallest run so far", async (t) => {
  const drawn = drawOptions(1);
  const outcome = { failure: "S1: always", marks: new Map(), strikes: [] };
  let now = 0;
  const run = async () => {
    now += 1_000;
    return outcome;
  };
  const shrunk = await shrink(drawn, outcome, { run, limitMs: 3_000, now: () => now });
  t.is(shrunk.runs, 3);
  t.false(shrunk.isMinimal);
});
