/** A client with services whose tasks run on a driver plugin: creates, scales and removes them while plugins crash. */
import {
  Annotations,
  Any,
  ControlService,
  CreateNetworkRequest,
  CreateServiceRequest,
  DriverSpec,
  GenericRuntimeSpec,
  GetServiceRequest,
  NetworkAttachmentConfig,
  NetworkSpec,
  RemoveServiceRequest,
  ReplicatedService,
  ServiceSpec,
  TaskSpec,
  UpdateServiceRequest,
} from "../../proto/gen/messages.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import { SimClient, type ClientOptions } from "./client.ts";
import { driverKind } from "./drivers.ts";
import { Operations, type OperationsOptions } from "./operations.ts";
import { choosyLabel } from "./workload-placement.ts";

export interface DriverWorkloadOptions extends ClientOptions, OperationsOptions {}

const replicasMax = 4;
const methods = ControlService.methods;

export class DriverWorkload {
  readonly #options: DriverWorkloadOptions;
  readonly #random: SimRandom;
  readonly #client: SimClient;
  readonly #operations: Operations;
  readonly #services: string[] = [];
  #network = "";
  #names = 0;

  constructor(options: DriverWorkloadOptions) {
    this.#options = options;
    this.#random = options.ports.random.fork("workload.drivers");
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
    const kind = this.#services.length === 0 ? 0 : this.#random.next();
    if (kind < 0.4) await this.#create();
    else if (kind < 0.75) await this.#scale(this.#random.pick(this.#services));
    else await this.#remove(this.#random.pick(this.#services));
  }

  async #create(): Promise<void> {
    const name = `d${(this.#names += 1)}`;
    const value = DriverSpec.encode(DriverSpec.create({ config: "{}" }));
    const payload = Any.create({ type_url: "sim/muster.v1.DriverSpec", value });
    const target = this.#random.chance(0.5) ? await this.#aNetwork() : "";
    const spec = ServiceSpec.create({
      // Its tasks may wait for a healthy driver, with that message.
      annotations: Annotations.create({ name, labels: { [choosyLabel]: "" } }),
      task: TaskSpec.create({
        generic: GenericRuntimeSpec.create({ kind: driverKind, payload }),
        networks: target === "" ? [] : [NetworkAttachmentConfig.create({ target })],
      }),
      replicated: ReplicatedService.create({ replicas: 1 + this.#random.below(replicasMax) }),
    });
    const request = CreateServiceRequest.create({ spec });
    const { service } = await this.#client.call(methods.CreateService, request, `create ${name} on a driver`);
    if (service === null) return;
    this.#services.push(service.id);
    this.#options.trace.mark(target === "" ? "driven.created" : "driven.networked");
  }

  /** Empty if there is none. */
  async #aNetwork(): Promise<string> {
    if (this.#network !== "") return this.#network;
    const name = `driven${(this.#names += 1)}`;
    const spec = NetworkSpec.create({ annotations: Annotations.create({ name }) });
    const request = CreateNetworkRequest.create({ spec });
    const { network } = await this.#client.call(methods.CreateNetwork, request, `create network ${name}`);
    this.#network = network?.id ?? "";
    return this.#network;
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

  async #remove(serviceId: string): Promise<void> {
    await this.#client.call(methods.RemoveService, RemoveServiceRequest.create({ serviceId }), `remove ${serviceId}`);
    this.#services.splice(this.#services.indexOf(serviceId), 1);
    this.#options.trace.mark("driven.removed");
  }
}
