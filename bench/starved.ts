/**
 * SwarmKit's own agents and their manager on a small part of one core together, as on a machine that is busy with other work:
 * whether they settle, and how many tasks are made for those wanted (assigned to a node; an overloaded manager replaces them). Muster and, in the same run, a stock dockerd manager.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { SwarmKitAgents } from "../test/fixtures/swarmkit-agents.ts";
import { peersMissing } from "../test/interop/go/peers.ts";
import { CpuQuota } from "./cpu-quota.ts";
import { atEachManager } from "./load.ts";
import { engineGet, type Peer } from "./peers.ts";
import { seconds, table } from "./table.ts";

interface Load {
  readonly agents: number;
  readonly tasks: number;
  /** For the manager and the agents together, of one core. */
  readonly core: number;
  /** Earlier steps have the whole machine. */
  readonly from: "joins" | "tasks";
  /** How long joining, and then the tasks, may take, in seconds. */
  readonly patience: number;
}

interface Task {
  readonly NodeID?: string;
  readonly Status: { readonly State: string };
}

/** Rare, because each answer costs a starved manager time. */
const pollMs = 5_000;
/** Answers of a starved manager may fail; the next one counts. */
const orNull = async <Value>(asked: Promise<Value>): Promise<Value | null> => asked.catch(() => null);

/** Seconds until the condition held, or null if it did not within `patience` seconds. */
async function secondsUntil(condition: () => Promise<boolean>, patience: number): Promise<number | null> {
  const from = performance.now();
  for (;;) {
    const isMet = await condition();
    const took = (performance.now() - from) / 1_000;
    if (isMet) return took;
    if (took > patience) return null;
    await wait(pollMs);
  }
}

const shownSeconds = (seconds: number | null, load: Load): string =>
  seconds === null ? `not within ${load.patience} s` : `${seconds.toFixed(0)} s`;

async function row(peer: Peer, load: Load): Promise<readonly string[]> {
  const stateDir = mkdtempSync(join(tmpdir(), "muster-bench-agents-"));
  const quota = new CpuQuota(load.core);
  const address = `${peer.host}:${peer.port}`;
  const agents = new SwarmKitAgents({ address, token: peer.workerToken(), count: load.agents, stateDir });
  try {
    const limit = (): void => quota.limit([...peer.pids(), agents.pid]);
    if (load.from === "joins") limit();
    const joined = await secondsUntil(async () => agents.allReady, load.patience);
    const cpu = peer.cpu();
    const cells = [`${load.agents} agents, ${load.core} of a core from the ${load.from} on`, peer.name];
    const joins = [`${agents.ready} in ${shownSeconds(joined, load)}`, seconds(cpu)];
    if (load.tasks === 0) return [...cells, ...joins, "", "", ""];
    limit();
    const service = "starved";
    peer.createService(service, load.tasks);
    const settled = await secondsUntil(
      async () => ((await orNull(peer.running(service))) ?? 0) >= load.tasks,
      load.patience,
    );
    const filters = encodeURIComponent(JSON.stringify({ service: [service] }));
    const tasks = await engineGet<readonly Task[]>(peer.dockerSocket, `/v1.41/tasks?filters=${filters}`);
    const made = tasks.filter(({ NodeID }) => NodeID !== undefined && NodeID !== "").length;
    const running = tasks.filter(({ Status }) => Status.State === "running").length;
    return [
      ...cells,
      ...joins,
      `${running} in ${shownSeconds(settled, load)}`,
      seconds(peer.cpu() - cpu),
      String(made),
    ];
  } finally {
    quota.remove();
    await agents.end();
    rmSync(stateDir, { recursive: true, force: true });
  }
}

export async function starvedTable(short: boolean): Promise<string> {
  const missing = peersMissing("swarmkit-agents");
  if (missing !== null) return `\nThe table of starved agents ${missing}.\n`;
  const loads: readonly Load[] = short
    ? [{ agents: 10, tasks: 50, core: 0.5, from: "joins", patience: 120 }]
    : [
        { agents: 300, tasks: 0, core: 0.25, from: "joins", patience: 300 },
        { agents: 1_000, tasks: 10_000, core: 0.2, from: "tasks", patience: 600 },
      ];
  const rows = await atEachManager(loads, row);
  const columns = ["load", "manager", "joined", "CPU of joins", "tasks RUNNING", "CPU", "tasks made"];
  return table("Starved: SwarmKit's own agents and a manager on a part of a core", columns, rows);
}
