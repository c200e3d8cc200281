/** Nodes and tasks as the scheduler sees them. */
import {
  Annotations,
  ContainerSpec,
  EngineDescription,
  Node,
  NodeDescription,
  NodeSpec,
  NodeStatus,
  NodeStatus_State,
  Platform,
  PluginDescription,
  Resources,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  Version,
  type GenericResource,
  type NodeRole,
  type NodeSpec_Availability,
} from "../../proto/gen/messages.ts";

interface NodeTraits {
  readonly state?: NodeStatus_State;
  readonly availability?: NodeSpec_Availability;
  readonly addr?: string;
  readonly role?: NodeRole;
  readonly labels?: Readonly<Record<string, string>>;
  readonly engineLabels?: Readonly<Record<string, string>>;
  /** `Type/name` */
  readonly plugins?: readonly string[];
  readonly cpus?: number;
  readonly memoryBytes?: number;
  readonly generic?: readonly GenericResource[];
  readonly platform?: readonly [architecture: string, os: string];
}

/** READY, with 4 CPUs, 4 GiB and an engine's plugins. */
export function readyNode(id: string, traits: NodeTraits = {}): Node {
  const {
    labels = {},
    engineLabels = {},
    plugins = ["Network/overlay", "Volume/local", "Log/json-file"],
    generic = [],
  } = traits;
  const [architecture, os] = traits.platform ?? ["x86_64", "linux"];
  return Node.create({
    id,
    spec: NodeSpec.create({
      annotations: Annotations.create({ labels }),
      ...(traits.availability === undefined ? {} : { availability: traits.availability }),
    }),
    status: NodeStatus.create({ state: traits.state ?? NodeStatus_State.READY, addr: traits.addr ?? "10.0.0.1" }),
    ...(traits.role === undefined ? {} : { role: traits.role }),
    description: NodeDescription.create({
      hostname: `host-${id}`,
      platform: Platform.create({ architecture, os }),
      resources: Resources.create({
        nanoCpus: (traits.cpus ?? 4) * 1e9,
        memoryBytes: traits.memoryBytes ?? 4 * 2 ** 30,
        generic,
      }),
      engine: EngineDescription.create({
        labels: engineLabels,
        plugins: plugins.map((plugin) => {
          const [type = "", name = ""] = plugin.split("/");
          return PluginDescription.create({ type, name });
        }),
      }),
    }),
  });
}

export const containerSpec = (fields: Partial<TaskSpec> = {}): TaskSpec =>
  TaskSpec.create({ container: ContainerSpec.create({ image: "nginx" }), ...fields });

/** PENDING, desired state RUNNING, version 1 of service `web`. */
export function pendingTask(id: string, fields: Partial<Task> = {}): Task {
  return Task.create({
    id,
    serviceId: "web",
    slot: 1,
    spec: containerSpec(),
    specVersion: Version.create({ index: 1 }),
    status: TaskStatus.create({ state: TaskState.PENDING, message: "pending task scheduling" }),
    desiredState: TaskState.RUNNING,
    ...fields,
  });
}

export function pendingTasks(count: number, fields: Partial<Task> = {}, prefix = "t"): readonly Task[] {
  return Array.from({ length: count }, (_, at) =>
    pendingTask(`${prefix}${String(at).padStart(3, "0")}`, { slot: at + 1, ...fields }),
  );
}

export const inState = (task: Task, state: TaskState, fields: Partial<Task> = {}): Task =>
  Task.patch(task, { status: TaskStatus.create({ state }), ...fields });
