// One actor as text: its chart with what is active, what it waits for, timers and steps, at any width and height.
import test from "ava";
import { chartDefinitionOf, chartDefinitions } from "../../cli/chart-definitions.ts";
import { actorLines, type ActorPicture } from "../../cli/inspect/drawing.ts";
import { eventText, rendered, shortDuration, wrapped } from "../../cli/inspect/texts.ts";
import { textWidth } from "../../cli/text-width.ts";
import type { Actor } from "../../proto/feed/actors.ts";
import type { StateDefinition } from "../../proto/feed/chart-definition.ts";
import { ActorStatus } from "../../proto/gen/messages.ts";
import { stepOf, timer } from "../support/inspection.ts";

const now = Date.parse("2026-03-04T05:06:07.089Z");

const actorOf = (fields: Partial<Actor>): Actor => ({
  process: "manager-m1",
  id: "session/n1",
  kind: "session",
  machine: "session",
  states: ["serving.disconnected"],
  status: ActorStatus.ACTOR_ACTIVE,
  startedAtMs: now - 7_500_000,
  sinceMs: now - 3_500,
  context: '{"graceMs":15000,"at":1772600760000}',
  timers: [timer("reconnectGrace", "serving.disconnected", now - 3_500, now + 1_500)],
  steps: 7,
  event: "stream.broken",
  transitions: ["serving.connected#stream.broken#0"],
  ...fields,
});

async function pictureOf(fields: Partial<Actor> = {}, more: Partial<ActorPicture> = {}): Promise<ActorPicture> {
  const actor = actorOf(fields);
  return {
    actor,
    process: { id: "manager-m1", hostname: "alpha", lost: "", stale: false },
    name: "worker-1",
    chart: await chartDefinitionOf(actor.machine),
    steps: [
      stepOf(actor.id, actor.machine, 6, {
        atMs: now - 90_000_000,
        event: "verdict.held",
        states: ["suspect"],
        unexpected: true,
      }),
      stepOf(actor.id, actor.machine, 7, {
        atMs: now - 3_500,
        event: "stream.broken",
        states: ["serving.disconnected"],
        effects: ["rememberBroken"],
        skipped: 2,
      }),
    ],
    stepsMissing: "",
    ended: false,
    nowMs: now,
    width: 100,
    height: null,
    ...more,
  };
}

const textOf = (picture: ActorPicture): readonly string[] =>
  actorLines(picture).map((line) => rendered(line, { width: picture.width, colours: false }));

const statesIn = (state: StateDefinition): readonly StateDefinition[] => [state, ...state.states.flatMap(statesIn)];

test("a picture says where the actor is, what it waits for, and when its timers are due", async (t) => {
  const lines = textOf(await pictureOf());
  t.is(lines[0], "session/n1  worker-1  in manager-m1 on alpha");
  t.is(lines[1], "state     serving.disconnected for 3.5s");
  t.is(lines[2], "life      started 2h05m ago, 7 steps, last event stream.broken");
  t.true(lines.includes("waits for the agent to come back: its Session stream broke"));
  t.true(lines.some((line) => line.includes("reconnectGrace: the end of the reconnect grace")));
  t.true(lines.includes("timers    reconnectGrace in 1.5s  of 5.0s, in serving.disconnected"));
  t.true(lines.includes("  at       1772600760000 (05:06:00.000)"));
});

test("active states and the transition taken last are marked, and transitions have guards, delays and actions", async (t) => {
  const lines = textOf(await pictureOf());
  const marked = lines.filter((line) => /^[●▶]/.test(line)).map((line) => line.replace(/ {2}[/A-Z].*/, ""));
  t.deepEqual(marked, ["● serving", "▶     stream.broken → serving.disconnected", "●   disconnected"]);
  t.true(lines.some((line) => line.startsWith("○   connected (initial)")));
  t.true(lines.some((line) => line.startsWith("    session.resumed [isChanged] → registering  / rememberOpen")));
  t.true(lines.includes("      after reconnectGrace → suspect"));
  t.true(lines.includes("○ expired (final)  DOWN is in the log; the agent must register again. S4"));
  t.true(lines.includes("  in any state"));
});

test("after a snapshot, the recorded step tells which transition was taken last", async (t) => {
  const step = stepOf("session/n1", "session", 7, { atMs: now, transitions: ["serving.connected#stream.broken#0"] });
  const known = textOf(await pictureOf({ transitions: [] }, { steps: [step] }));
  t.true(known.some((line) => line.startsWith("▶     stream.broken → serving.disconnected")));
  const older = textOf(await pictureOf({ transitions: [], steps: 8 }, { steps: [step] }));
  t.false(older.some((line) => line.startsWith("▶")));
});

test("all active regions of a parallel chart are marked, each with what it waits for", async (t) => {
  const charts = await chartDefinitions();
  const chart = charts.find(({ root }) => statesIn(root).some(({ type }) => type === "parallel"));
  if (chart === undefined) return t.fail("no chart has regions");
  const outer = statesIn(chart.root).find(({ type }) => type === "parallel") as StateDefinition;
  const leafOf = (state: StateDefinition): StateDefinition => {
    const inner = state.states.find(({ path }) => path === state.initial) ?? state.states[0];
    return inner === undefined ? state : leafOf(inner);
  };
  const leaves = outer.states.map(leafOf);
  const lines = textOf(
    await pictureOf({ machine: chart.id, states: leaves.map(({ path }) => path), transitions: [], timers: [] }),
  );
  for (const { key, waitingFor, path } of leaves) {
    t.true(
      lines.some((line) => new RegExp(`^● +${key}\\b`).test(line)),
      key,
    );
    if (waitingFor !== "")
      t.true(
        lines.some((line) => line.includes(`${path}: `)),
        path,
      );
  }
});

test("every chart is drawn whole at 80 columns and at 40, each state once", async (t) => {
  for (const chart of await chartDefinitions()) {
    const states = statesIn(chart.root).filter(({ path }) => path !== "");
    for (const width of [40, 80]) {
      const lines = textOf(await pictureOf({ machine: chart.id, states: [states.at(-1)?.path ?? ""] }, { width }));
      for (const line of lines) t.true(textWidth(line) <= width, `${chart.id}: ${line}`);
      const drawn = lines.filter((line) => /^[●○] /.test(line));
      t.deepEqual(drawn.length, states.length, `${chart.id} at ${width} columns`);
    }
  }
});

test("an overdue timer is called so, but not that of a process whose present is unknown", async (t) => {
  const timers = [timer("reconnectGrace", "serving.disconnected", now - 17_000, now - 12_000)];
  const late = textOf(await pictureOf({ timers }));
  t.true(late.includes("timers    reconnectGrace OVERDUE by 12s  of 5.0s, in serving.disconnected"));
  const process = { id: "manager-m1", hostname: "alpha", lost: "no answer within 5 s", stale: true };
  const lost = textOf(await pictureOf({ timers }, { process }));
  t.true(lost.includes("manager-m1 cannot be watched: no answer within 5 s. Its last known state:"));
  t.true(lost.includes("timers    reconnectGrace was due 12s ago  of 5.0s, in serving.disconnected"));
});

test("steps have their times, with the date of another day, and say what was left out or not expected", async (t) => {
  const lines = textOf(await pictureOf());
  t.deepEqual(lines.slice(lines.indexOf("last steps (UTC)") + 1), [
    "  2026-03-03 04:06:07.089  verdict.held   unexpected, stays in suspect",
    "  … 2 steps left out",
    "             05:06:03.589  stream.broken  → serving.disconnected  / rememberBroken",
  ]);
  const later = textOf(await pictureOf({ steps: 9 }));
  t.is(later.at(-1), "  … 2 later steps are unknown");
  const missing = textOf(await pictureOf({}, { steps: [], stepsMissing: "the manager keeps no recording" }));
  t.deepEqual(missing.slice(-2), ["  earlier ones are unknown: the manager keeps no recording", "  none known"]);
});

test("a picture fits the terminal: first transitions and context go, then the rest is counted", async (t) => {
  const whole = textOf(await pictureOf());
  for (const height of [60, 45, 34, 24, 10]) {
    const lines = textOf(await pictureOf({}, { height }));
    t.true(lines.length <= height, `${lines.length} lines for ${height}`);
    t.is(lines[1], whole[1]);
  }
  const low = textOf(await pictureOf({}, { height: 40 }));
  t.true(
    low.some((line) => line.startsWith("▶     stream.broken")),
    "the transition taken last stays",
  );
  t.false(low.some((line) => line.includes("verdict.granted")));
  t.regex(textOf(await pictureOf({}, { height: 10 })).at(-1) ?? "", /^… \d+ more lines: enlarge the terminal$/);
});

test("a chart that this version does not have is said to be missing", async (t) => {
  const lines = textOf(await pictureOf({ machine: "sessionOfTomorrow" }));
  t.true(lines.includes("chart sessionOfTomorrow"));
  t.true(lines.includes("  this version of Muster has no such chart"));
});

test("text of other processes cannot control the terminal, and colours are only where they are asked for", async (t) => {
  const picture = await pictureOf({ event: "x\x1b[2Jy", context: '{"name":"\\u001b]0;t\\u0007"}' });
  const plain = textOf(picture).join("\n");
  // oxlint-disable-next-line no-control-regex -- looks for control characters
  t.notRegex(plain, /[\x00-\x09\x0b-\x1f]/);
  const coloured = actorLines(picture).map((line) => rendered(line, { width: 100, colours: true }));
  t.true(coloured.join("\n").includes("\x1b[1m\x1b[32mserving.disconnected"));
  // oxlint-disable-next-line no-control-regex -- removes the colours
  t.is(coloured.join("\n").replaceAll(/\x1b\[\d+m/g, ""), plain);
});

test("XState's own events have the words of the charts", async (t) => {
  const lines = textOf(await pictureOf({ machine: "agentTask", states: ["removing.halting"] }));
  t.true(lines.includes("    done agentTask.removing → removed"));
  t.is(eventText("xstate.after.beatPeriod.membership.beat.waiting"), "after beatPeriod");
  t.is(eventText("xstate.after.500.x"), "after 500ms");
  t.is(eventText("xstate.init"), "start");
  t.is(eventText("xstate.done.state.task.removing"), "done task.removing");
  t.is(eventText("node.after.x"), "node.after.x");
});

test("durations are short, and text is broken between words", (t) => {
  const durations = [-5, 0, 449, 9_949, 9_951, 59_499, 59_501, 3_599_000, 3_600_000, 86_400_000, 93_600_000];
  t.deepEqual(durations.map(shortDuration), [
    "0.0s",
    "0.0s",
    "0.4s",
    "9.9s",
    "10s",
    "59s",
    "1m00s",
    "59m59s",
    "1h00m",
    "1d00h",
    "1d02h",
  ]);
  t.deepEqual(wrapped("one two three", 7), ["one two", "three"]);
});
