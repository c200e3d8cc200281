/**
 * From a command to its RUNNING task: a service of one process, and one of a container on a stock engine, on a cluster without load;
 * the container also at a stock dockerd that manages itself. The command's own start is part of it.
 */
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { Agent } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { packSingleFile } from "../tools/package/single-file.ts";
import { engineMissing, startEngine, type DockerEngine } from "../test/fixtures/docker-engine.ts";
import { Cluster } from "./cluster.ts";
import { engineGet } from "./peers.ts";
import { percentile, table } from "./table.ts";

const run = promisify(execFile);

/** The first tasks start drivers and fill caches. */
const warmUps = 2;
/** Fine enough for a quarter of a second, and little load beside one start. */
const pollMs = 5;
const runningWithinMs = 60_000;
/** For the service before to end, and for its cluster to rest. */
const restMs = 1_500;
/** Older than every service here, and known to Debian's oldest engine. */
const apiVersion = "v1.41";

interface Way {
  readonly name: string;
  /** Socket of the Engine API of its manager. */
  readonly socket: string;
  create(service: string): readonly string[];
  remove(service: string): readonly string[];
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

async function execute([file = "", ...args]: readonly string[]): Promise<void> {
  await run(file, args, { timeout: runningWithinMs });
}

interface Found {
  readonly Status: { readonly State: string };
}

async function tasksOf(socket: string, agent: Agent, service: string): Promise<readonly Found[]> {
  const filters = encodeURIComponent(JSON.stringify({ service: [service] }));
  const found = await engineGet<unknown>(socket, `/${apiVersion}/tasks?filters=${filters}`, agent);
  // Until the service exists, a filter by its name is an error.
  return Array.isArray(found) ? (found as readonly Found[]) : [];
}

interface Took {
  readonly commandMs: number;
  readonly runningMs: number;
}

async function timed(way: Way, service: string): Promise<Took> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  try {
    const begun = performance.now();
    const commandMs = execute(way.create(service)).then(() => performance.now() - begun);
    commandMs.catch(() => {}); // awaited below
    for (;;) {
      const found = await tasksOf(way.socket, agent, service);
      if (found.some(({ Status }) => Status.State === "running")) break;
      if (performance.now() - begun > runningWithinMs)
        throw new Error(`${way.name}: the task of ${service} does not run`);
      await pause(pollMs);
    }
    return { runningMs: performance.now() - begun, commandMs: await commandMs };
  } finally {
    agent.destroy();
    await execute(way.remove(service)).catch(() => {});
  }
}

/** In turns, so that other work of the machine falls on all. */
async function rowsOf(ways: readonly Way[], times: number): Promise<readonly (readonly string[])[]> {
  const taken = ways.map((): Took[] => []);
  for (let turn = 0; turn < warmUps + times; turn += 1)
    for (const [at, way] of ways.entries()) {
      const took = await timed(way, `t${turn}-${at}`);
      if (turn >= warmUps) taken[at]?.push(took);
      await pause(restMs);
    }
  return ways.map(({ name }, at) => {
    const all = taken[at] ?? [];
    const running = all.map(({ runningMs }) => runningMs);
    const command = all.map(({ commandMs }) => commandMs);
    const ms = (value: number): string => `${value.toFixed(0)} ms`;
    return [name, ms(percentile(running, 0.5)), ms(Math.min(...running)), ms(percentile(command, 0.5))];
  });
}

function byDocker(name: string, socket: string): Way {
  const line = ["docker", "-H", `unix://${socket}`, "service"];
  const create = ["create", "--detach", "--quiet", "--no-resolve-image"];
  return {
    name,
    socket,
    create: (service) => [...line, ...create, "--name", service, "bb:1", "sleep", "3600"],
    remove: (service) => [...line, "rm", service],
  };
}

export async function firstTaskTable(short: boolean): Promise<string> {
  const out = mkdtempSync(join(tmpdir(), "muster-bench-package-"));
  const cluster = new Cluster();
  const ends: (() => Promise<void>)[] = [];
  const engine = (): Promise<DockerEngine> =>
    startEngine({ teardown: (end) => void ends.push(end as () => Promise<void>) });
  try {
    const single = await packSingleFile(out);
    const manager = await cluster.manager();
    await cluster.agent(manager, "one");
    const socket = join(dirname(manager.socket), "docker.sock");
    const line = [single, "--host", `unix://${manager.socket}`, "service"];
    const byMuster = (name: string, driver: readonly string[], command: readonly string[]): Way => ({
      name,
      socket,
      create: (service) => [...line, "create", "--detach", "--name", service, ...driver, ...command],
      remove: (service) => [...line, "rm", service],
    });
    const ways = [byMuster("process, muster (single file)", ["--driver", "exec"], ["--", "sleep", "3600"])];
    if (engineMissing() === null) {
      const joined = await engine();
      await joined.join(await manager.muster("token", "worker"), manager.address);
      const stock = await engine();
      await stock.docker("swarm", "init", "--advertise-addr", stock.host, "--listen-addr", `${stock.host}:2398`);
      ways.push(
        byMuster("container on an engine, muster (single file)", [], ["bb:1", "sleep", "3600"]),
        byDocker("container on an engine, docker at muster", socket),
        byDocker("container on an engine, docker at dockerd", join(stock.dir, "docker.sock")),
      );
    }
    const columns = ["service of one task", "RUNNING, median", "fastest", "command alone, median"];
    return table("From a command to its RUNNING task", columns, await rowsOf(ways, short ? 2 : 15));
  } finally {
    await cluster.end();
    for (const end of ends.toReversed()) await end();
    rmSync(out, { recursive: true, force: true });
  }
}
