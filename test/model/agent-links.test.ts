// The links of a node's agent: its session with a manager, the session's streams, and the dataplane driver.
import test from "ava";
import { managerStreamMachine } from "../../machines/agent/manager-stream.machine.ts";
import { agentSessionMachine, type AgentSessionEvent } from "../../machines/agent/session.machine.ts";
import {
  dataplaneDriverMachine,
  type DataplaneDriverEvent,
} from "../../machines/dataplane/dataplane-driver.machine.ts";
import { AssignmentsMessage, SessionMessage } from "../../proto/gen/messages.ts";
import { isAsked, isDue, isIn, paramsOf, walkChart } from "../support/chart-model.ts";

const failuresIn = (context: unknown): number => (context as { readonly failures: number }).failures;

test("a broken stream is requested again, and a manager that sends nothing four times is left", async (t) => {
  await walkChart(t, {
    machine: managerStreamMachine,
    inputs: [undefined],
    events: [
      { type: "session.opened" } as const,
      { type: "session.closed" } as const,
      { type: "state.taken" } as const,
      { type: "stream.ended", reason: "reset" } as const,
      { type: "stream.unsupported" } as const,
    ],
    matters: failuresIn,
    /** Streams of this session that ended since the last state. */
    memory: { failures: 0 },
    check: (memory, step, claim) => {
      const { asked, event, from } = step;
      const type = event?.type ?? "";
      const wasOpen = isIn(from, "asking") || isIn(from, "following");
      const isEnded = wasOpen && type === "stream.ended";
      const isReset = type === "session.closed" || (type === "state.taken" && isIn(from, "asking"));
      const failures = isReset ? 0 : memory.failures + (isEnded ? 1 : 0);
      const others = asked.filter((each) => !["ask", "hangUp", "leave", "reportUnexpected"].includes(each.type));
      claim("MS1", others.length === 0, "more than the stream is touched");
      claim("MS2", !isDue(event, "backoff") || isAsked(asked, "ask"), "a broken stream is not requested again");
      const isOpened = type === "session.opened" && isIn(from, "detached");
      claim("MS2", !isOpened || isAsked(asked, "ask"), "a session has no stream");
      claim("MS3", !isEnded || !isAsked(asked, "ask"), "the next request does not wait");
      claim("MS3", isAsked(asked, "leave") === (isEnded && failures === 4), "a manager is left too early or too late");
      claim("MS3", failuresIn(step.context) === failures, "the wait does not follow the failures");
      return { failures };
    },
  });
});

test("a node is served by one manager at a time, keeps its session's id, and applies what continues its assignments", async (t) => {
  const message = AssignmentsMessage.create({});
  const events: readonly AgentSessionEvent[] = [
    { type: "session.wanted" },
    { type: "session.unwanted" },
    { type: "manager.reached", addr: "m1" },
    ...["s1", "s2"].map((sessionId): AgentSessionEvent => ({
      type: "session.message",
      message: SessionMessage.create({ sessionId }),
    })),
    { type: "session.failed", reason: "reset" },
    { type: "heartbeat.answered", periodMs: 0, tookMs: 0 },
    { type: "heartbeat.answered", periodMs: 5_000, tookMs: 40 },
    { type: "assignments.received", message, complete: true, appliesTo: "", resultsIn: "1" },
    { type: "assignments.received", message, complete: false, appliesTo: "", resultsIn: "2" },
    { type: "assignments.received", message, complete: false, appliesTo: "1", resultsIn: "2" },
    { type: "description.same" },
    { type: "description.changed" },
    { type: "identity.changed" },
  ];
  await walkChart(t, {
    machine: agentSessionMachine,
    inputs: [undefined],
    events,
    matters: ({ assignments, sessionId }: { readonly assignments: string; readonly sessionId: string }) => [
      assignments,
      sessionId,
    ],
    /** `last`: result of the newest assignments of this session; `isOpen`: dialled and not closed. */
    memory: { sessionId: "", last: "", isOpen: false },
    check: (memory, step, claim) => {
      const { asked, event, from } = step;
      const wasServing = isIn(from, "engaged.serving");
      const isServing = isIn(step, "engaged.serving");
      const wasRegistering = isIn(from, "engaged.registering");
      const isMessage = event?.type === "session.message";
      claim("A1", !isServing || wasServing || (wasRegistering && isMessage), "it serves before its first message");
      claim("A1", !isDue(event, "registrationTimeout") || isIn(step, "backing-off"), "a silent manager is not left");
      const isReceived = event?.type === "assignments.received" && wasServing;
      const fits = isReceived && (event.complete || (memory.last !== "" && event.appliesTo === memory.last));
      claim("A2", isAsked(asked, "applyAssignments") === fits, "assignments are applied across a gap, or dropped");
      claim("A2", !isReceived || fits || isIn(step, "backing-off"), "the session goes on across a gap");
      let { isOpen } = memory;
      for (const { type } of asked) {
        claim("A3", type !== "connect" || !isOpen, "a manager is dialled while a connection is open");
        isOpen = type === "connect" || (isOpen && type !== "endSession");
      }
      claim("A3", isOpen === isIn(step, "engaged"), "a connection outlives its session");
      const isNamed = isMessage && (wasServing || wasRegistering);
      const sessionId = isNamed ? event.message.sessionId : memory.sessionId;
      const opened = [
        ...paramsOf<{ sessionId: string }>(asked, "openSession"),
        ...paramsOf<{ sessionId: string }>(asked, "openStreams"),
        ...paramsOf<{ sessionId: string }>(asked, "sendHeartbeat"),
      ];
      claim(
        "A4",
        opened.every((each) => each.sessionId === sessionId),
        "it is registered with another id",
      );
      return { sessionId, last: fits ? event.resultsIn : isServing ? memory.last : "", isOpen };
    },
  });
});

test("one dataplane driver runs at a time, gets everything first, and is restarted less often the more often it fails", async (t) => {
  const events: readonly DataplaneDriverEvent[] = [
    { type: "state.ready" },
    { type: "settings.changed" },
    { type: "resync.sent" },
    { type: "pulse.received" },
    { type: "driver.broke", reason: "garbage" },
    { type: "driver.exited", how: "code 1" },
    { type: "driver.unwanted" },
  ];
  await walkChart(t, {
    machine: dataplaneDriverMachine,
    inputs: [{ name: "felix" }],
    events,
    matters: (context) => Math.min(failuresIn(context), 2),
    mayCome: ({ memory }, { type }) => type !== "driver.exited" || memory.isRunning,
    memory: { isReady: false, isRunning: false },
    check: (memory, step, claim) => {
      const { asked, context, event, from } = step;
      const type = event?.type ?? "";
      const launches = isAsked(asked, "launch");
      const isReady = memory.isReady || type === "state.ready";
      const isLeft = memory.isRunning && type !== "driver.exited";
      claim("D1", !launches || isReady, "it is started before the node's state is known");
      claim("D2", !launches || !isLeft, "two drivers run");
      claim("D2", !isIn(step, "stopped") || !isLeft, "it is taken for stopped while it runs");
      const begins = isIn(step, "inSync") && !isIn(from, "inSync");
      claim("D3", !launches || isIn(step, "resync"), "a new driver does not get everything");
      claim("D3", !begins || (type === "resync.sent" && isIn(from, "resync")), "it gets changes before everything");
      const before = from === null ? 0 : failuresIn(from.snapshot.context);
      const isFailed = isIn(step, "restarting.waiting") && !isIn(from, "restarting.waiting");
      const expected = isDue(event, "held") ? 0 : before + (isFailed ? 1 : 0);
      claim("D4", failuresIn(context) === expected, "the wait does not follow the failures");
      claim("D4", !isIn(from, "restarting.waiting") || !launches || isDue(event, "backoff"), "it does not wait");
      const isRenewed = type === "driver.exited" && isIn(from, "restarting.renewing");
      claim("D4", !isRenewed || launches, "new settings wait for the delay of a failure");
      return { isReady, isRunning: launches || isLeft };
    },
    ends: true,
  });
});
