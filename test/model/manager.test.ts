// A manager's own life: its membership, its watch over the others, demotions, and whether it makes progress.
import test from "ava";
import {
  backupScheduleMachine,
  dueInMs,
  type BackupScheduleEvent,
} from "../../machines/manager/backup-schedule.machine.ts";
import { demotionMachine, type DemotionEvent } from "../../machines/manager/demotion.machine.ts";
import { managerWatchMachine } from "../../machines/manager/manager-watch.machine.ts";
import { membershipMachine } from "../../machines/manager/membership.machine.ts";
import { isolationMachine, mayServe, type IsolationEvent } from "../../machines/manager/isolation.machine.ts";
import { natsMoveMachine, othersNeeded, type NatsMoveEvent } from "../../machines/manager/nats-move.machine.ts";
import type { NatsMembersStep } from "../../machines/manager/nats-members.ts";
import { natsMembersMachine, type NatsMembersEvent } from "../../machines/manager/nats-members.machine.ts";
import { progressMachine } from "../../machines/manager/progress.machine.ts";
import { isAsked, isDue, isIn, paramsOf, walkChart } from "../support/chart-model.ts";

test("a demoted manager becomes a worker at the end of its grace period, and only by the effect that a leader may refuse", async (t) => {
  const events: readonly DemotionEvent[] = [
    { type: "manager.gone" },
    { type: "demotion.recorded" },
    { type: "write.failed", reason: "no leader" },
    { type: "demotion.withdrawn" },
  ];
  await walkChart(t, {
    machine: demotionMachine,
    inputs: [
      { nodeId: "n1", isGone: false },
      { nodeId: "n1", isGone: true },
    ],
    events,
    memory: null,
    check: (_, step, claim) => {
      const { asked, event, from } = step;
      const isOver = isDue(event, "grace") && isIn(from, "leaving");
      claim("D1", !isOver || isAsked(asked, "recordDemotion"), "the grace period ends and nothing is recorded");
      const recorded = paramsOf<{ nodeId: string }>(asked, "recordDemotion");
      claim(
        "D1",
        recorded.every(({ nodeId }) => nodeId === "n1"),
        "another manager is demoted",
      );
      const entered = isIn(step, "recording") && !isIn(from, "recording");
      claim("D1", entered === recorded.length > 0, "it waits for a write that was not requested");
      return null;
    },
    elsewhere: { D2: "the leader's effect decides it: test/unit/demotion.test.ts and simulation/invariants/roles.ts" },
    ends: true,
  });
});

test("a manager is declared dead after silence alone, and never by a manager whose link is down", async (t) => {
  await walkChart(t, {
    machine: managerWatchMachine,
    inputs: [true, false].map((isUp) => ({ managerId: "m2", isUp })),
    events: [{ type: "beat" }, { type: "link.up" }, { type: "link.down" }, { type: "record.alive" }],
    memory: { isBlind: false },
    check: ({ isBlind }, step, claim) => {
      const { asked, event, from } = step;
      const declares = isAsked(asked, "declareDead");
      claim("V1", !declares || isDue(event, "silence") || isDue(event, "retry"), "it is declared dead without silence");
      claim("V1", !declares || (!isBlind && !isIn(from, "blind")), "a manager that hears nobody declares another dead");
      claim("V1", event?.type !== "link.down" || isIn(step, "blind"), "it goes on judging without a link");
      return { isBlind: isIn(step, "blind") };
    },
  });
});

test("a manager's heartbeats go on whatever the log does, and a wrong record is written again", async (t) => {
  await walkChart(t, {
    machine: membershipMachine,
    inputs: [undefined],
    events: [{ type: "record.right" }, { type: "record.wrong" }],
    memory: null,
    check: (_, step, claim) => {
      const { asked, event, from } = step;
      claim("M1", isIn(step, "beat.waiting"), "its heartbeats end");
      claim("M1", !isDue(event, "beatPeriod") || isAsked(asked, "publishBeat"), "a period passes without a heartbeat");
      const isWrong = event?.type === "record.wrong" && isIn(from, "record.listed");
      const isLate = isDue(event, "retry") && isIn(from, "record.announcing");
      claim("M2", !(isWrong || isLate || from === null) || isAsked(asked, "announce"), "a wrong record stays");
      return null;
    },
  });
});

test("a manager is healthy only on the evidence of a probe that returned in time", async (t) => {
  await walkChart(t, {
    machine: progressMachine,
    inputs: [{ intervalMs: 1_000, staleMs: 5_000 }],
    events: [
      { type: "probe.answered", at: 1 },
      { type: "probe.failed", at: 2, reason: "no leader" },
    ],
    memory: null,
    check: (_, step, claim) => {
      const { asked, event, from } = step;
      const becomes = isIn(step, "health.healthy") && !isIn(from, "health.healthy");
      claim("P1", !becomes || event?.type === "probe.answered", "it becomes healthy without an answer");
      const isStale = isDue(event, "staleAfter");
      claim("P1", !isStale || (isIn(step, "health.stuck") && isAsked(asked, "reportStuck")), "it is stale and healthy");
      claim("P1", becomes === isAsked(asked, "reportProgress"), "a recovery is not reported, or something else is");
      claim("P1", !isDue(event, "probeInterval") || isAsked(asked, "probe"), "no further probe is sent");
      return null;
    },
  });
});

test("a manager sends its nodes away only when it alone is cut off, and serves them again as soon as it is not", async (t) => {
  const events: readonly IsolationEvent[] = [
    { type: "progress.lost" },
    { type: "progress.made" },
    { type: "peers.answered", mayServe: true },
    { type: "peers.answered", mayServe: false },
  ];
  await walkChart(t, {
    machine: isolationMachine,
    inputs: [undefined],
    events,
    memory: { isAway: false },
    check: ({ isAway }, step, claim) => {
      const { asked, event, from } = step;
      const isAnswered = event?.type === "peers.answered" && event.mayServe && isIn(from, "confirming");
      const leaves = isAsked(asked, "sendNodesAway");
      claim("I1", leaves === isAnswered, "nodes are sent away without reason, or not with it");
      for (const delay of ["askAgain", "confirm"])
        claim("I1", !isDue(event, delay) || isAsked(asked, "askPeers"), "the others are not asked again");
      const serves = isAsked(asked, "serveNodes");
      claim(
        "I2",
        serves === (isAway && event?.type === "progress.made"),
        "nodes are served again too late or too early",
      );
      return { isAway: leaves || (isAway && !serves) };
    },
  });
  t.false(mayServe([]), "there is no other manager");
  t.false(mayServe(["stuck", "stuck"]));
  t.true(mayServe(["stuck", "serving"]));
  t.true(mayServe(["stuck", "unreachable"]));
});

test("backups on a schedule begin when the interval is over, old ones go only after a newer one, and failures are retried", async (t) => {
  const events: readonly BackupScheduleEvent[] = [
    { type: "folder.read", newestAgoMs: null },
    { type: "folder.read", newestAgoMs: 5_000 },
    { type: "folder.failed", reason: "no such folder" },
    { type: "backup.taken" },
    { type: "backup.failed", reason: "the disk is full" },
  ];
  await walkChart(t, {
    machine: backupScheduleMachine,
    inputs: [{ everyMs: 60_000 }],
    events,
    memory: null,
    check: (_, step, claim) => {
      const { asked, event, from } = step;
      const mayBegin = isDue(event, "due") || isDue(event, "retry");
      claim("BS1", isAsked(asked, "takeBackup") === mayBegin, "a backup begins at another time");
      const isTaken = event?.type === "backup.taken" && isIn(from, "taking");
      claim("BS2", isAsked(asked, "removeOld") === isTaken, "old backups are removed without a newer one, or never");
      claim("BS3", isAsked(asked, "reportSuccess") === isTaken, "a failure is withdrawn too early, or never");
      const hasFailed = (isIn(step, "retrying") && !isIn(from, "retrying")) === isAsked(asked, "reportFailure");
      claim("BS3", hasFailed, "a failure is not reported, or without one");
      return null;
    },
  });
});

test("the next backup is due an interval after the newest one, whatever the clock says", (t) => {
  t.deepEqual(
    [null, 0, 10_000, 60_000, 90_000, -5_000].map((ago) => dueInMs(60_000, ago)),
    [0, 60_000, 50_000, 0, 0, 60_000],
  );
});

test("the old log is served until a copy may be valid, and never again from the first commit on", async (t) => {
  const events: readonly NatsMoveEvent[] = [
    { type: "others.counted", others: 1 },
    { type: "others.counted", others: othersNeeded },
    { type: "cluster.gathered" },
    { type: "gathering.failed" },
    { type: "copy.completed" },
    { type: "copy.failed", reason: "r" },
    { type: "commit.confirmed" },
    { type: "commit.unknown" },
    { type: "target.read", found: "committed" },
    { type: "target.read", found: "not committed" },
  ];
  await walkChart(t, {
    machine: natsMoveMachine,
    inputs: [{ stage: "none" }, { stage: "moving" }, { stage: "committing" }],
    events,
    memory: { isSaved: false, mayBeValid: false },
    check: (memory, step, claim) => {
      const { asked, event, from } = step;
      // A life that begins in these states continues from what an earlier one has saved.
      const isSaved = memory.isSaved || isAsked(asked, "stopServing") || (from === null && !isIn(step, "alone"));
      const mayBeValid = memory.mayBeValid || (from === null && isIn(step, "checking")) || isAsked(asked, "commit");
      claim("X1", !isAsked(asked, "copy") || isSaved, "it copies a log that others write to");
      claim("X1", !isAsked(asked, "gather") || !isSaved, "others are asked for servers while the log is not served");
      claim("X2", !isAsked(asked, "giveUp") || !mayBeValid, "the old log is served while the copy may be valid");
      claim("X2", !isAsked(asked, "giveUp") || event?.type === "copy.failed", "it gives up without a failure");
      claim("X3", !isAsked(asked, "commit") || event?.type === "copy.completed", "it commits an incomplete copy");
      const isConfirmed =
        event?.type === "commit.confirmed" || (event?.type === "target.read" && event.found === "committed");
      claim(
        "X3",
        isAsked(asked, "finish") === (isConfirmed && isIn(step, "moved")),
        "the log moves without a valid copy",
      );
      return { isSaved, mayBeValid };
    },
    ends: true,
  });
});

test("a cluster of nats-servers changes by one step at a time, each after a reading, and missing copies are reported", async (t) => {
  const reading = (step: NatsMembersStep, missing = ""): NatsMembersEvent => ({ type: "servers.read", step, missing });
  const events: readonly NatsMembersEvent[] = [
    { type: "managers.changed" },
    reading({ kind: "none" }),
    reading({ kind: "none" }, "two of three copies"),
    reading({ kind: "learn" }),
    reading({ kind: "add", managerId: "m4" }, "two of three copies"),
    reading({ kind: "remove", server: "muster-m3-c" }),
    { type: "reading.failed" },
    { type: "step.taken" },
    { type: "step.failed" },
  ];
  await walkChart(t, {
    machine: natsMembersMachine,
    inputs: [undefined],
    events,
    matters: ({ readingsWithMissing, step }) => [Math.min(readingsWithMissing, 2), step],
    memory: { readings: 0 },
    check: (memory, step, claim) => {
      const { asked, event, from } = step;
      const isRead = event?.type === "servers.read" && isIn(from, "reading");
      const wanted = isRead ? event.step.kind : "none";
      for (const kind of ["add", "remove", "learn"] as const)
        claim("NM3", isAsked(asked, kind) === (wanted === kind), `${kind} without a reading that asks for it, or not`);
      const begins = ["adding", "removing", "learning"].some((state) => isIn(step, state));
      claim("NM3", !isAsked(asked, "readServers") || !begins, "it reads while a step is under way");
      const readings = !isRead ? memory.readings : event.missing === "" ? 0 : memory.readings + 1;
      const said = paramsOf<{ sentence: string }>(asked, "reportMissing").map(({ sentence }) => sentence);
      claim("NM4", said.length > 0 === isRead, "a reading is not reported, or a report has none");
      claim(
        "NM4",
        said.every((sentence) => (sentence !== "") === (isRead && event.missing !== "" && readings >= 2)),
        "missing copies are reported too early, or not, or not withdrawn",
      );
      return { readings: Math.min(readings, 2) };
    },
  });
});
