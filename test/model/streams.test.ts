// Streams that a manager sends: watches and log subscriptions.
import test from "ava";
import { logLimits, type LogNodes } from "../../machines/logs/nodes.ts";
import {
  logSubscriptionMachine,
  type LogEnd,
  type LogSubscriptionEvent,
} from "../../machines/logs/subscription.machine.ts";
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

test("a log subscription ends when each node has sent its output or cannot, and says what is missing", async (t) => {
  const available = (...ids: readonly string[]) => ids.map((id) => ({ id, isAvailable: true }));
  const selections = [[], available("n1"), available("n1", "n2"), [{ id: "n1", isAvailable: false }]];
  /** In the list of events, an answer has the age of its request instead of the number. */
  const events: readonly LogSubscriptionEvent[] = [
    ...selections.map((nodes): LogSubscriptionEvent => ({
      type: "selection.changed",
      nodes,
      unscheduled: [],
      exists: true,
    })),
    { type: "selection.changed", nodes: [], unscheduled: ["t1"], exists: true },
    { type: "selection.changed", nodes: [], unscheduled: [], exists: false },
    ...["m1", "m2"].map((holder): LogSubscriptionEvent => ({
      type: "nodes.held",
      held: [{ nodeId: "n1", attempt: 0 }],
      holder,
    })),
    { type: "nodes.held", held: [{ nodeId: "n1", attempt: -1 }], holder: "m1" },
    { type: "node.ended", nodeId: "n1", attempt: 0, error: "" },
    { type: "node.ended", nodeId: "n1", attempt: -1, error: "" },
    { type: "node.ended", nodeId: "n1", attempt: 0, error: "n1 broke" },
    { type: "node.ended", nodeId: "n2", attempt: 0, error: "" },
    { type: "follower.left" },
    { type: "follower.stalled", limit: "1 MiB" },
    { type: "broker.stopped" },
  ];
  interface Context {
    readonly follow: boolean;
    readonly nodes: LogNodes;
    readonly unscheduled: readonly string[];
    readonly closingTicks: number;
  }
  const newest = (nodes: LogNodes, id: string, age: number): number => (nodes[id]?.attempt ?? 1) + age;
  const isLost = (node: LogNodes[string], before: LogNodes[string] | undefined): boolean =>
    (node.phase === "lost" && before?.phase !== "lost") || node.attempt > (before?.attempt ?? 1);
  await walkChart(t, {
    machine: logSubscriptionMachine,
    inputs: [true, false].map((follow) => ({ follow })),
    events,
    asSent: (event, { nodes }: Context) => {
      if (event.type === "node.ended") return { ...event, attempt: newest(nodes, event.nodeId, event.attempt) };
      if (event.type !== "nodes.held") return event;
      return {
        ...event,
        held: event.held.map(({ nodeId, attempt }) => ({ nodeId, attempt: newest(nodes, nodeId, attempt) })),
      };
    },
    matters: ({ closingTicks, follow, nodes, unscheduled }: Context) => [
      follow,
      unscheduled,
      closingTicks,
      Object.entries(nodes).map(([id, { attempt, ...node }]) => [id, node, Math.min(attempt, 2)]),
    ],
    /** `waiting`: nodes whose output is still to come. `missing`: what the reasons must name. `absent`: reported, and silent since. */
    memory: {
      waiting: [] as readonly string[],
      missing: [] as readonly string[],
      absent: [] as readonly string[],
      isFollowed: false,
    },
    /** One node is enough to follow: with two, there are tens of thousands of paths. */
    mayCome: ({ memory }, event) => !memory.isFollowed || !JSON.stringify(event).includes("n2"),
    check: (memory, step, claim) => {
      const { asked, event, from } = step;
      const before = (from?.snapshot.context as Context | undefined) ?? null;
      const context = step.context as Context;
      const waiting = new Set(memory.waiting);
      const missing = new Set(memory.missing);
      const absent = new Set(memory.absent);
      const news: string[] = [];
      if (
        event?.type === "selection.changed" &&
        (isIn(from, "choosing") || (isIn(from, "following") && event.exists))
      ) {
        for (const { id, isAvailable } of event.nodes) {
          if (before?.nodes[id] !== undefined) continue;
          if (isAvailable || context.follow) waiting.add(id);
          if (!isAvailable) news.push(id);
        }
      }
      if (event?.type === "node.ended" && waiting.has(event.nodeId)) {
        const isCurrent = event.attempt === before?.nodes[event.nodeId]?.attempt;
        // A followed node goes on, or is asked again.
        if (isCurrent && !context.follow) waiting.delete(event.nodeId);
        if (isCurrent && event.error !== "") news.push(event.error);
      }
      for (const id of isDue(event, "announceInterval") ? waiting : []) {
        const silentTicks = before?.nodes[id]?.silentTicks ?? 0;
        if (silentTicks >= logLimits.silentTicksMax && !context.follow) waiting.delete(id);
        // An absence is reported once, also to a follower whose selection has reported it.
        if (silentTicks === logLimits.silentTicksMax && !absent.has(id)) news.push(id);
      }
      for (const [id, node] of Object.entries(context.nodes)) {
        const isNamed = [...news, ...(context.follow ? [] : missing)].some((each) => each.includes(id));
        claim("LS2", !isLost(node, before?.nodes[id]) || isNamed, "a node is lost without a reason");
      }
      for (const each of news) missing.add(each);
      for (const [id, node] of Object.entries(context.nodes)) {
        // A lost node is asked again: the next absence.
        const isSilent = node.phase === "asked" && node.attempt === (before?.nodes[id]?.attempt ?? 1);
        if (!isSilent) absent.delete(id);
        else if (news.includes(id)) absent.add(id);
      }

      const [end = null, second] = paramsOf<LogEnd>(asked, "finish");
      const isEnded = isIn(step, "ended");
      claim("LS1", isEnded === (end !== null) && second === undefined, "it ends without an ending, or with two");
      const byItself = end?.kind === "complete" || end?.kind === "incomplete";
      const type = event?.type ?? "";
      const isOrdered = ["follower.left", "follower.stalled", "broker.stopped"].includes(type);
      const gathers = isIn(from, "gathering") || isIn(step, "gathering") || (isIn(from, "choosing") && isEnded);
      claim("LS1", isOrdered || !gathers || byItself === (waiting.size === 0), "it ends too early or too late");
      const isGone = event?.type === "selection.changed" && !event.exists;
      claim("LS1", !byItself || !isIn(from, "following") || isGone, "it ends while it is followed");

      const told = paramsOf<{ reasons: readonly string[] }>(asked, "tellMissing").flatMap(({ reasons }) => reasons);
      const isTold = (reasons: readonly string[], what: string): boolean => reasons.some((each) => each.includes(what));
      claim(
        "LS2",
        !isIn(step, "following") || news.every((each) => isTold(told, each)),
        "a follower does not get a reason at once",
      );
      claim(
        "LS2",
        told.every((each) => news.some((what) => each.includes(what))),
        "a follower gets a reason twice, or a wrong one",
      );
      // While it closes, a node that has not ended may still have output.
      if (byItself) for (const id of waiting) missing.add(id);
      const isComplete = missing.size === 0 && context.unscheduled.length === 0;
      claim(
        "LS2",
        !byItself || (end.kind === "complete") === isComplete,
        "its end does not say that output is missing",
      );
      const names = [...missing, ...context.unscheduled];
      claim(
        "LS2",
        end?.kind !== "incomplete" || names.every((each) => end.warning.includes(each)),
        "a reason is missing",
      );
      const asks = paramsOf<unknown>(asked, "announce").length > 0;
      claim("LS4", type !== "node.ended" || isIn(step, "ended") || !asks, "a lost node is asked again at once");
      claim("LS3", type !== "follower.stalled" || end?.kind === "stalled", "a follower that does not read stays");
      return {
        waiting: [...waiting].toSorted(),
        missing: [...missing].toSorted(),
        absent: [...absent].toSorted(),
        isFollowed: memory.isFollowed || context.follow,
      };
    },
    ends: true,
  });
});
