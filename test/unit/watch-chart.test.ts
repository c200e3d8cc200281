import test from "ava";
import { watchMachine, type WatchEnding, type WatchEvent } from "../../machines/watch/watch.machine.ts";
import { ChartRun } from "../support/chart-run.ts";

type Run = ChartRun<typeof watchMachine>;

function begun(from: number | null, { version = 10, isRecent = false } = {}): Run {
  return new ChartRun(watchMachine, { from, version, isRecent });
}

function endingOf(run: Run): WatchEnding | "none" | null {
  if (run.state !== "ended") return null;
  return (run.paramsOf("endStream") as { readonly ending: WatchEnding } | undefined)?.ending ?? "none";
}

const held = { type: "recent.held" } as const;

test("a watch starts live, replaying from memory or from the log, or ahead of its manager", (t) => {
  t.is(begun(null).state, "live");
  t.deepEqual(begun(null).names, ["sendGreeting", "joinLive"]);
  t.is(begun(10).state, "live");
  t.is(begun(7, { isRecent: true }).state, "replaying:recent:sending");
  t.is(begun(7).state, "replaying:retained:queued");
  t.is(begun(11).state, "ahead");
});

test("W1: the greeting is sent once, before any change, whatever path the stream takes", (t) => {
  const ways: readonly (readonly [Run, readonly WatchEvent[]])[] = [
    [begun(null), []],
    [
      begun(7, { isRecent: true }),
      [{ type: "recent.outrun" }, { type: "history.begun" }, { type: "history.reached" }, { type: "recent.sent" }],
    ],
    [
      begun(7),
      [
        { type: "history.begun" },
        { type: "history.held" },
        { type: "history.moved" },
        { type: "history.begun" },
        { type: "history.reached" },
        { type: "recent.sent" },
      ],
    ],
    [
      begun(11),
      [
        { type: "log.answered", last: 11 },
        { type: "version.reached" },
        { type: "recent.outrun" },
        { type: "history.begun" },
      ],
    ],
    [begun(11), [{ type: "version.reached" }, held, { type: "room.made" }, { type: "recent.sent" }]],
  ];
  for (const [start, events] of ways) {
    const run = start.send(...events);
    const all = run.all().map(({ type }) => type);
    t.is(all.filter((name) => name === "sendGreeting").length, 1, all.join(" "));
    const first = all.findIndex((name) => name === "sendRecent" || name === "joinLive");
    t.true(first < 0 || all.indexOf("sendGreeting") < first, all.join(" "));
  }
});

test("W2: a replaying stream is not live, and a live one does not replay", (t) => {
  const live = begun(7).send({ type: "history.begun" }, { type: "history.reached" });
  t.deepEqual(live.names, ["leaveReplay", "sendRecent"]);
  t.deepEqual(live.send({ type: "recent.sent" }).names, ["joinLive"]);
  t.deepEqual(begun(null).send({ type: "caller.gone" }).names, ["leaveLive", "release"]);
  t.deepEqual(begun(7).send({ type: "caller.gone" }).names, ["leaveReplay", "release"]);
});

const endings: readonly (readonly [WatchEnding | "none", Run])[] = [
  ["future", begun(11).send({ type: "log.answered", last: 10 })],
  ["behind", begun(11).send({ type: "log.answered", last: 11 }, "behind")],
  ["compacted", begun(7).send({ type: "history.compacted" })],
  ["compacted", begun(7).send({ type: "history.begun" }, { type: "history.compacted" })],
  ["unreadable", begun(7).send({ type: "history.unreadable" })],
  ["slow", begun(null).send({ type: "watcher.slow" })],
  ["slow", begun(7, { isRecent: true }).send(held, "stall")],
  ["slow", begun(7).send({ type: "history.begun" }, { type: "history.held" }, "stall")],
  ["jumped", begun(null).send({ type: "replica.jumped" })],
  ["stopped", begun(7).send({ type: "manager.stopped" })],
  ["stopped", begun(11).send({ type: "manager.stopped" })],
  ["none", begun(null).send({ type: "caller.gone" })],
];

test("every ending is reached where it belongs, and releases everything", (t) => {
  for (const [ending, run] of endings) {
    t.is(endingOf(run), ending);
    t.is(run.names.at(-1), "release");
    t.is(run.snapshot.status, "done");
  }
  const reached = new Set(endings.map(([ending]) => ending));
  t.is(reached.size, 8);
});

test("a replaying stream continues when the replica jumps: it reads the log", (t) => {
  for (const run of [begun(7), begun(7, { isRecent: true }), begun(11)]) {
    const before = run.state;
    t.is(run.send({ type: "replica.jumped" }).state, before);
    t.deepEqual(run.names, []);
  }
});
