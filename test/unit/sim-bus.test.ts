import test from "ava";
import { Simulation } from "../../runtime/sim/simulation.ts";
import type { LogReader } from "../../runtime/ports/index.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const text = (data: Uint8Array) => new TextDecoder().decode(data);

function world(seed: number) {
  const simulation = new Simulation({ seed });
  return { simulation, one: simulation.ports("one"), two: simulation.ports("two"), clock: simulation.clock };
}

function recorder() {
  const seen: string[] = [];
  const reader: LogReader = {
    onRecord: (sequence, data) => seen.push(`${sequence}:${text(data)}`),
    onCaughtUp: (sequence) => seen.push(`caught up ${sequence}`),
    onGap: (first) => seen.push(`gap ${first}`),
  };
  return { seen, reader };
}

test("a published message reaches each subscriber, and one member of a queue group", async (t) => {
  const { one, two, clock } = world(1);
  const seen: string[] = [];
  one.bus.subscribe("a.*", (message) => seen.push(`one ${message.subject}`));
  one.bus.subscribe("a.>", () => seen.push("group"), "g");
  two.bus.subscribe("a.>", () => seen.push("group"), "g");
  await clock.run({ untilMs: clock.now() + 100 });
  two.bus.publish("a.b", bytes("x"));
  two.bus.publish("other", bytes("x"));
  await clock.run({ untilMs: clock.now() + 100 });
  t.deepEqual(seen.sort(), ["group", "one a.b"]);
});

test("a request is answered, finds nobody, or times out", async (t) => {
  const { one, two, clock } = world(2);
  one.bus.subscribe("echo", (message) => message.respond(message.data));
  one.bus.subscribe("silent", () => {});
  await clock.run({ untilMs: clock.now() + 100 });
  const asked = Promise.all(
    ["echo", "nobody", "silent"].map((subject) => two.bus.request(subject, bytes("hi"), { timeoutMs: 1_000 })),
  );
  await clock.run({ untilMs: clock.now() + 2_000 });
  const [echo, nobody, silent] = await asked;
  t.deepEqual(echo, { kind: "reply", data: bytes("hi") });
  t.is(nobody?.kind, "no-responders");
  t.is(silent?.kind, "timeout");
});

test("a request finds who subscribes at that moment", async (t) => {
  const { simulation, one, two, clock } = world(9);
  const kinds: string[] = [];
  const ask = async (): Promise<void> => {
    await clock.run({ untilMs: clock.now() + 100 });
    const asked = two.bus.request("echo", bytes("hi"), { timeoutMs: 1_000 });
    await clock.run({ untilMs: clock.now() + 1_500 });
    kinds.push((await asked).kind);
  };
  await ask();
  const echo = one.bus.subscribe("echo", (message) => message.respond(message.data));
  await ask();
  echo.unsubscribe();
  await ask();
  const other = simulation.process("other", ({ bus }) => {
    bus.subscribe("*", (message) => message.respond(message.data));
  });
  other.start();
  await ask();
  other.crash();
  await ask();
  t.deepEqual(kinds, ["no-responders", "reply", "no-responders", "reply", "no-responders"]);
});

test("a cut link is noticed after its keepalive and comes back with its subscriptions", async (t) => {
  const { simulation, one, two, clock } = world(3);
  const changes: boolean[] = [];
  const seen: string[] = [];
  one.bus.onLink((up) => changes.push(up));
  one.bus.subscribe("a", (message) => seen.push(text(message.data)));
  await clock.run({ untilMs: clock.now() + 100 });
  simulation.network.cut("nats", "one");
  await clock.run({ untilMs: clock.now() + 1_500 });
  t.true(one.bus.isUp());
  await clock.run({ untilMs: clock.now() + 3_000 });
  t.false(one.bus.isUp());
  simulation.network.healAll();
  await clock.run({ untilMs: clock.now() + 5_000 });
  t.deepEqual(changes, [false, true]);
  two.bus.publish("a", bytes("after"));
  await clock.run({ untilMs: clock.now() + 100 });
  t.deepEqual(seen, ["after"]);
});

test("the log accepts one writer for each sequence and delivers every record to its readers once", async (t) => {
  const { one, two, clock } = world(4);
  const { seen, reader } = recorder();
  const first = one.log.append(bytes("a"), 0);
  const second = two.log.append(bytes("b"), 0);
  await clock.run({ untilMs: clock.now() + 100 });
  t.deepEqual([(await first).kind, (await second).kind].sort(), ["appended", "conflict"]);
  two.log.read(1, reader);
  await clock.run({ untilMs: clock.now() + 100 });
  void one.log.append(bytes("c"), 1);
  await clock.run({ untilMs: clock.now() + 100 });
  t.is(seen.length, 3);
  t.deepEqual(seen.slice(1), ["caught up 1", "2:c"]);
});

test("an append whose answer is cut off is unknown and yet happened", async (t) => {
  const { simulation, one, two, clock } = world(5);
  t.true(one.bus.isUp());
  simulation.network.cut("nats", "one");
  const append = one.log.append(bytes("a"), 0);
  await clock.run({ untilMs: clock.now() + 10_000 });
  t.is((await append).kind, "unknown");
  const bounds = two.log.bounds(1_000);
  await clock.run({ untilMs: clock.now() + 1_000 });
  t.deepEqual(await bounds, { first: 1, last: 1 });
});

test("a reader misses nothing over stalls, cuts and crashes of the server", async (t) => {
  const { simulation, one, two, clock } = world(6);
  const { seen, reader } = recorder();
  simulation.network.faults.stall = 0.5;
  two.log.read(1, reader);
  for (let sequence = 0; sequence < 30; sequence += 1) {
    if (sequence === 10) simulation.network.cut("nats", "two");
    if (sequence === 15) simulation.network.healAll();
    if (sequence === 20) {
      simulation.nats.crash({ loseTail: false });
      simulation.nats.start();
      await clock.run({ untilMs: clock.now() + 3_000 });
    }
    const append = one.log.append(bytes("r"), sequence);
    await clock.run({ untilMs: clock.now() + 700 });
    t.is((await append).kind, "appended");
  }
  await clock.run({ untilMs: clock.now() + 10_000 });
  t.deepEqual(
    seen.filter((line) => line.endsWith(":r")),
    Array.from({ length: 30 }, (_, at) => `${at + 1}:r`),
  );
});

test("a reader that requests purged records gets the first retained one", async (t) => {
  const { one, clock } = world(7);
  for (let sequence = 0; sequence < 5; sequence += 1) {
    void one.log.append(bytes("r"), sequence);
    await clock.run({ untilMs: clock.now() + 100 });
  }
  void one.log.purgeBefore(4);
  const { seen, reader } = recorder();
  one.log.read(1, reader);
  await clock.run({ untilMs: clock.now() + 100 });
  t.deepEqual(seen, ["gap 4"]);
});

test("a stored record holds no larger buffer, and the log's size is that of its records", async (t) => {
  const { simulation, one, clock } = world(8);
  // Its parts are Buffers, whose `slice` is a view, as that of sealed records is.
  const shared = Buffer.alloc(65_536);
  const sizes: (number | null)[] = [];
  const measured = async (work: Promise<unknown>): Promise<void> => {
    const size = work.then(async () => sizes.push(await one.log.bytes(1_000)));
    await clock.run({ untilMs: clock.now() + 500 });
    await size;
  };
  await measured(one.log.append(shared.subarray(100, 400), 0));
  await measured(one.log.append(shared.subarray(400, 420), 1));
  simulation.nats.sync();
  await measured(one.log.append(shared.subarray(0, 7), 2));
  t.is(simulation.nats.record(1)?.buffer.byteLength, 300);
  t.is(simulation.nats.record(2)?.buffer.byteLength, 20);
  await measured(one.log.purgeBefore(2));
  const disk = simulation.nats.copyDisk();
  await measured(one.log.append(new Uint8Array(1_000), 3));
  t.deepEqual(sizes, [300, 320, 327, 27, 1_027]);
  simulation.nats.crashWithOlderDisk(disk);
  t.is(simulation.nats.bytes, 27);
  simulation.nats.start();
  for (let last = simulation.nats.last; last < 20; last += 1) simulation.nats.append(new Uint8Array(last), last);
  simulation.nats.crash({ loseTail: true });
  t.true(simulation.nats.last < 20);
  let left = 0;
  for (let at = 2; at <= simulation.nats.last; at += 1) left += simulation.nats.record(at)?.length ?? 0;
  t.is(simulation.nats.bytes, left);
});

test("a lease expires after its time and is guarded by its revision", async (t) => {
  const { one, two, clock } = world(8);
  const mine = one.leases("leases", 5_000);
  const theirs = two.leases("leases", 5_000);
  const created = mine.create("leader", bytes("one"));
  await clock.run({ untilMs: clock.now() + 100 });
  const outcome = await created;
  t.is(outcome.kind, "stored");
  const refused = theirs.create("leader", bytes("two"));
  await clock.run({ untilMs: clock.now() + 100 });
  t.is((await refused).kind, "conflict");
  await clock.run({ untilMs: clock.now() + 5_000 });
  const stolen = theirs.create("leader", bytes("two"));
  await clock.run({ untilMs: clock.now() + 100 });
  t.is((await stolen).kind, "stored");
  const late = mine.update("leader", bytes("one"), outcome.kind === "stored" ? outcome.revision : 0);
  await clock.run({ untilMs: clock.now() + 100 });
  t.is((await late).kind, "conflict");
});

test("nothing of a crashed process runs, and its next life creates other ids", async (t) => {
  const simulation = new Simulation({ seed: 9 });
  const seen: string[] = [];
  const drawn: number[] = [];
  const process = simulation.process("p", (ports) => {
    drawn.push(ports.random.next());
    ports.bus.subscribe("a", () => seen.push(`life ${process.lives}`));
    ports.clock.setTimeout(() => seen.push("timer"), 500);
  });
  process.start();
  process.restart();
  await simulation.clock.run({ untilMs: simulation.clock.now() + 100 });
  simulation.ports("other").bus.publish("a", bytes("x"));
  await simulation.clock.run({ untilMs: simulation.clock.now() + 1_000 });
  t.deepEqual(seen, ["life 2", "timer"]);
  t.not(drawn[0], drawn[1]);
});
