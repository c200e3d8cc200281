/** A client with cluster volumes: creates, drains and removes them, and services whose tasks mount them. */
import {
  Annotations,
  Any,
  ControlService,
  CreateServiceRequest,
  CreateVolumeRequest,
  Driver,
  ExecSpec,
  GenericRuntimeSpec,
  GetServiceRequest,
  GetVolumeRequest,
  Mount,
  Mount_Type,
  RemoveServiceRequest,
  RemoveVolumeRequest,
  ReplicatedService,
  ServiceSpec,
  TaskSpec,
  UpdateServiceRequest,
  UpdateVolumeRequest,
  VolumeAccessMode,
  VolumeAccessMode_MountVolume,
  VolumeAccessMode_Scope,
  VolumeAccessMode_Sharing,
  VolumeSpec,
  VolumeSpec_VolumeAvailability as Availability,
} from "../../proto/gen/messages.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import { SimClient, type ClientOptions } from "./client.ts";
import { Operations, type OperationsOptions } from "./operations.ts";
import { simPlugin } from "./storage.ts";
import { choosyLabel } from "./workload-placement.ts";

export interface VolumeWorkloadOptions extends ClientOptions, OperationsOptions {}

const replicasMax = 4;
const methods = ControlService.methods;

export class VolumeWorkload {
  readonly #options: VolumeWorkloadOptions;
  readonly #random: SimRandom;
  readonly #client: SimClient;
  readonly #operations: Operations;
  readonly #volumes: { readonly id: string; readonly name: string }[] = [];
  readonly #services: string[] = [];
  #names = 0;

  constructor(options: VolumeWorkloadOptions) {
    this.#options = options;
    this.#random = options.ports.random.fork("workload.volumes");
    this.#client = new SimClient(options, this.#random);
    this.#operations = new Operations(options, this.#random, this.#client);
  }

  get isDone(): boolean {
    return this.#operations.areDone;
  }

  start(): void {
    this.#operations.start(() => this.#operate(), true);
  }

  async #operate(): Promise<void> {
    const kind = this.#volumes.length === 0 ? 0 : this.#random.next();
    if (kind < 0.2) await this.#createVolume();
    else if (kind < 0.42 || this.#services.length === 0) await this.#createService();
    else if (kind < 0.5) await this.#scale(this.#random.pick(this.#services));
    else if (kind < 0.7) await this.#removeService(this.#random.pick(this.#services));
    else if (kind < 0.8) await this.#setAvailability(this.#random.pick(this.#volumes).id);
    else await this.#removeVolume(this.#random.pick(this.#volumes).id);
  }

  async #createVolume(): Promise<void> {
    const name = `v${(this.#names += 1)}`;
    const { SINGLE_NODE, MULTI_NODE } = VolumeAccessMode_Scope;
    const { NONE, ONE_WRITER, ALL } = VolumeAccessMode_Sharing;
    const spec = VolumeSpec.create({
      annotations: Annotations.create({ name }),
      group: this.#random.pick(["", "g"]),
      driver: Driver.create({ name: simPlugin }),
      accessMode: VolumeAccessMode.create({
        scope: this.#random.pick([SINGLE_NODE, SINGLE_NODE, MULTI_NODE]),
        sharing: this.#random.pick([NONE, ONE_WRITER, ALL, ALL]),
        mount: VolumeAccessMode_MountVolume.create(),
      }),
    });
    const { volume } = await this.#client.call(
      methods.CreateVolume,
      CreateVolumeRequest.create({ spec }),
      `make ${name}`,
    );
    if (volume === null) return;
    this.#volumes.push({ id: volume.id, name });
    this.#options.trace.mark("volume.created");
  }

  async #createService(): Promise<void> {
    const name = `w${(this.#names += 1)}`;
    const source = this.#random.chance(0.3) ? "group:g" : this.#random.pick(this.#volumes).name;
    const mounts = [Mount.create({ type: Mount_Type.CLUSTER, source, target: "data" })];
    const exec = ExecSpec.create({ command: "run", mounts });
    const spec = ServiceSpec.create({
      // Its tasks may wait for a volume for ever, with that message.
      annotations: Annotations.create({ name, labels: { [choosyLabel]: "" } }),
      task: TaskSpec.create({
        generic: GenericRuntimeSpec.create({
          kind: "exec",
          payload: Any.create({ type_url: "sim/muster.v1.ExecSpec", value: ExecSpec.encode(exec) }),
        }),
      }),
      replicated: ReplicatedService.create({ replicas: 1 + this.#random.below(replicasMax) }),
    });
    const request = CreateServiceRequest.create({ spec });
    const { service } = await this.#client.call(methods.CreateService, request, `create ${name} with ${source}`);
    if (service !== null) this.#services.push(service.id);
  }

  async #scale(serviceId: string): Promise<void> {
    const get = GetServiceRequest.create({ serviceId });
    const { service } = await this.#client.call(methods.GetService, get, `get ${serviceId}`);
    if (service?.spec == null) return;
    const replicated = ReplicatedService.create({ replicas: this.#random.below(replicasMax) });
    const spec = ServiceSpec.patch(service.spec, { replicated });
    const request = UpdateServiceRequest.create({ serviceId, serviceVersion: service.meta?.version ?? null, spec });
    await this.#client.call(methods.UpdateService, request, `scale ${serviceId}`);
  }

  async #removeService(serviceId: string): Promise<void> {
    await this.#client.call(methods.RemoveService, RemoveServiceRequest.create({ serviceId }), `remove ${serviceId}`);
    this.#services.splice(this.#services.indexOf(serviceId), 1);
  }

  async #setAvailability(volumeId: string): Promise<void> {
    const { volume } = await this.#client.call(
      methods.GetVolume,
      GetVolumeRequest.create({ volumeId }),
      "get a volume",
    );
    if (volume?.spec == null) return;
    const availability = this.#random.pick([Availability.ACTIVE, Availability.PAUSE, Availability.DRAIN]);
    const spec = VolumeSpec.patch(volume.spec, { availability });
    const request = UpdateVolumeRequest.create({ volumeId, volumeVersion: volume.meta?.version ?? null, spec });
    await this.#client.call(methods.UpdateVolume, request, `set availability of ${volumeId} to ${availability}`);
    this.#options.trace.mark("volume.availability");
  }

  async #removeVolume(volumeId: string): Promise<void> {
    await this.#client.call(methods.RemoveVolume, RemoveVolumeRequest.create({ volumeId }), `remove ${volumeId}`);
    this.#options.trace.mark("volume.removed");
  }
}
