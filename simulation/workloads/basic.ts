/**
 * A client that creates, scales, updates and removes services as a person would. It remembers which changes were
 * acknowledged.
 */
import {
  ControlService,
  GetServiceRequest,
  RemoveServiceRequest,
  type ServiceSpec,
  UpdateServiceRequest,
  type Service,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { TableName } from "../../proto/table-names.ts";
import { Operator, type OperatorOptions } from "./operator.ts";
import { scaledTo, simService, updatedAgain } from "./services.ts";

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

const replicasMax = 8;

interface Known {
  readonly id: string;
  readonly name: string;
  /** The acknowledgement of its last change, until the next attempt. */
  lastWrite: Acknowledged | null;
  /** Number of attempted changes. */
  tried: number;
  readonly creation: Acknowledged;
}

export class Workload extends Operator {
  readonly #writes: Acknowledged[] = [];
  readonly #known = new Map<string, Known>();
  readonly #removed = new Set<string>();
  /** From this version on, version numbers are ambiguous: a new acknowledgement may refer to the lost history. */
  #lostAfter = Number.POSITIVE_INFINITY;

  constructor(options: OperatorOptions) {
    super(options, "workload", { isFirstAtOnce: true });
  }

  get writes(): readonly Acknowledged[] {
    return this.#writes;
  }

  /** Ids of services whose removal was acknowledged. */
  get removed(): ReadonlySet<string> {
    return this.#removed;
  }

  /** The log lost all records after `version`, including acknowledged ones. */
  excuseAfter(version: number): void {
    this.#lostAfter = Math.min(this.#lostAfter, version);
    this.#removed.clear();
    for (const write of this.#writes) write.mayBeGone ||= this.#isAmbiguous(write.version);
  }

  /** A manager that has not noticed the loss may answer a request without its version: its replica is of the lost history. */
  #isAmbiguous(version: number): boolean {
    return this.#lostAfter !== Number.POSITIVE_INFINITY && (version === 0 || version > this.#lostAfter);
  }

  protected async operate(): Promise<void> {
    const services = [...this.#known.values()];
    const kind = services.length === 0 ? 0 : this.random.next();
    if (kind < 0.35) await this.#create();
    else if (kind < 0.65) await this.#change(this.random.pick(services), (spec) => this.#scaled(spec));
    else if (kind < 0.85) await this.#change(this.random.pick(services), updatedAgain);
    else await this.#remove(this.random.pick(services));
  }

  async #create(): Promise<void> {
    const name = this.newName("s");
    const spec = simService({ name, replicas: this.random.below(replicasMax) });
    const service = await this.createService(spec, `create ${name}`);
    if (service === null) throw new RpcError(Status.INTERNAL, "no service in the answer");
    const creation: Acknowledged = {
      table: "service",
      id: service.id,
      version: versionOf(service),
      mayBeGone: this.#isAmbiguous(versionOf(service)),
      holds: () => true,
    };
    this.#writes.push(creation);
    const known: Known = { id: service.id, name, lastWrite: null, tried: 0, creation };
    this.#known.set(service.id, known);
  }

  async #change(known: Known, change: (spec: ServiceSpec) => ServiceSpec): Promise<void> {
    const { service } = await this.call(
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
    const answer = await this.call(
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
      mayBeGone: known.creation.mayBeGone || known.tried !== attempt || this.#isAmbiguous(versionOf(answer.service)),
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
    await this.call(
      ControlService.methods.RemoveService,
      RemoveServiceRequest.create({ serviceId: known.id }),
      `remove ${known.name}`,
    );
    this.#known.delete(known.id);
    if (this.#lostAfter === Number.POSITIVE_INFINITY) this.#removed.add(known.id);
  }

  #scaled(spec: ServiceSpec): ServiceSpec {
    return scaledTo(spec, this.random.below(replicasMax));
  }
}

function versionOf(service: Service): number {
  return service.meta?.version?.index ?? 0;
}
