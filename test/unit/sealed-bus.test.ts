// The bus between managers against an attacker on NATS without the cluster's keys: they read nothing, and nothing that they
// send, change or replay is delivered or ends anybody.
import test from "ava";
import fc from "fast-check";
import { DataKey, Sealed, SealedMessage } from "../../proto/gen/messages.ts";
import type { RequestOutcome } from "../../runtime/ports/index.ts";
import { seal } from "../../runtime/store/seal.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { provenMs, renewMs, SenderLife, windowNumbers } from "../../runtime/store/sender-life.ts";
import * as subjects from "../../runtime/subjects.ts";
import { attackedBus, hearing, type Wire } from "../support/attacked-bus.ts";

const bytes = (value: string): Uint8Array => new TextEncoder().encode(value);
const random = new SimRandom("sealed-bus");
const key = (id: string, generation = 1): DataKey => DataKey.create({ id, generation, key: random.bytes(32) });
const first = key("k1");
const answered = (outcome: RequestOutcome): string =>
  outcome.kind === "reply" ? new TextDecoder().decode(outcome.data) : outcome.kind;

/** Two managers that have heard from each other; `heard` has the second one's messages on `subject`. */
async function twoManagers(subject: string = subjects.taskQuestion("n1")) {
  const world = attackedBus();
  const [one, two] = [world.manager(world.keyring(first)), world.manager(world.keyring(first))];
  const heard: string[] = [];
  two.bus.subscribe(subject, hearing(heard));
  two.bus.subscribe(subjects.leaderBeat, () => undefined);
  one.bus.publish(subjects.leaderBeat, bytes("a beat"));
  await world.pass(10);
  const ask = async (what: string, timeoutMs = 1_000): Promise<string> => {
    const outcome = one.bus.request(subject, bytes(what), { timeoutMs });
    await world.pass(timeoutMs);
    return answered(await outcome);
  };
  return { ...world, subject, one, two, heard, ask };
}

for (const { kind, build } of subjects.busSubjects.filter((each) => each.kind !== "life.prove")) {
  const subject = build("n1");

  test(`${kind}: passes between managers, is unreadable, and is not accepted from a stranger`, async (t) => {
    const { ask, heard, inject, one, pass, two, wire } = await twoManagers(subject);
    one.bus.publish(subject, bytes("canary: news"));
    t.is(await ask("canary: question"), "to canary: question");
    t.deepEqual(heard, ["canary: news", "canary: question"]);
    t.false(wire.some(({ data }) => Buffer.from(data).includes("canary")));

    const foreign = Sealed.create({
      ...seal(key("k9"), bytes("canary"), random, { purpose: "message", place: subject }),
    });
    const stranger = SealedMessage.create({ life: "x", number: 1, asked: true, ...foreign });
    const lying = SealedMessage.patch(stranger, { keyId: "k1" });
    const garbage: readonly [Uint8Array, string][] = [
      [new Uint8Array(), "unsealed"],
      [Uint8Array.of(1, 2, 3), "unsealed"],
      [bytes("a legacy message"), "unsealed"],
      [SealedMessage.encode(SealedMessage.create()), "unsealed"],
      [SealedMessage.encode(SealedMessage.patch(stranger, { life: "a.b" })), "unsealed"],
      [SealedMessage.encode(SealedMessage.patch(stranger, { number: 0 })), "unsealed"],
      [SealedMessage.encode(stranger), "unknown key"],
      [SealedMessage.encode(lying), "forged"],
      [SealedMessage.encode(SealedMessage.patch(stranger, { format: 2 })), "newer format"],
      [new Uint8Array(10_000_000), "too large"],
    ];
    for (const [data, reason] of garbage) {
      for (const asked of [false, true]) {
        const before = two.refused(kind, reason);
        inject({ subject, data, asked });
        await pass(10);
        t.is(two.refused(kind, reason), before + 1, `${reason}: ${data.length} bytes`);
      }
    }
    t.is(heard.length, 2);
  });

  test(`${kind}: truncated, changed or forged messages are dropped`, async (t) => {
    const { ask, heard, inject, last, pass } = await twoManagers(subject);
    await ask("one");
    const sent = last(subject);
    const changed: Uint8Array[] = [];
    for (let length = 0; length < sent.data.length; length += 1) changed.push(sent.data.subarray(0, length));
    for (let at = 0; at < sent.data.length; at += 1) {
      const copy = Uint8Array.from(sent.data);
      copy[at] = (copy[at] as number) ^ 1;
      changed.push(copy);
    }
    changed.push(...fc.sample(fc.uint8Array({ maxLength: 300 }), { numRuns: 200, seed: 7 }));
    for (const data of changed) inject({ ...sent, data });
    await pass(5_000);
    t.deepEqual(heard, ["one"]);
  });
}

test("SB2: a replayed question or notification is not delivered again", async (t) => {
  const { ask, heard, inject, last, one, pass, subject, two } = await twoManagers();
  t.is(await ask("run this"), "to run this");
  const question = last(subject);
  one.bus.publish(subject, bytes("news"));
  await pass(10);
  const news = last(subject);
  for (let again = 0; again < 3; again += 1) for (const each of [question, news]) inject(each);
  // A question disguised as a notification, and the other way round.
  inject({ ...question, asked: false });
  await pass(10);
  t.deepEqual(heard, ["run this", "news"]);
  t.is(two.refused("task.question", "replayed"), 7);
  t.is(two.warnings(), 1, "one line of the log for all of them");
});

test("a message sealed for one subject is not delivered on another", async (t) => {
  const { heard, inject, last, one, pass, two } = await twoManagers();
  two.bus.subscribe(subjects.taskQuestion("n2"), hearing(heard));
  void one.bus.request(subjects.taskQuestion("n3"), bytes("for n3"), { timeoutMs: 10 });
  await pass(5);
  inject({ ...last(subjects.taskQuestion("n3")), subject: subjects.taskQuestion("n1") });
  inject({ ...last(subjects.taskQuestion("n3")), subject: subjects.taskQuestion("n2") });
  await pass(10);
  t.deepEqual(heard, []);
  t.is(two.refused("task.question", "forged"), 2);
});

test("SB3: a restarted receiver accepts nothing that was recorded before, whatever the clocks say", async (t) => {
  const { ask, inject, keyring, last, manager, one, pass, subject, two } = await twoManagers();
  await ask("run this");
  const question = last(subject);
  one.bus.publish(subject, bytes("news"));
  const news = last(subject);
  await pass(10);
  two.bus.stop();

  const heard: string[] = [];
  const reborn = manager(keyring(first));
  reborn.bus.subscribe(subject, hearing(heard));
  inject(question);
  inject(news);
  await pass(3_000);
  t.deepEqual(heard, []);
  t.is(reborn.refused("task.question", "replayed"), 1);
});

test("SB3: an overloaded sender that proves itself late is still heard", async (t) => {
  const { attack, keyring, manager, pass } = attackedBus();
  const [slow, other] = [manager(keyring(first)), manager(keyring(first))];
  const heard: string[] = [];
  other.bus.subscribe(subjects.leaderBeat, hearing(heard));
  attack.delayMs = () => 1_900;
  for (let beat = 1; beat <= 20; beat += 1) {
    slow.bus.publish(subjects.leaderBeat, bytes(`beat ${beat}`));
    await pass(1_000);
  }
  t.true(heard.length >= 15, heard.join());
  t.is(heard.at(-1), "beat 20");

  attack.delayMs = () => 2_200;
  const tooSlow = manager(keyring(first));
  tooSlow.bus.publish(subjects.leaderBeat, bytes("a beat"));
  await pass(5_000);
  t.is(other.refused("leader.beat", "unproven"), 1);
});

test("SB3: nothing is heard from a sender that has ended", async (t) => {
  const { ask, inject, keyring, last, manager, one, pass, subject } = await twoManagers();
  await ask("run this");
  const question = last(subject);
  one.bus.stop();
  const heard: string[] = [];
  const late = manager(keyring(first));
  late.bus.subscribe(subject, hearing(heard));
  inject(question);
  await pass(3_000);
  t.deepEqual(heard, []);
  t.is(late.refused("task.question", "unproven"), 1);
});

test("SB3: a question that its receiver never got is not carried out later by another one that knows the sender", async (t) => {
  const { ask, inject, keyring, last, manager, one, pass, subject } = await twoManagers();
  const heard: string[] = [];
  const other = manager(keyring(first));
  other.bus.subscribe(subjects.leaderBeat, () => undefined);
  one.bus.publish(subjects.leaderBeat, bytes("a beat"));
  await pass(10);
  await ask("for the second manager alone");
  one.bus.publish(subjects.leaderBeat, bytes("another beat"));
  await pass(10);
  other.bus.subscribe(subject, hearing(heard));
  inject(last(subject));
  await pass(3_000);
  t.deepEqual(heard, []);
  t.is(other.refused("task.question", "replayed"), 1);

  // The last message of a sender before it died.
  await ask("its last words");
  one.bus.stop();
  await pass(provenMs);
  inject(last(subject));
  await pass(3_000);
  t.deepEqual(heard, ["its last words"], "delivered when it was asked");
});

test("a question to a receiver that has just started is held until its sender has proven itself, and answered", async (t) => {
  const world = attackedBus();
  const [one, two] = [world.manager(world.keyring(first)), world.manager(world.keyring(first))];
  const heard: string[] = [];
  two.bus.subscribe(subjects.ledgerPropose, hearing(heard));
  const outcomes = ["a", "b", "c"].map((what) =>
    one.bus.request(subjects.ledgerPropose, bytes(what), { timeoutMs: 1_000 }),
  );
  await world.pass(1_000);
  t.deepEqual((await Promise.all(outcomes)).map(answered), ["to a", "to b", "to c"]);
  t.deepEqual(heard, ["a", "b", "c"]);
  t.is(world.wire.filter(({ subject }) => subject.endsWith(".prove")).length, 1, "asked once for all of them");
});

test("a lost proof is requested again", async (t) => {
  const world = attackedBus();
  const [one, two] = [world.manager(world.keyring(first)), world.manager(world.keyring(first))];
  const heard: string[] = [];
  two.bus.subscribe(subjects.ledgerPropose, hearing(heard));
  let lost = 0;
  world.attack.loses = (subject) => subject.endsWith(".prove") && (lost += 1) === 1;
  const outcome = one.bus.request(subjects.ledgerPropose, bytes("a"), { timeoutMs: 2_000 });
  await world.pass(2_000);
  t.is(answered(await outcome), "to a");
});

test("reordered messages are delivered: questions that are still awaited, each once", async (t) => {
  const world = attackedBus();
  const [one, two] = [world.manager(world.keyring(first)), world.manager(world.keyring(first))];
  const heard: string[] = [];
  two.bus.subscribe(subjects.leaderBeat, () => undefined);
  one.bus.publish(subjects.leaderBeat, bytes("a beat"));
  await world.pass(10);
  world.attack.loses = (subject) => subject === subjects.ledgerPropose;
  void one.bus.request(subjects.ledgerPropose, bytes("slow"), { timeoutMs: 2_000 });
  const slow = world.last(subjects.ledgerPropose);
  world.attack.loses = () => false;
  two.bus.subscribe(subjects.ledgerPropose, hearing(heard));
  void one.bus.request(subjects.ledgerPropose, bytes("fast"), { timeoutMs: 2_000 });
  await world.pass(10);
  world.inject(slow);
  world.inject(slow);
  await world.pass(100);
  t.deepEqual(heard, ["fast", "slow"]);
});

test("SB4: an answer fits only its own question, and no forged one", async (t) => {
  const { ask, attack, one, pass, subject } = await twoManagers();
  const answers: Uint8Array[] = [];
  attack.answer = (_, data) => (answers.push(data), data);
  t.is(await ask("first"), "to first");
  const recorded = answers.at(-1) as Uint8Array;
  attack.answer = () => recorded;
  t.is(await ask("second"), "timeout", "the answer to another question");
  for (const data of [new Uint8Array(), Uint8Array.of(1, 2, 3), new Uint8Array(9_000_000)]) {
    attack.answer = () => data;
    t.is(await ask("third"), "timeout");
  }
  t.true(one.refused("task.question", "forged") >= 1);
  // Also to another subject.
  attack.answer = (_, data) => data;
  const asked = one.bus.request(subject, bytes("fourth"), { timeoutMs: 1_000 });
  await pass(1_000);
  t.is(answered(await asked), "to fourth");
});

test("while one data key replaces another, both are accepted; then the older one no longer is", async (t) => {
  const world = attackedBus();
  const second = key("k2", 2);
  const [oneKeys, twoKeys] = [world.keyring(first), world.keyring(first, second)];
  const [one, two] = [world.manager(oneKeys), world.manager(twoKeys)];
  const heard: string[] = [];
  two.bus.subscribe(subjects.ledgerPropose, hearing(heard));
  const ask = async (what: string): Promise<string> => {
    const outcome = one.bus.request(subjects.ledgerPropose, bytes(what), { timeoutMs: 2_500 });
    await world.pass(2_500);
    return answered(await outcome);
  };
  twoKeys.met(7, "k1");
  t.is(await ask("before"), "to before");
  // The second manager has seen the first record under the new key, which the first one has not.
  twoKeys.met(8, "k2");
  t.is(await ask("sealed under the older key"), "timeout", "its answer is under a key that is missing there");
  t.deepEqual(heard, ["before", "sealed under the older key"]);
  oneKeys.take([second], 0);
  oneKeys.met(8, "k2");
  t.is(await ask("after"), "to after");

  const outsider = world.manager(world.keyring(first));
  await world.pass(60_000);
  outsider.bus.publish(subjects.ledgerPropose, bytes("from a former manager"));
  await world.pass(3_000);
  t.false(heard.includes("from a former manager"));
  t.is(two.refused("ledger.propose", "old key"), 1);
  t.is(await ask("much later"), "to much later");
});

test("without a key nothing is sent and nothing is accepted", async (t) => {
  const world = attackedBus();
  const [one, two] = [world.manager(world.keyring()), world.manager(world.keyring(first))];
  const heard: string[] = [];
  one.bus.subscribe(subjects.ledgerPropose, hearing(heard));
  one.bus.publish(subjects.leaderBeat, bytes("a beat"));
  t.is((await one.bus.request(subjects.ledgerPropose, bytes("x"), { timeoutMs: 100 })).kind, "no-responders");
  t.deepEqual(world.wire, []);
  two.bus.publish(subjects.ledgerPropose, bytes("x"));
  await world.pass(10);
  t.deepEqual(heard, []);
});

test("many old messages of dead lives cause a bounded number of questions, and the living are heard", async (t) => {
  const { ask, heard, inject, keyring, manager, one, pass, subject, wire } = await twoManagers();
  const recorded: Wire[] = [];
  for (let life = 0; life < 400; life += 1) {
    const dead = manager(keyring(first));
    dead.bus.publish(subject, bytes("old"));
    recorded.push(wire.at(-1) as Wire);
    dead.bus.stop();
  }
  await pass(5_000);
  heard.splice(0);
  for (const each of recorded) inject(each);
  one.bus.publish(subjects.leaderBeat, bytes("a beat"));
  await pass(2_000);
  t.deepEqual(heard, []);
  t.is(await ask("living", 3_000), "to living");
});

test("every handler of a subject gets a message once", async (t) => {
  const { heard, one, pass, subject, two } = await twoManagers();
  const also: string[] = [];
  const second = two.bus.subscribe(subject, hearing(also));
  one.bus.publish(subject, bytes("a"));
  await pass(10);
  second.unsubscribe();
  one.bus.publish(subject, bytes("b"));
  await pass(10);
  t.deepEqual([heard, also], [["a", "b"], ["a"]]);
});

test("B2: a subject that is not in the table cannot be subscribed to", (t) => {
  const world = attackedBus();
  const { bus } = world.manager(world.keyring(first));
  t.throws(() => bus.subscribe("muster.v1.svc.something.new", () => undefined), { message: /B2/ });
});

test("SB2: in any sequence of messages and proofs no number is accepted twice", (t) => {
  const step = fc.oneof(
    fc.record({ number: fc.integer({ min: 1, max: 3 * windowNumbers }), asked: fc.boolean(), settled: fc.boolean() }),
    fc.record({
      proven: fc.integer({ min: 0, max: 3 * windowNumbers }),
      open: fc.array(fc.integer({ min: 1, max: 9_000 })),
    }),
  );
  t.notThrows(() =>
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const sender = new SenderLife();
        const taken = new Set<number>();
        for (const each of steps) {
          if ("proven" in each) sender.prove(each.proven, each.open, 0);
          else if (sender.take(each.number, each.asked, each.settled) === "fresh") {
            if (taken.has(each.number)) return false;
            taken.add(each.number);
          }
        }
        return true;
      }),
    ),
  );
});

test("SB3: a proof is valid for ten seconds, is renewed after five, and not by a clock that went backwards", (t) => {
  const sender = new SenderLife();
  t.false(sender.isProven(0));
  sender.prove(7, [], 1_000);
  t.true(sender.isProven(1_000 + provenMs - 1));
  t.false(sender.isProven(1_000 + provenMs));
  t.false(sender.isProven(999));
  t.false(sender.isAgeing(1_000 + renewMs - 1));
  t.true(sender.isAgeing(1_000 + renewMs));
});
