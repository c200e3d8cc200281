import test from "ava";
import fc from "fast-check";
import { Tickets } from "../../edges/juju/tickets.ts";
import { startJsonApi } from "../../actors/json/api.ts";
import { createLogins } from "../../actors/json/logins.ts";
import { Connection, type Wire } from "../../edges/juju/connection.ts";
import { Registry } from "../../edges/juju/dispatch.ts";
import type { Facade } from "../../edges/juju/facade.ts";
import { pinger } from "../../edges/juju/facades/pinger.ts";
import { loginNameOf } from "../../edges/juju/login-name.ts";
import { outstandingMax, unsentBytesFatal, unsentBytesMax } from "../../edges/juju/wire/limits.ts";
import { createUsers } from "../../actors/json/users.ts";
import { anonymousMs, handshakeMs, pingMs, pongMs, writeMs } from "../../machines/json/connection.machine.ts";
import { AddUserRequest, UserRole } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { Scrypt } from "../../runtime/system/scrypt.ts";
import { until } from "../fixtures/until.ts";
import { cheapScrypt, jsonWorld, password, type Reply } from "../support/json-api.ts";
import { textOfFrame } from "../support/json-frames.ts";
import { call, testManager } from "../support/manager.ts";

const login = {
  "request-id": 1,
  type: "Admin",
  version: 3,
  request: "Login",
  params: { "auth-tag": "user-ada", credentials: password },
};

/** Requests that end on the test's command, and some that fail. */
function slow() {
  const held: (() => void)[] = [];
  let stopped = 0;
  const facade: Facade = {
    type: "Slow",
    versions: [1],
    who: "users",
    id: "none",
    methods: {
      Hold: { needs: "read-only", run: () => new Promise((resolve) => held.push(() => resolve({}))) },
      Throw: {
        needs: "read-only",
        run: () => {
          throw new Error("a secret of the inside");
        },
      },
      Refuse: { needs: "read-only", run: () => Promise.reject(new RpcError(Status.NOT_FOUND, "service x not found")) },
      Watch: {
        needs: "read-only",
        run: ({ session }) => ({ "watcher-id": session.resources.add("Slow", { stop: () => void (stopped += 1) }) }),
      },
      Echo: { needs: "read-only", run: ({ params }) => ({ text: params.text("text") }) },
    },
  };
  return { facade, held, stopped: () => stopped };
}

const ask = (id: number, request: string, type = "Slow") => ({ "request-id": id, type, version: 1, request });

/** A connection without a socket: the test is the wire. */
async function bare() {
  const manager = testManager();
  const { env, clock } = manager;
  const passwords = new Scrypt(cheapScrypt);
  await createUsers(env, passwords).handlers.AddUser(
    AddUserRequest.create({ name: "ada", role: UserRole.USER_ROLE_ADMIN, password }),
    call(),
  );
  const { facade, held, stopped } = slow();
  const { metrics } = env.telemetry;
  const api = startJsonApi(env, createLogins(env, passwords));
  const connection = new Connection(
    {
      api,
      tickets: new Tickets(api, clock),
      registry: new Registry([facade, pinger]),
      clock,
      log: env.telemetry.log,
      metrics: {
        requests: metrics.counter("r", "r"),
        seconds: metrics.histogram("s", "s"),
        logins: metrics.counter("l", "l"),
      },
      clusterId: () => "cluster1",
      servers: () => [],
      redirect: null,
      loginName: (tag) => loginNameOf(env.store, tag),
    },
    {
      id: "1",
      address: "192.0.2.9",
      scope: "model",
      refusal: null,
      certificate: null,
      checkCertificate: () => {},
      clientVersion: "",
      host: "",
    },
  );
  const seen = { replies: [] as Reply[], closed: null as number | null, cut: 0, pings: 0, paused: false };
  const peer = { unsent: 0 };
  const wire: Wire = {
    send: (text) => void seen.replies.push(JSON.parse(text) as Reply),
    sendShared: (beginning, result) =>
      void seen.replies.push(JSON.parse(textOfFrame(Buffer.concat(result.message(beginning)))) as Reply),
    ping: () => void (seen.pings += 1),
    pause: () => void (seen.paused = true),
    resume: () => void (seen.paused = false),
    loggedIn: () => {},
    unsentBytes: () => peer.unsent,
    close: (code) => {
      seen.closed = code;
      connection.closed();
    },
    cut: () => {
      seen.cut += 1;
      connection.closed();
    },
  };
  const settled = () => new Promise((resolve) => setTimeout(resolve, 5));
  const tell = (message: unknown) => connection.take(JSON.stringify(message));
  const loggedIn = async () => {
    connection.opened(wire);
    tell(login);
    while (seen.replies.length === 0) await settled();
    seen.replies.length = 0;
  };
  return { connection, wire, seen, peer, tell, loggedIn, settled, held, stopped, clock, manager };
}

test("JC2: a client that does not finish the handshake, or does not log in, is disconnected", async (t) => {
  const first = await bare();
  first.clock.advance(handshakeMs + 1);
  t.is(first.seen.cut, 0, "there is no socket to cut yet");
  first.connection.opened(first.wire);
  t.is(first.seen.closed, null);
  const second = await bare();
  second.connection.opened(second.wire);
  second.clock.advance(anonymousMs - 1);
  t.is(second.seen.closed, null);
  second.clock.advance(2);
  t.is(second.seen.closed, 1008);
});

test("JC2: a peer that does not answer pings is cut off, and one that does is not", async (t) => {
  const { loggedIn, clock, seen, connection } = await bare();
  await loggedIn();
  for (let round = 1; round <= 3; round += 1) {
    clock.advance(pingMs + 1);
    t.is(seen.pings, round);
    connection.heard();
  }
  clock.advance(pingMs + pongMs + 2);
  t.deepEqual([seen.cut, seen.closed], [1, null]);
});

test("JC2, C2: a peer that reads nothing is not read from, and is cut off", async (t) => {
  const { loggedIn, clock, seen, peer, tell, settled } = await bare();
  await loggedIn();
  peer.unsent = unsentBytesMax + 1;
  tell(ask(2, "Ping", "Pinger"));
  await settled();
  t.true(seen.paused);
  clock.advance(writeMs / 2);
  peer.unsent -= 1_000;
  clock.advance(writeMs / 2);
  t.is(seen.cut, 0, "it read a little");
  clock.advance(writeMs + 2_000);
  t.is(seen.cut, 1);
});

test("C2: a peer that reads everything again is read again", async (t) => {
  const { loggedIn, clock, seen, peer, tell, settled } = await bare();
  await loggedIn();
  peer.unsent = unsentBytesMax + 1;
  tell(ask(2, "Ping", "Pinger"));
  await settled();
  t.true(seen.paused);
  peer.unsent = 0;
  clock.advance(1_001);
  t.false(seen.paused);
  clock.advance(writeMs * 3);
  t.deepEqual([seen.cut, seen.closed], [0, null]);
});

test("more than the buffer's limit ends the connection at once", async (t) => {
  const { loggedIn, seen, peer, tell, settled } = await bare();
  await loggedIn();
  peer.unsent = unsentBytesFatal + 1;
  tell(ask(2, "Ping", "Pinger"));
  await settled();
  t.is(seen.cut, 1);
});

test("C1, C2: replies are sent when they are ready; the number of requests in progress is limited", async (t) => {
  const { loggedIn, seen, tell, settled, held, connection } = await bare();
  await loggedIn();
  for (let id = 1; id < outstandingMax; id += 1) tell(ask(id, "Hold"));
  tell(ask(5_000, "Ping", "Pinger"));
  await settled();
  t.deepEqual(seen.replies, [{ "request-id": 5_000, response: {} }]);
  t.false(seen.paused);
  tell(ask(5_001, "Hold"));
  await settled();
  t.is(connection.outstanding, outstandingMax);
  t.true(seen.paused);
  held.pop()?.();
  await settled();
  t.false(seen.paused);
  for (const end of held) end();
  await settled();
  t.is(seen.replies.length, outstandingMax + 1);
  t.is(new Set(seen.replies.map((reply) => reply["request-id"])).size, outstandingMax + 1);
});

test("an id reused while it is outstanding gets both answers", async (t) => {
  const { loggedIn, seen, tell, settled, held } = await bare();
  await loggedIn();
  tell(ask(7, "Hold"));
  tell(ask(7, "Ping", "Pinger"));
  await settled();
  for (const end of held) end();
  await settled();
  t.deepEqual(seen.replies, [
    { "request-id": 7, response: {} },
    { "request-id": 7, response: {} },
  ]);
});

test("JC3: when the connection ends, its requests' leftovers are stopped once, and nothing more is sent", async (t) => {
  const { loggedIn, seen, tell, settled, held, stopped, connection } = await bare();
  await loggedIn();
  tell(ask(2, "Watch"));
  tell(ask(3, "Watch"));
  tell(ask(4, "Hold"));
  await settled();
  const before = seen.replies.length;
  connection.closed();
  t.is(stopped(), 2);
  for (const end of held) end();
  tell(ask(5, "Watch"));
  await settled();
  t.is(stopped(), 2);
  t.is(seen.replies.length, before);
});

test("an internal error is reported without details, and a handler's error with them", async (t) => {
  const { loggedIn, seen, tell, settled } = await bare();
  await loggedIn();
  tell(ask(2, "Throw"));
  tell(ask(3, "Refuse"));
  tell({ ...ask(4, "Echo"), params: { text: 5 } });
  tell({ ...ask(5, "Echo"), id: "9" });
  tell(ask(6, "constructor"));
  tell(ask(7, "Next", "AllWatcher"));
  tell({ ...ask(8, "Hold"), version: 9 });
  await settled();
  t.deepEqual(
    seen.replies.toSorted((left, right) => Number(left["request-id"]) - Number(right["request-id"])),
    [
      { "request-id": 2, error: "internal error", response: {} },
      { "request-id": 3, error: "service x not found", "error-code": "not found", response: {} },
      { "request-id": 4, error: "params.text is not a string", "error-code": "bad request", response: {} },
      { "request-id": 5, error: "id not found", "error-code": "not found", response: {} },
      {
        "request-id": 6,
        error: "method Slow(1).constructor is not supported by this controller",
        "error-code": "not supported",
        response: {},
      },
      {
        "request-id": 7,
        error: 'facade "AllWatcher" is not supported by this controller',
        "error-code": "not supported",
        response: {},
      },
      {
        "request-id": 8,
        error: 'version (9) of facade "Slow" is not supported by this controller',
        "error-code": "not supported",
        response: {},
      },
    ],
  );
});

test("fuzz: each request is answered exactly once, whatever came before, until something ends the connection", async (t) => {
  const request = fc.record(
    {
      type: fc.constantFrom("Slow", "Pinger", "Admin", "AllWatcher", "", "__proto__"),
      request: fc.constantFrom("Echo", "Throw", "Refuse", "Ping", "Login", "Version", "Watch", "toString"),
      version: fc.oneof(fc.constantFrom(0, 1, 3, 99), fc.jsonValue({ maxDepth: 1 })),
      id: fc.oneof(fc.constantFrom("", "1"), fc.jsonValue({ maxDepth: 1 })),
      params: fc.oneof(fc.constant(null), fc.jsonValue({ maxDepth: 4 })),
    },
    { requiredKeys: ["type"] },
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(request, { maxLength: 20 }),
      fc.boolean(),
      fc.array(fc.boolean()),
      async (all, isIn, old) => {
        const { connection, wire, loggedIn, tell, seen, settled } = await bare();
        if (isIn) await loggedIn();
        else connection.opened(wire);
        const guesses = all.filter(({ type, request: name }) => type === "Admin" && name === "Login").length;
        all.forEach((each, at) =>
          tell(old[at] === true ? { RequestId: at + 1, ...each } : { "request-id": at + 1, ...each }),
        );
        await settled();
        const ids = seen.replies.map((reply) => reply["request-id"] ?? reply["RequestId"]);
        t.is(new Set(ids).size, ids.length, "no request is answered twice");
        if (guesses === 0) {
          t.is(ids.length, all.length, "each is answered");
          t.is(seen.closed, null);
        }
        for (const reply of seen.replies) {
          const isNew = "request-id" in reply;
          t.true((isNew ? "response" : "Response") in reply);
          t.false((isNew ? "Response" : "response") in reply, "no reply mixes shapes");
          t.not(reply["error"], "");
        }
      },
    ),
    { numRuns: 40 },
  );
});

for (const [what, message, code] of [
  ["not JSON", "hello", 1002],
  ["a list", "[1]", 1002],
  ["no id", '{"type":"Admin"}', 1002],
  ["deep nesting", `{"RequestId":1,"Params":${"[".repeat(100_000)}`, 1002],
  ["binary", Buffer.from("{}"), 1002],
  ["17 MB", "x".repeat(17_000_000), 1009],
] as const) {
  test(`${what} ends only that connection`, async (t) => {
    const { connect, addUser, listener } = await jsonWorld(t, { facades: [pinger] });
    await addUser("ada");
    const [bad, good] = [await connect(), await connect()];
    await Promise.all([bad.login(), good.login()]);
    bad.socket.send(message);
    t.is(await bad.closed, code);
    t.deepEqual(await good.ask(ask(2, "Ping", "Pinger")), { "request-id": 2, response: {} });
    await until("the end of the connection", () => listener.connections === 1);
  });
}

test("messages of 4 MiB are read", async (t) => {
  const { facade } = slow();
  const { connect, addUser } = await jsonWorld(t, { facades: [facade] });
  await addUser("ada");
  const client = await connect();
  await client.login();
  const text = "y".repeat(4 * 1_024 * 1_024);
  t.deepEqual(await client.ask({ ...ask(2, "Echo"), params: { text } }), { "request-id": 2, response: { text } });
});

test("a client that stops reading costs bounded memory and delays nobody", async (t) => {
  const { facade } = slow();
  const { connect, addUser, clock, listener } = await jsonWorld(t, { facades: [facade, pinger] });
  await addUser("ada");
  const [deaf, good] = [await connect(), await connect()];
  await Promise.all([deaf.login(), good.login()]);
  deaf.socket.pause();
  const text = "y".repeat(100_000);
  for (let id = 2; id < 400; id += 1) deaf.send({ ...ask(id, "Echo"), params: { text } });
  for (let id = 2; id < 50; id += 1)
    t.deepEqual(await good.ask(ask(id, "Ping", "Pinger")), { "request-id": id, response: {} });
  t.true(deaf.socket.bufferedAmount > 0, "the server has stopped reading");
  await until("the unread connection to end", () => {
    clock.advance(1_000);
    return listener.connections === 1;
  });
  t.pass();
});

test("a stopping manager notifies every client", async (t) => {
  const { connect, addUser, listener } = await jsonWorld(t);
  await addUser("ada");
  const client = await connect();
  await client.login();
  await Promise.all([listener.close(1_000), client.closed.then((code) => t.is(code, 1001))]);
  t.is(listener.connections, 0);
});
