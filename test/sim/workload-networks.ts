/**
 * A client that creates, updates and removes networks, and services that use them and publish ports. Some requests want subnets
 * and
 * ids that are taken, or remove networks in use: these are refused.
 */
import {
  Annotations,
  Any,
  ControlService,
  CreateNetworkRequest,
  CreateServiceRequest,
  Driver,
  EndpointSpec,
  EndpointSpec_ResolutionMode,
  GenericRuntimeSpec,
  GetServiceRequest,
  IPAMConfig,
  IPAMConfig_AddressFamily,
  IPAMOptions,
  NetworkAttachmentConfig,
  NetworkSpec,
  PortConfig,
  RemoveNetworkRequest,
  RemoveServiceRequest,
  ReplicatedService,
  ServiceSpec,
  TaskSpec,
  UpdateServiceRequest,
} from "../../proto/gen/messages.ts";
import { vxlanIdOption } from "../../machines/allocation/network.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import { SimClient, type ClientOptions } from "./client.ts";
import { taskKind } from "./workload.ts";

export interface NetworkWorkloadOptions extends ClientOptions {
  readonly operations: number;
  /** The operations are spread over this many milliseconds. */
  readonly withinMs: number;
}

const replicasMax = 4;
const subnets = ["10.0.2.0/24", "10.50.0.0/16", "10.50.3.0/24", "10.60.0.0/28"] as const;
const vxlanIds = [0, 0, 4098, 7] as const;
const ports = [0, 0, 8001, 8002] as const;

export class NetworkWorkload {
  readonly #options: NetworkWorkloadOptions;
  readonly #random: SimRandom;
  readonly #client: SimClient;
  /** Networks without requirements: they can always be allocated, so services use these. */
  readonly #plain: string[] = [];
  readonly #special: string[] = [];
  readonly #services: string[] = [];
  #names = 0;
  #done = 0;

  constructor(options: NetworkWorkloadOptions) {
    this.#options = options;
    this.#random = options.ports.random.fork("workload.networks");
    this.#client = new SimClient(options, this.#random);
  }

  get isDone(): boolean {
    return this.#done === this.#options.operations;
  }

  start(): void {
    const { operations, ports: own, withinMs } = this.#options;
    for (let operation = 0; operation < operations; operation += 1) {
      const at = operation === 0 ? 0 : this.#random.between(0, withinMs);
      own.clock.after(at, () => void this.#client.attempt(() => this.#operate()).then(() => (this.#done += 1)));
    }
  }

  async #operate(): Promise<void> {
    const kind = this.#plain.length === 0 ? 0 : this.#random.next();
    if (kind < 0.2) await this.#createNetwork();
    else if (kind < 0.35) await this.#removeNetwork();
    else if (kind < 0.65 || this.#services.length === 0) await this.#createService();
    else if (kind < 0.85) await this.#updateService(this.#random.pick(this.#services));
    else await this.#removeService(this.#random.pick(this.#services));
  }

  async #createNetwork(): Promise<void> {
    const name = `net${(this.#names += 1)}`;
    const isPlain = this.#random.chance(0.6);
    const options: Record<string, string> = {};
    const id = this.#random.pick(vxlanIds);
    if (!isPlain && id !== 0) options[vxlanIdOption] = String(id);
    const subnet = this.#random.pick(subnets);
    const configs = isPlain ? [] : [IPAMConfig.create({ family: IPAMConfig_AddressFamily.IPV4, subnet })];
    const spec = NetworkSpec.create({
      annotations: Annotations.create({ name }),
      driverConfig: Driver.create({ name: "overlay", options }),
      ipam: IPAMOptions.create({ configs }),
    });
    const { network } = await this.#client.call(
      ControlService.methods.CreateNetwork,
      CreateNetworkRequest.create({ spec }),
      `create network ${name} ${isPlain ? "" : `${subnet} ${id}`}`,
    );
    if (network === null) return;
    (isPlain ? this.#plain : this.#special).push(network.id);
    this.#options.trace.mark(isPlain ? "network.created" : "network.created.special");
  }

  /** Often refused, because services use it or their tasks are still stopping. */
  async #removeNetwork(): Promise<void> {
    const list = this.#special.length > 0 && this.#random.chance(0.4) ? this.#special : this.#plain;
    const networkId = this.#random.pick(list);
    const request = RemoveNetworkRequest.create({ networkId });
    await this.#client.call(ControlService.methods.RemoveNetwork, request, `remove network ${networkId}`);
    list.splice(list.indexOf(networkId), 1);
    this.#options.trace.mark("network.removed");
  }

  #networked(spec: ServiceSpec): ServiceSpec {
    const count = Math.min(this.#plain.length, this.#random.below(3));
    const first = this.#random.below(Math.max(1, this.#plain.length));
    const networks: NetworkAttachmentConfig[] = [];
    for (let at = 0; at < count; at += 1) {
      const target = this.#plain[(first + at) % this.#plain.length] ?? "";
      networks.push(NetworkAttachmentConfig.create({ target }));
    }
    const isDnsrr = this.#random.chance(0.2);
    const published = this.#random.chance(0.5) ? [this.#random.pick(ports)] : [];
    return ServiceSpec.patch(spec, {
      endpoint: EndpointSpec.create({
        mode: isDnsrr ? EndpointSpec_ResolutionMode.DNSRR : EndpointSpec_ResolutionMode.VIP,
        ports: isDnsrr ? [] : published.map((publishedPort) => PortConfig.create({ targetPort: 80, publishedPort })),
      }),
      task: TaskSpec.patch(spec.task ?? TaskSpec.create(), { networks }),
      replicated: ReplicatedService.create({ replicas: this.#random.below(replicasMax + 1) }),
    });
  }

  async #createService(): Promise<void> {
    const name = `n${(this.#names += 1)}`;
    const value = new Uint8Array([1]);
    const generic = GenericRuntimeSpec.create({ kind: taskKind, payload: Any.create({ type_url: "sim", value }) });
    const spec = this.#networked(
      ServiceSpec.create({ annotations: Annotations.create({ name }), task: TaskSpec.create({ generic }) }),
    );
    const { service } = await this.#client.call(
      ControlService.methods.CreateService,
      CreateServiceRequest.create({ spec }),
      `create networked ${name}`,
    );
    if (service !== null) this.#services.push(service.id);
    this.#options.trace.mark("networked.created");
  }

  async #updateService(serviceId: string): Promise<void> {
    const request = GetServiceRequest.create({ serviceId });
    const { service } = await this.#client.call(ControlService.methods.GetService, request, `get ${serviceId}`);
    if (service?.spec == null) return;
    const spec = this.#networked(service.spec);
    await this.#client.call(
      ControlService.methods.UpdateService,
      UpdateServiceRequest.create({ serviceId, serviceVersion: service.meta?.version ?? null, spec }),
      `update networked ${serviceId}`,
    );
    this.#options.trace.mark("networked.updated");
  }

  async #removeService(serviceId: string): Promise<void> {
    const request = RemoveServiceRequest.create({ serviceId });
    await this.#client.call(ControlService.methods.RemoveService, request, `remove networked ${serviceId}`);
    this.#services.splice(this.#services.indexOf(serviceId), 1);
  }
}
