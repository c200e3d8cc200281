import test from "ava";
import { groupKey, NodeSet } from "../../machines/scheduling/node-set.ts";
import { failurePenalty } from "../../machines/scheduling/tracked.ts";
import { Backlog } from "../../machines/scheduling/place.ts";
import {
  Placement,
  PlacementPreference,
  ResourceRequirements,
  Resources,
  SpreadOver,
  TaskState,
  type Node,
  type Task,
} from "../../proto/gen/messages.ts";
import { containerSpec, inState, pendingTask, pendingTasks, readyNode } from "../support/scheduling.ts";

const limits = { operationsMax: 1_000, replacementsMax: 1_000, judgementsMax: 1_000 };

function world(nodes: readonly Node[], running: readonly Task[] = []) {
  const set = new NodeSet();
  for (const node of nodes) set.put(node);
  for (const task of running) set.follow(task);
  return { set, backlog: new Backlog(set) };
}

/** How many tasks each node got. */
function placed(nodes: readonly Node[], tasks: readonly Task[], running: readonly Task[] = []): Record<string, number> {
  const { backlog } = world(nodes, running);
  for (const task of tasks) backlog.follow(task);
  const counts: Record<string, number> = {};
  for (const { nodeId } of backlog.round(0, limits).assignments) counts[nodeId] = (counts[nodeId] ?? 0) + 1;
  return counts;
}

const nodes = (count: number): readonly Node[] => Array.from({ length: count }, (_, at) => readyNode(`n${at}`));
const on = (nodeId: string, task: Task): Task => inState(task, TaskState.RUNNING, { nodeId });
const spreadSpec = (...over: readonly string[]) =>
  containerSpec({
    placement: Placement.create({
      preferences: over.map((spreadDescriptor) =>
        PlacementPreference.create({ spread: SpreadOver.create({ spreadDescriptor }) }),
      ),
    }),
  });

test("tasks of a service are spread evenly over the nodes", (t) => {
  t.deepEqual(placed(nodes(3), pendingTasks(7)), { n0: 3, n1: 2, n2: 2 });
});

test("fewer tasks of the own service come before fewer tasks in total", (t) => {
  const others = pendingTasks(3, { serviceId: "other" }, "o").map((task) => on("n1", task));
  const own = on("n0", pendingTask("own"));
  t.deepEqual(placed(nodes(2), [pendingTask("t")], [...others, own]), { n1: 1 });
  t.deepEqual(placed(nodes(2), [pendingTask("t")], others), { n0: 1 });
});

test("the same state gives the same choice, whatever order the nodes joined in", (t) => {
  t.deepEqual(placed(nodes(5), [pendingTask("t")]), { n0: 1 });
  t.deepEqual(placed([...nodes(5)].reverse(), [pendingTask("t")]), { n0: 1 });
});

test("a node where the same spec recently failed five times comes last, until the failures are long ago", (t) => {
  const task = pendingTask("t");
  for (const [failures, now, expected] of [
    [failurePenalty.countMin, 1_000, "n1"],
    [failurePenalty.countMin - 1, 1_000, "n0"],
    [failurePenalty.countMin, 1_000 + failurePenalty.windowMs, "n0"],
  ] as const) {
    const { set, backlog } = world(nodes(2));
    for (let at = 0; at < failures; at += 1) set.find("n0")?.recordFailure(groupKey(task), at);
    backlog.follow(task);
    t.is(backlog.round(now, limits).assignments[0]?.nodeId, expected, `${failures} failures, at ${now}`);
  }
});

test("a preference balances the values of a label, however many nodes have each", (t) => {
  const zones = [
    ...["a1", "a2", "a3"].map((id) => readyNode(id, { labels: { zone: "a" } })),
    readyNode("b1", { labels: { zone: "b" } }),
    readyNode("c1"),
  ];
  t.deepEqual(placed(zones, pendingTasks(9, { spec: spreadSpec("node.labels.zone") })), {
    a1: 1,
    a2: 1,
    a3: 1,
    b1: 3,
    c1: 3,
  });
});

test("preferences nest, and existing tasks count", (t) => {
  const racks = [
    readyNode("a1", { labels: { zone: "a" }, engineLabels: { rack: "1" } }),
    readyNode("a2", { labels: { zone: "a" }, engineLabels: { rack: "2" } }),
    readyNode("a3", { labels: { zone: "a" }, engineLabels: { rack: "2" } }),
    readyNode("b1", { labels: { zone: "b" }, engineLabels: { rack: "1" } }),
  ];
  const spec = spreadSpec("node.labels.zone", "ignored", "engine.labels.rack");
  t.deepEqual(placed(racks, pendingTasks(8, { spec })), { a1: 2, a2: 1, a3: 1, b1: 4 });
  const running = pendingTasks(2, { spec }, "r").map((task) => on("b1", task));
  t.deepEqual(
    placed(racks, pendingTasks(4, { spec }), running),
    { a1: 2, a2: 1, b1: 1 },
    "a has none yet, so it gets three of the four",
  );
});

test("tasks are spread over sites", (t) => {
  const siteNode = (id: string, site: string) => readyNode(id, { engineLabels: { site } });
  const found = [siteNode("a1", "lab"), siteNode("a2", "lab"), siteNode("b1", "dock")];
  t.deepEqual(placed(found, pendingTasks(4, { spec: spreadSpec("node.site") })), { a1: 1, a2: 1, b1: 2 });
});

test("a full branch leaves its share to the others", (t) => {
  const spec = containerSpec({
    placement: spreadSpec("node.labels.zone").placement,
    resources: ResourceRequirements.create({ reservations: Resources.create({ nanoCpus: 1e9 }) }),
  });
  const zones = [
    readyNode("a1", { labels: { zone: "a" }, cpus: 1 }),
    readyNode("b1", { labels: { zone: "b" }, cpus: 9 }),
  ];
  t.deepEqual(placed(zones, pendingTasks(6, { spec })), { a1: 1, b1: 5 });
});

test("tasks that a round cannot place are explained once, and again only when the reason changes", (t) => {
  const spec = containerSpec({
    resources: ResourceRequirements.create({ reservations: Resources.create({ nanoCpus: 3e9 }) }),
  });
  const { set, backlog } = world(nodes(2));
  for (const task of pendingTasks(4, { spec })) backlog.follow(task);
  const first = backlog.round(0, limits);
  t.is(first.assignments.length, 2);
  t.deepEqual(
    first.explanations.map(({ text }) => text),
    Array(2).fill("no suitable node (insufficient resources on 2 nodes)"),
  );
  const again = backlog.round(0, limits);
  t.deepEqual([again.assignments.length, again.explanations.length], [0, 0]);
  set.put(readyNode("n9", { cpus: 1 }));
  const { explanations } = backlog.round(0, limits);
  t.deepEqual(
    explanations.map(({ text }) => text),
    Array(2).fill("no suitable node (insufficient resources on 3 nodes)"),
  );
  set.put(readyNode("n9", { cpus: 6 }));
  t.deepEqual(
    backlog.round(0, limits).assignments.map(({ nodeId }) => nodeId),
    ["n9", "n9"],
  );
  t.is(backlog.size, 0);
});

test("a round keeps to its limits and says what is left", (t) => {
  const { set, backlog } = world(nodes(2));
  for (const task of pendingTasks(10)) backlog.follow(task);
  const sizes: number[] = [];
  for (let more = true; more;) {
    const round = backlog.round(0, { ...limits, operationsMax: 4 });
    sizes.push(round.assignments.length);
    more = round.hasMore;
  }
  t.deepEqual(sizes, [4, 4, 2]);
  const picky = containerSpec({ placement: Placement.create({ constraints: ["node.labels.zone==a"] }) });
  for (const task of pendingTasks(3, { spec: picky, serviceId: "picky" }, "p")) backlog.follow(task);
  t.is(backlog.round(0, limits).explanations.length, 3);
  set.put(readyNode("n9"));
  const retold: number[] = [];
  for (let stale = true; stale;) {
    const round = backlog.round(0, { ...limits, replacementsMax: 2 });
    retold.push(round.explanations.length);
    stale = round.hasStale;
  }
  t.deepEqual(retold, [2, 1]);
});

test("a round that has examined enough nodes leaves the other groups to the next", (t) => {
  const { backlog } = world(nodes(2));
  for (const serviceId of ["a", "b", "c"]) backlog.follow(pendingTask(serviceId, { serviceId }));
  const first = backlog.round(0, { ...limits, judgementsMax: 3 });
  t.deepEqual([first.assignments.map(({ task }) => task.id), first.hasMore], [["a", "b"], true]);
  const second = backlog.round(0, { ...limits, judgementsMax: 3 });
  t.deepEqual([second.assignments.map(({ task }) => task.id), second.hasMore], [["c"], false]);
});

test("a removed node is no longer counted", (t) => {
  const { set, backlog } = world(nodes(2));
  backlog.follow(
    pendingTask("t", {
      spec: containerSpec({ placement: Placement.create({ constraints: ["node.labels.zone==a"] }) }),
    }),
  );
  t.is(
    backlog.round(0, limits).explanations[0]?.text,
    "no suitable node (scheduling constraints not satisfied on 2 nodes)",
  );
  set.remove("n0");
  t.is(
    backlog.round(0, limits).explanations[0]?.text,
    "no suitable node (scheduling constraints not satisfied on 1 node)",
  );
  set.remove("n1");
  t.is(backlog.round(0, limits).explanations[0]?.text, "no suitable node");
});

test("a task created for a node is judged only on that one", (t) => {
  const { set, backlog } = world([readyNode("n0"), readyNode("n1", { labels: { zone: "a" } })]);
  const spec = containerSpec({ placement: Placement.create({ constraints: ["node.labels.zone==a"] }) });
  for (const nodeId of ["n0", "n1"]) backlog.follow(pendingTask(`for-${nodeId}`, { nodeId, spec, slot: 0 }));
  const first = backlog.round(0, limits);
  t.deepEqual(
    first.assignments.map(({ nodeId, isPreassigned }) => [nodeId, isPreassigned]),
    [["n1", true]],
  );
  t.deepEqual(
    first.explanations.map(({ text }) => text),
    ["scheduling constraints not satisfied on 1 node (host-n0: does not meet node.labels.zone==a)"],
  );
  set.put(readyNode("n0", { labels: { zone: "a" } }));
  t.deepEqual(
    backlog.round(0, limits).assignments.map(({ nodeId }) => nodeId),
    ["n0"],
  );
});
