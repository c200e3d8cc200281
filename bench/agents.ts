/**
 * Load generator: `node bench/agents.ts --join ADDR:PORT --token TOKEN --agents N [--first N] [--batch] [--probe]
 * [--nodes-nats URL [--site NAME]] [--wait]`.
 *
 * Prints one JSON line when its agents are prepared, one when all have joined, then one whenever the count of RUNNING tasks has
 * changed (polled every 20 ms), each with the epoch time in ms of what it reports. With `--wait` it joins on a line `join` on
 * its standard input; the line `load` starts counting heartbeats before the first task is assigned. Exits on SIGTERM, and when
 * its standard input closes.
 */
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { Fleet } from "./fleet.ts";

const { values } = parseArgs({
  options: {
    join: { type: "string" },
    token: { type: "string" },
    agents: { type: "string", default: "100" },
    first: { type: "string", default: "0" },
    batch: { type: "boolean", default: false },
    probe: { type: "boolean", default: false },
    wait: { type: "boolean", default: false },
    "nodes-nats": { type: "string" },
    site: { type: "string" },
    "joins-at-once": { type: "string", default: "50" },
  },
});
const [host, port] = (values.join ?? "").split(":");
if (host === undefined || port === undefined || values.token === undefined) {
  process.stderr.write("usage: agents.ts --join ADDR:PORT --token TOKEN [--agents N] [--batch]\n");
  process.exit(125);
}

const fleet = new Fleet({
  host,
  port: Number(port),
  token: values.token,
  agents: Number(values.agents),
  first: Number(values.first),
  batch: values.batch,
  isProbe: values.probe,
  ...(values["nodes-nats"] === undefined ? {} : { nodesNats: values["nodes-nats"] }),
  ...(values.site === undefined ? {} : { site: values.site }),
  joinsAtOnce: Number(values["joins-at-once"]),
});

function print(event: string): void {
  fleet.summarize();
  process.stdout.write(`${JSON.stringify({ event, at: Date.now(), ...fleet.counts })}\n`);
}

let looking: NodeJS.Timeout | undefined;
function end(): void {
  clearInterval(looking);
  print("end");
  fleet.stop();
  setTimeout(() => process.exit(0), 200);
}
process.on("SIGTERM", end);
const joinRequested = new Promise<void>((resolve) => {
  createInterface({ input: process.stdin })
    .on("line", (line) => {
      if (line === "join") resolve();
      else if (line === "load") fleet.isLoaded = true;
    })
    .on("close", end);
});

await fleet.prepare();
print("prepared");
if (values.wait) await joinRequested;
await fleet.join();
print("joined");
let shown = "";
looking = setInterval(() => {
  const now = `${fleet.counts.running} ${fleet.counts.registered}`;
  if (now === shown) return;
  shown = now;
  print("counts");
}, 20);
