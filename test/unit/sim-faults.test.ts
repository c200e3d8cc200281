// The faults of a simulation: drawn, counted and switched off kind by kind.
import test from "ava";
import { startFaults } from "../../simulation/faults/faults.ts";
import type { Strike } from "../../simulation/faults/fault.ts";
import { drawRates, faults, noRates, type FaultRates } from "../../simulation/faults/kinds.ts";
import { quietOptions } from "../../simulation/quiet-options.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { Simulation } from "../../runtime/sim/simulation.ts";

const runMs = 60_000;

/** Times and kinds of all strikes on two idle managers and an agent. */
async function strikes(rates: FaultRates, only: readonly Strike[] | null = null): Promise<readonly string[]> {
  return (await runFaults(rates, only)).lines;
}

/** `only`: strikes to repeat. */
async function runFaults(rates: FaultRates, only: readonly Strike[] | null) {
  const simulation = new Simulation({ seed: 7, keepTrace: true });
  const processes = ["m1", "m2", "a1"].map((name) => simulation.process(name, () => undefined));
  for (const each of processes) each.start();
  const running = startFaults(
    simulation,
    { ...quietOptions({ seed: 7, managers: 2, agents: 1 }), rates, strikes: only },
    {
      managers: processes.slice(0, 2),
      agents: processes.slice(2),
      leader: () => processes[0] ?? null,
      losePower: () => undefined,
      older: () => [],
      setVersion: () => undefined,
      mayLoseTail: () => true,
      mayBreak: () => true,
      diskWentBack: () => undefined,
    },
  );
  await simulation.clock.run({ untilMs: simulation.clock.now() + runMs });
  running.heal();
  await simulation.clock.run({ untilMs: simulation.clock.now() + runMs });
  for (const each of processes) each.crash();
  const all = simulation.trace.text().split("\n");
  return { struck: running.struck, all, lines: all.filter((line) => line.includes("world fault ")) };
}

test("a kind of fault that is switched off strikes never, and all others strike when they did", async (t) => {
  const all = Object.fromEntries(faults.map(({ kind }) => [kind, 4_000])) as FaultRates;
  const drawn = await strikes(all);
  for (const { kind } of faults) {
    t.true(
      drawn.some((line) => line.endsWith(`fault ${kind}`)),
      kind,
    );
    const others = await strikes({ ...all, [kind]: 0 });
    t.deepEqual(
      others,
      drawn.filter((line) => !line.endsWith(`fault ${kind}`)),
      kind,
    );
  }
});

test("strikes that are repeated from a list do what they did, alone too", async (t) => {
  const every = Object.fromEntries(faults.map(({ kind }) => [kind, 9_000])) as FaultRates;
  const drawn = await runFaults(every, null);
  t.true(drawn.struck.length > 20);
  const withoutFractions = (lines: readonly string[]) => lines.map((line) => line.replace(/^\d+\.\d+ /, ""));
  const again = await runFaults(every, drawn.struck);
  t.deepEqual(withoutFractions(again.all), withoutFractions(drawn.all));
  t.deepEqual(again.struck, drawn.struck);
  const last = drawn.struck.at(-1) as Strike;
  t.true(last.draw > 0);
  const alone = await runFaults(every, [last]);
  t.deepEqual(alone.struck, [last]);
});

test("no fault strikes once the world is healed", async (t) => {
  const drawn = await strikes(Object.fromEntries(faults.map(({ kind }) => [kind, 4_000])) as FaultRates);
  t.true(drawn.length > 0);
  for (const line of drawn) t.true(Number.parseFloat(line) <= runMs, line);
});

test("each kind of fault is on in about its share of the seeds", (t) => {
  const seeds = 1_000;
  const on = Array.from({ length: seeds }, (_, seed) => drawRates((kind) => new SimRandom(`${seed}/${kind}`)));
  for (const { kind, meanMs, share } of faults) {
    const rates = on.map((rate) => rate[kind]).filter((rate) => rate > 0);
    // Four standard deviations of a binomial draw.
    t.true(Math.abs(rates.length - share * seeds) < 4 * Math.sqrt(seeds * share * (1 - share)), kind);
    t.true(
      rates.every((rate) => rate >= meanMs[0] && rate <= meanMs[1]),
      kind,
    );
    t.is(noRates[kind], 0);
  }
});
