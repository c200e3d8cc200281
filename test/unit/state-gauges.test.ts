// /metrics about the cluster itself: nodes and tasks by state, objects by kind.
import test from "ava";
import { startStateGauges } from "../../actors/manager/state-gauges.ts";
import {
  Change,
  Kind,
  NodePatch,
  NodeStatus,
  NodeStatus_State,
  Removal,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { createMetrics } from "../../runtime/telemetry/metrics.ts";
import { node, patch, put, replicaOf, service, status, task, Writer } from "./store-kit.ts";

function nodeIn(id: string, state: NodeStatus_State): Change {
  return Change.create({ node: NodePatch.create({ id, status: NodeStatus.create({ state }) }) });
}

function removed(kind: Kind, id: string): Change {
  return Change.create({ remove: Removal.create({ kind, id }) });
}

test("nodes and tasks are counted by state through all changes, and objects by kind", async (t) => {
  const metrics = createMetrics();
  const writer = new Writer();
  writer.write([put({ node: node("n1") }), put({ node: node("n2") }), put({ node: node("n3") })]);
  writer.write([
    put({ service: service("s1", "web", 1) }),
    ...["t1", "t2", "t3"].map((id) => put({ task: task(id, { status: status(TaskState.RUNNING) }) })),
  ]);
  const replica = replicaOf(writer);
  let sessions = [{ state: "serving.connected" }, { state: "suspect" }, { state: "suspect" }];
  const gauges = startStateGauges(replica, () => sessions, metrics);
  const told = async (name: string): Promise<Readonly<Record<string, number>>> => {
    const { text } = await metrics.expose();
    const lines = text.matchAll(new RegExp(`^${name}\\{\\w+="([\\w.]+)"\\} (\\d+)$`, "gm"));
    return Object.fromEntries([...lines].map(([, label = "", count]) => [label, Number(count)]));
  };
  t.deepEqual(await told("muster_nodes"), { unknown: 0, down: 0, ready: 3, disconnected: 0 });
  t.like(await told("muster_tasks"), { new: 0, running: 3, failed: 0, orphaned: 0 });
  t.like(await told("muster_objects"), { node: 3, service: 1, task: 3, secret: 0 });
  t.deepEqual(await told("muster_session_states"), { "serving.connected": 1, suspect: 2 });

  sessions = [{ state: "serving.connected" }];
  const written = writer.records.length;
  writer.write([nodeIn("n1", NodeStatus_State.DOWN), nodeIn("n2", NodeStatus_State.DISCONNECTED)]);
  writer.write([
    patch({ id: "t1", status: TaskStatus.create({ state: TaskState.FAILED }) }),
    patch({ id: "t2", nodeId: "n3" }),
    put({ task: task("t4", { status: null }) }),
    removed(Kind.KIND_TASK, "t3"),
    removed(Kind.KIND_NODE, "n3"),
  ]);
  for (const [at, record] of writer.records.entries()) if (at >= written) replica.apply(at + 1, record);
  t.deepEqual(await told("muster_nodes"), { unknown: 0, down: 1, ready: 0, disconnected: 1 });
  t.like(await told("muster_tasks"), { new: 1, running: 1, failed: 1 });
  t.like(await told("muster_objects"), { node: 2, service: 1, task: 3 });
  t.deepEqual(await told("muster_session_states"), { "serving.connected": 1, suspect: 0 });

  // A manager that was behind loads a snapshot: still correct.
  writer.write([nodeIn("n1", NodeStatus_State.READY), removed(Kind.KIND_TASK, "t1")]);
  replica.load(replicaOf(writer).snapshot());
  t.deepEqual(await told("muster_nodes"), { unknown: 0, down: 0, ready: 1, disconnected: 1 });
  t.like(await told("muster_tasks"), { new: 1, running: 1, failed: 0 });

  gauges.stop();
  writer.write([removed(Kind.KIND_TASK, "t2")]);
  replica.apply(writer.records.length, writer.records.at(-1) as Uint8Array);
  t.like(await told("muster_tasks"), { running: 1 });
});

test("an empty cluster has every state at 0, so that an alert finds a number", async (t) => {
  const metrics = createMetrics();
  startStateGauges(new Replica(), () => [], metrics);
  const { text } = await metrics.expose();
  t.regex(text, /^muster_nodes\{state="down"\} 0$/m);
  t.regex(text, /^muster_tasks\{state="failed"\} 0$/m);
  t.regex(text, /^muster_objects\{kind="service"\} 0$/m);
});
