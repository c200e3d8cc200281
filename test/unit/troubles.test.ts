// Named causes: a manager's explanation when it makes no progress.
import test from "ava";
import { createTroubles } from "../../actors/manager/troubles.ts";
import { explainTroubles } from "../../machines/explain/troubles.ts";
import { leftOf } from "../../machines/elapsed.ts";
import { busTroubles, type BusSight } from "../../machines/manager/bus-troubles.ts";
import { jumpBetween, jumpSentence } from "../../machines/manager/clock-jump.ts";
import { flapping, isKept, recentChanges, slowLink } from "../../machines/manager/leader-troubles.ts";
import { causeOf, cleared, kindName, raised } from "../../machines/manager/troubles.ts";
import { Trouble_Kind } from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import { Simulation } from "../../runtime/sim/simulation.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { startProposer } from "../../actors/ledger/proposer.ts";
import { Host } from "../../runtime/host.ts";
import { create, proposal, service } from "./store-kit.ts";

const leaderless = { kind: Trouble_Kind.NO_LEADER, sentence: "no manager leads", blocking: true };
const noMajority = {
  kind: Trouble_Kind.NO_MAJORITY,
  sentence: "NATS has no majority: 1 of 3 servers answers",
  blocking: true,
};
const jumped = { kind: Trouble_Kind.CLOCK_JUMPED, sentence: "the clock was set forward by 3,600 s", blocking: false };

test("the cause is the blocking trouble that precedes its consequences, whichever was reported first (H2)", (t) => {
  const at = timestampOf(1_000);
  let troubles = raised([], { ...leaderless, at });
  t.is(causeOf(troubles), "no manager leads");
  troubles = raised(troubles, { ...noMajority, at });
  t.is(causeOf(troubles), noMajority.sentence);
  troubles = cleared(troubles, Trouble_Kind.NO_MAJORITY);
  t.is(causeOf(troubles), "no manager leads");
});

test("a missing key precedes its consequences (H2)", (t) => {
  const at = timestampOf(1_000);
  const lacking = { kind: Trouble_Kind.KEY_LACKING, sentence: "a key is lacking", blocking: true };
  t.is(causeOf(raised(raised([], { ...leaderless, at }), { ...lacking, at })), lacking.sentence);
});

test("a warning is reported but is not a cause, and nothing waits for its end", (t) => {
  const troubles = raised([], { ...jumped, at: timestampOf(1_000) });
  t.is(causeOf(troubles), null);
  t.deepEqual(explainTroubles(troubles), []);
  const both = raised(troubles, { ...leaderless, at: timestampOf(2_000) });
  t.deepEqual(
    explainTroubles(both).map(({ since, waitingFor }) => ({ since, waitingFor })),
    [{ since: timestampOf(2_000), waitingFor: "this manager to write again: no manager leads" }],
  );
});

test("a trouble that is reported again keeps its start time and gets the newest sentence (H1)", (t) => {
  const first = raised([], { ...noMajority, at: timestampOf(1_000) });
  const second = raised(first, {
    ...noMajority,
    sentence: "NATS has no majority: 0 of 3 servers answer",
    at: timestampOf(9_000),
  });
  t.is(second.length, 1);
  t.is(second[0]?.sentence, "NATS has no majority: 0 of 3 servers answer");
  t.deepEqual(second[0]?.since, timestampOf(1_000));
});

test("the registry shows each trouble as a metric while it lasts", (t) => {
  const { clock, telemetry } = new Simulation({ seed: 1 }).ports("m1");
  const troubles = createTroubles({ clock, telemetry });
  t.is(troubles.cause(), null);
  troubles.raise(noMajority);
  troubles.raise(noMajority);
  t.is(troubles.cause(), noMajority.sentence);
  t.is(kindName(Trouble_Kind.NO_MAJORITY), "no-majority");
  t.is(telemetry.reading("muster_trouble", { kind: "no-majority" }), 1);
  troubles.clear(Trouble_Kind.NO_MAJORITY);
  troubles.clear(Trouble_Kind.DISK_FULL);
  t.is(troubles.cause(), null);
  t.is(telemetry.reading("muster_trouble", { kind: "no-majority" }), 0);
});

test("a write that nobody accepts names the cause", async (t) => {
  const simulation = new Simulation({ seed: 1 });
  const { bus, clock, random, telemetry } = simulation.ports("m1");
  const troubles = createTroubles({ clock, telemetry });
  const host = new Host({ clock, telemetry, onCrash: () => {} });
  const ledger = {
    isLeading: () => false,
    epoch: () => 0,
    withdraw: () => {},
    propose: () => Promise.reject(new Error("does not lead")),
  };
  const proposer = startProposer(
    { managerId: "m1", clock, random, bus, telemetry, host, store: new Replica() },
    { ledger, cause: () => troubles.cause() },
  );
  const write = async () => {
    let message = "";
    void proposer.propose(proposal([create({ service: service("s1", "web") })])).then((outcome) => {
      message = outcome.kind === "unavailable" ? outcome.message : outcome.kind;
    });
    await simulation.clock.run({ until: () => message !== "", untilMs: simulation.clock.now() + 120_000 });
    return message;
  };
  t.is(await write(), "no manager leads");
  troubles.raise(noMajority);
  t.is(await write(), noMajority.sentence);
});

test("a clock step is noticed in both directions, but not a drift or a stopped process", (t) => {
  const before = { wall: 1_000_000_000, monotonic: 50_000 };
  t.is(jumpBetween(before, { wall: 1_000_001_000 + 3_600_000, monotonic: 51_000 }), 3_600_000);
  t.is(jumpBetween(before, { wall: 1_000_001_000 - 3_600_000, monotonic: 51_000 }), -3_600_000);
  t.is(jumpBetween(before, { wall: 1_000_001_100, monotonic: 51_000 }), 0);
  t.is(
    jumpBetween(before, { wall: 1_000_060_000, monotonic: 110_000 }),
    0,
    "stopped for a minute: both clocks advanced",
  );
  t.is(jumpSentence(-3_600_000, 0), "this machine's clock was set back by 3600 s, to 1970-01-01T00:00:00Z");
});

test("the rest of a wait is never more than the whole, and zero if its time lies further ahead than clocks differ", (t) => {
  t.is(leftOf(1_000_000, 5_000, 1_002_000), 3_000);
  t.is(leftOf(1_000_000, 5_000, 1_009_000), 0);
  t.is(leftOf(1_030_000, 5_000, 1_000_000), 5_000);
  t.is(leftOf(1_000_000 + 12 * 3_600_000, 5_000, 1_000_000), 0);
});

test("without a leader for longer than a change takes, or with a minority of the servers, there is a cause (H3, H4)", (t) => {
  const fine = {
    isUp: true,
    named: 3,
    answering: 3,
    logAnswers: true,
    leasesAnswer: true,
    leaderlessMs: 0,
    leaderlessSince: "",
  };
  const said = (sight: Partial<BusSight>) => busTroubles({ ...fine, ...sight }).map(({ sentence }) => sentence);
  t.deepEqual(said({}), []);
  t.deepEqual(said({ leaderlessMs: 5_000, leaderlessSince: "10:00" }), []);
  t.deepEqual(said({ leaderlessMs: 7_000, leaderlessSince: "10:00" }), ["no manager leads since 10:00"]);
  t.deepEqual(said({ answering: 2 }), []);
  t.deepEqual(said({ answering: 1 }), ["NATS has no majority: 1 of 3 servers answers"]);
  t.deepEqual(said({ answering: 0, isUp: false }), ["NATS has no majority: 0 of 3 servers answer"]);
  t.deepEqual(said({ logAnswers: false }), ["the log has no leader in NATS, though 3 of 3 servers answer"]);
  t.deepEqual(said({ leasesAnswer: false }), [
    "the bucket of leases has no leader in NATS, though 3 of 3 servers answer",
  ]);
  t.deepEqual(said({ logAnswers: false, leasesAnswer: false, named: 0 }), [
    "the log and the bucket of leases have no leader in NATS",
  ]);
  t.deepEqual(said({ logAnswers: false, named: 1, answering: 1 }), [
    "the log does not answer, though 1 of 1 server answers",
  ]);
  t.deepEqual(said({ named: 1, answering: 0, isUp: false }), ["the link to NATS is down, no server answers"]);
});

test("a link on which a write of the lease takes a sixth of it causes a warning, and over a third it blocks", (t) => {
  t.is(slowLink(400, 3_000), null);
  t.like(slowLink(700, 3_000), { blocking: false });
  const blocked = slowLink(1_300, 3_000);
  t.true(blocked?.blocking);
  t.regex(
    blocked?.sentence ?? "",
    /takes 1300 ms for a write of the lease, which lasts 3000 ms.*--lease-ttl 6s or more/,
  );
  t.is(slowLink(1_300, 9_000), null, "the recommended change helps");
});

test("another life keeps the lease once it has renewed it, not when it has just taken it", (t) => {
  t.false(isKept(null, { instance: "a", revision: 7 }));
  t.false(isKept({ instance: "a", revision: 7 }, { instance: "a", revision: 7 }));
  t.false(isKept({ instance: "a", revision: 7 }, { instance: "b", revision: 8 }));
  t.false(isKept({ instance: "a", revision: 7 }, null));
  t.true(isKept({ instance: "a", revision: 7 }, { instance: "a", revision: 8 }));
});

test("repeated changes of leadership cause a warning for as long as they last", (t) => {
  t.is(flapping(recentChanges([1_000, 30_000, 60_000], 61_000)), null);
  t.regex(flapping(recentChanges([1_000, 30_000, 60_000, 90_000], 91_000)) ?? "", /changed hands 4 times within 120 s/);
  t.is(flapping(recentChanges([1_000, 30_000, 60_000, 90_000], 300_000)), null);
});
