import { randomBytes } from "node:crypto";
import test from "ava";
import { connectNats } from "../../runtime/nats/connection.ts";
import { NatsProblem } from "../../runtime/nats/errors.ts";
import type { BusMessage } from "../../runtime/ports/index.ts";
import { natsBinaries, natsServer, signal, testTelemetry, until } from "../fixtures/nats-server.ts";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const text = (data: Uint8Array): string => new TextDecoder().decode(data);

for (const binary of natsBinaries) {
  test(`messages, headers and answers arrive, and a queue group shares its messages (${binary})`, async (t) => {
    const { connect } = await natsServer(t, binary);
    const [one, other] = [await connect(), await connect()];
    const got: BusMessage[] = [];
    const shared = [0, 0];
    one.bus.subscribe("muster.test.topic", (message) => got.push(message));
    one.bus.subscribe("muster.test.echo", (message) =>
      message.respond(bytes(`${text(message.data)} ${message.headers["Muster-Sender"]}`)),
    );
    [one, other].forEach((link, at) =>
      link.bus.subscribe("muster.test.shared", () => (shared[at] = (shared[at] ?? 0) + 1), "group"),
    );
    // An answered request on each link proves that the server has registered earlier subscriptions.
    for (const link of [one, other]) {
      const outcome = await link.bus.request("muster.test.echo", bytes("hello"), {
        timeoutMs: 30_000,
        headers: { "Muster-Sender": "m1" },
      });
      t.deepEqual(outcome.kind === "reply" ? text(outcome.data) : outcome, "hello m1");
    }
    other.bus.publish("muster.test.topic", bytes("news"), { traceparent: "00-1" });
    for (let count = 0; count < 100; count++) other.bus.publish("muster.test.shared", bytes(""));
    await until("all delivered", () => got.length === 1 && (shared[0] ?? 0) + (shared[1] ?? 0) === 100);
    t.deepEqual(
      [got[0]?.subject, text(got[0]?.data ?? bytes("")), got[0]?.headers],
      ["muster.test.topic", "news", { traceparent: "00-1" }],
    );
  });

  test(`a request without responders fails at once as not happened, and an unanswered one times out (${binary})`, async (t) => {
    const { connect } = await natsServer(t, binary);
    const link = await connect();
    t.deepEqual(await link.bus.request("muster.test.nobody", bytes(""), { timeoutMs: 60_000 }), {
      kind: "no-responders",
    });
    const silent = link.bus.subscribe("muster.test.silent", () => undefined);
    t.deepEqual(await link.bus.request("muster.test.silent", bytes(""), { timeoutMs: 50 }), { kind: "timeout" });
    silent.unsubscribe();
    t.deepEqual(await link.bus.request("muster.test.silent", bytes(""), { timeoutMs: 5_000 }), {
      kind: "no-responders",
    });
    const pending = link.bus.request("muster.test.silent2", bytes(""), { timeoutMs: 5_000 });
    link.close();
    t.deepEqual(await pending, { kind: "closed" });
    t.false(link.bus.isUp());
  });

  test(`a frozen nats-server is detected, nothing hangs meanwhile, and the link recovers (${binary})`, async (t) => {
    const { connect, server } = await natsServer(t, binary);
    const link = await connect();
    const changes: boolean[] = [];
    link.bus.onLink((up) => changes.push(up));
    link.bus.subscribe("muster.test.echo", (message) => message.respond(message.data));
    t.is((await link.bus.request("muster.test.echo", bytes("a"), { timeoutMs: 30_000 })).kind, "reply");
    let last = 0;
    link.log.read(1, {
      onRecord: (sequence) => (last = sequence),
      onCaughtUp: () => undefined,
      onGap: () => undefined,
    });

    signal(server.pid, "SIGSTOP");
    const frozenAt = performance.now();
    // More than the socket's buffers hold: a client that waits for its writes would hang on these.
    const appends = [1, 2, 3].map(() => link.log.append(randomBytes(4_000_000), 0));
    const noticedMs = await until("the link to go down", () => !link.bus.isUp());
    const outcomes = await Promise.all(appends);
    t.deepEqual(
      outcomes.map(({ kind }) => kind),
      ["unknown", "unknown", "unknown"],
    );
    t.is(await link.log.bounds(500), null);
    t.is((await link.bus.request("muster.test.echo", bytes("b"), { timeoutMs: 500 })).kind, "closed");
    await until("5 s of frost", () => performance.now() - frozenAt > 5_000);
    signal(server.pid, "SIGCONT");
    const backMs = await until("the link to come back", () => link.bus.isUp());
    t.deepEqual(changes, [false, true]);
    t.is((await link.bus.request("muster.test.echo", bytes("c"), { timeoutMs: 30_000 })).kind, "reply");
    const bounds = await link.log.bounds(2_000);
    t.not(bounds, null);
    const outcome = await link.log.append(bytes("x"), bounds?.last ?? 0);
    t.is(outcome.kind, "appended");
    await until("the reader to continue", () => outcome.kind === "appended" && last === outcome.sequence);
    t.log(`noticed after ${noticedMs.toFixed(0)} ms, back ${backMs.toFixed(0)} ms after it ran again`);
  });

  test(`a lease's duration comes from the bucket until somebody sets another (${binary})`, async (t) => {
    const { connect } = await natsServer(t, binary);
    t.is((await connect({})).leases.ttlMs, 3_000);
    t.is((await connect({ leaseTtlMs: 9_000 })).leases.ttlMs, 9_000);
    t.is((await connect({})).leases.ttlMs, 9_000);
  });

  test(`a lease is taken once, renewed only by its holder, and free again after expiry or removal (${binary})`, async (t) => {
    const { connect, server } = await natsServer(t, binary);
    const [one, other] = [await connect({ leaseTtlMs: 1_000 }), await connect({ leaseTtlMs: 1_000 })];
    const outcomes = await Promise.all([one, other].map(({ leases }, at) => leases.create("leader", bytes(`m${at}`))));
    t.deepEqual(outcomes.map(({ kind }) => kind).sort(), ["conflict", "stored"]);
    const taken = outcomes.find((outcome) => outcome.kind === "stored");
    const holder = outcomes[0]?.kind === "stored" ? one.leases : other.leases;
    const rival = holder === one.leases ? other.leases : one.leases;
    const first = taken?.kind === "stored" ? taken.revision : 0;
    const found = await rival.get("leader");
    t.true(found.kind === "found" && found.revision === first && text(found.value).startsWith("m"));
    const renewed = await holder.update("leader", bytes("again"), first);
    t.true(renewed.kind === "stored" && renewed.revision > first);
    t.deepEqual(await rival.update("leader", bytes("rival"), first), { kind: "conflict" });
    t.deepEqual(await rival.create("leader", bytes("rival")), { kind: "conflict" });

    // Removing a replaced revision has no effect.
    await holder.remove("leader", first);
    t.is((await rival.get("leader")).kind, "found");
    await holder.remove("leader", renewed.kind === "stored" ? renewed.revision : 0);
    t.deepEqual(await rival.get("leader"), { kind: "absent" });
    const retaken = await rival.create("leader", bytes("rival"));
    t.true(retaken.kind === "stored" && retaken.revision > (renewed.kind === "stored" ? renewed.revision : 0));

    const takenAt = performance.now();
    let free = false;
    await until(
      "the lease to be free",
      async () => (free = (await holder.create("leader", bytes("later"))).kind === "stored"),
    );
    const lastedMs = performance.now() - takenAt;
    t.true(free && lastedMs > 500, `${lastedMs}`);
    t.log(`a lease of 1,000 ms was free after ${lastedMs.toFixed(0)} ms`);

    // A key must not come back, nor revisions decrease, when the server is killed.
    await until("the lease to expire", async () => (await holder.get("leader")).kind === "absent");
    signal(server.pid, "SIGKILL");
    await until("the server to go down", () => !one.bus.isUp());
    await until("the links to come back", () => one.bus.isUp() && other.bus.isUp());
    let afterKill = await holder.create("leader", bytes("after"));
    if (afterKill.kind === "unknown") afterKill = await holder.create("leader", bytes("after"));
    t.true(afterKill.kind === "stored" && retaken.kind === "stored" && afterKill.revision > retaken.revision);
  });

  test(`blobs of 20 MB arrive whole and can be replaced, listed and removed (${binary})`, async (t) => {
    const { connect } = await natsServer(t, binary);
    const [one, other] = [await connect(), await connect()];
    const large = new Uint8Array(randomBytes(20_000_000));
    t.is(await other.blobs.get("snapshot 7/état"), null);
    const startedAt = performance.now();
    await one.blobs.put("snapshot 7/état", large);
    const putMs = performance.now() - startedAt;
    const read = await other.blobs.get("snapshot 7/état");
    const getMs = performance.now() - startedAt - putMs;
    t.true(read !== null && Buffer.compare(read, large) === 0);
    await one.blobs.put("empty", new Uint8Array(0));
    t.is((await other.blobs.get("empty"))?.length, 0);
    await one.blobs.put("snapshot 7/état", bytes("smaller"));
    t.is(text((await other.blobs.get("snapshot 7/état")) ?? bytes("")), "smaller");
    t.deepEqual(await other.blobs.list(), ["empty", "snapshot 7/état"]);
    await other.blobs.remove("empty");
    await other.blobs.remove("never there");
    t.deepEqual(await one.blobs.list(), ["snapshot 7/état"]);
    t.is(await one.blobs.get("empty"), null);
    t.log(`20 MB: put ${putMs.toFixed(0)} ms, get ${getMs.toFixed(0)} ms`);
  });
}

test("a missing server or a rejected password is reported in our own sentence, not the library's error", async (t) => {
  const { server, connect } = await natsServer(t);
  const options = { name: "test", telemetry: await testTelemetry(), firstConnectMs: 200 };
  const wrong = await t.throwsAsync(connectNats({ ...options, servers: [server.url], user: "muster", pass: "wrong" }), {
    instanceOf: NatsProblem,
  });
  t.is(wrong?.kind, "unauthorized");
  const anonymous = await t.throwsAsync(connectNats({ ...options, servers: [server.url] }), {
    instanceOf: NatsProblem,
  });
  t.is(anonymous?.kind, "unauthorized");
  const absent = await t.throwsAsync(connectNats({ ...options, servers: ["nats://127.0.0.1:1"] }), {
    instanceOf: NatsProblem,
  });
  t.is(absent?.kind, "unreachable");
  t.regex(absent?.message ?? "", /^no nats-server answers at 127\.0\.0\.1:1 .*[^.]$/);
  const [, port] = /:(\d+)$/.exec(server.url) ?? [];
  const link = await connect({
    servers: [`nats://${server.user}:${server.pass}@localhost:${port}`],
    user: "",
    pass: "",
  });
  t.true(link.bus.isUp());
});

test("three replicas on a single server are rejected with a sentence", async (t) => {
  const { connect } = await natsServer(t);
  const problem = await t.throwsAsync(connect({ replicas: 3 }), { instanceOf: NatsProblem });
  t.is(problem?.kind, "unusable");
  t.regex(problem?.message ?? "", /replicas/);
});
