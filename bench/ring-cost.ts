/**
 * The cost of the ring of the last minutes to a whole manager: CPU and peak memory from `service create` until all tasks run, with
 * the ring and without it, each time at a freshly started manager. The two take turns, since the machine is shared.
 */
import { Generator } from "./generator.ts";
import { agentsOf, generated, measure, type Load } from "./load.ts";
import { startMuster } from "./peers.ts";
import { percentile, table } from "./table.ts";

type Way = "without" | "with";
type Measured = { readonly cpuSeconds: number; readonly memoryMiB: number };

const flags: Readonly<Record<Way, readonly string[]>> = { without: ["--recorder-size", "0"], with: [] };
const ways: readonly Way[] = ["without", "with"];

const loads = (isShort: boolean): readonly Pick<Load, "agents" | "tasks" | "batch">[] =>
  isShort
    ? [{ agents: 20, tasks: 200, batch: true }]
    : [
        { agents: 200, tasks: 20_000, batch: true },
        { agents: 200, tasks: 5_000, batch: false },
      ];

async function measured(way: Way, load: Pick<Load, "agents" | "tasks" | "batch">): Promise<Measured> {
  const peer = await startMuster(flags[way]);
  try {
    const agents = generated(new Generator(peer, agentsOf(load)));
    const { cpuSeconds, memoryMiB } = await measure(peer, agents, { ...load, idleSeconds: 0 });
    return { cpuSeconds: cpuSeconds ?? 0, memoryMiB };
  } finally {
    await peer.stop();
  }
}

export async function ringCostTable(isShort: boolean): Promise<string> {
  const turns = isShort ? 1 : 5;
  const rows: string[][] = [];
  for (const load of loads(isShort)) {
    const all: Record<Way, Measured[]> = { without: [], with: [] };
    for (let turn = 0; turn < turns; turn += 1) for (const way of ways) all[way].push(await measured(way, load));
    const middle = (way: Way, field: keyof Measured): number =>
      percentile(
        all[way].map((each) => each[field]),
        0.5,
      );
    const cpu = (way: Way): string => {
      const values = all[way].map(({ cpuSeconds }) => cpuSeconds);
      return `${middle(way, "cpuSeconds").toFixed(2)} s (${Math.min(...values).toFixed(2)}–${Math.max(...values).toFixed(2)})`;
    };
    const more = middle("with", "cpuSeconds") / middle("without", "cpuSeconds") - 1;
    rows.push([
      `${load.agents} agents, ${load.tasks} tasks, ${load.batch ? "batched" : "one task a call"}`,
      cpu("without"),
      cpu("with"),
      `${more < 0 ? "−" : ""}${Math.abs(more * 100).toFixed(1)} %`,
      `${middle("without", "memoryMiB").toFixed(0)} MiB`,
      `${middle("with", "memoryMiB").toFixed(0)} MiB`,
    ]);
  }
  return table(
    `The ring of a manager (${turns} turns, medians)`,
    ["load", "CPU without the ring", "CPU with it", "more", "peak memory without", "with it"],
    rows,
  );
}
