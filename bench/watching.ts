/** The subject of Watch's benchmark: a replica, a Watch service on it, and records of task events to apply. */
import { createWatch, type Watch } from "../actors/watch/watch.ts";
import type { Environment } from "../actors/environment.ts";
import { stampedTimes } from "../machines/elapsed.ts";
import {
  Annotations,
  Change,
  ContainerSpec,
  LogRecord,
  Node,
  NodeStatus,
  NodeStatus_State,
  StoreObject,
  Task,
  TaskPatch,
  TaskSpec,
  TaskState,
  TaskStatus,
  Timestamp,
  Transaction,
} from "../proto/gen/messages.ts";
import { Host } from "../runtime/host.ts";
import type { Telemetry } from "../runtime/ports/index.ts";
import { Replica } from "../runtime/store/replica.ts";
import { encodeRecord } from "../runtime/store/record.ts";
import { SystemClock } from "../runtime/system/clock.ts";
import { SystemRandom } from "../runtime/system/random.ts";
import { createTelemetry } from "../runtime/telemetry/telemetry.ts";

const tasks = 10_000;
const services = 1_000;
const nodes = 100;

const spec = TaskSpec.create({ container: ContainerSpec.create({ image: "bench:1" }) });

/** Tasks are spread over enough services that each watcher can have its own. */
export function serviceOf(at: number): string {
  return `service${String(at % services).padStart(6, "0")}`;
}

function newTask(at: number): Task {
  return Task.create({
    id: `task${String(at).padStart(8, "0")}`,
    serviceId: serviceOf(at),
    slot: at + 1,
    nodeId: `node${at % nodes}`,
    spec,
    serviceAnnotations: Annotations.create({ name: serviceOf(at) }),
    status: TaskStatus.create({ state: TaskState.RUNNING, message: "started" }),
    desiredState: TaskState.RUNNING,
  });
}

/** Writes consecutive records, as a ledger would. */
export class Writer {
  #previous: Uint8Array = new Uint8Array(0);
  #written = 0;
  #next = 0;
  readonly #tasks: number;

  /** `count`: number of tasks. */
  constructor(count = tasks) {
    this.#tasks = count;
  }

  /** Creates all tasks, in records of a thousand. */
  *creating(): Generator<Uint8Array> {
    for (let from = 0; from < this.#tasks; from += 1_000) {
      yield this.#record(
        Array.from({ length: Math.min(1_000, this.#tasks - from) }, (_, at) =>
          Change.create({
            put: StoreObject.create({ task: Task.patch(newTask(from + at), { spec: null }) }),
            spec: 1,
          }),
        ),
      );
    }
  }

  /** The nodes of the tasks, each ready. */
  joining(): Uint8Array {
    return this.#record(
      Array.from({ length: nodes }, (_, at) => {
        const status = NodeStatus.create({ state: NodeStatus_State.READY });
        return Change.create({ put: StoreObject.create({ node: Node.create({ id: `node${at}`, status }) }) });
      }),
    );
  }

  /** A record that changes the status of the next `events` tasks. */
  patching(events: number, message = "started"): Uint8Array {
    return this.#record(
      Array.from({ length: events }, () => {
        const at = (this.#next += 1) % this.#tasks;
        const timestamp = Timestamp.create({ seconds: this.#next });
        const status = TaskStatus.create({ state: TaskState.RUNNING, message, timestamp });
        return Change.create({ task: TaskPatch.create({ id: newTask(at).id, status }) });
      }),
    );
  }

  #record(changes: readonly Change[]): Uint8Array {
    this.#written += 1;
    const time = Timestamp.create({ seconds: 1_000 + this.#written });
    const header = Transaction.create({
      id: `t${this.#written}`,
      epoch: 1,
      previous: this.#previous,
      time,
      writer: "m1",
      specs: [spec],
    });
    const record = encodeRecord(Transaction.patch(header, { changes }));
    this.#previous = LogRecord.decode(record).checksum;
    return record;
  }
}

interface Watchable {
  readonly environment: Environment;
  readonly telemetry: Telemetry;
  readonly watch: Watch;
  readonly replica: Replica;
  readonly apply: (record: Uint8Array) => void;
}

/** `onRecord`: called with each record that creates the tasks. */
export async function watchable(
  writer: Writer,
  onRecord: (record: Uint8Array) => void = () => undefined,
): Promise<Watchable> {
  const telemetry = await createTelemetry({ service: "bench", level: "silent", otlpEndpoint: undefined });
  const replica = new Replica();
  const apply = (record: Uint8Array): void => void replica.apply(replica.version + 1, record);
  for (const record of writer.creating()) {
    apply(record);
    onRecord(record);
  }
  const clock = new SystemClock();
  const host = new Host({
    clock,
    telemetry,
    onCrash: (_, error) => {
      throw error;
    },
  });
  const env: Environment = {
    managerId: "m1",
    clock,
    random: new SystemRandom(),
    bus: {
      publish: () => undefined,
      subscribe: () => ({ unsubscribe: () => undefined }),
      request: () => Promise.resolve({ kind: "no-responders" }),
      isUp: () => true,
      onLink: () => ({ unsubscribe: () => undefined }),
    },
    telemetry,
    host,
    store: replica,
    proposer: { propose: () => Promise.resolve({ kind: "unavailable", maybe: false, message: "no leader" }) },
    times: stampedTimes,
  };
  // Nobody resumes here.
  const log = {
    recordBytesMax: 0,
    append: () => Promise.resolve({ kind: "conflict" as const }),
    read: () => ({ unsubscribe: () => undefined }),
    bounds: () => Promise.resolve(null),
    purgeBefore: () => Promise.resolve(),
    bytes: () => Promise.resolve(null),
    space: () => "ample" as const,
  };
  const blobs = {
    put: () => Promise.resolve(),
    get: () => Promise.resolve(null),
    list: () => Promise.resolve([]),
    remove: () => Promise.resolve(),
  };
  return { environment: env, telemetry, replica, apply, watch: createWatch(env, { log, blobs }) };
}
