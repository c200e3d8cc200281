// Exploration of simulated plans: mutations stay within what seeds draw, and coverage decides what is mutated further.
import test from "ava";
import { SimRandom } from "../../runtime/sim/random.ts";
import { drawOptions, type SimOptions } from "../../simulation/options.ts";
import { trialNames } from "../../simulation/trial-names.ts";
import { Corpus } from "../sim/exploring/corpus.ts";
import { Exploration, lag, type ExploredRun } from "../sim/exploring/exploration.ts";
import { mutated, mutatedBy, mutationNames, sound, strikesMax } from "../sim/exploring/mutations.ts";
import { leavesOf } from "../sim/shrinking/leaves.ts";
import { readScenario, scenarioText } from "../sim/shrinking/scenario-file.ts";
import { planOf } from "../sim/shrinking/shrink.ts";

/** A plan as after its run, with strikes and trials as lists. */
function listed(seed: number): SimOptions {
  const strikes = ["pause", "partition", "manager.crash"].map((kind, at) => ({
    kind,
    atMs: 1_000 * (at + 1),
    draw: 0,
  }));
  return planOf(drawOptions(seed), { failure: null, marks: new Map([[`trial.${trialNames[0]}`, 1]]), strikes });
}

test("each mutation changes plans, and to plans that a scenario file can hold", (t) => {
  for (const name of mutationNames) {
    const random = new SimRandom(`7/${name}`);
    let changed = 0;
    for (let seed = 1; seed <= 30; seed += 1) {
      const before = listed(seed);
      const after = mutatedBy(name, before, random, listed(seed + 100));
      if (JSON.stringify(after) !== JSON.stringify(before)) changed += 1;
      const text = scenarioText({ options: after, violates: null }, []);
      t.deepEqual(readScenario(text, "plan.yaml").options, after, name);
    }
    t.true(changed > 5, `${name} changed ${changed} of 30 plans`);
  }
});

test("however often a plan is mutated, its values are ones that seeds draw", (t) => {
  const rounds = 500;
  const drawn = Array.from({ length: rounds }, (_, at) => leavesOf(drawOptions(at)));
  const bounds = new Map(
    [...(drawn[0] ?? [])].map(([path]) => [path, Math.max(...drawn.map((leaves) => Number(leaves.get(path))))]),
  );
  const random = new SimRandom("7/many");
  let plan = listed(1);
  for (let round = 0; round < rounds; round += 1) {
    plan = mutated(plan, random, listed(round));
    for (const [path, value] of leavesOf(plan)) {
      if (path.startsWith("rates.") || typeof value !== "number") continue;
      t.true(value >= 0 && value <= (bounds.get(path) as number), `${path}: ${value}`);
    }
    const { faultsMs, strikes } = plan;
    t.true((strikes?.length ?? 0) <= strikesMax && strikes?.every(({ atMs }) => atMs >= 0 && atMs < faultsMs));
  }
});

test("options that seeds never draw together are made consistent", (t) => {
  const { drivers, network, ...plan } = listed(1);
  const strikes = [9_000, 100, 4_000].map((atMs) => ({ kind: "pause", atMs, draw: 0 }));
  const made = sound({
    ...plan,
    strikes,
    faultsMs: 5_000,
    certificateOperations: 1,
    endsWithAllManagers: false,
    watchers: 1,
    historyRecords: 50,
    healthOperations: 0,
    drivers: { ...drivers, unwell: 0.5 },
    network: { ...network, delay: 0.1, delayMsMax: 0 },
  });
  t.is(made.endsWithAllManagers, true, "a rotation needs all managers");
  t.is(made.historyRecords, 0, "a watcher needs the whole log");
  t.is(made.drivers.unwell, 0);
  t.is(made.network.delay, 0);
  t.deepEqual(made.strikes, [strikes[1], strikes[2]], "within the fault phase, in order");
});

/** A made-up run: the more strikes of one kind a plan has, the more it reaches. */
function madeUp(plan: SimOptions): ExploredRun {
  const { managers, onlyTrials, seed, strikes } = plan;
  const count = strikes?.filter(({ kind }) => kind === "log.silent").length ?? 0;
  const reached = Array.from({ length: count }, (_, at) => [`silent ${at + 1}`, 1] as const);
  const marks = [[`seed ${seed % 5}`, 1], [`managers ${managers}`, 1], ...reached] as const;
  const failure = count > 8 ? "S1: made up" : null;
  const drawn = [{ kind: "log.silent", atMs: seed % 900, draw: 0 }];
  const none = { steps: 1, versions: 1, virtualMs: 1_000, cpuMs: 1 };
  return { ...none, failure, marks, transitions: [`t ${onlyTrials?.length ?? 0}`], strikes: strikes ?? drawn };
}

/** The plans of an exploration, whose results come in order but up to `late` numbers after their plan. */
function explored(start: number, count: number, late: number, isGuided = true): [SimOptions[], Exploration] {
  const exploration = new Exploration(start, isGuided);
  const plans: SimOptions[] = [];
  let taken = 0;
  for (let at = 0; at < count; at += 1) {
    for (; taken <= at - late; taken += 1) exploration.take(start + taken, madeUp(plans[taken] as SimOptions));
    plans.push(exploration.plan(start + at));
  }
  for (; taken < count; taken += 1) exploration.take(start + taken, madeUp(plans[taken] as SimOptions));
  return [plans, exploration];
}

test("the start seed alone decides which plans are explored", (t) => {
  const [plans] = explored(1, 120, lag);
  t.deepEqual(explored(1, 120, lag)[0], plans);
  t.deepEqual(explored(1, 120, 1)[0], plans, "results that come earlier, as with one process");
  t.notDeepEqual(explored(1_000, 120, lag)[0], plans);
  t.true(plans.some(({ strikes }) => strikes !== null) && plans.slice(lag).some(({ strikes }) => strikes === null));
});

test("marks that need several mutations are reached only if plans that came nearer are mutated further", (t) => {
  const [, guided] = explored(1, 400, lag);
  const [, plain] = explored(1, 400, lag, false);
  t.true(guided.marks.has("silent 4"), [...guided.marks.keys()].join());
  t.false(plain.marks.has("silent 2"));
  t.is(plain.sums.runs, 400);
});

test("the first run that violates an invariant is reported, others are counted, and none is mutated", (t) => {
  const exploration = new Exploration(1, true);
  const failing = { ...madeUp(listed(1)), failure: "S131: node a1 is not DOWN 50000 ms after it froze" };
  const plans = [1, 2, 3].map((number) => exploration.plan(number));
  const [first, second] = [exploration.take(1, failing), exploration.take(2, failing)];
  t.like(first, { invariant: "S131", number: 1, plan: plans[0] });
  t.is(second, null);
  t.is(exploration.take(3, { ...failing, failure: "S1: other" })?.invariant, "S1");
  t.deepEqual(exploration.sums.failures, [
    { invariant: "S131", times: 2 },
    { invariant: "S1", times: 1 },
  ]);
  t.is(exploration.sums.corpus, 0);
});

test("plans with rare features are picked more often, and each pick makes the next less likely", (t) => {
  const corpus = new Corpus();
  t.is(corpus.pick(new SimRandom("1")), null);
  const [common, rare] = [drawOptions(1), drawOptions(2)];
  t.deepEqual(corpus.add(common, ["a", "b"], 100), ["a", "b"]);
  t.deepEqual(corpus.add(rare, ["a", "c"], 100), ["c"]);
  for (let run = 0; run < 50; run += 1) t.deepEqual(corpus.add(drawOptions(3), ["a", "b"], 100), []);
  t.is(corpus.size, 2);
  const random = new SimRandom("2");
  const picks = Array.from({ length: 200 }, () => corpus.pick(random));
  const rarely = picks.filter((plan) => plan === common).length;
  t.true(rarely > 5 && rarely < 60, `${rarely} of 200`);
});
