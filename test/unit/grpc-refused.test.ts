// Calls whose streams the peer refuses (RFC 9113 §8.7): they never ran, so our client retries them.
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { constants, createServer, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { connectUnix } from "../../edges/grpc/client.ts";
import { HeartbeatRequest, HeartbeatResponse, SessionMessage, SessionRequest } from "../../proto/gen/messages.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { collect, Heartbeat, refused, Session, until } from "../support/grpc-world.ts";

const okTrailers = { "grpc-status": "0" };

/** A peer that refuses the first streams, and answers the others with one message. */
async function refusing(t: ExecutionContext, refusals: number, answer: Uint8Array) {
  const requests: Buffer[] = [];
  let seen = 0;
  const sessions = new Set<ServerHttp2Session>();
  const server = createServer();
  server.on("session", (session: ServerHttp2Session) => sessions.add(session));
  server.on("stream", (stream: ServerHttp2Stream) => {
    stream.on("error", () => undefined);
    if ((seen += 1) <= refusals) {
      stream.close(constants.NGHTTP2_REFUSED_STREAM);
      return;
    }
    const parts: Buffer[] = [];
    stream.on("data", (part: Buffer) => parts.push(part));
    stream.on("end", () => {
      requests.push(Buffer.concat(parts));
      stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
      stream.on("wantTrailers", () => stream.sendTrailers(okTrailers));
      const prefix = Buffer.alloc(5);
      prefix.writeUInt32BE(answer.length, 1);
      stream.end(Buffer.concat([prefix, answer]));
    });
  });
  const folder = mkdtempSync(join(tmpdir(), "muster-refused-"));
  server.listen(join(folder, "socket"));
  await once(server, "listening");
  const channel = await connectUnix(join(folder, "socket"));
  t.teardown(() => {
    channel.close();
    for (const session of sessions) session.destroy();
    server.close();
    rmSync(folder, { recursive: true });
  });
  return { channel, requests, seen: () => seen, sessions };
}

test("K3: a call whose stream was refused is retried whole and answered once", async (t) => {
  const { channel, requests, seen } = await refusing(t, 2, HeartbeatResponse.encode(HeartbeatResponse.create({})));
  const request = HeartbeatRequest.create({ sessionId: "s1" });
  await channel.unary(Heartbeat, request, { timeoutMs: 60_000 });
  t.is(seen(), 3);
  t.deepEqual(
    requests.map((bytes) => HeartbeatRequest.decode(bytes.subarray(5))),
    [request],
  );
});

test("K3: a refused server stream is retried", async (t) => {
  const { channel, seen } = await refusing(t, 1, SessionMessage.encode(SessionMessage.create({ sessionId: "s1" })));
  const { ended, messages, receiver } = collect<SessionMessage>();
  channel.serverStream(Session, SessionRequest.create({}), receiver);
  t.is(await ended, null);
  t.deepEqual(
    messages.map(({ sessionId }) => sessionId),
    ["s1"],
  );
  t.is(seen(), 2);
});

test("K3: a peer that keeps refusing ends the call with UNAVAILABLE after six streams", async (t) => {
  const { channel, seen } = await refusing(t, Number.POSITIVE_INFINITY, new Uint8Array());
  await refused(t, channel.unary(Heartbeat, HeartbeatRequest.create({})), Status.UNAVAILABLE);
  t.is(seen(), 6);
});

test("K3: the deadline and a cancellation end a call that waits for its retry", async (t) => {
  const { channel, seen } = await refusing(t, Number.POSITIVE_INFINITY, new Uint8Array());
  await refused(t, channel.unary(Heartbeat, HeartbeatRequest.create({}), { timeoutMs: 1 }), Status.DEADLINE_EXCEEDED);
  const { messages, ended, receiver } = collect<SessionMessage>();
  const before = seen();
  const call = channel.serverStream(Session, SessionRequest.create({}), receiver);
  await until(() => seen() > before);
  call.cancel();
  const afterwards = seen();
  await new Promise((resolve) => setTimeout(resolve, 500));
  t.true(seen() <= afterwards + 1, "a cancelled call is not retried, except for what was on its way");
  t.is(await Promise.race([ended, Promise.resolve("nothing")]), "nothing");
  t.is(messages.length, 0);
});

test("K3: a connection that is going away is not used again", async (t) => {
  const { channel, sessions, seen } = await refusing(t, Number.POSITIVE_INFINITY, new Uint8Array());
  await until(() => sessions.size === 1);
  for (const session of sessions) session.goaway(constants.NGHTTP2_NO_ERROR, 0);
  await refused(t, channel.unary(Heartbeat, HeartbeatRequest.create({})), Status.UNAVAILABLE);
  t.true(seen() <= 1);
});
