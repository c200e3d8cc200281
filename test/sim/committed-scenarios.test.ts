/** Each scenario in test/sim/scenarios/ passes, or violates the invariant that it names (shrinking/scenario-file.ts). */
import { readdirSync, readFileSync } from "node:fs";
import test from "ava";
import { runSeed } from "../../simulation/world.ts";
import { invariantOf } from "./shrinking/invariant.ts";
import { readScenario } from "./shrinking/scenario-file.ts";

const folder = new URL("scenarios/", import.meta.url);
for (const name of readdirSync(folder).sort())
  test.serial(name.replace(/\.yaml$/, "").replaceAll("-", " "), async (t) => {
    t.timeout(120_000);
    const { options, violates } = readScenario(readFileSync(new URL(name, folder), "utf8"), name);
    const { failure } = await runSeed(options);
    t.is(failure === null ? null : invariantOf(failure), violates, failure ?? "it passes");
  });
