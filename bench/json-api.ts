/**
 * The JSON API: round trips on one connection, and many connections that watch while the cluster changes: how late they are
 * told, what a connection costs in memory, and whether what they were told adds up to what is there.
 */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { WebSocket } from "ws";
import type { Load, Memory, Ran } from "./json-server.ts";
import { table } from "./table.ts";

/** Of so many clients everything is read; the others only ask again, since all of them share this process. */
const readersMax = 20;
const watchersEach = 2;

interface Server {
  readonly port: number;
  ask<Answer>(line: string): Promise<Answer>;
  end(): Promise<void>;
}

async function startServer(load: Load): Promise<Server> {
  const script = fileURLToPath(new URL("json-server.ts", import.meta.url));
  const child = spawn(process.execPath, ["--expose-gc", script, JSON.stringify(load)], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const line = async <Answer>(): Promise<Answer> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error("the server ended");
    return JSON.parse(value) as Answer;
  };
  return {
    port: await line<number>(),
    ask<Answer>(text: string): Promise<Answer> {
      child.stdin.write(`${text}\n`);
      return line<Answer>();
    },
    async end() {
      const exit = child.exitCode === null ? new Promise((resolve) => child.once("exit", resolve)) : null;
      child.kill("SIGKILL");
      await exit;
    },
  };
}

type Delta = readonly [
  string,
  string,
  { readonly name?: string; readonly "workload-status"?: { readonly message: string } },
];

class Client {
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, (text: string) => void>();
  #last = 0;
  /** Answers of Next. */
  told = 0;
  /** Milliseconds from a change to its telling; of readers alone. */
  readonly late: number[] = [];
  readonly units = new Map<string, string>();

  constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on("message", (data: Buffer) => {
      const text = data.toString("utf8");
      const id = Number(/^\{"request-id":(\d+)/.exec(text)?.[1]);
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      waiting?.(text);
    });
  }

  ask(type: string, version: number, request: string, params: object = {}, id = ""): Promise<string> {
    this.#last += 1;
    const requestId = this.#last;
    this.#socket.send(JSON.stringify({ "request-id": requestId, type, version, request, id, params }));
    return new Promise((resolve) => this.#waiting.set(requestId, resolve));
  }

  async watch(isReader: boolean): Promise<void> {
    const { response } = JSON.parse(await this.ask("Client", 6, "WatchAll")) as { response: { "watcher-id": string } };
    const next = (): Promise<string> => this.ask("AllWatcher", 3, "Next", {}, response["watcher-id"]);
    const first = await next();
    if (isReader) this.#read(first, false);
    const again = (text: string): void => {
      this.told += 1;
      void next().then(again);
      if (isReader) this.#read(text, true);
    };
    void next().then(again);
  }

  #read(text: string, isTimed: boolean): void {
    const now = Date.now();
    const { deltas } = (JSON.parse(text) as { response: { deltas: readonly Delta[] } }).response;
    for (const [kind, , { name = "", "workload-status": status }] of deltas) {
      if (kind !== "unit" || status === undefined) continue;
      this.units.set(name, status.message);
      if (isTimed) this.late.push(now - Number(status.message));
    }
  }

  close(): void {
    this.#socket.terminate();
  }
}

async function connect(port: number): Promise<Client> {
  const socket = new WebSocket(`wss://localhost:${port}/`, { rejectUnauthorized: false, perMessageDeflate: false });
  await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
  const client = new Client(socket);
  await client.ask("Admin", 3, "Login", { "auth-tag": "user-bench", credentials: "x" });
  return client;
}

async function roundTrips(port: number, seconds: number, pipelined: number): Promise<string> {
  const client = await connect(port);
  let count = 0;
  const end = performance.now() + seconds * 1_000;
  await Promise.all(
    Array.from({ length: pipelined }, async () => {
      for (; performance.now() < end; count += 1) await client.ask("Pinger", 1, "Ping");
    }),
  );
  client.close();
  return `${Math.round(count / seconds)}/s`;
}

async function watched(connections: number, load: Load): Promise<readonly string[]> {
  const server = await startServer(load);
  const clients: Client[] = [];
  try {
    const before = await server.ask<Memory>("rest");
    for (let at = 0; at < connections; at += 1) {
      const client = await connect(server.port);
      for (let watcher = 0; watcher < watchersEach; watcher += 1) await client.watch(at < readersMax);
      clients.push(client);
    }
    const after = await server.ask<Memory>("rest");
    const ran = await server.ask<Ran>("run");
    const readers = clients.slice(0, readersMax);
    const isEqual = ({ units }: Client): boolean =>
      Object.entries(ran.last).every(([name, message]) => units.get(name) === message);
    const until = performance.now() + 10_000;
    while (!readers.every(isEqual) && performance.now() < until)
      await new Promise((resolve) => setTimeout(resolve, 50));
    const late = readers.flatMap((reader) => reader.late).toSorted((left, right) => left - right);
    const part = (share: number): number => late[Math.floor(late.length * share)] ?? 0;
    const each = (bytes: number): number => Math.round(bytes / connections / 1_024);
    const told = clients.reduce((sum, client) => sum + client.told, 0);
    return [
      `${connections} connections, ${watchersEach} all-watchers each, ${Math.round(ran.changes / ran.seconds)} changes/s`,
      `${Math.round(told / ran.seconds)} answers/s`,
      `p50 ${part(0.5)} ms, p99 ${part(0.99)} ms`,
      `${each(after.managed - before.managed)} KiB and outside, for TLS above all, ${each(after.rss - before.rss - (after.managed - before.managed))} KiB`,
      `${Math.round((ran.cpuSeconds / ran.seconds) * 100)} % CPU`,
      readers.every(isEqual) ? "final states equal" : "final states DIFFER",
    ];
  } finally {
    for (const client of clients) client.close();
    await server.end();
  }
}

export async function jsonApiTable(short: boolean): Promise<string> {
  const seconds = short ? 1 : 5;
  const server = await startServer({ tasks: 100, changesPerSecond: 1, seconds: 1 });
  const rows: (readonly string[])[] = [];
  try {
    rows.push(["one connection, one request at a time", await roundTrips(server.port, seconds, 1)]);
    rows.push(["one connection, 100 requests under way", await roundTrips(server.port, seconds, 100)]);
  } finally {
    await server.end();
  }
  const load: Load = { tasks: 100, changesPerSecond: 500, seconds: short ? 2 : 10 };
  rows.push(await watched(short ? 50 : 2_000, load));
  return table("JSON API", ["what", "rate", "late", "memory each", "server", "nothing lost"], rows);
}
