/**
 * The JSON API: round trips on one connection, and many connections that watch while the cluster changes: the delay of
 * notifications, the memory of a connection in addition to TLS, and whether the notifications add up to the final state.
 */
import { WebSocket } from "ws";
import { startPart, type Load, type Memory, type Part, type Ran, type Seen } from "./json-load.ts";
import { table } from "./table.ts";

const watchersEach = 2;
/** Approximate size of a watcher's first answer about the cluster of this benchmark. */
const stateBytes = 100_000;
const nothingBytes = 100;

async function roundTrips(port: number, seconds: number, pipelined: number): Promise<string> {
  const socket = new WebSocket(`wss://localhost:${port}/`, { rejectUnauthorized: false, perMessageDeflate: false });
  await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
  const waiting: (() => void)[] = [];
  // Replies of one kind arrive in the order of their requests.
  socket.on("message", () => waiting.shift()?.());
  let last = 0;
  const ask = (type: string, version: number, request: string, params = {}): Promise<void> => {
    last += 1;
    socket.send(JSON.stringify({ "request-id": last, type, version, request, params }));
    return new Promise((resolve) => void waiting.push(resolve));
  };
  await ask("Admin", 3, "Login", { "auth-tag": "user-bench", credentials: "x" });
  let count = 0;
  const end = performance.now() + seconds * 1_000;
  await Promise.all(
    Array.from({ length: pipelined }, async () => {
      for (; performance.now() < end; count += 1) await ask("Pinger", 1, "Ping");
    }),
  );
  socket.terminate();
  return `${Math.round(count / seconds)}/s`;
}

/** Memory that each connection costs the server; the clients stay until they are terminated. */
async function connected(
  server: Part,
  port: number,
  connections: number,
  ...what: readonly string[]
): Promise<{ readonly clients: Part; readonly each: Memory }> {
  // First use allocates memory that stays: it is not part of each connection.
  const first = startPart("json-clients.ts", String(port), "50", ...what);
  await first.next();
  await first.end();
  await new Promise((resolve) => setTimeout(resolve, 500));
  const before = await server.ask<Memory>("rest");
  const clients = startPart("json-clients.ts", String(port), String(connections), ...what);
  await clients.next();
  const after = await server.ask<Memory>("rest");
  const each = (memory: keyof Memory): number => (after[memory] - before[memory]) / connections;
  return { clients, each: { rss: each("rss"), managed: each("managed") } };
}

async function bare(connections: number, what: "tls" | "ws", bytes: number): Promise<Memory> {
  const server = startPart("json-bare.ts", what);
  try {
    const { clients, each } = await connected(server, await server.next<number>(), connections, what, String(bytes));
    await clients.end();
    return each;
  } finally {
    await server.end();
  }
}

const kibibytes = (bytes: number): string => `${Math.round(bytes / 1_024)} KiB`;
const memory = ({ rss, managed }: Memory): string => `${kibibytes(rss)}, managed ${kibibytes(managed)}`;

async function watched(connections: number, load: Load): Promise<readonly (readonly string[])[]> {
  const idle = await bare(connections, "tls", nothingBytes);
  const tls = await bare(connections, "tls", stateBytes);
  const ws = await bare(connections, "ws", stateBytes);
  const server = startPart("json-server.ts", JSON.stringify(load));
  let clients: Part | null = null;
  try {
    const opened = await connected(server, await server.next<number>(), connections, String(watchersEach));
    ({ clients } = opened);
    const ran = await server.ask<Ran>("run");
    const seen = await clients.ask<Seen>(JSON.stringify(ran.last));
    const beyond = (base: Memory): string =>
      memory({ rss: opened.each.rss - base.rss, managed: opened.each.managed - base.managed });
    return [
      [`${connections} connections of TLS only, idle`, "", "", memory(idle)],
      ["… each sent the first answers of two watchers", "", "", memory(tls)],
      ["… and with ws", "", "", memory(ws)],
      [
        `${connections} connections, ${watchersEach} all-watchers each, ${Math.round(ran.changes / ran.seconds)} changes/s`,
        `${Math.round(seen.answers / ran.seconds)} answers/s of ${kibibytes(seen.bytes / seen.answers)}`,
        `p50 ${seen.p50} ms, p99 ${seen.p99} ms`,
        memory(opened.each),
        `${Math.round((ran.cpuSeconds / ran.seconds) * 100)} % CPU`,
        seen.wrong === 0 ? "final states equal" : `final states of ${seen.wrong} watchers DIFFER`,
      ],
      ["… in addition to idle TLS", "", "", beyond(idle)],
      ["… in addition to TLS with the same bytes", "", "", beyond(tls)],
    ];
  } finally {
    await clients?.end();
    await server.end();
  }
}

export async function jsonApiTable(short: boolean): Promise<string> {
  const seconds = short ? 1 : 5;
  const server = startPart("json-server.ts", JSON.stringify({ tasks: 100, changesPerSecond: 1, seconds: 1 } as Load));
  const rows: (readonly string[])[] = [];
  try {
    const port = await server.next<number>();
    rows.push(["one connection, one request at a time", await roundTrips(port, seconds, 1)]);
    rows.push(["one connection, 100 requests in flight", await roundTrips(port, seconds, 100)]);
  } finally {
    await server.end();
  }
  const load: Load = { tasks: 100, changesPerSecond: 500, seconds: short ? 2 : 10 };
  rows.push(...(await watched(short ? 50 : 2_000, load)));
  return table("JSON API", ["what", "rate", "delay", "memory per connection", "server", "lost"], rows);
}
