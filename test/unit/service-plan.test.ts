// The content of a plan, and that it predicts what happens.
import { deepStrictEqual, equal } from "node:assert/strict";
import test from "ava";
import fc from "fast-check";
import {
  Annotations,
  Any,
  ContainerSpec,
  DiscreteGenericResource,
  EndpointSpec,
  EngineDescription,
  ExecSpec,
  GenericResource,
  GenericRuntimeSpec,
  GlobalService,
  NamedGenericResource,
  NetworkAttachmentConfig,
  NodeDescription,
  NodeSpec,
  NodeSpec_Availability,
  Placement,
  PlacementPreference,
  PlanServiceRequest,
  PluginDescription,
  PortConfig,
  ReplicatedJob,
  ReplicatedService,
  ResourceRequirements,
  Resources,
  ServiceSpec,
  SpreadOver,
  TaskSpec,
  TaskState,
  UpdateConfig,
  UpdateConfig_UpdateOrder,
  type PlanServiceResponse,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import { ingressNetwork } from "../../machines/allocation/new-networks.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { execSpec, testCluster, testNode, type TestCluster } from "../support/cluster.ts";

function specOf(
  name: string,
  replicas: number,
  task: Partial<TaskSpec> = {},
  more: Partial<ServiceSpec> = {},
): ServiceSpec {
  return ServiceSpec.create({
    annotations: Annotations.create({ name }),
    task: execSpec({ generic, ...task }),
    ...(more.global === undefined && more.replicatedJob === undefined
      ? { replicated: ReplicatedService.create({ replicas }) }
      : {}),
    ...more,
  });
}

/** Control accepts it, unlike the simpler specs of other tests. */
const payload = Any.create({
  type_url: "type.muster.dev/muster.v1.ExecSpec",
  value: ExecSpec.encode(ExecSpec.create({ command: "true" })),
});
const generic = GenericRuntimeSpec.create({ kind: "exec", payload });

function add(
  cluster: TestCluster,
  id: string,
  replicas: number,
  task: Partial<TaskSpec> = {},
  more: Partial<ServiceSpec> = {},
): Promise<void> {
  return cluster.addService(id, replicas, { generic, ...task }, more);
}

function stored(cluster: TestCluster, id = "web"): Service {
  return cluster.store.get("service", id) as Service;
}

function planCreate(cluster: TestCluster, spec: ServiceSpec): PlanServiceResponse {
  return cluster.orchestration.planService(PlanServiceRequest.create({ spec }));
}

function planChange(cluster: TestCluster, change: (spec: ServiceSpec) => ServiceSpec, serviceId = "web") {
  const spec = change(stored(cluster, serviceId).spec as ServiceSpec);
  return cluster.orchestration.planService(PlanServiceRequest.create({ serviceId, spec }));
}

function lines({ steps }: PlanServiceResponse): readonly string[] {
  return steps.map(({ batch, fromNodeId, kind, nodeId, slot }) => `${batch} ${kind} ${slot} ${fromNodeId}>${nodeId}`);
}

function withTask(spec: ServiceSpec, fields: Partial<TaskSpec>): ServiceSpec {
  return ServiceSpec.patch(spec, { task: TaskSpec.patch(spec.task ?? TaskSpec.create(), fields) });
}

const cpus = (count: number): Partial<TaskSpec> => ({
  resources: ResourceRequirements.create({ reservations: Resources.create({ nanoCpus: count * 1e9 }) }),
});
const constrained = (...constraints: readonly string[]): Partial<TaskSpec> => ({
  placement: Placement.create({ constraints }),
});

test("a new service: where each task would go, and why", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  const before = cluster.store.version;
  const plan = planCreate(cluster, specOf("web", 3));
  t.is(cluster.store.version, before, "nothing is written");
  t.deepEqual(lines(plan), ["0 create 1 >n1", "0 create 2 >n2", "0 create 3 >n1"]);
  t.deepEqual(plan.steps[2]?.reasons, [
    "the service is new",
    "host-n1: had 1 of its tasks and 1 in all; 2 of 2 nodes could run it",
  ]);
  t.deepEqual(
    plan.nodes.map((node) => [node.name, node.before, node.after]),
    [
      ["host-n1", 0, 2],
      ["host-n2", 0, 1],
    ],
  );
  t.like(plan, { created: 3, replaced: 0, removed: 0, kept: 0, name: "web" });
});

test("an update: the batches of the update config, in their order", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  const update = UpdateConfig.create({ parallelism: 2 });
  await add(cluster, "web", 5, {}, { update });
  const plan = planChange(cluster, (spec) => withTask(spec, { forceUpdate: 1 }));
  t.deepEqual(
    plan.steps.map(({ batch, kind, slot }) => `${batch} ${kind} ${slot}`),
    ["1 replace 1", "1 replace 2", "2 replace 3", "2 replace 4", "3 replace 5"],
  );
  t.is(plan.steps[0]?.reasons[0], "changed: forceUpdate");
  t.like(plan, { created: 0, replaced: 5, removed: 0, kept: 0 });
});

test("scaling down shows which tasks would go", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await add(cluster, "web", 5);
  const plan = planChange(cluster, (spec) =>
    ServiceSpec.patch(spec, { replicated: ReplicatedService.create({ replicas: 3 }) }),
  );
  t.is(plan.removed, 2);
  t.is(plan.kept, 3);
  t.true(plan.steps.every(({ kind, reasons }) => kind === "remove" && reasons[0] === "scaled down from 5 to 3"));
});

test("an unplaceable task is shown with each filter's reason", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  const plan = planCreate(cluster, specOf("big", 5, cpus(3)));
  t.is(plan.waits.length, 1);
  t.like(plan.waits[0], { tasks: 3, text: "no suitable node (insufficient resources on 2 nodes)" });
  t.regex(plan.waits[0]?.nodes[0] ?? "", /host-n1: 3 CPUs requested, 1 free/);
  t.is(plan.steps.filter(({ nodeId }) => nodeId === "").length, 3);
});

test("an update that cannot be placed shows how far it would get", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await add(cluster, "web", 3, {}, { update: UpdateConfig.create({ parallelism: 1 }) });
  const plan = planChange(cluster, (spec) => withTask(spec, { ...cpus(100), forceUpdate: 1 }));
  t.is(plan.replaced, 1);
  t.is(plan.kept, 2);
  t.is(plan.waits[0]?.tasks, 1);
  t.regex(plan.notes.join(), /the update stops at tasks that wait for a node/);
});

test("a plan is rejected if Control would reject it", async (t) => {
  const cluster = await testCluster(["n1"]);
  await add(cluster, "web", 1);
  const refusal = (request: PlanServiceRequest) =>
    t.throws(() => cluster.orchestration.planService(request), { instanceOf: RpcError }).code;
  t.is(refusal(PlanServiceRequest.create({ spec: specOf("web", 1) })), Status.ALREADY_EXISTS);
  t.is(refusal(PlanServiceRequest.create({ spec: specOf("", 1) })), Status.INVALID_ARGUMENT);
  t.is(refusal(PlanServiceRequest.create({ serviceId: "nobody", spec: specOf("x", 1) })), Status.NOT_FOUND);
  const networks = [NetworkAttachmentConfig.create({ target: "nowhere" })];
  for (const serviceId of ["", "web"]) {
    const spec = specOf(serviceId === "" ? "other" : "web", 1, { networks });
    t.is(refusal(PlanServiceRequest.create({ serviceId, spec })), Status.INVALID_ARGUMENT, "no such network");
  }
  t.is(refusal(PlanServiceRequest.create({ serviceId: "web", rollback: true })), Status.FAILED_PRECONDITION);
});

test("a rollback leads to the previous spec", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await add(cluster, "web", 2);
  await cluster.updateService("web", (spec) => withTask(spec, { forceUpdate: 1 }));
  await cluster.run(60_000);
  const plan = cluster.orchestration.planService(PlanServiceRequest.create({ serviceId: "web", rollback: true }));
  t.is(plan.replaced, 2);
  t.is(plan.steps[0]?.reasons[0], "changed: forceUpdate");
});

test("a global service has a task on each node open to it", async (t) => {
  const cluster = await testCluster(["n1", "n2", "n3"]);
  await cluster.changeNode("n3", { spec: NodeSpec.create({ availability: NodeSpec_Availability.DRAIN }) });
  const plan = planCreate(cluster, specOf("each", 0, {}, { global: GlobalService.create() }));
  t.deepEqual(lines(plan).toSorted(), ["0 create 0 >n1", "0 create 0 >n2"]);
  t.regex(plan.steps[0]?.reasons.join() ?? "", /created for this node/);
});

test("a job starts as many tasks as may run at once", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  const replicatedJob = ReplicatedJob.create({ totalCompletions: 6, maxConcurrent: 2 });
  const plan = planCreate(cluster, specOf("work", 0, {}, { replicatedJob }));
  t.is(plan.created, 2);
  t.regex(plan.notes.join(), /2 tasks run at once; .* up to 6/);
});

/** Wanted tasks by node, and those that wait. */
function laid(cluster: TestCluster, id: string): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const { nodeId, status } of wanted(cluster, id)) {
    const where = (status?.state ?? 0) >= TaskState.ASSIGNED ? nodeId : "";
    counts[where] = (counts[where] ?? 0) + 1;
  }
  return counts;
}

function wanted(cluster: TestCluster, id: string): readonly Task[] {
  return cluster.tasks(id).filter(({ desiredState }) => desiredState <= TaskState.RUNNING);
}

/** How many run somewhere, and how many wait. */
function sums({ "": waiting = 0, ...nodes }: Readonly<Record<string, number>>): readonly number[] {
  return [Object.values(nodes).reduce((sum, count) => sum + count, 0), waiting];
}

function foretold(plan: PlanServiceResponse): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const { id, after } of plan.nodes) if (after > 0) counts[id] = after;
  const waiting = plan.waits.reduce((sum, { tasks }) => sum + tasks, 0);
  if (waiting > 0) counts[""] = waiting;
  return counts;
}

const zone = (nodeId: string): string => (nodeId < "n3" ? "east" : "west");
const described = (id: string, ...generic: readonly GenericResource[]): NodeDescription => {
  const description = testNode(id).description ?? NodeDescription.create({});
  return NodeDescription.patch(description, {
    resources: Resources.patch(description.resources ?? Resources.create(), { generic }),
  });
};
/** Some nodes count their GPUs, others name them. */
const node = (id: string) =>
  testNode(id, {
    description: described(id, ...(id < "n3" ? [gpus(2)] : [named(`${id}a`)])),
    spec: NodeSpec.create({
      annotations: Annotations.create({ labels: { zone: zone(id) } }),
      availability: NodeSpec_Availability.ACTIVE,
    }),
  });
const spread = Placement.create({
  preferences: [PlacementPreference.create({ spread: SpreadOver.create({ spreadDescriptor: "node.labels.zone" }) })],
});

const named = (value: string): GenericResource =>
  GenericResource.create({ namedResourceSpec: NamedGenericResource.create({ kind: "gpu", value }) });
const gpus = (value: number): GenericResource =>
  GenericResource.create({ discreteResourceSpec: DiscreteGenericResource.create({ kind: "gpu", value }) });
const wantsGpu = {
  resources: ResourceRequirements.create({ reservations: Resources.create({ generic: [gpus(1)] }) }),
};

test("a unit of a generic resource assigned to one planned task is not available to the next", async (t) => {
  const cluster = await testCluster([]);
  await cluster.addNode("n1", { description: described("n1", named("a"), named("b")) });
  const plan = planCreate(cluster, specOf("web", 3, wantsGpu));
  t.deepEqual(foretold(plan), { n1: 2, "": 1 });
  await add(cluster, "web", 3, wantsGpu);
  await cluster.run(1_000);
  t.deepEqual(laid(cluster, "web"), { n1: 2, "": 1 });
});

test("a service that publishes ports uses the ingress network, which agents lack: none is planned for", async (t) => {
  const cluster = await testCluster([]);
  cluster.seed("network", ingressNetwork("ingress"));
  await cluster.run();
  const plugin = (type: string, name: string) => PluginDescription.create({ type, name });
  await cluster.addNode("n1", {
    description: NodeDescription.patch(described("n1"), {
      engine: EngineDescription.create({
        labels: { "muster.driver.docker.health": "healthy" },
        plugins: [plugin("Driver", "docker"), plugin("Volume", "local"), plugin("Network", "overlay")],
      }),
    }),
  });
  const endpoint = EndpointSpec.create({ ports: [PortConfig.create({ targetPort: 80, publishedPort: 8080 })] });
  const container = { generic: null, container: ContainerSpec.create({ image: "web:1" }) };
  const plan = planCreate(cluster, specOf("web", 1, container, { endpoint }));
  t.deepEqual(foretold(plan), { "": 1 });
  await cluster.addService("web", 1, container, { endpoint });
  await cluster.run(1_000);
  t.is(cluster.tasks("web")[0]?.status?.err, plan.waits[0]?.text);
});

const taskShapes: readonly Partial<TaskSpec>[] = [
  {},
  cpus(1),
  cpus(3),
  constrained("node.labels.zone == east"),
  constrained("node.id != n1"),
  { placement: spread },
  { placement: Placement.create({ maxReplicas: 1 }) },
  wantsGpu,
];

test("a plan predicts what happens", async (t) => {
  const shape = fc.constantFrom(...taskShapes);
  const count = fc.integer({ min: 0, max: 7 });
  const order = fc.constantFrom(UpdateConfig_UpdateOrder.STOP_FIRST, UpdateConfig_UpdateOrder.START_FIRST);
  const parallelism = fc.integer({ min: 0, max: 3 });
  const change = fc.record({ replicas: count, shape, isForced: fc.boolean() });
  await fc.assert(
    fc.asyncProperty(
      fc.record({
        nodes: fc.integer({ min: 1, max: 4 }),
        others: count,
        replicas: count,
        shape,
        isGlobal: fc.boolean(),
      }),
      change,
      order,
      parallelism,
      async (first, next, updateOrder, atOnce) => {
        const cluster = await testCluster([]);
        for (let number = 1; number <= first.nodes; number += 1)
          await cluster.addNode(`n${number}`, node(`n${number}`));
        await add(cluster, "other", first.others);
        const update = UpdateConfig.create({ parallelism: atOnce, order: updateOrder });
        const mode = first.isGlobal ? { global: GlobalService.create() } : {};
        const spec = specOf("web", first.replicas, first.shape, { update, ...mode });

        const created = planCreate(cluster, spec);
        const { replicated, global } = spec;
        await add(cluster, "web", first.replicas, first.shape, { update, replicated, global });
        await cluster.run(1_000);
        deepStrictEqual(laid(cluster, "web"), foretold(created));
        equal(created.created, wanted(cluster, "web").length);

        const before = new Set(wanted(cluster, "web").map(({ id }) => id));
        const forceUpdate = next.isForced ? 1 : 0;
        const changed = (old: ServiceSpec): ServiceSpec => {
          const task = execSpec({ generic, ...next.shape, forceUpdate });
          const scaled = first.isGlobal ? {} : { replicated: ReplicatedService.create({ replicas: next.replicas }) };
          return ServiceSpec.patch(old, { task, ...scaled });
        };
        const plan = planChange(cluster, changed);
        await cluster.updateService("web", changed);
        // Shorter than the time after which its rollout gives up on a task.
        await cluster.run(120_000);
        const [found, expected] = [laid(cluster, "web"), foretold(plan)];
        // The nodes decide the order of tasks that change at one moment, and so where their successors find capacity.
        if (atOnce === 1 && updateOrder === UpdateConfig_UpdateOrder.STOP_FIRST) deepStrictEqual(found, expected);
        else deepStrictEqual(sums(found), sums(expected));
        const after = wanted(cluster, "web");
        const fresh = after.filter(({ id }) => !before.has(id)).length;
        equal(plan.kept, after.length - fresh, "those that stay");
        equal(plan.created + plan.replaced, fresh, "those that are new");
      },
    ),
    { numRuns: 60 },
  );
  t.pass();
});
