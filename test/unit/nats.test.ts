import test from "ava";
import { abilities, isSupported } from "../../runtime/nats/abilities.ts";
import { parseAddress, showAddress } from "../../runtime/nats/address.ts";
import { NatsProblem } from "../../runtime/nats/errors.ts";
import { parseGreeting } from "../../runtime/nats/greeting.ts";
import { openServerProblem } from "../../runtime/nats/open-server.ts";
import { expectLastSequence, store } from "../../runtime/nats/jetstream.ts";
import { laggingSince, unheardFollowers } from "../../runtime/nats/laggards.ts";
import { NatsLeases } from "../../runtime/nats/leases.ts";
import type { Link } from "../../runtime/nats/link.ts";
import { streamSequence } from "../../runtime/nats/log-reading.ts";
import { nanos } from "../../runtime/nats/streams.ts";

test("an address is parsed as NATS's own tools parse it", (t) => {
  t.deepEqual(parseAddress("nats://user:p%40ss@host:4333"), {
    host: "host",
    port: 4333,
    tls: false,
    user: "user",
    pass: "p@ss",
  });
  t.deepEqual(parseAddress("tls://s3cret@host"), { host: "host", port: 4222, tls: true, token: "s3cret" });
  t.deepEqual(parseAddress("10.0.0.1:1"), { host: "10.0.0.1", port: 1, tls: false });
  t.is(showAddress(parseAddress("nats://u:p@[::1]:9")), "[::1]:9");
  for (const text of ["", "http://host", "nats://", "host:port", "nats://host:99999"]) {
    t.is(t.throws(() => parseAddress(text), { instanceOf: NatsProblem })?.kind, "unusable", text);
  }
});

test("a greeting that is not a nats-server's is rejected", (t) => {
  const greeted = parseGreeting(
    'INFO {"server_id":"N","server_name":"n1","version":"2.9.10","max_payload":1048576,"jetstream":true} ',
  );
  t.deepEqual(greeted, {
    kind: "greeted",
    greeting: {
      version: "2.9.10",
      serverName: "n1",
      maxPayload: 1_048_576,
      jetstream: true,
      tlsRequired: false,
      authRequired: false,
      cluster: "",
    },
  });
  const clustered = parseGreeting('INFO {"version":"2.9.10","max_payload":1,"cluster":"c","tls_required":true}');
  t.like(clustered, { greeting: { cluster: "c", tlsRequired: true, jetstream: false } });
  for (const line of ["", "HTTP/1.1 400 Bad Request", "INFO", "INFO {", "INFO null", "INFO {}", 'INFO {"version":2}'])
    t.is(parseGreeting(line).kind, "silent", line);
});

test("a nats-server beyond loopback without TLS or authentication is rejected, and the sentence says what to do", (t) => {
  const greeted = (line: string) => {
    const outcome = parseGreeting(`INFO {"version":"2.9.10","max_payload":1,${line}}`);
    if (outcome.kind !== "greeted") throw new Error(line);
    return outcome.greeting;
  };
  const [open, users, verifying] = [`"x":1`, `"auth_required":true`, `"tls_required":true,"tls_verify":true`].map(
    greeted,
  );
  const problem = (url: string, greeting: typeof open, hasTls: boolean): string =>
    openServerProblem(parseAddress(url), greeting as NonNullable<typeof open>, hasTls)?.message ?? "";
  for (const url of ["127.0.0.1", "127.8.9.1:7", "localhost:4222", "nats://[::1]:4222"])
    t.is(problem(url, open, false), "", url);
  for (const url of [
    "192.0.2.1",
    "nats.example",
    "0.0.0.0",
    "[2001:db8::1]:4222",
    "localhost.example",
    "127.0.0.1.example",
  ]) {
    t.regex(problem(url, users, false), /has no TLS.*deploy\/nats-server\.conf.*--nats-insecure/, url);
    t.regex(problem(url, open, true), /without credentials.*deploy\/nats-server\.conf.*--nats-insecure/, url);
    t.is(problem(url, users, true), "", url);
    t.is(problem(url, verifying, true), "", url);
  }
});

test("a delivered record's sequence is found in both forms of the reply subject", (t) => {
  t.is(streamSequence("$JS.ACK.muster-log.c1.1.42.7.1700000000000000000.3"), 42);
  t.is(streamSequence("$JS.ACK._.hash.muster-log.c1.1.42.7.1700000000000000000.3"), 42);
  t.is(streamSequence("$JS.ACK.hub.hash.muster-log.c1.1.42.7.1700000000000000000.3.random"), 42);
  for (const reply of [undefined, "", "$JS.FC.muster-log.c1.x", "$JS.ACK.muster-log.c1.1.x.7.1.3", "_INBOX.a.b"])
    t.is(streamSequence(reply), null);
});

test("each guarantee that the server lacks is reported to the operator, and nothing if it has them all", (t) => {
  const good = { version: "2.12.1", replicas: 3, flushesEveryWrite: true } as const;
  t.deepEqual(abilities(good), []);
  t.regex(abilities({ ...good, version: "2.9.10" }).join(), /power failure/);
  t.regex(abilities({ ...good, flushesEveryWrite: null }).join(), /sync_interval: always/);
  t.regex(abilities({ ...good, replicas: 1 }).join(), /one replica.* loses the cluster's state\.$/);
  t.regex(
    abilities({ ...good, replicas: 1, notRaised: "no peers" }).join(),
    /one replica.*three were requested.*no peers/,
  );
  t.deepEqual(["2.8.4", "1.9.0", "", "x"].map(isSupported), [false, false, false, false]);
  t.deepEqual(["2.9.0", "v2.10.3", "3.0.0-beta"].map(isSupported), [true, true, true]);
});

test("B1: a follower is unheard if it is outdated and the log's leader has not heard from it for 10 s, or ever", (t) => {
  const info = (...replicas: object[]) => ({ config: { num_replicas: 3 }, cluster: { leader: "n0", replicas } });
  const follower = (name: string, current: boolean, activeMs: number) => ({ name, current, active: nanos(activeMs) });
  t.deepEqual(unheardFollowers(info(follower("n1", true, 400), follower("n2", true, 60_000))), []);
  t.deepEqual(unheardFollowers(info(follower("n1", false, 400), follower("n2", false, 9_900))), [], "they catch up");
  t.deepEqual(unheardFollowers(info(follower("n1", false, 10_000), follower("n2", false, 0))), ["n1", "n2"]);
  t.deepEqual(unheardFollowers({ ...info(follower("n1", false, 0)), cluster: { replicas: [] } }), [], "nobody leads");
  t.deepEqual(unheardFollowers({ config: { num_replicas: 1 } }), [], "a single server");
});

test("B1: a laggard's time counts from the first of its consecutive unheard checks", (t) => {
  const first = laggingSince(new Map(), { at: 5_000, unheard: ["n1"] });
  const second = laggingSince(first, { at: 10_000, unheard: ["n2", "n1"] });
  t.deepEqual(
    [...second],
    [
      ["n2", 10_000],
      ["n1", 5_000],
    ],
  );
  const third = laggingSince(second, { at: 15_000, unheard: [] });
  t.deepEqual([...laggingSince(third, { at: 20_000, unheard: ["n1"] })], [["n1", 20_000]]);
});

/** A link whose server answers everything with that. */
function answering(body: object): Link {
  const message = { data: new TextEncoder().encode(JSON.stringify(body)) };
  const serving = { answered: () => {}, unanswered: () => {} };
  return { request: () => Promise.resolve({ kind: "reply", message }), serving } as unknown as Link;
}

test("a conflicting write is a conflict, by both of NATS's codes, and no other error is", async (t) => {
  const write = (body: object) =>
    store(answering(body), "muster.v1.log", new Uint8Array(1), { header: expectLastSequence, sequence: 3 }, 1_000);
  const failing = (code: number, errCode: number) =>
    write({ error: { code, err_code: errCode, description: "wrong last sequence: 4" } });
  t.deepEqual(await write({ stream: "muster-log", seq: 4 }), { kind: "stored", sequence: 4 });
  for (const errCode of [10_071, 10_164]) t.deepEqual(await failing(400, errCode), { kind: "conflict" });
  t.is((await failing(400, 10_052)).kind, "refused");
  t.is((await failing(503, 10_077)).kind, "unknown");
  t.is((await failing(503, 10_023)).kind, "full");
});

test("a lease replaced by another tool's marker is absent", async (t) => {
  const get = (headers: string | null) => {
    const hdrs = headers === null ? {} : { hdrs: Buffer.from(`NATS/1.0\r\n${headers}\r\n\r\n`).toString("base64") };
    const message = { seq: 7, data: Buffer.from("m1").toString("base64"), ...hdrs };
    return new NatsLeases(answering({ message }), { ttlMs: 4_000, config: {}, telemetry: {} as never }).get("leader");
  };
  for (const marker of ["KV-Operation: DEL", "KV-Operation:PURGE"]) t.deepEqual(await get(marker), { kind: "absent" });
  for (const none of [null, "Nats-Msg-Id: 1"])
    t.deepEqual(await get(none), { kind: "found", value: new Uint8Array(Buffer.from("m1")), revision: 7 });
});
