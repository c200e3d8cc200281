// `why SERVICE` gives the reasons of its tasks: their own errors, their states, and how many have each.
import test from "ava";
import { stampedTimes } from "../../machines/elapsed.ts";
import { explainService, type ExplainView } from "../../machines/explain/explain.ts";
import {
  Reason,
  ReplicatedService,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";

const unplaceable = "no suitable node (insufficient resources on 2 nodes)";
const restart = RestartPolicy.create({ condition: RestartPolicy_RestartCondition.NONE });

function task(slot: number, state: TaskState, err: string): Task {
  const isOver = state > TaskState.RUNNING;
  return Task.create({
    id: `t${slot}`,
    serviceId: "web",
    slot,
    desiredState: isOver ? TaskState.SHUTDOWN : TaskState.RUNNING,
    spec: TaskSpec.create({ restart }),
    status: TaskStatus.create({ state, err }),
  });
}

function why(tasks: readonly Task[]): readonly Reason[] {
  const service = Service.create({
    id: "web",
    spec: ServiceSpec.create({ replicated: ReplicatedService.create({ replicas: tasks.length }) }),
  });
  const view: ExplainView = {
    nowMs: 0,
    times: stampedTimes,
    service: () => service,
    node: () => undefined,
    nodeName: (id) => id,
    nodes: () => [],
    slot: (_, slot) => tasks.filter((each) => each.slot === slot),
    tasks: () => tasks,
    schedule: () => null,
    placement: ({ status }) => [Reason.create({ waitingFor: "a node that takes it", tried: [status?.err ?? ""] })],
    rollout: () => null,
  };
  return explainService(service, view);
}

test("waiting tasks are grouped by their error, with their states", (t) => {
  const [head, ...reasons] = why([
    task(1, TaskState.PENDING, unplaceable),
    task(2, TaskState.PENDING, unplaceable),
    task(3, TaskState.NEW, "no address is left in network back"),
  ]);
  t.is(head?.waitingFor, "tasks: 0 of 3 run");
  t.deepEqual(
    reasons.map(({ tried, waitingFor }) => [waitingFor, tried.at(-1)]),
    [
      ["a node that takes it (2 tasks PENDING)", unplaceable],
      ["no address is left in network back (1 task NEW)", "no address is left in network back"],
    ],
  );
});

test("permanently failed tasks give their reasons, with their number", (t) => {
  const failed = "task: non-zero exit (1)";
  const [head, ...reasons] = why([
    task(1, TaskState.FAILED, failed),
    task(2, TaskState.REJECTED, failed),
    task(3, TaskState.COMPLETE, ""),
  ]);
  t.is(head?.waitingFor, "tasks: 0 of 3 run, 3 finished");
  t.is(head?.wokenBy, "an update of the service");
  t.is(reasons.length, 1);
  t.regex(reasons[0]?.waitingFor ?? "", /not restarted .* \(2 tasks: 1 REJECTED, 1 FAILED\)$/);
  t.deepEqual(reasons[0]?.tried, [failed]);
});
