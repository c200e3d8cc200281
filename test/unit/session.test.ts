// The session chart: what it waits for, and what makes it release a node.
import test from "ava";
import {
  sessionMachine,
  sessionTimes,
  type SessionEvent,
  type SessionInput,
} from "../../machines/dispatcher/session.machine.ts";
import { ChartRun, type Effect } from "../support/chart-run.ts";

const input: SessionInput = {
  nodeId: "n1",
  sessionId: "s1",
  at: 0,
  adopted: false,
  graceMs: 15_000,
  unknownGraceMs: 30_000,
};

/** A session on a clock of its own; as with its actor, heartbeats are missed when none comes. */
function live(options: Partial<SessionInput> = {}) {
  const run = new ChartRun(sessionMachine, { ...input, ...options });
  run.answer("countHeartbeats", ({ graceMs }: { readonly graceMs: number }) => ({
    afterMs: graceMs,
    event: { type: "heartbeats.missed" },
  }));
  return {
    run,
    send: (event: SessionEvent) => run.send(event),
    advance: (ms: number) => run.advance(ms),
    state: () => run.state,
    /** Its effects with their `end`, except the count. */
    take: () => run.take().flatMap(effectName),
  };
}

function effectName({ type, params }: Effect): readonly string[] {
  if (type === "countHeartbeats") return [];
  const end = (params as { readonly end?: string } | undefined)?.end;
  return [end === undefined ? type : `${type} ${end}`];
}

const committed = { type: "registration.committed", at: 0, graceMs: 15_000 } as const;
const beat = (at = 0): SessionEvent => ({ type: "heartbeat", at, graceMs: 15_000 });

function serving() {
  const session = live();
  session.send(committed);
  session.take();
  return session;
}

test("nothing is sent before the registration is in the log, and then the other managers are notified", (t) => {
  const session = live();
  t.is(session.state(), "registering");
  t.deepEqual(session.take(), ["register"]);
  session.advance(600_000);
  t.deepEqual(session.take(), [], "an unreachable log is awaited");
  session.send(committed);
  t.deepEqual(session.take(), ["announceRegistration", "sendSessionMessage"]);
  t.is(session.state(), "serving:connected");
});

test("a node that is silent for a whole grace period is suspected", (t) => {
  const session = serving();
  session.advance(14_900);
  t.is(session.state(), "serving:connected");
  session.advance(200);
  t.is(session.state(), "suspect");
});

test("a node with a silently broken stream is missed after the reconnect grace period, long before the heartbeats", (t) => {
  const session = serving();
  session.send({ type: "stream.broken", at: 0, graceMs: 15_000 });
  t.is(session.state(), "serving:disconnected");
  session.advance(sessionTimes.reconnectGraceMsMin - 100);
  t.is(session.state(), "serving:disconnected");
  session.advance(200);
  t.is(session.state(), "suspect");
  session.advance(sessionTimes.verdictDelayMs);
  t.is(session.state(), "checking");
  t.deepEqual(session.take(), ["requestVerdict"]);
});

test("if heartbeats are rare, a broken stream is missed later as well", (t) => {
  const session = live({ graceMs: 180_000 });
  session.send({ type: "registration.committed", at: 0, graceMs: 180_000 });
  session.send({ type: "stream.broken", at: 0, graceMs: 180_000 });
  session.advance(64_700);
  t.is(session.state(), "serving:disconnected");
  session.advance(200);
  t.is(session.state(), "suspect");
});

test("the heartbeat grace period ends a disconnected session when it is the shorter one", (t) => {
  const session = live({ graceMs: 1_500 });
  session.send({ type: "registration.committed", at: 0, graceMs: 1_500 });
  session.send({ type: "stream.broken", at: 0, graceMs: 15_000 });
  session.advance(1_600);
  t.is(session.state(), "suspect");
});

test("an agent that resumes within the reconnect grace period is served as before, with no write", (t) => {
  const session = serving();
  session.send({ type: "stream.broken", at: 0, graceMs: 15_000 });
  session.advance(3_000);
  session.send({ type: "session.resumed", at: 3_000, graceMs: 15_000, changed: false });
  t.is(session.state(), "serving:connected");
  t.deepEqual(session.take(), ["sendSessionMessage"]);
  session.advance(10_000);
  t.is(session.state(), "serving:connected", "the reconnect grace period is over permanently");
});

test("a heartbeat after the stream broke shows that the node lives", (t) => {
  const session = serving();
  session.send({ type: "stream.broken", at: 0, graceMs: 15_000 });
  session.send(beat());
  t.is(session.state(), "serving:connected");
  t.deepEqual(session.take(), ["confirmReady"]);
});

test("a resumed session with another description registers again", (t) => {
  const session = serving();
  session.send({ type: "session.resumed", at: 1, graceMs: 15_000, changed: true });
  t.is(session.state(), "registering");
  t.deepEqual(session.take(), ["register"]);
  session.send(beat(2));
  t.is(session.state(), "registering");
});

test("a node whose registration was cancelled by its caller is missed like any other", (t) => {
  const session = live();
  session.send({ type: "stream.broken", at: 0, graceMs: 15_000 });
  session.send(committed);
  t.is(session.state(), "serving:disconnected");
  t.false(session.take().includes("sendSessionMessage"));
  session.advance(sessionTimes.reconnectGraceMsMin + 100);
  t.is(session.state(), "suspect");
});

test("a sign of life withdraws the suspicion until DOWN is written", (t) => {
  const session = serving();
  session.advance(15_100);
  t.is(session.state(), "suspect");
  session.send(beat(15_100));
  t.is(session.state(), "serving:connected");
  session.advance(15_000 + sessionTimes.verdictDelayMs + 10);
  t.is(session.state(), "checking");
  session.send({ type: "verdict.granted" });
  t.is(session.state(), "expiring");
  session.send(beat(30_300));
  session.take();
  session.send({ type: "down.unavailable", at: 30_400, recheckMs: 1_000, reason: "no leader" });
  t.is(session.state(), "serving:connected", "it was heard while the log could not be reached");
  t.deepEqual(session.take(), ["confirmReady"]);
});

test("a held verdict is requested again", (t) => {
  const session = serving();
  session.advance(15_000 + sessionTimes.verdictDelayMs + 10);
  session.take();
  session.send({ type: "verdict.held", at: 15_160, recheckMs: 1_000, reason: "too many" });
  t.is(session.state(), "suspect");
  session.advance(900);
  t.deepEqual(session.take(), []);
  session.advance(200);
  t.deepEqual(session.take(), ["requestVerdict"]);
});

test("a node whose DOWN is in the log loses its session with NOT_FOUND", (t) => {
  const session = serving();
  session.advance(15_160);
  session.send({ type: "verdict.granted" });
  t.true(session.take().includes("declareDown"));
  session.send({ type: "down.committed" });
  t.is(session.state(), "expired");
  t.deepEqual(session.take(), ["endSession expired"]);
});

test("an agent that resumes while DOWN is being written is registered after it", (t) => {
  const session = serving();
  session.advance(15_160);
  session.send({ type: "verdict.granted" });
  session.take();
  session.send({ type: "session.resumed", at: 15_200, graceMs: 15_000, changed: false });
  t.deepEqual(session.take(), ["register"]);
  session.send({ type: "session.forgotten" });
  session.send({ type: "down.committed" });
  t.is(session.state(), "registering");
});

test("a session of an earlier life of the manager has six periods to be resumed", (t) => {
  const session = live({ adopted: true });
  t.is(session.state(), "adopted");
  session.advance(29_900);
  t.is(session.state(), "adopted");
  session.send({ type: "session.resumed", at: 29_900, graceMs: 15_000, changed: false });
  t.is(session.state(), "serving:connected");
  t.deepEqual(session.take(), ["sendSessionMessage"], "nothing was written");

  const lost = live({ adopted: true });
  lost.advance(30_100);
  t.is(lost.state(), "suspect");
});

const anywhere: readonly (readonly [string, SessionEvent, string])[] = [
  ["a newer registration", { type: "session.superseded" }, "endSession replaced"],
  ["the node's removal", { type: "node.removed" }, "endSession removed"],
  ["the manager's stop", { type: "dispatcher.stopped" }, "endSession stopped"],
  ["another manager's DOWN", { type: "session.forgotten" }, "endSession forgotten"],
];
for (const [what, event, end] of anywhere) {
  test(`${what} ends a session once, from serving and from suspicion`, (t) => {
    const session = serving();
    session.send(event);
    session.send(event);
    t.deepEqual(session.take(), [end]);
    const suspect = serving();
    suspect.advance(15_100);
    suspect.take();
    suspect.send(event);
    t.deepEqual(suspect.take(), [end]);
  });
}

test("a session whose node others declared DOWN writes READY again while its agent is connected", (t) => {
  const session = serving();
  session.send({ type: "node.doubted" });
  t.deepEqual(session.take(), ["confirmReady"]);
  session.send({ type: "stream.broken", at: 0, graceMs: 15_000 });
  session.send({ type: "node.doubted" });
  t.deepEqual(session.take(), []);
});

test("every state of the chart is described", (t) => {
  for (const node of sessionMachine.root ? Object.values(sessionMachine.root.states) : [])
    t.truthy(node.config.description, node.key);
});
