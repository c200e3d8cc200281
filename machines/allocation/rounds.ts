/**
 * The allocator's rounds: queues the objects that lack something, gives them what they can get, and lets the others wait for
 * what they lack. An object that is being written is skipped until that has settled; then the stored object counts, whoever
 * wrote it.
 */
import {
  NodePatch,
  Operation,
  Service,
  StoreObject,
  TaskState,
  TaskStatus,
  type Cluster,
  type Network,
  type Node,
  type Task,
  type TaskPatch,
  type Timestamp,
} from "../../proto/gen/messages.ts";
import { moved } from "../task-moves.ts";
import { isEnded, isLeaving, observedState } from "../task.ts";
import { Allocation, type AllocationView, type Plans } from "./allocation.ts";
import type { AllocatorVerdict } from "./allocator.machine.ts";
import { causes, Waiting, type Blocked, type Cause } from "./waiting.ts";

/** In the order in which they are allocated: tasks come after what they depend on. */
const kinds = ["network", "node", "service", "task"] as const;
type Kind = (typeof kinds)[number];

/** Objects of one kind: those due, those waiting for resources, and those being written. */
class AllocationQueue {
  readonly due = new Set<string>();
  readonly waiting = new Waiting();
  readonly writing = new Set<string>();

  add(id: string): boolean {
    if (this.writing.has(id)) return false;
    this.due.add(id);
    return true;
  }

  /** Removes and yields due objects. */
  *take(most = Number.POSITIVE_INFINITY): Generator<string> {
    let left = most;
    for (const id of this.due) {
      if (left === 0) return;
      left -= 1;
      this.due.delete(id);
      if (!this.writing.has(id)) yield id;
    }
  }
}

interface AllocationRound {
  readonly verdict: AllocatorVerdict;
  /** To be written, and then given to `written`. */
  readonly operations: readonly Operation[];
}

/** The store, as far as the allocator depends on it. */
interface AllocatorView extends AllocationView {
  networks(): Iterable<Network>;
  services(): Iterable<Service>;
  nodes(): Iterable<Node>;
  node(id: string): Node | undefined;
  tasks(): Iterable<Task>;
  task(id: string): Task | undefined;
  /** Called when a network cannot be allocated, once for each reason. */
  complain(network: Network, reason: string): void;
}

export class AllocationRounds {
  readonly #view: AllocatorView;
  /** Maximum tasks per round. */
  readonly #tasksMax: number;
  readonly #allocation: Allocation;
  readonly #queues: Readonly<Record<Kind, AllocationQueue>> = {
    network: new AllocationQueue(),
    service: new AllocationQueue(),
    node: new AllocationQueue(),
    task: new AllocationQueue(),
  };
  /** Number of objects that waited for each cause reopened since the last round. */
  readonly #tried = new Map<Cause, number>();
  #hasNews = false;

  constructor(view: AllocatorView, tasksMax: number) {
    this.#view = view;
    this.#tasksMax = tasksMax;
    this.#allocation = new Allocation(view);
    // Stored allocations win, so all of them are claimed before anything is allocated.
    for (const network of view.networks()) this.#allocation.followNetwork(network.id, network);
    for (const service of view.services()) this.#allocation.followService(service.id, service);
    for (const task of view.tasks()) this.#allocation.followTask(task.id, task);
    for (const node of view.nodes()) this.#allocation.followNode(node.id, node);
    for (const { id } of view.networks()) this.#arrive("network", id);
    for (const service of view.services()) this.#arriveService(service);
    for (const { id } of view.nodes()) this.#arrive("node", id);
    for (const task of view.tasks()) this.#arriveTask(task);
  }

  /** The number of allocated resources. */
  get held(): Allocation["held"] {
    return this.#allocation.held;
  }

  /** Empty: none. */
  problemOfService(id: string): string {
    return this.#allocation.problemOfService(id);
  }

  /** To be called at the end of a commit or write: whether a round is needed. */
  takeNews(): boolean {
    for (const id of this.#allocation.takeChangedNodes()) this.#arrive("node", id);
    const hasNews = this.#wake() || this.#hasNews;
    this.#hasNews = false;
    return hasNews;
  }

  taskChanged(old: Task | null, task: Task | null): void {
    const id = (task ?? (old as Task)).id;
    if (this.#queues.task.writing.has(id)) return;
    if (task === null) {
      this.#queues.task.waiting.delete(id);
      if ((old as Task).networks.length > 0) this.#allocation.followTask(id, null);
      return;
    }
    if (observedState(task) !== TaskState.NEW) this.#queues.task.waiting.delete(id);
    if (holdsOtherwise(old, task)) this.#allocation.followTask(id, task);
    if (old === null || old.desiredState !== task.desiredState) this.#arriveTask(task);
  }

  serviceChanged(old: Service | null, service: Service | null): void {
    const id = (service ?? (old as Service)).id;
    if (this.#queues.service.writing.has(id)) return;
    this.#allocation.followService(id, service);
    if (service === null) this.#queues.service.waiting.delete(id);
    else this.#arriveService(service);
  }

  networkChanged(old: Network | null, network: Network | null): void {
    const id = (network ?? (old as Network)).id;
    if (this.#queues.network.writing.has(id)) return;
    this.#allocation.followNetwork(id, network);
    if (network !== null) {
      this.#arrive("network", id);
      return;
    }
    this.#queues.network.waiting.delete(id);
    for (const node of this.#view.nodes())
      if (node.attachments.some((attachment) => attachment.network?.id === id)) this.#arrive("node", node.id);
  }

  nodeChanged(old: Node | null, node: Node | null): void {
    const id = (node ?? (old as Node)).id;
    if (this.#queues.node.writing.has(id)) return;
    if (node === null) {
      this.#queues.node.waiting.delete(id);
      this.#allocation.nodeGone();
    } else if (old !== null && old.attachments === node.attachments) return;
    this.#allocation.followNode(id, node);
    if (node !== null) this.#arrive("node", id);
  }

  clusterChanged(old: Cluster | null, cluster: Cluster | null): void {
    if (old?.defaultAddressPool !== cluster?.defaultAddressPool || old?.subnetSize !== cluster?.subnetSize)
      this.#allocation.followDefaultPools();
  }

  #arrive(kind: Kind, id: string): void {
    if (this.#queues[kind].add(id)) this.#hasNews = true;
  }

  /** Only services that need a write are queued, so most services cost nothing here. */
  #arriveService(service: Service): void {
    if (!this.#allocation.isEndpointAllocated(service)) this.#arrive("service", service.id);
  }

  #arriveTask(task: Task): void {
    if (observedState(task) === TaskState.NEW && !isLeaving(task)) this.#arrive("task", task.id);
  }

  /** Gives freed or added resources to the objects that have waited longest. True when there are any. */
  #wake(): boolean {
    if (!this.#allocation.hasOpened) return false;
    let isWoken = false;
    for (const cause of this.#allocation.takeOpened()) {
      if (cause === causes.ingress) {
        for (const { id } of this.#view.nodes()) isWoken = this.#queues.node.add(id) || isWoken;
      }
      const waiting = this.#countFor(cause);
      if (waiting === 0) continue;
      this.#tried.set(cause, waiting);
      let room = this.#allocation.roomFor(cause);
      for (const kind of kinds) {
        const queue = this.#queues[kind];
        for (const id of queue.waiting.first(cause, room)) {
          isWoken = queue.add(id) || isWoken;
          room -= 1;
        }
      }
    }
    return isWoken;
  }

  #countFor(cause: Cause): number {
    return kinds.reduce((sum, kind) => sum + this.#queues[kind].waiting.countFor(cause), 0);
  }

  /** `timestamp`: the current time. */
  round(timestamp: Timestamp): AllocationRound {
    const operations: Operation[] = [];
    this.#allocateNetworks(operations);
    this.#allocateServices(operations);
    const tasks: Operation[] = [];
    this.#allocateTasks(tasks, timestamp);
    for (const id of this.#allocation.takeChangedNodes()) this.#queues.node.add(id);
    // Before the tasks: an engine connects a container to a network only once the node has its address there.
    this.#allocateNodes(operations);
    for (const task of tasks) operations.push(task);
    // Some of the objects that were retried may wait for another cause now: the next ones can be tried.
    for (const [cause, before] of this.#tried) if (this.#countFor(cause) < before) this.#allocation.reopen(cause);
    this.#tried.clear();
    this.#wake();
    const queues = Object.values(this.#queues);
    const isBlocked = queues.some(({ waiting }) => waiting.size > 0);
    const isPartial = queues.some(({ due }) => due.size > 0);
    return { verdict: { phase: isBlocked ? "blocked" : "idle", isPartial }, operations };
  }

  #allocateNetworks(operations: Operation[]): void {
    const queue = this.#queues.network;
    // The ingress network gets the first subnet and the first VXLAN id of a cluster, as in SwarmKit.
    const due = [...queue.take()].map((id) => this.#view.network(id)).filter((network) => network !== undefined);
    due.sort((a, b) => Number(b.spec?.ingress === true) - Number(a.spec?.ingress === true));
    for (const network of due) {
      const told = this.#allocation.problemOf(network.id);
      const decision = this.#allocation.decideNetwork(network);
      if (decision.kind === "blocked") {
        queue.waiting.put(network.id, causes.subnets);
        if (decision.reason !== told) this.#view.complain(network, decision.reason);
      } else queue.waiting.delete(network.id);
      if (decision.kind !== "network") continue;
      queue.writing.add(network.id);
      operations.push(Operation.create({ update: StoreObject.create({ network: decision.network }) }));
    }
  }

  #allocateServices(operations: Operation[]): void {
    const queue = this.#queues.service;
    for (const id of queue.take()) {
      const service = this.#view.service(id);
      if (service === undefined) continue;
      const decision = this.#allocation.decideEndpoint(service);
      if (decision.kind === "blocked") queue.waiting.put(id, decision.cause);
      else queue.waiting.delete(id);
      if (decision.kind !== "endpoint") continue;
      queue.writing.add(id);
      const { endpoint } = decision;
      operations.push(
        Operation.create({ update: StoreObject.create({ service: Service.patch(service, { endpoint }) }) }),
      );
    }
  }

  #allocateNodes(operations: Operation[]): void {
    const queue = this.#queues.node;
    for (const id of queue.take()) {
      const node = this.#view.node(id);
      if (node === undefined) continue;
      const { attachments, blocked } = this.#allocation.decideNode(node);
      const [first] = blocked;
      if (attachments !== null) {
        queue.writing.add(id);
        const node = NodePatch.create({ id, attachments, replaceAttachments: true });
        operations.push(Operation.create({ node }));
      }
      if (first === undefined) queue.waiting.delete(id);
      else queue.waiting.put(id, first.cause);
    }
  }

  #allocateTasks(operations: Operation[], timestamp: Timestamp): void {
    const queue = this.#queues.task;
    const pending = TaskStatus.create({ state: TaskState.PENDING, message: "pending task scheduling", timestamp });
    const plans: Plans = new Map();
    for (const id of queue.take(this.#tasksMax)) {
      const task = this.#view.task(id);
      if (task === undefined || observedState(task) !== TaskState.NEW) continue;
      const decision = this.#allocation.decideTask(task, plans);
      if (decision.kind !== "blocked") queue.waiting.delete(id);
      switch (decision.kind) {
        case "ready": {
          queue.writing.add(id);
          const fields: { -readonly [Key in keyof TaskPatch]?: TaskPatch[Key] } = {};
          if (decision.endpoint !== null) fields.endpoint = decision.endpoint;
          if (decision.networks.length > 0) fields.networks = decision.networks;
          operations.push(moved(task, "allocator", pending, fields));
          break;
        }
        case "unwanted":
          // The reaper removes it.
          break;
        case "blocked":
          this.#block(task, decision, timestamp, operations);
      }
    }
  }

  /** A3 */
  #block(task: Task, { cause, reason }: Blocked, timestamp: Timestamp, operations: Operation[]): void {
    this.#queues.task.waiting.put(task.id, cause);
    if (reason === "" || reason === (task.status?.err ?? "")) return;
    const [state, message] = [TaskState.NEW, "waiting for the allocator"];
    operations.push(moved(task, "allocator", TaskStatus.create({ state, message, err: reason, timestamp })));
  }

  /** Continues from the stored objects, whoever wrote them. */
  written(operations: readonly Operation[]): void {
    const { network, node, service, task } = this.#queues;
    for (const operation of operations) {
      if (operation.task !== null) {
        const { id } = operation.task;
        // Skips writes that only explain why the task waits.
        if (!task.writing.delete(id)) continue;
        const stored = this.#view.task(id);
        this.#allocation.followTask(id, stored ?? null);
        if (stored !== undefined) this.#arriveTask(stored);
      } else if (operation.node !== null) {
        const { id } = operation.node;
        node.writing.delete(id);
        this.#allocation.followNode(id, this.#view.node(id) ?? null);
        if (this.#view.node(id) !== undefined) this.#arrive("node", id);
      } else if (operation.update?.service != null) {
        const { id } = operation.update.service;
        service.writing.delete(id);
        const stored = this.#view.service(id);
        this.#allocation.followService(id, stored ?? null);
        if (stored !== undefined) this.#arriveService(stored);
      } else if (operation.update?.network != null) {
        const { id } = operation.update.network;
        network.writing.delete(id);
        const stored = this.#view.network(id);
        this.#allocation.followNetwork(id, stored ?? null);
        if (stored !== undefined) this.#arrive("network", id);
      }
    }
  }
}

/** Whether the task's addresses or node have changed. */
function holdsOtherwise(old: Task | null, task: Task): boolean {
  if (task.networks.length === 0 && (old === null || old.networks.length === 0)) return false;
  return (
    old === null ||
    old.networks !== task.networks ||
    old.nodeId !== task.nodeId ||
    isEnded(observedState(old)) !== isEnded(observedState(task))
  );
}
