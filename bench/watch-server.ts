/**
 * A manager's Watch on a control socket, in a process of its own so that its time and memory can be told from its
 * watchers'. Arguments: the socket, then JSON of `Pace`.
 *
 * Prints `ready`; for each line on its standard input one JSON line: `rest` gives its memory after a collection, `run` its
 * `Paced` after having written what it was asked to. Ends with its standard input.
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
  // Encoded before: the writer is another process's work.
  const records = Array.from({ length: Math.ceil(events / eventsPerRecord) }, () => writer.patching(eventsPerRecord));
  const everyMs = (1_000 * eventsPerRecord) / eventsPerSecond;
  const before = process.cpuUsage();
  const startedAt = performance.now();
  let rssMax = 0;
  for (const [at, record] of records.entries()) {
    const waitMs = startedAt + at * everyMs - performance.now();
    // Late ones follow at once, but others have their turn between.
    await new Promise<void>((resolve) => (waitMs > 1 ? setTimeout(resolve, waitMs) : setImmediate(resolve)));
    apply(record);
    if (at % 10 === 0) rssMax = Math.max(rssMax, process.memoryUsage.rss());
  }
  const seconds = (performance.now() - startedAt) / 1_000;
  // What is still on its way belongs to the work.
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
