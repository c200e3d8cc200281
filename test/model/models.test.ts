// Every chart has a model, whose paths reach its states and transitions.
import { readdirSync, readFileSync } from "node:fs";
import test from "ava";
import { allCharts } from "../../cli/charts.ts";

test("each chart has a model", async (t) => {
  const folder = new URL("./", import.meta.url);
  const models = readdirSync(folder).map((file) => readFileSync(new URL(file, folder), "utf8"));
  const files = (await allCharts()).map(({ file }) => file);
  const unmodelled = files.filter((file) => !models.some((text) => text.includes(`"../../machines/${file}"`)));
  t.deepEqual(unmodelled, []);
});
