// Limits for a client of the JSON API before and after login: bytes, time, connections.
import { once } from "node:events";
import { connect as connectTcp } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import test, { type ExecutionContext } from "ava";
import { loginMessageBytesMax } from "../../edges/juju/wire/limits.ts";
import { until } from "../fixtures/until.ts";
import { jsonWorld } from "../support/json-api.ts";
import { patient } from "../support/slowness.ts";

/** An invalid login message of this many bytes. */
const large = (bytes: number): string => JSON.stringify({ "request-id": 1, type: "Admin", params: "x".repeat(bytes) });

/** An open WebSocket into which a test writes raw bytes. */
async function bare(t: ExecutionContext, port: number): Promise<TLSSocket> {
  const socket = connectTls({ host: "127.0.0.1", port, rejectUnauthorized: false });
  t.teardown(() => socket.destroy());
  socket.on("error", () => {});
  await once(socket, "secureConnect");
  socket.write(
    "GET /api HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
  );
  await once(socket, "data");
  socket.resume();
  return socket;
}

/** The beginning of a text frame of this many bytes, masked with zeros. */
function begins(bytes: number): Buffer {
  const header = Buffer.alloc(14);
  header[0] = 0x81;
  header[1] = 0xff;
  header.writeBigUInt64BE(BigInt(bytes), 2);
  return header;
}

test("I1: a message before login must be small, and after login may have full size", async (t) => {
  const { addUser, connect } = await jsonWorld(t);
  await addUser("ada");
  const stranger = await connect();
  let code = 0;
  void stranger.closed.then((told) => (code = told));
  stranger.socket.send(large(loginMessageBytesMax));
  t.is(await until("the stranger to be disconnected", () => code || null), 1009);
  const known = await connect();
  t.is((await known.login())["error"], undefined);
  known.socket.send(large(4 * loginMessageBytesMax));
  t.like(await known.next(), { "request-id": 1 });
});

test("I1: clients that are not logged in share one budget, and the largest is closed; users are exempt", async (t) => {
  // Each of their bytes counts for eight.
  const { addUser, connect, listener, port } = await jsonWorld(t, { limits: { anonymousBytesMax: 8 * 100_000 } });
  await addUser("ada");
  const known = await connect();
  await known.login();
  const [small, larger] = [await bare(t, port), await bare(t, port)];
  small.write(Buffer.concat([begins(60_000), Buffer.alloc(45_000)]));
  larger.write(Buffer.concat([begins(60_000), Buffer.alloc(58_000)]));
  await until("one of them to be closed", () => listener.connections === 2);
  await until("its end", () => larger.closed);
  t.false(small.closed);
  t.like(await known.ask({ "request-id": 2, type: "Pinger", version: 1, request: "Ping", params: {} }), {
    "request-id": 2,
  });
});

test("I2: an incomplete message ends its connection, also a user's, and pongs do not complete it", async (t) => {
  const { addUser, connect, listener, port } = await jsonWorld(t, { limits: { knownSweepMs: 300 } });
  await addUser("ada");
  const known = await connect();
  await known.login();
  known.socket.pong("0123456789");
  const slow = await bare(t, port);
  slow.write(Buffer.concat([begins(1_000), Buffer.alloc(10)]));
  await until("its end", () => slow.closed);
  t.is(listener.connections, 1);
  t.like(await known.ask({ "request-id": 2, type: "Pinger", version: 1, request: "Ping", params: {} }), {
    "request-id": 2,
  });
});

test("L3: strangers displace each other, and logged-in clients stay", async (t) => {
  const { addUser, connect, listener, port } = await jsonWorld(t, {
    limits: { anonymousMax: 4, anonymousPerAddressMax: 3 },
  });
  await addUser("ada");
  const users = [await connect(), await connect()];
  for (const user of users) await user.login();
  const strangers: TLSSocket[] = [];
  for (let n = 0; n < 8; n += 1) strangers.push(await bare(t, port));
  await until("five of them to be closed", () => strangers.filter(({ closed }) => closed).length === 5);
  t.deepEqual(
    strangers.map(({ closed }) => closed),
    Array.from({ length: 8 }, (_, n) => n < 5),
  );
  await until("their connections", () => listener.connections === 5);
  t.is(listener.connections, 5);
});

/** A connection without a WebSocket, after its handshake. */
async function plain(t: ExecutionContext, port: number, text = "", allowHalfOpen = false): Promise<TLSSocket> {
  const tcp = connectTcp({ host: "127.0.0.1", port, allowHalfOpen });
  const socket = connectTls({ socket: tcp, rejectUnauthorized: false });
  t.teardown(() => socket.destroy());
  socket.on("error", () => {});
  await once(socket, "secureConnect");
  socket.resume();
  socket.write(text);
  return socket;
}

test("a request whose headers or body never end is closed in time, also if something arrives", async (t) => {
  t.timeout(patient(90_000));
  const { port } = await jsonWorld(t);
  const headers = await plain(t, port, "GET / HTTP/1.1\r\nhost: x\r\n");
  const body = await plain(t, port, "POST /auth/form HTTP/1.1\r\nhost: x\r\ncontent-length: 10000\r\n\r\n");
  const trickle = setInterval(() => {
    headers.write("a: b\r\n");
    body.write("x");
  }, 500);
  t.teardown(() => clearInterval(trickle));
  await Promise.all([once(headers, "close"), once(body, "close")]);
  t.pass();
});

test("a connection is destroyed when its upgrade is refused, and when the port closes", async (t) => {
  const { port, listener } = await jsonWorld(t);
  const silent = await plain(t, port);
  const refused = await plain(
    t,
    port,
    "GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    true,
  );
  const [answer] = (await once(refused, "data")) as [Buffer];
  t.regex(answer.toString(), /^HTTP\/1\.1 404 /);
  // The other side has not ended; a write fails only if the server has closed the connection.
  await until("it is closed", () => {
    refused.write("x");
    return refused.destroyed;
  });
  const begun = performance.now();
  await Promise.all([once(silent, "close"), listener.close(0)]);
  t.true(performance.now() - begun < 8_000, "before the time for a request is over");
});

test("HS2: requests of strangers share one budget, and the one that holds the most is closed", async (t) => {
  const { port } = await jsonWorld(t, { limits: { anonymousBytesMax: 8 * 20_000 } });
  const post = "POST /auth/form HTTP/1.1\r\nhost: x\r\ncontent-length: 16000\r\n\r\n";
  const [small, larger] = [await plain(t, port, post), await plain(t, port, post)];
  small.write("x".repeat(8_000));
  larger.write("x".repeat(14_000));
  await once(larger, "close");
  small.write("x".repeat(8_000));
  const [answer] = (await once(small, "data")) as [Buffer];
  t.regex(answer.toString(), /^HTTP\/1\.1 400 /);
});

test("HS2: a request that comes before the former one was answered ends its connection", async (t) => {
  const { port } = await jsonWorld(t);
  const post = "POST /auth/form HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}";
  const socket = await plain(t, port, post + post);
  await once(socket, "close");
  t.is(socket.bytesRead, 0);
});
