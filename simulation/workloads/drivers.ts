/** A client with services whose tasks run on a driver plugin: creates, scales and removes them while plugins crash. */
import {
  Annotations,
  Any,
  ControlService,
  CreateNetworkRequest,
  DriverSpec,
  GenericRuntimeSpec,
  NetworkAttachmentConfig,
  NetworkSpec,
} from "../../proto/gen/messages.ts";
import { driverKind } from "../nodes/drivers.ts";
import { Operator, type OperatorOptions } from "./operator.ts";
import { scaledTo, simService } from "./services.ts";
import { choosyLabel } from "./placement.ts";

const replicasMax = 4;
const methods = ControlService.methods;

export class DriverWorkload extends Operator {
  #network = "";

  constructor(options: OperatorOptions) {
    super(options, "workload.drivers", { isFirstAtOnce: true });
  }

  protected async operate(): Promise<void> {
    const kind = this.services.length === 0 ? 0 : this.random.next();
    if (kind < 0.4) await this.#create();
    else if (kind < 0.75) {
      const id = this.random.pick(this.services);
      await this.changeService(id, (spec) => scaledTo(spec, this.random.below(replicasMax)), `scale ${id}`);
    } else await this.#remove(this.random.pick(this.services));
  }

  async #create(): Promise<void> {
    const name = this.newName("d");
    const value = DriverSpec.encode(DriverSpec.create({ config: "{}" }));
    const payload = Any.create({ type_url: "sim/muster.v1.DriverSpec", value });
    const target = this.random.chance(0.5) ? await this.#aNetwork() : "";
    const spec = simService({
      name,
      // Its tasks may wait for a healthy driver, with that message.
      labels: { [choosyLabel]: "" },
      task: {
        generic: GenericRuntimeSpec.create({ kind: driverKind, payload }),
        networks: target === "" ? [] : [NetworkAttachmentConfig.create({ target })],
      },
      replicas: 1 + this.random.below(replicasMax),
    });
    const service = await this.createService(spec, `create ${name} on a driver`);
    if (service !== null) this.mark(target === "" ? "driven.created" : "driven.networked");
  }

  /** Empty if there is none. */
  async #aNetwork(): Promise<string> {
    if (this.#network !== "") return this.#network;
    const name = this.newName("driven");
    const spec = NetworkSpec.create({ annotations: Annotations.create({ name }) });
    const request = CreateNetworkRequest.create({ spec });
    const { network } = await this.call(methods.CreateNetwork, request, `create network ${name}`);
    this.#network = network?.id ?? "";
    return this.#network;
  }

  async #remove(serviceId: string): Promise<void> {
    await this.removeService(serviceId, `remove ${serviceId}`);
    this.mark("driven.removed");
  }
}
