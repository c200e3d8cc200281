// Which tasks are better placed elsewhere, by the scheduler's own accounting.
import test from "ava";
import fc from "fast-check";
import { planRound, planRounds, type Candidate } from "../../machines/orchestration/rebalancing/round.ts";
import { NodeSet } from "../../machines/scheduling/node-set.ts";
import { WhatIf } from "../../machines/scheduling/what-if.ts";
import {
  DiscreteGenericResource,
  GenericResource,
  NamedGenericResource,
  NodeSpec_Availability,
  Placement,
  PlacementPreference,
  ReplicatedService,
  ResourceRequirements,
  Resources,
  Service,
  ServiceSpec,
  SpreadOver,
  Task,
  TaskState,
  TaskStatus,
  UpdateConfig,
  UpdateConfig_UpdateOrder,
  Version,
  type Node,
  type TaskSpec,
} from "../../proto/gen/messages.ts";
import { containerSpec, readyNode } from "../support/scheduling.ts";

const byZone = Placement.create({
  preferences: [PlacementPreference.create({ spread: SpreadOver.create({ spreadDescriptor: "node.labels.zone" }) })],
});

interface Laid {
  readonly nodes: readonly Node[];
  readonly candidates: readonly Candidate[];
}

/** `places`: for each service the node of each of its tasks. */
function laid(
  nodes: readonly Node[],
  places: Readonly<Record<string, readonly string[]>>,
  fields: Partial<TaskSpec> = {},
  update: Partial<UpdateConfig> = { parallelism: 0 },
): Laid {
  const candidates = Object.entries(places).map(([id, nodeIds]) => {
    const spec = containerSpec(fields);
    const specVersion = Version.create({ index: 1 });
    const service = Service.create({
      id,
      specVersion,
      spec: ServiceSpec.create({
        task: spec,
        replicated: ReplicatedService.create({ replicas: nodeIds.length }),
        update: UpdateConfig.create(update),
      }),
    });
    const tasks = nodeIds.map((nodeId, at) =>
      Task.create({
        id: `${id}.${at + 1}`,
        serviceId: id,
        slot: at + 1,
        spec,
        specVersion,
        nodeId,
        status: TaskStatus.create({ state: TaskState.RUNNING }),
        desiredState: TaskState.RUNNING,
      }),
    );
    return { service, tasks };
  });
  return { nodes, candidates };
}

function whatIf({ nodes, candidates }: Laid): WhatIf {
  const set = new NodeSet();
  for (const node of nodes) set.put(node);
  for (const { tasks } of candidates) for (const task of tasks) set.follow(task);
  return new WhatIf(set, 1_000);
}

/** All tasks may be moved. */
function steady({ candidates }: Laid): Map<string, number> {
  const loads = new Map<string, number>();
  for (const { nodeId } of candidates.flatMap(({ tasks }) => tasks)) loads.set(nodeId, (loads.get(nodeId) ?? 0) + 1);
  return loads;
}

function shown(laid: Laid, movesMax = 100): readonly string[] {
  const { rounds } = planRounds(laid.candidates, movesMax, 1_000, whatIf(laid), steady(laid));
  return rounds.flatMap((round, at) => round.map(({ task, toNodeId }) => `${at + 1} ${task.id} ${toNodeId}`));
}

const nodes = (...ids: readonly string[]): readonly Node[] => ids.map((id) => readyNode(id));

test("a difference of one is balanced", (t) => {
  t.deepEqual(shown(laid(nodes("a", "b"), { web: ["a", "a", "b"] })), []);
  t.deepEqual(shown(laid(nodes("a", "b"), { web: ["a"] })), []);
});

test("the task of the highest slot of the fullest node goes to the emptiest", (t) => {
  t.deepEqual(shown(laid(nodes("a", "b", "c"), { web: ["a", "b", "b", "b", "b", "a"] })), ["1 web.5 c", "1 web.4 c"]);
});

test("branches of a placement preference are levelled before nodes", (t) => {
  const zoned = [
    readyNode("a1", { labels: { zone: "a" } }),
    readyNode("a2", { labels: { zone: "a" } }),
    readyNode("b1", { labels: { zone: "b" } }),
  ];
  const uneven = laid(zoned, { web: ["a1", "a1", "a2", "a2"] }, { placement: byZone });
  const { rounds } = planRounds(uneven.candidates, 100, 100, whatIf(uneven), steady(uneven));
  t.deepEqual(
    rounds.flat().map(({ task, toNodeId, why }) => `${task.id} ${toNodeId} ${why}`),
    [
      "web.2 b1 node.labels.zone=a has 4 tasks of the service, node.labels.zone=b has 0",
      "web.4 b1 node.labels.zone=a has 3 tasks of the service, node.labels.zone=b has 1",
    ],
  );
  // Equal counts in each zone: that b1 has twice as many as a1 and a2 is correct.
  t.deepEqual(shown(laid(zoned, { web: ["a1", "a2", "b1", "b1"] }, { placement: byZone })), []);
});

test("nodes within a branch are levelled too", (t) => {
  const zoned = [
    readyNode("a1", { labels: { zone: "a" } }),
    readyNode("b1", { labels: { zone: "b" } }),
    readyNode("b2", { labels: { zone: "b" } }),
  ];
  t.deepEqual(shown(laid(zoned, { web: ["a1", "a1", "a1", "b1", "b1", "b1"] }, { placement: byZone })), ["1 web.6 b2"]);
});

test("nothing goes to a node that would reject it", (t) => {
  const small = [readyNode("a", { cpus: 8 }), readyNode("b", { cpus: 1 })];
  const resources = ResourceRequirements.create({ reservations: Resources.create({ nanoCpus: 1e9 }) });
  t.deepEqual(shown(laid(small, { web: ["a", "a", "a", "a"] }, { resources })), ["1 web.4 b"]);
  const picky = Placement.create({ constraints: ["node.id != b"] });
  t.deepEqual(shown(laid(nodes("a", "b"), { web: ["a", "a", "a"] }, { placement: picky })), []);
});

test("a node gets no more tasks than it has units of their named resources", (t) => {
  const gpu = (value: string): GenericResource =>
    GenericResource.create({ namedResourceSpec: NamedGenericResource.create({ kind: "gpu", value }) });
  const one = GenericResource.create({
    discreteResourceSpec: DiscreteGenericResource.create({ kind: "gpu", value: 1 }),
  });
  const resources = ResourceRequirements.create({ reservations: Resources.create({ generic: [one] }) });
  const many = [readyNode("a", { generic: ["1", "2", "3", "4"].map(gpu) }), readyNode("b", { generic: [gpu("5")] })];
  const { candidates } = laid(many, { web: ["a", "a", "a", "a"] }, { resources }, { parallelism: 2 });
  const holding = candidates.map(({ service, tasks }) => ({
    service,
    tasks: tasks.map((task, at) => Task.patch(task, { assignedGenericResources: [gpu(`${at + 1}`)] })),
  }));
  t.deepEqual(shown({ nodes: many, candidates: holding }), ["1 web.4 b"]);
});

test("a paused node keeps its tasks", (t) => {
  const paused = [readyNode("a", { availability: NodeSpec_Availability.PAUSE }), ...nodes("b", "c")];
  t.deepEqual(shown(laid(paused, { web: ["a", "a", "a", "a", "b", "b", "b"] })), ["1 web.7 c"]);
});

test("a round keeps to its budget and to each service's parallelism", (t) => {
  const two = laid(nodes("a", "b"), { api: Array(8).fill("a"), web: Array(8).fill("a") }, {}, { parallelism: 2 });
  t.is(planRound(two.candidates, 3, whatIf(two), steady(two)).length, 3);
  t.is(planRound(two.candidates, 100, whatIf(two), steady(two)).length, 4);
});

test("where a service is level, nodes are levelled by all their tasks", (t) => {
  const alone = Object.fromEntries(["s1", "s2", "s3", "s4", "s5"].map((id) => [id, ["a"]]));
  t.deepEqual(
    shown(laid(nodes("a", "b"), alone)),
    ["1 s1 b", "1 s2 b"].map((move) => move.replace(/(s\d)/, "$1.1")),
  );
});

test("short-lived tasks cause no moves of others", (t) => {
  const alone = Object.fromEntries(["s1", "s2", "s3", "s4", "s5"].map((id) => [id, ["a"]]));
  const busy = laid(nodes("a", "b"), alone);
  // Four of the five on `a` belong to services that fail all the time.
  t.deepEqual(planRound(busy.candidates, 9, whatIf(busy), new Map([["a", 1]])), []);
});

/** A cluster's score in the scheduler's order: by level, the sum of squares over branches, then nodes, then all tasks. */
function potential(candidates: readonly Candidate[], nodeIds: readonly string[], zones: readonly string[]): number[] {
  const squares = (values: readonly string[]): number => {
    const counts = new Map<string, number>();
    for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
    return [...counts.values()].reduce((sum, count) => sum + count * count, 0);
  };
  const zoneOf = (nodeId: string): string => zones[nodeIds.indexOf(nodeId)] ?? "";
  const where = candidates.map(({ tasks }) => tasks.map(({ nodeId }) => nodeId));
  return [
    where.reduce((sum, ids) => sum + squares(ids.map(zoneOf)), 0),
    where.reduce((sum, ids) => sum + squares(ids), 0),
    squares(where.flat()),
  ];
}

test("in any cluster, moves level it step by step and reach a stable end", (t) => {
  const nodeIds = ["a", "b", "c", "d", "e"];
  const services = fc.array(fc.array(fc.constantFrom(...nodeIds), { minLength: 1, maxLength: 9 }), {
    minLength: 1,
    maxLength: 4,
  });
  const zonesOf = fc.array(fc.constantFrom("x", "y", "z"), { minLength: 5, maxLength: 5 });
  fc.assert(
    fc.property(
      services,
      zonesOf,
      fc.boolean(),
      fc.boolean(),
      fc.integer({ min: 1, max: 4 }),
      (lists, zones, isZoned, isStartFirst, movesMax) => {
        const all = nodeIds.map((id, at) => readyNode(id, { labels: { zone: zones[at] as string } }));
        const order = isStartFirst ? UpdateConfig_UpdateOrder.START_FIRST : UpdateConfig_UpdateOrder.STOP_FIRST;
        const places = Object.fromEntries(lists.map((list, at) => [`s${at}`, list]));
        const spec = isZoned ? { placement: byZone } : {};
        let { candidates } = laid(all, places, spec, { parallelism: 0, order });
        const levels = isZoned ? zones : nodeIds.map(() => "");
        for (let rounds = 0; ; rounds += 1) {
          t.true(rounds < 200, "it ends");
          const now = { nodes: all, candidates };
          const round = planRound(candidates, movesMax, whatIf(now), steady(now));
          if (round.length === 0) break;
          const target = new Map(round.map(({ task, toNodeId }) => [task.id, toNodeId]));
          const before = potential(candidates, nodeIds, levels);
          candidates = candidates.map(({ service, tasks }) => ({
            service,
            tasks: tasks.map((task) => Task.patch(task, { nodeId: target.get(task.id) ?? task.nodeId })),
          }));
          const after = potential(candidates, nodeIds, levels);
          const differing = before.findIndex((value, at) => value !== after[at]);
          t.true(differing >= 0 && (after[differing] as number) < (before[differing] as number));
        }
      },
    ),
    { numRuns: 300 },
  );
});
