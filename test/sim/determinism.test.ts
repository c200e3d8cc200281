import test from "ava";
import { drawOptions } from "../../simulation/options.ts";
import { runSeed } from "../../simulation/world.ts";

test.serial("the same seed gives the same trace, byte for byte", async (t) => {
  const options = drawOptions(8471);
  const one = await runSeed(options, { trace: true });
  const two = await runSeed(options, { trace: true });
  t.true(one.trace.length > 10_000);
  t.is(firstDifference(one.trace, two.trace), null);
  t.is(one.digest, two.digest);
});

test.serial("different seeds give different traces", async (t) => {
  const [one, two] = [await runSeed(drawOptions(1)), await runSeed(drawOptions(2))];
  t.not(one.digest, two.digest);
});

/** The first line in which two traces differ, for the failure message. */
function firstDifference(one: string, two: string): string | null {
  const [lines, others] = [one.split("\n"), two.split("\n")];
  for (const [at, line] of lines.entries())
    if (line !== others[at]) return `line ${at + 1}: '${line}' and '${others[at]}'`;
  return lines.length === others.length ? null : "one trace is longer";
}
