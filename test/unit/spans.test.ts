// The declarations of spans: their names, and their tables in docs/observability.md.
import { readFileSync } from "node:fs";
import test from "ava";
import { declaredSpans, spanAttributes } from "../../runtime/telemetry/spans.ts";
import { withSpanTables } from "../../tools/span-table.ts";

test("docs/observability.md has the current tables of spans and attributes", (t) => {
  const page = readFileSync(new URL("../../docs/observability.md", import.meta.url), "utf8");
  t.is(page, withSpanTables(page), "run 'npm run reference'");
});

test("span names are unique, and each declared attribute belongs to a span", (t) => {
  const names = declaredSpans.map(({ name }) => name);
  t.deepEqual([...new Set(names)], names);
  const used = new Set<string>(declaredSpans.flatMap(({ attributes }) => attributes));
  t.deepEqual(
    Object.keys(spanAttributes).filter((name) => !used.has(name)),
    [],
  );
});
