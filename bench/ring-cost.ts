/**
 * The cost of watching to a whole manager: CPU and peak memory from `service create` until all tasks run, without the ring of the last
 * minutes, with it, and with a client that also follows the live feed, as an open page does; each time at a freshly started
 * manager. The ways take turns, since the machine is shared.
 */
import { connectUnix } from "../edges/grpc/client.ts";
import { ActorSelection, InspectionService, WatchActorsRequest } from "../proto/gen/messages.ts";
import { Generator } from "./generator.ts";
import { agentsOf, generated, measure, type Load } from "./load.ts";
import { startMuster, type Peer } from "./peers.ts";
import { percentile, table } from "./table.ts";

type Way = "nothing" | "ring" | "ring and a listener";
interface Measured {
  readonly cpuSeconds: number;
  readonly memoryMiB: number;
  /** Steps that the listener received or that were dropped for it, from the start of the manager to the end. */
  readonly steps: number;
}

const ways: readonly Way[] = ["nothing", "ring", "ring and a listener"];

const loads = (isShort: boolean): readonly Pick<Load, "agents" | "tasks" | "batch">[] =>
  isShort
    ? [{ agents: 20, tasks: 200, batch: true }]
    : [
        { agents: 200, tasks: 20_000, batch: true },
        { agents: 200, tasks: 5_000, batch: false },
      ];

/** Follows all actors of the manager; returns the number of steps until then. */
async function listener({ socket }: Peer): Promise<() => number> {
  const channel = await connectUnix(socket);
  let steps = 0;
  const request = WatchActorsRequest.create({ selection: ActorSelection.create() });
  channel.serverStream(InspectionService.methods.Watch, request, {
    onMessage: (feed) => void (steps += feed.steps.length + feed.droppedSteps),
    onEnd: () => undefined,
  });
  return () => {
    channel.close();
    return steps;
  };
}

async function measured(way: Way, load: Pick<Load, "agents" | "tasks" | "batch">): Promise<Measured> {
  const peer = await startMuster(way === "nothing" ? ["--recorder-size", "0"] : []);
  try {
    const end = way === "ring and a listener" ? await listener(peer) : () => 0;
    const agents = generated(new Generator(peer, agentsOf(load)));
    const { cpuSeconds, memoryMiB } = await measure(peer, agents, { ...load, idleSeconds: 0 });
    return { cpuSeconds: cpuSeconds ?? 0, memoryMiB, steps: end() };
  } finally {
    await peer.stop();
  }
}

export async function ringCostTable(isShort: boolean): Promise<string> {
  const turns = isShort ? 1 : 5;
  const rows: string[][] = [];
  for (const load of loads(isShort)) {
    const all: Record<Way, Measured[]> = { nothing: [], ring: [], "ring and a listener": [] };
    for (let turn = 0; turn < turns; turn += 1) for (const way of ways) all[way].push(await measured(way, load));
    const middle = (way: Way, field: keyof Measured): number =>
      percentile(
        all[way].map((each) => each[field]),
        0.5,
      );
    for (const way of ways) {
      const values = all[way].map(({ cpuSeconds }) => cpuSeconds);
      const cpu = middle(way, "cpuSeconds");
      const more = cpu / middle("nothing", "cpuSeconds") - 1;
      rows.push([
        `${load.agents} agents, ${load.tasks} tasks, ${load.batch ? "batched" : "one task a call"}`,
        way,
        `${cpu.toFixed(2)} s (${Math.min(...values).toFixed(2)}–${Math.max(...values).toFixed(2)})`,
        way === "nothing" ? "" : `${more < 0 ? "−" : ""}${Math.abs(more * 100).toFixed(1)} %`,
        `${middle(way, "memoryMiB").toFixed(0)} MiB`,
        way === "ring and a listener" ? middle(way, "steps").toFixed(0) : "",
      ]);
    }
  }
  return table(
    `The cost of watching to a manager (${turns} turns, medians)`,
    ["load", "watched by", "CPU", "more", "peak memory", "steps"],
    rows,
  );
}
