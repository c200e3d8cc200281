/** A client with cluster volumes: creates, drains and removes them, and services whose tasks mount them. */
import {
  Annotations,
  Any,
  ControlService,
  CreateVolumeRequest,
  Driver,
  ExecSpec,
  GenericRuntimeSpec,
  GetVolumeRequest,
  Mount,
  Mount_Type,
  RemoveVolumeRequest,
  UpdateVolumeRequest,
  VolumeAccessMode,
  VolumeAccessMode_MountVolume,
  VolumeAccessMode_Scope,
  VolumeAccessMode_Sharing,
  VolumeSpec,
  VolumeSpec_VolumeAvailability as Availability,
} from "../../proto/gen/messages.ts";
import { Operator, type OperatorOptions } from "./operator.ts";
import { scaledTo, simService } from "./services.ts";
import { simPlugin } from "../nodes/storage.ts";
import { choosyLabel } from "./placement.ts";

const replicasMax = 4;
const methods = ControlService.methods;

export class VolumeWorkload extends Operator {
  readonly #volumes: { readonly id: string; readonly name: string }[] = [];

  constructor(options: OperatorOptions) {
    super(options, "workload.volumes", { isFirstAtOnce: true });
  }

  protected async operate(): Promise<void> {
    const kind = this.#volumes.length === 0 ? 0 : this.random.next();
    if (kind < 0.2) await this.#createVolume();
    else if (kind < 0.42 || this.services.length === 0) await this.#createMounting();
    else if (kind < 0.5) {
      const id = this.random.pick(this.services);
      await this.changeService(id, (spec) => scaledTo(spec, this.random.below(replicasMax)), `scale ${id}`);
    } else if (kind < 0.7) {
      const id = this.random.pick(this.services);
      await this.removeService(id, `remove ${id}`);
    } else if (kind < 0.8) await this.#setAvailability(this.random.pick(this.#volumes).id);
    else await this.#removeVolume(this.random.pick(this.#volumes).id);
  }

  async #createVolume(): Promise<void> {
    const name = this.newName("v");
    const { SINGLE_NODE, MULTI_NODE } = VolumeAccessMode_Scope;
    const { NONE, ONE_WRITER, ALL } = VolumeAccessMode_Sharing;
    const spec = VolumeSpec.create({
      annotations: Annotations.create({ name }),
      group: this.random.pick(["", "g"]),
      driver: Driver.create({ name: simPlugin }),
      accessMode: VolumeAccessMode.create({
        scope: this.random.pick([SINGLE_NODE, SINGLE_NODE, MULTI_NODE]),
        sharing: this.random.pick([NONE, ONE_WRITER, ALL, ALL]),
        mount: VolumeAccessMode_MountVolume.create(),
      }),
    });
    const { volume } = await this.call(methods.CreateVolume, CreateVolumeRequest.create({ spec }), `make ${name}`);
    if (volume === null) return;
    this.#volumes.push({ id: volume.id, name });
    this.mark("volume.created");
  }

  async #createMounting(): Promise<void> {
    const name = this.newName("w");
    const source = this.random.chance(0.3) ? "group:g" : this.random.pick(this.#volumes).name;
    const mounts = [Mount.create({ type: Mount_Type.CLUSTER, source, target: "data" })];
    const exec = ExecSpec.create({ command: "run", mounts });
    const spec = simService({
      name,
      // Its tasks may wait for a volume for ever, with that message.
      labels: { [choosyLabel]: "" },
      task: {
        generic: GenericRuntimeSpec.create({
          kind: "exec",
          payload: Any.create({ type_url: "sim/muster.v1.ExecSpec", value: ExecSpec.encode(exec) }),
        }),
      },
      replicas: 1 + this.random.below(replicasMax),
    });
    await this.createService(spec, `create ${name} with ${source}`);
  }

  async #setAvailability(volumeId: string): Promise<void> {
    const { volume } = await this.call(methods.GetVolume, GetVolumeRequest.create({ volumeId }), "get a volume");
    if (volume?.spec == null) return;
    const availability = this.random.pick([Availability.ACTIVE, Availability.PAUSE, Availability.DRAIN]);
    const spec = VolumeSpec.patch(volume.spec, { availability });
    const request = UpdateVolumeRequest.create({ volumeId, volumeVersion: volume.meta?.version ?? null, spec });
    await this.call(methods.UpdateVolume, request, `set availability of ${volumeId} to ${availability}`);
    this.mark("volume.availability");
  }

  async #removeVolume(volumeId: string): Promise<void> {
    await this.call(methods.RemoveVolume, RemoveVolumeRequest.create({ volumeId }), `remove ${volumeId}`);
    this.mark("volume.removed");
  }
}
