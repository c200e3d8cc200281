/**
 * Turns changes of the cluster's objects into facts of the graph. Most task changes are state reports, which do not matter
 * here and are skipped first.
 */
import type { HostEndpoint, Manager, NetworkPolicy, Node, Resource, Service, Task } from "../../proto/gen/messages.ts";
import { isSameMessage } from "../same-message.ts";
import {
  hasEndpoints,
  hostEndpointFact,
  hostFact,
  servedAt,
  serviceFact,
  taskEndpoints,
  type EndpointFact,
} from "./facts.ts";
import type { PolicyGraph } from "./graph.ts";
import { readPolicyObject, type PolicyObject } from "./objects.ts";

/** The lookups that the feed needs from the store. */
interface ClusterReader {
  task(id: string): Task | undefined;
  service(id: string): Service | undefined;
  node(id: string): Node | undefined;
  nodes(): Iterable<Node>;
  tasksByService(id: string): Iterable<Task>;
  tasksByNode(id: string): Iterable<Task>;
}

export class PolicyFeed {
  readonly #graph: PolicyGraph;
  readonly #reader: ClusterReader;
  /** Endpoint ids by task id; only tasks with endpoints. */
  readonly #endpoints = new Map<string, readonly string[]>();
  readonly #hostEndpoints = new Map<string, HostEndpoint>();
  readonly #policies = new Map<string, NetworkPolicy>();
  /** Ids of the nodes with each hostname. */
  readonly #hostnames = new Map<string, Set<string>>();

  constructor(graph: PolicyGraph, reader: ClusterReader) {
    this.#graph = graph;
    this.#reader = reader;
  }

  taskChanged(old: Task | null, now: Task | null): void {
    const task = now ?? old;
    if (task === null || (old !== null && now !== null && isPlacedAlike(old, now))) return;
    if (now === null && !this.#endpoints.has(task.id)) return;
    this.#setTask(task.id, now);
  }

  serviceChanged(old: Service | null, now: Service | null): void {
    const service = now ?? old;
    if (service === null) return;
    if (old !== null && now !== null && isKnownAlike(old, now)) return;
    this.#graph.setServed(service.id, now === null ? null : serviceFact(now));
    for (const task of this.#reader.tasksByService(service.id)) this.#setTask(task.id, task);
  }

  nodeChanged(old: Node | null, now: Node | null): void {
    const node = now ?? old;
    if (node === null) return;
    for (const hostname of new Set([old?.description?.hostname, now?.description?.hostname]))
      if (hostname !== undefined && hostname !== "") this.#setHost(hostname, node.id, now);
    if (old !== null && now !== null && isLabelledAlike(old, now)) return;
    for (const task of this.#reader.tasksByNode(node.id)) this.#setTask(task.id, task);
    for (const [name, endpoint] of this.#hostEndpoints) this.#setHostEndpoint(name, endpoint);
  }

  resourceChanged(old: Resource | null, now: Resource | null): void {
    const before = old === null ? null : readPolicyObject(old);
    const after = now === null ? null : readPolicyObject(now);
    // An object that can no longer be decoded counts as removed.
    if (before !== null && (after === null || after.object.name !== before.object.name)) this.#forget(before);
    if (after !== null) this.#apply(after);
  }

  managerChanged(old: Manager | null, now: Manager | null): void {
    const manager = now ?? old;
    if (manager === null || old?.addr === now?.addr) return;
    this.#graph.setManager(manager.id, now?.addr ?? null);
  }

  #setTask(id: string, task: Task | null): void {
    const service = task === null ? undefined : this.#reader.service(task.serviceId);
    const facts: readonly EndpointFact[] =
      task === null ? [] : taskEndpoints(task, service, this.#reader.node(task.nodeId));
    const ids = facts.map((fact) => fact.id);
    for (const before of this.#endpoints.get(id) ?? []) {
      if (ids.includes(before)) continue;
      this.#graph.setEndpoint(before, null);
      this.#graph.setServed(before, null);
    }
    for (const fact of facts) {
      this.#graph.setEndpoint(fact.id, fact);
      this.#graph.setServed(fact.id, service === undefined ? null : servedAt(service, fact));
    }
    if (ids.length === 0) this.#endpoints.delete(id);
    else this.#endpoints.set(id, ids);
  }

  #setHost(hostname: string, nodeId: string, node: Node | null): void {
    const own = this.#hostnames.get(hostname) ?? new Set<string>();
    this.#hostnames.set(hostname, own);
    if (node?.description?.hostname === hostname) own.add(nodeId);
    else own.delete(nodeId);
    if (own.size === 0) this.#hostnames.delete(hostname);
    // Of several the one with the highest id, like `calculateNode`.
    const nodes = [...own].toSorted().map((id) => (id === nodeId ? node : this.#reader.node(id)));
    const hosts = nodes.map((each) => (each ? hostFact(each) : null)).filter((each) => each !== null);
    const host = hosts.at(-1) ?? null;
    if (!isSameMessage(host, this.#graph.hosts.get(hostname) ?? null)) this.#graph.setHost(hostname, host);
  }

  #setHostEndpoint(name: string, endpoint: HostEndpoint | null): void {
    const node = endpoint === null ? undefined : this.#nodeNamed(endpoint.node);
    this.#graph.setEndpoint(name, endpoint === null ? null : hostEndpointFact(endpoint, node));
  }

  #nodeNamed(name: string): Node | undefined {
    const byId = this.#reader.node(name);
    const [first] = [...(this.#hostnames.get(name) ?? [])].toSorted();
    if (byId === undefined) return first === undefined ? undefined : this.#reader.node(first);
    return first !== undefined && first < byId.id ? this.#reader.node(first) : byId;
  }

  #apply(of: PolicyObject): void {
    const { name } = of.object;
    switch (of.kind) {
      case "NetworkPolicy":
        this.#graph.setPolicy(this.#policies.get(name) ?? null, of.object);
        this.#policies.set(name, of.object);
        break;
      case "NetworkProfile":
        this.#graph.setProfile(name, of.object);
        break;
      case "HostEndpoint":
        this.#hostEndpoints.set(name, of.object);
        this.#setHostEndpoint(name, of.object);
        break;
      case "Tier":
        this.#graph.setTier(name, of.object);
    }
  }

  #forget(of: PolicyObject): void {
    const { name } = of.object;
    switch (of.kind) {
      case "NetworkPolicy":
        this.#graph.setPolicy(this.#policies.get(name) ?? null, null);
        this.#policies.delete(name);
        break;
      case "NetworkProfile":
        this.#graph.setProfile(name, null);
        break;
      case "HostEndpoint":
        this.#hostEndpoints.delete(name);
        this.#setHostEndpoint(name, null);
        break;
      case "Tier":
        this.#graph.setTier(name, null);
    }
  }
}

function isPlacedAlike(old: Task, now: Task): boolean {
  const has = hasEndpoints(now);
  if (has !== hasEndpoints(old)) return false;
  return (
    !has ||
    (old.nodeId === now.nodeId &&
      isSameMessage(old.networks, now.networks) &&
      isSameMessage(old.spec, now.spec) &&
      isSameMessage(old.serviceAnnotations, now.serviceAnnotations))
  );
}

function isKnownAlike(old: Service, now: Service): boolean {
  return (
    isSameMessage(old.spec?.annotations ?? null, now.spec?.annotations ?? null) &&
    isSameMessage(old.spec?.endpoint ?? null, now.spec?.endpoint ?? null) &&
    isSameMessage(old.endpoint, now.endpoint)
  );
}

function isLabelledAlike(old: Node, now: Node): boolean {
  return (
    old.role === now.role &&
    isSameMessage(old.spec?.annotations ?? null, now.spec?.annotations ?? null) &&
    old.description?.hostname === now.description?.hostname &&
    isSameMessage(old.description?.engine?.labels ?? {}, now.description?.engine?.labels ?? {})
  );
}
