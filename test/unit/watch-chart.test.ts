import test from "ava";
import { initialTransition, transition } from "xstate";
import { watchMachine, type WatchEnding, type WatchEvent } from "../../machines/watch/watch.machine.ts";

type Step = ReturnType<typeof initialTransition<typeof watchMachine>>;

function begun(from: number | null, { version = 10, isRecent = false } = {}): Step {
  return initialTransition(watchMachine, { from, version, isRecent });
}

/** The state after the events, and the names of the effects of the last. */
function after(start: Step, ...events: readonly WatchEvent[]): Step {
  let step = start;
  for (const event of events) step = transition(watchMachine, step[0], event) as Step;
  return step;
}

function names([, effects]: Step): readonly string[] {
  return effects.map(({ type }) => type).filter((type) => !type.startsWith("xstate") && !type.includes("assign"));
}

function endingOf([state, effects]: Step): WatchEnding | "none" | null {
  if (!state.matches("ended")) return null;
  const told = effects.find(({ type }) => type === "endStream") as { params: { ending: WatchEnding } } | undefined;
  return told?.params.ending ?? "none";
}

const held = { type: "recent.held" } as const;
const behind = { type: "xstate.after.behind.watch.ahead" } as unknown as WatchEvent;
const stalled = (state: string) => ({ type: `xstate.after.stall.watch.replaying.${state}` }) as unknown as WatchEvent;

test("a watch starts live, replaying from memory or from the log, or ahead of its manager", (t) => {
  t.is(begun(null)[0].value, "live");
  t.deepEqual(names(begun(null)), ["sendGreeting", "joinLive"]);
  t.is(begun(10)[0].value, "live");
  t.deepEqual(begun(7, { isRecent: true })[0].value, { replaying: { recent: "sending" } });
  t.deepEqual(begun(7)[0].value, { replaying: { retained: "queued" } });
  t.is(begun(11)[0].value, "ahead");
});

test("W1: the greeting is sent once, before any change, whatever path the stream takes", (t) => {
  const ways: readonly (readonly [Step, readonly WatchEvent[]])[] = [
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
    let step = start;
    let all = [...names(step)];
    for (const event of events) {
      step = after(step, event);
      all = [...all, ...names(step)];
    }
    t.is(all.filter((name) => name === "sendGreeting").length, 1, all.join(" "));
    const first = all.findIndex((name) => name === "sendRecent" || name === "joinLive");
    t.true(first < 0 || all.indexOf("sendGreeting") < first, all.join(" "));
  }
});

test("W2: a replaying stream is not live, and a live one does not replay", (t) => {
  const live = after(begun(7), { type: "history.begun" }, { type: "history.reached" });
  t.deepEqual(names(live), ["leaveReplay", "sendRecent"]);
  t.deepEqual(names(after(live, { type: "recent.sent" })), ["joinLive"]);
  t.deepEqual(names(after(begun(null), { type: "caller.gone" })), ["leaveLive", "release"]);
  t.deepEqual(names(after(begun(7), { type: "caller.gone" })), ["leaveReplay", "release"]);
});

const endings: readonly (readonly [WatchEnding | "none", Step])[] = [
  ["future", after(begun(11), { type: "log.answered", last: 10 })],
  ["behind", after(begun(11), { type: "log.answered", last: 11 }, behind)],
  ["compacted", after(begun(7), { type: "history.compacted" })],
  ["compacted", after(begun(7), { type: "history.begun" }, { type: "history.compacted" })],
  ["unreadable", after(begun(7), { type: "history.unreadable" })],
  ["slow", after(begun(null), { type: "watcher.slow" })],
  ["slow", after(begun(7, { isRecent: true }), held, stalled("recent.waiting"))],
  ["slow", after(begun(7), { type: "history.begun" }, { type: "history.held" }, stalled("retained.held"))],
  ["jumped", after(begun(null), { type: "replica.jumped" })],
  ["stopped", after(begun(7), { type: "manager.stopped" })],
  ["stopped", after(begun(11), { type: "manager.stopped" })],
  ["none", after(begun(null), { type: "caller.gone" })],
];

test("every ending is reached where it belongs, and releases everything", (t) => {
  for (const [ending, step] of endings) {
    t.is(endingOf(step), ending);
    t.is(names(step).at(-1), "release");
    t.is(step[0].status, "done");
  }
  const reached = new Set(endings.map(([ending]) => ending));
  t.is(reached.size, 8);
});

test("a replaying stream continues when the replica jumps: it reads the log", (t) => {
  for (const start of [begun(7), begun(7, { isRecent: true }), begun(11)]) {
    const step = after(start, { type: "replica.jumped" });
    t.deepEqual(step[0].value, start[0].value);
    t.deepEqual(names(step), []);
  }
});
