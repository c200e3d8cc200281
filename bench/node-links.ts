/** The costs of a node's link over NATS and over gRPC, in the same run: CPU and memory of the manager, and bytes on the wire. */
import { createServer, connect, type AddressInfo } from "node:net";
import {
  DispatcherService,
  HeartbeatRequest,
  TaskState,
  TaskStatus,
  UpdateTaskStatusRequest,
  UpdateTaskStatusRequest_TaskStatusUpdate,
} from "../proto/gen/messages.ts";
import { newId } from "../runtime/ids.ts";
import { SystemRandom } from "../runtime/system/random.ts";
import { freePort } from "../test/fixtures/ports.ts";
import { Fleet } from "./fleet.ts";
import { Generator } from "./generator.ts";
import { agentsOf, generated, loadCells, loadColumns, measure, type Load } from "./load.ts";
import { startMuster, type MusterPeer } from "./peers.ts";
import { table } from "./table.ts";

const links = ["gRPC", "NATS"] as const;
type LinkName = (typeof links)[number];

/** A manager that serves nodes over both, and the URL for the one over NATS. */
async function startBoth(): Promise<{ readonly peer: MusterPeer; readonly url: string }> {
  const port = await freePort();
  const peer = await startMuster(["--listen-nodes-nats", `127.0.0.1:${port}`]);
  return { peer, url: `nats://127.0.0.1:${port}` };
}

/** SwarmKit's agents report one state of one task in a call, Muster's everything that waits. */
function nameOf({ agents, batch, tasks }: Load): string {
  if (tasks === 0) return `${agents} agents, idle`;
  return `${agents} agents, ${tasks} tasks, ${batch ? "as Muster's agents report" : "one task a call"}`;
}

async function loadRow(link: LinkName, load: Load): Promise<readonly string[]> {
  const { peer, url } = await startBoth();
  try {
    const over = link === "NATS" ? [`--nodes-nats=${url}`] : [];
    const agents = new Generator(
      peer,
      agentsOf(load).map((args) => [...args, ...over]),
    );
    const result = await measure(peer, generated(agents), load).catch((error: Error) => {
      throw new Error(`${error.message}, ${agents.sum("errors")} errors, last: ${agents.lastError}`);
    });
    return [nameOf(load), link, ...loadCells(result)];
  } finally {
    await peer.stop();
  }
}

/** Passes connections on, and counts the bytes of both directions. */
async function countingProxy(to: number) {
  let bytes = 0;
  const server = createServer((incoming) => {
    const outgoing = connect(to, "127.0.0.1");
    for (const socket of [incoming, outgoing]) {
      socket.on("data", (chunk) => (bytes += chunk.length));
      socket.on("error", () => undefined);
      socket.setNoDelay(true);
    }
    incoming.pipe(outgoing).pipe(incoming);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { port: (server.address() as AddressInfo).port, bytes: () => bytes, close: () => server.close() };
}

/** Bytes of one call, over TLS and in both directions, without those of TCP and IP: the mean of `calls` calls, one after the other. */
async function bytesRow(link: LinkName, calls: number): Promise<readonly string[]> {
  const { peer, url } = await startBoth();
  const natsPort = Number(new URL(url).port);
  const proxy = await countingProxy(link === "NATS" ? natsPort : peer.port);
  const fleet = new Fleet({
    host: peer.host,
    port: link === "NATS" ? peer.port : proxy.port,
    token: peer.workerToken(),
    agents: 1,
    batch: false,
    joinsAtOnce: 1,
    ...(link === "NATS" ? { nodesNats: `nats://127.0.0.1:${proxy.port}` } : {}),
  });
  try {
    await fleet.join();
    const [agent] = fleet.agents;
    if (agent === undefined) throw new Error("no agent has joined");
    const { channel, sessionId } = await agent.connectAgain();
    // The first agent's connection is quiet from here on, except for a heartbeat each 5 s: fewer than one in a thousand bytes.
    const mean = async (call: () => Promise<unknown>): Promise<string> => {
      for (let done = 0; done < 10; done += 1) await call();
      const before = proxy.bytes();
      for (let done = 0; done < calls; done += 1) await call();
      return String(Math.round((proxy.bytes() - before) / calls));
    };
    const taskId = newId(new SystemRandom());
    const status = TaskStatus.create({ state: TaskState.RUNNING, message: "started" });
    const update = UpdateTaskStatusRequest_TaskStatusUpdate.create({ taskId, status });
    const { Heartbeat, UpdateTaskStatus } = DispatcherService.methods;
    const beat = await mean(() => channel.unary(Heartbeat, HeartbeatRequest.create({ sessionId })));
    const report = UpdateTaskStatusRequest.create({ sessionId, updates: [update] });
    const reported = await mean(() => channel.unary(UpdateTaskStatus, report));
    channel.close();
    return [link, beat, reported];
  } finally {
    fleet.stop();
    proxy.close();
    await peer.stop();
  }
}

export async function nodeLinksTables(short: boolean): Promise<string> {
  const loads: readonly Load[] = short
    ? [{ agents: 20, tasks: 200, batch: true, idleSeconds: 0 }]
    : [
        { agents: 1_000, tasks: 0, batch: false, idleSeconds: 30 },
        { agents: 200, tasks: 20_000, batch: false, idleSeconds: 0 },
        { agents: 200, tasks: 20_000, batch: true, idleSeconds: 0 },
      ];
  const rows: (readonly string[])[] = [];
  for (const load of loads) for (const link of links) rows.push(await loadRow(link, load));
  const bytes: (readonly string[])[] = [];
  for (const link of links) bytes.push(await bytesRow(link, short ? 50 : 1_000));
  return (
    table("Nodes over gRPC and over NATS (manager with its nats-servers)", ["load", "link", ...loadColumns], rows) +
    table("Bytes of one call", ["link", "heartbeat", "status report"], bytes)
  );
}
