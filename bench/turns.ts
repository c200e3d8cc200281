/**
 * The longest turn of a process's event loop, for a process that was started with `NODE_OPTIONS=--import` of this file and a socket's path
 * in MUSTER_BENCH_TURNS: while a client is connected there, its turns are measured; when it sends its end, it gets the longest one in
 * milliseconds. Without the variable, this is the client's side only.
 */
import { connect, createServer } from "node:net";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";

const resolutionMs = 1;
const path = process.env["MUSTER_BENCH_TURNS"];
if (path !== undefined) {
  // Not for the processes that this one starts.
  delete process.env["MUSTER_BENCH_TURNS"];
  delete process.env["NODE_OPTIONS"];
  createServer({ allowHalfOpen: true }, (client) => {
    const delay = monitorEventLoopDelay({ resolution: resolutionMs });
    delay.enable();
    client.write("\n");
    client.resume().once("end", () => {
      delay.disable();
      client.end(String(delay.max / 1e6 - resolutionMs));
    });
  })
    .listen(path)
    .unref();
}

export function measuringTurns(socket: string): NodeJS.ProcessEnv {
  return { NODE_OPTIONS: `--import=${fileURLToPath(import.meta.url)}`, MUSTER_BENCH_TURNS: socket };
}

/** Returns when measuring has begun; its result ends it, and gives the longest turn in milliseconds. */
export async function turnsFromNow(socket: string): Promise<() => Promise<number>> {
  const client = connect({ path: socket, allowHalfOpen: true });
  await new Promise((resolve, reject) => client.once("readable", () => resolve(null)).once("error", reject));
  client.read();
  return async () => {
    client.end();
    return Number(await text(client));
  };
}
