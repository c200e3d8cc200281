/**
 * Watchers: the cost of an event for each of a thousand, within the process and over a control socket, and whether any event is
 * lost. Each watcher receives every event, or those of one of a thousand services.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { connectUnix } from "../edges/grpc/client.ts";
import type { Codec, MethodDescriptor } from "../proto/codec.ts";
import {
  SelectBy,
  WatchRequest,
  WatchRequest_WatchEntry,
  WatchService,
  type WatchMessage,
} from "../proto/gen/messages.ts";
import type { CallContext, RpcChannel, Sink } from "../runtime/ports/rpc.ts";
import { mebibytes, table } from "./table.ts";
import type { Pace, Paced } from "./watch-server.ts";
import { serviceOf, watchable, Writer } from "./watching.ts";

type Row = readonly [
  what: string,
  events: string,
  messages: string,
  lost: string,
  perEvent: string,
  perDelivery: string,
  memory: string,
];

const columns = ["watchers", "events", "messages", "lost", "µs/event", "ns/event and watcher", "memory"];

function requestFor(service: string | null, includeOldObject = false): WatchRequest {
  const filters = service === null ? [] : [SelectBy.create({ serviceId: service })];
  const entry = WatchRequest_WatchEntry.create({ kind: "task", action: 7 as never, filters });
  return WatchRequest.create({ entries: [entry], includeOldObject });
}

const local: CallContext = {
  peer: { identity: null, local: true, address: "" },
  signal: new AbortController().signal,
  traceparent: "",
};

const playsMax = 5;

/** Matching and delivery without a wire; the replica's own work is subtracted. */
async function inProcess(
  name: string,
  { watchers, records, eventsPerRecord }: { watchers: number; records: number; eventsPerRecord: number },
  serviceFor: (at: number) => string | null,
): Promise<Row> {
  const writer = new Writer();
  const { watch, apply } = await watchable(writer);
  // CPU time, to exclude other processes; the best of a few runs with warm code.
  const play = (): number => {
    const all = Array.from({ length: records }, () => writer.patching(eventsPerRecord));
    const before = process.cpuUsage();
    for (const record of all) apply(record);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1_000;
  };
  const best = (): number => Math.min(...Array.from({ length: playsMax }, play));
  const alone = best();
  let delivered = 0;
  let messages = 0;
  let last: WatchMessage | null = null;
  const sink: Sink<WatchMessage> = {
    write: (message) => {
      if (message.version === null) return;
      messages += 1;
      delivered += message.events.length;
      if (last === message) return;
      last = message;
    },
    end: () => undefined,
    bufferedBytes: () => 0,
  };
  for (let at = 0; at < watchers; at += 1) watch.handlers.Watch(requestFor(serviceFor(at)), sink, local);
  best();
  messages = delivered = 0;
  const took = best();
  const events = records * eventsPerRecord;
  const plays = playsMax * events;
  const audience = serviceFor(0) === null ? plays * watchers : Math.floor((plays * watchers) / 1_000);
  watch.stop();
  return [
    name,
    String(plays),
    String(messages),
    String(audience - delivered),
    (((took - alone) * 1_000) / events).toFixed(1),
    (((took - alone) * 1e6) / events / watchers).toFixed(1),
    "",
  ];
}

/** Counts what arrives, undecoded: decoding is the watchers' work, and a thousand of them share this machine. */
const raw: MethodDescriptor<WatchRequest, Uint8Array> = {
  ...WatchService.methods.Watch,
  response: { decode: (bytes: Uint8Array) => bytes } as Codec<Uint8Array>,
};

const connectionsMax = 10;

async function overSocket(watchers: number, pace: Pace): Promise<Row> {
  const folder = mkdtempSync(join(tmpdir(), "muster-bench-watch-"));
  const socket = join(folder, "control.sock");
  const script = fileURLToPath(new URL("watch-server.ts", import.meta.url));
  const child = spawn(process.execPath, ["--expose-gc", script, socket, JSON.stringify(pace)], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const channels: RpcChannel[] = [];
  try {
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const line = async <T>(): Promise<T> => {
      const { value, done } = await lines.next();
      if (done === true) throw new Error("the server exited");
      return JSON.parse(value) as T;
    };
    await line();
    for (let at = 0; at < Math.min(connectionsMax, watchers); at += 1) channels.push(await connectUnix(socket));
    let greeted = 0;
    let messages = 0;
    let bytes = 0;
    let ended = 0;
    const receiver = {
      onMessage: (message: Uint8Array) => {
        if (message.length === 0) greeted += 1;
        else {
          messages += 1;
          bytes += message.length;
        }
      },
      onEnd: () => (ended += 1),
    };
    for (let at = 0; at < watchers; at += 1) {
      channels[at % channels.length]?.serverStream(raw, requestFor(null), receiver);
    }
    await until(() => greeted === watchers);
    child.stdin.write("rest\n");
    const before = await line<number>();
    child.stdin.write("run\n");
    const paced = await line<Paced>();
    const wanted = paced.records * watchers;
    await until(() => messages >= wanted || ended > 0);
    const events = paced.records * pace.eventsPerRecord;
    const rate = Math.round(events / paced.seconds);
    const busy = Math.round((paced.cpuSeconds / paced.seconds) * 100);
    return [
      `${watchers} over a control socket, all events, ${pace.eventsPerRecord} per transaction`,
      `${events} at ${rate}/s`,
      `${messages}, ${mebibytes(bytes / 2 ** 20)}`,
      `${wanted - messages}, ${ended} disconnected`,
      ((paced.cpuSeconds * 1e6) / events).toFixed(1),
      ((paced.cpuSeconds * 1e9) / events / watchers).toFixed(1),
      `${busy} % CPU, ${mebibytes(before / 2 ** 20)} before, ${mebibytes(paced.rssMax / 2 ** 20)} peak`,
    ];
  } finally {
    for (const channel of channels) channel.close();
    const exit = child.exitCode === null ? new Promise((resolve) => child.once("exit", resolve)) : Promise.resolve();
    child.kill("SIGKILL");
    await exit;
    rmSync(folder, { recursive: true, force: true });
  }
}

async function until(isTrue: () => boolean): Promise<void> {
  const end = performance.now() + 60_000;
  while (!isTrue() && performance.now() < end) await new Promise((resolve) => setTimeout(resolve, 20));
}

export async function watchTable(short: boolean): Promise<string> {
  const watchers = short ? 50 : 1_000;
  const records = short ? 50 : 500;
  const events = short ? 500 : 10_000;
  const own = (at: number): string => serviceOf(at);
  const rows: Row[] = [
    await inProcess(`${watchers} with the same request`, { watchers, records, eventsPerRecord: 10 }, () => null),
    await inProcess(
      `${watchers} with the same request, 1 per transaction`,
      { watchers, records, eventsPerRecord: 1 },
      () => null,
    ),
    await inProcess(`${watchers}, each of one service`, { watchers, records: records * 20, eventsPerRecord: 10 }, own),
    await overSocket(watchers, { events, eventsPerSecond: 1_000, eventsPerRecord: 10 }),
    await overSocket(watchers, { events: events / 2, eventsPerSecond: 1_000, eventsPerRecord: 1 }),
  ];
  return table("Watchers", columns, rows);
}
