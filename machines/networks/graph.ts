/**
 * Which node must know what of the cluster's networks, updated incrementally at the cost of what a change touches. Takes
 * facts about the whole cluster; each follower has a view of one node, from which it takes the changes for that node.
 *
 * NG1: a node is sent the networks that its own tasks are in, all services, tasks and nodes in those networks, and nothing
 *      else.
 * NG2: everything that a view returned adds up to what NG1 says of the current facts, whatever happened before in whatever
 *      order.
 */
import {
  NetworksUpdate,
  type AttachedNetwork,
  type NetworkNode,
  type NetworkService,
  type NetworkTask,
} from "../../proto/gen/messages.ts";
import { SentObjects } from "../sent-objects.ts";

/** The contents of a network. */
interface Members {
  readonly services: Set<string>;
  readonly tasks: Set<string>;
  /** Number of tasks per node. */
  readonly nodes: Map<string, number>;
  fact: AttachedNetwork | null;
}

export class NetworkGraph {
  readonly #networks = new Map<string, Members>();
  readonly #nodes = new Map<string, NetworkNode>();
  readonly #services = new Map<string, NetworkService>();
  readonly #tasks = new Map<string, NetworkTask>();
  /** By node: ids of the networks that its tasks are in. */
  readonly #byNode = new Map<string, Set<string>>();
  readonly #views = new Map<string, Set<NetworkView>>();

  /** `onDirty`: called when there is something to take, once until it is taken. */
  follow(nodeId: string, onDirty: () => void): NetworkView {
    const view = new NetworkView(nodeId, this, onDirty);
    const views = this.#views.get(nodeId);
    if (views === undefined) this.#views.set(nodeId, new Set([view]));
    else views.add(view);
    for (const id of this.#byNode.get(nodeId) ?? []) this.#touchAll(view, id);
    return view;
  }

  unfollow(view: NetworkView): void {
    const views = this.#views.get(view.nodeId);
    views?.delete(view);
    if (views?.size === 0) this.#views.delete(view.nodeId);
  }

  setNode(id: string, fact: NetworkNode | null): void {
    if (fact === null) this.#nodes.delete(id);
    else this.#nodes.set(id, fact);
    for (const networkId of this.#byNode.get(id) ?? [])
      for (const view of this.#viewsOf(networkId)) view.touch("nodes", id);
  }

  setService(key: string, fact: NetworkService | null): void {
    const before = this.#services.get(key);
    if (fact === null) this.#services.delete(key);
    else this.#services.set(key, fact);
    const networkId = (fact ?? before)?.networkId ?? "";
    const members = this.#membersOf(networkId);
    if (fact === null) members.services.delete(key);
    else members.services.add(key);
    for (const view of this.#viewsOf(networkId)) view.touch("services", key);
    this.#dropIfEmpty(networkId);
  }

  /** `network`: the network that the task is in. The key names the task and the network, so it is unique. */
  setTask(key: string, fact: NetworkTask | null, network: AttachedNetwork | null): void {
    const before = this.#tasks.get(key);
    const networkId = (fact ?? before)?.networkId ?? "";
    const members = this.#membersOf(networkId);
    const touch = (): void => {
      for (const view of this.#viewsOf(networkId)) view.touch("tasks", key);
    };
    if (network !== null) members.fact ??= network;
    // The node of the last task that left is no longer among the network's views afterwards.
    touch();
    if (fact !== null) {
      this.#tasks.set(key, fact);
      members.tasks.add(key);
      this.#arrive(networkId, fact.nodeId);
    } else {
      this.#tasks.delete(key);
      members.tasks.delete(key);
    }
    if (before !== undefined) this.#leave(networkId, before.nodeId);
    touch();
    this.#dropIfEmpty(networkId);
  }

  network(id: string, nodeId: string): AttachedNetwork | undefined {
    return this.#isIn(nodeId, id) ? (this.#networks.get(id)?.fact ?? undefined) : undefined;
  }

  node(id: string, nodeId: string): NetworkNode | undefined {
    for (const networkId of this.#byNode.get(nodeId) ?? []) if (this.#isIn(id, networkId)) return this.#nodes.get(id);
    return undefined;
  }

  service(key: string, nodeId: string): NetworkService | undefined {
    const fact = this.#services.get(key);
    return fact !== undefined && this.#isIn(nodeId, fact.networkId) ? fact : undefined;
  }

  task(key: string, nodeId: string): NetworkTask | undefined {
    const fact = this.#tasks.get(key);
    return fact !== undefined && this.#isIn(nodeId, fact.networkId) ? fact : undefined;
  }

  #isIn(nodeId: string, networkId: string): boolean {
    return this.#byNode.get(nodeId)?.has(networkId) === true;
  }

  #arrive(networkId: string, nodeId: string): void {
    const { nodes } = this.#membersOf(networkId);
    const count = (nodes.get(nodeId) ?? 0) + 1;
    nodes.set(nodeId, count);
    if (count > 1) return;
    const networks = this.#byNode.get(nodeId);
    if (networks === undefined) this.#byNode.set(nodeId, new Set([networkId]));
    else networks.add(networkId);
    this.#metOrParted(networkId, nodeId);
  }

  #leave(networkId: string, nodeId: string): void {
    const { nodes } = this.#membersOf(networkId);
    const count = (nodes.get(nodeId) ?? 0) - 1;
    if (count > 0) {
      nodes.set(nodeId, count);
      return;
    }
    nodes.delete(nodeId);
    const networks = this.#byNode.get(nodeId);
    networks?.delete(networkId);
    if (networks?.size === 0) this.#byNode.delete(nodeId);
    this.#metOrParted(networkId, nodeId);
  }

  /** The node's first task joined the network, or its last one left. */
  #metOrParted(networkId: string, nodeId: string): void {
    for (const view of this.#viewsOf(networkId)) view.touch("nodes", nodeId);
    for (const view of this.#views.get(nodeId) ?? []) {
      this.#touchAll(view, networkId);
      view.touch("nodes", nodeId);
    }
  }

  #touchAll(view: NetworkView, networkId: string): void {
    const members = this.#networks.get(networkId);
    view.touch("networks", networkId);
    for (const key of members?.services ?? []) view.touch("services", key);
    for (const key of members?.tasks ?? []) view.touch("tasks", key);
    for (const id of members?.nodes.keys() ?? []) view.touch("nodes", id);
  }

  *#viewsOf(networkId: string): Iterable<NetworkView> {
    if (this.#views.size === 0) return;
    for (const nodeId of this.#networks.get(networkId)?.nodes.keys() ?? []) yield* this.#views.get(nodeId) ?? [];
  }

  #membersOf(networkId: string): Members {
    let members = this.#networks.get(networkId);
    if (members === undefined) {
      members = { services: new Set(), tasks: new Set(), nodes: new Map(), fact: null };
      this.#networks.set(networkId, members);
    }
    return members;
  }

  #dropIfEmpty(networkId: string): void {
    const members = this.#networks.get(networkId);
    if (members !== undefined && members.services.size + members.tasks.size === 0) this.#networks.delete(networkId);
  }
}

type Sort = "networks" | "nodes" | "services" | "tasks";

/** The state that one follower of one node was sent, and the changes that it must still be sent. */
export class NetworkView {
  readonly nodeId: string;
  readonly #graph: NetworkGraph;
  readonly #onDirty: () => void;
  readonly #sent = {
    networks: new SentObjects(),
    nodes: new SentObjects(),
    services: new SentObjects(),
    tasks: new SentObjects(),
  };
  #isNew = true;
  #isDirty = true;

  constructor(nodeId: string, graph: NetworkGraph, onDirty: () => void) {
    this.nodeId = nodeId;
    this.#graph = graph;
    this.#onDirty = onDirty;
  }

  touch(sort: Sort, key: string): void {
    this.#sent[sort].touch(key);
    if (this.#isDirty) return;
    this.#isDirty = true;
    this.#onDirty();
  }

  /** Changes since the last call; null without any. The first update is a complete state. NG2 */
  take(version: number): NetworksUpdate | null {
    if (!this.#isDirty) return null;
    this.#isDirty = false;
    const [graph, nodeId, sent] = [this.#graph, this.nodeId, this.#sent];
    const changed = {
      networks: [] as AttachedNetwork[],
      nodes: [] as NetworkNode[],
      services: [] as NetworkService[],
      tasks: [] as NetworkTask[],
    };
    const removed = {
      removedNetworks: [] as string[],
      removedNodes: [] as string[],
      removedServices: [] as string[],
      removedTasks: [] as string[],
    };
    sent.networks.drain((id) => graph.network(id, nodeId), changed.networks, removed.removedNetworks);
    sent.nodes.drain((id) => graph.node(id, nodeId), changed.nodes, removed.removedNodes);
    sent.services.drain((key) => graph.service(key, nodeId), changed.services, removed.removedServices);
    sent.tasks.drain((key) => graph.task(key, nodeId), changed.tasks, removed.removedTasks);
    const isEmpty = [...Object.values(changed), ...Object.values(removed)].every((list) => list.length === 0);
    if (isEmpty && !this.#isNew) return null;
    const update = NetworksUpdate.create({ fresh: this.#isNew, inSync: true, version, ...changed, ...removed });
    this.#isNew = false;
    return update;
  }
}
