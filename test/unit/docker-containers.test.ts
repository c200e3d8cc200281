// Containers of Docker's Engine API: their number, which is kept until something changes.
import test from "ava";
import { containerCounts } from "../../edges/docker/objects/containers.ts";
import { Task, TaskSpec, TaskState, TaskStatus } from "../../proto/gen/messages.ts";
import { testManager } from "../support/manager.ts";

const task = (id: string, state: TaskState): Task =>
  Task.create({ id, spec: TaskSpec.create({}), status: TaskStatus.create({ state }) });

test("containers are counted anew after each change, and for each store", (t) => {
  const { seed, store } = testManager();
  seed("task", task("a", TaskState.RUNNING), task("b", TaskState.PENDING));
  t.deepEqual(containerCounts(store), { all: 1, running: 1 });
  t.is(containerCounts(store), containerCounts(store));
  seed("task", task("b", TaskState.RUNNING));
  t.deepEqual(containerCounts(store), { all: 2, running: 2 });
  seed("task", task("a", TaskState.COMPLETE));
  t.deepEqual(containerCounts(store), { all: 2, running: 1 });
  t.deepEqual(containerCounts(testManager().store), { all: 0, running: 0 });
});
