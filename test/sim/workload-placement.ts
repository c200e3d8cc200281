/**
 * An operator whose services have high requirements: reservations, host ports, a limit per node, constraints that are met by
 * some
 * nodes, by none, or only after somebody labels a node, and preferences. Tasks that cannot run must give the reason.
 */
import {
  Annotations,
  Any,
  ControlService,
  CreateServiceRequest,
  EndpointSpec,
  GenericRuntimeSpec,
  GetServiceRequest,
  Placement,
  PlacementPreference,
  PortConfig,
  PortConfig_PublishMode,
  RemoveServiceRequest,
  ReplicatedService,
  ResourceRequirements,
  Resources,
  ServiceSpec,
  SpreadOver,
  TaskSpec,
  UpdateServiceRequest,
  type Service,
} from "../../proto/gen/messages.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import { SimClient, type ClientOptions } from "./client.ts";
import { Operations, type OperationsOptions } from "./operations.ts";
import { taskKind } from "./workload.ts";

/** Marks its services: not all of their tasks need to run at rest. */
export const choosyLabel = "sim.choosy";
const replicasMax = 6;
/** Simulated nodes have 4 CPUs. */
const reservedCpus = [0, 0, 1, 2, 3, 9] as const;
const zones = ["a", "b", "nowhere"] as const;

export function isChoosy(service: Service): boolean {
  return service.spec?.annotations?.labels[choosyLabel] !== undefined;
}

export interface PlacementWorkloadOptions extends ClientOptions, OperationsOptions {}

export class PlacementWorkload {
  readonly #options: PlacementWorkloadOptions;
  readonly #random: SimRandom;
  readonly #client: SimClient;
  readonly #operations: Operations;
  readonly #services: string[] = [];
  #names = 0;

  constructor(options: PlacementWorkloadOptions) {
    this.#options = options;
    this.#random = options.ports.random.fork("workload.placement");
    this.#client = new SimClient(options, this.#random);
    this.#operations = new Operations(options, this.#random, this.#client);
  }

  get isDone(): boolean {
    return this.#operations.areDone;
  }

  start(): void {
    this.#operations.start(() => this.#operate(), false);
  }

  async #operate(): Promise<void> {
    const kind = this.#services.length === 0 ? 0 : this.#random.next();
    if (kind < 0.45) await this.#create();
    else if (kind < 0.8) await this.#scale(this.#random.pick(this.#services));
    else await this.#remove(this.#random.pick(this.#services));
  }

  #placement(): Placement {
    const spread = SpreadOver.create({ spreadDescriptor: "node.labels.zone" });
    return Placement.create({
      constraints: this.#random.chance(0.3) ? [`node.labels.zone==${this.#random.pick(zones)}`] : [],
      maxReplicas: this.#random.chance(0.3) ? 1 + this.#random.below(2) : 0,
      preferences: this.#random.chance(0.4) ? [PlacementPreference.create({ spread })] : [],
    });
  }

  async #create(): Promise<void> {
    const name = `p${(this.#names += 1)}`;
    const nanoCpus = this.#random.pick(reservedCpus) * 1e9;
    const hostPort = PortConfig.create({
      publishMode: PortConfig_PublishMode.HOST,
      targetPort: 80,
      publishedPort: 8_000 + this.#random.below(2),
    });
    const payload = Any.create({ type_url: "sim", value: new Uint8Array([1]) });
    const spec = ServiceSpec.create({
      annotations: Annotations.create({ name, labels: { [choosyLabel]: "" } }),
      task: TaskSpec.create({
        generic: GenericRuntimeSpec.create({ kind: taskKind, payload }),
        placement: this.#placement(),
        resources: ResourceRequirements.create({ reservations: Resources.create({ nanoCpus }) }),
      }),
      endpoint: this.#random.chance(0.3) ? EndpointSpec.create({ ports: [hostPort] }) : null,
      replicated: ReplicatedService.create({ replicas: 1 + this.#random.below(replicasMax) }),
    });
    const request = CreateServiceRequest.create({ spec });
    const { service } = await this.#client.call(
      ControlService.methods.CreateService,
      request,
      `create choosy ${name} of ${nanoCpus / 1e9} CPUs`,
    );
    if (service !== null) this.#services.push(service.id);
    this.#options.trace.mark("choosy.created");
  }

  async #scale(serviceId: string): Promise<void> {
    const { methods } = ControlService;
    const { service } = await this.#client.call(
      methods.GetService,
      GetServiceRequest.create({ serviceId }),
      `get ${serviceId}`,
    );
    if (service?.spec == null) return;
    const replicated = ReplicatedService.create({ replicas: this.#random.below(replicasMax + 1) });
    const spec = ServiceSpec.patch(service.spec, { replicated });
    const update = { serviceId, serviceVersion: service.meta?.version ?? null, spec };
    await this.#client.call(methods.UpdateService, UpdateServiceRequest.create(update), `scale choosy ${serviceId}`);
    this.#options.trace.mark("choosy.scaled");
  }

  async #remove(serviceId: string): Promise<void> {
    const request = RemoveServiceRequest.create({ serviceId });
    await this.#client.call(ControlService.methods.RemoveService, request, `remove choosy ${serviceId}`);
    this.#services.splice(this.#services.indexOf(serviceId), 1);
  }
}
