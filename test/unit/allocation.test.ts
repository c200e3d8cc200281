// Allocations over any history: nothing twice, nothing lost.
import test from "ava";
import fc from "fast-check";
import { Allocation, type Plans } from "../../machines/allocation/allocation.ts";
import { vxlanIdsOf } from "../../machines/allocation/network.ts";
import { containsAddress, containsRange, parseAddress, parseCidr, type Prefix } from "../../lib/ip-address.ts";
import { ingressNetwork } from "../../machines/allocation/new-networks.ts";
import {
  Annotations,
  Driver,
  EndpointSpec,
  IPAMConfig,
  IPAMOptions,
  Network,
  NetworkAttachmentConfig,
  NetworkSpec,
  Node,
  PortConfig,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";

const poolLength = 28;
/** Without network, broadcast and gateway. */
const roomOfSubnet = 2 ** (32 - poolLength) - 3;

/** A store of plain maps, with an allocator that decides and writes at once, except for lost writes. */
class World {
  readonly networks = new Map<string, Network>();
  readonly services = new Map<string, Service>();
  readonly tasks = new Map<string, Task>();
  readonly nodes = new Map<string, Node>();
  made = 0;
  allocation = this.#newAllocation();

  byName(name: string): Network | undefined {
    return [...this.networks.values()].find((network) => network.spec?.annotations?.name === name);
  }

  #newAllocation(): Allocation {
    return new Allocation({
      network: (idOrName) => this.networks.get(idOrName) ?? this.byName(idOrName),
      service: (id) => this.services.get(id),
      defaultPools: () => ({ pools: ["10.0.0.0/26"], length: poolLength }),
      nodeCount: () => this.nodes.size,
    });
  }

  changeLeader(): void {
    this.allocation = this.#newAllocation();
    for (const [id, network] of this.networks) this.allocation.followNetwork(id, network);
    for (const [id, service] of this.services) this.allocation.followService(id, service);
    for (const [id, task] of this.tasks) this.allocation.followTask(id, task);
    for (const [id, node] of this.nodes) this.allocation.followNode(id, node);
  }

  network(id: string, network: Network | null): void {
    if (network === null) this.networks.delete(id);
    else this.networks.set(id, network);
    this.allocation.followNetwork(id, network);
  }

  service(id: string, service: Service | null): void {
    if (service === null) this.services.delete(id);
    else this.services.set(id, service);
    this.allocation.followService(id, service);
  }

  task(id: string, task: Task | null): void {
    if (task === null) this.tasks.delete(id);
    else this.tasks.set(id, task);
    this.allocation.followTask(id, task);
  }

  node(id: string, node: Node | null): void {
    if (node === null) this.nodes.delete(id);
    else this.nodes.set(id, node);
    this.allocation.followNode(id, node);
  }

  /** `isLost`: for each write, whether the ledger skips it. */
  round(isLost: () => boolean): void {
    for (const [id, network] of this.networks) {
      const decision = this.allocation.decideNetwork(network);
      if (decision.kind === "network") this.network(id, isLost() ? network : decision.network);
    }
    for (const [id, service] of this.services) {
      const decision = this.allocation.decideEndpoint(service);
      if (decision.kind !== "endpoint") continue;
      this.service(id, isLost() ? service : Service.patch(service, { endpoint: decision.endpoint }));
    }
    const plans: Plans = new Map();
    for (const [id, task] of this.tasks) {
      if (task.status?.state !== TaskState.NEW) continue;
      const decision = this.allocation.decideTask(task, plans);
      if (decision.kind !== "ready") continue;
      const { networks, endpoint } = decision;
      const status = TaskStatus.create({ state: TaskState.PENDING });
      this.task(id, isLost() ? task : Task.patch(task, { networks, endpoint: endpoint ?? task.endpoint, status }));
    }
    for (const [id, node] of this.nodes) {
      const { attachments } = this.allocation.decideNode(node);
      if (attachments !== null) this.node(id, isLost() ? node : Node.patch(node, { attachments }));
    }
  }

  settle(): void {
    for (let rounds = 0; rounds < 6; rounds += 1) this.round(() => false);
  }

  /** By network: every address that an object in the store holds. */
  held(): ReadonlyMap<string, readonly string[]> {
    const held = new Map<string, string[]>();
    const add = (networkId: string, address: string): void => {
      if (address !== "") held.set(networkId, [...(held.get(networkId) ?? []), address]);
    };
    for (const { endpoint } of this.services.values())
      for (const { networkId, addr } of endpoint?.virtualIps ?? []) add(networkId, addr);
    for (const { networks, status } of this.tasks.values())
      if ((status?.state ?? 0) <= TaskState.RUNNING)
        for (const { network, addresses } of networks) for (const each of addresses) add(network?.id ?? "", each);
    for (const { attachments } of this.nodes.values())
      for (const { network, addresses } of attachments) for (const each of addresses) add(network?.id ?? "", each);
    return held;
  }

  /** The first violation; null if there is none. */
  fault(): string | null {
    for (const [id, addresses] of this.held())
      if (new Set(addresses).size < addresses.length)
        return `an address of ${id} is held twice: ${addresses.join(" ")}`;
    const subnets: Prefix[] = [];
    const ids: number[] = [];
    for (const { ipam, driverState } of this.networks.values()) {
      for (const { subnet, gateway } of ipam?.configs ?? []) {
        const prefix = parseCidr(subnet) as Prefix;
        if (!containsAddress(prefix, parseAddress(gateway)!)) return `gateway ${gateway} is not in ${subnet}`;
        if (subnets.some((other) => containsRange(other, prefix) || containsRange(prefix, other)))
          return `${subnet} also belongs to another network`;
        subnets.push(prefix);
      }
      ids.push(...vxlanIdsOf(driverState));
    }
    if (new Set(ids).size < ids.length) return `a VXLAN id is allocated twice: ${ids.join(" ")}`;
    const ports: string[] = [];
    for (const { endpoint } of this.services.values())
      for (const { protocol, publishedPort } of endpoint?.ports ?? []) ports.push(`${protocol}/${publishedPort}`);
    return new Set(ports).size < ports.length ? `a port is allocated twice: ${ports.join(" ")}` : null;
  }
}

const names = ["a", "b", "c"] as const;

function netOf(id: string, subnet: string, vxlanId: number): Network {
  const options: Record<string, string> = {};
  if (vxlanId > 0) options["com.docker.network.driver.overlay.vxlanid_list"] = String(vxlanId);
  return Network.create({
    id,
    spec: NetworkSpec.create({
      annotations: Annotations.create({ name: `net-${id}` }),
      driverConfig: Driver.create({ name: "overlay", options }),
      ipam: IPAMOptions.create({ configs: subnet === "" ? [] : [IPAMConfig.create({ subnet })] }),
    }),
  });
}

function serviceOf(id: string, networks: readonly string[], ports: readonly number[], isDnsrr: boolean): Service {
  return Service.create({
    id,
    spec: ServiceSpec.create({
      endpoint: EndpointSpec.create({
        mode: isDnsrr ? 1 : 0,
        ports: isDnsrr ? [] : ports.map((published) => PortConfig.create({ targetPort: 80, publishedPort: published })),
      }),
      task: TaskSpec.create({ networks: networks.map((target) => NetworkAttachmentConfig.create({ target })) }),
    }),
  });
}

const name = fc.constantFrom(...names);
/** Services name networks; the id of a removed network is never reused. */
const target = fc.constantFrom("net-a", "net-b", "net-c");
const step = fc.oneof(
  fc.record({
    kind: fc.constant("network" as const),
    id: name,
    subnet: fc.constantFrom("", "", "10.0.0.16/28", "10.9.0.0/28", "10.9.0.8/29"),
    vxlanId: fc.constantFrom(0, 0, 4097, 9),
  }),
  fc.record({
    kind: fc.constant("drop" as const),
    of: fc.constantFrom("network", "service", "task", "node"),
    id: name,
  }),
  fc.record({
    kind: fc.constant("service" as const),
    id: name,
    networks: fc.uniqueArray(target, { maxLength: 2 }),
    ports: fc.uniqueArray(fc.constantFrom(0, 80, 81), { maxLength: 2 }),
    isDnsrr: fc.boolean(),
  }),
  fc.record({ kind: fc.constant("task" as const), id: fc.nat(20), service: name, node: fc.constantFrom("", ...names) }),
  fc.record({ kind: fc.constant("end" as const), id: fc.nat(20) }),
  fc.record({ kind: fc.constant("node" as const), id: name }),
  fc.record({ kind: fc.constant("leader" as const) }),
  fc.record({ kind: fc.constant("round" as const), losses: fc.array(fc.boolean(), { minLength: 1, maxLength: 8 }) }),
);
type Step = typeof step extends fc.Arbitrary<infer Value> ? Value : never;

function perform(world: World, each: Step): void {
  switch (each.kind) {
    case "network": {
      const fresh = netOf(each.id, each.subnet, each.vxlanId);
      if (!world.byName(`net-${each.id}`))
        world.network(`${each.id}${world.made}`, Network.patch(fresh, { id: `${each.id}${world.made}` }));
      world.made += 1;
      break;
    }
    case "drop":
      if (each.of === "network") {
        const id = world.byName(`net-${each.id}`)?.id;
        if (id !== undefined) world.network(id, null);
      } else if (each.of === "service") world.service(each.id, null);
      else if (each.of === "node") world.node(each.id, null);
      else for (const id of world.tasks.keys()) if (id.startsWith(each.id)) world.task(id, null);
      break;
    case "service": {
      const { spec } = serviceOf(each.id, each.networks, each.ports, each.isDnsrr);
      world.service(each.id, Service.patch(world.services.get(each.id) ?? Service.create({ id: each.id }), { spec }));
      break;
    }
    case "task": {
      const id = `${each.service}${each.id}`;
      const service = world.services.get(each.service);
      if (service === undefined || world.tasks.has(id)) break;
      const status = TaskStatus.create({ state: TaskState.NEW });
      const { node: nodeId } = each;
      const spec = service.spec?.task ?? null;
      world.task(id, Task.create({ id, serviceId: service.id, nodeId, spec, status, desiredState: TaskState.RUNNING }));
      break;
    }
    case "end":
      for (const [id, task] of world.tasks)
        if (id.endsWith(String(each.id)))
          world.task(id, Task.patch(task, { status: TaskStatus.create({ state: TaskState.SHUTDOWN }) }));
      break;
    case "node":
      if (!world.nodes.has(each.id)) world.node(each.id, Node.create({ id: each.id }));
      break;
    case "leader":
      world.changeLeader();
      break;
    case "round": {
      let at = 0;
      world.round(() => each.losses[(at += 1) % each.losses.length] ?? false);
    }
  }
}

test("in any order of events nothing is held twice, and released addresses can be allocated again", (t) => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 40, maxLength: 160, size: "max" }), (steps) => {
      const world = new World();
      world.network("ingress", ingressNetwork("ingress"));
      for (const each of steps) {
        perform(world, each);
        t.is(world.fault(), null);
      }
      for (const id of world.tasks.keys()) world.task(id, null);
      for (const id of world.services.keys()) world.service(id, null);
      for (const id of world.nodes.keys()) world.node(id, null);
      for (const id of world.networks.keys()) world.network(id, null);
      // Four subnets fit into the pool; each has capacity for this many tasks.
      for (const id of ["w", "x", "y", "z"]) {
        world.network(id, netOf(id, "", 0));
        world.service(id, serviceOf(id, [id], [], true));
        for (let number = 0; number <= roomOfSubnet; number += 1)
          perform(world, { kind: "task", service: id as "a", id: number, node: "" });
      }
      world.settle();
      t.is(world.fault(), null);
      t.deepEqual(
        [...world.held()].map(([id, addresses]) => [id, addresses.length]),
        ["w", "x", "y", "z"].map((id) => [id, roomOfSubnet]),
      );
    }),
    { numRuns: 200 },
  );
});

/** Nodes that run a task of the network and have no address in it. */
function strandedNodes(world: World): readonly string[] {
  const stranded = new Set<string>();
  for (const { networks, nodeId, status } of world.tasks.values()) {
    if ((status?.state ?? TaskState.NEW) < TaskState.ASSIGNED || (status?.state ?? 0) > TaskState.RUNNING) continue;
    const has = new Set(world.nodes.get(nodeId)?.attachments.map(({ network }) => network?.id));
    if (networks.some(({ network }) => !has.has(network?.id))) stranded.add(nodeId);
  }
  return [...stranded];
}

const nodeNumber = fc.nat(5);
const crowding = fc.oneof(
  fc.record({ kind: fc.constant("made" as const), isVip: fc.boolean(), node: fc.option(nodeNumber) }),
  fc.record({ kind: fc.constant("placed" as const), task: fc.nat(30), node: nodeNumber }),
  fc.record({ kind: fc.constant("ended" as const), task: fc.nat(30) }),
  fc.record({ kind: fc.constant("leader" as const) }),
  fc.record({ kind: fc.constant("round" as const), losses: fc.array(fc.boolean(), { minLength: 1, maxLength: 8 }) }),
);

test("however full a network is, each node that gets a task still gets an address in it", (t) => {
  const crowd = fc.array(crowding, { minLength: 20, maxLength: 100, size: "max" });
  fc.assert(
    fc.property(fc.constantFrom(28, 29), fc.integer({ min: 1, max: 6 }), crowd, (length, nodes, steps) => {
      const world = new World();
      world.network("net", netOf("net", `10.9.0.0/${length}`, 0));
      for (let number = 0; number < nodes; number += 1) world.node(`n${number}`, Node.create({ id: `n${number}` }));
      world.settle();
      const nodeId = (node: number): string => `n${node % nodes}`;
      for (const [at, each] of steps.entries()) {
        const [id, task] = [...world.tasks][("task" in each ? each.task : 0) % Math.max(1, world.tasks.size)] ?? [];
        switch (each.kind) {
          case "made": {
            const made = serviceOf(`s${at}`, ["net"], [], !each.isVip);
            world.service(made.id, made);
            const spec = made.spec?.task ?? null;
            const status = TaskStatus.create({ state: TaskState.NEW });
            const node = each.node === null ? "" : nodeId(each.node);
            const fields = { id: `t${at}`, serviceId: made.id, nodeId: node, desiredState: TaskState.RUNNING };
            world.task(fields.id, Task.create({ ...fields, spec, status }));
            break;
          }
          case "placed":
            if (id === undefined || task?.status?.state !== TaskState.PENDING) break;
            world.task(
              id,
              Task.patch(task, {
                nodeId: task.nodeId === "" ? nodeId(each.node) : task.nodeId,
                status: TaskStatus.create({ state: TaskState.ASSIGNED }),
              }),
            );
            break;
          case "ended":
            if (id !== undefined && task !== undefined)
              world.task(id, Task.patch(task, { status: TaskStatus.create({ state: TaskState.SHUTDOWN }) }));
            break;
          case "leader":
            world.changeLeader();
            break;
          case "round": {
            let write = 0;
            world.round(() => each.losses[(write += 1) % each.losses.length] ?? false);
          }
        }
        t.is(world.fault(), null);
      }
      world.settle();
      t.deepEqual(strandedNodes(world), []);
    }),
    { numRuns: 200 },
  );
});
