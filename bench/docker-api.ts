/**
 * Docker's client at a manager and, in the same run, at a stock dockerd: its usual commands, a list of all tasks with the longest
 * time that other requests wait meanwhile, and many clients that follow events. Tasks run on simulated agents.
 */
import { execFile, execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { Agent, get, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { Generator } from "./generator.ts";
import { agentsOf, atEachManager } from "./load.ts";
import { until, type Peer } from "./peers.ts";
import { percentile, table } from "./table.ts";

const run = promisify(execFile);

interface Load {
  readonly services: number;
  readonly tasks: number;
  readonly agents: number;
  readonly followers: number;
}

const runTimeoutMs = 400_000;
const repeats = 7;
const columns = [
  "manager",
  "load",
  "service ls",
  "node ls",
  "service ps",
  "stack deploy",
  "GET /tasks",
  "its size",
  "longest wait of a ping meanwhile",
  "/events clients",
  "an event at all of them",
];

function ms(value: number): string {
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

/** The client's time for a command, in milliseconds: the median. */
async function commandMs(peer: Peer, ...words: readonly string[]): Promise<number> {
  const times: number[] = [];
  for (let at = 0; at < repeats; at += 1) {
    const startedAt = performance.now();
    await run("docker", ["-H", `unix://${peer.dockerSocket}`, ...words], { timeout: 120_000, maxBuffer: 256 << 20 });
    times.push(performance.now() - startedAt);
  }
  return percentile(times, 0.5);
}

interface Fetched {
  readonly tookMs: number;
  readonly bytes: number;
}

function fetched(socketPath: string, path: string, agent?: Agent): Promise<Fetched> {
  const startedAt = performance.now();
  return new Promise((resolve, reject) => {
    get({ socketPath, path, ...(agent === undefined ? {} : { agent }) }, (response) => {
      let bytes = 0;
      response.on("data", (chunk: Buffer) => (bytes += chunk.length));
      response.on("end", () => resolve({ tookMs: performance.now() - startedAt, bytes }));
    }).on("error", reject);
  });
}

/** A list of all tasks, in the median, and the longest ping that was sent while one was in progress. */
async function listing({ dockerSocket }: Peer): Promise<Fetched & { readonly longestPingMs: number }> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const lists: Fetched[] = [];
  let longestPingMs = 0;
  for (let at = 0; at < repeats; at += 1) {
    let isOver = false;
    const list = fetched(dockerSocket, "/v1.41/tasks").finally(() => (isOver = true));
    while (!isOver) longestPingMs = Math.max(longestPingMs, (await fetched(dockerSocket, "/_ping", agent)).tookMs);
    lists.push(await list);
  }
  agent.destroy();
  return {
    tookMs: percentile(
      lists.map(({ tookMs }) => tookMs),
      0.5,
    ),
    bytes: lists[0]?.bytes ?? 0,
    longestPingMs,
  };
}

/** From the command that changes a node to its event at the last of the followers, in milliseconds. */
async function eventMs(peer: Peer, followers: number): Promise<number> {
  let told = 0;
  let ready = 0;
  const open = Array.from({ length: followers }, () => {
    const filters = encodeURIComponent(JSON.stringify({ type: ["secret"] }));
    const sent = request({ socketPath: peer.dockerSocket, path: `/v1.41/events?filters=${filters}`, agent: false });
    sent.on("response", (response) => {
      ready += 1;
      response.once("data", () => (told += 1)).on("error", () => undefined);
    });
    sent.on("error", () => undefined).end();
    return sent;
  });
  try {
    await until("the followers", () => ready === followers, 60_000);
    const startedAt = performance.now();
    const body = JSON.stringify({ Name: "bench-event", Data: "YQ==" });
    const headers = { "content-type": "application/json" };
    request({ socketPath: peer.dockerSocket, method: "POST", path: "/v1.41/secrets/create", headers }, (response) =>
      response.resume(),
    ).end(body);
    while (told < followers) {
      if (performance.now() - startedAt > 30_000) throw new Error(`${told} of ${followers} followers got the event`);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    return performance.now() - startedAt;
  } finally {
    for (const each of open) each.destroy();
  }
}

async function row(peer: Peer, load: Load, composeFile: string): Promise<readonly string[]> {
  const agents = new Generator(peer, agentsOf({ agents: load.agents, batch: true }));
  try {
    await agents.join();
    for (let at = 0; at < load.services; at += 1) peer.createService(`bench${at}`, load.tasks / load.services);
    await until(`${load.tasks} running tasks`, () => agents.sum("running") >= load.tasks, runTimeoutMs);
    const services = await commandMs(peer, "service", "ls");
    const nodes = await commandMs(peer, "node", "ls");
    const tasks = await commandMs(peer, "service", "ps", "bench0");
    const list = await listing(peer);
    const event = await eventMs(peer, load.followers);
    const startedAt = performance.now();
    const words = ["stack", "deploy", "--resolve-image", "never", "-c", composeFile, "bench"];
    execFileSync("docker", ["-H", `unix://${peer.dockerSocket}`, ...words], { stdio: "ignore", timeout: 120_000 });
    return [
      peer.name,
      `${load.services} services, ${load.tasks.toLocaleString("en")} tasks, ${load.agents} nodes`,
      ms(services),
      ms(nodes),
      ms(tasks),
      ms(performance.now() - startedAt),
      ms(list.tookMs),
      `${(list.bytes / 2 ** 20).toFixed(1)} MiB`,
      ms(list.longestPingMs),
      String(load.followers),
      ms(event),
    ];
  } finally {
    await agents.end();
  }
}

export async function dockerApiTable(short: boolean): Promise<string> {
  const loads: readonly Load[] = short
    ? [{ services: 2, tasks: 20, agents: 5, followers: 10 }]
    : [
        { services: 10, tasks: 10, agents: 5, followers: 500 },
        { services: 10, tasks: 20_000, agents: 200, followers: 500 },
      ];
  const folder = mkdtempSync(join(tmpdir(), "muster-bench-docker-"));
  const file = join(folder, "compose.yaml");
  const services = Array.from({ length: 10 }, (_, at) => `  part${at}: {image: "bench:1", deploy: {replicas: 1}}\n`);
  writeFileSync(file, `version: "3.8"\nservices:\n${services.join("")}`);
  try {
    return table(
      "Docker's client at a manager",
      columns,
      await atEachManager(loads, (peer, load) => row(peer, load, file)),
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
