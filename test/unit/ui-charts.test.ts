// The charts as the page draws them.
import test from "ava";
import elkjs, { type ElkNode } from "elkjs";
import { chartDefinitions } from "../../cli/chart-definitions.ts";
import { drawingOf, graphOf, type Graph } from "../../ui/model/graph.ts";
import type { StateDefinition } from "../../proto/feed/chart-definition.ts";

const statesIn = (state: StateDefinition): readonly StateDefinition[] => [state, ...state.states.flatMap(statesIn)];

test("every chart can be laid out: each state has a place, and each transition a line", async (t) => {
  const elk = new elkjs.default();
  const charts = await chartDefinitions();
  t.true(charts.some(({ id }) => id === "session"));
  for (const chart of charts) {
    const laid = (await elk.layout(graphOf(chart) as unknown as ElkNode)) as unknown as Graph;
    const drawing = drawingOf(laid, chart);
    const states = statesIn(chart.root);
    t.deepEqual(
      new Set(drawing.states.map(({ state }) => state.path)),
      new Set(states.map(({ path }) => path)),
      chart.id,
    );
    const lines = new Set(drawing.edges.filter(({ points }) => points.length >= 2).map(({ id }) => id));
    for (const transition of states.flatMap(({ transitions }) => transitions))
      if (transition.targets.length > 0) t.true(lines.has(transition.id), `${chart.id}: ${transition.id}`);
  }
});

test("ids of transitions name the state and the event, the delay, or that it is taken at once", async (t) => {
  const session = (await chartDefinitions()).find(({ id }) => id === "session");
  const ids =
    session === undefined ? [] : statesIn(session.root).flatMap(({ transitions }) => transitions.map(({ id }) => id));
  for (const id of [
    "#node.removed#0",
    "starting#always#1",
    "adopted#session.resumed#1",
    "adopted#after unknownGrace#0",
  ])
    t.true(ids.includes(id), id);
});
