/**
 * One shape of the scheduler's benchmark, in its own process: `node bench/scheduling.ts '<Shape as JSON>'` prints a Measured as
 * JSON. The process runs what a leader runs: the scheduler's actor, the proposer, the ledger and a replica. Only the log is a
 * variable instead of NATS: the benchmark measures everything up to the append, and applying its result.
 *
 * As in SwarmKit's own benchmark, the clock runs from when nodes and tasks are in the store until the store shows every task
 * with its node, including reading all of them into the scheduler. The setup leaves twice as much garbage as the run itself,
 * and V8 defers its collection until the loop turns: so it turns once before the clock starts. The run's own garbage, and
 * collections during the run, count.
 */
import { setTimeout as pause } from "node:timers/promises";
import { startLedger } from "../actors/ledger/ledger.ts";
import type { Environment } from "../actors/environment.ts";
import { startProposer } from "../actors/ledger/proposer.ts";
import { startScheduler } from "../actors/orchestration/scheduler.ts";
import { stampedTimes } from "../machines/elapsed.ts";
import {
  Annotations,
  Change,
  ContainerSpec,
  Driver,
  EngineDescription,
  Network,
  NetworkAttachment,
  Node,
  NodeDescription,
  NodeSpec,
  NodeStatus,
  NodeStatus_State,
  PluginDescription,
  ResourceRequirements,
  Resources,
  StoreObject,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  Timestamp,
  Transaction,
  Version,
} from "../proto/gen/messages.ts";
import { Host } from "../runtime/host.ts";
import type { AppendOutcome, Log, LogSpace } from "../runtime/ports/index.ts";
import { encodeRecord } from "../runtime/store/record.ts";
import { Replica } from "../runtime/store/replica.ts";
import { SimRandom } from "../runtime/sim/random.ts";
import { SystemClock } from "../runtime/system/clock.ts";
import { createTelemetry } from "../runtime/telemetry/telemetry.ts";
import { memoryMiB } from "./processes.ts";
import { noBus } from "../test/support/manager.ts";

export interface Shape {
  readonly nodes: number;
  readonly tasks: number;
  /** Each task needs a network driver that every third node has. */
  readonly network: boolean;
  /** 0: tasks without service and spec version, as in SwarmKit's benchmark; otherwise so many services with reservations. */
  readonly services: number;
  /** Number of runs, each with a new store. */
  readonly runs: number;
}

export interface Measured {
  /** Duration of each run, in milliseconds. */
  readonly wallMs: readonly number[];
  readonly cpuMs: readonly number[];
  readonly peakRssMiB: number;
  /** Most and fewest tasks on a node with tasks, in the last run. */
  readonly mostOnNode: number;
  readonly fewestOnNode: number;
}

/** Milliseconds for one turn of the loop. */
const turnMs = 5;
/** Changes in a record of the setup: as many as the ledger writes in one. */
const recordChanges = 4_000;

/** Accepts the record that follows the last one, and discards it. */
class CountingLog implements Log {
  readonly recordBytesMax = 1_000_000;
  last = 0;

  append(_data: Uint8Array, expectedLast: number): Promise<AppendOutcome> {
    if (expectedLast !== this.last) return Promise.resolve({ kind: "conflict" });
    this.last += 1;
    return Promise.resolve({ kind: "appended", sequence: this.last });
  }

  read() {
    return { unsubscribe: () => undefined };
  }

  bounds() {
    return Promise.resolve({ first: 1, last: this.last });
  }

  purgeBefore(): Promise<void> {
    return Promise.resolve();
  }

  bytes(): Promise<number> {
    return Promise.resolve(0);
  }

  space(): LogSpace {
    return "ample";
  }
}

function newNode(at: number, shape: Shape): Node {
  const plugins = at % 3 === 0 ? [PluginDescription.create({ type: "Network", name: "network" })] : [];
  return Node.create({
    id: `node${String(at).padStart(21, "0")}`,
    spec: NodeSpec.create({ annotations: Annotations.create({ name: `name${at}` }) }),
    status: NodeStatus.create({ state: NodeStatus_State.READY }),
    description: NodeDescription.create({
      engine: EngineDescription.create({ plugins }),
      resources: shape.services === 0 ? null : Resources.create({ nanoCpus: 64e9, memoryBytes: 2 ** 38 }),
    }),
  });
}

const serviceSpec = TaskSpec.create({
  container: ContainerSpec.create({ image: "bench:1" }),
  resources: ResourceRequirements.create({
    reservations: Resources.create({ nanoCpus: 1e7, memoryBytes: 2 ** 24 }),
  }),
});

function newTask(at: number, shape: Shape): Task {
  const driverState = Driver.create({ name: "network" });
  const attachment = NetworkAttachment.create({ network: Network.create({ id: "net", driverState }) });
  const service = shape.services === 0 ? -1 : at % shape.services;
  return Task.create({
    id: `task${String(at).padStart(21, "0")}`,
    status: TaskStatus.create({ state: TaskState.PENDING, message: "pending task scheduling" }),
    desiredState: TaskState.RUNNING,
    networks: shape.network ? [attachment] : [],
    serviceAnnotations: Annotations.create({ name: service < 0 ? `task${at}` : `service${service}` }),
    ...(service < 0
      ? {}
      : {
          serviceId: `service${String(service).padStart(18, "0")}`,
          slot: Math.floor(at / shape.services) + 1,
          specVersion: Version.create({ index: 1 }),
          spec: serviceSpec,
        }),
  });
}

function* initialChanges(shape: Shape): Iterable<Change> {
  for (let at = 0; at < shape.nodes; at += 1)
    yield Change.create({ put: StoreObject.create({ node: newNode(at, shape) }) });
  for (let at = 0; at < shape.tasks; at += 1)
    yield Change.create({ put: StoreObject.create({ task: newTask(at, shape) }) });
}

function seed(replica: Replica, log: CountingLog, shape: Shape): void {
  let changes: Change[] = [];
  const write = (): void => {
    const header = Transaction.create({
      id: `seed${log.last}`,
      previous: replica.checksum,
      time: Timestamp.create({ seconds: 1_700_000_000 }),
      writer: "seed",
      changes,
    });
    log.last += 1;
    replica.apply(log.last, encodeRecord(header));
    changes = [];
  };
  for (const change of initialChanges(shape)) {
    changes.push(change);
    if (changes.length === recordChanges) write();
  }
  if (changes.length > 0) write();
}

async function leader(shape: Shape) {
  const clock = new SystemClock();
  const telemetry = await createTelemetry({ service: "bench", level: "silent", otlpEndpoint: undefined });
  const onCrash = (_: string, error: unknown): never => {
    throw new Error("an actor crashed", { cause: error });
  };
  const replica = new Replica();
  const log = new CountingLog();
  seed(replica, log, shape);
  const env: Omit<Environment, "proposer" | "times"> = {
    managerId: "bench",
    clock,
    random: new SimRandom("bench"),
    bus: noBus,
    telemetry,
    host: new Host({ clock, telemetry, onCrash }),
    store: replica,
  };
  const leading = Promise.withResolvers<void>();
  const ledger = startLedger(env, {
    log,
    replica,
    follower: { caughtUp: () => Promise.resolve() },
    onLeading: () => leading.resolve(),
    onEnded: () => undefined,
    onDeposed: () => undefined,
    onBroken: (error) => onCrash("", error),
  });
  ledger.take(1);
  await leading.promise;
  const proposer = startProposer(env, { ledger });
  const stop = (): void => {
    proposer.stop();
    ledger.stop();
    env.host.stopAll();
  };
  return { env: { ...env, proposer, times: stampedTimes }, replica, stop };
}

/** Resolves when the store shows so many tasks with a node. */
function assigned(replica: Replica, tasks: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  let left = tasks;
  const watch = replica.watch(({ changes }) => {
    for (const change of changes)
      if (change.table === "task" && change.object.nodeId !== "" && change.old?.nodeId === "") left -= 1;
    if (left > 0) return;
    watch.unsubscribe();
    resolve();
  });
  return promise;
}

function occupancy(replica: Replica): { mostOnNode: number; fewestOnNode: number } {
  const counts = new Map<string, number>();
  for (const { nodeId } of replica.all("task")) counts.set(nodeId, (counts.get(nodeId) ?? 0) + 1);
  let [mostOnNode, fewestOnNode] = [0, Infinity];
  for (const count of counts.values()) {
    mostOnNode = Math.max(mostOnNode, count);
    fewestOnNode = Math.min(fewestOnNode, count);
  }
  return { mostOnNode, fewestOnNode };
}

async function measure(shape: Shape): Promise<Measured> {
  const wallMs: number[] = [];
  const cpuMs: number[] = [];
  let occupied = { mostOnNode: 0, fewestOnNode: 0 };
  for (let run = 0; run < shape.runs; run += 1) {
    const { env, replica, stop } = await leader(shape);
    const done = assigned(replica, shape.tasks);
    await pause(turnMs);
    const cpu = process.threadCpuUsage();
    const startedAt = performance.now();
    const scheduler = startScheduler(env);
    await done;
    wallMs.push(performance.now() - startedAt);
    const { user, system } = process.threadCpuUsage(cpu);
    cpuMs.push((user + system) / 1_000);
    scheduler.stop();
    stop();
    occupied = occupancy(replica);
  }
  return { wallMs, cpuMs, peakRssMiB: memoryMiB([process.pid], "VmHWM"), ...occupied };
}

const shape = JSON.parse(process.argv[2] ?? "{}") as Shape;
process.stdout.write(`${JSON.stringify(await measure(shape))}\n`);
process.exit(0);
