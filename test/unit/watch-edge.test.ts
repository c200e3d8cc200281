/** Watch over a real control socket: data shared between watchers, and the fate of one that does not read. */
import { mkdtempSync, rmSync } from "node:fs";
import { connect as connectHttp2, type ClientHttp2Stream, type IncomingHttpHeaders } from "node:http2";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { createWatch, watchBufferBytesMax } from "../../actors/watch/watch.ts";
import { connectUnix } from "../../edges/grpc/client.ts";
import { frame, framedOnce } from "../../edges/grpc/framing.ts";
import { createGrpcServer } from "../../edges/grpc/server.ts";
import {
  Annotations,
  Config,
  ConfigSpec,
  type WatchMessage,
  WatchRequest,
  WatchRequest_WatchEntry,
  WatchService,
} from "../../proto/gen/messages.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { testManager } from "../support/manager.ts";
import { retainedOf } from "../support/retained.ts";

const configs = WatchRequest.create({
  entries: [WatchRequest_WatchEntry.create({ kind: "config", action: 7 as never })],
});

async function world(t: ExecutionContext) {
  const manager = testManager();
  const watch = createWatch(manager.env, retainedOf(manager));
  const server = createGrpcServer({ telemetry: manager.env.telemetry });
  server.add(WatchService, watch.handlers);
  const folder = mkdtempSync(join(tmpdir(), "muster-"));
  const socket = join(folder, "control.sock");
  await server.listenUnix(socket);
  t.teardown(async () => {
    await server.close(0);
    rmSync(folder, { recursive: true, force: true });
  });
  return { ...manager, watch, socket };
}

function config(at: number, bytes: number): Config {
  const spec = ConfigSpec.create({ annotations: Annotations.create({ name: `c${at}` }), data: new Uint8Array(bytes) });
  return Config.create({ id: `c${at}`, spec });
}

async function until(isTrue: () => boolean): Promise<void> {
  for (let turn = 0; turn < 1_000 && !isTrue(); turn += 1) await new Promise((resolve) => setTimeout(resolve, 5));
  if (!isTrue()) throw new Error("it did not happen");
}

/** A watcher that reads nothing until it is resumed. */
function deaf(t: ExecutionContext, socket: string): ClientHttp2Stream {
  const session = connectHttp2("http://localhost", { createConnection: () => connect(socket) });
  t.teardown(() => session.destroy());
  const stream = session.request({
    ":method": "POST",
    ":path": WatchService.methods.Watch.path,
    "content-type": "application/grpc",
    te: "trailers",
  });
  stream.pause();
  stream.end(frame(WatchRequest.encode(configs)));
  return stream;
}

test("a watcher that does not read is cut off: its queue is released, and it gets the code when it reads", async (t) => {
  const { socket, watch, seed } = await world(t);
  const stream = deaf(t, socket);
  const reader = await connectUnix(socket);
  t.teardown(() => reader.close());
  const read: WatchMessage[] = [];
  reader.serverStream(WatchService.methods.Watch, configs, {
    onMessage: (message) => void read.push(message),
    onEnd: () => undefined,
  });
  await until(() => watch.size() === 2 && read.length === 1);
  const sent = 48;
  for (let at = 0; at < sent && watch.size() === 2; at += 1) {
    seed("config", config(at, 900_000));
    await until(() => read.length === at + 2);
  }
  t.is(watch.size(), 1, "the one that reads stays");
  t.true(read.length > watchBufferBytesMax / 900_000);
  let received = 0;
  const trailers = Promise.withResolvers<IncomingHttpHeaders>();
  stream.on("trailers", (headers) => trailers.resolve(headers));
  stream.on("data", (chunk: Buffer) => (received += chunk.length));
  stream.on("error", (error) => trailers.reject(error));
  stream.resume();
  const { "grpc-status": code, "grpc-message": text } = await trailers.promise;
  t.is(Number(code), Status.RESOURCE_EXHAUSTED);
  t.regex(String(text), /reads too slowly/);
  // One message was already partly sent.
  t.true(received > 900_000 && received < 2_000_000, `${received} bytes`);
});

test("watchers of one question, with large and small messages in between, each get everything", async (t) => {
  const { socket, watch, seed } = await world(t);
  const got = await Promise.all(
    Array.from({ length: 20 }, async (_, at) => {
      const channel = await connectUnix(socket);
      t.teardown(() => channel.close());
      const messages: WatchMessage[] = [];
      const request = WatchRequest.patch(configs, { includeOldObject: at % 2 === 0 });
      channel.serverStream(WatchService.methods.Watch, request, {
        onMessage: (message) => void messages.push(message),
        onEnd: () => undefined,
      });
      return messages;
    }),
  );
  await until(() => watch.size() === 20);
  for (const bytes of [0, 10, 20_000, 5, 400_000, 1]) seed("config", config(1, bytes), config(2, bytes));
  await until(() => got.every((messages) => messages.length === 7));
  for (const [at, messages] of got.entries()) {
    t.deepEqual(
      messages.map(({ version, events }) => [
        version?.index ?? 0,
        ...events.map(({ object, oldObject }) => [object?.config?.spec?.data.length, oldObject !== null]),
      ]),
      [
        [0],
        ...[0, 10, 20_000, 5, 400_000, 1].map((bytes, turn) => [
          turn + 1,
          ...[0, 1].map(() => [bytes, at % 2 === 0 && turn > 0]),
        ]),
      ],
    );
  }
});

test("a message for many streams in a row is encoded once, and not kept beyond the turn", async (t) => {
  let encoded = 0;
  const frames = framedOnce((message) => {
    encoded += 1;
    return message as Uint8Array;
  });
  const [a, b] = [Uint8Array.of(1), new Uint8Array(100_000)];
  t.is(frames(a), frames(a));
  t.is(encoded, 1);
  t.deepEqual(
    frames(b).map(({ length }) => length),
    [5, 100_000],
  );
  t.is(frames(b), frames(b));
  t.is(encoded, 2);
  await Promise.resolve();
  frames(b);
  t.is(encoded, 3);
});
