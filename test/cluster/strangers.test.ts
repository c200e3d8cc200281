// Strangers cannot harm a manager: its memory stays bounded, its leader keeps leading, and a node with a certificate is served.
import { readFileSync } from "node:fs";
import { connect as connectSocket, type Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import test, { type ExecutionContext } from "ava";
import { ListClustersRequest, ControlService } from "../../proto/gen/messages.ts";
import { ask } from "../fixtures/control-client.ts";
import { startManager, type TestManager } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const mib = 1024 * 1024;
/**
 * Allowed growth of a manager under each attack: sixteen MiB of budget, some 60 KB for a TLS connection, and Node's heap, which
 * is not collected at once. Before the limits, one connection made it grow by 828 MiB.
 */
const growthBytesMax = 256 * mib;

const preface = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]),
]);

function frame(type: number, flags: number, streamId: number, payload: Uint8Array): Buffer {
  const header = Buffer.alloc(9);
  header.writeUIntBE(payload.length, 0, 3);
  header[3] = type;
  header[4] = flags;
  header.writeUInt32BE(streamId, 5);
  return Buffer.concat([header, payload]);
}

const text = (value: string): Buffer => Buffer.concat([Buffer.of(value.length), Buffer.from(value)]);
const literal = (name: string, value: string): Buffer => Buffer.concat([Buffer.of(0), text(name), text(value)]);
const request = Buffer.concat([
  literal(":method", "POST"),
  literal(":scheme", "https"),
  literal(":path", "/docker.swarmkit.v1.NodeCA/IssueNodeCertificate"),
  literal("content-type", "application/grpc"),
]);

function rssBytes(manager: TestManager): number {
  const status = readFileSync(`/proc/${manager.process.child.pid}/status`, "utf8");
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) * 1024;
}

/** Connects as anybody can; resolves when the handshake is done or the connection has closed. */
async function stranger(t: ExecutionContext, port: number, alpn: string): Promise<TLSSocket> {
  const socket = connectTls({ host: "127.0.0.1", port, rejectUnauthorized: false, ALPNProtocols: [alpn] });
  t.teardown(() => socket.destroy());
  socket.on("error", () => {}).resume();
  await new Promise<void>((resolve) => socket.once("secureConnect", resolve).once("close", () => resolve()));
  return socket;
}

/** Runs the attack while asking the manager for something that only its leader can answer. Logs the figures. */
async function attacked(
  t: ExecutionContext,
  manager: TestManager,
  name: string,
  attack: () => Promise<void>,
): Promise<void> {
  const before = rssBytes(manager);
  let most = before;
  let isOver = false;
  const latencies: number[] = [];
  const watching = (async () => {
    while (!isOver) {
      const begun = performance.now();
      await ask(manager, ControlService.methods.ListClusters, ListClustersRequest.create());
      latencies.push(performance.now() - begun);
      most = Math.max(most, rssBytes(manager));
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  })();
  await attack();
  isOver = true;
  await watching;
  most = Math.max(most, rssBytes(manager));
  const grown = Math.round((most - before) / mib);
  const slowest = Math.round(Math.max(...latencies));
  t.log(
    `${name}: grew by ${grown} MiB from ${Math.round(before / mib)}, ${latencies.length} answers, slowest ${slowest} ms`,
  );
  t.true(latencies.length > 0, `${name}: the manager answered`);
  t.true(most - before < growthBytesMax, `${name}: grew by ${grown} MiB`);
}

/** Writes up to this many bytes while the peer accepts them; resolves when it stops. */
async function push(socket: Socket, piece: Buffer, bytesMax: number): Promise<void> {
  for (let sent = 0; sent < bytesMax && !socket.destroyed; sent += piece.length) {
    if (socket.write(piece)) continue;
    const isTaken = await new Promise<boolean>((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        socket.off("drain", end).off("close", end);
        resolve(!socket.destroyed && !socket.writableNeedDrain);
      };
      const timer = setTimeout(end, 500);
      socket.on("drain", end).on("close", end);
    });
    if (!isTaken) return;
  }
}

test.serial("strangers cannot fill a manager's memory, take its lease or keep its nodes out", async (t) => {
  t.timeout(patient(300_000));
  const jsonPort = await freePort();
  const manager = await startManager(t, { args: ["--json-listen", `127.0.0.1:${jsonPort}`] });
  await manager.ready();
  const changes = (): number => (manager.process.output.match(/"leading"/g) ?? []).length;
  const led = changes();

  await attacked(t, manager, "1,000 unfinished messages on one connection", async () => {
    const socket = await stranger(t, manager.port, "h2");
    socket.write(preface);
    const bytes = Buffer.alloc(16_384);
    bytes.writeUInt32BE(4_000_000, 1);
    // Ignoring flow-control windows, until the manager stops reading.
    for (let id = 1; id < 2_000 && !socket.destroyed; id += 2) socket.write(frame(1, 4, id, request));
    for (let round = 0; round < 16; round += 1)
      for (let id = 1; id < 2_000 && !socket.destroyed; id += 2)
        await push(socket, frame(0, 0, id, round === 0 ? bytes : Buffer.alloc(16_384)), 1);
    socket.destroy();
  });

  await attacked(t, manager, "unfinished messages on 600 connections", async () => {
    const sockets: TLSSocket[] = [];
    for (let n = 0; n < 600; n += 1) sockets.push(await stranger(t, manager.port, "h2"));
    const bytes = Buffer.alloc(16_384);
    bytes.writeUInt32BE(16_000, 1);
    for (const socket of sockets) {
      socket.write(preface);
      for (let id = 1; id < 8; id += 2)
        socket.write(Buffer.concat([frame(1, 4, id, request), frame(0, 0, id, bytes.subarray(0, 15_000))]));
    }
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    for (const socket of sockets) socket.destroy();
  });

  await attacked(t, manager, "a header named 16,000 times, again and again", async () => {
    const long = Buffer.concat([
      Buffer.of(0x40),
      text("x-long"),
      Buffer.from([0x7f, 0xa1, 0x1e]),
      Buffer.alloc(4_000, 0x61),
    ]);
    const again = Buffer.alloc(16_000, 0x80 | 62);
    for (let n = 0; n < 20; n += 1) {
      const socket = await stranger(t, manager.port, "h2");
      socket.write(preface);
      for (let id = 1; id < 100 && !socket.destroyed; id += 2) {
        const block = id === 1 ? [request, long] : [request];
        socket.write(Buffer.concat([frame(1, 0, id, Buffer.concat(block)), frame(9, 4, id, again)]));
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
      socket.destroy();
    }
  });

  await attacked(t, manager, "2,500 silent connections, 500 with an unfinished handshake", async () => {
    const sockets: Socket[] = [];
    for (let n = 0; n < 3_000; n += 1) {
      const socket = connectSocket({ host: "127.0.0.1", port: manager.port });
      socket.on("error", () => {});
      if (n % 6 === 0) socket.write(Buffer.from([0x16, 3, 1, 0, 200, 1]));
      sockets.push(socket);
      if (n % 100 === 0) await new Promise((resolve) => socket.once("connect", resolve).once("close", resolve));
    }
    t.truthy(await manager.muster("node", "ls"));
    for (const socket of sockets) socket.destroy();
  });

  const upgrade =
    "GET /api HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
  const websocket = async (): Promise<TLSSocket> => {
    const socket = await stranger(t, jsonPort, "http/1.1");
    socket.write(upgrade);
    await new Promise((resolve) => socket.once("data", resolve).once("close", resolve));
    return socket;
  };
  /** The header of a text frame, masked with zeros. */
  const header = (bytes: number, isFinal: boolean): Buffer => {
    const out = Buffer.alloc(14);
    out[0] = isFinal ? 0x81 : 0x01;
    out[1] = 0xff;
    out.writeBigUInt64BE(BigInt(bytes), 2);
    return out;
  };

  await attacked(t, manager, "40 unfinished frames of 16 MiB on the JSON API", async () => {
    const sockets = await Promise.all(Array.from({ length: 40 }, websocket));
    await Promise.all(
      sockets.map(async (socket) => {
        socket.write(header(16_000_000, true));
        await push(socket, Buffer.alloc(64 * 1024, 0x20), 15_900_000);
      }),
    );
    for (const socket of sockets) socket.destroy();
  });

  await attacked(t, manager, "15 MB of JSON from two clients, again and again", async () => {
    const json = Buffer.from(
      `{"request-id":1,"type":"Admin","request":"Login","params":{"a":[${"1,".repeat(7_400_000)}1]}}`,
    );
    for (let round = 0; round < 4; round += 1)
      await Promise.all(
        Array.from({ length: 2 }, async () => {
          const socket = await websocket();
          socket.write(header(json.length, true));
          await push(socket, json, json.length);
          await until("the connection to end", () => socket.closed || socket.destroyed);
        }),
      );
  });

  t.is(led, 1);
  t.is(changes(), led, "the leader kept its lease");
});
