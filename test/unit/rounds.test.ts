// The reconcile loop, and the rounds of the allocator and the scheduler, without actors: what is done while a write is under way.
import test from "ava";
import { replicatedMachine } from "../../machines/orchestration/replicated.machine.ts";
import { AllocationRounds } from "../../machines/allocation/rounds.ts";
import { SchedulerRounds } from "../../machines/scheduling/rounds.ts";
import type { LogTimes } from "../../machines/elapsed.ts";
import {
  NetworkAttachmentConfig,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  Timestamp,
  type Node,
} from "../../proto/gen/messages.ts";
import { ChartRun } from "../support/chart-run.ts";
import { pendingTask, readyNode } from "../support/scheduling.ts";

const loop = () => {
  const run = new ChartRun(replicatedMachine, { serviceId: "web" });
  run.send({ type: "round.due" });
  return run;
};

test("a change during a write leads to another round when the write has ended", (t) => {
  const run = loop();
  run.send({ type: "decision.made", verdict: { nextMs: -1 } }, { type: "work.arrived" });
  t.is(run.state, "writing");
  run.send({ type: "decision.written" });
  t.is(run.state, "gathering");
});

test("a round that must be repeated at once waits for its deadline, not for a change", (t) => {
  const run = loop();
  run.send({ type: "round.done", verdict: { nextMs: 0 } });
  t.is(run.state, "waiting");
});

const moment = Timestamp.create({ seconds: 1 });

function allocator(...tasks: Task[]) {
  const stored = new Map(tasks.map((task) => [task.id, task]));
  const rounds = new AllocationRounds(
    {
      network: () => undefined,
      service: () => undefined,
      node: () => undefined,
      task: (id) => stored.get(id),
      networks: () => [],
      services: () => [],
      nodes: () => [],
      tasks: () => stored.values(),
      defaultPools: () => ({ pools: ["10.0.0.0/8"], length: 24 }),
      nodeCount: () => 0,
      complain: () => {},
    },
    10,
  );
  return { rounds, stored };
}

const newTask = (id: string, networks: readonly string[] = []): Task =>
  Task.create({
    id,
    desiredState: TaskState.RUNNING,
    status: TaskStatus.create({ state: TaskState.NEW }),
    spec: TaskSpec.create({ networks: networks.map((target) => NetworkAttachmentConfig.create({ target })) }),
  });

test("an allocation that the ledger refused is made again", (t) => {
  const { rounds } = allocator(newTask("t1"));
  const { operations } = rounds.round(moment);
  t.is(operations[0]?.task?.status?.state, TaskState.PENDING);
  t.is(rounds.round(moment).operations.length, 0, "not while it is being written");
  rounds.written(operations);
  t.true(rounds.takeNews());
  t.is(rounds.round(moment).operations[0]?.task?.id, "t1");
});

test("a task that is deleted while it waits for a network blocks nothing", (t) => {
  const { rounds, stored } = allocator(newTask("t1", ["missing"]));
  t.is(rounds.round(moment).verdict.phase, "blocked");
  const task = stored.get("t1") as Task;
  stored.delete("t1");
  rounds.taskChanged(task, null);
  t.is(rounds.round(moment).verdict.phase, "idle");
});

function scheduler() {
  const task = pendingTask("t1");
  const nodes: Node[] = [readyNode("n1")];
  const rounds = new SchedulerRounds({
    times: {} as LogTimes,
    volumes: () => [],
    nodes: () => nodes,
    tasks: () => [task],
    task: () => task,
  });
  const placed = () => rounds.round(0, 10).assignments;
  return { placed, rounds, task };
}

test("a task with a proposed assignment is not placed again when it changes meanwhile", (t) => {
  const { placed, rounds, task } = scheduler();
  t.is(placed().length, 1);
  rounds.putTask(Task.patch(task, { slot: 2 }), task, 0);
  t.is(placed().length, 0);
  t.deepEqual(rounds.standingOf(task), { kind: "proposed", nodeId: "n1" });
});

test("a refused assignment waits for the retry delay, whatever changes meanwhile", (t) => {
  const { placed, rounds, task } = scheduler();
  const assigned = placed().map(({ tracked }) => tracked);
  t.deepEqual(rounds.settled({ assigned, explained: [], volumes: [] }, false), { taken: 0, returned: 1 });
  rounds.putTask(Task.patch(task, { slot: 2 }), task, 0);
  t.deepEqual([placed().length, rounds.standingOf(task)], [0, { kind: "held" }]);
  t.true(rounds.releaseHeld());
  t.is(placed().length, 1);
});
