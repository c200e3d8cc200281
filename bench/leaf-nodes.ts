/** Idle agents of several sites, each behind a leaf node of its own, and as many over gRPC: CPU and memory of the manager. */
import { freePort } from "../test/fixtures/ports.ts";
import { Generator } from "./generator.ts";
import { startLeaf, type LeafServer } from "./leaf-server.ts";
import { agentsOf, generated, loadCells, loadColumns, measure } from "./load.ts";
import { startMuster } from "./peers.ts";
import { cpuSeconds, memoryMiB } from "./processes.ts";
import { mebibytes, seconds, table } from "./table.ts";

interface Sites {
  readonly sites: number;
  readonly agentsEach: number;
  readonly idleSeconds: number;
}

async function row({ agentsEach, idleSeconds, sites }: Sites, isOverLeaves: boolean): Promise<readonly string[]> {
  const leafPort = await freePort();
  const listen = [
    "--listen-nodes-nats",
    `127.0.0.1:${await freePort()}`,
    "--listen-leaf-nodes",
    `127.0.0.1:${leafPort}`,
  ];
  const peer = await startMuster(listen);
  const leaves: LeafServer[] = [];
  try {
    const load = { agents: sites * agentsEach, tasks: 0, idleSeconds };
    if (isOverLeaves)
      for (let at = 0; at < sites; at += 1)
        leaves.push(
          await startLeaf(peer, { site: `site${at}`, port: await freePort(), manager: `127.0.0.1:${leafPort}` }),
        );
    const processes = isOverLeaves
      ? leaves.map(({ site, url }, at) => [
          `--agents=${agentsEach}`,
          `--first=${at * agentsEach}`,
          `--nodes-nats=${url}`,
          `--site=${site}`,
          // As many at once as without leaf nodes, in two processes.
          `--joins-at-once=${Math.ceil(100 / sites)}`,
        ])
      : agentsOf({ ...load, batch: false });
    const agents = new Generator(peer, processes);
    const result = await measure(peer, generated(agents), load);
    if (agents.sum("errors") > 0) throw new Error(`${agents.sum("errors")} errors, last: ${agents.lastError}`);
    const pids = leaves.map(({ pid }) => pid);
    const ofLeaves = isOverLeaves ? [seconds(cpuSeconds(pids)), mebibytes(memoryMiB(pids, "VmHWM"))] : ["", ""];
    return [isOverLeaves ? `${sites} leaf nodes` : "gRPC", ...loadCells(result), ...ofLeaves];
  } finally {
    for (const leaf of leaves) leaf.stop();
    await peer.stop();
  }
}

export async function leafNodesTable(short: boolean): Promise<string> {
  const given = short ? { sites: 2, agentsEach: 10, idleSeconds: 1 } : { sites: 10, agentsEach: 500, idleSeconds: 30 };
  const rows = [await row(given, false), await row(given, true)];
  return table(
    `${given.sites * given.agentsEach} idle agents (manager with its nats-servers)`,
    ["link", ...loadColumns, "CPU of leaf nodes", "their memory"],
    rows,
  );
}
