// The JSON API: connections and watchers; and calls to running tasks.
import test from "ava";
import {
  failuresMax,
  jsonConnectionMachine,
  type JsonConnectionEvent,
} from "../../machines/json/connection.machine.ts";
import {
  asksMax,
  jsonWatcherMachine,
  type JsonWatcherEvent,
  type WatcherRefusal,
} from "../../machines/json/watcher.machine.ts";
import { taskCallMachine, type TaskCallEvent } from "../../machines/task-call.machine.ts";
import { isAsked, isDue, isIn, paramsOf, walkChart } from "../support/chart-model.ts";

test("a connection admits requests after a login alone, ends in time, and stops its requests once", async (t) => {
  const key = 1;
  const events: readonly JsonConnectionEvent[] = [
    { type: "socket.opened" },
    { type: "socket.closed" },
    { type: "login.requested", key },
    { type: "login.accepted", key, tag: "user-admin" },
    { type: "login.refused", key },
    { type: "request.received", key },
    { type: "message.broken", reason: "no JSON" },
    { type: "identity.gone" },
    { type: "peer.responded" },
    { type: "output.stuck" },
    { type: "output.moved" },
    { type: "output.empty" },
    { type: "output.overflowed" },
    { type: "server.stopping" },
  ];
  await walkChart(t, {
    machine: jsonConnectionMachine,
    inputs: [undefined],
    events,
    matters: ({ failures }: { readonly failures: number }) => Math.min(failures, failuresMax),
    memory: { releases: 0, wasOpen: false },
    check: (memory, step, claim) => {
      const { asked, event, from } = step;
      const welcomes = isAsked(asked, "welcome");
      const isAccepted = event?.type === "login.accepted" && isIn(from, "open.session.checking");
      claim("JC1", welcomes === isAccepted, "requests are admitted without a login");
      const isEarly = event?.type === "request.received" && isIn(from, "open");
      claim("JC1", !isEarly || isAsked(asked, "refuseRequest"), "a request is answered before the login");
      const limits = ["handshakeMs", "anonymousMs", "pongMs", "writeMs", "goodbyeMs"];
      const isLate = limits.some((limit) => isDue(event, limit));
      claim("JC2", !isLate || isIn(step, "closing") || isIn(step, "closed"), "a time limit passes without an end");
      const releases = memory.releases + asked.filter(({ type }) => type === "release").length;
      const wasOpen = memory.wasOpen || isIn(step, "open");
      const ends = isIn(step, "closing") || isIn(step, "closed");
      claim("JC3", releases <= 1 && (!(wasOpen && ends) || releases === 1), "requests go on, or are stopped twice");
      return { releases, wasOpen };
    },
    ends: true,
  });
});

test("a watcher answers its requests in order, each once, and only with news", async (t) => {
  const asks = [1, 2, 3];
  const events: readonly JsonWatcherEvent[] = [
    ...asks.flatMap((ask) => [true, false].map((hasNews) => ({ type: "next.requested" as const, ask, hasNews }))),
    { type: "news.found" },
    { type: "news.ended" },
    { type: "stop.requested" },
    { type: "connection.closed" },
  ];
  await walkChart(t, {
    machine: jsonWatcherMachine,
    inputs: [undefined],
    events,
    // More waiting requests than a few differ only at the limit.
    matters: ({ asks: waiting }: { readonly asks: readonly number[] }) =>
      waiting.length <= 2 ? waiting : { first: waiting[0], length: Math.min(waiting.length, asksMax) },
    memory: null,
    check: (_, step, claim) => {
      const { asked, event, from } = step;
      const waiting = (from?.snapshot.context as { readonly asks: readonly number[] } | undefined)?.asks ?? [];
      const answers = paramsOf<{ ask: number }>(asked, "answer").map(({ ask }) => ask);
      const isNews = event?.type === "news.found" || (event !== null && "hasNews" in event && event.hasNews);
      claim("JW1", answers.length === 0 || isNews, "a request is answered without news");
      claim("JW2", answers.length <= 1, "two requests get one change");
      const first = waiting[0] ?? (event !== null && "ask" in event ? event.ask : null);
      claim(
        "JW2",
        answers.every((ask) => ask === first),
        "a request is answered before an older one",
      );
      const refused = paramsOf<{ asks: readonly number[]; reason: WatcherRefusal }>(asked, "refuse").flatMap(
        (each) => each.asks,
      );
      const stops = isIn(step, "stopped") && !isIn(from, "stopped");
      claim("JW3", !stops || waiting.every((ask) => refused.includes(ask)), "a request is never answered");
      const isLate = event?.type === "next.requested" && isIn(from, "over");
      claim("JW3", !isLate || refused.length === 1, "a request after the last change is not answered");
      return null;
    },
    ends: true,
  });
});

test("a call to a task has one outcome, and its end reaches the node", async (t) => {
  const events: readonly TaskCallEvent[] = [
    { type: "node.reached" },
    { type: "node.missing" },
    { type: "pulse.heard" },
    { type: "pulse.missed" },
    { type: "answers.ended" },
    { type: "caller.left" },
  ];
  await walkChart(t, {
    machine: taskCallMachine,
    inputs: [{ callId: "c1" }],
    events,
    memory: { failures: 0 },
    check: ({ failures }, step, claim) => {
      const { asked, event, from } = step;
      const now = failures + asked.filter(({ type }) => type === "fail").length;
      claim("C1", now <= 1, "the caller learns of two ends");
      const ends = isIn(step, "over") && !isIn(from, "over");
      const isKnown = event?.type === "answers.ended" || event?.type === "caller.left" || now === 1;
      claim("C1", !ends || isKnown, "the caller does not learn of the end");
      claim("C1", ends === isAsked(asked, "forget"), "an ended call is kept");
      const leaves = event?.type === "caller.left" && from !== null && !isIn(from, "over");
      claim("C2", !leaves || isAsked(asked, "cancel"), "the node goes on for a caller that has left");
      claim("C2", !isDue(event, "askTimeout") || isAsked(asked, "cancel"), "the node may begin after the time limit");
      return { failures: now };
    },
  });
});
