/**
 * Load generator: `node bench/agents.ts --join ADDR:PORT --token TOKEN --agents N [--batch] [--joins-at-once N]`.
 *
 * Prints one JSON line when all have joined, then one whenever the count of RUNNING tasks changed (looked at every
 * 20 ms), each with the time (epoch ms) of what it reports. Ends on SIGTERM, and when its standard input ends.
 */
import { parseArgs } from "node:util";
import { Fleet } from "./fleet.ts";

const { values } = parseArgs({
  options: {
    join: { type: "string" },
    token: { type: "string" },
    agents: { type: "string", default: "100" },
    batch: { type: "boolean", default: false },
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
  batch: values.batch,
  joinsAtOnce: Number(values["joins-at-once"]),
});

function print(event: string): void {
  fleet.summarize();
  process.stdout.write(`${JSON.stringify({ event, at: Date.now(), ...fleet.counts })}\n`);
}

const started = Date.now();
await fleet.join();
process.stdout.write(
  `${JSON.stringify({ event: "joined", at: Date.now(), ms: Date.now() - started, ...fleet.counts })}\n`,
);
let shown = "";
const looking = setInterval(() => {
  const now = `${fleet.counts.running} ${fleet.counts.registered}`;
  if (now === shown) return;
  shown = now;
  print("counts");
}, 20);
function end(): void {
  clearInterval(looking);
  print("end");
  fleet.stop();
  setTimeout(() => process.exit(0), 200);
}
process.on("SIGTERM", end);
process.stdin.on("end", end).resume();
