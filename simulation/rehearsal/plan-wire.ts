/** Plans on their way to another process: their specs encoded, because messages do not survive structured cloning. */
import { NetworkSpec, ServiceSpec } from "../../proto/gen/messages.ts";
import type { Action, ClusterPlan, ScenarioPlan, ServicePlan } from "./plan.ts";

interface PackedService extends Omit<ServicePlan, "spec"> {
  readonly spec: Uint8Array;
}

/** A step with its service apart. */
interface PackedStep {
  readonly atMs: number;
  readonly action: Action | { readonly kind: "deploy" | "update" };
  readonly service: PackedService | null;
}

export interface PackedPlans {
  readonly cluster: Omit<ClusterPlan, "networks" | "services">;
  readonly networks: readonly Uint8Array[];
  readonly services: readonly PackedService[];
  readonly scenario: Omit<ScenarioPlan, "steps">;
  readonly steps: readonly PackedStep[];
}

export function packedPlans(cluster: ClusterPlan, scenario: ScenarioPlan): PackedPlans {
  return {
    cluster: { managers: cluster.managers, nodes: cluster.nodes },
    networks: cluster.networks.map((spec) => NetworkSpec.encode(spec)),
    services: cluster.services.map(packedService),
    scenario: { name: scenario.name, description: scenario.description, durationMs: scenario.durationMs },
    steps: scenario.steps.map(({ action, atMs }) =>
      action.kind === "deploy" || action.kind === "update"
        ? { atMs, action: { kind: action.kind }, service: packedService(action.service) }
        : { atMs, action, service: null },
    ),
  };
}

export function unpackedPlans({ cluster, networks, scenario, services, steps }: PackedPlans): {
  readonly cluster: ClusterPlan;
  readonly scenario: ScenarioPlan;
} {
  return {
    cluster: {
      ...cluster,
      networks: networks.map((bytes) => NetworkSpec.decode(bytes)),
      services: services.map(unpackedService),
    },
    scenario: {
      ...scenario,
      steps: steps.map(({ action, atMs, service }) => ({
        atMs,
        action:
          service === null ? (action as Action) : ({ kind: action.kind, service: unpackedService(service) } as Action),
      })),
    },
  };
}

function packedService({ behaviour, spec }: ServicePlan): PackedService {
  return { behaviour, spec: ServiceSpec.encode(spec) };
}

function unpackedService({ behaviour, spec }: PackedService): ServicePlan {
  return { behaviour, spec: ServiceSpec.decode(spec) };
}
