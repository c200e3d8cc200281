import { readFileSync, readdirSync } from "node:fs";
import test from "ava";
import { chartPages } from "../../tools/chart-pages.ts";

test("docs/machines shows the current charts", async (t) => {
  const folder = new URL("../../docs/machines/", import.meta.url);
  const pages = await chartPages();
  t.deepEqual(readdirSync(folder).toSorted(), [...pages.keys()].toSorted(), "run npm run charts");
  for (const [file, text] of pages) t.is(readFileSync(new URL(file, folder), "utf8"), text, "run npm run charts");
});
