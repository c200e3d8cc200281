/**
 * State of the services and nodes after each step of a scenario, as far as the file says: what a later step may name, and the
 * Compose syntax that an update changes.
 */
import type { ServiceSpec } from "../../proto/gen/messages.ts";
import type { ClusterPlan, NodePlan, ServicePlan } from "../../simulation/rehearsal/plan.ts";
import { child, mapping, type MappingNode } from "../stack/located.ts";
import { parseYaml } from "../stack/yaml.ts";
import { interpolatedTree } from "../stack/interpolate.ts";
import { listed, nearestOf } from "./mistakes.ts";
import { longService } from "./read-service.ts";
import { writeService } from "./write-cluster.ts";

/** The cluster before a step. */
export interface Before {
  readonly timeline: Timeline;
  /** Names of networks. */
  readonly networks: readonly string[];
  readonly managers: number;
  /** From the step's time to the end of the scenario. */
  readonly leftMs: number;
}

/** Problem of a step that names a service that is not there. */
export function noService(name: string, { services }: Timeline): string {
  const remedy =
    nearestOf(name, services) ?? (services.length === 0 ? "deploy it first" : `the services are ${listed(services)}`);
  return `no service '${name}' at this time; ${remedy}`;
}

interface Version {
  /** In long form. */
  readonly tree: MappingNode;
  readonly spec: ServiceSpec;
}

export class Timeline {
  readonly nodes: Set<string>;
  /** Values by label, of all nodes so far. */
  readonly labels = new Map<string, Set<string>>();
  /** All nodes so far, and all versions of services. */
  readonly allNodes: NodePlan[] = [];
  readonly allServices: ServicePlan[] = [];
  /** Each service's versions, the present one last. */
  readonly #services = new Map<string, Version[]>();

  constructor(cluster: ClusterPlan) {
    this.nodes = new Set();
    this.addNodes(cluster.nodes);
    for (const service of cluster.services) {
      const name = service.spec.annotations?.name ?? "";
      const tree = interpolatedTree(parseYaml(writeService(service), ""), { get: () => undefined });
      const found = child(child(tree, "services"), name) ?? mapping([], tree.at);
      this.set(name, longService(name, found, mapping([], tree.at)), service);
    }
  }

  get services(): readonly string[] {
    return [...this.#services.keys()];
  }

  addNodes(nodes: ClusterPlan["nodes"]): void {
    for (const node of nodes) {
      const { labels, name } = node;
      this.allNodes.push(node);
      this.nodes.add(name);
      for (const [label, value] of Object.entries(labels)) {
        const values = this.labels.get(label) ?? new Set();
        this.labels.set(label, values.add(value));
      }
    }
  }

  has(service: string): boolean {
    return this.#services.has(service);
  }

  /** The present version. Undefined: no such service. */
  get(service: string): MappingNode | undefined {
    return this.#services.get(service)?.at(-1)?.tree;
  }

  /** The spec of the present version. Undefined: no such service. */
  spec(service: string): ServiceSpec | undefined {
    return this.#services.get(service)?.at(-1)?.spec;
  }

  /** The present specs of all services. */
  get specs(): readonly ServiceSpec[] {
    return [...this.#services.values()].flatMap((versions) => versions.at(-1)?.spec ?? []);
  }

  set(service: string, tree: MappingNode, plan: ServicePlan): void {
    this.allServices.push(plan);
    this.#push(service, { tree, spec: plan.spec });
  }

  /** The same with other replicas, which is a version of its own. */
  scale(service: string, tree: MappingNode): void {
    const spec = this.spec(service);
    if (spec !== undefined) this.#push(service, { tree, spec });
  }

  #push(service: string, version: Version): void {
    this.#services.set(service, [...(this.#services.get(service) ?? []), version].slice(-2));
  }

  /** Back to the version before, of which there is no older one. False: there is none. */
  rollBack(service: string): boolean {
    const versions = this.#services.get(service) ?? [];
    if (versions.length < 2) return false;
    this.#services.set(service, versions.slice(0, -1));
    return true;
  }

  remove(service: string): void {
    this.#services.delete(service);
  }
}
