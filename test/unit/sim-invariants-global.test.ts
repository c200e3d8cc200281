// The invariants of global services and enforcers report violations.
import test from "ava";
import { evictionStatus } from "../../machines/orchestration/enforcer.machine.ts";
import { timestampOf } from "../../proto/time.ts";
import {
  Annotations,
  GlobalService,
  NodeSpec,
  NodeSpec_Availability,
  Placement,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import type { Commit, ObjectChange } from "../../runtime/store/store.ts";
import { checkEvictions, checkNodes, findMisplaced } from "../../simulation/invariants/global.ts";
import { testNode } from "../support/cluster.ts";
import { testManager } from "../support/manager.ts";

const service = Service.create({
  id: "s",
  spec: ServiceSpec.create({
    task: TaskSpec.create({ placement: Placement.create({ constraints: ["node.labels.zone==a"] }) }),
    global: GlobalService.create({}),
  }),
});

function zoned(id: string, zone: string, availability: NodeSpec_Availability = NodeSpec_Availability.ACTIVE) {
  const annotations = Annotations.create({ labels: { zone } });
  return testNode(id, { spec: NodeSpec.create({ annotations, availability }) });
}

function task(id: string, nodeId = "n", desiredState: TaskState = TaskState.RUNNING): Task {
  const status = TaskStatus.create({ state: TaskState.RUNNING });
  return Task.create({ id, serviceId: "s", nodeId, desiredState, status });
}

function commit(object: Task, old: Task | null = null): Commit {
  const change: ObjectChange = { table: "task", action: old === null ? "create" : "update", object, old };
  return { version: 1, time: 0, changes: [change], causes: [] };
}

test("S7: two tasks of a global service on one node are wrong, on two nodes they are not", (t) => {
  const { seed, store } = testManager();
  const [one, two, far] = [task("t1"), task("t2"), task("t3", "m")];
  seed("service", service);
  seed("task", one, two, far);
  t.regex(checkNodes(commit(two), store) ?? "", /^S7: node n has t1 and t2 of s/);
  t.is(checkNodes(commit(far), store), null);
});

test("S8: an eviction from a node that meets the placement is wrong", (t) => {
  const { seed, store } = testManager();
  seed("service", service);
  const gone = Task.patch(task("t1"), { status: evictionStatus("node", timestampOf(0)) });
  seed("node", zoned("n", "a"));
  t.regex(checkEvictions(commit(gone, task("t1")), store) ?? "", /^S8: task t1/);
  t.is(checkEvictions(commit(gone, gone), store), null, "it had happened before");
  seed("node", zoned("n", "b"));
  t.is(checkEvictions(commit(gone, task("t1")), store), null);
});

test("S9: at rest an open node has one task, a paused one at most one, and any other none", (t) => {
  const { seed, store } = testManager();
  seed("node", zoned("n", "a"));
  t.regex(findMisplaced(service, store) ?? "", /^S9: .* has 0 tasks on node n, which is open/);
  seed("task", task("t1"));
  t.is(findMisplaced(service, store), null);
  seed("task", task("t2"));
  t.regex(findMisplaced(service, store) ?? "", /has 2 tasks/);
  seed("task", task("t2", "n", TaskState.SHUTDOWN));
  seed("node", zoned("n", "a", NodeSpec_Availability.PAUSE));
  t.is(findMisplaced(service, store), null);
  seed("node", zoned("n", "b"));
  t.regex(findMisplaced(service, store) ?? "", /has 1 tasks on node n, which is closed/);
});
