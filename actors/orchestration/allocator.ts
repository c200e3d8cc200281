/**
 * Hosts the allocator: keeps its bookkeeping in step with the store, and writes the allocations of networks, services, nodes
 * and tasks. An object that is being written is skipped until that has settled; then the stored object counts, whoever wrote
 * it.
 */
import { Allocation, type Plans } from "../../machines/allocation/allocation.ts";
import { defaultPoolsOf } from "../../machines/allocation/network.ts";
import { causes, type Blocked, type Cause } from "../../machines/allocation/waiting.ts";
import { allocatorMachine, type AllocatorVerdict } from "../../machines/allocation/allocator.machine.ts";
import { waitOf } from "../../machines/wait-meta.ts";
import { moved } from "../../machines/task-moves.ts";
import { isEnded, isLeaving, observedState } from "../../machines/task.ts";
import {
  NodePatch,
  Operation,
  Reason,
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
import type { Gauge } from "../../runtime/ports/index.ts";
import { AllocationQueue, kinds, type Kind } from "./allocation-queue.ts";
import type { Environment } from "../environment.ts";
import { now, roundTasksMax, status, type Part, type Writer } from "./part.ts";
import { Reconciler, type Round } from "./reconciler.ts";

export interface AllocatorPart extends Part {
  /** Why the service is waiting before its tasks can continue, whether it has any or not. */
  explain(service: Service): readonly Reason[];
}

export function startAllocator(env: Environment, writer: Writer): AllocatorPart {
  return new AllocatorActor(env, writer);
}

class AllocatorActor implements AllocatorPart {
  readonly #env: Environment;
  readonly #writer: Writer;
  readonly #allocation: Allocation;
  readonly #queues: Readonly<Record<Kind, AllocationQueue>> = {
    network: new AllocationQueue(),
    service: new AllocationQueue(),
    node: new AllocationQueue(),
    task: new AllocationQueue(),
  };
  /** Number of objects that waited for each cause reopened since the last round. */
  readonly #tried = new Map<Cause, number>();
  readonly #held: Gauge;
  readonly #loop: Reconciler<typeof allocatorMachine>;
  #told: Allocation["held"] = { addresses: 0, subnets: 0, vxlanIds: 0, ports: 0 };

  constructor(env: Environment, writer: Writer) {
    this.#env = env;
    this.#writer = writer;
    const { store } = env;
    this.#held = env.telemetry.metrics.gauge(
      "muster_allocator_held",
      "Allocated resources by kind: addresses, subnets, VXLAN ids and published ports.",
    );
    this.#allocation = new Allocation({
      network: (idOrName) => store.get("network", idOrName) ?? store.byName("network", idOrName),
      service: (id) => store.get("service", id),
      defaultPools: () => defaultPoolsOf([...store.all("cluster")][0]),
      nodeCount: () => store.count("node"),
    });
    this.#loop = new Reconciler(env, {
      machine: allocatorMachine,
      id: `allocator/${env.managerId}`,
      input: undefined,
      decide: () => this.#allocate(),
    });
    // Stored allocations win, so all of them are claimed before anything is allocated.
    for (const network of store.all("network")) this.#allocation.followNetwork(network.id, network);
    for (const service of store.all("service")) this.#allocation.followService(service.id, service);
    for (const task of store.all("task")) this.#allocation.followTask(task.id, task);
    for (const node of store.all("node")) this.#allocation.followNode(node.id, node);
    for (const { id } of store.all("network")) this.#arrive("network", id);
    for (const service of store.all("service")) this.#arriveService(service);
    for (const { id } of store.all("node")) this.#arrive("node", id);
    for (const task of store.all("task")) this.#arriveTask(task);
    this.commitEnded();
  }

  explain(service: Service): readonly Reason[] {
    const problem = this.#allocation.problemOfService(service.id);
    if (problem === "") return [];
    const facts = { "addresses or ports that the cluster lacks": `its ports and virtual IPs: ${problem}` };
    return [Reason.create({ ...waitOf(allocatorMachine, "blocked", facts), since: service.meta?.updatedAt ?? null })];
  }

  stop(): void {
    this.#loop.stop();
    // The next leader reports its own allocations.
    this.#tellHeld({ addresses: 0, subnets: 0, vxlanIds: 0, ports: 0 });
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
    for (const node of this.#env.store.all("node"))
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

  commitEnded(): void {
    for (const id of this.#allocation.takeChangedNodes()) this.#arrive("node", id);
    if (this.#wake()) this.#loop.note();
    this.#loop.commitEnded();
    this.#tellHeld(this.#allocation.held);
  }

  #tellHeld(held: Allocation["held"]): void {
    if (isSameHeld(held, this.#told)) return;
    this.#told = held;
    for (const kind of heldKinds) this.#held.set(held[kind], { kind });
  }

  #arrive(kind: Kind, id: string): void {
    if (this.#queues[kind].add(id)) this.#loop.note();
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
        for (const { id } of this.#env.store.all("node")) isWoken = this.#queues.node.add(id) || isWoken;
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

  #allocate(): Round<AllocatorVerdict> {
    const operations: Operation[] = [];
    this.#allocateNetworks(operations);
    this.#allocateServices(operations);
    const tasks: Operation[] = [];
    this.#allocateTasks(tasks);
    for (const id of this.#allocation.takeChangedNodes()) this.#queues.node.add(id);
    // Before the tasks: an engine connects a container to a network only once the node has its address there.
    this.#allocateNodes(operations);
    for (const task of tasks) operations.push(task);
    if (operations.length > 0) this.#writer.write(operations, () => this.#written(operations));
    // Some of the objects that were retried may wait for another cause now: the next ones can be tried.
    for (const [cause, before] of this.#tried) if (this.#countFor(cause) < before) this.#allocation.reopen(cause);
    this.#tried.clear();
    this.#wake();
    const queues = Object.values(this.#queues);
    const isBlocked = queues.some(({ waiting }) => waiting.size > 0);
    const isPartial = queues.some(({ due }) => due.size > 0);
    return { verdict: { phase: isBlocked ? "blocked" : "idle", isPartial } };
  }

  #allocateNetworks(operations: Operation[]): void {
    const { store, telemetry } = this.#env;
    const queue = this.#queues.network;
    // The ingress network gets the first subnet and the first VXLAN id of a cluster, as in SwarmKit.
    const due = [...queue.take()].map((id) => store.get("network", id)).filter((network) => network !== undefined);
    due.sort((a, b) => Number(b.spec?.ingress === true) - Number(a.spec?.ingress === true));
    for (const network of due) {
      const told = this.#allocation.problemOf(network.id);
      const decision = this.#allocation.decideNetwork(network);
      if (decision.kind === "blocked") {
        queue.waiting.put(network.id, causes.subnets);
        if (decision.reason !== told)
          telemetry.log.warn({ network: network.id, reason: decision.reason }, "cannot allocate a network");
      } else queue.waiting.delete(network.id);
      if (decision.kind !== "network") continue;
      queue.writing.add(network.id);
      operations.push(Operation.create({ update: StoreObject.create({ network: decision.network }) }));
    }
  }

  #allocateServices(operations: Operation[]): void {
    const queue = this.#queues.service;
    for (const id of queue.take()) {
      const service = this.#env.store.get("service", id);
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
      const node = this.#env.store.get("node", id);
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

  #allocateTasks(operations: Operation[]): void {
    const { store } = this.#env;
    const queue = this.#queues.task;
    const time = now(this.#env);
    const pending = status(TaskState.PENDING, "pending task scheduling", time);
    const plans: Plans = new Map();
    for (const id of queue.take(roundTasksMax)) {
      const task = store.get("task", id);
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
          this.#block(task, decision, time, operations);
      }
    }
  }

  /** A3 */
  #block(task: Task, { cause, reason }: Blocked, time: Timestamp, operations: Operation[]): void {
    this.#queues.task.waiting.put(task.id, cause);
    if (reason === "" || reason === (task.status?.err ?? "")) return;
    const [state, message] = [TaskState.NEW, "waiting for the allocator"];
    operations.push(moved(task, "allocator", TaskStatus.create({ state, message, err: reason, timestamp: time })));
  }

  /** Continues from the stored objects, whoever wrote them. */
  #written(operations: readonly Operation[]): void {
    const { store } = this.#env;
    const { network, node, service, task } = this.#queues;
    for (const operation of operations) {
      if (operation.task !== null) {
        const { id } = operation.task;
        // Skips writes that only explain why the task waits.
        if (!task.writing.delete(id)) continue;
        const stored = store.get("task", id);
        this.#allocation.followTask(id, stored ?? null);
        if (stored !== undefined) this.#arriveTask(stored);
      } else if (operation.node !== null) {
        const { id } = operation.node;
        node.writing.delete(id);
        this.#allocation.followNode(id, store.get("node", id) ?? null);
        if (store.get("node", id) !== undefined) this.#arrive("node", id);
      } else if (operation.update?.service != null) {
        const { id } = operation.update.service;
        service.writing.delete(id);
        const stored = store.get("service", id);
        this.#allocation.followService(id, stored ?? null);
        if (stored !== undefined) this.#arriveService(stored);
      } else if (operation.update?.network != null) {
        const { id } = operation.update.network;
        network.writing.delete(id);
        const stored = store.get("network", id);
        this.#allocation.followNetwork(id, stored ?? null);
        if (stored !== undefined) this.#arrive("network", id);
      }
    }
    this.commitEnded();
  }
}

const heldKinds = ["addresses", "subnets", "vxlanIds", "ports"] as const;

function isSameHeld(a: Allocation["held"], b: Allocation["held"]): boolean {
  return heldKinds.every((kind) => a[kind] === b[kind]);
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
