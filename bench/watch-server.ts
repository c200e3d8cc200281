/**
 * A manager's Watch on a control socket, in its own process so that its time and memory are separate from its watchers'.
 * Arguments: the socket, then JSON of `Pace`.
 *
 * Prints `ready`; for each line on its standard input one JSON line: `rest` returns its memory after a collection, `run` its
 * `Paced` after writing the requested load. Exits when its standard input closes.
 */
import { createInterface } from "node:readline";
import { createGrpcServer } from "../edges/grpc/server.ts";
import { WatchService } from "../proto/gen/messages.ts";
import { watchable, Writer } from "./watching.ts";

export interface Pace {
  readonly events: number;
  readonly eventsPerSecond: number;
  readonly eventsPerRecord: number;
}

export interface Paced {
  readonly records: number;
  readonly seconds: number;
  readonly cpuSeconds: number;
  readonly rssMax: number;
  /** Open watches at the end. */
  readonly watchers: number;
}

const [socket = "", pace = "{}"] = process.argv.slice(2);
const { events, eventsPerSecond, eventsPerRecord } = JSON.parse(pace) as Pace;

const writer = new Writer();
const { watch, apply, telemetry } = await watchable(writer);
const server = createGrpcServer({ telemetry });
server.add(WatchService, watch.handlers);
await server.listenUnix(socket);
const say = (line: unknown): void => void process.stdout.write(`${JSON.stringify(line)}\n`);

async function run(): Promise<void> {
  // Encoded beforehand: the writer's work belongs to another process.
  const records = Array.from({ length: Math.ceil(events / eventsPerRecord) }, () => writer.patching(eventsPerRecord));
  const everyMs = (1_000 * eventsPerRecord) / eventsPerSecond;
  const before = process.cpuUsage();
  const startedAt = performance.now();
  let rssMax = 0;
  for (const [at, record] of records.entries()) {
    const waitMs = startedAt + at * everyMs - performance.now();
    // Late ones follow immediately, but let other work run in between.
    await new Promise<void>((resolve) => (waitMs > 1 ? setTimeout(resolve, waitMs) : setImmediate(resolve)));
    apply(record);
    if (at % 10 === 0) rssMax = Math.max(rssMax, process.memoryUsage.rss());
  }
  const seconds = (performance.now() - startedAt) / 1_000;
  // Messages still in flight belong to the work.
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  const { user, system } = process.cpuUsage(before);
  const cpuSeconds = (user + system) / 1e6;
  const paced: Paced = { records: records.length, seconds, cpuSeconds, rssMax, watchers: watch.size() };
  say(paced);
}

createInterface({ input: process.stdin })
  .on("line", (line) => {
    globalThis.gc?.();
    if (line === "run") void run();
    else say(process.memoryUsage.rss());
  })
  .on("close", () => process.exit(0));
say("ready");
