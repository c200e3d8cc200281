/**
 * Many clients of the JSON API in their own process. Arguments: port, number of clients, and what each does: `tls` or `ws` of
 * `json-bare.ts` and the number of bytes that it requests, twice; or its number of all-watchers. Prints true when all are
 * connected; then, for each line on its standard input, which is the JSON of `Ran["last"]`, what they have `Seen`, once all
 * have received that or after 60 s.
 *
 * Every watcher folds all that it receives. Many receive the same bytes, which are parsed once.
 */
import { once } from "node:events";
import { createInterface } from "node:readline";
import { connect as connectTls } from "node:tls";
import { WebSocket } from "ws";
import { FramedSocket } from "./json-frames.ts";
import type { Seen } from "./json-load.ts";

const [port, count] = [Number(process.argv[2]), Number(process.argv[3])];
const what = process.argv[4] ?? "";
const bytes = Number(process.argv[5]);
const connectsAtOnce = 16;
const foldMs = 60_000;
/** More than the number of different answers at one time. */
const bodiesMax = 32;

type Delta = readonly [
  string,
  string,
  { readonly name?: string; readonly "workload-status"?: { readonly message: string } },
];
interface Response {
  readonly deltas?: readonly Delta[];
  readonly "watcher-id"?: string;
}
interface Body {
  /** As received. */
  readonly bytes: Buffer;
  readonly response: Response;
  readonly units: readonly (readonly [string, string])[];
  /** When the oldest change in it was made; 0 if there is none. */
  readonly oldest: number;
}

const bodies: Body[] = [];
let answers = 0;
let bytesTaken = 0;
const late: number[] = [];

/** `bytes`: the result, and the closing brace of its reply. */
function read(bytes: Buffer): Body {
  const known = bodies.find((body) => body.bytes.equals(bytes));
  if (known !== undefined) return known;
  const { response } = JSON.parse(`{"response":${bytes.toString("utf8")}`) as { response: Response };
  const { deltas = [] } = response;
  const units = deltas.flatMap(([kind, , { name = "", "workload-status": status }]) =>
    kind === "unit" ? [[name, status?.message ?? ""] as const] : [],
  );
  const times = units.map(([, message]) => Number(message)).filter((at) => at > 0);
  const body = { bytes: Buffer.from(bytes), response, units, oldest: times.length === 0 ? 0 : Math.min(...times) };
  bodies.unshift(body);
  bodies.length = Math.min(bodies.length, bodiesMax);
  return body;
}

class Client {
  #socket: FramedSocket | null = null;
  readonly #waiting = new Map<number, (body: Body) => void>();
  #last = 0;

  async open(): Promise<void> {
    this.#socket = await FramedSocket.open(port, (payload) => {
      bytesTaken += payload.length;
      // {"request-id":17,"response":…
      const comma = payload.indexOf(",");
      const id = Number(payload.toString("latin1", 14, comma));
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      waiting?.(read(payload.subarray(payload.indexOf(":", comma) + 1)));
    });
  }

  ask(type: string, version: number, request: string, params: object = {}, id = ""): Promise<Body> {
    this.#last += 1;
    const requestId = this.#last;
    this.#socket?.send(JSON.stringify({ "request-id": requestId, type, version, request, id, params }));
    return new Promise((resolve) => this.#waiting.set(requestId, resolve));
  }

  /** Resolves with the fold of all answers, once the first one has arrived. */
  async watch(): Promise<ReadonlyMap<string, string>> {
    const id = (await this.ask("Client", 6, "WatchAll")).response["watcher-id"] ?? "";
    const fold = new Map<string, string>();
    const next = async (): Promise<void> => {
      const body = await this.ask("AllWatcher", 3, "Next", {}, id);
      for (const [name, message] of body.units) fold.set(name, message);
      if (body.oldest > 0) late.push(Date.now() - body.oldest);
      answers += 1;
    };
    await next();
    void (async () => {
      for (;;) await next();
    })();
    return fold;
  }
}

async function openSocket(): Promise<WebSocket> {
  const socket = new WebSocket(`wss://localhost:${port}/`, { rejectUnauthorized: false, perMessageDeflate: false });
  await once(socket, "open");
  return socket;
}

const folds: ReadonlyMap<string, string>[] = [];
const connects: Record<string, () => Promise<void>> = {
  async tls() {
    const socket = connectTls({ port, host: "localhost", rejectUnauthorized: false });
    await once(socket, "secureConnect");
    for (let times = 0; times < 2; times += 1) {
      socket.write(String(bytes));
      for (let got = 0; got < bytes;) got += ((await once(socket, "data")) as [Buffer])[0].length;
    }
  },
  async ws() {
    const socket = await openSocket();
    for (let times = 0; times < 2; times += 1) {
      socket.send(String(bytes));
      await once(socket, "message");
    }
  },
};
async function connect(): Promise<unknown> {
  const bare = connects[what];
  if (bare !== undefined) return bare();
  const client = new Client();
  await client.open();
  await client.ask("Admin", 3, "Login", { "auth-tag": "user-bench", credentials: "x" });
  for (let watcher = 0; watcher < Number(what); watcher += 1) folds.push(await client.watch());
  return client;
}

let connected = 0;
await Promise.all(
  Array.from({ length: connectsAtOnce }, async () => {
    while (connected < count) {
      connected += 1;
      await connect();
    }
  }),
);
process.stdout.write("true\n");
for await (const line of createInterface({ input: process.stdin })) {
  const last = Object.entries(JSON.parse(line) as Record<string, string>);
  const isWrong = (fold: ReadonlyMap<string, string>): boolean =>
    last.some(([name, message]) => fold.get(name) !== message);
  const until = performance.now() + foldMs;
  while (folds.some(isWrong) && performance.now() < until) await new Promise((resolve) => setTimeout(resolve, 50));
  const sorted = Float64Array.from(late).toSorted();
  const part = (share: number): number => sorted[Math.floor(sorted.length * share)] ?? 0;
  const seen: Seen = {
    answers,
    p50: part(0.5),
    p99: part(0.99),
    bytes: bytesTaken,
    wrong: folds.filter(isWrong).length,
  };
  process.stdout.write(`${JSON.stringify(seen)}\n`);
}
process.exit(0);
