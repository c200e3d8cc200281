/**
 * The scheduler against a slow, obviously correct one: it asks every node for every task, and keeps only the list of tasks.
 * Both must choose the same nodes and give the same reasons for unplaced tasks.
 */
import { equal, ok } from "node:assert/strict";
import test from "ava";
import fc from "fast-check";
import { Backlog } from "../../machines/scheduling/place.ts";
import type { Assignment } from "../../machines/scheduling/round.ts";
import { NodeSet } from "../../machines/scheduling/node-set.ts";
import {
  ContainerSpec,
  DiscreteGenericResource,
  Driver,
  Endpoint,
  GenericResource,
  NamedGenericResource,
  Network,
  NetworkAttachment,
  NodeSpec_Availability,
  NodeStatus_State,
  Placement,
  PlacementPreference,
  PortConfig,
  PortConfig_PublishMode,
  ResourceRequirements,
  Resources,
  SpreadOver,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  Version,
  type Node,
} from "../../proto/gen/messages.ts";
import { pendingTask, readyNode } from "../support/scheduling.ts";

const GiB = 2 ** 30;
/** Small, so that a round ends in the middle of a group. */
const limits = { operationsMax: 7, replacementsMax: 5, judgementsMax: 40 };

interface Plan {
  readonly cpus: number;
  readonly memoryGiB: number;
  readonly gpus: number;
  readonly zone: string | null;
  readonly port: number;
  readonly maxReplicas: number;
  readonly network: string;
  readonly preferences: readonly string[];
}

const names = ["a", "b", "c", ""];
const anyNode = fc.record({
  cpus: fc.integer({ min: 0, max: 6 }),
  memoryGiB: fc.integer({ min: 0, max: 6 }),
  gpus: fc.integer({ min: 0, max: 3 }),
  hasNames: fc.boolean(),
  zone: fc.constantFrom(...names),
  rack: fc.constantFrom(...names),
  network: fc.boolean(),
  state: fc.constantFrom(NodeStatus_State.READY, NodeStatus_State.READY, NodeStatus_State.READY, NodeStatus_State.DOWN),
  availability: fc.constantFrom(
    NodeSpec_Availability.ACTIVE,
    NodeSpec_Availability.ACTIVE,
    NodeSpec_Availability.ACTIVE,
    NodeSpec_Availability.DRAIN,
  ),
});
type NodeDraw = typeof anyNode extends fc.Arbitrary<infer Draw> ? Draw : never;

const anyPlan: fc.Arbitrary<Plan> = fc.record({
  cpus: fc.constantFrom(0, 0, 1, 2, 9),
  memoryGiB: fc.constantFrom(0, 0, 1, 3),
  gpus: fc.constantFrom(0, 0, 0, 1, 2),
  zone: fc.constantFrom(null, null, "a", "b", "nowhere"),
  port: fc.constantFrom(0, 0, 0, 80, 81),
  maxReplicas: fc.constantFrom(0, 0, 0, 1, 2),
  network: fc.constantFrom("", "", "", "special"),
  preferences: fc.constantFrom<readonly string[]>(
    [],
    [],
    ["node.labels.zone"],
    ["node.labels.zone", "node.labels.rack"],
    ["nonsense"],
  ),
});

function nodeOf(at: number, draw: NodeDraw): Node {
  const labels = { ...(draw.zone === "" ? {} : { zone: draw.zone }), ...(draw.rack === "" ? {} : { rack: draw.rack }) };
  const gpus = draw.hasNames
    ? Array.from({ length: draw.gpus }, (_, gpu) =>
        GenericResource.create({ namedResourceSpec: NamedGenericResource.create({ kind: "gpu", value: `gpu${gpu}` }) }),
      )
    : draw.gpus === 0
      ? []
      : [
          GenericResource.create({
            discreteResourceSpec: DiscreteGenericResource.create({ kind: "gpu", value: draw.gpus }),
          }),
        ];
  return readyNode(`n${at}`, {
    state: draw.state,
    availability: draw.availability,
    cpus: draw.cpus,
    memoryBytes: draw.memoryGiB * GiB,
    generic: gpus,
    labels,
    plugins: ["Network/overlay", ...(draw.network ? ["Network/special"] : [])],
  });
}

function specOf(plan: Plan): TaskSpec {
  const { cpus, memoryGiB, gpus, zone, maxReplicas, preferences } = plan;
  return TaskSpec.create({
    container: ContainerSpec.create({ image: "image" }),
    resources: ResourceRequirements.create({
      reservations: Resources.create({
        nanoCpus: cpus * 1e9,
        memoryBytes: memoryGiB * GiB,
        generic:
          gpus === 0
            ? []
            : [
                GenericResource.create({
                  discreteResourceSpec: DiscreteGenericResource.create({ kind: "gpu", value: gpus }),
                }),
              ],
      }),
    }),
    placement: Placement.create({
      constraints: zone === null ? [] : [`node.labels.zone==${zone}`],
      maxReplicas,
      preferences: preferences.map((spreadDescriptor) =>
        PlacementPreference.create({ spread: SpreadOver.create({ spreadDescriptor }) }),
      ),
    }),
  });
}

/** `isLoose`: without a version, as manually created tasks are. */
function taskOf(id: string, service: number, plan: Plan, spec: TaskSpec, isLoose: boolean): Task {
  return pendingTask(id, {
    serviceId: `s${service}`,
    spec,
    specVersion: isLoose ? null : Version.create({ index: 1 }),
    networks:
      plan.network === ""
        ? []
        : [
            NetworkAttachment.create({
              network: Network.create({ id: plan.network, driverState: Driver.create({ name: plan.network }) }),
            }),
          ],
    endpoint:
      plan.port === 0
        ? null
        : Endpoint.create({
            ports: [PortConfig.create({ publishedPort: plan.port, publishMode: PortConfig_PublishMode.HOST })],
          }),
  });
}

const anyWorld = fc
  .record({
    nodes: fc.array(anyNode, { minLength: 0, maxLength: 8 }),
    services: fc.array(fc.record({ plan: anyPlan, tasks: fc.integer({ min: 1, max: 12 }), isLoose: fc.boolean() }), {
      minLength: 1,
      maxLength: 4,
    }),
  })
  .map(({ nodes, services }) => ({
    nodes: nodes.map((draw, at) => nodeOf(at, draw)),
    tasks: services.flatMap(({ plan, tasks, isLoose }, service) => {
      const spec = specOf(plan);
      return Array.from({ length: tasks }, (_, at) =>
        taskOf(`s${service}-t${String(at).padStart(2, "0")}`, service, plan, spec, isLoose),
      );
    }),
  }));

// The slow scheduler.

interface Held {
  readonly task: Task;
  readonly nodeId: string;
}

const filters: readonly ((task: Task, node: Node, held: readonly Held[]) => boolean)[] = [
  (_, node) =>
    node.status?.state === NodeStatus_State.READY && node.spec?.availability === NodeSpec_Availability.ACTIVE,
  (task, node, held) => {
    const on = held.filter(({ nodeId }) => nodeId === node.id).map((each) => each.task);
    const sum = (of: (each: Task) => number): number => on.reduce((total, each) => total + of(each), of(task));
    const gpus = node.description?.resources?.generic ?? [];
    const offered = gpus.reduce(
      (total, { discreteResourceSpec, namedResourceSpec }) =>
        total + (namedResourceSpec === null ? (discreteResourceSpec?.value ?? 0) : 1),
      0,
    );
    const wants = (of: (each: Task) => number, has: number): boolean => of(task) === 0 || sum(of) <= has;
    const reserved = (each: Task) => each.spec?.resources?.reservations;
    return (
      wants((each) => reserved(each)?.nanoCpus ?? 0, node.description?.resources?.nanoCpus ?? 0) &&
      wants((each) => reserved(each)?.memoryBytes ?? 0, node.description?.resources?.memoryBytes ?? 0) &&
      wants((each) => reserved(each)?.generic[0]?.discreteResourceSpec?.value ?? 0, offered)
    );
  },
  (task, node) =>
    task.networks.every(({ network }) =>
      node.description?.engine?.plugins.some(({ name }) => name === network?.driverState?.name),
    ),
  (task, node) =>
    (task.spec?.placement?.constraints ?? []).every(
      (constraint) => constraint === `node.labels.zone==${node.spec?.annotations?.labels["zone"] ?? ""}`,
    ),
  (task, node, held) =>
    (task.endpoint?.ports ?? []).every(({ publishedPort }) =>
      held.every((each) => each.nodeId !== node.id || each.task.endpoint?.ports[0]?.publishedPort !== publishedPort),
    ),
  (task, node, held) => {
    const max = task.spec?.placement?.maxReplicas ?? 0;
    return max === 0 || countOf(task.serviceId, [node], held) < max;
  },
];

/** Tasks wanted on the nodes; stopping ones hold their resources, but do not count. */
function countOf(serviceId: string | null, nodes: readonly Node[], held: readonly Held[]): number {
  return held.filter(
    ({ task, nodeId }) =>
      task.desiredState <= TaskState.COMPLETE &&
      nodes.some(({ id }) => id === nodeId) &&
      (serviceId === null || task.serviceId === serviceId),
  ).length;
}

/** The index of the first filter that rejects; -1: none does. */
function failing(task: Task, node: Node, held: readonly Held[]): number {
  return filters.findIndex((filter) => !filter(task, node, held));
}

function slowChoice(task: Task, nodes: readonly Node[], held: readonly Held[]): Node | undefined {
  const fitting = (among: readonly Node[]): boolean => among.some((node) => failing(task, node, held) < 0);
  let among = nodes;
  for (const { spread } of task.spec?.placement?.preferences ?? []) {
    const label = /^node\.labels\.(.+)$/.exec(spread?.spreadDescriptor ?? "")?.[1];
    if (label === undefined) continue;
    const value = (node: Node): string => node.spec?.annotations?.labels[label] ?? "";
    const branches = [...new Set(among.map(value))].map((each) => ({
      value: each,
      nodes: among.filter((node) => value(node) === each),
    }));
    const [best] = branches
      .filter((branch) => fitting(branch.nodes))
      .sort(
        (a, b) =>
          countOf(task.serviceId, a.nodes, held) - countOf(task.serviceId, b.nodes, held) ||
          countOf(null, a.nodes, held) - countOf(null, b.nodes, held) ||
          (a.value < b.value ? -1 : 1),
      );
    among = best?.nodes ?? [];
  }
  return among
    .filter((node) => failing(task, node, held) < 0)
    .sort(
      (a, b) =>
        countOf(task.serviceId, [a], held) - countOf(task.serviceId, [b], held) ||
        countOf(null, [a], held) - countOf(null, [b], held) ||
        (a.id < b.id ? -1 : 1),
    )[0];
}

const phrases: readonly RegExp[] = [
  /^(\d+) nodes? not available for new tasks$/,
  /^insufficient resources on (\d+) nodes?$/,
  /^missing plugin on (\d+) nodes?$/,
  /^scheduling constraints not satisfied on (\d+) nodes?$/,
  /^host-mode port already in use on (\d+) nodes?$/,
  /^max replicas per node limit exceed()$/,
];

/**
 * Each node is charged to one filter that rejects it, and the parts come in the order of their numbers. (It need not be the
 * first such filter: a fuller node was still rejected for the same reason.)
 */
function checkText(task: Task, nodes: readonly Node[], held: readonly Held[]): void {
  const text = task.status?.err ?? "";
  const parts =
    text === "no suitable node" ? [] : (/^no suitable node \((.+)\)$/.exec(text)?.[1]?.split("; ") ?? [text]);
  let told = 0;
  let before = Infinity;
  let hasUncounted = false;
  for (const part of parts) {
    const filter = phrases.findIndex((phrase) => phrase.test(part));
    const count = phrases[filter]?.exec(part)?.[1];
    if (count === undefined) throw new Error(`not a reason: ${part}`);
    const refusing = nodes.filter((node) => filters[filter]?.(task, node, held) === false).length;
    // SwarmKit's words for this filter give no number.
    const number = count === "" ? refusing : Number(count);
    hasUncounted ||= count === "";
    ok(number >= 1 && number <= refusing, `${text}: ${refusing} nodes reject for "${part}"`);
    if (count !== "") ok(number <= before, text);
    before = count === "" ? before : number;
    told += number;
  }
  if (hasUncounted) ok(told >= nodes.length, text);
  else equal(told, nodes.length, text);
}

/** The fast one, round after round as the actor runs them; its reasons are written into the tasks. */
class World {
  readonly set = new NodeSet();
  readonly backlog = new Backlog(this.set);
  readonly nodes = new Map<string, Node>();
  readonly tasks = new Map<string, Task>();

  put(node: Node): void {
    this.nodes.set(node.id, node);
    this.set.put(node);
  }

  remove(id: string): void {
    this.nodes.delete(id);
    this.set.remove(id);
  }

  store(task: Task): void {
    this.tasks.set(task.id, task);
    const tracked = this.set.follow(task);
    this.backlog.follow(task, tracked);
  }

  /** Until nothing is left to do. */
  settle(): Assignment[] {
    const made: Assignment[] = [];
    for (let rounds = 0; ; rounds += 1) {
      if (rounds > 1_000) throw new Error("the rounds never end");
      const round = this.backlog.round(0, limits);
      made.push(...round.assignments);
      for (const { task, nodeId, generic } of round.assignments) {
        const status = TaskStatus.create({ state: TaskState.ASSIGNED });
        this.store(Task.patch(task, { nodeId, status, assignedGenericResources: generic }));
      }
      for (const { task, text } of round.explanations)
        this.store(Task.patch(task, { status: TaskStatus.create({ state: TaskState.PENDING, err: text }) }));
      if (!round.hasMore && !round.hasStale) return made;
    }
  }

  held(): Held[] {
    return [...this.tasks.values()]
      .filter(({ nodeId, status }) => nodeId !== "" && (status?.state ?? 0) <= TaskState.RUNNING)
      .map((task) => ({ task, nodeId: task.nodeId }));
  }

  sortedNodes(): Node[] {
    return [...this.nodes.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  waiting(): Task[] {
    return [...this.tasks.values()].filter(({ status }) => status?.state === TaskState.PENDING);
  }
}

const runs = { numRuns: 300 };

test("the same nodes are chosen as when every node is asked for every task, in whatever order the nodes joined", (t) => {
  fc.assert(
    fc.property(anyWorld, fc.boolean(), ({ nodes, tasks }, isReversed) => {
      const world = new World();
      for (const node of isReversed ? [...nodes].reverse() : nodes) world.put(node);
      for (const task of tasks) world.store(task);
      const made = world.settle();
      const held: Held[] = [];
      const left = new Map(tasks.map((task) => [task.id, task]));
      for (const { task, nodeId } of made) {
        equal(slowChoice(task, nodes, held)?.id, nodeId, `task ${task.id}, after ${held.length} others`);
        held.push({ task, nodeId });
        left.delete(task.id);
      }
      equal(world.backlog.size, left.size);
      for (const task of left.values()) equal(slowChoice(task, nodes, held), undefined, `${task.id} could be placed`);
    }),
    runs,
  );
  t.pass();
});

test("after any events, no task waits that a node could run, and each waiting one gives every node's reason", (t) => {
  const anyEvent = fc.oneof(
    fc.record({ kind: fc.constant("node" as const), at: fc.nat(8), draw: anyNode }),
    fc.record({ kind: fc.constant("gone" as const), at: fc.nat(8) }),
    fc.record({ kind: fc.constant("ended" as const), at: fc.nat(40) }),
    fc.record({ kind: fc.constant("stopping" as const), at: fc.nat(40) }),
    fc.record({ kind: fc.constant("unwanted" as const), at: fc.nat(40) }),
  );
  fc.assert(
    fc.property(anyWorld, fc.array(anyEvent, { maxLength: 12 }), ({ nodes, tasks }, events) => {
      const world = new World();
      for (const node of nodes) world.put(node);
      for (const task of tasks) world.store(task);
      world.settle();
      for (const event of events) {
        const task = "draw" in event ? undefined : [...world.tasks.values()][event.at % tasks.length];
        if (event.kind === "node") world.put(nodeOf(event.at, event.draw));
        else if (event.kind === "gone") {
          world.remove(`n${event.at}`);
        } else if (task !== undefined && event.kind === "unwanted") {
          if (task.nodeId === "") world.store(Task.patch(task, { desiredState: TaskState.SHUTDOWN }));
        } else if (task !== undefined && task.nodeId !== "") {
          const isEnd = event.kind === "ended";
          const status = isEnd ? TaskStatus.create({ state: TaskState.SHUTDOWN }) : task.status;
          // A stopping task holds its resources, but is no longer one of its service's replicas.
          world.store(Task.patch(task, { status, desiredState: TaskState.SHUTDOWN }));
        }
        world.settle();
      }
      const held = world.held();
      const sorted = world.sortedNodes();
      for (const task of world.waiting()) {
        if (task.desiredState > TaskState.COMPLETE) continue;
        checkText(task, sorted, held);
        equal(slowChoice(task, sorted, held), undefined, `task ${task.id} could be placed`);
      }
    }),
    runs,
  );
  t.pass();
});

test("named resources are assigned to one task at a time, as many as it requests", (t) => {
  fc.assert(
    fc.property(anyWorld, ({ nodes, tasks }) => {
      const world = new World();
      for (const node of nodes) world.put(node);
      for (const task of tasks) world.store(task);
      const given = new Set<string>();
      for (const { task, nodeId, generic } of world.settle()) {
        const wanted = task.spec?.resources?.reservations?.generic[0]?.discreteResourceSpec?.value ?? 0;
        let got = 0;
        for (const { namedResourceSpec, discreteResourceSpec } of generic) {
          got += namedResourceSpec === null ? (discreteResourceSpec?.value ?? 0) : 1;
          if (namedResourceSpec === null) continue;
          ok(!given.has(`${nodeId}/${namedResourceSpec.value}`));
          given.add(`${nodeId}/${namedResourceSpec.value}`);
        }
        equal(got, wanted);
      }
    }),
    runs,
  );
  t.pass();
});

test("a service without demands is spread so evenly that no node has two more than another", (t) => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 9 }), fc.integer({ min: 1, max: 60 }), (nodes, tasks) => {
      const world = new World();
      for (let at = 0; at < nodes; at += 1) world.put(readyNode(`n${at}`));
      for (let at = 0; at < tasks; at += 1) world.store(pendingTask(`t${at}`));
      world.settle();
      const counts = world.sortedNodes().map((node) => countOf("web", [node], world.held()));
      ok(Math.max(...counts) - Math.min(...counts) <= 1, counts.join());
    }),
    runs,
  );
  t.pass();
});
