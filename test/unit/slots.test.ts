// The size of a decision, where setting up a whole cluster would be too much.
import test from "ava";
import { stampedTimes } from "../../machines/elapsed.ts";
import { TaskDirty } from "../../machines/orchestration/task-dirty.ts";
import {
  creationsMax,
  decideService,
  decideSlots,
  groupBySlot,
  stepsMax,
  type Step,
  type World,
} from "../../machines/orchestration/slots.ts";
import { ReplicatedService, Service, ServiceSpec, Task, TaskState, TaskStatus } from "../../proto/gen/messages.ts";
import { execSpec, testNode } from "../support/cluster.ts";

const spec = execSpec();
const service = Service.create({
  id: "web",
  spec: ServiceSpec.create({ task: spec, replicated: ReplicatedService.create({}) }),
});

function world(): World {
  return {
    nowMs: 0,
    times: stampedTimes,
    taskDirty: new TaskDirty(),
    nodeOf: (id) => (id === "gone" ? undefined : testNode(id)),
  };
}

function task(
  slot: number,
  nodeId = "n1",
  state: TaskState = TaskState.RUNNING,
  desired: TaskState = TaskState.RUNNING,
): Task {
  const id = `${slot}-${nodeId}-${state}`;
  return Task.create({ id, slot, nodeId, spec, desiredState: desired, status: TaskStatus.create({ state }) });
}

function shown(steps: readonly Step[]): readonly string[] {
  return steps.map((step) =>
    step.kind === "create" ? `create ${step.slot} ${step.desired}` : `desire ${step.task.slot} ${step.state}`,
  );
}

const { READY, RUNNING, SHUTDOWN, REMOVE } = TaskState;

test("a decision that would create too much is continued by the next", (t) => {
  const decision = decideService(service, new Map(), creationsMax + 1, world());
  t.is(decision.steps.length, creationsMax);
  t.true(decision.isPartial);
  t.false(decideService(service, new Map(), creationsMax, world()).isPartial);
});

test("a decision is not cut between the end of a task and its successor", (t) => {
  const tasks = Array.from({ length: stepsMax }, (_, at) => task(at + 1, "gone"));
  const decision = decideService(service, groupBySlot(tasks), tasks.length, world());
  t.true(decision.isPartial);
  t.true(decision.steps.length <= stepsMax + 1);
  const last = decision.steps.at(-1);
  t.like(last, { kind: "create" });
});

test("the end of a slot's task comes before its successor", (t) => {
  const { steps } = decideService(service, groupBySlot([task(1, "gone")]), 1, world());
  t.deepEqual(shown(steps), [`desire 1 ${SHUTDOWN}`, `create 1 ${RUNNING}`]);
});

test("a free slot whose earlier task still stops gets a task that waits for that", (t) => {
  const stopping = task(1, "n1", RUNNING, REMOVE);
  t.deepEqual(shown(decideService(service, groupBySlot([stopping]), 1, world()).steps), [`create 1 ${READY}`]);
});

test("a slot that scaling removes is not restarted first", (t) => {
  const tasks = [task(1), task(2, "gone")];
  t.deepEqual(shown(decideService(service, groupBySlot(tasks), 1, world()).steps), [`desire 2 ${REMOVE}`]);
});

test("slots without a settled task are removed first, then the highest copy on the fullest node, then tasks that do not run", (t) => {
  const tasks = [
    task(1, "a"),
    task(2, "a"),
    task(3, "a"),
    task(4, "b"),
    task(5, "b", TaskState.STARTING),
    task(6, "", TaskState.PENDING),
  ];
  const victims = (replicas: number): readonly number[] =>
    decideService(service, groupBySlot(tasks), replicas, world())
      .steps.flatMap((step) => (step.kind === "desire" ? step.task.slot : []))
      .sort((a, b) => a - b);
  t.deepEqual(victims(5), [6]);
  t.deepEqual(victims(4), [3, 6]);
  t.deepEqual(victims(3), [3, 5, 6]);
  t.deepEqual(victims(2), [2, 3, 5, 6]);
  t.deepEqual(victims(0), [1, 2, 3, 4, 5, 6]);
});

test("when a slot has two wanted tasks the one on a healthy node stays, then the one that is further along", (t) => {
  const one = task(1, "n1", TaskState.STARTING);
  const other = task(1, "n2", RUNNING);
  t.deepEqual(
    decideSlots(service, groupBySlot([one, other]), world()).steps.map(
      (step) => step.kind === "desire" && step.task.nodeId,
    ),
    ["n1"],
  );
  const lost = task(1, "gone", RUNNING);
  t.deepEqual(
    decideSlots(service, groupBySlot([one, lost]), world()).steps.map(
      (step) => step.kind === "desire" && step.task.nodeId,
    ),
    ["gone"],
  );
});

test("repeating a decision changes nothing", (t) => {
  const tasks = [task(1), task(2, "n2"), task(3, "n1", TaskState.FAILED, SHUTDOWN), task(3, "n3")];
  t.deepEqual(decideService(service, groupBySlot(tasks), 3, world()), {
    steps: [],
    lookAgainMs: null,
    isPartial: false,
  });
});
