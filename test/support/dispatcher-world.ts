/** A dispatcher over a real replica, and nodes that register with it, send heartbeats, and report. */
import type { ExecutionContext } from "ava";
import { createDispatcher, type DispatcherOptions } from "../../actors/dispatcher/dispatcher.ts";
import {
  Annotations,
  Cluster,
  ClusterSpec,
  ContainerSpec,
  DispatcherConfig,
  Duration,
  HeartbeatRequest,
  Node,
  NodeDescription,
  NodeSpec,
  RootCA,
  type SessionMessage,
  SessionRequest,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  UpdateTaskStatusRequest,
  UpdateTaskStatusRequest_TaskStatusUpdate as TaskStatusUpdate,
} from "../../proto/gen/messages.ts";
import type { Bus, BusMessage } from "../../runtime/ports/index.ts";
import type { CallContext } from "../../runtime/ports/rpc.ts";
import { call, collectedStream, testManager } from "../support/manager.ts";

export const addr = "192.0.2.1:2377";

/** A bus within one process: publishes reach its subscribers at once. */
function loopBus(): Bus & { readonly published: string[] } {
  const handlers = new Map<string, (message: BusMessage) => void>();
  const published: string[] = [];
  return {
    published,
    publish: (subject, data) => {
      published.push(subject);
      handlers.get(subject)?.({ subject, data, headers: {}, respond: () => undefined });
    },
    subscribe: (subject, handler) => {
      handlers.set(subject, handler);
      return { unsubscribe: () => handlers.delete(subject) };
    },
    request: () => Promise.resolve({ kind: "no-responders" }),
    isUp: () => true,
    onLink: () => ({ unsubscribe: () => undefined }),
  };
}

export function setUp(
  t: ExecutionContext,
  options: Partial<DispatcherOptions> & { nodes?: string[]; heartbeatPeriodS?: number } = {},
) {
  const manager = testManager("m1");
  const bus = loopBus();
  const { clock, seed, store } = manager;
  for (const id of options.nodes ?? ["n1", "n2"]) seed("node", Node.create({ id, spec: NodeSpec.create() }));
  const period = Duration.create({ seconds: options.heartbeatPeriodS ?? 5 });
  const spec = ClusterSpec.create({ dispatcher: DispatcherConfig.create({ heartbeatPeriod: period }) });
  seed("cluster", Cluster.create({ id: "c", spec, rootCa: RootCA.create({ caCert: new Uint8Array([1, 2, 3]) }) }));
  const nodesWaitMs = (): number => 0;
  const start = () => createDispatcher({ ...manager.env, bus }, { addr, settled: () => true, nodesWaitMs, ...options });
  const dispatcher = start();
  t.teardown(() => dispatcher.stop());
  const run = (ms: number): Promise<unknown> => clock.run({ untilMs: clock.now() + ms });
  return {
    ...manager,
    manager,
    bus,
    dispatcher,
    start,
    run,
    seed,
    store,
    stateOf: (id: string) => store.get("node", id)?.status?.state,
  };
}
type World = ReturnType<typeof setUp>;

export function from(nodeId: string, signal?: AbortSignal, address = "198.51.100.7"): CallContext {
  return call({ identity: { nodeId, role: "swarm-worker", organization: "c" }, local: false, address }, signal);
}

/** Opens a session stream as `nodeId`'s agent does. */
export function open(
  world: World,
  nodeId: string,
  sessionId = "",
  description: NodeDescription | null = NodeDescription.create({ hostname: nodeId }),
  dispatcher = world.dispatcher,
) {
  const stream = collectedStream<SessionMessage>();
  const abort = new AbortController();
  dispatcher.handlers.Session(SessionRequest.create({ description, sessionId }), stream, from(nodeId, abort.signal));
  return { stream, breakOff: () => abort.abort(), id: () => stream.messages.at(-1)?.sessionId ?? "" };
}

export async function join(world: World, nodeId: string) {
  const session = open(world, nodeId);
  await world.run(20);
  return { ...session, sessionId: session.id() };
}

export async function beat(world: World, nodeId: string, sessionId: string): Promise<number> {
  const { period } = await world.dispatcher.handlers.Heartbeat(HeartbeatRequest.create({ sessionId }), from(nodeId));
  return (period?.seconds ?? 0) * 1_000 + (period?.nanos ?? 0) / 1e6;
}

/** All given nodes send a heartbeat every 4 s for that long. */
export async function live(world: World, ms: number, ...nodes: { nodeId: string; sessionId: string }[]): Promise<void> {
  for (let left = ms; left > 0; left -= 4_000) {
    for (const { nodeId, sessionId } of nodes) await beat(world, nodeId, sessionId);
    await world.run(Math.min(4_000, left));
  }
}

export function task(id: string, nodeId: string, state: TaskState = TaskState.ASSIGNED): Task {
  return Task.create({
    id,
    nodeId,
    serviceAnnotations: Annotations.create({ name: "web" }),
    spec: TaskSpec.create({ container: ContainerSpec.create({ image: "alpine:3" }) }),
    status: TaskStatus.create({ state }),
    desiredState: TaskState.RUNNING,
  });
}

export function report(sessionId: string, ...updates: [string, TaskState | null][]): UpdateTaskStatusRequest {
  return UpdateTaskStatusRequest.create({
    sessionId,
    updates: updates.map(([taskId, state]) =>
      TaskStatusUpdate.create({ taskId, status: state === null ? null : TaskStatus.create({ state }) }),
    ),
  });
}
