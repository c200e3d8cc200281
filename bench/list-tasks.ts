/**
 * ListTasks on a cluster of 100,000 tasks: finding the tasks of a service, and encoding them at the edge. All in one process
 * and without a socket, as CPU time, to exclude other processes.
 */
import { taskHandlers } from "../actors/control/tasks.ts";
import {
  Annotations,
  Change,
  ContainerSpec,
  ContainerStatus,
  ListTasksRequest,
  ListTasksRequest_Filters,
  ListTasksResponse,
  Network,
  NetworkAttachment,
  NetworkSpec,
  Service,
  ServiceSpec,
  StoreObject,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  Timestamp,
  Transaction,
  Version,
} from "../proto/gen/messages.ts";
import type { CallContext } from "../runtime/ports/rpc.ts";
import { encodeRecord } from "../runtime/store/record.ts";
import { Replica } from "../runtime/store/replica.ts";
import { table } from "./table.ts";

type Row = readonly [what: string, found: string, list: string, encode: string, bytes: string];

const columns = ["ListTasks", "found", "list", "encode", "answer"];
const objectsPerRecord = 1_000;
/** Calls of which the median is shown, after as many for warming the code. */
const calls = 15;

const local: CallContext = {
  peer: { identity: null, local: true, address: "" },
  signal: new AbortController().signal,
  traceparent: "",
};

const taskSpec = TaskSpec.create({
  container: ContainerSpec.create({ image: "registry/image:1", env: ["A=b", "C=d"] }),
});

/** Like a running task of a stock engine: with its container, and an address in an overlay network. */
function runningTask(service: number, slot: number): Task {
  const name = `service${service}`;
  return Task.create({
    id: `task${String(service).padStart(8, "0")}x${String(slot).padStart(12, "0")}`,
    serviceId: name,
    slot,
    nodeId: `node${slot % 100}`,
    spec: taskSpec,
    specVersion: Version.create({ index: 1 }),
    serviceAnnotations: Annotations.create({ name, labels: { team: "a" } }),
    status: TaskStatus.create({
      state: TaskState.RUNNING,
      message: "started",
      timestamp: Timestamp.create({ seconds: 1_800_000_000 }),
      container: ContainerStatus.create({ containerId: "c".repeat(64), pid: 4_242 }),
    }),
    desiredState: TaskState.RUNNING,
    networks: [
      NetworkAttachment.create({
        network: Network.create({ id: "net", spec: NetworkSpec.create({ annotations: Annotations.create({ name }) }) }),
        addresses: [`10.1.${slot % 200}.2/24`],
      }),
    ],
  });
}

function filled(services: number, tasksEach: number): Replica {
  const store = new Replica();
  let changes: Change[] = [];
  const flush = (): void => {
    const fields = { id: `t${store.version + 1}`, epoch: 1, previous: store.checksum, changes };
    store.apply(store.version + 1, encodeRecord(Transaction.create(fields)));
    changes = [];
  };
  const put = (object: Partial<StoreObject>): void => {
    changes.push(Change.create({ put: StoreObject.create(object) }));
    if (changes.length === objectsPerRecord) flush();
  };
  for (let service = 0; service < services; service += 1) {
    const annotations = Annotations.create({ name: `service${service}` });
    put({
      service: Service.create({
        id: `service${service}`,
        spec: ServiceSpec.create({ annotations, task: taskSpec }),
        specVersion: Version.create({ index: 1 }),
      }),
    });
    for (let slot = 1; slot <= tasksEach; slot += 1) put({ task: runningTask(service, slot) });
  }
  flush();
  return store;
}

/** Median CPU time of some calls, in milliseconds. */
function medianMs(run: () => void): number {
  const times: number[] = [];
  for (let at = 0; at < 2 * calls; at += 1) {
    const before = process.cpuUsage();
    run();
    const { user, system } = process.cpuUsage(before);
    if (at >= calls) times.push((user + system) / 1_000);
  }
  return times.toSorted((a, b) => a - b)[calls >> 1] as number;
}

function measured(what: string, store: Replica, filters: Partial<ListTasksRequest_Filters>): Row {
  const { ListTasks } = taskHandlers({ store } as unknown as Parameters<typeof taskHandlers>[0]);
  const request = ListTasksRequest.create({ filters: ListTasksRequest_Filters.create(filters) });
  const list = (): ListTasksResponse => ListTasks(request, local) as ListTasksResponse;
  const answer = list();
  const listMs = medianMs(list);
  let bytes = 0;
  const encodeMs = medianMs(() => (bytes = ListTasksResponse.encode(answer).length));
  const kibibytes = `${Math.round(bytes / 1024)} KiB`;
  return [what, String(answer.tasks.length), `${listMs.toFixed(2)} ms`, `${encodeMs.toFixed(2)} ms`, kibibytes];
}

export function listTasksTable(short: boolean): Promise<string> {
  const total = short ? 10_000 : 100_000;
  const rows: Row[] = [];
  const [small, large] = [total / 1_000, total / 10];
  const ofMany = filled(1_000, small);
  const tasks = total.toLocaleString("en");
  rows.push(
    measured(`${small} of ${tasks}, of one service of 1,000`, ofMany, { serviceIds: ["service7"] }),
    measured("the same, desired state RUNNING, current spec", ofMany, {
      serviceIds: ["service7"],
      desiredStates: [TaskState.RUNNING],
      upToDate: true,
    }),
    measured(`tasks of one node of 100, of ${tasks}`, ofMany, { nodeIds: ["node7"] }),
    measured(`one by the prefix of its id, of ${tasks}`, ofMany, { idPrefixes: [runningTask(7, 3).id.slice(0, 24)] }),
  );
  const ofFew = filled(10, large);
  rows.push(
    measured(`${large.toLocaleString("en")} of ${tasks}, of one service of 10`, ofFew, { serviceIds: ["service7"] }),
    measured("the same, desired state RUNNING", ofFew, {
      serviceIds: ["service7"],
      desiredStates: [TaskState.RUNNING],
    }),
  );
  return Promise.resolve(table("Listing tasks", columns, rows));
}
