/** The range of the log in a recording: opening it, and the state at moments of it. */
import {
  Annotations,
  Change,
  Kind,
  Node,
  RecordedTransaction,
  Removal,
  Service,
  ServiceSpec,
  StoreObject,
  Task,
  TaskPatch,
  TaskSpec,
  TaskState,
  TaskStatus,
  Timestamp,
  Transaction,
} from "../proto/gen/messages.ts";
import { RecordedObjects } from "../runtime/recording/recorded-objects.ts";
import { encodeRecord } from "../runtime/store/record.ts";
import { Replica } from "../runtime/store/replica.ts";
import { mebibytes, percentile, seconds, table } from "./table.ts";

const nodes = 1_000;
const services = 100;
/** Milliseconds between two transactions. */
const everyMs = 36;
const seeks = 60;
const states = [TaskState.PENDING, TaskState.ASSIGNED, TaskState.RUNNING, TaskState.FAILED];

const id = (kind: string, at: number): string => `${kind}${at}`.padEnd(25, "0");
const put = (object: Partial<StoreObject>): Change => Change.create({ put: StoreObject.create(object) });

/** A state of `tasks` tasks, and `transactions` transactions, each of which moves a task or replaces one. */
function madeRange(tasks: number, transactions: number): readonly RecordedTransaction[] {
  const replica = new Replica();
  const apply = (version: number, changes: readonly Change[]): Uint8Array => {
    const time = Timestamp.create({ seconds: Math.floor((version * everyMs) / 1_000) });
    const whole = Transaction.create({ epoch: 1, time, writer: id("m", 1), previous: replica.checksum, changes });
    const record = encodeRecord(whole);
    replica.apply(version, record);
    return record;
  };
  const task = (at: number, life: number): Task =>
    Task.create({
      id: id(`t${at}x`, life),
      serviceId: id("s", at % services),
      slot: at,
      nodeId: id("n", at % nodes),
      serviceAnnotations: Annotations.create({ name: `service-${at % services}` }),
      spec: TaskSpec.create({ forceUpdate: at % services }),
      status: TaskStatus.create({ state: TaskState.NEW }),
      desiredState: TaskState.RUNNING,
    });
  apply(1, [
    ...Array.from({ length: nodes }, (_, at) => put({ node: Node.create({ id: id("n", at) }) })),
    ...Array.from({ length: services }, (_, at) => {
      const spec = ServiceSpec.create({ annotations: Annotations.create({ name: `service-${at}` }) });
      return put({ service: Service.create({ id: id("s", at), spec }) });
    }),
    ...Array.from({ length: tasks }, (_, at) => put({ task: task(at, 0) })),
  ]);
  const parts = [RecordedTransaction.create({ version: 1, atMs: everyMs, base: true, record: replica.snapshot() })];
  // The chain begins with the base.
  const lives = new Uint32Array(tasks);
  for (let version = 2; version <= transactions + 1; version += 1) {
    const at = (version * 7_919) % tasks;
    const life = lives[at] as number;
    const state = states[version % states.length] as TaskState;
    const isReplaced = state === TaskState.FAILED;
    const changes = [
      Change.create({
        task: TaskPatch.create({
          id: id(`t${at}x`, life),
          status: TaskStatus.create({ state, err: "", appliedBy: id("m", 1) }),
        }),
      }),
      ...(isReplaced
        ? [
            Change.create({ remove: Removal.create({ kind: Kind.KIND_TASK, id: id(`t${at}x`, life) }) }),
            put({ task: task(at, life + 1) }),
          ]
        : []),
    ];
    if (isReplaced) lives[at] = life + 1;
    parts.push(RecordedTransaction.create({ version, atMs: version * everyMs, record: apply(version, changes) }));
  }
  parts.push(RecordedTransaction.create({ version: transactions + 1, atMs: (transactions + 1) * everyMs, end: true }));
  return parts;
}

/** Time of the processor: other work of the machine does not count. */
function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}

export function recordedRangeTable(short: boolean): string {
  const transactions = short ? 5_000 : 100_000;
  const rows = [1_000, 10_000, 100_000].map((tasks) => {
    const parts = madeRange(tasks, transactions);
    const [begun, cpu] = [performance.now(), cpuMs()];
    const { fault, objects } = RecordedObjects.open(parts);
    const [openedMs, openedCpuMs] = [performance.now() - begun, cpuMs() - cpu];
    if (objects === null) throw fault ?? new Error("no objects");
    const times: number[] = [];
    const cpuTimes: number[] = [];
    for (let seek = 0; seek < seeks; seek += 1) {
      // Back and forth.
      const atMs = everyMs * (1 + ((seek * 61_803) % transactions));
      const [from, cpuFrom] = [performance.now(), cpuMs()];
      objects.at(atMs);
      times.push(performance.now() - from);
      cpuTimes.push(cpuMs() - cpuFrom);
    }
    const bytes = parts.reduce((sum, { record }) => sum + record.length, 0);
    const worst = (all: readonly number[]): string => `${percentile(all, 0.95).toFixed(0)} ms`;
    return [
      tasks.toLocaleString("en"),
      mebibytes(bytes / 2 ** 20),
      `${seconds(openedMs / 1_000)} (${seconds(openedCpuMs / 1_000)} of CPU)`,
      worst(times),
      worst(cpuTimes),
    ];
  });
  return table(
    `The cluster's objects in a recording of ${transactions.toLocaleString("en")} transactions`,
    ["tasks", "range", "opened", "seek (95 %)", "CPU of a seek (95 %)"],
    rows,
  );
}
