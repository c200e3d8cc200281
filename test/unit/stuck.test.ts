import test from "ava";
import { judge, notJudged, type ServerCheck, type StuckJudgement } from "../../runtime/nats/stuck.ts";
import { Serving } from "../../runtime/nats/serving.ts";

interface Looks extends Partial<ServerCheck> {
  readonly everyMs?: number;
  readonly cpuEachMs?: number;
}

/** Checks for this long; returns the restart times, in seconds of this call, and the last judgement. */
function looked(
  before: StuckJudgement,
  seconds: number,
  looks: Looks = {},
): { restarts: number[]; last: StuckJudgement } {
  const { everyMs = 1_000, cpuEachMs = 0, ...look } = looks;
  const restarts: number[] = [];
  let last = before;
  const from = before.at === 0 ? 1_000 : before.at;
  for (let ms = everyMs; ms <= seconds * 1_000; ms += everyMs) {
    last = judge(last, {
      at: from + ms,
      unservedMs: 1,
      isRunning: true,
      state: "alive",
      cpuMs: last.cpuMs + cpuEachMs,
      freeBytes: 1e9,
      ...look,
    });
    if (last.isStuck) restarts.push(ms / 1_000);
  }
  return { restarts, last };
}

const serving = looked(notJudged, 70, { unservedMs: 0 }).last;

test("a server that served and no longer answers is restarted after ten seconds, not before", (t) => {
  t.deepEqual(looked(serving, 9).restarts, []);
  t.deepEqual(looked(serving, 10).restarts, [10]);
  t.deepEqual(looked(looked(serving, 9).last, 1, { unservedMs: 0 }).restarts, []);
  const interrupted = looked(looked(serving, 9).last, 1, { unservedMs: 0 }).last;
  t.deepEqual(looked(interrupted, 9).restarts, [], "an answer resets the count");
});

test("X1: a busy server, one that waits for its disk and late checks get time, and a stopped one gets a minute", (t) => {
  t.deepEqual(looked(serving, 45, { cpuEachMs: 900 }).restarts, []);
  t.deepEqual(looked(serving, 45, { state: "waiting" }).restarts, []);
  t.deepEqual(looked(serving, 600, { everyMs: 3_000 }).restarts, []);
  t.deepEqual(looked(serving, 59, { state: "stopped" }).restarts, []);
  t.deepEqual(looked(serving, 61, { state: "stopped" }).restarts, [60]);
});

test("X2: one that stays stuck is restarted ever less often, until it has served for a minute", (t) => {
  const { restarts, last } = looked(serving, 3_600);
  const pauses = restarts.map((at, index) => at - (restarts[index - 1] ?? 0));
  t.deepEqual(pauses.slice(0, 4), [10, 20, 40, 80]);
  t.true(restarts.length <= 11, restarts.join());
  t.is(looked(looked(last, 30, { unservedMs: 0 }).last, 10).restarts.length, 0);
  t.deepEqual(looked(looked(last, 70, { unservedMs: 0 }).last, 10).restarts, [10]);
});

test("a server that has just started gets twice as long, and none is started while it does not run or has no free byte", (t) => {
  t.deepEqual(looked(notJudged, 21).restarts, [21]);
  t.deepEqual(looked(serving, 600, { isRunning: false }).restarts, []);
  const full = looked(serving, 600, { freeBytes: 0 });
  t.deepEqual(full.restarts, [], "X3");
  t.deepEqual(looked(full.last, 2).restarts, [1], "as soon as there is space");
});

test("J1: one unanswered request is not silence, three are; each kind is checked by itself", (t) => {
  const served = new Serving();
  served.unanswered("log", 1_000, "a");
  served.unanswered("log", 4_000, "a");
  t.is(served.silence(5_000), null);
  served.unanswered("log", 7_000, "b");
  t.deepEqual(served.silence(9_000), { ms: 8_000, reason: "b" });
  served.answered("lease");
  t.deepEqual(served.silence(9_000), { ms: 8_000, reason: "b" });
  served.answered("log");
  t.is(served.silence(9_000), null);
});
