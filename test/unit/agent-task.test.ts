// The task chart alone: the states passed, the reports, and the effect of a stop or a removal at each point.
import test from "ava";
import { type SnapshotFrom } from "xstate";
import { planAssignments } from "../../machines/agent/assignments.ts";
import {
  agentTaskMachine,
  isNews,
  reportOfExit,
  type AgentTaskEvent,
  type AgentTaskInput,
  type TaskReport,
} from "../../machines/agent/task.machine.ts";
import {
  Assignment,
  AssignmentChange,
  AssignmentChange_AssignmentAction as Action,
  AssignmentsMessage,
  AssignmentsMessage_Type as Kind,
  Config,
  Secret,
  Task,
  TaskState,
} from "../../proto/gen/messages.ts";
import { ChartRun } from "../support/chart-run.ts";

interface Outcome {
  readonly state: SnapshotFrom<typeof agentTaskMachine>;
  readonly reports: readonly TaskReport[];
  readonly acts: readonly string[];
}

function life(input: Partial<AgentTaskInput>, ...events: readonly AgentTaskEvent[]): Outcome {
  const run = new ChartRun(agentTaskMachine, {
    taskId: "t1",
    before: TaskState.ASSIGNED,
    desired: TaskState.RUNNING,
    isChecked: false,
    flaw: "",
    ...input,
  }).send(...events);
  const { reports = [], acts = [] } = Object.groupBy(run.all(), ({ type }) => (type === "report" ? "reports" : "acts"));
  return {
    state: run.snapshot,
    reports: reports.map(({ params }) => params as TaskReport),
    acts: acts.map(({ type }) => type),
  };
}

const states = ({ reports }: Outcome): readonly TaskState[] => reports.map(({ state }) => state);
const absent: AgentTaskEvent = { type: "run.absent" };
const prepared: AgentTaskEvent = { type: "run.prepared" };
const started: AgentTaskEvent = { type: "run.started", pid: 7 };
const stop: AgentTaskEvent = { type: "desired.raised", desired: TaskState.SHUTDOWN };
const stopped: AgentTaskEvent = { type: "run.stopped", code: 143 };
const exited = (code: number): AgentTaskEvent => ({
  type: "run.exited",
  pid: 7,
  exit: { code, signal: "", reason: "", lastOutput: "oops" },
});
const refused: AgentTaskEvent = { type: "run.refused", reason: "no" };

test("a task that exits by itself passes every state", (t) => {
  const all = [TaskState.ACCEPTED, TaskState.PREPARING, TaskState.READY, TaskState.STARTING, TaskState.RUNNING];
  const done = life({}, absent, prepared, started, exited(0));
  t.deepEqual(states(done), [...all, TaskState.COMPLETE]);
  t.deepEqual(done.acts, ["look", "prepare", "start", "awaitExit", "check", "endCheck"]);
  const failed = life({}, absent, prepared, started, exited(3));
  t.deepEqual(failed.reports.at(-1), {
    state: TaskState.FAILED,
    message: "finished; last output: oops",
    err: "task: non-zero exit (3)",
    pid: 7,
    exitCode: 3,
  });
});

test("K2: a task rests below its desired state and continues when that rises", (t) => {
  t.is(life({ desired: TaskState.NEW }, absent).state.value, "accepted");
  t.is(life({ desired: TaskState.READY }, absent, prepared).state.value, "ready");
  t.is(
    life({ desired: TaskState.READY }, absent, prepared, { type: "desired.raised", desired: TaskState.RUNNING }).state
      .value,
    "starting",
  );
  t.deepEqual(life({ desired: TaskState.COMPLETE }, absent, prepared, started).state.value, { up: "running" });
  const lowered = life({}, absent, prepared, started, { type: "desired.raised", desired: TaskState.READY });
  t.is(lowered.state.context.desired, TaskState.RUNNING);
});

test("K4: an error before the start rejects the task, and one from then on fails it", (t) => {
  t.is(states(life({}, refused)).at(-1), TaskState.REJECTED);
  t.is(states(life({}, absent, refused)).at(-1), TaskState.REJECTED);
  t.is(states(life({}, absent, prepared, refused)).at(-1), TaskState.FAILED);
});

test("K3: a task that had been started is recovered or fails, and is not started again", (t) => {
  for (const before of [TaskState.STARTING, TaskState.RUNNING]) {
    t.deepEqual(life({ before }, absent).acts, ["look"]);
    t.is(states(life({ before }, absent)).at(-1), TaskState.FAILED);
    t.deepEqual(life({ before }, { type: "run.found", pid: 9 }).state.value, { up: "running" });
    t.is(states(life({ before }, exited(0))).at(-1), TaskState.COMPLETE);
  }
  // Running although the record has no start: the crash came between the start and the record.
  t.deepEqual(life({ before: TaskState.PREPARING }, { type: "run.found", pid: 9 }).state.value, { up: "running" });
  t.is(life({ before: TaskState.PREPARING }, absent).state.value, "preparing");
});

test("a task in a terminal state is not recovered", (t) => {
  const ended = life({ before: TaskState.COMPLETE });
  t.is(ended.state.value, "ended");
  t.deepEqual(ended.reports, []);
});

test("a stop ends a task in every state, after a start in progress has finished", (t) => {
  for (const events of [[absent], [absent, prepared, started]]) {
    const stopping = life({}, ...events, stop);
    t.is(stopping.state.value, "stopping");
    const over = life({}, ...events, stop, stopped);
    t.is(over.reports.at(-1)?.state, TaskState.SHUTDOWN);
  }
  t.is(life({}, absent, prepared, stop).state.value, "starting");
  t.is(life({}, absent, prepared, stop, started).state.value, "stopping");
  // Its exit is reported too: the stop caused it, and it is not reported twice.
  const both = life({}, absent, prepared, started, stop, exited(143), stopped, exited(143));
  t.deepEqual(states(both).slice(-1), [TaskState.SHUTDOWN]);
  t.false(both.acts.includes("reportUnexpected"));
});

test("K1, K5: a removal ends what runs, forgets, and reports nothing more", (t) => {
  const remove: AgentTaskEvent = { type: "removal.wanted" };
  for (const events of [
    [],
    [absent],
    [absent, prepared],
    [absent, prepared, started],
    [absent, prepared, started, stop],
    [absent, prepared, started, exited(0)],
  ]) {
    const before = life({}, ...events).reports.length;
    const gone = life({}, ...events, remove, exited(9), stopped, { type: "run.forgotten" });
    t.is(gone.state.status, "done");
    t.deepEqual(gone.acts.slice(-2), ["stop", "forget"]);
    t.is(gone.reports.length, before);
  }
});

const told = (state: TaskState, message = "", err = "") => ({ state, message, err });

test("K1: a report that is not higher than the newest is dropped, unless it comes from a health check", (t) => {
  t.true(isNews(told(TaskState.STARTING), told(TaskState.RUNNING)));
  t.false(isNews(told(TaskState.RUNNING), told(TaskState.RUNNING, "started")));
  t.false(isNews(told(TaskState.FAILED), told(TaskState.RUNNING)));
  t.true(isNews(told(TaskState.STARTING, "starting"), told(TaskState.STARTING, "health check: no")));
  t.false(isNews(told(TaskState.STARTING, "health check: no"), told(TaskState.STARTING, "health check: no")));
  t.true(isNews(told(TaskState.RUNNING, "started"), told(TaskState.RUNNING, "unhealthy", "no")));
  t.false(isNews(told(TaskState.FAILED, "finished"), told(TaskState.FAILED, "unhealthy", "no")));
});

const passed: AgentTaskEvent = { type: "health.passed" };
const missed: AgentTaskEvent = { type: "health.missed", reason: "refused" };
const lost: AgentTaskEvent = { type: "health.lost", reason: "3 checks failed" };
const checked = { isChecked: true };

test("K6: a task with a health check is STARTING until the check passes, and reports what fails meanwhile", (t) => {
  const waits = life(checked, absent, prepared, started, missed);
  t.deepEqual(waits.state.value, { up: "proving" });
  t.deepEqual(waits.acts.slice(-2), ["awaitExit", "check"]);
  t.like(waits.reports.at(-1), { state: TaskState.STARTING, message: "health check: refused", err: "" });
  const runs = life(checked, absent, prepared, started, missed, passed);
  t.deepEqual(runs.state.value, { up: "running" });
  t.is(states(runs).at(-1), TaskState.RUNNING);
  const over = life(checked, absent, prepared, started, exited(0));
  t.is(states(over).at(-1), TaskState.COMPLETE, "a task that has completed its work was healthy enough");
  t.is(over.acts.at(-1), "endCheck");
  t.is(life(checked, absent, prepared, started, stop).state.value, "stopping");
});

test("K6: an unhealthy task is stopped and fails, whenever it became unhealthy and however it exits", (t) => {
  for (const events of [[], [passed]]) {
    const failing = life(checked, absent, prepared, started, ...events, lost);
    t.is(failing.state.value, "failing");
    t.deepEqual(failing.acts.slice(-2), ["endCheck", "stop"]);
    t.like(failing.reports.at(-1), { err: "3 checks failed" });
    t.is(states(failing).at(-1), events.length === 0 ? TaskState.STARTING : TaskState.RUNNING);
    const ended = life(checked, absent, prepared, started, ...events, lost, exited(0), {
      type: "run.stopped",
      code: 0,
    });
    t.deepEqual(ended.reports.at(-1), {
      state: TaskState.FAILED,
      message: "unhealthy",
      err: "task: unhealthy: 3 checks failed",
      pid: 7,
      exitCode: 0,
    });
  }
});

test("K6: a later agent continues the checks of running tasks, including unproven ones, and ends unhealthy ones", (t) => {
  const found: AgentTaskEvent = { type: "run.found", pid: 9 };
  t.deepEqual(life({ ...checked, before: TaskState.STARTING }, found).state.value, { up: "proving" });
  const running = life({ ...checked, before: TaskState.RUNNING }, found);
  t.deepEqual(running.state.value, { up: "running" });
  t.true(running.acts.includes("check"));
  for (const before of [TaskState.STARTING, TaskState.RUNNING]) {
    const flawed = { ...checked, before, flaw: "it was bad" };
    t.is(life(flawed, found).state.value, "failing");
    for (const event of [exited(0), absent]) {
      const { reports } = life(flawed, event);
      t.like(reports.at(-1), { state: TaskState.FAILED, err: "task: unhealthy: it was bad" });
    }
  }
});

test("a failed run's report keeps code, signal and output", (t) => {
  const killed = reportOfExit({ code: 137, signal: "SIGKILL", reason: "", lastOutput: "a\nb" }, 5);
  t.deepEqual(killed, {
    state: TaskState.FAILED,
    message: "finished; last output: a\nb",
    err: "task: non-zero exit (137), killed by SIGKILL",
    pid: 5,
    exitCode: 137,
  });
  t.is(
    reportOfExit({ code: -1, signal: "", reason: "the node was restarted while it ran", lastOutput: "" }, 5).err,
    "task: the node was restarted while it ran",
  );
});

test("a message's changes are sorted by kind, and a complete message removes what it does not list", (t) => {
  const change = (assignment: Partial<Assignment>, action: Action = Action.UPDATE) =>
    AssignmentChange.create({ assignment: Assignment.create(assignment), action });
  const changes = [
    change({ task: Task.create({ id: "t1" }) }),
    change({ secret: Secret.create({ id: "s1" }) }),
    change({ config: Config.create({ id: "c1" }) }, Action.REMOVE),
    change({ task: Task.create({ id: "t2" }) }, Action.REMOVE),
    AssignmentChange.create({}),
    change({}),
  ];
  const incremental = planAssignments(AssignmentsMessage.create({ type: Kind.INCREMENTAL, changes }), [
    "t1",
    "t2",
    "t3",
  ]);
  t.deepEqual(
    incremental.tasks.map(({ id }) => id),
    ["t1"],
  );
  t.deepEqual(
    incremental.secrets.map(({ id }) => id),
    ["s1"],
  );
  t.deepEqual(incremental.removedConfigs, ["c1"]);
  t.deepEqual(incremental.removedTasks, ["t2"]);
  const complete = planAssignments(AssignmentsMessage.create({ changes: changes.slice(0, 1) }), ["t1", "t2", "t3"]);
  t.deepEqual(complete.removedTasks, ["t2", "t3"]);
});
