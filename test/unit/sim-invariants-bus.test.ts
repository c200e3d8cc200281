// The invariants of messages between managers can fail.
import test from "ava";
import type { BusPassage } from "../../runtime/store/bus-observer.ts";
import { BusLedger, heardMsMax } from "../../simulation/invariants/bus.ts";

const question: BusPassage = { life: "a", number: 1, subject: "muster.v1.svc.ledger.propose", asked: true };
const answer = Uint8Array.of(1);

function ledger() {
  const claims: string[] = [];
  const time = { now: 0 };
  return {
    claims,
    time,
    bus: new BusLedger(
      () => time.now,
      (claim) => claims.push(claim),
    ),
  };
}

test("a message is delivered once in each life, and its answer accepted", (t) => {
  const { bus, claims, time } = ledger();
  bus.sent(question);
  time.now = heardMsMax;
  bus.heard("b", question);
  bus.heard("c", question);
  bus.replied(question, answer);
  bus.resolved(question, answer);
  t.deepEqual(claims, []);
});

test("N1: a message that was never sent, or not there, or not in that form, is not delivered", (t) => {
  const { bus, claims } = ledger();
  bus.sent(question);
  bus.heard("b", { ...question, number: 2 });
  bus.heard("b", { ...question, subject: "muster.v1.svc.leader.ask" });
  bus.heard("b", { ...question, asked: false });
  t.is(claims.length, 3);
  for (const claim of claims) t.regex(claim, /^N1: .* was received but never sent$/);
});

test("N2, N3: nothing is delivered twice, or late", (t) => {
  const { bus, claims, time } = ledger();
  bus.sent(question);
  bus.heard("b", question);
  bus.heard("b", question);
  t.regex(claims[0] ?? "", /^N2: .* was received twice by b$/);
  time.now = heardMsMax + 1;
  bus.heard("c", question);
  t.regex(claims[1] ?? "", /^N3: /);
});

test("N4: an answer that nobody gave to that question is not accepted", (t) => {
  const { bus, claims } = ledger();
  const other = { ...question, number: 2 };
  bus.sent(question);
  bus.sent(other);
  bus.replied(other, answer);
  bus.resolved(question, answer);
  bus.replied(question, answer);
  bus.resolved(question, Uint8Array.of(2));
  t.is(claims.length, 2);
  for (const claim of claims) t.regex(claim, /^N4: /);
});
