/**
 * An operator whose services have high requirements: reservations, host ports, a limit per node, constraints that are met by
 * some
 * nodes, by none, or only after somebody labels a node, and preferences. Tasks that cannot run must give the reason.
 */
import {
  EndpointSpec,
  Placement,
  PlacementPreference,
  PortConfig,
  PortConfig_PublishMode,
  ResourceRequirements,
  Resources,
  SpreadOver,
  type Service,
} from "../../proto/gen/messages.ts";
import { Operator, type OperatorOptions } from "./operator.ts";
import { scaledTo, simService } from "./services.ts";

/** Marks its services: not all of their tasks need to run at rest. */
export const choosyLabel = "sim.choosy";
const replicasMax = 6;
/** Simulated nodes have 4 CPUs. */
const reservedCpus = [0, 0, 1, 2, 3, 9] as const;
const zones = ["a", "b", "nowhere"] as const;

export function isChoosy(service: Service): boolean {
  return service.spec?.annotations?.labels[choosyLabel] !== undefined;
}

export class PlacementWorkload extends Operator {
  constructor(options: OperatorOptions) {
    super(options, "workload.placement", { isFirstAtOnce: false });
  }

  protected async operate(): Promise<void> {
    const kind = this.services.length === 0 ? 0 : this.random.next();
    if (kind < 0.45) await this.#create();
    else if (kind < 0.8) await this.#scale(this.random.pick(this.services));
    else {
      const id = this.random.pick(this.services);
      await this.removeService(id, `remove choosy ${id}`);
    }
  }

  #placement(): Placement {
    const spread = SpreadOver.create({ spreadDescriptor: "node.labels.zone" });
    return Placement.create({
      constraints: this.random.chance(0.3) ? [`node.labels.zone==${this.random.pick(zones)}`] : [],
      maxReplicas: this.random.chance(0.3) ? 1 + this.random.below(2) : 0,
      preferences: this.random.chance(0.4) ? [PlacementPreference.create({ spread })] : [],
    });
  }

  async #create(): Promise<void> {
    const name = this.newName("p");
    const nanoCpus = this.random.pick(reservedCpus) * 1e9;
    const hostPort = PortConfig.create({
      publishMode: PortConfig_PublishMode.HOST,
      targetPort: 80,
      publishedPort: 8_000 + this.random.below(2),
    });
    const spec = simService({
      name,
      labels: { [choosyLabel]: "" },
      task: {
        placement: this.#placement(),
        resources: ResourceRequirements.create({ reservations: Resources.create({ nanoCpus }) }),
      },
      endpoint: this.random.chance(0.3) ? EndpointSpec.create({ ports: [hostPort] }) : null,
      replicas: 1 + this.random.below(replicasMax),
    });
    await this.createService(spec, `create choosy ${name} of ${nanoCpus / 1e9} CPUs`);
    this.mark("choosy.created");
  }

  async #scale(serviceId: string): Promise<void> {
    const isScaled = await this.changeService(
      serviceId,
      (spec) => scaledTo(spec, this.random.below(replicasMax + 1)),
      `scale choosy ${serviceId}`,
    );
    if (isScaled) this.mark("choosy.scaled");
  }
}
