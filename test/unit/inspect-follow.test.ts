// `muster inspect -f`: steps as lines and as JSON, the picture that is redrawn, and what is said when something is missing.
import test, { type ExecutionContext } from "ava";
import { ActorFeed, ActorStep } from "../../proto/gen/messages.ts";
import { until } from "../fixtures/until.ts";
import { actor, inspectedManager, snapshot, stepOf, timer, type InspectedManager } from "../support/inspection.ts";

const now = Date.parse("2026-03-04T05:06:07.089Z");
const feedOf = (fields: Partial<ActorFeed>): ActorFeed => ActorFeed.create({ process: "manager-m1", ...fields });
const broken = stepOf("session/n1", "session", 8, {
  atMs: now,
  event: "stream.broken",
  states: ["serving.disconnected"],
  transitions: ["serving.connected#stream.broken#0"],
  effects: ["rememberBroken"],
  traceId: "4bf92f3577b34da6a3ce929d0e0e4736",
  context: '{"heard":true}',
});

async function scene(t: ExecutionContext, columns: number | null = null): Promise<InspectedManager> {
  const screen = columns === null ? null : { columns, rows: 40, colours: false };
  const inspected = await inspectedManager(t, { now: () => now, screen });
  inspected.scene.feeds = [
    snapshot("manager-m1", [
      actor("session/n1", "session", ["serving.connected"], { steps: 7 }),
      actor("scheduler/m1", "scheduler", ["resting"], { steps: 3 }),
    ]),
  ];
  return inspected;
}

/** Waits until the command follows: the second Watch, after the one that looks the operands up. */
const following = ({ watches }: InspectedManager): Promise<true> =>
  until("the command to follow", () => watches.length === 2);

const has = (lines: readonly string[], part: string): Promise<true> =>
  until(`a line with ${part}`, () => lines.some((line) => line.includes(part)));

test.serial("into a pipe, each step is a line, and what was left out or lost is said", async (t) => {
  const inspected = await scene(t);
  const { lines, interrupt, done } = inspected.start("inspect", "-f", "session");
  await following(inspected);
  const other = stepOf("scheduler/m1", "scheduler", 4, { atMs: now, event: "tick", states: ["resting"] });
  inspected.send(
    feedOf({ steps: [broken, other] }),
    feedOf({ droppedSteps: 12 }),
    feedOf({ ended: ["session/n1"] }),
    feedOf({ sequence: 9 }),
    feedOf({ lost: "no answer within 5 s", sequence: 10 }),
  );
  await has(lines, "cannot be watched");
  interrupt();
  t.deepEqual(await done, {
    status: 0,
    remarks: [],
    lines: [
      "2026-03-04T05:06:07.089Z manager-m1 session/n1 stream.broken → serving.disconnected  / rememberBroken  trace 4bf92f3577b34da6a3ce929d0e0e4736",
      "2026-03-04T05:06:07.089Z manager-m1: 12 steps left out: they came faster than they were read",
      "2026-03-04T05:06:07.089Z manager-m1 session/n1 ended",
      "2026-03-04T05:06:07.089Z manager-m1: messages were lost; waiting for a new snapshot",
      "2026-03-04T05:06:07.089Z manager-m1 cannot be watched: no answer within 5 s",
    ],
  });
});

test.serial("into a pipe, one actor is drawn as the feed begins, and then each step is a line", async (t) => {
  const inspected = await scene(t);
  const { lines, interrupt, done } = inspected.start("inspect", "-f", "session/n1");
  await until("the look-up", () => inspected.watches.length === 1);
  // A step between the look-up and the feed.
  inspected.scene.feeds = [
    snapshot("manager-m1", [actor("session/n1", "session", ["serving.disconnected"], { steps: 8 })]),
  ];
  await following(inspected);
  await has(lines, "last steps");
  inspected.send(feedOf({ steps: [ActorStep.patch(broken, { number: 9, event: "heartbeat", states: ["suspect"] })] }));
  await has(lines, "heartbeat → suspect");
  interrupt();
  await done;
  t.true(lines.includes("state     serving.disconnected"));
  t.is(lines.filter((line) => line.startsWith("state ")).length, 1);
});

test.serial("--format json prints an object for each actor, step and other news", async (t) => {
  const inspected = await scene(t);
  const { lines, interrupt, done } = inspected.start("inspect", "-f", "--format", "json", "session/n1");
  await following(inspected);
  inspected.send(feedOf({ steps: [broken] }), feedOf({ ended: ["session/n1"] }), feedOf({ droppedSteps: 2 }));
  await has(lines, "dropped");
  interrupt();
  t.is((await done).status, 0);
  const objects = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  t.deepEqual(
    objects.map(({ Type }) => Type),
    ["actor", "step", "ended", "dropped"],
  );
  t.like(objects[0], { Actor: "session/n1", Chart: "session", States: ["serving.connected"], Steps: 7, Stuck: false });
  t.like(objects[1], {
    Time: "2026-03-04T05:06:07.089Z",
    Process: "manager-m1",
    Number: 8,
    Event: "stream.broken",
    States: ["serving.disconnected"],
    Transitions: ["serving.connected#stream.broken#0"],
    TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
  });
  t.deepEqual(objects[1]?.["Context"], { heard: true });
  t.like(objects[3], { Process: "manager-m1", Steps: 2 });
});

test.serial("an actor that becomes stuck is reported once, and with --stuck only such actors are", async (t) => {
  const inspected = await scene(t);
  const late = (ms: number): Partial<ActorFeed> => ({
    atMs: now,
    steps: [
      { ...broken, timers: [timer("reconnectGrace", "serving.disconnected", now - 60_000, now - ms)] },
      stepOf("scheduler/m1", "scheduler", 4, { atMs: now, event: "tick", states: ["resting"] }),
    ],
  });
  const { lines, interrupt, done } = inspected.start("inspect", "-f", "--stuck");
  await following(inspected);
  inspected.send(feedOf(late(5_000)));
  await has(lines, "session/n1 STUCK");
  const tick = {
    atMs: now,
    event: "tick",
    states: ["resting"],
    timers: [timer("debounce", "resting", 1, now - 3_000)],
  };
  inspected.send(feedOf({ atMs: now, steps: [stepOf("scheduler/m1", "scheduler", 5, tick)] }));
  await has(lines, "scheduler/m1 STUCK");
  const back = { atMs: now, event: "heartbeat", states: ["serving.connected"] };
  inspected.send(feedOf({ steps: [stepOf("session/n1", "session", 9, back)] }));
  await has(lines, "heartbeat");
  interrupt();
  t.deepEqual((await done).lines, [
    "2026-03-04T05:06:07.089Z manager-m1 session/n1 STUCK in serving.disconnected: overdue by 5.0s",
    "2026-03-04T05:06:07.089Z manager-m1 scheduler/m1 STUCK in resting: overdue by 3.0s",
    "2026-03-04T05:06:07.089Z manager-m1 session/n1 heartbeat → serving.connected",
  ]);
});

test.serial("a manager that goes away is said, and followed again when it is back", async (t) => {
  const inspected = await scene(t);
  const { lines, interrupt, done } = inspected.start("inspect", "-f", "session");
  await following(inspected);
  await inspected.stop();
  await has(lines, "connection lost: ");
  t.regex(lines[0] ?? "", /; next attempt in 0\.5s$/);
  await inspected.listen();
  await has(lines, "connected again");
  await until("the command watches again", () => inspected.watches.length === 3);
  inspected.send(feedOf({ steps: [broken] }));
  await has(lines, "stream.broken");
  interrupt();
  t.is((await done).status, 0);
});

test.serial("a manager that goes away ends a command that does not follow", async (t) => {
  const inspected = await scene(t);
  inspected.scene.feeds = [snapshot("manager-m1", [], { snapshot: null })];
  const { done } = inspected.start("inspect");
  await until("the command watches", () => inspected.watches.length === 1);
  await inspected.stop();
  const { remarks, status } = await done;
  t.is(status, 1);
  t.regex(remarks.join("\n"), /^muster: the server is shutting down$/);
});

test.serial("on a terminal, the chart is redrawn in place, and its last picture stays", async (t) => {
  const inspected = await scene(t, 100);
  const { lines, written, interrupt, done } = inspected.start("inspect", "-f", "session/n1");
  await following(inspected);
  await until("the first picture", () => written().includes("serving.connected"));
  inspected.send(feedOf({ steps: [broken] }));
  await until("the next picture", () => written().includes("▶     stream.broken"));
  t.deepEqual(lines, [], "nothing is printed below the pictures");
  interrupt();
  const { status } = await done;
  t.is(status, 0);
  t.true(written().startsWith("\x1b[?1049h\x1b[?25l"), "the other screen, without a cursor");
  t.true(written().endsWith("\x1b[?25h\x1b[?1049l"), "the first screen again");
  t.true(lines.includes("●   disconnected"));
  t.regex(lines.at(-1) ?? "", /stream\.broken +→ serving\.disconnected/);
});

test.serial(
  "a followed actor that moves to another process is shown there; one that ends is said to have ended",
  async (t) => {
    const inspected = await scene(t, 100);
    const { written, interrupt, done } = inspected.start("inspect", "-f", "session/n1");
    await following(inspected);
    t.deepEqual(inspected.watches[1]?.selection?.processes, []);
    inspected.send(feedOf({ ended: ["session/n1"] }));
    await until("its end", () => written().includes("The actor has ended."));
    inspected.send(snapshot("manager-m2", [actor("session/n1", "session", ["adopted"])]));
    await until("its new place", () => written().includes("in manager-m2 on host-of-manager-m2"));
    interrupt();
    const { lines } = await done;
    t.true(lines.includes("● adopted  The log names this session from an earlier run of this manager."));
  },
);

test.serial("on a terminal, the table of actors is redrawn, with what is wrong above it", async (t) => {
  const inspected = await scene(t, 100);
  const { written, interrupt, done } = inspected.start("inspect", "-f");
  await following(inspected);
  t.true(inspected.watches[1]?.selection?.withoutSteps);
  await until("the table", () => written().includes("2 actors, 0 stuck"));
  inspected.send(feedOf({ lost: "no answer within 5 s" }));
  await until("the remark", () => written().includes("cannot be watched: no answer"));
  interrupt();
  t.is((await done).status, 0);
});
