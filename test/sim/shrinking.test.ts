/** A failing seed is shrunk to what the failure needs, and the file of the smallest run fails likewise. */
import test from "ava";
import { SimDisk } from "../../runtime/sim/disk.ts";
import { drawOptions } from "../../simulation/options.ts";
import { runSeed } from "../../simulation/world.ts";
import { noFaults } from "../../runtime/sim/network.ts";
import { quietOptions } from "../../simulation/quiet-options.ts";
import { invariantOf } from "./shrinking/invariant.ts";
import { withRatesOfStrikes } from "./shrinking/leaves.ts";
import { readScenario, scenarioText } from "./shrinking/scenario-file.ts";
import { shrink } from "./shrinking/shrink.ts";

/** A failing plan, written out: what a seed draws changes with every message that is added. */
const failing = withRatesOfStrikes({
  ...quietOptions({ seed: 11, managers: 1, agents: 3 }),
  faultsMs: 15_000,
  tasks: { refusal: 0.1, failure: 0.2, lifeMsMax: 5_000, prepareMsMax: 100, startMsMax: 300, stopMsMax: 300 },
  network: { ...noFaults(), loss: 0.01, reordering: 0.1 },
  operations: 8,
  jobOperations: 5,
  globalOperations: 5,
  onlyTrials: ["agent.killed"],
  strikes: [
    { kind: "pause", atMs: 1_000, draw: 0 },
    { kind: "agent.crash", atMs: 2_000, draw: 0 },
    { kind: "partition", atMs: 3_000, draw: 0 },
    { kind: "log.silent", atMs: 5_000, draw: 0 },
    // Which machine loses power depends on the draw and the number of machines alone; late, so that the others have joined.
    ...[0, 1, 2, 3, 4, 5].map((draw) => ({ kind: "power.failure", atMs: 14_000 + 100 * draw, draw })),
  ],
});
/** Far longer than shrinking takes, so that its result does not depend on the machine's speed. */
const limitMs = 600_000;

test.serial("a disk that a power failure erases is found by one manager, one agent and that fault alone", async (t) => {
  t.timeout(limitMs);
  // The injected bug. Real disks keep what was synced.
  const { loseUnsynced } = SimDisk.prototype;
  SimDisk.prototype.loseUnsynced = function loseAll() {
    this.restore({ files: new Map() });
  };
  t.teardown(() => (SimDisk.prototype.loseUnsynced = loseUnsynced));
  const { failure, marks, strikes } = await runSeed(failing);
  if (failure === null) return t.fail("the plan passes with the bug");
  t.true(strikes.length > 5);

  const how = { run: runSeed, limitMs, now: () => performance.now() };
  const shrunk = await shrink(failing, { failure, marks, strikes }, how);
  t.is(shrunk.invariant, invariantOf(failure));
  t.true(shrunk.isMinimal);
  const { agents, managers, operations, onlyTrials } = shrunk.options;
  t.true(managers === 1 && agents === 1 && operations <= 1, JSON.stringify({ agents, managers, operations }));
  t.deepEqual(onlyTrials, []);
  const kinds = shrunk.options.strikes?.map(({ kind }) => kind) ?? [];
  t.deepEqual([...new Set(kinds)], ["power.failure"]);
  t.true(kinds.length <= 2, "the second of two may end what the first leaves running");

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
