/** Shared code of the store's tests: objects, consecutive records, and managers in a simulated world. */
import type { Environment } from "../../actors/environment.ts";
import { startLeadership, type Leadership, type LeadershipParts } from "../../actors/ledger/leadership.ts";
import {
  Annotations,
  Change,
  ContainerSpec,
  LogRecord,
  Meta,
  Network,
  NetworkSpec,
  Node,
  NodeSpec,
  NodeStatus,
  NodeStatus_State,
  Operation,
  ProposeRequest_Mode,
  SecretReference,
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
  Version,
} from "../../proto/gen/messages.ts";
import { Host } from "../../runtime/host.ts";
import type { Simulation, SimProcess } from "../../runtime/sim/simulation.ts";
import { encodeRecord } from "../../runtime/store/record.ts";
import { Replica } from "../../runtime/store/replica.ts";
import type { Proposal } from "../../runtime/store/store.ts";

export const spec = TaskSpec.create({
  container: ContainerSpec.create({ image: "nginx", secrets: [SecretReference.create({ secretId: "secret1" })] }),
});

export function status(state: TaskState, message = ""): TaskStatus {
  return TaskStatus.create({ state, message, timestamp: Timestamp.create({ seconds: state }) });
}

export function task(id: string, fields: Partial<Task> = {}): Task {
  return Task.create({
    id,
    serviceId: "web",
    slot: 1,
    spec,
    serviceAnnotations: Annotations.create({ name: "Web" }),
    status: status(TaskState.NEW),
    desiredState: TaskState.RUNNING,
    ...fields,
  });
}

export function service(id: string, name: string, version = 0): Service {
  return Service.create({
    id,
    spec: ServiceSpec.create({ annotations: Annotations.create({ name }) }),
    meta: meta(version),
  });
}

export function network(id: string, name: string): Network {
  return Network.create({ id, spec: NetworkSpec.create({ annotations: Annotations.create({ name }) }) });
}

export function node(id: string, fields: Partial<Node> = {}): Node {
  return Node.create({
    id,
    spec: NodeSpec.create({}),
    status: NodeStatus.create({ state: NodeStatus_State.READY }),
    ...fields,
  });
}

export function meta(version: number): Meta {
  return Meta.create({ version: Version.create({ index: version }) });
}

export const put = (fields: Partial<StoreObject>, specPlace = 0): Change =>
  Change.create({ put: StoreObject.create(fields), spec: specPlace });
export const patch = (fields: Partial<TaskPatch>): Change => Change.create({ task: TaskPatch.create(fields) });
export const create = (fields: Partial<StoreObject>): Operation =>
  Operation.create({ create: StoreObject.create(fields) });
export const update = (fields: Partial<StoreObject>): Operation =>
  Operation.create({ update: StoreObject.create(fields) });
export const patchOperation = (fields: Partial<TaskPatch>, reporter = ""): Operation =>
  Operation.create({ task: TaskPatch.create(fields), reporter });

/** Encodes consecutive records, as a ledger would write them. */
export class Writer {
  readonly records: Uint8Array[] = [];
  #previous: Uint8Array = new Uint8Array(0);
  epoch = 1;

  /** Without applying: for records that must be rejected. */
  encode(changes: readonly Change[], fields: Partial<Transaction> = {}): Uint8Array {
    const header = Transaction.create({
      id: `t${this.records.length + 1}`,
      epoch: this.epoch,
      previous: this.#previous,
      time: Timestamp.create({ seconds: 1_000 + this.records.length, nanos: 500e6 }),
      writer: "m1",
      ...fields,
    });
    return encodeRecord(Transaction.patch(header, { changes }));
  }

  write(changes: readonly Change[], fields: Partial<Transaction> = {}): Uint8Array {
    const record = this.encode(changes, fields);
    this.#previous = LogRecord.decode(record).checksum;
    this.records.push(record);
    return record;
  }
}

export function replicaOf(writer: Writer, options: ConstructorParameters<typeof Replica>[0] = {}): Replica {
  const replica = new Replica(options);
  for (const [at, record] of writer.records.entries()) replica.apply(at + 1, record);
  return replica;
}

export interface TestManager {
  readonly process: SimProcess;
  /** Environment of the current life. */
  readonly env: Omit<Environment, "proposer" | "times">;
  readonly replica: Replica;
  readonly leadership: Leadership;
  /** Events of its duties and replica, over all lives. */
  readonly story: string[];
}

export const testTtlMs = 3_000;

/** A manager in which only the store runs. */
export function addManager(simulation: Simulation, name: string, parts: Partial<LeadershipParts> = {}): TestManager {
  const story: string[] = [];
  let life: Omit<TestManager, "process" | "story"> | null = null;
  const current = (): Omit<TestManager, "process" | "story"> => {
    if (life === null) throw new Error(`${name} was not started`);
    return life;
  };
  const process = simulation.process(
    name,
    (ports) => {
      const { clock, telemetry, random, bus, log, blobs } = ports;
      const host = new Host({ clock, telemetry, onCrash: (id, error) => ports.fail(id, error) });
      const replica = new Replica();
      const env = { managerId: name, clock, random, bus, telemetry, host, store: replica };
      const leadership = startLeadership(env, {
        leases: ports.leases("leases", testTtlMs),
        log,
        blobs,
        replica,
        startDuties: (epoch) => {
          story.push(`duties ${epoch}`);
          return { stop: () => story.push(`ended ${epoch}`) };
        },
        onBroken: (error) => {
          story.push(`broken: ${error.message}`);
          ports.fail("store", error);
        },
        encodesAlways: true,
        ...parts,
      });
      life = { env, replica, leadership };
    },
    { onFail: (reason) => story.push(`failed ${reason}`) },
  );
  process.start();
  return {
    process,
    story,
    get env() {
      return current().env;
    },
    get replica() {
      return current().replica;
    },
    get leadership() {
      return current().leadership;
    },
  };
}

export function proposal(operations: readonly Operation[], fields: Partial<Proposal> = {}): Proposal {
  return { operations, mode: ProposeRequest_Mode.ATOMIC, timeoutMs: 20_000, ...fields };
}
