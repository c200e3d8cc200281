import test from "ava";
import { abilities, isSupported } from "../../runtime/nats/abilities.ts";
import { parseAddress, showAddress } from "../../runtime/nats/address.ts";
import { NatsProblem } from "../../runtime/nats/errors.ts";
import { parseGreeting } from "../../runtime/nats/greeting.ts";
import { openServerProblem } from "../../runtime/nats/open-server.ts";
import { streamSequence } from "../../runtime/nats/log-reading.ts";

test("an address is read as NATS's own tools read it", (t) => {
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

test("what greets otherwise than a nats-server is taken for none", (t) => {
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

test("a nats-server beyond loopback that has no TLS or lets everybody in is refused, and the sentence says what to do", (t) => {
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

test("the operator is told what the server cannot promise, and nothing when it can all", (t) => {
  const good = { version: "2.12.1", replicas: 3, flushesEveryWrite: true } as const;
  t.deepEqual(abilities(good), []);
  t.regex(abilities({ ...good, version: "2.9.10" }).join(), /power failure/);
  t.regex(abilities({ ...good, flushesEveryWrite: null }).join(), /sync_interval: always/);
  t.regex(abilities({ ...good, replicas: 1 }).join(), /one replica.* loses the cluster's state\.$/);
  t.regex(
    abilities({ ...good, replicas: 1, notRaised: "no peers" }).join(),
    /one replica.*three were asked for.*no peers/,
  );
  t.deepEqual(["2.8.4", "1.9.0", "", "x"].map(isSupported), [false, false, false, false]);
  t.deepEqual(["2.9.0", "v2.10.3", "3.0.0-beta"].map(isSupported), [true, true, true]);
});
