import test from "ava";
import { figuresOf, ratioTables } from "../../bench/compare.ts";
import { table } from "../../bench/table.ts";

const columns = ["load", "manager", "join", "idle/agent", "calls"];

test("the figures of a table have their row, their column and a common unit", (t) => {
  const output = table("Load", columns, [
    ["100 agents, 2,000 tasks", "muster", "990 ms", "95 kB", "1,000"],
    ["5000 agents, idle", "dockerd", "1.02 s (0.98–1.10)", "", "none"],
  ]);
  t.deepEqual(figuresOf(`2026-11-27, 2 x a processor\n${output}`), [
    { title: "Load", row: "100 agents, 2,000 tasks, muster", column: "join", value: 0.99, unit: "s" },
    { title: "Load", row: "100 agents, 2,000 tasks, muster", column: "idle/agent", value: 95_000, unit: "B" },
    { title: "Load", row: "100 agents, 2,000 tasks, muster", column: "calls", value: 1_000, unit: "" },
    { title: "Load", row: "5000 agents, idle, dockerd", column: "join", value: 1.02, unit: "s" },
  ]);
});

test("each figure is divided by its counterpart of the same turn", (t) => {
  const turn = (here: string, there: string) =>
    [here, there].map((join) => figuresOf(table("Load", columns, [["10 agents", "muster", join, "", "0"]]))) as [
      ReturnType<typeof figuresOf>,
      ReturnType<typeof figuresOf>,
    ];
  const printed = ratioTables([turn("500 ms", "1.00 s"), turn("3.00 s", "2.00 s"), turn("600 ms", "1.00 s")]);
  const [, row] = printed.split("\n").filter((line) => line.startsWith("| "));
  t.deepEqual(
    row?.split("|").map((cell) => cell.trim()),
    ["", "10 agents, muster", "join", "0.60", "0.50–1.50", "3", ""],
    "a count of 0 has no ratio",
  );
});

test("figures that only one side has are left out", (t) => {
  const here = figuresOf(table("New", columns, [["10 agents", "muster", "1 s", "", ""]]));
  t.is(ratioTables([[here, []]]), "");
});
