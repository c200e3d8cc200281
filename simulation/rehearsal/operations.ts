/** The operator of a rehearsed cluster, who changes it through the Control service of its managers. */
import {
  Annotations,
  ControlService,
  CreateNetworkRequest,
  CreateServiceRequest,
  ListNetworksRequest,
  ListNodesRequest,
  ListServicesRequest,
  ListServicesRequest_Filters,
  ListNodesRequest_Filters,
  NodeSpec,
  RemoveServiceRequest,
  ReplicatedJob,
  ReplicatedService,
  ServiceSpec,
  UpdateNodeRequest,
  UpdateServiceRequest,
  UpdateServiceRequest_Rollback,
  type NetworkSpec,
  type Node,
  type NodeSpec_Availability,
  type Service,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { deployable } from "./deployable.ts";
import type { Behaviours } from "./behaviours.ts";
import type { ServicePlan } from "./plan.ts";
import type { Requests } from "./requests.ts";

const {
  CreateNetwork,
  CreateService,
  ListNetworks,
  ListNodes,
  ListServices,
  RemoveService,
  UpdateNode,
  UpdateService,
} = ControlService.methods;

interface OperationsOptions {
  readonly requests: Requests;
  readonly behaviours: Behaviours;
  /** For how long a request that managers cannot take is sent again, in milliseconds. */
  readonly patienceMs: () => number;
}

export class Operations {
  readonly #options: OperationsOptions;
  /** Ids of the networks by name. */
  readonly #networks = new Map<string, string>();

  constructor(options: OperationsOptions) {
    this.#options = options;
  }

  async createNetwork(spec: NetworkSpec): Promise<void> {
    const { patienceMs, requests } = this.#options;
    const name = spec.annotations?.name ?? "";
    const what = `create network ${name}`;
    await this.#done(Status.ALREADY_EXISTS, async () => {
      await requests.send(CreateNetwork, CreateNetworkRequest.create({ spec }), what, patienceMs());
    });
    const { networks } = await requests.send(ListNetworks, ListNetworksRequest.create({}), what, patienceMs());
    for (const network of networks) this.#networks.set(network.spec?.annotations?.name ?? "", network.id);
  }

  async deploy(plan: ServicePlan): Promise<void> {
    const { behaviours, patienceMs, requests } = this.#options;
    const spec = deployable(plan.spec, this.#networks);
    behaviours.add({ ...plan, spec });
    const what = `create service ${nameOf(spec)}`;
    await this.#done(Status.ALREADY_EXISTS, async () => {
      await requests.send(CreateService, CreateServiceRequest.create({ spec }), what, patienceMs());
    });
  }

  /** To the planned spec, which has a behaviour of its own. */
  async update(plan: ServicePlan): Promise<void> {
    const spec = deployable(plan.spec, this.#networks);
    this.#options.behaviours.add({ ...plan, spec });
    await this.#change(nameOf(spec), `update service ${nameOf(spec)}`, () => ({ spec }));
  }

  async scale(name: string, replicas: number): Promise<void> {
    await this.#change(name, `scale service ${name} to ${replicas}`, ({ spec }) => ({
      spec: scaled(spec ?? ServiceSpec.create(), replicas),
    }));
  }

  async rollback(name: string): Promise<void> {
    await this.#change(name, `roll back service ${name}`, ({ spec }) => ({
      spec,
      rollback: UpdateServiceRequest_Rollback.PREVIOUS,
    }));
  }

  async remove(name: string): Promise<void> {
    const { patienceMs, requests } = this.#options;
    const service = await this.#service(name, `remove service ${name}`);
    if (service === null) return;
    const request = RemoveServiceRequest.create({ serviceId: service.id });
    await this.#done(Status.NOT_FOUND, async () => {
      await requests.send(RemoveService, request, `remove service ${name}`, patienceMs());
    });
  }

  async setAvailability(node: string, availability: NodeSpec_Availability, what: string): Promise<void> {
    await this.#changeNode(node, what, (spec) => NodeSpec.patch(spec, { availability }));
  }

  async setLabels(node: string, labels: Readonly<Record<string, string>>): Promise<void> {
    await this.#changeNode(node, `label node ${node}`, (spec) =>
      NodeSpec.patch(spec, {
        annotations: Annotations.patch(spec.annotations ?? Annotations.create(), { labels: { ...labels } }),
      }),
    );
  }

  /** A creation whose first answer was lost finds the object, a removal finds none; `found` is that answer. */
  async #done(found: Status, change: () => Promise<void>): Promise<void> {
    try {
      await change();
    } catch (error) {
      if (!(error instanceof RpcError) || error.code !== found) throw error;
    }
  }

  /** Again while somebody else, such as a rollout, changes it between the read and the write. */
  async #inOrder(work: () => Promise<void>): Promise<void> {
    for (;;) {
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof RpcError) || error.code !== Status.ABORTED) throw error;
      }
    }
  }

  async #change(
    name: string,
    what: string,
    change: (service: Service) => Pick<Partial<UpdateServiceRequest>, "spec" | "rollback">,
  ): Promise<void> {
    const { patienceMs, requests } = this.#options;
    await this.#inOrder(async () => {
      const service = await this.#service(name, what);
      if (service === null) throw new RpcError(Status.NOT_FOUND, `service ${name} not found`);
      const request = UpdateServiceRequest.create({
        serviceId: service.id,
        serviceVersion: service.meta?.version ?? null,
        ...change(service),
      });
      await requests.send(UpdateService, request, what, patienceMs());
    });
  }

  async #changeNode(name: string, what: string, change: (spec: NodeSpec) => NodeSpec): Promise<void> {
    const { patienceMs, requests } = this.#options;
    await this.#inOrder(async () => {
      const node = await this.#node(name, what);
      if (node === null) throw new RpcError(Status.NOT_FOUND, `node ${name} not found`);
      const request = UpdateNodeRequest.create({
        nodeId: node.id,
        nodeVersion: node.meta?.version ?? null,
        spec: change(node.spec ?? NodeSpec.create()),
      });
      await requests.send(UpdateNode, request, what, patienceMs());
    });
  }

  async #service(name: string, what: string): Promise<Service | null> {
    const { patienceMs, requests } = this.#options;
    const filters = ListServicesRequest_Filters.create({ names: [name] });
    const { services } = await requests.send(ListServices, ListServicesRequest.create({ filters }), what, patienceMs());
    return services.find(({ spec }) => nameOf(spec) === name) ?? null;
  }

  async #node(name: string, what: string): Promise<Node | null> {
    const { patienceMs, requests } = this.#options;
    const filters = ListNodesRequest_Filters.create({ names: [name] });
    const { nodes } = await requests.send(ListNodes, ListNodesRequest.create({ filters }), what, patienceMs());
    return nodes.find(({ description }) => description?.hostname === name) ?? null;
  }
}

function scaled(spec: ServiceSpec, count: number): ServiceSpec {
  const { replicatedJob: job } = spec;
  if (job === null) return ServiceSpec.patch(spec, { replicated: ReplicatedService.create({ replicas: count }) });
  return ServiceSpec.patch(spec, { replicatedJob: ReplicatedJob.patch(job, { totalCompletions: count }) });
}

function nameOf(spec: ServiceSpec | null): string {
  return spec?.annotations?.name ?? "";
}
