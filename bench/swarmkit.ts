/**
 * SwarmKit's own agents as the load, against Muster and, in the same run, a stock dockerd manager: both managers serve the
 * agents that SwarmKit was written for. Their tasks run nothing.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SwarmKitAgents } from "../test/fixtures/swarmkit-agents.ts";
import { peersMissing } from "../test/interop/go/peers.ts";
import { atEachManager, loadCells, loadColumns, measure } from "./load.ts";
import { until, type Peer } from "./peers.ts";
import { table } from "./table.ts";

interface Load {
  readonly agents: number;
  readonly tasks: number;
  /** Seconds for which the agents idle before they get tasks; 0: not measured. */
  readonly idleSeconds: number;
}

const timeoutMs = 300_000;
/** As for the simulated agents: real nodes are separate machines. */
const nice = 10;

async function row(peer: Peer, load: Load): Promise<readonly string[]> {
  const { agents: count, tasks } = load;
  const stateDir = mkdtempSync(join(tmpdir(), "muster-bench-agents-"));
  const from = performance.now();
  const address = `${peer.host}:${peer.port}`;
  const agents = new SwarmKitAgents({ address, token: peer.workerToken(), count, stateDir, nice });
  try {
    const result = await measure(
      peer,
      {
        async join() {
          await until(`${count} of SwarmKit's agents at ${peer.name}`, () => agents.allReady, timeoutMs);
          return (performance.now() - from) / 1_000;
        },
        running: async (service) => ({ count: agents.allReady ? await peer.running(service) : 0, at: Date.now() }),
        end: () => agents.end(),
      },
      load,
    );
    return [`${count} agents, ${tasks} tasks`, peer.name, ...loadCells(result)];
  } finally {
    rmSync(stateDir, { recursive: true, force: true });
  }
}

export async function swarmkitTable(short: boolean): Promise<string> {
  const missing = peersMissing("swarmkit-agents");
  if (missing !== null) return `\nThe table of SwarmKit's own agents ${missing}.\n`;
  const loads: readonly Load[] = short
    ? [{ agents: 10, tasks: 50, idleSeconds: 0 }]
    : [
        { agents: 100, tasks: 2_000, idleSeconds: 0 },
        { agents: 1_000, tasks: 10_000, idleSeconds: 20 },
      ];
  const rows = await atEachManager(loads, row);
  return table("Load: SwarmKit's own agents (manager with its NATS)", ["load", "manager", ...loadColumns], rows);
}
