// The sessions of nodes: their registration, their assignments, and when a silent node is declared DOWN.
import test from "ava";
import { assignmentsMachine, type AssignmentsInput } from "../../machines/dispatcher/assignments.machine.ts";
import { gossipMachine } from "../../machines/dispatcher/gossip.machine.ts";
import { massDown, massDownBreakerMachine, objection } from "../../machines/dispatcher/mass-down-breaker.machine.ts";
import { nodeWatchMachine } from "../../machines/dispatcher/node-watch.machine.ts";
import {
  sessionMachine,
  type SessionContext,
  type SessionEnd,
  type SessionEvent,
  type SessionInput,
} from "../../machines/dispatcher/session.machine.ts";
import { AssignmentChange } from "../../proto/gen/messages.ts";
import { isAsked, isDue, isIn, paramsOf, walkChart } from "../support/chart-model.ts";

test("a session serves only what the log names, and declares a node DOWN only after a verdict", async (t) => {
  const life = { at: 10, graceMs: 16_500 };
  const hold = { at: 10, recheckMs: 1_000, reason: "too many are missing" };
  const events: readonly SessionEvent[] = [
    { type: "registration.committed", ...life },
    { type: "session.resumed", ...life, changed: false },
    { type: "session.resumed", ...life, changed: true },
    { type: "heartbeat", ...life },
    { type: "heartbeats.missed" },
    { type: "stream.broken", ...life },
    { type: "node.doubted" },
    { type: "session.superseded" },
    { type: "session.forgotten" },
    { type: "node.removed" },
    { type: "verdict.granted" },
    { type: "verdict.held", ...hold },
    { type: "down.committed" },
    { type: "down.overtaken" },
    { type: "down.unavailable", ...hold },
    { type: "dispatcher.stopped" },
  ];
  const input = { nodeId: "n1", sessionId: "s1", at: 0, unknownGraceMs: 30_000, graceMs: 16_500 };
  await walkChart(t, {
    machine: sessionMachine,
    inputs: [false, true].map((adopted): SessionInput => ({ ...input, adopted })),
    events,
    matters: ({ adopted, connected, heard, heldBecause }: SessionContext) => [adopted, connected, heard, heldBecause],
    /** `isRegistered`: the log named the session once; `isHeard`: a sign of life followed the last request for a verdict. */
    memory: { isRegistered: false, isGranted: false, isHeard: false, ends: 0 },
    check: (memory, step, claim) => {
      const { asked, event, from } = step;
      const wasAdopted = from === null ? isIn(step, "adopted") : memory.isRegistered;
      const isRegistered = wasAdopted || event?.type === "registration.committed";
      claim("S1", !isIn(step, "serving") || isRegistered, "it serves before its registration is in the log");
      claim("S1", !isAsked(asked, "sendSessionMessage") || isRegistered, "the node gets a message before that");
      const fences = paramsOf<{ sessionId: string }>(asked, "declareDown");
      claim(
        "S2",
        fences.every(({ sessionId }) => sessionId === "s1"),
        "DOWN is not fenced by the session's id",
      );
      const isGranted = event?.type === "verdict.granted" && isIn(from, "checking");
      claim("S3", fences.length === 0 || isGranted, "DOWN is written without a verdict");
      const isAlive = event?.type === "heartbeat" || event?.type === "session.resumed";
      const isSuspect = isIn(from, "suspect") || isIn(from, "adopted") || isIn(from, "serving.disconnected");
      const isBack = isIn(step, "serving") || isIn(step, "registering");
      claim("S3", !(isAlive && isSuspect) || isBack, "a sign of life does not withdraw the suspicion");
      const isUnwritten = event?.type === "down.unavailable" && isIn(from, "expiring") && memory.isHeard;
      claim("S3", !isUnwritten || isIn(step, "serving"), "a node that was heard meanwhile stays suspected");
      const ended = paramsOf<{ end: SessionEnd }>(asked, "endSession");
      const ends = memory.ends + ended.length;
      const isOver = ["expired", "replaced", "forgotten", "removed", "stopped"].some((end) => isIn(step, end));
      claim("S4", ends === (isOver ? 1 : 0), "it ends without endSession, or twice");
      claim(
        "S4",
        ended.every(({ end }) => isIn(step, end)),
        "endSession names another end",
      );
      const isExpiring = isIn(step, "expiring");
      return {
        isRegistered,
        isGranted: false,
        isHeard: isExpiring && isIn(from, "expiring") && (memory.isHeard || isAlive),
        ends,
      };
    },
    elsewhere: { S5: "ids are the manager's: test/unit/session-ids.test.ts and simulation/invariants/sessions.ts" },
    ends: true,
  });
});

test("a stream of assignments begins with a complete set, and each increment applies to the message before", async (t) => {
  const changes = [AssignmentChange.create({})];
  interface Written {
    readonly appliesTo: string;
    readonly resultsIn: string;
  }
  await walkChart(t, {
    machine: assignmentsMachine,
    inputs: [{ nodeId: "n1", sessionId: "s1", method: "Assignments" } satisfies AssignmentsInput],
    events: [
      { type: "snapshot.taken", changes },
      { type: "changes.noted" },
      { type: "changes.collected", changes },
      { type: "peer.stalled" },
      { type: "stream.ended" },
    ],
    // Numbers of messages never end; the first three show the chain.
    matters: ({ sequence }: { readonly sequence: number }) => Math.min(sequence, 3),
    memory: { isComplete: false },
    check: ({ isComplete }, step, claim) => {
      const { asked, from } = step;
      const last = (from?.snapshot.context as { readonly sequence: number } | undefined)?.sequence ?? 0;
      const complete = paramsOf<Written>(asked, "writeComplete");
      const increments = paramsOf<Written>(asked, "writeIncrement");
      claim("G1", complete.length === 0 || !isComplete, "a complete set follows another message");
      claim("G1", increments.length === 0 || isComplete, "an increment comes first");
      claim(
        "G2",
        increments.every(({ appliesTo }) => appliesTo === String(last)),
        "an increment applies to another message",
      );
      const written = [...complete, ...increments];
      claim(
        "G2",
        written.every(({ resultsIn }, index) => resultsIn === String(last + 1 + index)),
        "a message has no number of its own",
      );
      const isStalled = isIn(from, "streaming.stalled") && isIn(step, "streaming.stalled");
      claim(
        "G3",
        !isStalled || !isAsked(asked, "collectChanges"),
        "changes are collected for a node that does not read",
      );
      return { isComplete: isComplete || complete.length > 0 };
    },
    ends: true,
  });
});

test("engines are announced to each other for a time, and the lists are shortened until none is left", async (t) => {
  await walkChart(t, {
    machine: gossipMachine,
    inputs: [undefined],
    events: [
      { type: "engine.registered" },
      { type: "introductions.ended", left: 0 },
      { type: "introductions.ended", left: 2 },
    ],
    memory: { left: 0 },
    check: ({ left }, step, claim) => {
      const { asked, event, from } = step;
      const ended =
        event?.type === "introductions.ended" && "left" in event && isIn(from, "ending") ? event.left : left;
      const now = event?.type === "engine.registered" && isIn(from, "idle") ? 1 : ended;
      claim("I1", !isIn(step, "idle") || now === 0, "it rests while engines are announced");
      claim("I1", !isDue(event, "introduction") || isAsked(asked, "endIntroductions"), "an engine stays announced");
      return { left: now };
    },
    elsewhere: { I2: "which engines are listed is a function of the log: test/unit/gossip.test.ts" },
  });
});

test("nodes are declared DOWN only by a manager that was there all along, and not while too many are missing", async (t) => {
  const view = { at: 1, settled: true, serves: false, lateMs: 0, missing: 0, nodes: 10, asked: false };
  const late = massDown.pauseMsMax + 1;
  const samples = [
    view,
    { ...view, at: 50 },
    { ...view, lateMs: late },
    { ...view, settled: false },
    { ...view, settled: false, serves: true },
    { ...view, missing: 5, asked: true },
    { ...view, missing: 5 },
    { ...view, missing: 2, asked: true },
    { ...view, missing: 2 },
    { ...view, at: 1 + massDown.sameFaultMs + 1, missing: 2, asked: true },
  ];
  type Sample = (typeof samples)[number] & { readonly type: "view.sampled" };
  const sampleOf = (event: { readonly type: string } | null) =>
    event?.type === "view.sampled" ? (event as Sample) : null;
  await walkChart(t, {
    machine: massDownBreakerMachine,
    inputs: [{ settleMs: 15 }],
    events: samples.map((sample): Sample => ({ type: "view.sampled", ...sample })),
    memory: { isDistrusted: false, massAt: null as number | null },
    check: ({ isDistrusted, massAt }, step, claim) => {
      const { event, from } = step;
      const sample = sampleOf(event);
      const grants = ["watching", "releasing"].some((state) => isIn(step, state));
      const isAway = sample !== null && (!sample.settled || sample.lateMs > massDown.pauseMsMax);
      claim("D1", !isAway || !grants, "a manager that was away grants verdicts");
      const until = (step.context as { readonly settlingUntil: number }).settlingUntil;
      const mustWait = isAway && sample.serves;
      claim("D1", !mustWait || until === sample.at + 15, "a manager with sessions was away, and trusts itself at once");
      claim("D1", !(isIn(from, "settling") && grants) || (sample?.at ?? 0) >= until, "it settles too early");
      const sees = sample !== null && !isAway;
      const isMass = sees && sample.missing >= massDown.nodesMin;
      const seenAt = isMass ? sample.at : (sees && sample.missing === 0) || isDue(event, "release") ? null : massAt;
      const isSameFault = sees && sample.asked && seenAt !== null && sample.at - seenAt <= massDown.sameFaultMs;
      const wasWatching = isIn(from, "watching");
      claim("D2", !(isSameFault && wasWatching) || isIn(step, "holding"), "nodes of a mass are declared DOWN");
      const isOther = !isSameFault && isIn(step, "holding") && !isIn(from, "holding");
      claim("D2", !isOther, "nodes are held that no mass was missing with");
      const leaves = isIn(from, "holding") && !isIn(step, "holding");
      const isOver = isDue(event, "hold") || isAway || sample?.missing === 0;
      claim("D2", !leaves || isOver, "the hold ends although nodes are missing");
      claim("D3", !isDue(event, "hold") || isIn(step, "releasing"), "the hold does not end");
      // Another mass of nodes may be missing by then.
      claim("D3", !isDue(event, "release") || !isIn(step, "releasing"), "the release does not end");
      const now = { at: 100_000, deafMs: 0, deafRecentlyMs: 0, isReleasing: true, holdSince: 50_000 };
      const graceMs = 15_000;
      claim("D4", objection({ since: 60_000, graceMs }, now) !== null, "a node that was heard in the hold is lost");
      claim(
        "D4",
        objection({ since: 60_000 - massDown.holdMs, graceMs }, now) === null,
        "a lost node is never declared",
      );
      const lately = { ...now, isReleasing: false };
      claim(
        "D5",
        objection({ since: 80_000, graceMs }, { ...lately, deafMs: 6_000 }) !== null,
        "its own lateness counts",
      );
      const busy = { ...lately, deafRecentlyMs: massDown.overloadDeafMsMax + 1 };
      claim("D6", objection({ since: 50_000, graceMs }, busy) !== null, "an overloaded manager declares a node DOWN");
      return { isDistrusted: isAway || (isDistrusted && !grants), massAt: seenAt };
    },
  });
});

test("an unknown node is declared DOWN after a verdict, and a DOWN node's tasks are orphaned after their delay", async (t) => {
  const input = { nodeId: "n1", at: 0, unknownGraceMs: 30_000, orphanMs: 86_400_000 };
  await walkChart(t, {
    machine: nodeWatchMachine,
    inputs: [false, true].map((isDown) => ({ ...input, isDown })),
    events: [
      { type: "node.unknown", at: 5 },
      { type: "node.down", at: 5 },
      { type: "node.settled" },
      { type: "verdict.granted" },
      { type: "verdict.held" },
      { type: "write.failed" },
      { type: "tasks.orphaned" },
      { type: "tasks.kept" },
    ],
    memory: null,
    check: (_, step, claim) => {
      const { asked, event, from } = step;
      const isGranted = event?.type === "verdict.granted" && isIn(from, "checking");
      claim("W1", isAsked(asked, "declareDown") === isGranted, "DOWN is written without a verdict");
      const isAsking = isDue(event, "unknownGrace") || (isDue(event, "retry") && isIn(from, "waiting"));
      claim("W1", isAsked(asked, "requestVerdict") === isAsking, "it asks before the grace period is over, or never");
      const mayOrphan = isDue(event, "orphanDelay") || (isDue(event, "retry") && isIn(from, "resting"));
      claim("W2", isAsked(asked, "orphanTasks") === mayOrphan, "tasks are orphaned too early, or never");
      return null;
    },
    elsewhere: { W3: "the caller passes the grace period: test/unit/restored.test.ts" },
    ends: true,
  });
});
