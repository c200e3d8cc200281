// Leadership: a manager's lease, and the ledger, which writes the log while the manager leads.
import test from "ava";
import { leaseMachine, type LeaseContext, type LeaseEvent } from "../../machines/ledger/lease.machine.ts";
import { ledgerMachine, type LedgerEvent } from "../../machines/ledger/ledger.machine.ts";
import type { Place } from "../support/paths.ts";
import { isAsked, isDue, isIn, paramsOf, walkChart } from "../support/chart-model.ts";

interface Attempt {
  readonly attempt: number;
}

/** Answers to the newest request and to the one before. */
const ages = [0, -1];

/** The charts number their requests without end; in the list of events, an answer has the age of its request instead. */
function asSent<Event extends { readonly type: string }>(event: Event, { attempt }: Attempt): Event {
  return "attempt" in event ? { ...event, attempt: attempt + (event.attempt as number) } : event;
}

/** Whether the event answers the newest request, in the words of its answers; the others come at any moment. */
function fits(
  answers: Readonly<Record<string, readonly string[]>>,
  request: string,
  event: { readonly type: string },
): boolean {
  const isNewest = "attempt" in event && event.attempt === 0;
  return !isNewest || (answers[request]?.includes(event.type) ?? false);
}

const contextOf = <Context>(place: Place<unknown> | null): Context | null =>
  place === null ? null : (place.snapshot.context as Context);

const looked = ["lease.absent", "lease.held", "lease.unreadable"];
const leaseAnswers = {
  look: looked,
  /** A look that was given up. */
  late: looked,
  write: ["lease.written", "lease.conflict", "lease.unknown"],
  remove: ["lease.removed"],
};

test("a manager leads for two thirds of the TTL from its last successful write, and writes only over what it read", async (t) => {
  const ttlMs = 9_000;
  const shareMs = (ttlMs * 2) / 3;
  const own = { managerId: "m1", instance: "m1/2" };
  const runs = [own, { managerId: "m1", instance: "m1/1" }, { managerId: "m2", instance: "m2/1" }];
  const answers = ages.flatMap((attempt): readonly LeaseEvent[] => [
    { type: "lease.absent", attempt, jitter: 0.5 },
    ...runs.map((run): LeaseEvent => ({ type: "lease.held", attempt, ...run, revision: 7, jitter: 0.5 })),
    { type: "lease.unreadable", attempt, jitter: 0.5 },
    ...[100, shareMs - 1, shareMs].map((tookMs, index): LeaseEvent => ({
      type: "lease.written",
      attempt,
      revision: 8 + index,
      sentAt: 1_000 * index,
      at: 1_000 * index + tookMs,
    })),
    { type: "lease.conflict", attempt },
    { type: "lease.unknown", attempt },
    { type: "lease.removed", attempt },
  ]);
  await walkChart(t, {
    machine: leaseMachine,
    inputs: [{ ttlMs, ...own, jitter: 0 }],
    events: [...answers, { type: "leader.deposed" }, { type: "release.requested" }],
    mayCome: ({ memory }, event) => fits(leaseAnswers, memory.request, event),
    asSent,
    matters: ({ revision, deadline, isFirstLook }: LeaseContext) => [revision, deadline, isFirstLook],
    /**
     * `request`: what the bucket has not answered. `read`: the key's revision, null if an attempt to write it may have changed it.
     * `deadline`: from the last write that succeeded in time.
     */
    memory: { request: "", read: null as number | null, deadline: 0, isFirst: true },
    check: (memory, step, claim) => {
      const { asked, event, from } = step;
      let { request, read, deadline, isFirst } = memory;
      const isAnswer = event !== null && "attempt" in event && event.attempt === contextOf<LeaseContext>(from)?.attempt;
      const wasLeading = isIn(from, "leading");
      const isLeading = isIn(step, "leading");
      let isWritten = false;
      let mayTake = false;
      if (isAnswer && request === "look") {
        const isOwn = event.type === "lease.held" && event.instance === own.instance;
        const isEarlier = event.type === "lease.held" && event.managerId === own.managerId && isFirst && !wasLeading;
        mayTake = (event.type === "lease.absent" && !wasLeading) || isOwn || isEarlier;
        if (event.type === "lease.absent") read = 0;
        if (event.type === "lease.held") read = event.revision;
        if (event.type === "lease.absent" || event.type === "lease.held") isFirst = false;
      }
      if (isAnswer && request === "write" && event.type === "lease.written") {
        read = event.revision;
        isWritten = event.at < event.sentAt + shareMs;
        if (isWritten) deadline = event.sentAt + shareMs;
      }
      claim("E1", !isLeading || wasLeading || isWritten, "it leads without a write that succeeded in time");
      claim("E1", !isDue(event, "surrender") || isIn(step, "lost"), "it leads on after its deadline");
      const context = step.context as LeaseContext;
      claim(
        "E1",
        !isLeading || context.deadline === deadline,
        "its deadline counts from another moment than its write",
      );
      claim("E1", !isLeading || context.at < deadline, "it leads without time left");
      claim(
        "E1",
        (wasLeading && !isLeading) === isAsked(asked, "announceEnded"),
        "the end of its leadership is not reported",
      );
      claim("E1", (isLeading && !wasLeading) === isAsked(asked, "announceTaken"), "its leadership is not reported");
      const written = paramsOf<{ revision: number }>(asked, "write");
      claim(
        "E2",
        written.every(({ revision }) => revision === read),
        "the key is written against what was not read",
      );
      const isRenewal = isDue(event, "renewInterval");
      claim("E3", written.length === 0 || mayTake || isRenewal, "the lease of another manager is taken");
      if (written.length > 0) [request, read] = ["write", null];
      else if (isAsked(asked, "look")) request = "look";
      else if (isAsked(asked, "remove")) request = "remove";
      else if (isDue(event, "takePatience") && request === "look") request = "late";
      else if (isAnswer) request = "";
      return { request, read, deadline, isFirst };
    },
    elsewhere: { E4: "times of a link: test/unit/lease.test.ts" },
  });
});

const appended = ["append.appended", "append.conflict", "append.unknown", "append.refused"];
const ledgerAnswers = {
  catchUp: ["log.reached"],
  appendBarrier: appended,
  appendBatch: [...appended, "append.needless"],
  appendProbe: appended,
};

interface LedgerContext extends Attempt {
  readonly revision: number;
  readonly epoch: number;
}

test("a leader writes where its replica ends, one append at a time, settles each doubt, and ends with a newer epoch", async (t) => {
  const answers = ages.flatMap((attempt): readonly LedgerEvent[] => [
    ...[4, 5, 6].flatMap((epoch) =>
      [true, false].map((isOwn): LedgerEvent => ({ type: "log.reached", attempt, epoch, isOwn })),
    ),
    { type: "append.appended", attempt, sequence: 9 },
    { type: "append.needless", attempt },
    { type: "append.conflict", attempt },
    { type: "append.unknown", attempt },
    { type: "append.refused", attempt, code: "logFull", reason: "full" },
  ]);
  const events: readonly LedgerEvent[] = [
    ...answers,
    { type: "lease.taken", revision: 5 },
    { type: "lease.ended" },
    { type: "work.arrived" },
    ...[5, 6, 8].map((epoch): LedgerEvent => ({ type: "log.advanced", epoch })),
  ];
  const appends = ["appendBarrier", "appendBatch", "appendProbe"];
  await walkChart(t, {
    machine: ledgerMachine,
    inputs: [undefined],
    events,
    mayCome: ({ memory }, event) => fits(ledgerAnswers, memory.request, event),
    asSent,
    matters: ({ revision, epoch }: LedgerContext) => [revision, epoch],
    /**
     * `request`: what the log has not answered. `isBehind`: the log has a record that the replica lacks, or may have one.
     * `isDoubted`: of a batch. `last`: epoch of the log's last record when it was read before the barrier.
     */
    memory: { request: "", isBehind: true, isDoubted: false, last: 0 },
    check: (memory, step, claim) => {
      const { asked, event, from } = step;
      let { request, isBehind, isDoubted, last } = memory;
      const before = contextOf<LedgerContext>(from);
      const { epoch } = step.context as LedgerContext;
      const isAnswer = event !== null && "attempt" in event && event.attempt === before?.attempt;
      const reached = isAnswer && request === "catchUp" && event.type === "log.reached" ? event : null;
      const answered = isAnswer && appends.includes(request) && event.type.startsWith("append.") ? event.type : "";
      if (reached !== null) isBehind = false;
      if (reached !== null && isIn(from, "taking")) last = reached.epoch;
      if (answered === "append.conflict") isBehind = true;
      if (answered === "append.unknown")
        [isBehind, isDoubted] = [request !== "appendBatch", request !== "appendBarrier"];
      if (answered === "append.unknown" && request === "appendProbe") isBehind = false;

      const made = asked.filter(({ type }) => appends.includes(type));
      const isFree = answered !== "" || !appends.includes(request);
      claim("L1", made.length === 0 || (made.length === 1 && isFree), "two appends are in flight");
      claim("L1", made.length === 0 || !isBehind, "an append does not expect the end of the log");
      claim(
        "L1",
        paramsOf<{ epoch: number }>(made, "appendBatch").every((each) => each.epoch === epoch),
        "another epoch",
      );

      const begins = isIn(step, "leading") && !isIn(from, "leading");
      const isBarrier = request === "appendBarrier" && answered === "append.appended";
      const isFound = reached !== null && isIn(from, "rejoining") && reached.isOwn && reached.epoch === before?.epoch;
      claim("L2", begins === (isBarrier || isFound), "it leads without its barrier in the log, or not with it");
      claim("L2", begins === isAsked(asked, "announceLeading"), "its leadership is not reported");
      const barriers = paramsOf<{ epoch: number }>(asked, "appendBarrier");
      claim(
        "L2",
        barriers.every((each) => each.epoch === Math.max(5, last + 1)),
        "its epoch is not the newest",
      );
      const isOutbid = reached !== null && isIn(from, "rejoining") && !isFound && reached.epoch >= (before?.epoch ?? 0);
      claim("L2", !isOutbid || isIn(step, "following"), "it goes on beside a leader of the same or a newer epoch");

      const isSettled =
        (request === "appendProbe" && answered === "append.appended") ||
        (reached !== null && isIn(from, "leading.doubting.reading"));
      const isDeposed =
        isIn(from, "leading") &&
        ((event?.type === "log.advanced" && event.epoch > (before?.epoch ?? 0)) ||
          (reached !== null && reached.epoch > (before?.epoch ?? 0)));
      claim(
        "L3",
        isAsked(asked, "settleDoubt") === (isSettled && !isDeposed),
        "a doubt is settled without knowledge, or never",
      );
      if (isSettled) isDoubted = false;
      const decides = ["appendBatch", "answerBatch", "returnBatch", "failBatch", "lookForWork"];
      claim("L3", !isDoubted || !asked.some(({ type }) => decides.includes(type)), "a doubt is left unsettled");
      const ends = isIn(from, "leading") && !isIn(step, "leading");
      claim("L3", ends === isAsked(asked, "abandonWork"), "a batch is left without an answer");

      claim(
        "L4",
        !isDeposed || (isIn(step, "following") && isAsked(asked, "announceDeposed")),
        "it outlives a newer epoch",
      );
      const isUnwanted = event?.type === "lease.ended" && !isIn(from, "following");
      claim("L4", !ends || isDeposed || isUnwanted, "it stops to lead without a newer epoch");

      if (isIn(step, "following")) return { request: "", isBehind: true, isDoubted: false, last: 0 };
      if (made.length > 0) request = made[0]?.type ?? "";
      else if (isAsked(asked, "catchUp")) request = "catchUp";
      else if (isAnswer && (reached !== null || answered !== "")) request = "";
      return { request, isBehind, isDoubted, last };
    },
  });
});
