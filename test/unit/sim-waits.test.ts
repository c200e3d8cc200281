// A break for each budget of a healed cluster: one thing waits for ever, and its budget alone reports it.
import test from "ava";
import {
  Annotations,
  Certificate,
  Cluster,
  IssuanceStatus,
  IssuanceStatus_State,
  Manager,
  Node,
  NodeDescription,
  NodeRole,
  NodeSpec,
  NodeSpec_Availability,
  NodeStatus,
  NodeStatus_State,
  ReplicatedJob,
  RootCA,
  RootRotation,
  Service,
  ServiceSpec,
  Task,
  TaskState,
  TaskStatus,
  UpdateStatus,
  UpdateStatus_UpdateState,
  Volume,
  VolumeSpec,
} from "../../proto/gen/messages.ts";
import { Budgets, budgets, type BudgetKind, type Wait } from "../../simulation/invariants/budgets.ts";
import { waitsOf } from "../../simulation/rest.ts";
import { testManager, type TestManager } from "../support/manager.ts";

/** A healthy cluster, whose parts the breaks change. */
interface Broken {
  readonly seed: TestManager["seed"];
  readonly running: {
    isLeading: () => boolean;
    isServing: () => boolean;
    unhealthy: () => string | null;
    lock: () => string;
  };
  /** Waits of clients. */
  readonly waits: Wait[];
  /** Nodes whose dataplane was never sent its state. */
  readonly untold: Set<string>;
}

const { DOWN, READY } = NodeStatus_State;
const { NEW, RUNNING, STARTING } = TaskState;

const node = (state: NodeStatus_State, over: Partial<Node> = {}): Node =>
  Node.create({
    id: "a1",
    description: NodeDescription.create({ hostname: "a1" }),
    status: NodeStatus.create({ state }),
    spec: NodeSpec.create(),
    ...over,
  });
const task = (state: TaskState, desiredState: TaskState): Task =>
  Task.create({ id: "t", serviceId: "s", slot: 1, nodeId: "a1", desiredState, status: TaskStatus.create({ state }) });
const spec = ServiceSpec.create({ annotations: Annotations.create({ name: "s" }) });

const breaks: Readonly<Record<BudgetKind, (world: Broken) => void>> = {
  manager: ({ running }) => (running.isServing = () => false),
  leader: ({ running }) => (running.isLeading = () => false),
  health: ({ running }) => (running.unhealthy = () => "its disk is full"),
  session: ({ seed }) => seed("node", node(DOWN)),
  order: ({ seed }) => seed("task", task(STARTING, RUNNING)),
  placement: ({ seed }) => seed("task", Task.patch(task(NEW, RUNNING), { nodeId: "" })),
  drain({ seed }) {
    seed("node", node(READY, { spec: NodeSpec.create({ availability: NodeSpec_Availability.DRAIN }) }));
    seed("task", task(RUNNING, RUNNING));
  },
  rollout({ seed }) {
    const updateStatus = UpdateStatus.create({ state: UpdateStatus_UpdateState.ROLLBACK_STARTED });
    seed("service", Service.create({ id: "s", spec, updateStatus }));
  },
  job({ seed }) {
    const replicatedJob = ReplicatedJob.create({ totalCompletions: 2, maxConcurrent: 1 });
    seed("service", Service.create({ id: "s", spec: ServiceSpec.patch(spec, { replicatedJob }) }));
  },
  certificate({ seed }) {
    const status = IssuanceStatus.create({ state: IssuanceStatus_State.RENEW });
    seed("node", node(READY, { certificate: Certificate.create({ status }) }));
  },
  rotation: ({ seed }) =>
    seed("cluster", Cluster.create({ id: "c", rootCa: RootCA.create({ rootRotation: RootRotation.create() }) })),
  volume: ({ seed }) =>
    seed(
      "volume",
      Volume.create({ id: "v", spec: VolumeSpec.create({ annotations: Annotations.create({ name: "v" }) }) }),
    ),
  policy: ({ untold }) => untold.add("a1"),
  subscription: ({ waits }) => waits.push({ kind: "subscription", what: "a subscription to output does not end" }),
  watcher: ({ waits }) => waits.push({ kind: "watcher", what: "watcher 1 is behind" }),
  lock: ({ running }) => (running.lock = () => "0123"),
  role: ({ seed }) => seed("manager", Manager.create({ id: "m1", alive: false })),
  removal: ({ seed }) => seed("service", Service.create({ id: "s", spec, pendingDelete: true })),
};

function look(broke: (world: Broken) => void): readonly Wait[] {
  const { seed, store } = testManager();
  const key = { id: "k", lock: "" };
  const running = {
    isLeading: () => true,
    isServing: () => true,
    unhealthy: () => null as string | null,
    lock: () => "",
    keyring: { current: key, find: () => key },
    store,
  };
  const waits: Wait[] = [];
  const untold = new Set<string>();
  seed("cluster", Cluster.create({ id: "c" }));
  seed("node", node(READY));
  const description = NodeDescription.create({ hostname: "m1" });
  seed("node", node(READY, { id: "m1", description, spec: NodeSpec.create({ desiredRole: NodeRole.MANAGER }) }));
  seed("manager", Manager.create({ id: "m1", alive: true }));
  broke({ seed, running, waits, untold });
  const manager = { process: { name: "m1" }, isRetired: false, running };
  const dataplanes = { isServing: (name: string) => untold.has(name), stateOf: () => null };
  const parts = {
    managers: { serving: [manager], all: [manager] },
    nodes: { processes: [{ name: "a1", goneAt: null }] },
    workloads: { waits: () => waits },
    storage: {},
    dataplanes,
  };
  return [...waitsOf(parts as never)];
}

test("L9: nothing waits in a healthy cluster", (t) => {
  t.deepEqual(
    look(() => undefined),
    [],
  );
});

for (const [kind, broke] of Object.entries(breaks) as [BudgetKind, (world: Broken) => void][])
  test(`L9: a wait of the kind ${kind} is reported after its budget, and alone`, (t) => {
    const waits = look(broke);
    t.deepEqual(
      waits.map((wait) => wait.kind),
      [kind],
    );
    const looked = new Budgets();
    t.is(looked.look(waits, 0), null);
    t.is(looked.look(waits, budgets[kind]), null);
    t.regex(looked.look(waits, budgets[kind] + 1) ?? "", new RegExp(`^L9: .* \\(${kind}\\): `));
  });
