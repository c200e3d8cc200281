/** The cost of the parts in isolation: placing tasks, appending to the log, applying records, calling over TLS. */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { connectTls } from "../edges/grpc/client.ts";
import { NodeSet } from "../machines/scheduling/node-set.ts";
import { Backlog } from "../machines/scheduling/place.ts";
import {
  Annotations,
  Change,
  ContainerSpec,
  DispatcherService,
  EngineDescription,
  HeartbeatRequest,
  LogRecord,
  Node,
  NodeDescription,
  NodeSpec,
  NodeStatus,
  NodeStatus_State,
  Platform,
  Resources,
  SessionRequest,
  StoreObject,
  Task,
  TaskPatch,
  TaskSpec,
  TaskState,
  TaskStatus,
  Timestamp,
  Transaction,
  Version,
} from "../proto/gen/messages.ts";
import { connectNats } from "../runtime/nats/connection.ts";
import { startNatsServer } from "../runtime/nats/server.ts";
import type { RpcChannel } from "../runtime/ports/rpc.ts";
import { encodeRecord } from "../runtime/store/record.ts";
import { Replica } from "../runtime/store/replica.ts";
import { createTelemetry } from "../runtime/telemetry/telemetry.ts";
import { allocating } from "./allocation.ts";
import { percentile, table } from "./table.ts";

type Row = readonly [part: string, muster: string, peer: string];

const spec = TaskSpec.create({ container: ContainerSpec.create({ image: "bench:1" }) });

function newTask(at: number, state: TaskState): Task {
  return Task.create({
    id: `task${String(at).padStart(8, "0")}`,
    serviceId: "web",
    slot: at + 1,
    spec,
    specVersion: Version.create({ index: 1 }),
    serviceAnnotations: Annotations.create({ name: "web" }),
    status: TaskStatus.create({ state, message: "bench" }),
    desiredState: TaskState.RUNNING,
  });
}

function newNode(at: number): Node {
  return Node.create({
    id: `node${String(at).padStart(6, "0")}`,
    spec: NodeSpec.create({ annotations: Annotations.create() }),
    status: NodeStatus.create({ state: NodeStatus_State.READY, addr: "10.0.0.1" }),
    description: NodeDescription.create({
      hostname: `host${at}`,
      platform: Platform.create({ architecture: "x86_64", os: "linux" }),
      resources: Resources.create({ nanoCpus: 8e9, memoryBytes: 32 * 2 ** 30 }),
      engine: EngineDescription.create(),
    }),
  });
}

/** Tasks of one service, all waiting, until each has a node. Includes adding the tasks, but neither encoding nor the log. */
function placing(tasks: number, nodes: number): Row {
  const set = new NodeSet();
  for (let at = 0; at < nodes; at += 1) set.put(newNode(at));
  const waiting = Array.from({ length: tasks }, (_, at) => newTask(at, TaskState.PENDING));
  const backlog = new Backlog(set);
  const startedAt = performance.now();
  for (const task of waiting) backlog.follow(task);
  let placed = 0;
  // Limits as in actors/orchestration/scheduler.ts for one round.
  const limits = { operationsMax: 4_000, replacementsMax: 200, judgementsMax: 200_000 };
  for (let hasMore = true; hasMore;) {
    const round = backlog.round(0, limits);
    placed += round.assignments.length;
    hasMore = round.hasMore;
  }
  const elapsedMs = performance.now() - startedAt;
  if (placed !== tasks) throw new Error(`${placed} of ${tasks} tasks were placed`);
  return [
    `scheduler: ${tasks} tasks on ${nodes} nodes`,
    `${Math.round(elapsedMs)} ms, ${Math.round((tasks / elapsedMs) * 1_000)} tasks/s`,
    "SwarmKit's Go scheduler 5500-7400 tasks/s (measured earlier)",
  ];
}

/** Sequential appends to our own nats-server, started as the ledger's is: it flushes by its default. */
async function appending(appends: number): Promise<Row[]> {
  const dataDir = mkdtempSync(join(tmpdir(), "muster-bench-log-"));
  const telemetry = await createTelemetry({ service: "bench", level: "silent", otlpEndpoint: undefined });
  try {
    const server = await startNatsServer({ dataDir, logFile: join(dataDir, "nats.log"), telemetry });
    try {
      const { url, user, pass, flushesEveryWrite } = server;
      const link = await connectNats({ servers: [url], user, pass, name: "bench", telemetry, flushesEveryWrite });
      const rows: Row[] = [];
      let last = 0;
      for (const bytes of [200, 20_000]) {
        const durations: number[] = [];
        const record = new Uint8Array(bytes).fill(7);
        for (let at = 0; at < appends; at += 1) {
          const startedAt = performance.now();
          const outcome = await link.log.append(record, last);
          durations.push(performance.now() - startedAt);
          if (outcome.kind !== "appended") throw new Error(`the log rejected an append: ${outcome.kind}`);
          last = outcome.sequence;
        }
        rows.push([
          `log append of ${bytes} B, ${appends} sequential, nats-server ${server.version}${flushesEveryWrite ? ", each flushed" : ""}`,
          `p50 ${percentile(durations, 0.5).toFixed(2)} ms, p99 ${percentile(durations, 0.99).toFixed(2)} ms`,
          "",
        ]);
      }
      link.close();
      return rows;
    } finally {
      await server.stop();
    }
  } finally {
    rmSync(dataDir, { recursive: true, force: true });
  }
}

const changesPerRecord = 100;

/** Consecutive records of `changesPerRecord` changes each: first the tasks are created, then each is patched. */
function records(tasks: number): { readonly creating: Uint8Array[]; readonly patching: Uint8Array[] } {
  let previous: Uint8Array = new Uint8Array(0);
  let written = 0;
  const write = (changes: readonly Change[]): Uint8Array => {
    written += 1;
    const time = Timestamp.create({ seconds: 1_000 + written });
    const header = Transaction.create({ id: `t${written}`, epoch: 1, previous, time, writer: "m1", specs: [spec] });
    const record = encodeRecord(Transaction.patch(header, { changes }));
    previous = LogRecord.decode(record).checksum;
    return record;
  };
  const all = (change: (at: number) => Change): Uint8Array[] =>
    Array.from({ length: tasks / changesPerRecord }, (_, record) =>
      write(Array.from({ length: changesPerRecord }, (__, at) => change(record * changesPerRecord + at))),
    );
  return {
    creating: all((at) =>
      Change.create({
        put: StoreObject.create({ task: Task.patch(newTask(at, TaskState.NEW), { spec: null }) }),
        spec: 1,
      }),
    ),
    patching: all((at) => {
      const { id } = newTask(at, TaskState.NEW);
      const status = TaskStatus.create({ state: TaskState.ASSIGNED, message: "scheduler assigned task to node" });
      return Change.create({ task: TaskPatch.create({ id, status, nodeId: `node${at % 100}` }) });
    }),
  };
}

function applying(tasks: number): Row[] {
  const { creating, patching } = records(tasks);
  const replica = new Replica();
  let sequence = 0;
  const microseconds = (list: readonly Uint8Array[]): string => {
    const startedAt = performance.now();
    for (const record of list) replica.apply((sequence += 1), record);
    return `${(((performance.now() - startedAt) * 1_000) / tasks).toFixed(2)} µs/change`;
  };
  const rows: Row[] = [
    [`replica: ${tasks} tasks created, ${changesPerRecord} per record`, microseconds(creating), ""],
    [`replica: ${tasks} tasks patched, ${changesPerRecord} per record`, microseconds(patching), ""],
  ];
  if (replica.count("task") !== tasks) throw new Error("the replica does not contain the tasks");
  return rows;
}

interface Greeting {
  readonly port: number;
  readonly workers: readonly { readonly certificatePem: string; readonly keyPem: string; readonly rootPem: string }[];
}

/** Long enough for the client's caches to go cold, as between an agent's heartbeats, which are seconds apart. */
const pauseMs = 20;
/** Below `workerConnectionsMax`. */
const connectionsPerNode = 50;

/** Calls to a server process over TLS, as agents make them; then connections that only hold a Session. */
async function calling(calls: number, connections: number): Promise<Row[]> {
  const program = fileURLToPath(new URL("grpc-server.ts", import.meta.url));
  const nodes = Math.ceil((connections + 1) / connectionsPerNode);
  const child = spawn(process.execPath, ["--expose-gc", program, String(nodes)], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const channels: RpcChannel[] = [];
  try {
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const line = async <T>(): Promise<T> => {
      const { value, done } = await lines.next();
      if (done === true) throw new Error("the gRPC server exited");
      return JSON.parse(value) as T;
    };
    const { port, workers } = await line<Greeting>();
    const connect = async (): Promise<RpcChannel> => {
      const serverName = "swarm-manager";
      const worker = workers[Math.floor(channels.length / connectionsPerNode)];
      if (worker === undefined) throw new Error("not enough nodes for the connections");
      const channel = await connectTls({ host: "127.0.0.1", port, serverName, ...worker, timeoutMs: 20_000 });
      channels.push(channel);
      return channel;
    };
    const memory = async () => {
      child.stdin.write("\n");
      return await line<{ heapUsed: number; rss: number }>();
    };
    const channel = await connect();
    const beat = () => channel.unary(DispatcherService.methods.Heartbeat, HeartbeatRequest.create({ sessionId: "s" }));
    const clientCpu = (count: number, before: NodeJS.CpuUsage): string => {
      const { user, system } = process.cpuUsage(before);
      return `client's CPU ${Math.round((user + system) / count)} µs a call`;
    };
    const perSecond = async (atOnce: number): Promise<string> => {
      let left = calls;
      const startedAt = performance.now();
      const cpu = process.cpuUsage();
      const caller = async (): Promise<void> => {
        while (left-- > 0) await beat();
      };
      await Promise.all(Array.from({ length: atOnce }, caller));
      const rate = Math.round((calls / (performance.now() - startedAt)) * 1_000);
      return `${rate} calls/s, ${clientCpu(calls, cpu)}`;
    };
    const paced = async (count: number): Promise<string> => {
      const cpu = process.cpuUsage();
      for (let at = 0; at < count; at += 1) {
        await beat();
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
      }
      return clientCpu(count, cpu);
    };
    await perSecond(10);
    const rows: Row[] = [
      ["gRPC over TLS: unary calls, one connection, one at a time", await perSecond(1), ""],
      ["gRPC over TLS: unary calls, one connection, 50 at a time", await perSecond(50), ""],
      [`gRPC over TLS: unary calls with pauses of ${pauseMs} ms, as agents call`, await paced(calls / 50), ""],
    ];
    const before = await memory();
    for (let at = 0; at < connections; at += 1) {
      const idle = await connect();
      await new Promise<void>((resolve, reject) => {
        const receiver = { onMessage: () => resolve(), onEnd: reject };
        idle.serverStream(DispatcherService.methods.Session, SessionRequest.create(), receiver);
      });
    }
    const after = await memory();
    const each = (which: "heapUsed" | "rss"): string =>
      `${((after[which] - before[which]) / connections / 1_000).toFixed(1)} kB`;
    rows.push([
      `gRPC over TLS: memory of one idle connection with a Session, of ${connections}`,
      `${each("heapUsed")} heap, ${each("rss")} RSS`,
      "",
    ]);
    return rows;
  } finally {
    for (const channel of channels) channel.close();
    const exit = child.exitCode === null ? new Promise((resolve) => child.once("exit", resolve)) : Promise.resolve();
    child.kill("SIGKILL");
    await exit;
  }
}

export async function microTables(short: boolean): Promise<string> {
  const rows: Row[] = [
    ...(short ? [placing(2_000, 20)] : [placing(20_000, 200), placing(100_000, 1_000)]),
    ...(short ? [allocating(2_000)] : [allocating(1_000), allocating(10_000), allocating(100_000)]),
    ...(await appending(short ? 200 : 2_000)),
    ...applying(short ? 2_000 : 50_000),
    ...(await calling(short ? 500 : 10_000, short ? 200 : 1_000)),
  ];
  return table("Parts in isolation", ["part", "muster", "peer"], rows);
}
