/**
 * A client that creates, updates and removes networks, and services that use them and publish ports. Some requests want subnets
 * and
 * ids that are taken, or remove networks in use: these are refused.
 */
import {
  Annotations,
  ControlService,
  CreateNetworkRequest,
  Driver,
  EndpointSpec,
  EndpointSpec_ResolutionMode,
  IPAMConfig,
  IPAMConfig_AddressFamily,
  IPAMOptions,
  NetworkAttachmentConfig,
  NetworkSpec,
  PortConfig,
  RemoveNetworkRequest,
  ReplicatedService,
  ServiceSpec,
  TaskSpec,
} from "../../proto/gen/messages.ts";
import { vxlanIdOption } from "../../machines/allocation/network.ts";
import { Operator, type OperatorOptions } from "./operator.ts";
import { simService } from "./services.ts";

const replicasMax = 4;
const subnets = ["10.0.2.0/24", "10.50.0.0/16", "10.50.3.0/24", "10.60.0.0/28"] as const;
const vxlanIds = [0, 0, 4098, 7] as const;
const ports = [0, 0, 8001, 8002] as const;

export class NetworkWorkload extends Operator {
  /** Networks without requirements: they can always be allocated, so services use these. */
  readonly #plain: string[] = [];
  readonly #special: string[] = [];

  constructor(options: OperatorOptions) {
    super(options, "workload.networks", { isFirstAtOnce: true });
  }

  protected async operate(): Promise<void> {
    const kind = this.#plain.length === 0 ? 0 : this.random.next();
    if (kind < 0.2) await this.#createNetwork();
    else if (kind < 0.35) await this.#removeNetwork();
    else if (kind < 0.65 || this.services.length === 0) await this.#createNetworked();
    else if (kind < 0.85) await this.#update(this.random.pick(this.services));
    else {
      const id = this.random.pick(this.services);
      await this.removeService(id, `remove networked ${id}`);
    }
  }

  async #createNetwork(): Promise<void> {
    const name = this.newName("net");
    const isPlain = this.random.chance(0.6);
    const options: Record<string, string> = {};
    const id = this.random.pick(vxlanIds);
    if (!isPlain && id !== 0) options[vxlanIdOption] = String(id);
    const subnet = this.random.pick(subnets);
    const configs = isPlain ? [] : [IPAMConfig.create({ family: IPAMConfig_AddressFamily.IPV4, subnet })];
    const spec = NetworkSpec.create({
      annotations: Annotations.create({ name }),
      driverConfig: Driver.create({ name: "overlay", options }),
      ipam: IPAMOptions.create({ configs }),
    });
    const { network } = await this.call(
      ControlService.methods.CreateNetwork,
      CreateNetworkRequest.create({ spec }),
      `create network ${name} ${isPlain ? "" : `${subnet} ${id}`}`,
    );
    if (network === null) return;
    (isPlain ? this.#plain : this.#special).push(network.id);
    this.mark(isPlain ? "network.created" : "network.created.special");
  }

  /** Often refused, because services use it or their tasks are still stopping. */
  async #removeNetwork(): Promise<void> {
    const list = this.#special.length > 0 && this.random.chance(0.4) ? this.#special : this.#plain;
    const networkId = this.random.pick(list);
    const request = RemoveNetworkRequest.create({ networkId });
    await this.call(ControlService.methods.RemoveNetwork, request, `remove network ${networkId}`);
    list.splice(list.indexOf(networkId), 1);
    this.mark("network.removed");
  }

  #networked(spec: ServiceSpec): ServiceSpec {
    const count = Math.min(this.#plain.length, this.random.below(3));
    const first = this.random.below(Math.max(1, this.#plain.length));
    const networks: NetworkAttachmentConfig[] = [];
    for (let at = 0; at < count; at += 1) {
      const target = this.#plain[(first + at) % this.#plain.length] ?? "";
      networks.push(NetworkAttachmentConfig.create({ target }));
    }
    const isDnsrr = this.random.chance(0.2);
    const published = this.random.chance(0.5) ? [this.random.pick(ports)] : [];
    return ServiceSpec.patch(spec, {
      endpoint: EndpointSpec.create({
        mode: isDnsrr ? EndpointSpec_ResolutionMode.DNSRR : EndpointSpec_ResolutionMode.VIP,
        ports: isDnsrr ? [] : published.map((publishedPort) => PortConfig.create({ targetPort: 80, publishedPort })),
      }),
      task: TaskSpec.patch(spec.task ?? TaskSpec.create(), { networks }),
      replicated: ReplicatedService.create({ replicas: this.random.below(replicasMax + 1) }),
    });
  }

  async #createNetworked(): Promise<void> {
    const name = this.newName("n");
    await this.createService(this.#networked(simService({ name })), `create networked ${name}`);
    this.mark("networked.created");
  }

  async #update(serviceId: string): Promise<void> {
    if (await this.changeService(serviceId, (spec) => this.#networked(spec), `update networked ${serviceId}`))
      this.mark("networked.updated");
  }
}
