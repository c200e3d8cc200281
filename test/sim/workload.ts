/**
 * A client that creates, scales, updates and removes services as a person would. It remembers which changes were
 * acknowledged.
 */
import {
  Annotations,
  Any,
  ControlService,
  CreateServiceRequest,
  GetServiceRequest,
  GenericRuntimeSpec,
  RemoveServiceRequest,
  ReplicatedService,
  ServiceSpec,
  TaskSpec,
  UpdateServiceRequest,
  type Service,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { Store, TableName } from "../../runtime/store/store.ts";
import { SimClient, type ClientOptions } from "./client.ts";

/** A write that was acknowledged to a client. */
export interface Acknowledged {
  readonly table: TableName;
  readonly id: string;
  /** The version from which on it must be present. */
  readonly version: number;
  /** Set when a later removal was requested, acknowledged or not: then it may be missing. */
  mayBeGone: boolean;
  /** Checks that the write itself is present, such as a spec version; supplied by the workload. */
  readonly holds: (store: Store) => boolean;
}

/** The GenericRuntimeSpec kind of simulated tasks. */
export const taskKind = "sim";

const replicasMax = 8;

export interface WorkloadOptions extends ClientOptions {
  readonly operations: number;
  /** The operations are spread over this many milliseconds. */
  readonly withinMs: number;
}

interface Known {
  readonly id: string;
  readonly name: string;
  /** The acknowledgement of its last change, until the next attempt. */
  lastWrite: Acknowledged | null;
  /** Number of attempted changes. */
  tried: number;
  readonly creation: Acknowledged;
}

export class Workload {
  readonly #options: WorkloadOptions;
  readonly #random: SimRandom;
  readonly #writes: Acknowledged[] = [];
  readonly #services = new Map<string, Known>();
  readonly #removed = new Set<string>();
  readonly #client: SimClient;
  /** From this version on, version numbers are ambiguous: a new acknowledgement may refer to the lost history. */
  #lostAfter = Number.POSITIVE_INFINITY;
  #names = 0;
  #done = 0;

  constructor(options: WorkloadOptions) {
    this.#options = options;
    this.#random = options.ports.random.fork("workload");
    this.#client = new SimClient(options, this.#random);
  }

  get writes(): readonly Acknowledged[] {
    return this.#writes;
  }

  /** Ids of services whose removal was acknowledged. */
  get removed(): ReadonlySet<string> {
    return this.#removed;
  }

  get isDone(): boolean {
    return this.#done === this.#options.operations;
  }

  /** The log lost all records after `version`, including acknowledged ones. */
  excuseAfter(version: number): void {
    this.#lostAfter = Math.min(this.#lostAfter, version);
    this.#removed.clear();
    for (const write of this.#writes) if (write.version > version) write.mayBeGone = true;
  }

  start(): void {
    const { operations, ports, withinMs } = this.#options;
    for (let operation = 0; operation < operations; operation += 1) {
      // The first operation creates a service for the others.
      const at = operation === 0 ? 0 : this.#random.between(0, withinMs);
      ports.clock.after(at, () => void this.#operate().then(() => (this.#done += 1)));
    }
  }

  async #operate(): Promise<void> {
    const services = [...this.#services.values()];
    const kind = services.length === 0 ? 0 : this.#random.next();
    await this.#client.attempt(async () => {
      if (kind < 0.35) await this.#create();
      else if (kind < 0.65) await this.#change(this.#random.pick(services), (spec) => this.#scaled(spec));
      else if (kind < 0.85) await this.#change(this.#random.pick(services), (spec) => this.#updated(spec));
      else await this.#remove(this.#random.pick(services));
    });
  }

  async #create(): Promise<void> {
    const name = `s${(this.#names += 1)}`;
    const spec = ServiceSpec.create({
      annotations: Annotations.create({ name }),
      task: TaskSpec.create({
        generic: GenericRuntimeSpec.create({
          kind: taskKind,
          payload: Any.create({ type_url: "sim", value: new Uint8Array([1]) }),
        }),
      }),
      replicated: ReplicatedService.create({ replicas: this.#random.below(replicasMax) }),
    });
    const { service } = await this.#client.call(
      ControlService.methods.CreateService,
      CreateServiceRequest.create({ spec }),
      `create ${name}`,
    );
    if (service === null) throw new RpcError(Status.INTERNAL, "no service in the answer");
    const creation: Acknowledged = {
      table: "service",
      id: service.id,
      version: versionOf(service),
      mayBeGone: versionOf(service) > this.#lostAfter,
      holds: () => true,
    };
    this.#writes.push(creation);
    const known: Known = { id: service.id, name, lastWrite: null, tried: 0, creation };
    this.#services.set(service.id, known);
  }

  async #change(known: Known, change: (spec: ServiceSpec) => ServiceSpec): Promise<void> {
    const { service } = await this.#client.call(
      ControlService.methods.GetService,
      GetServiceRequest.create({ serviceId: known.id }),
      `get ${known.name}`,
    );
    if (service?.spec === undefined || service.spec === null) return;
    const spec = change(service.spec);
    // From here on the earlier one may have been replaced.
    if (known.lastWrite !== null) known.lastWrite.mayBeGone = true;
    known.lastWrite = null;
    const attempt = (known.tried += 1);
    const answer = await this.#client.call(
      ControlService.methods.UpdateService,
      UpdateServiceRequest.create({ serviceId: known.id, serviceVersion: service.meta?.version ?? null, spec }),
      `update ${known.name} to ${spec.replicated?.replicas} replicas, ${spec.task?.forceUpdate}`,
    );
    if (answer.service === null) return;
    const [replicas, forceUpdate] = [spec.replicated?.replicas, spec.task?.forceUpdate];
    const write: Acknowledged = {
      table: "service",
      id: known.id,
      version: versionOf(answer.service),
      // Another change of it may have been attempted in the meantime.
      mayBeGone: known.creation.mayBeGone || known.tried !== attempt || versionOf(answer.service) > this.#lostAfter,
      holds: (store) => {
        const held = store.get("service", known.id)?.spec;
        return held?.replicated?.replicas === replicas && held?.task?.forceUpdate === forceUpdate;
      },
    };
    if (known.tried === attempt) known.lastWrite = write;
    this.#writes.push(write);
  }

  async #remove(known: Known): Promise<void> {
    known.creation.mayBeGone = true;
    if (known.lastWrite !== null) known.lastWrite.mayBeGone = true;
    await this.#client.call(
      ControlService.methods.RemoveService,
      RemoveServiceRequest.create({ serviceId: known.id }),
      `remove ${known.name}`,
    );
    this.#services.delete(known.id);
    if (this.#lostAfter === Number.POSITIVE_INFINITY) this.#removed.add(known.id);
  }

  #scaled(spec: ServiceSpec): ServiceSpec {
    return ServiceSpec.patch(spec, {
      replicated: ReplicatedService.create({ replicas: this.#random.below(replicasMax) }),
    });
  }

  #updated(spec: ServiceSpec): ServiceSpec {
    const task = spec.task ?? TaskSpec.create();
    return ServiceSpec.patch(spec, { task: TaskSpec.patch(task, { forceUpdate: task.forceUpdate + 1 }) });
  }
}

function versionOf(service: Service): number {
  return service.meta?.version?.index ?? 0;
}
