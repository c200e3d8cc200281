/**
 * A leader's orchestration over a real replica, with nodes that behave like agents: each advances its tasks to the desired
 * state, and stops those that should no longer run. Time stands still until the test advances it.
 */
import { startOrchestration, type Orchestration } from "../../actors/orchestration/orchestration.ts";
import {
  Annotations,
  EngineDescription,
  GenericRuntimeSpec,
  Any,
  Node,
  NodeDescription,
  NodeSpec,
  NodeSpec_Availability,
  ContainerStatus,
  NodeStatus,
  NodeStatus_State,
  Operation,
  PluginDescription,
  ProposeRequest_Mode,
  ReplicatedService,
  Resources,
  Service,
  ServiceSpec,
  TaskPatch,
  TaskSpec,
  TaskState,
  TaskStatus,
  Version,
  type Task,
  Kind,
  Removal,
  StoreObject,
} from "../../proto/gen/messages.ts";
import { updatedService } from "../../machines/orchestration/service-update.ts";
import { timestampOf } from "../../proto/time.ts";
import { recordOf } from "../../machines/orchestration/rollout/status.ts";
import { settle } from "../../runtime/sim/clock.ts";
import { testManager, type TestManager } from "./manager.ts";
import { stateNames } from "../../machines/task.ts";

export interface TestCluster extends TestManager {
  orchestration: Orchestration;
  /** Nodes that advance their tasks. Any other node does and reports nothing. */
  readonly alive: Set<string>;
  /** The state that a task reports instead of RUNNING; undefined: RUNNING. */
  outcome: (task: Task) => TaskState | undefined;
  /** Whether a task that reports FAILED was rejected by its driver, so that nothing of it ran; by default none was. */
  isRefused: (task: Task) => boolean;
  /** While it returns false, the node does not stop a task whose desired state is SHUTDOWN or later. */
  stops: (task: Task) => boolean;
  /** Runs everything that comes due within `ms`, including promises. */
  run(ms?: number): Promise<void>;
  propose(...operations: Operation[]): Promise<void>;
  tasks(serviceId?: string): readonly Task[];
  /** Wanted tasks by slot: `1:RUNNING@n1`. */
  picture(serviceId?: string): readonly string[];
  addService(id: string, replicas: number, fields?: Partial<TaskSpec>, more?: Partial<ServiceSpec>): Promise<void>;
  /** As UpdateService does: the spec's version is that of the service that it replaces. */
  updateService(id: string, change: (spec: ServiceSpec) => ServiceSpec): Promise<void>;
  removeService(id: string): Promise<void>;
  addNode(id: string, fields?: Partial<Node>): Promise<void>;
  changeNode(id: string, fields: Partial<Node>): Promise<void>;
  /** The node no longer answers, and is marked DOWN. */
  killNode(id: string): Promise<void>;
  report(task: Task, state: TaskState): Promise<void>;
  /** Another leader takes over with only the store. */
  changeLeader(): void;
}

const runMs = 50;
/** Maximum callbacks within one `run`: far more than any finite one takes, and some seconds of real time. */
const stepsMax = 200_000;
export function execSpec(fields: Partial<TaskSpec> = {}): TaskSpec {
  return TaskSpec.create({
    generic: GenericRuntimeSpec.create({
      kind: "exec",
      payload: Any.create({ type_url: "type", value: new Uint8Array([1]) }),
    }),
    ...fields,
  });
}

export function testNode(id: string, fields: Partial<Node> = {}): Node {
  return Node.create({
    id,
    spec: NodeSpec.create({ annotations: Annotations.create({}), availability: NodeSpec_Availability.ACTIVE }),
    description: NodeDescription.create({
      hostname: `host-${id}`,
      resources: Resources.create({ nanoCpus: 4e9, memoryBytes: 8e9 }),
      engine: EngineDescription.create({ plugins: [PluginDescription.create({ type: "Driver", name: "exec" })] }),
    }),
    status: NodeStatus.create({ state: NodeStatus_State.READY }),
    ...fields,
  });
}

export async function testCluster(nodes: readonly string[]): Promise<TestCluster> {
  const manager = testManager();
  const { env, clock, store } = manager;
  const pending = new Set<string>();
  const cluster = Object.assign(manager, {
    orchestration: startOrchestration(env),
    alive: new Set(nodes),
    outcome: (): TaskState | undefined => undefined,
    isRefused: () => false,
    stops: () => true,

    async run(ms = runMs) {
      const end = await clock.run({ untilMs: clock.now() + ms, maxSteps: stepsMax });
      if (end === "steps") throw new Error(`${stepsMax} steps within ${ms} ms: the orchestration loops`);
      await settle();
    },
    async propose(...operations: Operation[]) {
      await env.proposer.propose({ operations, mode: ProposeRequest_Mode.EACH, timeoutMs: 1_000 });
      await cluster.run();
    },
    tasks: (serviceId = "web") => [...store.tasksByService(serviceId)],
    picture: (serviceId = "web") =>
      cluster
        .tasks(serviceId)
        .filter((task) => task.desiredState <= TaskState.RUNNING)
        .map((task) => `${task.slot}:${stateNames.get(task.status?.state ?? 0)}@${task.nodeId}`)
        .sort(),
    async addService(id: string, replicas: number, fields: Partial<TaskSpec> = {}, more: Partial<ServiceSpec> = {}) {
      const spec = ServiceSpec.create({
        annotations: Annotations.create({ name: id }),
        task: execSpec(fields),
        replicated: ReplicatedService.create({ replicas }),
        ...more,
      });
      const service = Service.create({ id, spec, specVersion: Version.create({}) });
      await cluster.propose(Operation.create({ create: StoreObject.create({ service }) }));
    },
    async updateService(id: string, change: (spec: ServiceSpec) => ServiceSpec) {
      const stored = store.get("service", id) as Service;
      const spec = change(stored.spec as ServiceSpec);
      const record = recordOf(stored, store.get("rollout", id));
      const version = stored.meta?.version ?? Version.create();
      const service = updatedService(stored, spec, version, clock.now(), record);
      await cluster.propose(Operation.create({ update: StoreObject.create({ service }) }));
    },
    async removeService(id: string) {
      await cluster.propose(Operation.create({ remove: Removal.create({ kind: Kind.KIND_SERVICE, id }) }));
    },
    async addNode(id: string, fields: Partial<Node> = {}) {
      manager.seed("node", testNode(id, fields));
      cluster.alive.add(id);
      await cluster.run();
    },
    async changeNode(id: string, fields: Partial<Node>) {
      manager.seed("node", Node.patch(store.get("node", id) as Node, fields));
      await cluster.run();
    },
    async killNode(id: string) {
      cluster.alive.delete(id);
      await cluster.changeNode(id, { status: NodeStatus.create({ state: NodeStatus_State.DOWN }) });
    },
    async report(task: Task, state: TaskState) {
      await cluster.propose(reportOf(task, state));
    },
    changeLeader() {
      cluster.orchestration.stop();
      cluster.orchestration = startOrchestration(env);
    },
  }) as TestCluster;

  function reportOf(task: Task, state: TaskState): Operation {
    const time = timestampOf(clock.now());
    const hasFailed = state === TaskState.FAILED && !cluster.isRefused(task);
    const container = hasFailed ? ContainerStatus.create({ exitCode: 1 }) : null;
    const status = TaskStatus.create({ state, message: "reported", timestamp: time, appliedAt: time, container });
    return Operation.create({ task: TaskPatch.create({ id: task.id, status }), reporter: task.nodeId });
  }

  /** The task's next report from its node; null: none. */
  function next(task: Task): TaskState | null {
    const state = task.status?.state ?? TaskState.NEW;
    if (!cluster.alive.has(task.nodeId) || state < TaskState.ASSIGNED || state > TaskState.RUNNING) return null;
    if (task.desiredState >= TaskState.SHUTDOWN) return cluster.stops(task) ? TaskState.SHUTDOWN : null;
    const wanted = task.desiredState === TaskState.READY ? TaskState.READY : TaskState.RUNNING;
    if (state >= wanted) return null;
    const reached = wanted === TaskState.RUNNING ? (cluster.outcome(task) ?? wanted) : wanted;
    return reached === state ? null : reached;
  }

  store.watch(({ changes }) => {
    for (const change of changes) {
      if (change.table !== "task" || change.action === "remove" || pending.has(change.object.id)) continue;
      const { id } = change.object;
      pending.add(id);
      clock.setTimeout(() => {
        pending.delete(id);
        const task = store.get("task", id);
        const state = task === undefined ? null : next(task);
        if (task === undefined || state === null) return;
        void env.proposer.propose({
          operations: [reportOf(task, state)],
          mode: ProposeRequest_Mode.EACH,
          timeoutMs: 1_000,
        });
      }, 1);
    }
  });
  for (const id of nodes) manager.seed("node", testNode(id));
  await cluster.run();
  return cluster;
}
