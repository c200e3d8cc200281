/**
 * Everything that the cluster gives out, and who has it: ports, VXLAN ids, subnets, and the addresses of each network
 * that services, tasks and nodes hold. Made anew from the store by each leader: what is stored wins. A decision takes
 * what it gives at once; following the stored object afterwards gives back what did not come to be written.
 *
 * N1: an address is held by one service, task or node.
 * N2: what belongs to nothing that exists is free again.
 * N3: a network's subnet and VXLAN ids outlive it as long as a task or node has an address of it.
 */
import {
  Endpoint,
  Endpoint_VirtualIP,
  EndpointSpec_ResolutionMode,
  NetworkAttachment,
  NetworkAttachmentConfig,
  TaskState,
  type Network,
  type Node,
  type Service,
  type Task,
  type TaskSpec,
} from "../../proto/gen/messages.ts";
import { isSameMessage } from "../same-message.ts";
import { observedState } from "../task.ts";
import { AddressSpace } from "./addresses.ts";
import {
  claimNetwork,
  decideNetwork,
  isAllocated,
  isNodeLocal,
  type NetworkDecision,
  type NetworkSpaces,
} from "./network.ts";
import { decidePorts, holdsPorts, isIngressPort, PortSpace } from "./ports.ts";
import { SubnetSpace, type DefaultPools } from "./subnets.ts";
import { VxlanSpace } from "./vxlan.ts";
import { causes, type Cause } from "./waiting.ts";

/** What is asked of the store. */
export interface AllocationView {
  network(idOrName: string): Network | undefined;
  service(id: string): Service | undefined;
  defaultPools(): DefaultPools;
}

/** `reason` is empty while what is waited for is only yet to be written. */
export interface Blocked {
  readonly kind: "blocked";
  readonly cause: Cause;
  readonly reason: string;
}

export type EndpointDecision =
  /** The stored endpoint is what the service asks for. */
  { readonly kind: "allocated" } | { readonly kind: "endpoint"; readonly endpoint: Endpoint } | Blocked;

export type TaskDecision =
  /** May go on with these; `endpoint` is null when the one it was made with will do. */
  | { readonly kind: "ready"; readonly endpoint: Endpoint | null; readonly networks: readonly NetworkAttachment[] }
  | Blocked
  /** Nobody wants it any more. */
  | { readonly kind: "unwanted" };

export interface NodeDecision {
  /** What its attachments have to be; null when they are that. */
  readonly attachments: readonly NetworkAttachment[] | null;
  /** For what it could not be given. */
  readonly blocked: readonly Blocked[];
}

/** A network that has or had addresses. */
interface Entry {
  network: Network;
  readonly space: AddressSpace | null;
  /** Removed, but addresses of it are still held (N3). */
  isGone: boolean;
}

interface PlannedAttachment {
  readonly network: Network;
  readonly space: AddressSpace | null;
  readonly config: NetworkAttachmentConfig;
}

/** What all tasks of one spec are given. */
interface Plan {
  readonly serviceId: string;
  readonly problem: Blocked | null;
  readonly endpoint: Endpoint | null;
  readonly attach: readonly PlannedAttachment[];
}

/** Of one round, in which nothing but the tasks changes. */
export type Plans = Map<TaskSpec | null, Plan>;

/** What of a task its addresses are known by. */
interface TaskHold {
  readonly nodeId: string;
  readonly networks: readonly NetworkAttachment[];
}

const nothing: readonly never[] = Object.freeze([]);

export class Allocation {
  readonly ports = new PortSpace();
  readonly #view: AllocationView;
  readonly #spaces: NetworkSpaces;
  readonly #entries = new Map<string, Entry>();
  readonly #tasks = new Map<string, TaskHold>();
  readonly #services = new Map<string, readonly Endpoint_VirtualIP[]>();
  readonly #nodes = new Map<string, readonly NetworkAttachment[]>();
  /** By node and network: how many tasks of it are there. */
  readonly #needs = new Map<string, Map<string, number>>();
  readonly #needsChanged = new Set<string>();
  /** Addresses that objects have in the store but do not hold, for they are another's (N1): `<owner> <network> <address>`. */
  readonly #foreign = new Set<string>();
  /** Why a network is not allocated, for those who wait for it. */
  readonly #problems = new Map<string, string>();
  /** Why a service's endpoint could not be allocated, for its tasks. */
  readonly #serviceProblems = new Map<string, string>();
  readonly #opened = new Set<Cause>();
  /** Addresses that somebody asked for by name while they were taken. */
  readonly #awaited = new Set<Cause>();
  #ingress: string | null = null;

  constructor(view: AllocationView) {
    this.#view = view;
    this.#spaces = {
      subnets: new SubnetSpace(),
      vxlan: new VxlanSpace(),
      nameOf: (id) => nameOf(view.network(id) ?? this.#entries.get(id)?.network, id),
    };
  }

  get hasOpened(): boolean {
    return this.#opened.size > 0;
  }

  /** What has been freed or added since it was asked last. */
  takeOpened(): readonly Cause[] {
    const opened = [...this.#opened];
    this.#opened.clear();
    return opened;
  }

  /** How many that wait for what has been opened it may help; for a network's addresses no more than there are. */
  roomFor(cause: Cause): number {
    const networkId = addressedNetwork(cause);
    return networkId === null ? Number.POSITIVE_INFINITY : (this.#entries.get(networkId)?.space?.room ?? 0);
  }

  /** Nodes whose tasks' networks have changed since it was asked last. */
  takeChangedNodes(): readonly string[] {
    const changed = [...this.#needsChanged];
    this.#needsChanged.clear();
    return changed;
  }

  /** Why the service's endpoint could not be allocated; empty when it is, or is yet to be tried. */
  problemOfService(id: string): string {
    return this.#serviceProblems.get(id) ?? "";
  }

  followDefaultPools(): void {
    this.#opened.add(causes.subnets);
  }

  /** `network`: as it is stored; null when it is gone. */
  followNetwork(id: string, network: Network | null): void {
    const entry = this.#entries.get(id);
    if (network === null) {
      this.#problems.delete(id);
      if (this.#ingress === id) this.#ingress = null;
      if (entry === undefined) {
        // It was being allocated.
        this.#freeNetwork(id);
        return;
      }
      entry.isGone = true;
      this.#freeIfUnused(id, entry);
      return;
    }
    if (!isAllocated(network)) {
      if (entry === undefined) this.#freeNetwork(id);
      return;
    }
    this.#problems.delete(id);
    if (network.spec?.ingress === true) {
      this.#ingress = id;
      this.#opened.add(causes.ingress);
    }
    if (entry !== undefined) {
      entry.network = network;
      entry.isGone = false;
    } else this.#admit(network);
    this.#opened.add(causes.network(id));
    this.#opened.add(causes.network(nameOf(network, id)));
  }

  /** Null when it is gone. */
  followService(id: string, service: Service | null): void {
    const had = service?.endpoint?.ports ?? nothing;
    if (service === null) {
      if (this.ports.release(id)) this.#opened.add(causes.ports);
      this.#opened.add(causes.service(id));
      this.#serviceProblems.delete(id);
    } else {
      if (this.ports.claim(id, had)) this.#opened.add(causes.ports);
      if (this.isEndpointAllocated(service)) this.#opened.add(causes.service(id));
    }
    this.#holdVips(id, service?.endpoint?.virtualIps ?? nothing);
  }

  /** Null when it is gone. An ended task holds nothing. */
  followTask(id: string, task: Task | null): void {
    const isOver = task === null || observedState(task) > TaskState.RUNNING;
    this.#holdTask(id, isOver || task.networks.length === 0 ? null : task);
  }

  /** Null when it is gone. */
  followNode(id: string, node: Node | null): void {
    this.#holdAttachments(id, node?.attachments ?? nothing);
  }

  decideNetwork(network: Network): NetworkDecision {
    const decision = decideNetwork(network, this.#spaces, this.#view.defaultPools());
    if (decision.kind !== "blocked") return decision;
    if (this.#problems.get(network.id) !== decision.reason) this.#opened.add(causes.network(network.id));
    this.#problems.set(network.id, decision.reason);
    return decision;
  }

  /** Why the network could not be allocated; empty when it is, or is yet to be tried. */
  problemOf(networkId: string): string {
    return this.#problems.get(networkId) ?? "";
  }

  isEndpointAllocated(service: Service): boolean {
    const spec = service.spec?.endpoint ?? null;
    const had = service.endpoint;
    const asked = spec?.ports ?? nothing;
    const targets = this.#vipTargets(service);
    if (asked.length === 0 && targets.length === 0 && (had === null || isEmpty(had))) return true;
    if (had === null || had.ports.length !== asked.length || had.virtualIps.length !== targets.length) return false;
    if (!isSameMessage(had.spec, spec) || !holdsPorts(service.id, had.ports, this.ports)) return false;
    for (const target of targets) {
      const network = this.#view.network(target);
      const vip = had.virtualIps.find(({ networkId }) => networkId === network?.id);
      if (vip === undefined || this.#foreign.has(foreignKey(service.id, vip.networkId, vip.addr))) return false;
    }
    return true;
  }

  decideEndpoint(service: Service): EndpointDecision {
    const decision = this.#decideEndpoint(service);
    if (decision.kind === "blocked") {
      if ((this.#serviceProblems.get(service.id) ?? "") !== decision.reason)
        this.#opened.add(causes.service(service.id));
      this.#serviceProblems.set(service.id, decision.reason);
    } else this.#serviceProblems.delete(service.id);
    return decision;
  }

  #decideEndpoint(service: Service): EndpointDecision {
    if (this.isEndpointAllocated(service)) return { kind: "allocated" };
    const decided = decidePorts(service, this.ports);
    if ("problem" in decided) return blocked(causes.ports, decided.problem);
    const had = service.endpoint?.virtualIps ?? nothing;
    const kept: Endpoint_VirtualIP[] = [];
    const taken: Endpoint_VirtualIP[] = [];
    for (const target of this.#vipTargets(service)) {
      const found = this.#find(target);
      if ("kind" in found) {
        this.#giveBack(taken);
        return found;
      }
      const { id } = found.network;
      const old = had.find(({ networkId }) => networkId === id);
      if (old !== undefined && !this.#foreign.has(foreignKey(service.id, id, old.addr))) {
        kept.push(old);
        continue;
      }
      // Networks of single nodes are listed without an address.
      const addr = found.space === null ? "" : found.space.take();
      if (addr === null) {
        this.#giveBack(taken);
        return exhausted(found);
      }
      const vip = Endpoint_VirtualIP.create({ networkId: id, addr });
      kept.push(vip);
      taken.push(vip);
    }
    // As with nodes: what is dropped is given back when the store has dropped it.
    const dropped = (this.#services.get(service.id) ?? nothing).filter(
      (vip) => !kept.some((other) => isSameVip(vip, other)),
    );
    this.#noteVips(service.id, [...dropped, ...kept]);
    if (this.ports.claim(service.id, decided.ports)) this.#opened.add(causes.ports);
    const spec = service.spec?.endpoint ?? null;
    return { kind: "endpoint", endpoint: Endpoint.create({ spec, ports: decided.ports, virtualIps: kept }) };
  }

  /** `plans`: made anew for each round. */
  decideTask(task: Task, plans: Plans): TaskDecision {
    if (task.desiredState > TaskState.COMPLETE) return { kind: "unwanted" };
    let plan = plans.get(task.spec);
    if (plan === undefined || plan.serviceId !== task.serviceId) plans.set(task.spec, (plan = this.#planFor(task)));
    if (plan.problem !== null) return plan.problem;
    const networks = this.#attach(plan);
    if ("kind" in networks) return networks;
    if (networks.length > 0) this.#noteTask(task.id, { nodeId: task.nodeId, networks });
    return { kind: "ready", endpoint: plan.endpoint, networks };
  }

  decideNode(node: Node): NodeDecision {
    const wanted = new Set<string>(this.#needs.get(node.id)?.keys());
    if (this.#ingress !== null) wanted.add(this.#ingress);
    const attachments: NetworkAttachment[] = [];
    const problems: Blocked[] = [];
    for (const attachment of node.attachments) {
      const id = attachment.network?.id ?? "";
      const isHeld = !this.#foreign.has(foreignKey(node.id, id, attachment.addresses[0] ?? ""));
      if (this.#isLive(id) && isHeld && wanted.delete(id)) attachments.push(attachment);
    }
    const isChanged = attachments.length !== node.attachments.length;
    const kept = attachments.length;
    for (const id of wanted) {
      const entry = this.#entries.get(id);
      if (entry === undefined || entry.isGone || entry.space === null) continue;
      const address = entry.space.take();
      if (address === null) problems.push(exhausted({ network: entry.network, space: entry.space }));
      else attachments.push(NetworkAttachment.create({ network: entry.network, addresses: [address] }));
    }
    if (!isChanged && attachments.length === kept) return { attachments: null, blocked: problems };
    // What is dropped is given back when the store has dropped it.
    this.#noteAttachments(node.id, [...this.#droppedOf(node.id, attachments), ...attachments]);
    return { attachments, blocked: problems };
  }

  // -- networks

  #admit(network: Network): Entry {
    claimNetwork(network, this.#spaces);
    const space = isNodeLocal(network) ? null : new AddressSpace(network.ipam?.configs ?? []);
    const entry: Entry = { network, space, isGone: false };
    this.#entries.set(network.id, entry);
    return entry;
  }

  #isLive(id: string): boolean {
    return this.#entries.get(id)?.isGone === false;
  }

  /** N3 */
  #freeIfUnused(id: string, entry: Entry): void {
    if (!entry.isGone || (entry.space !== null && entry.space.holders > 0)) return;
    this.#entries.delete(id);
    this.#freeNetwork(id);
  }

  #freeNetwork(id: string): void {
    const subnets = this.#spaces.subnets.release(id);
    const ids = this.#spaces.vxlan.release(id);
    if (subnets || ids) this.#opened.add(causes.subnets);
  }

  #find(target: string): { readonly network: Network; readonly space: AddressSpace | null } | Blocked {
    if (target === missingIngress) return blocked(causes.ingress, ingressProblem);
    const network = this.#view.network(target);
    if (network === undefined) return blocked(causes.network(target), `network ${target} does not exist`);
    const entry = this.#entries.get(network.id);
    if (entry !== undefined && !entry.isGone) return entry;
    const problem = this.#problems.get(network.id);
    const reason = problem === undefined ? "" : `network ${nameOf(network, target)} cannot be used: ${problem}`;
    return blocked(causes.network(network.id), reason);
  }

  /** Of what the addresses of a removed network are known by: the copy that tasks and nodes carry. */
  #entryFor(network: Network): Entry | undefined {
    const entry = this.#entries.get(network.id);
    if (entry !== undefined || !isAllocated(network) || isNodeLocal(network)) return entry;
    if (this.#view.network(network.id) !== undefined) return undefined;
    const gone = this.#admit(network);
    gone.isGone = true;
    return gone;
  }

  // -- who holds what

  #claim(owner: string, networkId: string, space: AddressSpace | null | undefined, address: string): void {
    if (space == null || address === "") return;
    if (!space.claim(address)) this.#foreign.add(foreignKey(owner, networkId, address));
  }

  #release(owner: string, networkId: string, address: string): void {
    if (address === "" || (this.#foreign.size > 0 && this.#foreign.delete(foreignKey(owner, networkId, address))))
      return;
    const entry = this.#entries.get(networkId);
    if (entry?.space?.release(address) !== true) return;
    this.#opened.add(causes.addresses(networkId));
    if (this.#awaited.size > 0) {
      const cause = causes.address(networkId, withoutLength(address));
      if (this.#awaited.delete(cause)) this.#opened.add(cause);
    }
    this.#freeIfUnused(networkId, entry);
  }

  #holdTask(id: string, next: TaskHold | null): void {
    const old = this.#tasks.get(id);
    if (old === undefined && next === null) return;
    if (old !== undefined && next !== null && isSameAttachments(old.networks, next.networks)) {
      if (old.nodeId !== next.nodeId) {
        this.#need(old, -1);
        this.#need(next, 1);
      }
      this.#tasks.set(id, { nodeId: next.nodeId, networks: next.networks });
      return;
    }
    if (old !== undefined) {
      this.#need(old, -1);
      for (const { network, addresses } of old.networks)
        for (const address of addresses) this.#release(id, network?.id ?? "", address);
      this.#tasks.delete(id);
    }
    if (next === null) return;
    for (const { network, addresses } of next.networks) {
      if (network === null) continue;
      const entry = this.#entryFor(network);
      for (const address of addresses) this.#claim(id, network.id, entry?.space, address);
    }
    this.#noteTask(id, next);
  }

  /** Of what has been taken already. */
  #noteTask(id: string, { nodeId, networks }: TaskHold): void {
    const hold: TaskHold = { nodeId, networks };
    this.#tasks.set(id, hold);
    this.#need(hold, 1);
  }

  #need({ nodeId, networks }: TaskHold, change: number): void {
    if (nodeId === "") return;
    let needs = this.#needs.get(nodeId);
    if (needs === undefined) this.#needs.set(nodeId, (needs = new Map()));
    for (const { network, addresses } of networks) {
      if (network === null || addresses.length === 0) continue;
      const count = (needs.get(network.id) ?? 0) + change;
      if (count > 0) needs.set(network.id, count);
      else needs.delete(network.id);
      if (count === 0 || (change > 0 && count === 1)) this.#needsChanged.add(nodeId);
    }
    if (needs.size === 0) this.#needs.delete(nodeId);
  }

  #holdVips(id: string, next: readonly Endpoint_VirtualIP[]): void {
    const old = this.#services.get(id) ?? nothing;
    if (old === next) return;
    for (const vip of old) if (!next.some((other) => isSameVip(vip, other))) this.#release(id, vip.networkId, vip.addr);
    for (const vip of next)
      if (!old.some((other) => isSameVip(vip, other)))
        this.#claim(id, vip.networkId, this.#entries.get(vip.networkId)?.space, vip.addr);
    this.#noteVips(id, next);
  }

  #noteVips(id: string, vips: readonly Endpoint_VirtualIP[]): void {
    if (vips.length > 0) this.#services.set(id, vips);
    else this.#services.delete(id);
  }

  #giveBack(vips: readonly Endpoint_VirtualIP[]): void {
    for (const { networkId, addr } of vips) this.#entries.get(networkId)?.space?.release(addr);
  }

  #holdAttachments(id: string, next: readonly NetworkAttachment[]): void {
    const old = this.#nodes.get(id) ?? nothing;
    if (old === next) return;
    for (const held of old)
      if (!next.some((attachment) => isSameAttachment(attachment, held)))
        for (const address of held.addresses) this.#release(id, held.network?.id ?? "", address);
    for (const attachment of next) {
      const { network, addresses } = attachment;
      if (network === null || old.some((held) => isSameAttachment(attachment, held))) continue;
      const entry = this.#entryFor(network);
      for (const address of addresses) this.#claim(id, network.id, entry?.space, address);
    }
    this.#noteAttachments(id, next);
  }

  #noteAttachments(id: string, attachments: readonly NetworkAttachment[]): void {
    if (attachments.length > 0) this.#nodes.set(id, attachments);
    else this.#nodes.delete(id);
  }

  #droppedOf(id: string, next: readonly NetworkAttachment[]): readonly NetworkAttachment[] {
    return (this.#nodes.get(id) ?? nothing).filter((held) => !next.some((kept) => isSameAttachment(kept, held)));
  }

  // -- what a service and a task ask for

  /** Networks in which the service has a virtual IP: ids or names. */
  #vipTargets(service: Service): readonly string[] {
    const { spec } = service;
    if (spec?.endpoint?.mode === EndpointSpec_ResolutionMode.DNSRR) return nothing;
    const networks = networksOf(spec?.task?.networks ?? nothing, service);
    const isPublished = needsIngress(service);
    if (networks.length === 0 && !isPublished) return nothing;
    const targets = isPublished ? [this.#ingress ?? missingIngress] : [];
    const ids = new Set(targets);
    for (const { target } of networks) {
      const id = this.#view.network(target)?.id ?? target;
      if (ids.has(id)) continue;
      ids.add(id);
      targets.push(target);
    }
    return targets;
  }

  #planFor({ serviceId, spec }: Task): Plan {
    const service = serviceId === "" ? undefined : this.#view.service(serviceId);
    const stuck = (problem: Blocked): Plan => ({ serviceId, problem, endpoint: null, attach: nothing });
    if (service !== undefined && !this.isEndpointAllocated(service))
      return stuck(blocked(causes.service(serviceId), this.#serviceProblems.get(serviceId) ?? ""));
    const targets: NetworkAttachmentConfig[] = [...networksOf(spec?.networks ?? nothing, service)];
    // Engines expect the ingress network first.
    if (service !== undefined && needsIngress(service))
      targets.unshift(NetworkAttachmentConfig.create({ target: this.#ingress ?? missingIngress }));
    const attach: PlannedAttachment[] = [];
    for (const config of targets) {
      const found = this.#find(config.target);
      if ("kind" in found) return stuck(found);
      if (!attach.some(({ network }) => network.id === found.network.id)) attach.push({ ...found, config });
    }
    const endpoint = service?.endpoint ?? null;
    return { serviceId, problem: null, endpoint: endpoint === null || isEmpty(endpoint) ? null : endpoint, attach };
  }

  /** An attachment for each network that the task asks for; when one cannot be had, none is taken. */
  #attach({ attach }: Plan): readonly NetworkAttachment[] | Blocked {
    if (attach.length === 0) return nothing;
    const attachments: NetworkAttachment[] = [];
    for (const planned of attach) {
      const attachment = attachmentOf(planned);
      if (!("kind" in attachment)) {
        attachments.push(attachment);
        continue;
      }
      for (const { network, addresses } of attachments)
        for (const address of addresses) this.#entries.get(network?.id ?? "")?.space?.release(address);
      if (attachment.cause !== causes.addresses(planned.network.id)) this.#awaited.add(attachment.cause);
      return attachment;
    }
    return attachments;
  }
}

/** Stands for the ingress network where there is none: no id and no name is like it. */
const missingIngress = "ingress network";
const ingressProblem = "the service publishes ports, but there is no ingress network";

function blocked(cause: Cause, reason: string): Blocked {
  return { kind: "blocked", cause, reason };
}

function exhausted({ network, space }: { readonly network: Network; readonly space: AddressSpace | null }): Blocked {
  const name = nameOf(network, network.id);
  return blocked(causes.addresses(network.id), `network ${name} has no free address left in ${space?.name ?? ""}`);
}

function attachmentOf({ network, space, config }: PlannedAttachment): NetworkAttachment | Blocked {
  const { addresses: asked, aliases, driverAttachmentOpts } = config;
  let addresses: readonly string[] = nothing;
  if (space !== null) {
    const [exact = ""] = asked;
    if (exact === "") {
      const address = space.take();
      if (address === null) return exhausted({ network, space });
      addresses = [address];
    } else {
      const taken = space.takeExactly(exact);
      if ("problem" in taken) {
        const reason = `network ${nameOf(network, network.id)}: ${taken.problem}`;
        return blocked(causes.address(network.id, withoutLength(exact)), reason);
      }
      addresses = [taken.address];
    }
  }
  return NetworkAttachment.create({ network, addresses, aliases, driverAttachmentOpts });
}

function withoutLength(address: string): string {
  const slash = address.indexOf("/");
  return slash < 0 ? address : address.slice(0, slash);
}

/** The older place for a service's networks counts where the newer one is empty. */
function networksOf(
  ofTask: readonly NetworkAttachmentConfig[],
  service: Service | undefined,
): readonly NetworkAttachmentConfig[] {
  return ofTask.length > 0 ? ofTask : (service?.spec?.networks ?? nothing);
}

function needsIngress(service: Service): boolean {
  const ports = service.spec?.endpoint?.ports ?? nothing;
  return ports.some(isIngressPort);
}

function isEmpty(endpoint: Endpoint): boolean {
  return endpoint.ports.length === 0 && endpoint.virtualIps.length === 0;
}

function isSameVip(a: Endpoint_VirtualIP, b: Endpoint_VirtualIP): boolean {
  return a.networkId === b.networkId && a.addr === b.addr;
}

function isSameAttachment(a: NetworkAttachment, b: NetworkAttachment): boolean {
  return (
    a === b ||
    (a.network?.id === b.network?.id &&
      a.addresses.length === b.addresses.length &&
      a.addresses.every((address, at) => address === b.addresses[at]))
  );
}

function isSameAttachments(a: readonly NetworkAttachment[], b: readonly NetworkAttachment[]): boolean {
  return a === b || (a.length === b.length && a.every((one, at) => isSameAttachment(one, b[at] as NetworkAttachment)));
}

function nameOf(network: Network | undefined, otherwise: string): string {
  return network?.spec?.annotations?.name || otherwise;
}

/** The network whose addresses the cause is about. */
function addressedNetwork(cause: Cause): string | null {
  const prefix = causes.addresses("");
  return cause.startsWith(prefix) ? cause.slice(prefix.length) : null;
}

function foreignKey(owner: string, networkId: string, address: string): string {
  return `${owner} ${networkId} ${address}`;
}
