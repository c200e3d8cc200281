// Streams that a manager sends: watches and log subscriptions.
import test from "ava";
import { watchMachine, type WatchEnding, type WatchEvent } from "../../machines/watch/watch.machine.ts";
import { isAsked, isDue, isIn, paramsOf, walkChart } from "../support/chart-model.ts";

test("a watch sends the empty message first, then everything after its version from one source at a time", async (t) => {
  const types = [
    "version.reached",
    "recent.sent",
    "recent.held",
    "recent.outrun",
    "room.made",
    "history.begun",
    "history.held",
    "history.moved",
    "history.reached",
    "history.compacted",
    "history.unreadable",
    "watcher.slow",
    "replica.jumped",
    "caller.gone",
    "manager.stopped",
  ] as const;
  const events: readonly WatchEvent[] = [
    ...types.map((type) => ({ type })),
    { type: "log.answered", last: 10 },
    { type: "log.answered", last: 11 },
  ];
  await walkChart(t, {
    machine: watchMachine,
    inputs: [
      { from: null, version: 10, isRecent: false },
      { from: 10, version: 10, isRecent: true },
      { from: 11, version: 10, isRecent: false },
      { from: 7, version: 10, isRecent: true },
      { from: 7, version: 10, isRecent: false },
    ],
    events,
    /** Memory only forgets: changes that it lacks when a stream is queued are not there before its replay begins. */
    mayCome: ({ states, memory }, { type }) =>
      type !== "history.reached" || !states.includes("replaying.retained.queued") || memory.isGreeted,
    memory: { isGreeted: false, isLive: false, isReplay: false },
    check: (memory, step, claim) => {
      const { asked, event, from } = step;
      const { from: version, isRecent } = step.context as { readonly from: number | null; readonly isRecent: boolean };
      const type = event?.type ?? "";
      let { isGreeted, isLive, isReplay } = memory;
      for (const effect of asked) {
        if (effect.type === "sendGreeting") {
          claim("W1", !isGreeted, "the empty message is sent twice");
          isGreeted = true;
        }
        const sends = effect.type === "sendRecent" || effect.type === "joinLive";
        claim("W1", !sends || isGreeted, "a change is sent before the empty message");
        isLive = effect.type === "joinLive" || (isLive && effect.type !== "leaveLive");
        isReplay = effect.type === "joinReplay" || (isReplay && effect.type !== "leaveReplay");
        claim("W2", !isLive || !isReplay, "a stream is live while it replays");
      }
      const isReading = isIn(step, "replaying.retained.reading") || isIn(step, "replaying.retained.held");
      claim("W1", !isReading || isGreeted, "the log is sent before the empty message");
      const sends = isIn(step, "live") || isIn(step, "replaying");
      claim("W1", !isGreeted || sends || isIn(step, "ended"), "nothing is sent after the empty message");

      claim("W2", isLive === isIn(step, "live"), "a stream is live without the live changes, or keeps them");
      claim("W2", isReplay === isIn(step, "replaying.retained"), "a replay is missing, or outlives its use");
      const begins = isIn(step, "live") && !isIn(from, "live");
      const isComplete = type === "recent.sent" && isIn(from, "replaying.recent.sending");
      const isFresh = from === null && (version === null || version === 10);
      claim("W2", !begins || isFresh || isComplete, "a stream is live before it has everything");
      const fromMemory = isIn(step, "replaying.recent") && !isIn(from, "replaying.recent");
      const mayRecall =
        (from === null && isRecent) ||
        (type === "version.reached" && isIn(from, "ahead")) ||
        (type === "history.reached" && isIn(from, "replaying.retained"));
      claim("W2", !fromMemory || mayRecall, "changes are sent from a memory that lacks them");
      const isOutrun = type === "recent.outrun" && isIn(from, "replaying.recent.sending");
      claim("W2", !isOutrun || isIn(step, "replaying.retained"), "a gap in memory is skipped");

      const [ending = null, second] = paramsOf<{ ending: WatchEnding }>(asked, "endStream");
      const isStalled = isDue(event, "stall");
      const isSlow = isStalled || type === "watcher.slow";
      claim("W3", (ending?.ending === "slow") === isSlow, "a watcher is disconnected though it reads, or is not");
      claim("W3", !isSlow || isIn(step, "ended"), "the stream of a watcher that does not read goes on");
      const isFull = isIn(step, "replaying.recent.waiting") || isIn(step, "replaying.retained.held");
      claim("W3", !isFull || !isAsked(asked, "sendRecent"), "more is sent to a watcher that does not read");
      const isJumped = type === "replica.jumped" && isIn(from, "live");
      claim("W2", (ending?.ending === "jumped") === isJumped, "skipped changes go unnoticed");
      const isFuture = event?.type === "log.answered" && isIn(from, "ahead") && event.last < 11;
      claim("W2", (ending?.ending === "future") === isFuture, "a version that never was is waited for");
      const expected = ending === null ? [] : [isIn(step, "ended"), second === undefined];
      t.true(!expected.includes(false), "a stream has one ending");
      t.is(isAsked(asked, "release"), isIn(step, "ended"), "only an ended stream releases everything");
      return { isGreeted, isLive, isReplay };
    },
    ends: true,
  });
});
