/**
 * Docker's client at a manager and at a stock dockerd, in turns: its usual commands, a list of all tasks with the longest turn of our
 * manager and the longest time that other requests wait meanwhile, and many clients that follow events. Tasks run on simulated agents.
 *
 * A command's time is also shown in parts: the client's alone, against a server that answers with what the manager said before, at once
 * (`replay.ts`), and the manager's alone, which curl needs for the same requests on one connection.
 */
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { Generator } from "./generator.ts";
import { agentsOf } from "./load.ts";
import { engineRead, hasDockerd, startDockerd, startMuster, until, type MusterPeer, type Peer } from "./peers.ts";
import { Replay } from "./replay.ts";
import { percentile, table } from "./table.ts";
import { turnsFromNow } from "./turns.ts";

const run = promisify(execFile);

interface Load {
  readonly services: number;
  readonly tasks: number;
  readonly agents: number;
  readonly followers: number;
}

const runTimeoutMs = 600_000;
const repeats = 9;
/** Time without a list, to compare its turns with. */
const restMs = 2_000;

function ms(value: number): string {
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

function loadName({ services, tasks, agents }: Load): string {
  return `${services} services, ${tasks.toLocaleString("en")} tasks, ${agents} nodes`;
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

async function docker(socket: string, words: readonly string[]): Promise<void> {
  await run("docker", ["-H", `unix://${socket}`, ...words], { timeout: 120_000, maxBuffer: 256 << 20 });
}

/** A command of Docker's client. A command that changes something has another name in it each time, and is undone after. */
interface Command {
  readonly name: string;
  words(stack: string): readonly string[];
  undone?(stack: string): readonly string[];
}

function commandsOf(composeFile: string): readonly Command[] {
  return [
    { name: "service ls", words: () => ["service", "ls"] },
    { name: "node ls", words: () => ["node", "ls"] },
    { name: "service ps", words: () => ["service", "ps", "bench0"] },
    {
      name: "stack deploy",
      words: (stack) => ["stack", "deploy", "--resolve-image", "never", "-c", composeFile, stack],
      undone: (stack) => ["stack", "rm", stack],
    },
  ];
}

/** The time of each request by curl, one after the other on one connection, added up, in milliseconds. */
async function curlMs(socket: string, { asked }: Replay, stackBefore: string, stack: string): Promise<number> {
  const quoted = (value: string): string => JSON.stringify(value.replaceAll(stackBefore, stack));
  const parts = asked.map(({ method, path, body }) =>
    [
      `url = ${quoted(`http://docker${path}`)}`,
      `unix-socket = ${quoted(socket)}`,
      'output = "/dev/null"',
      String.raw`write-out = "%{time_total}\n"`,
      method === "HEAD" ? "head" : `request = "${method}"`,
      ...(body === "" ? [] : ['header = "content-type: application/json"', `data-binary = ${quoted(body)}`]),
    ].join("\n"),
  );
  const curl = run("curl", ["--silent", "--show-error", "--fail", "--config", "-"], { maxBuffer: 1 << 20 });
  curl.child.stdin?.end(parts.join("\nnext\n"));
  const { stdout } = await curl;
  return stdout.split("\n").reduce((sum, seconds) => sum + Number(seconds) * 1_000, 0);
}

const yes = (): boolean => true;
const no = (): boolean => false;

interface Turn {
  readonly peer: Peer;
  readonly replay: Replay;
  /** The replay's Unix socket. */
  readonly socket: string;
  readonly stack: string;
  readonly first: number;
  readonly command: number[];
  readonly client: number[];
  readonly manager: number[];
}

/** Times of a command at each manager, in turns. */
async function timesOf(peers: readonly Peer[], command: Command, folder: string): Promise<readonly Turn[]> {
  let number = 0;
  const stackName = (): string => `stack${(number += 1)}x`;
  const undo = async (peer: Peer, stack: string): Promise<void> => {
    const words = command.undone?.(stack);
    if (words === undefined) return;
    // A stock manager refuses to remove a network while tasks of the removed services still use it.
    await until(words.join(" "), () => docker(peer.dockerSocket, words).then(yes, no));
  };
  const all: Turn[] = [];
  for (const peer of peers) {
    const [once, stack] = [stackName(), stackName()];
    const first = await timed(() => docker(peer.dockerSocket, command.words(once)));
    await undo(peer, once);
    const socket = join(folder, `${peer.name}-${stack}.sock`);
    const replay = await Replay.start(peer.dockerSocket, socket);
    await docker(socket, command.words(stack));
    await undo(peer, stack);
    all.push({ peer, replay, socket, stack, first, command: [], client: [], manager: [] });
  }
  for (let at = 0; at < repeats; at += 1)
    for (const { peer, replay, socket, stack, ...times } of all) {
      const [byClient, byCurl] = [stackName(), stackName()];
      times.command.push(await timed(() => docker(peer.dockerSocket, command.words(byClient))));
      await undo(peer, byClient);
      replay.rewind();
      times.client.push(await timed(() => docker(socket, command.words(stack))));
      times.manager.push(await curlMs(peer.dockerSocket, replay, stack, byCurl));
      await undo(peer, byCurl);
    }
  for (const { replay } of all) replay.stop();
  return all;
}

interface Listing {
  readonly tookMs: number;
  readonly bytes: number;
  readonly longestPingMs: number;
  readonly longestTurnMs: number | null;
}

/** A list of all tasks, and pings that are sent meanwhile. */
async function listing(peer: Peer): Promise<Listing> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  await engineRead(peer.dockerSocket, "/_ping", agent);
  const turns = isMuster(peer) ? await turnsFromNow(peer.turnsSocket) : null;
  let longestPingMs = 0;
  let isOver = false;
  const startedAt = performance.now();
  const list = engineRead(peer.dockerSocket, "/v1.41/tasks").then(({ length }) => {
    isOver = true;
    return { bytes: length, tookMs: performance.now() - startedAt };
  });
  while (!isOver)
    longestPingMs = Math.max(longestPingMs, await timed(() => engineRead(peer.dockerSocket, "/_ping", agent)));
  agent.destroy();
  return { ...(await list), longestPingMs, longestTurnMs: (await turns?.()) ?? null };
}

function isMuster(peer: Peer): peer is MusterPeer {
  return "turnsSocket" in peer;
}

/** From the request that creates a secret to its event at the last of the followers, in milliseconds. */
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

async function listRows(peer: Peer, load: Load): Promise<readonly (readonly string[])[]> {
  const turns = isMuster(peer) ? await turnsFromNow(peer.turnsSocket) : null;
  await new Promise((resolve) => setTimeout(resolve, restMs));
  const atRest = (await turns?.()) ?? null;
  const first = await listing(peer);
  const repeated: Listing[] = [];
  for (let at = 0; at < repeats; at += 1) repeated.push(await listing(peer));
  const turn = (value: number | null): string => (value === null ? "" : ms(value));
  const longest = (of: (list: Listing) => number): number => Math.max(...repeated.map(of));
  const median = percentile(
    repeated.map(({ tookMs }) => tookMs),
    0.5,
  );
  const size = `${(first.bytes / 2 ** 20).toFixed(1)} MiB`;
  return [
    [
      peer.name,
      loadName(load),
      "the first list",
      ms(first.tookMs),
      size,
      ms(first.longestPingMs),
      turn(first.longestTurnMs),
    ],
    [
      peer.name,
      "",
      `${repeats} more`,
      ms(median),
      size,
      ms(longest(({ longestPingMs }) => longestPingMs)),
      isMuster(peer) ? ms(longest(({ longestTurnMs }) => longestTurnMs ?? 0)) : "",
    ],
    [peer.name, "", `none, for ${restMs / 1_000} s`, "", "", "", turn(atRest)],
  ];
}

/** Both managers at once, with agents of their own. */
async function loaded<Result>(load: Load, use: (peers: readonly Peer[]) => Promise<Result>): Promise<Result> {
  const ends: (() => Promise<void>)[] = [];
  try {
    const peers: Peer[] = [];
    for (const start of [() => startMuster([], { measuresTurns: true }), ...(hasDockerd() ? [startDockerd] : [])]) {
      const peer = await start();
      ends.push(() => peer.stop());
      const agents = new Generator(peer, agentsOf({ agents: load.agents, batch: true }));
      ends.push(() => agents.end());
      await agents.join();
      for (let at = 0; at < load.services; at += 1) peer.createService(`bench${at}`, load.tasks / load.services);
      await until(`${load.tasks} running tasks`, () => agents.sum("running") >= load.tasks, runTimeoutMs);
      peers.push(peer);
    }
    return await use(peers);
  } finally {
    for (const end of ends.toReversed()) await end();
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
  const commands: (readonly string[])[] = [];
  const lists: (readonly string[])[] = [];
  const events: (readonly string[])[] = [];
  try {
    for (const load of loads)
      await loaded(load, async (peers) => {
        for (const peer of peers) lists.push(...(await listRows(peer, load)));
        for (const command of commandsOf(file)) {
          for (const { peer, first, ...times } of await timesOf(peers, command, folder))
            commands.push([
              command.name,
              loadName(load),
              peer.name,
              ...[times.command, times.client, times.manager].map((values) => ms(percentile(values, 0.5))),
              ms(first),
            ]);
        }
        for (const peer of peers)
          events.push([peer.name, loadName(load), String(load.followers), ms(await eventMs(peer, load.followers))]);
      });
    return [
      table(
        "Docker's client at a manager",
        ["command", "load", "manager", "median", "client alone", "manager alone", "the first time"],
        commands,
      ),
      table(
        "GET /tasks",
        ["manager", "load", "list", "median", "its size", "longest ping meanwhile", "longest turn"],
        lists,
      ),
      table("GET /events", ["manager", "load", "clients", "an event at all of them"], events),
    ].join("");
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
