// The session chart alone: one event in, state and effects out; and the choice of managers.
import test from "ava";
import fc from "fast-check";
import {
  chooseManager,
  namesSameManagers,
  noteUnreached,
  observeManager,
  replaceManagers,
  type KnownManager,
} from "../../machines/agent/managers.ts";
import { agentSessionMachine, type AgentSessionEvent } from "../../machines/agent/session.machine.ts";
import { AssignmentsMessage, SessionMessage } from "../../proto/gen/messages.ts";
import { ChartRun } from "../support/chart-run.ts";

type Run = ChartRun<typeof agentSessionMachine>;

function after(...events: readonly AgentSessionEvent[]): Run {
  return new ChartRun(agentSessionMachine).send(...events);
}

/** Without announcements, which are requested by name where they matter. */
const names = (run: Run): readonly string[] => run.names.filter((name) => name !== "announce");

const wanted: AgentSessionEvent = { type: "session.wanted" };
const reached: AgentSessionEvent = { type: "manager.reached", addr: "m:1" };
const message = (sessionId: string): AgentSessionEvent => ({
  type: "session.message",
  message: SessionMessage.create({ sessionId }),
});
const failed: AgentSessionEvent = { type: "session.failed", reason: "gone" };
const assignments = (complete: boolean, appliesTo: string, resultsIn: string): AgentSessionEvent => ({
  type: "assignments.received",
  message: AssignmentsMessage.create(),
  complete,
  appliesTo,
  resultsIn,
});

test("A1: no other stream opens before the session's first message", (t) => {
  const opening = after(wanted, reached);
  t.true(opening.snapshot.matches({ engaged: "registering" }));
  t.deepEqual(names(opening), ["openSession"]);
  const serving = after(wanted, reached, message("s1"));
  t.true(serving.snapshot.hasTag("serving"));
  t.deepEqual(names(serving), ["applySessionMessage", "openStreams", "sendHeartbeat"]);
  t.is(serving.snapshot.context.sessionId, "s1");
});

test("A1: a manager that is silent for the registration timeout counts as failed", (t) => {
  t.deepEqual(after(wanted, reached).delays, [5_000]);
});

test("A2: a message that does not continue the previous one ends the session unapplied", (t) => {
  const serving = [wanted, reached, message("s1")];
  t.deepEqual(names(after(...serving, assignments(true, "", "1"), assignments(false, "1", "2"))), ["applyAssignments"]);
  for (const bad of [[assignments(false, "1", "2")], [assignments(true, "", "1"), assignments(false, "9", "10")]]) {
    const end = after(...serving, ...bad);
    t.true(end.snapshot.matches("backing-off"));
    t.deepEqual(names(end), ["endSession"]);
  }
});

test("A2: a new stream does not continue the old one", (t) => {
  const end = after(wanted, reached, message("s1"), assignments(true, "", "1"), failed);
  t.is(end.snapshot.context.assignments, "");
});

test("A3, A4: a failure ends the connection and keeps the session's id", (t) => {
  const end = after(wanted, reached, message("s1"), failed);
  t.deepEqual(names(end), ["endSession"]);
  t.like(end.snapshot.context, { sessionId: "s1", reason: "gone", addr: "" });
});

test("delays grow as SwarmKit's do and reset after a registration", (t) => {
  const bounds: number[] = [];
  const run = after(wanted);
  for (let at = 0; at < 8; at += 1) {
    bounds.push(...run.send(failed).delays);
    run.send("backoff");
  }
  t.deepEqual(bounds, [100, 300, 700, 1_500, 3_100, 6_300, 8_000, 8_000]);
  t.deepEqual(run.send(reached, message("s1"), failed).delays, [100]);
});

test("heartbeats follow the manager's period, or a default if it sends none", (t) => {
  const serving = [wanted, reached, message("s1")];
  t.deepEqual(after(...serving, { type: "heartbeat.answered", periodMs: 700, tookMs: 0 }).delays, [700]);
  t.deepEqual(after(...serving, { type: "heartbeat.answered", periodMs: 0, tookMs: 0 }).delays, [5_000]);
  t.deepEqual(after(...serving, { type: "heartbeat.answered", periodMs: 1, tookMs: 0 }).delays, [100]);
});

test("a heartbeat's period counts from the last heartbeat, however long its answer took", (t) => {
  const serving = [wanted, reached, message("s1")];
  t.deepEqual(after(...serving, { type: "heartbeat.answered", periodMs: 5_000, tookMs: 180 }).delays, [4_820]);
  t.deepEqual(after(...serving, { type: "heartbeat.answered", periodMs: 0, tookMs: 180 }).delays, [4_820]);
  t.deepEqual(after(...serving, { type: "heartbeat.answered", periodMs: 700, tookMs: 4_000 }).delays, [100]);
});

test("a changed description registers again at once, and an unchanged one does nothing", (t) => {
  const serving = [wanted, reached, message("s1"), { type: "identity.changed" }] as const;
  t.deepEqual(names(after(...serving)), ["compareDescription"]);
  t.deepEqual(names(after(...serving, { type: "description.same" })), []);
  const changed = after(...serving, { type: "description.changed" });
  t.true(changed.snapshot.matches({ engaged: "connecting" }));
  t.deepEqual(names(changed), ["endSession", "connect"]);
  t.is(changed.snapshot.context.failures, 0);
});

test("a session that is no longer wanted ends from any state", (t) => {
  const unwanted: AgentSessionEvent = { type: "session.unwanted" };
  for (const events of [[wanted], [wanted, reached], [wanted, reached, message("s1")], [wanted, failed]]) {
    t.true(after(...events, unwanted).snapshot.matches("idle"));
  }
  t.deepEqual(names(after(wanted, reached, message("s1"), unwanted)), ["endSession"]);
});

const manager = (nodeId: string, weight: number): KnownManager => ({
  nodeId,
  addr: `${nodeId}:1`,
  weight,
  unreached: 0,
});

test("the manager with the higher weight is chosen nearly always, and one without weight only if there is no other", (t) => {
  const managers = [manager("a", 0), manager("b", 200), manager("c", -10)];
  t.is(chooseManager(managers, 0.5)?.nodeId, "b");
  t.is(chooseManager(managers, 0)?.nodeId, "a");
  t.is(chooseManager([manager("a", -10)], 0.99)?.nodeId, "a");
  t.is(chooseManager([], 0.5), null);
});

test("weights move halfway with each experience and stay within bounds", (t) => {
  const [a] = observeManager([manager("a", 10)], manager("a", 0), -10);
  t.is(a?.weight, 0);
  t.is(observeManager([manager("a", 256)], manager("a", 0), 1_000)[0]?.weight, 256);
  t.is(observeManager([manager("a", 3)], manager("a", 0), 10)[0]?.weight, 7);
});

test("G1: whatever managers list, the agent always keeps one", (t) => {
  const peer = fc.record({
    nodeId: fc.constantFrom("a", "b", "c"),
    addr: fc.constantFrom("", "x:1", "y:1"),
    weight: fc.integer({ min: -1_000, max: 1_000 }),
  });
  fc.assert(
    fc.property(fc.array(fc.array(peer)), fc.double({ min: 0, max: 0.999_999, noNaN: true }), (lists, roll) => {
      let managers: readonly KnownManager[] = [manager("first", 0)];
      for (const list of lists) {
        managers = replaceManagers(managers, list);
        const chosen = chooseManager(managers, roll);
        if (chosen === null || chosen.addr === "") return false;
        if (managers.some(({ weight }) => Math.abs(weight) > 256)) return false;
      }
      return true;
    }),
  );
  t.pass();
});

test("G2: each unreachable manager is tried once before any is tried again, until there is a session", (t) => {
  const weights = fc.array(fc.integer({ min: -256, max: 256 }), { minLength: 2, maxLength: 7 });
  const rolls = fc.array(fc.double({ min: 0, max: 0.999_999, noNaN: true }), { minLength: 21, maxLength: 21 });
  fc.assert(
    fc.property(weights, rolls, (list, draws) => {
      let managers = list.map((weight, at) => manager(`m${at}`, weight));
      const tried: string[] = [];
      for (const roll of draws) {
        const chosen = chooseManager(managers, roll);
        if (chosen === null) return false;
        tried.push(chosen.nodeId);
        managers = [...noteUnreached(observeManager(managers, chosen, -10), chosen)];
      }
      for (let at = 0; at + list.length <= tried.length; at += list.length) {
        if (new Set(tried.slice(at, at + list.length)).size !== list.length) return false;
      }
      return true;
    }),
  );
  const failed = noteUnreached([manager("a", 200), manager("b", 0)], manager("a", 0));
  t.is(chooseManager(failed, 0.5)?.nodeId, "b");
  const listed = failed.map(({ nodeId, addr, weight }) => ({ nodeId, addr, weight }));
  t.is(chooseManager(replaceManagers(failed, listed), 0.5)?.nodeId, "a", "a session resets the count");
});

test("managers that are no longer listed are forgotten, and the others keep their weights", (t) => {
  const next = replaceManagers(
    [manager("a", 100), manager("b", 100)],
    [
      { nodeId: "b", addr: "b:1", weight: 10 },
      { nodeId: "c", addr: "c:1", weight: 10 },
    ],
  );
  t.deepEqual(next, [manager("b", 55), manager("c", 10)]);
  t.false(namesSameManagers(next, [manager("b", 1)]));
  t.true(namesSameManagers(next, [manager("c", 1), manager("b", 1)]));
});
