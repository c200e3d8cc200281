/**
 * Everything that the cluster allocates, and its holders: ports, VXLAN ids, subnets, and the addresses that services, tasks
 * and nodes hold in each network. Each leader rebuilds it from the store, and what is stored wins. A decision takes its
 * resources at once; following the stored objects then releases what was never written.
 */
import {
  NetworkAttachmentConfig,
  type Endpoint,
  type Network,
  type NetworkAttachment,
  type Node,
  type Service,
  type Task,
  type TaskSpec,
} from "../../proto/gen/messages.ts";
import { isEnded, isWanted, observedState } from "../task.ts";
import { attach, decideNode, planAttachments, type NodeDecision, type PlannedAttachment } from "./attach.ts";
import {
  decideEndpoint,
  isEmptyEndpoint,
  isEndpointAllocated,
  needsIngress,
  networksOf,
  type EndpointDecision,
  type EndpointSpaces,
} from "./endpoint.ts";
import { Holders } from "./holders.ts";
import type { NetworkDecision } from "./network.ts";
import { Networks } from "./networks.ts";
import { PortSpace } from "./ports.ts";
import type { DefaultPools } from "./subnets.ts";
import { addressedNetwork, blocked, causes, Opened, type Blocked, type Cause } from "./waiting.ts";

/** The objects that the allocation reads from the store. */
export interface AllocationView {
  network(idOrName: string): Network | undefined;
  service(id: string): Service | undefined;
  defaultPools(): DefaultPools;
  nodeCount(): number;
}

type TaskDecision =
  /** The task may proceed with these; `endpoint` is null if its current one is correct. */
  | { readonly kind: "ready"; readonly endpoint: Endpoint | null; readonly networks: readonly NetworkAttachment[] }
  | Blocked
  /** The task is no longer wanted. */
  | { readonly kind: "unwanted" };

/** The allocation of all tasks with the same spec. */
interface Plan {
  readonly serviceId: string;
  readonly problem: Blocked | null;
  readonly endpoint: Endpoint | null;
  readonly attach: readonly PlannedAttachment[];
}

/** Valid for one round, in which only the tasks change. */
export type Plans = Map<TaskSpec | null, Plan>;

const nothing: readonly never[] = Object.freeze([]);

export class Allocation {
  readonly #view: AllocationView;
  readonly #opened = new Opened();
  readonly #networks: Networks;
  readonly #holders: Holders;
  readonly #spaces: EndpointSpaces;
  /** By service: why its endpoint could not be allocated, for its tasks. */
  readonly #serviceProblems = new Map<string, string>();

  constructor(view: AllocationView) {
    this.#view = view;
    this.#networks = new Networks((idOrName) => view.network(idOrName), this.#opened);
    this.#holders = new Holders(this.#networks, this.#opened);
    this.#spaces = {
      ports: new PortSpace(),
      networks: this.#networks,
      holders: this.#holders,
      kept: (networkId) => this.#holders.keptFor(networkId, view.nodeCount(), 0),
    };
  }

  /** The number of allocated resources. */
  get held(): {
    readonly addresses: number;
    readonly subnets: number;
    readonly vxlanIds: number;
    readonly ports: number;
  } {
    return { ...this.#networks.held, ports: this.#spaces.ports.count };
  }

  get hasOpened(): boolean {
    return !this.#opened.isEmpty;
  }

  /** Resources that were freed or added since the last call. */
  takeOpened(): readonly Cause[] {
    return this.#opened.take();
  }

  /** A node was removed: addresses may have been reserved for it in any network. */
  nodeGone(): void {
    for (const id of this.#networks.ids()) this.#opened.add(causes.addresses(id));
  }

  /** Resources for the cause may still be free. */
  reopen(cause: Cause): void {
    this.#opened.add(cause);
  }

  /**
   * How many of the objects that wait for the cause may succeed; for a network's addresses, at most the number of free ones.
   */
  roomFor(cause: Cause): number {
    const networkId = addressedNetwork(cause);
    return networkId === null ? Number.POSITIVE_INFINITY : (this.#networks.space(networkId)?.room ?? 0);
  }

  /** Nodes whose tasks' networks have changed since the last call. */
  takeChangedNodes(): readonly string[] {
    return this.#holders.takeChangedNodes();
  }

  /** The default address pools have changed. */
  followDefaultPools(): void {
    this.#opened.add(causes.subnets);
  }

  /** `network`: as stored; null when it was removed. */
  followNetwork(id: string, network: Network | null): void {
    this.#networks.follow(id, network);
  }

  /** Null when the service was removed. */
  followService(id: string, service: Service | null): void {
    const { ports } = this.#spaces;
    const isFreed = service === null ? ports.release(id) : ports.claim(id, service.endpoint?.ports ?? nothing);
    if (isFreed) this.#opened.add(causes.ports);
    this.#holders.followService(id, service?.endpoint?.virtualIps ?? nothing);
    if (service === null) this.#serviceProblems.delete(id);
    // Without its service, a task needs no endpoint.
    if (service === null || this.isEndpointAllocated(service)) this.#opened.add(causes.service(id));
  }

  /** Null when the task was removed. An ended task holds nothing. */
  followTask(id: string, task: Task | null): void {
    const isHolder = task !== null && !isEnded(observedState(task)) && task.networks.length > 0;
    this.#holders.followTask(id, isHolder ? task : null);
  }

  /** Null when the node was removed. */
  followNode(id: string, node: Node | null): void {
    this.#holders.followNode(id, node?.attachments ?? nothing);
  }

  decideNetwork(network: Network): NetworkDecision {
    return this.#networks.decide(network, this.#view.defaultPools());
  }

  /** Why the network could not be allocated; empty if it is allocated or was not tried yet. */
  problemOf(networkId: string): string {
    return this.#networks.problemOf(networkId);
  }

  /** Why the service's endpoint could not be allocated; empty if it is allocated or was not tried yet. */
  problemOfService(serviceId: string): string {
    return this.#serviceProblems.get(serviceId) ?? "";
  }

  isEndpointAllocated(service: Service): boolean {
    return isEndpointAllocated(service, this.#spaces);
  }

  decideEndpoint(service: Service): EndpointDecision {
    const { id } = service;
    const decision = decideEndpoint(service, this.#spaces);
    if (decision.kind === "endpoint" && this.#spaces.ports.claim(id, decision.endpoint.ports))
      this.#opened.add(causes.ports);
    const problem = decision.kind === "blocked" ? decision.reason : "";
    if (problem === (this.#serviceProblems.get(id) ?? "")) return decision;
    // Its tasks must report the new reason.
    if (problem === "") this.#serviceProblems.delete(id);
    else {
      this.#serviceProblems.set(id, problem);
      this.#opened.add(causes.service(id));
    }
    return decision;
  }

  /** `plans`: a new map for each round. */
  decideTask(task: Task, plans: Plans): TaskDecision {
    if (!isWanted(task)) return { kind: "unwanted" };
    let plan = plans.get(task.spec);
    if (plan === undefined || plan.serviceId !== task.serviceId) plans.set(task.spec, (plan = this.#planFor(task)));
    if (plan.problem !== null) return plan.problem;
    const networks = attach(plan.attach, (id) => this.#holders.keptFor(id, this.#view.nodeCount(), 1));
    if ("kind" in networks) {
      // A release of the resource must then wake the task.
      if (addressedNetwork(networks.cause) === null) this.#opened.await(networks.cause);
      return networks;
    }
    if (networks.length > 0) this.#holders.noteTask(task.id, { nodeId: task.nodeId, networks });
    return { kind: "ready", endpoint: plan.endpoint, networks };
  }

  decideNode(node: Node): NodeDecision {
    return decideNode(node, this.#networks, this.#holders);
  }

  #planFor({ serviceId, spec }: Task): Plan {
    const service = serviceId === "" ? undefined : this.#view.service(serviceId);
    const stuck = (problem: Blocked): Plan => ({ serviceId, problem, endpoint: null, attach: nothing });
    if (service !== undefined && !this.isEndpointAllocated(service))
      return stuck(blocked(causes.service(serviceId), this.#serviceProblems.get(serviceId) ?? ""));
    const configs = [...networksOf(spec?.networks ?? nothing, service)];
    // Engines expect the ingress network first.
    if (service !== undefined && needsIngress(service))
      configs.unshift(NetworkAttachmentConfig.create({ target: this.#networks.ingressTarget }));
    const planned = planAttachments(configs, this.#networks);
    if ("kind" in planned) return stuck(planned);
    const endpoint = service?.endpoint ?? null;
    return {
      serviceId,
      problem: null,
      endpoint: endpoint === null || isEmptyEndpoint(endpoint) ? null : endpoint,
      attach: planned,
    };
  }
}
