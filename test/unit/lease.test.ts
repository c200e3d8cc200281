// The lease's chart, on a clock of its own.
import test from "ava";
import { leaseMachine } from "../../machines/ledger/lease.machine.ts";
import { ChartRun, type Effect } from "../support/chart-run.ts";

const ttlMs = 3_600;

/** The chart with a scripted bucket, which does nothing by itself. */
function lease(fields: { managerId?: string; instance?: string } = {}) {
  const { managerId = "m1", instance = "life2" } = fields;
  const run = new ChartRun(leaseMachine, { ttlMs, managerId, instance, jitter: 0.5 });
  /** The number of the last call. */
  const attempt = (): number =>
    Math.max(...run.all().map(({ params }) => (params as Attempt | undefined)?.attempt ?? 0));
  return {
    run,
    isLeading: () => run.snapshot.hasTag("leading"),
    seen: () => run.take().map(nameOf),
    absent: () => run.send({ type: "lease.absent", attempt: attempt(), jitter: 0.5 }),
    held: (by: string, life: string, revision: number) =>
      run.send({ type: "lease.held", attempt: attempt(), managerId: by, instance: life, revision, jitter: 0.5 }),
    written: (revision: number, tookMs = 0) =>
      run.send({ type: "lease.written", attempt: attempt(), revision, sentAt: run.now - tookMs, at: run.now }),
    conflict: () => run.send({ type: "lease.conflict", attempt: attempt() }),
    unknown: () => run.send({ type: "lease.unknown", attempt: attempt() }),
    attempt,
  };
}

interface Attempt {
  readonly attempt?: number;
  readonly revision?: number;
}

function nameOf({ type, params }: Effect): string {
  const revision = (params as Attempt | undefined)?.revision;
  return revision === undefined ? type : `${type} ${revision}`;
}

function leading() {
  const it = lease();
  it.absent();
  it.written(7);
  it.seen();
  return it;
}

test("an absent key is created on condition of its absence, and its revision announced", (t) => {
  const it = lease();
  t.deepEqual(it.seen(), ["look"]);
  it.absent();
  t.deepEqual(it.seen(), ["write 0"]);
  it.written(7);
  t.deepEqual(it.seen(), ["announceTaken 7"]);
  t.true(it.isLeading());
});

test("a key held by another is read six times in its lifetime", (t) => {
  const it = lease();
  it.seen();
  for (let look = 0; look < 6; look += 1) {
    it.held("m2", "other", 3);
    it.run.advance(ttlMs / 6 - 1);
    t.deepEqual(it.seen(), []);
    it.run.advance(1);
    t.deepEqual(it.seen(), ["look"]);
  }
});

test("the key of an earlier life of this manager is taken over at the first read, and only then", (t) => {
  const first = lease();
  first.held("m1", "life1", 5);
  t.deepEqual(first.seen(), ["look", "write 5"]);
  const later = lease();
  later.held("m2", "other", 5);
  later.run.advance(ttlMs / 6);
  later.seen();
  later.held("m1", "twin", 6);
  t.is(later.run.state, "waiting:resting");
});

test("a write with an unknown outcome is resolved by reading", (t) => {
  const it = lease();
  it.absent();
  it.unknown();
  t.is(it.run.state, "lost");
  it.run.advance(ttlMs / 6);
  it.held("m1", "life2", 8);
  t.is(it.seen().at(-1), "write 8");
  it.written(9);
  t.true(it.isLeading());
});

test("the lease is renewed every third of its lifetime against the revision last written", (t) => {
  const it = leading();
  for (let revision = 7; revision < 12; revision += 1) {
    it.run.advance(ttlMs / 3);
    t.deepEqual(it.seen(), [`write ${revision}`]);
    it.written(revision + 1);
  }
  t.true(it.isLeading());
});

test("a leader that cannot renew stops after two thirds of the key's lifetime", (t) => {
  const it = leading();
  it.run.advance((ttlMs * 2) / 3 - 1);
  t.true(it.isLeading());
  it.run.advance(1);
  t.is(it.run.state, "lost");
  t.is(it.seen().at(-1), "announceEnded");
});

test("time counts from when the write was sent, not from its answer", (t) => {
  const it = leading();
  it.run.advance(ttlMs / 3);
  it.run.advance(200);
  it.written(8, 200);
  it.run.advance((ttlMs * 2) / 3 - 201);
  t.true(it.isLeading());
  it.run.advance(1);
  t.false(it.isLeading());
});

test("a manager does not lead on an answer that comes too late", (t) => {
  // If the whole process was stopped, timers do not fire before the answer.
  const answered = (it: ReturnType<typeof lease>, tookMs: number) =>
    it.run.send({ type: "lease.written", attempt: it.attempt(), revision: 7, sentAt: 50_000, at: 50_000 + tookMs });
  const it = lease();
  it.absent();
  it.seen();
  answered(it, (ttlMs * 2) / 3);
  t.deepEqual(it.seen(), ["look"]);
  t.is(it.run.state, "waiting:reading");
  const inTime = lease();
  inTime.absent();
  answered(inTime, (ttlMs * 2) / 3 - 1);
  t.true(inTime.isLeading());
});

test("a renewal answered too late does not prolong the leadership", (t) => {
  const it = leading();
  it.run.advance(ttlMs / 3);
  it.seen();
  it.written(8, (ttlMs * 2) / 3);
  t.deepEqual(it.seen(), ["reportUnexpected"]);
  it.run.advance(ttlMs / 3);
  t.false(it.isLeading());
});

test("a renewal rejected because of another's key ends the leadership", (t) => {
  const it = leading();
  it.run.advance(ttlMs / 3);
  it.conflict();
  t.is(it.run.state, "leading:term:checking");
  it.held("m2", "other", 9);
  t.is(it.run.state, "lost");
  t.is(it.seen().at(-1), "announceEnded");
});

test("a renewal whose answer was lost continues from the key's revision", (t) => {
  const it = leading();
  it.run.advance(ttlMs / 3);
  it.seen();
  it.run.advance(ttlMs / 9);
  t.deepEqual(it.seen(), ["look"]);
  it.held("m1", "life2", 8);
  t.deepEqual(it.seen(), ["write 8"]);
  it.written(9);
  it.run.advance(ttlMs / 3);
  t.deepEqual(it.seen(), ["write 9"]);
  t.true(it.isLeading());
});

test("a stale answer is reported and changes nothing", (t) => {
  const it = leading();
  it.run.advance(ttlMs / 3);
  it.seen();
  it.run.send({ type: "lease.conflict", attempt: it.attempt() - 1 });
  t.deepEqual(it.seen(), ["reportUnexpected"]);
  t.true(it.isLeading());
});

test("a release ends the leadership first, then removes the key, then reports", (t) => {
  const it = leading();
  it.run.send({ type: "release.requested" });
  t.deepEqual(it.seen(), ["announceEnded", "remove 7"]);
  it.run.send({ type: "lease.removed", attempt: it.attempt() });
  t.deepEqual(it.seen(), ["announceReleased"]);
  it.run.advance(10 * ttlMs);
  t.deepEqual(it.seen(), []);
});

test("releasing a lease that is not held is reported at once", (t) => {
  const it = lease();
  it.run.send({ type: "release.requested" });
  t.is(it.seen().at(-1), "announceReleased");
});

test("a leader that the log has deposed reads the key again only after a while", (t) => {
  const it = leading();
  it.run.send({ type: "leader.deposed" });
  t.deepEqual(it.seen(), ["announceEnded"]);
  it.run.advance(ttlMs / 6);
  t.deepEqual(it.seen(), ["look"]);
});

test("a lease is kept over a link on which a write takes nearly a third of the TTL, and not over a slower one (E4)", (t) => {
  const heldFor = (roundTripMs: number): number => {
    const it = lease();
    it.absent();
    it.run.advance(roundTripMs);
    it.written(7, roundTripMs);
    if (!it.isLeading()) return 0;
    let revision = 7;
    let sentAt = -1;
    for (let ms = 0; ms < 60_000; ms += 10) {
      it.run.advance(10);
      if (!it.isLeading()) return ms;
      if (it.seen().some((effect) => effect.startsWith("write"))) sentAt = it.run.now;
      if (sentAt >= 0 && it.run.now - sentAt >= roundTripMs) {
        it.written((revision += 1), it.run.now - sentAt);
        sentAt = -1;
      }
    }
    return 60_000;
  };
  for (const share of [0, 0.05, 0.15, 0.25, 0.3]) t.is(heldFor(share * ttlMs), 60_000, `${share} of the TTL`);
  t.true(heldFor(0.5 * ttlMs) < 60_000);
});
