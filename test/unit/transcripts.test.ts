// Charts' behaviour as readable transcripts: test/unit/transcripts/CHART/SCENARIO.txt. REWRITE=1 rewrites them, and the diff is
// reviewed.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import test from "ava";
import { sessionMachine, type SessionContext, type SessionEvent } from "../../machines/dispatcher/session.machine.ts";
import { leaseMachine, type LeaseContext, type LeaseEvent } from "../../machines/ledger/lease.machine.ts";
import { ledgerScript } from "../support/transcript-ledger.ts";
import { rolloutScript } from "../support/transcript-rollout.ts";
import { schedulerScript } from "../support/transcript-scheduler.ts";
import { chartScript, replay, type Samples, type Script } from "../support/transcript.ts";

const folder = new URL("transcripts/", import.meta.url);

const graceMs = 15_000;

/** Runners of the commands in each chart's folder. */
const scripts: Readonly<Record<string, () => Script>> = {
  session: () =>
    chartScript({
      machine: sessionMachine,
      input: { nodeId: "n1", sessionId: "s1", at: 0, adopted: false, unknownGraceMs: 30_000, graceMs },
      events: (now, _context: SessionContext) =>
        ({
          "registration.committed": { at: now, graceMs },
          "session.resumed": { at: now, graceMs, changed: false },
          heartbeat: { at: now, graceMs },
          "heartbeats.missed": {},
          "stream.broken": { at: now, graceMs },
          "node.doubted": {},
          "session.superseded": {},
          "session.forgotten": {},
          "node.removed": {},
          "verdict.granted": {},
          "verdict.held": { at: now, recheckMs: 1_000, reason: "" },
          "down.committed": {},
          "down.overtaken": {},
          "down.unavailable": { at: now, recheckMs: 1_000, reason: "" },
          "dispatcher.stopped": {},
        }) satisfies Samples<SessionEvent>,
    }),
  ledger: ledgerScript,
  scheduler: schedulerScript,
  rollout: rolloutScript,
  lease: () =>
    chartScript({
      machine: leaseMachine,
      input: { ttlMs: 9_000, managerId: "m1", instance: "run2", jitter: 0.5 },
      events: (now, { attempt }: LeaseContext) =>
        ({
          "lease.absent": { attempt, jitter: 0.5 },
          "lease.held": { attempt, managerId: "m1", instance: "run2", revision: 0, jitter: 0.5 },
          "lease.unreadable": { attempt, jitter: 0.5 },
          "lease.written": { attempt, revision: 0, sentAt: now, at: now },
          "lease.conflict": { attempt },
          "lease.unknown": { attempt },
          "lease.removed": { attempt },
          "leader.deposed": {},
          "release.requested": {},
        }) satisfies Samples<LeaseEvent>,
    }),
};

test("each chart with a script has transcripts, and the other way round", (t) => {
  t.deepEqual(readdirSync(folder).sort(), Object.keys(scripts).sort());
});

test("a transcript with an unknown command, event or field fails", async (t) => {
  const fails = (text: string, message: RegExp) =>
    t.throwsAsync(replay(`start\n${text}`, (scripts["session"] as () => Script)()), { message });
  await fails("events heartbeat", /events is a command of charts/);
  await fails("event heart.beat", /heart.beat is an event of this chart/);
  await fails("event heartbeat grace=5s", /grace=5000 fits a field/);
  await fails("event heartbeat graceMs=true", /graceMs=true fits a field/);
});

for (const chart of readdirSync(folder).sort()) {
  for (const file of readdirSync(new URL(`${chart}/`, folder)).sort()) {
    test(`${chart} behaves as in ${chart}/${file}`, async (t) => {
      const path = new URL(`${chart}/${file}`, folder);
      const text = readFileSync(path, "utf8");
      const script = scripts[chart];
      if (script === undefined) throw new Error(`no script runs the transcripts of ${chart}`);
      const said = await replay(text, script());
      if (process.env["REWRITE"] === "1") writeFileSync(path, said);
      t.deepEqual(said.split("\n"), readFileSync(path, "utf8").split("\n"));
    });
  }
}
