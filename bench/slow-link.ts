/**
 * Heartbeats and assignments over a link with a round trip of 100 ms that loses packets: gRPC, NATS, and NATS through a leaf node
 * at the far side, at one manager at the same time. Needs root, for network namespaces and a TUN device.
 */
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { freePort } from "../test/fixtures/ports.ts";
import type { FarOptions, FarResult } from "./far-agents.ts";
import { startLeaf } from "./leaf-server.ts";
import { startMuster } from "./peers.ts";
import { percentile, table } from "./table.ts";

const besideMe = (file: string): string => fileURLToPath(new URL(file, import.meta.url));
const addresses = { near: "10.233.0.1", far: "10.233.0.2" };
/** In each direction. */
const delayMs = 50;
/** Which packets are lost is the same in each run, as far as the traffic is. */
const seed = 1;

interface Slow {
  /** The start of a command line in the network of the managers, or of the nodes. */
  readonly near: readonly string[];
  readonly far: readonly string[];
  /** The share of packets that was lost, in per cent. */
  stop(): Promise<number>;
}

async function startSlowLink(loss: number): Promise<Slow> {
  const names = { near: `muster-bench-${process.pid}-near`, far: `muster-bench-${process.pid}-far` };
  const ip = (...args: string[]): void => void execFileSync("ip", args, { stdio: "ignore" });
  for (const name of Object.values(names)) {
    ip("netns", "add", name);
    ip("-n", name, "link", "set", "lo", "up");
  }
  const args = [names.near, addresses.near, names.far, addresses.far, delayMs, loss, seed].map(String);
  const relay = spawn("python3", [besideMe("lossy-link.py"), ...args], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: relay.stdout });
  await once(lines, "line");
  const inside = (name: string): readonly string[] => ["nsenter", `--net=/run/netns/${name}`, "--"];
  return {
    near: inside(names.near),
    far: inside(names.far),
    stop: async () => {
      const said = once(lines, "line") as Promise<[string]>;
      relay.stdin.end();
      const [passed = 0, lost = 0] = (await said)[0].split(" ").map(Number);
      for (const name of Object.values(names)) ip("netns", "del", name);
      return (100 * lost) / (passed + lost);
    },
  };
}

async function resultsOf(child: ChildProcess): Promise<readonly FarResult[]> {
  let text = "";
  child.stdout?.on("data", (chunk: Buffer) => (text += chunk.toString()));
  const [code] = (await once(child, "close")) as [number | null];
  if (code !== 0) throw new Error(`the far agents ended with ${code}`);
  return JSON.parse(text) as readonly FarResult[];
}

async function rowsAt(loss: number, short: boolean): Promise<readonly (readonly string[])[]> {
  const slow = await startSlowLink(loss);
  const [natsPort, leafPort, sitePort] = [await freePort(), await freePort(), await freePort()];
  const listen = [
    ["--listen-nodes-nats", `${addresses.near}:${natsPort}`],
    ["--listen-leaf-nodes", `${addresses.near}:${leafPort}`],
  ];
  const peer = await startMuster(listen.flat(), { host: addresses.near, inside: slow.near });
  const manager = `${addresses.near}:${leafPort}`;
  const leaf = await startLeaf(peer, { site: "far", port: sitePort, manager, inside: slow.far });
  let results: readonly FarResult[];
  try {
    const options: FarOptions = {
      host: peer.host,
      port: peer.port,
      socket: peer.socket,
      token: peer.workerToken(),
      links: [
        { name: "gRPC" },
        { name: "NATS", nodesNats: `nats://${addresses.near}:${natsPort}` },
        { name: "NATS, sealed, through a leaf node", nodesNats: leaf.url, site: leaf.site },
      ],
      agents: 10,
      beats: short ? 5 : 200,
      services: short ? 9 : 300,
    };
    const [file, ...args] = [...slow.far, process.execPath, besideMe("far-agents.ts"), JSON.stringify(options)];
    results = await resultsOf(spawn(file, args, { stdio: ["ignore", "pipe", "inherit"] }));
  } finally {
    leaf.stop();
    await peer.stop();
  }
  const lost = await slow.stop();
  const spread = (values: readonly number[]): string =>
    [percentile(values, 0.5), percentile(values, 0.95), Math.max(...values)].map((ms) => ms.toFixed(0)).join(" / ");
  return results.map(({ assignments, heartbeats, name }) => [
    `${lost.toFixed(1)} %`,
    name,
    String(heartbeats.length),
    spread(heartbeats),
    String(assignments.length),
    spread(assignments),
  ]);
}

export async function slowLinkTable(short: boolean): Promise<string> {
  const rows = [...(await rowsAt(0, short)), ...(await rowsAt(0.01, short))];
  const columns = ["packets lost", "link", "heartbeats", "p50 / p95 / max ms", "assignments", "p50 / p95 / max ms"];
  return table(`A link with a round trip of ${2 * delayMs} ms`, columns, rows);
}
