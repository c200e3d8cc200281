// Requests over HTTP/2 that are not gRPC, sent by Node's own client, as real ones are.
import { connect as connectHttp2, constants, type ClientHttp2Session, type ClientHttp2Stream } from "node:http2";
import { once } from "node:events";
import { connect } from "node:net";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { temporaryFolder, world } from "../support/grpc-world.ts";

interface Answer {
  readonly fields: Readonly<Record<string, unknown>>;
  readonly body: string;
  /** Why the server reset the stream; 0 if it did not, or stopped reading without an error. */
  readonly code: number | undefined;
}

async function session(t: ExecutionContext): Promise<ClientHttp2Session> {
  const { server } = await world(t);
  const path = join(temporaryFolder(t), "control.sock");
  await server.listenUnix(path);
  const opened = connectHttp2("http://manager", { createConnection: () => connect({ path }) });
  t.teardown(() => opened.destroy());
  await once(opened, "connect");
  return opened;
}

/** Collects what arrives from now on; resolves when the stream is closed. */
async function answerOf(stream: ClientHttp2Stream): Promise<Answer> {
  const fields: Record<string, unknown> = {};
  let body = "";
  stream.on("response", (given) => Object.assign(fields, given));
  stream.setEncoding("utf8").on("data", (text: string) => (body += text));
  stream.on("error", () => {});
  await new Promise((resolve) => stream.once("close", resolve)); // not `once`, which rejects on an error
  return { fields, body, code: stream.rstCode };
}

const sentence = "this is a gRPC API: expected POST with the content type application/grpc\n";
const post = { ":method": "POST", "content-type": "text/plain" };

test("a request that is not gRPC gets an HTTP error and a sentence", async (t) => {
  const client = await session(t);
  const got = await answerOf(client.request({ ":method": "GET" }, { endStream: true }));
  t.like(got.fields, { ":status": 405, allow: "POST", "content-length": String(sentence.length) });
  t.is(got.body, sentence);
  const posted = await answerOf(client.request(post).end("a form"));
  t.like(posted.fields, { ":status": 415, "content-type": "text/plain; charset=utf-8" });
  t.is(posted.body, sentence);
  const head = await answerOf(client.request({ ":method": "HEAD" }, { endStream: true }));
  t.like(head.fields, { ":status": 405, "content-length": String(sentence.length) });
  t.is(head.body, "");
});

test("X1: it is answered when it is complete, and not at all if its end is malformed", async (t) => {
  const client = await session(t);
  const slow = client.request(post);
  const answer = answerOf(slow);
  let isAnswered = false;
  slow.once("response", () => (isAnswered = true));
  slow.write("half");
  // Everything sent earlier on the same connection has been read by then.
  await new Promise<void>((resolve, reject) => client.ping((error) => (error === null ? resolve() : reject(error))));
  t.false(isAnswered);
  slow.end("the rest");
  t.is((await answer).fields[":status"], 415);

  const short = await answerOf(client.request({ ...post, "content-length": "9" }).end("short"));
  t.is(short.code, constants.NGHTTP2_PROTOCOL_ERROR);
  t.deepEqual(short.fields, {});
});

test("X2: a long one is answered before its end, and its rest is not read", async (t) => {
  const client = await session(t);
  const long = client.request(post);
  const answer = answerOf(long);
  let sent = 0;
  const piece = Buffer.alloc(16 * 1024);
  const timer = setInterval(() => {
    if (long.closed || long.destroyed) return;
    sent += piece.length;
    long.write(piece);
  }, 1);
  t.teardown(() => clearInterval(timer));
  const { fields, body, code } = await answer;
  t.is(fields[":status"], 415);
  t.is(body, sentence);
  t.is(code, constants.NGHTTP2_NO_ERROR);
  t.true(sent > 64 * 1024);
});
