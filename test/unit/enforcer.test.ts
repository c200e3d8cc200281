// Which tasks are evicted from a changed node or a drained volume, and that no others are.
import test from "ava";
import fc from "fast-check";
import {
  enforcerMachine,
  evictions,
  evictionStatus,
  wasEvicted,
} from "../../machines/orchestration/enforcer.machine.ts";
import { shouldRestart, spentAttempts } from "../../machines/orchestration/restart.machine.ts";
import { timestampOf } from "../../proto/time.ts";
import {
  Annotations,
  DiscreteGenericResource,
  GenericResource,
  Meta,
  NamedGenericResource,
  type Node,
  NodeDescription,
  NodeRole,
  NodeSpec,
  NodeSpec_Availability,
  NodeStatus,
  NodeStatus_State,
  Placement,
  Platform,
  ReplicatedService,
  ResourceRequirements,
  Resources,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  UpdateStatus,
  UpdateStatus_UpdateState,
  Volume,
  VolumeAttachment,
  VolumeSpec,
  VolumeSpec_VolumeAvailability,
} from "../../proto/gen/messages.ts";
import { ChartRun } from "../support/chart-run.ts";
import { testCluster, testNode } from "../support/cluster.ts";

const { ACTIVE, DRAIN, PAUSE } = NodeSpec_Availability;
const { ASSIGNED, REJECTED, RUNNING, SHUTDOWN } = TaskState;
const delayMs = 5_000;

function nodeSpec(labels: Readonly<Record<string, string>>, availability: NodeSpec_Availability = ACTIVE): NodeSpec {
  return NodeSpec.create({ annotations: Annotations.create({ labels }), availability });
}

interface Offer {
  readonly cpus?: number;
  readonly memory?: number;
  readonly generic?: readonly GenericResource[];
  readonly os?: string;
}

function offering({ cpus = 4, memory = 8e9, generic = [], os = "linux" }: Offer): NodeDescription {
  return NodeDescription.create({
    platform: Platform.create({ architecture: "x86_64", os }),
    resources: Resources.create({ nanoCpus: cpus * 1e9, memoryBytes: memory, generic }),
  });
}

const named = (kind: string, value: string): GenericResource =>
  GenericResource.create({ namedResourceSpec: NamedGenericResource.create({ kind, value }) });
const discrete = (kind: string, value: number): GenericResource =>
  GenericResource.create({ discreteResourceSpec: DiscreteGenericResource.create({ kind, value }) });

interface Shape {
  readonly constraints?: readonly string[];
  readonly platforms?: readonly Platform[];
  readonly cpus?: number;
  readonly memory?: number;
  readonly assigned?: readonly GenericResource[];
  readonly state?: TaskState;
  readonly desired?: TaskState;
  readonly madeMs?: number;
  readonly serviceId?: string;
}

function task(id: string, shape: Shape = {}): Task {
  return Task.create({
    id,
    nodeId: "n",
    serviceId: shape.serviceId ?? "",
    desiredState: shape.desired ?? RUNNING,
    status: TaskStatus.create({ state: shape.state ?? RUNNING }),
    meta: Meta.create({ createdAt: timestampOf(shape.madeMs ?? 0) }),
    assignedGenericResources: shape.assigned ?? [],
    spec: TaskSpec.create({
      placement: Placement.create({ constraints: shape.constraints ?? [], platforms: shape.platforms ?? [] }),
      resources: ResourceRequirements.create({
        reservations: Resources.create({ nanoCpus: (shape.cpus ?? 0) * 1e9, memoryBytes: shape.memory ?? 0 }),
      }),
    }),
  });
}

function evicted(node: Node, tasks: readonly Task[], services: readonly Service[] = []): readonly string[] {
  return evictions(node, tasks, (id) => services.find((service) => service.id === id)).map(({ id }) => id);
}

const zoneB = testNode("n", { spec: nodeSpec({ zone: "b" }) });

test("every task whose constraints the node no longer meets is evicted, and no other", (t) => {
  const tasks = [
    task("a1", { constraints: ["node.labels.zone==a"] }),
    task("b1", { constraints: ["node.labels.zone==b"] }),
    task("gpu", { assigned: [named("gpu", "lost")] }),
    task("any"),
    task("a2", { constraints: ["node.labels.zone==a"], state: ASSIGNED }),
  ];
  t.deepEqual(evicted(zoneB, tasks), ["a1", "a2", "gpu"], "a missing resource does not end the search");
});

test("tasks that have ended, are to stop or are not on the node yet are left alone", (t) => {
  const where = { constraints: ["node.labels.zone==a"] };
  const tasks = [
    task("ended", { ...where, state: TaskState.FAILED }),
    task("stopping", { ...where, desired: SHUTDOWN }),
    task("pending", { ...where, state: TaskState.PENDING }),
  ];
  t.deepEqual(evicted(zoneB, tasks), []);
});

test("paused, drained and lost nodes are left alone", (t) => {
  const tasks = [task("a", { constraints: ["node.labels.zone==a"] })];
  t.deepEqual(evicted(testNode("n"), tasks), ["a"]);
  t.deepEqual(evicted(testNode("n", { spec: nodeSpec({}, PAUSE) }), tasks), []);
  t.deepEqual(evicted(testNode("n", { spec: nodeSpec({}, DRAIN) }), tasks), []);
  t.deepEqual(evicted(testNode("n", { status: NodeStatus.create({ state: NodeStatus_State.DOWN }) }), tasks), []);
});

test("role, platform and engine labels count like a label of the node", (t) => {
  const worker = testNode("n", { role: NodeRole.WORKER, description: offering({ os: "windows" }) });
  const tasks = [
    task("managers", { constraints: ["node.role==manager"] }),
    task("linux", { platforms: [Platform.create({ os: "linux" })] }),
    task("windows", { platforms: [Platform.create({ os: "windows" })] }),
    task("engine", { constraints: ["engine.labels.disk==ssd"] }),
  ];
  t.deepEqual(evicted(worker, tasks), ["engine", "linux", "managers"]);
});

test("the service's current placement counts, unless a rollout is applying it or is paused", (t) => {
  const service = (constraint: string, state: UpdateStatus_UpdateState | null): Service =>
    Service.create({
      id: "s",
      spec: ServiceSpec.create({
        task: TaskSpec.create({ placement: Placement.create({ constraints: [constraint] }) }),
        replicated: ReplicatedService.create({}),
      }),
      updateStatus: state === null ? null : UpdateStatus.create({ state }),
    });
  const old = [task("t", { serviceId: "s", constraints: ["node.labels.zone==b"] })];
  t.deepEqual(evicted(zoneB, old, [service("node.labels.zone==a", null)]), ["t"]);
  const { COMPLETED, PAUSED, ROLLBACK_PAUSED, ROLLBACK_STARTED, UPDATING } = UpdateStatus_UpdateState;
  for (const state of [UPDATING, PAUSED, ROLLBACK_STARTED, ROLLBACK_PAUSED])
    t.deepEqual(evicted(zoneB, old, [service("node.labels.zone==a", state)]), []);
  t.deepEqual(evicted(zoneB, old, [service("node.labels.zone==a", COMPLETED)]), ["t"]);
  const stale = [task("t", { serviceId: "s", constraints: ["node.labels.zone==a"] })];
  t.deepEqual(evicted(zoneB, stale, [service("node.labels.zone==b", null)]), [], "it was left in place on purpose");
  t.deepEqual(evicted(zoneB, stale, [service("node.labels.zone==a", UPDATING)]), ["t"]);
  t.deepEqual(
    evicted(zoneB, stale, [service("node.labels.zone==a", PAUSED)]),
    ["t"],
    "the requirement of its own spec is no longer met",
  );
});

test("when resources become short the fewest tasks are evicted, and of equals the youngest", (t) => {
  const node = (offer: Offer): Node => testNode("n", { description: offering(offer) });
  const small = [1, 2, 3, 4].map((at) => task(`t${at}`, { cpus: 1, madeMs: at }));
  t.deepEqual(evicted(node({ cpus: 4 }), small), []);
  t.deepEqual(evicted(node({ cpus: 2 }), small), ["t3", "t4"]);
  const mixed = [task("big", { cpus: 3, madeMs: 1 }), ...small.slice(0, 3)];
  t.deepEqual(evicted(node({ cpus: 3 }), mixed), ["big"], "one frees as much as three");
  t.deepEqual(evicted(node({ cpus: 5 }), mixed), ["t3"], "all free enough: the youngest goes");
  const memory = [task("old", { memory: 4e9, madeMs: 1 }), task("young", { memory: 4e9, madeMs: 2 })];
  t.deepEqual(evicted(node({ memory: 6e9 }), memory), ["young"]);
});

test("shortages are tracked by kind of resource, and a task that frees two kinds counts twice", (t) => {
  const node = testNode("n", { description: offering({ cpus: 1, generic: [discrete("gpu", 1)] }) });
  const tasks = [
    task("cpu", { cpus: 1, madeMs: 3 }),
    task("gpu", { assigned: [discrete("gpu", 1)], madeMs: 4 }),
    task("both", { cpus: 1, assigned: [discrete("gpu", 1)], madeMs: 1 }),
    task("idle", { madeMs: 5 }),
  ];
  t.deepEqual(evicted(node, tasks), ["both"]);
});

test("stopping tasks free resources without an eviction", (t) => {
  const node = testNode("n", { description: offering({ cpus: 1 }) });
  t.deepEqual(evicted(node, [task("old", { cpus: 1, desired: SHUTDOWN }), task("new", { cpus: 1 })]), []);
});

const partsOfThreeKinds = [
  { cpus: 1, memory: 3, gpu: 1, madeMs: 0 },
  { cpus: 3, memory: 2, gpu: 0, madeMs: 0 },
  { cpus: 1, memory: 0, gpu: 2, madeMs: 0 },
  { cpus: 2, memory: 2, gpu: 1, madeMs: 0 },
  { cpus: 0, memory: 0, gpu: 2, madeMs: 0 },
];

test("the remaining tasks always fit, no evicted task could have stayed, and the order of the tasks does not matter", (t) => {
  const tenants = fc.array(fc.record({ cpus: fc.nat(3), memory: fc.nat(3), gpu: fc.nat(2), madeMs: fc.nat(5) }), {
    maxLength: 9,
  });
  fc.assert(
    fc.property(tenants, fc.nat(6), fc.nat(6), fc.nat(3), (shapes, cpus, memory, gpu) => {
      const tasks = shapes.map((shape, at) =>
        task(`t${at}`, { ...shape, assigned: shape.gpu === 0 ? [] : [discrete("gpu", shape.gpu)] }),
      );
      const node = testNode("n", { description: offering({ cpus, memory, generic: [discrete("gpu", gpu)] }) });
      const gone = new Set(evicted(node, tasks));
      t.deepEqual([...gone].sort(), [...evicted(node, [...tasks].reverse())].sort());
      const fits = (without: ReadonlySet<string>): boolean => {
        const kept = shapes.filter((_, at) => !without.has(`t${at}`));
        const sum = (of: (shape: (typeof shapes)[number]) => number): number =>
          kept.reduce((total, shape) => total + of(shape), 0);
        return (
          sum((shape) => shape.cpus) <= cpus &&
          sum((shape) => shape.memory) <= memory &&
          sum((shape) => shape.gpu) <= gpu
        );
      };
      t.true(fits(gone));
      for (const id of gone)
        t.false(fits(new Set([...gone].filter((other) => other !== id))), `${id} could have stayed`);
    }),
    // The example's tasks free equal shares of three kinds, whose sums differ in the last bit with the order of the kinds.
    { numRuns: 200, examples: [[partsOfThreeKinds, 4, 3, 3]] },
  );
});

test("an eviction uses up no restart attempt, and the restart policy still applies", (t) => {
  const time = timestampOf(0);
  const gone = Task.patch(task("t1"), { status: evictionStatus("node", time) });
  t.true(wasEvicted(gone));
  t.true(wasEvicted(Task.patch(gone, { status: evictionStatus("volume", time) })));
  t.false(wasEvicted(task("t2", { state: REJECTED })));
  const policy = (fields: Partial<RestartPolicy>): Task =>
    Task.patch(gone, { spec: TaskSpec.create({ restart: RestartPolicy.create(fields) }) });
  const limited = policy({ condition: RestartPolicy_RestartCondition.ANY, maxAttempts: 1 });
  t.true(shouldRestart(limited, [limited, limited, limited]));
  t.is(spentAttempts(task("t9"), [limited, limited]), 0);
  t.false(shouldRestart(policy({ condition: RestartPolicy_RestartCondition.NONE }), []));
});

test("a label change moves the service's tasks, and the old ones have the reason", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await cluster.changeNode("n1", { spec: nodeSpec({ zone: "a" }) });
  const placement = Placement.create({ constraints: ["node.labels.zone==a"] });
  await cluster.addService("web", 3, { placement });
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1", "2:RUNNING@n1", "3:RUNNING@n1"]);
  await cluster.changeNode("n2", { spec: nodeSpec({ zone: "a" }) });
  await cluster.changeNode("n1", { spec: nodeSpec({ zone: "b" }) });
  const old = cluster.tasks().filter(({ nodeId }) => nodeId === "n1");
  t.deepEqual(
    old.map(({ status }) => [status?.state, status?.message, status?.err]),
    Array.from({ length: 3 }, () => [
      REJECTED,
      "task rejected by constraint enforcer",
      "assigned node no longer meets constraints",
    ]),
  );
  await cluster.run(delayMs + 1_000);
  t.deepEqual(cluster.picture(), ["1:RUNNING@n2", "2:RUNNING@n2", "3:RUNNING@n2"]);
});

test("a change that was reverted before it was enforced evicts nothing", async (t) => {
  const cluster = await testCluster(["n1"]);
  const placement = Placement.create({ constraints: ["node.labels.zone==a"] });
  await cluster.changeNode("n1", { spec: nodeSpec({ zone: "a" }) });
  await cluster.addService("web", 1, { placement });
  const { proposer } = cluster.env;
  const propose = proposer.propose.bind(proposer);
  let isChanged = false;
  Object.assign(proposer, {
    propose: (proposal: Parameters<typeof propose>[0]) => {
      const isEviction = proposal.operations.some(({ task: patch }) => patch?.status?.state === REJECTED);
      if (isEviction && !isChanged) {
        isChanged = true;
        cluster.seed("node", testNode("n1", { spec: nodeSpec({ zone: "a" }) }));
      }
      return propose(proposal);
    },
  });
  await cluster.changeNode("n1", { spec: nodeSpec({ zone: "b" }) });
  await cluster.run();
  t.true(isChanged, "the eviction had been decided");
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1"]);
  t.is(cluster.tasks().length, 1);
});

test("a new leader enforces what its predecessor did not finish", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await cluster.changeNode("n1", { spec: nodeSpec({ zone: "a" }) });
  await cluster.addService("web", 1, { placement: Placement.create({ constraints: ["node.labels.zone==a"] }) });
  cluster.orchestration.stop();
  await cluster.changeNode("n1", { spec: nodeSpec({ zone: "b" }) });
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1"]);
  cluster.changeLeader();
  await cluster.run();
  t.is(cluster.tasks()[0]?.status?.state, REJECTED);
});

test("the tasks of a drained volume are rejected, and no others", async (t) => {
  const cluster = await testCluster(["n1"]);
  await cluster.addService("web", 2);
  const [first, second] = cluster.tasks();
  const volumes = [VolumeAttachment.create({ id: "v1", source: "data", target: "/data" })];
  cluster.seed("task", Task.patch(first!, { volumes }));
  const volume = (availability: VolumeSpec_VolumeAvailability): Volume =>
    Volume.create({ id: "v1", spec: VolumeSpec.create({ availability }) });
  cluster.seed("volume", volume(VolumeSpec_VolumeAvailability.ACTIVE));
  await cluster.run();
  t.is(cluster.store.get("task", first!.id)?.status?.state, RUNNING);
  cluster.seed("volume", volume(VolumeSpec_VolumeAvailability.DRAIN));
  await cluster.run();
  t.like(cluster.store.get("task", first!.id)?.status, {
    state: REJECTED,
    message: "task rejected by volume enforcer",
    err: "attached to volume which is being drained",
  });
  t.is(cluster.store.get("task", second!.id)?.status?.state, RUNNING);
});

test("a task is not assigned to a node that has lost a required label", async (t) => {
  const cluster = await testCluster(["n1"]);
  await cluster.addService("web", 1, { placement: Placement.create({ constraints: ["node.labels.zone==a"] }) });
  const [waiting] = cluster.tasks();
  const { proposer } = cluster.env;
  const propose = proposer.propose.bind(proposer);
  Object.assign(proposer, {
    propose: (proposal: Parameters<typeof propose>[0]) => {
      const isAssignment = proposal.operations.some(({ task: patch }) => patch?.nodeId === "n1");
      if (isAssignment) cluster.seed("node", testNode("n1", { spec: nodeSpec({ zone: "b" }) }));
      return propose(proposal);
    },
  });
  await cluster.changeNode("n1", { spec: nodeSpec({ zone: "a" }) });
  await cluster.run(1_000);
  t.is(cluster.store.get("task", waiting!.id)?.nodeId, "");
});

test("the enforcer's chart checks again after a partial round", (t) => {
  const run = new ChartRun(enforcerMachine);
  for (const [event, value] of [
    [{ type: "work.arrived" }, "gathering"],
    [{ type: "work.arrived" }, "gathering"],
    [{ type: "round.due" }, "deciding"],
    [{ type: "round.done", verdict: { isPartial: true } }, "gathering"],
    [{ type: "round.due" }, "deciding"],
    [{ type: "round.done", verdict: { isPartial: false } }, "resting"],
  ] as const) {
    t.is(run.send(event).state, value);
  }
});

test("a task that a paused update left in its old place stays there, whoever leads and whatever else changes on the node", async (t) => {
  const cluster = await testCluster(["a", "b"]);
  await cluster.changeNode("a", { spec: nodeSpec({ zone: "a" }) });
  await cluster.changeNode("b", { spec: nodeSpec({ zone: "b" }) });
  const inZone = (zone: string): Placement => Placement.create({ constraints: [`node.labels.zone==${zone}`] });
  await cluster.addService("web", 4, { placement: inZone("a") });
  cluster.outcome = ({ spec }) => (spec?.forceUpdate === 1 ? TaskState.FAILED : undefined);
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, {
      task: TaskSpec.patch(spec.task as TaskSpec, { forceUpdate: 1, placement: inZone("b") }),
    }),
  );
  await cluster.run(1_000);
  t.is(cluster.store.get("service", "web")?.updateStatus?.state, UpdateStatus_UpdateState.PAUSED);
  const onA = (): readonly string[] => cluster.picture().filter((line) => line.endsWith("RUNNING@a"));
  const before = onA();
  t.is(before.length, 3);
  cluster.changeLeader();
  await cluster.run(1_000);
  t.deepEqual(onA(), before);
  await cluster.changeNode("a", { spec: nodeSpec({ zone: "a", other: "label" }) });
  await cluster.run(1_000);
  t.deepEqual(onA(), before);
  t.deepEqual(cluster.tasks().filter(wasEvicted), []);
});
