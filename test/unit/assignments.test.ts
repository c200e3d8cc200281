// The messages that tell a node its tasks and their dependencies.
import test from "ava";
import {
  Annotations,
  AssignmentChange_AssignmentAction as Action,
  Config,
  ConfigReference,
  ContainerSpec,
  Driver,
  Secret,
  SecretReference,
  SecretSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  Volume,
  VolumePublishStatus,
  VolumePublishStatus_State as PublishState,
  VolumeSecret,
  VolumeSpec,
  type AssignmentChange,
} from "../../proto/gen/messages.ts";
import { AssignmentSet, concernsNode, type AssignmentSource } from "../../machines/dispatcher/assignment-diff.ts";
import { assignmentsMachine } from "../../machines/dispatcher/assignments.machine.ts";
import { ChartRun } from "../support/chart-run.ts";

function task(
  id: string,
  options: { state?: TaskState; desired?: TaskState; secrets?: string[]; configs?: string[]; nodeId?: string } = {},
): Task {
  const container = ContainerSpec.create({
    image: "alpine:3",
    secrets: (options.secrets ?? []).map((secretId) => SecretReference.create({ secretId })),
    configs: (options.configs ?? []).map((configId) => ConfigReference.create({ configId })),
  });
  return Task.create({
    id,
    nodeId: options.nodeId ?? "n1",
    serviceAnnotations: Annotations.create({ name: "web" }),
    spec: TaskSpec.create({ container }),
    status: TaskStatus.create({ state: options.state ?? TaskState.ASSIGNED }),
    desiredState: options.desired ?? TaskState.RUNNING,
  });
}

function world(...tasks: Task[]) {
  const tables = {
    task: new Map<string, Task>(),
    secret: new Map<string, Secret>(),
    config: new Map<string, Config>(),
    volume: new Map<string, Volume>(),
  };
  for (const each of tasks) tables.task.set(each.id, each);
  for (const id of ["s1", "s2"])
    tables.secret.set(id, Secret.create({ id, spec: SecretSpec.create({ data: new Uint8Array([1]) }) }));
  tables.config.set("c1", Config.create({ id: "c1" }));
  const source: AssignmentSource = {
    task: (id) => tables.task.get(id),
    secret: (id) => tables.secret.get(id),
    config: (id) => tables.config.get(id),
    volume: (id) => tables.volume.get(id),
    tasksOf: (nodeId) => [...tables.task.values()].filter((each) => each.nodeId === nodeId),
    volumes: () => tables.volume.values(),
  };
  const refused: string[] = [];
  const set = new AssignmentSet("n1", source, ({ id }, flaw) => refused.push(`${id}: ${flaw}`));
  return {
    ...tables,
    refused,
    set,
    complete: () => names(set.complete()),
    change: (next: Task) => {
      tables.task.set(next.id, next);
      return names(set.changes([next.id], []));
    },
    remove: (id: string) => {
      tables.task.delete(id);
      return names(set.changes([id], []));
    },
  };
}

/** `+task t1` for an update, `-secret s1` for a removal. */
function names(changes: readonly AssignmentChange[]): string[] {
  return changes.map(({ assignment, action }) => {
    const [kind, object] = Object.entries({ ...assignment }).find(([, value]) => value !== null) as [
      string,
      { id: string },
    ];
    return `${action === Action.REMOVE ? "-" : "+"}${kind} ${object.id}`;
  });
}

function status(of: Task, state: TaskState): Task {
  return Task.patch(of, { status: TaskStatus.create({ state }) });
}

test("the complete set has all tasks of the node from ASSIGNED on, including finished ones, each once", (t) => {
  const { complete } = world(
    task("new", { state: TaskState.NEW }),
    task("pending", { state: TaskState.PENDING }),
    task("assigned"),
    task("running", { state: TaskState.RUNNING }),
    task("failed", { state: TaskState.FAILED }),
    task("elsewhere", { nodeId: "n2" }),
  );
  t.deepEqual(complete(), ["+task assigned", "+task running", "+task failed"]);
});

test("a task is sent with its stored status, because a restarted node resumes from it", (t) => {
  const { set } = world(task("t1", { state: TaskState.RUNNING }));
  t.is(set.complete()[0]?.assignment?.task?.status?.state, TaskState.RUNNING);
});

test("a status that the node itself reported is not sent back to it; a new desired state is", (t) => {
  const first = task("t1");
  const { complete, change } = world(first);
  complete();
  const running = status(first, TaskState.RUNNING);
  t.deepEqual(change(running), []);
  t.deepEqual(change(Task.patch(running, { desiredState: TaskState.REMOVE })), ["+task t1"]);
  t.deepEqual(
    change(
      Task.decode(Task.encode(status(Task.patch(running, { desiredState: TaskState.REMOVE }), TaskState.SHUTDOWN))),
    ),
    [],
  );
});

test("any change of a task that is still ASSIGNED is sent", (t) => {
  const first = task("t1");
  const { complete, change } = world(first);
  complete();
  t.deepEqual(change(status(first, TaskState.ASSIGNED)), ["+task t1"]);
});

test("a task is removed from the node only when it has left the store, by its id alone", (t) => {
  const first = task("t1", { state: TaskState.RUNNING });
  const { complete, change, remove, set } = world(first);
  complete();
  t.deepEqual(change(status(first, TaskState.SHUTDOWN)), []);
  t.deepEqual(remove("t1"), ["-task t1"]);
  t.deepEqual(remove("t1"), [], "and once");
  t.deepEqual(names(set.changes(["never-seen"], [])), []);
});

test("a secret comes with its first user and is removed after its last", (t) => {
  const a = task("a", { secrets: ["s1"], configs: ["c1"] });
  const b = task("b", { secrets: ["s1", "s2"] });
  const { complete, change, remove } = world(a);
  t.deepEqual(complete(), ["+secret s1", "+config c1", "+task a"]);
  t.deepEqual(change(b), ["+secret s2", "+task b"]);
  t.deepEqual(change(status(a, TaskState.SHUTDOWN)), ["-config c1"], "past RUNNING it needs nothing any more");
  t.deepEqual(remove("a"), ["-task a"]);
  t.deepEqual(remove("b"), ["-task b", "-secret s1", "-secret s2"]);
});

test("a finished task brings no secrets", (t) => {
  const { complete } = world(task("t1", { state: TaskState.FAILED, secrets: ["s1"] }));
  t.deepEqual(complete(), ["+task t1"]);
});

test("a secret that one task releases and another acquires in one batch stays", (t) => {
  const a = task("a", { secrets: ["s1"] });
  const { complete, set, task: tasks } = world(a);
  complete();
  tasks.delete("a");
  tasks.set("b", task("b", { secrets: ["s1"] }));
  t.deepEqual(names(set.changes(["a", "b"], [])), ["+secret s1", "-task a", "+task b"]);
});

test("a missing secret, and one whose value only a driver has, are omitted; the task is still sent", (t) => {
  const tables = world(task("t1", { secrets: ["gone", "driven"] }));
  tables.secret.set(
    "driven",
    Secret.create({ id: "driven", spec: SecretSpec.create({ driver: Driver.create({ name: "vault" }) }) }),
  );
  t.deepEqual(tables.complete(), ["+task t1"]);
  t.deepEqual(tables.remove("t1"), ["-task t1"]);
});

test("a task that would crash the engine is rejected once and never sent", (t) => {
  const poison = Task.patch(task("bad"), { serviceAnnotations: null });
  const { complete, change, remove, refused } = world(poison, task("good"));
  t.deepEqual(complete(), ["+task good"]);
  t.deepEqual(change(status(poison, TaskState.REJECTED)), []);
  t.deepEqual(remove("bad"), []);
  t.deepEqual(refused, ["bad: neither the service nor the task has a name"]);
});

test("a volume is sent when it is published for the node, and removed before the controller unpublishes it", (t) => {
  const { set, volume: volumes } = world();
  const spec = VolumeSpec.create({
    driver: Driver.create({ name: "csi" }),
    secrets: [VolumeSecret.create({ key: "k", secret: "s1" })],
  });
  const publish = (state: PublishState): string[] => {
    volumes.set(
      "v1",
      Volume.create({ id: "v1", spec, publishStatus: [VolumePublishStatus.create({ nodeId: "n1", state })] }),
    );
    return names(set.changes([], ["v1"]));
  };
  t.deepEqual(publish(PublishState.PENDING_PUBLISH), []);
  t.deepEqual(publish(PublishState.PUBLISHED), ["+secret s1", "+volume v1"]);
  t.deepEqual(publish(PublishState.PENDING_NODE_UNPUBLISH), ["-volume v1"]);
  t.deepEqual(publish(PublishState.PENDING_UNPUBLISH), ["-secret s1"]);
});

test("the router's quick check passes what may concern a stream, and drops the flood of reports", (t) => {
  const assigned = task("t1");
  const accepted = status(assigned, TaskState.ACCEPTED);
  const running = status(assigned, TaskState.RUNNING);
  t.true(concernsNode(null, assigned));
  t.true(concernsNode(task("t1", { state: TaskState.PENDING }), assigned));
  t.false(concernsNode(null, task("t1", { state: TaskState.PENDING })));
  t.false(concernsNode(assigned, accepted));
  t.false(concernsNode(accepted, running));
  t.true(concernsNode(running, status(running, TaskState.FAILED)), "its secrets may be removed");
  t.true(concernsNode(running, Task.patch(running, { desiredState: TaskState.SHUTDOWN })));
});

test("messages are chained without a gap, and nothing is written to a node that does not read", (t) => {
  const stream = new ChartRun(assignmentsMachine, { nodeId: "n1", sessionId: "s1", method: "Assignments" });
  stream.send({ type: "changes.noted" });
  t.deepEqual(stream.names, [], "nothing before the complete set");
  stream.send({ type: "snapshot.taken", changes: [] }, { type: "changes.noted" });
  stream.send({ type: "changes.collected", changes: [] }, { type: "changes.collected", changes: [] });
  const written = stream.all().filter(({ type }) => type.startsWith("write"));
  t.deepEqual(
    written.map(({ type, params }) => [type, { ...(params as object), changes: undefined }]),
    [
      ["writeComplete", { appliesTo: "", resultsIn: "1", changes: undefined }],
      ["writeIncrement", { appliesTo: "1", resultsIn: "2", changes: undefined }],
      ["writeIncrement", { appliesTo: "2", resultsIn: "3", changes: undefined }],
    ],
  );
  const collected = () => stream.all().filter(({ type }) => type === "collectChanges").length;
  stream.send({ type: "peer.stalled" }, { type: "changes.noted" });
  t.is(collected(), 1);
  stream.send("stallCheck");
  t.is(collected(), 2);
  t.is(stream.state, "streaming:flowing");
});
