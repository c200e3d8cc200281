// Shrinking: the search, what counts as the same failure, and the file of a scenario.
import test from "ava";
import { drawOptions } from "../../simulation/options.ts";
import { ddmin, smallest } from "../sim/shrinking/ddmin.ts";
import { invariantOf } from "../sim/shrinking/invariant.ts";
import { withRatesOfStrikes } from "../sim/shrinking/leaves.ts";
import { readScenario, scenarioText } from "../sim/shrinking/scenario-file.ts";

test("the items that a failure needs are found among many", async (t) => {
  const items = Array.from({ length: 40 }, (_, at) => at);
  for (const needed of [[], [17], [3, 30], [0, 1, 39]])
    t.deepEqual(await ddmin(items, async (some) => needed.every((each) => some.includes(each))), needed);
  t.deepEqual(await ddmin([1], async (some) => some.length > 0), [1]);
});

test("the smallest number that fails is found", async (t) => {
  for (const least of [1, 2, 7, 12]) t.is(await smallest(1, 12, async (number) => number >= least), least);
});

test("a failure is known by its invariant, whatever its details", (t) => {
  t.is(invariantOf("S131: node late1 is not DOWN 91500 ms after it went with m1"), "S131");
  t.is(invariantOf("L2: stuck since 1200 ms: S126: m1 reports itself unhealthy"), "L2 S126");
  t.is(invariantOf("L2: stuck since 1200 ms: m1: it is at 7 of 9"), "L2");
  t.is(invariantOf("L9: for 45500 ms, longer than the 45000 ms of its kind (role): S34: no m1"), "L9 role");
  const exited = (name: string, number: number) =>
    invariantOf(
      `P3: ${name} exited in commit: AssertionError: version ${number} follows ${number} at Store.commit (x.ts:3)`,
    );
  t.is(exited("m1", 7), exited("m2", 9));
  t.not(exited("m1", 7), invariantOf("P3: m1 exited in commit: TypeError: x is undefined at y"));
});

test("a scenario is read as it was written", (t) => {
  for (const seed of [1, 7, 8471]) {
    const drawn = { options: drawOptions(seed), violates: null };
    t.deepEqual(readScenario(scenarioText(drawn, ["why"]), "drawn.yaml"), drawn);
    const strikes = [{ kind: "pause", atMs: 1_200, draw: 3 }];
    const listed = {
      options: withRatesOfStrikes({ ...drawn.options, strikes, trials: 0, onlyTrials: ["agent.killed"] }),
      violates: "S131",
    };
    t.deepEqual(readScenario(scenarioText(listed, []), "listed.yaml"), listed);
  }
});

const mistakes: readonly [text: string, message: string][] = [
  ["managers: 1\n", "x.yaml:1: seed must be a whole number"],
  ["seed: 1\nmanagers: 0\n", "x.yaml:2: managers must be a whole number from 1 to 50"],
  ["seed: 1\nnodes: 3\n", "x.yaml:2: nodes is not an option"],
  ["seed: 1\nnetwork: 3\n", "x.yaml:2: network must be a mapping"],
  ["seed: 1\nnetwork:\n  lost: 0.1\n", "x.yaml:3: network.lost is not an option"],
  ["seed: 1\nnetwork:\n  loss: -1\n", "x.yaml:3: network.loss must be a number from 0"],
  ["seed: 1\nstrikes:\n  - kind: paus\n", "x.yaml:3: strikes[0].kind must be one of "],
  ["seed: 1\nstrikes:\n  - {kind: pause, atMs: -1}\n", "x.yaml:3: strikes[0].atMs must be a number"],
  ["seed: 1\nstrikes:\n  - {kind: pause, at: 1}\n", "x.yaml:3: strikes[0].at is not a key"],
  ["seed: 1\nonlyTrials: [agent.kill]\n", "x.yaml:2: onlyTrials[0] must be one of "],
  ["seed: 1\nstrikes: []\nrates:\n  pause: 9\n", "x.yaml:4: rates excludes 'strikes'"],
];
for (const [text, message] of mistakes)
  test(`a scenario is rejected: ${message}`, (t) => {
    const error = t.throws(() => readScenario(text, "x.yaml"));
    t.true(error?.message.startsWith(message), error?.message);
  });
