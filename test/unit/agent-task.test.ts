// The task chart alone: which states are passed, what is reported, and what a stop or a removal does at each point.
import test from "ava";
import { initialTransition, transition, type SnapshotFrom } from "xstate";
import { planAssignments } from "../../machines/agent-assignments.ts";
import {
  agentTaskMachine,
  isNews,
  reportOfExit,
  type AgentTaskEvent,
  type TaskReport,
} from "../../machines/agent-task.ts";
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

interface Outcome {
  readonly state: SnapshotFrom<typeof agentTaskMachine>;
  readonly reports: readonly TaskReport[];
  readonly acts: readonly string[];
}

function life(input: { before?: TaskState; desired?: TaskState }, ...events: readonly AgentTaskEvent[]): Outcome {
  const effects: { type: string; params?: unknown }[] = [];
  let [state, more] = initialTransition(agentTaskMachine, {
    taskId: "t1",
    before: TaskState.ASSIGNED,
    desired: TaskState.RUNNING,
    ...input,
  });
  effects.push(...(more as never[]));
  for (const event of events) {
    [state, more] = transition(agentTaskMachine, state, event);
    effects.push(...(more as never[]));
  }
  return {
    state,
    reports: effects.filter(({ type }) => type === "report").map(({ params }) => params as TaskReport),
    acts: effects.map(({ type }) => type).filter((type) => type !== "report" && !type.startsWith("xstate.")),
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

test("a task that ends by itself passes every state", (t) => {
  const all = [TaskState.ACCEPTED, TaskState.PREPARING, TaskState.READY, TaskState.STARTING, TaskState.RUNNING];
  const done = life({}, absent, prepared, started, exited(0));
  t.deepEqual(states(done), [...all, TaskState.COMPLETE]);
  t.deepEqual(done.acts, ["look", "prepare", "start", "awaitExit"]);
  const failed = life({}, absent, prepared, started, exited(3));
  t.deepEqual(failed.reports.at(-1), {
    state: TaskState.FAILED,
    message: "finished; last output: oops",
    err: "task: non-zero exit (3)",
    pid: 7,
    exitCode: 3,
  });
});

test("K2: a task rests below its desired state and goes on when that rises", (t) => {
  t.is(life({ desired: TaskState.NEW }, absent).state.value, "accepted");
  t.is(life({ desired: TaskState.READY }, absent, prepared).state.value, "ready");
  t.is(
    life({ desired: TaskState.READY }, absent, prepared, { type: "desired.raised", desired: TaskState.RUNNING }).state
      .value,
    "starting",
  );
  t.is(life({ desired: TaskState.COMPLETE }, absent, prepared, started).state.value, "running");
  const lowered = life({}, absent, prepared, started, { type: "desired.raised", desired: TaskState.READY });
  t.is(lowered.state.context.desired, TaskState.RUNNING);
});

test("K4: what is wrong before the start rejects, what goes wrong from it on fails", (t) => {
  t.is(states(life({}, refused)).at(-1), TaskState.REJECTED);
  t.is(states(life({}, absent, refused)).at(-1), TaskState.REJECTED);
  t.is(states(life({}, absent, prepared, refused)).at(-1), TaskState.FAILED);
});

test("K3: a task that had been started is found or has failed, and is not started again", (t) => {
  for (const before of [TaskState.STARTING, TaskState.RUNNING]) {
    t.deepEqual(life({ before }, absent).acts, ["look"]);
    t.is(states(life({ before }, absent)).at(-1), TaskState.FAILED);
    t.is(life({ before }, { type: "run.found", pid: 9 }).state.value, "running");
    t.is(states(life({ before }, exited(0))).at(-1), TaskState.COMPLETE);
  }
  // Not started before, as far as the record says, yet there: the crash came between the start and the record.
  t.is(life({ before: TaskState.PREPARING }, { type: "run.found", pid: 9 }).state.value, "running");
  t.is(life({ before: TaskState.PREPARING }, absent).state.value, "preparing");
});

test("a task in a terminal state is not even looked for", (t) => {
  const ended = life({ before: TaskState.COMPLETE });
  t.is(ended.state.value, "ended");
  t.deepEqual(ended.reports, []);
});

test("a stop ends a task in every state, and a start under way is waited for", (t) => {
  for (const events of [[absent], [absent, prepared, started]]) {
    const stopping = life({}, ...events, stop);
    t.is(stopping.state.value, "stopping");
    const over = life({}, ...events, stop, stopped);
    t.is(over.reports.at(-1)?.state, TaskState.SHUTDOWN);
  }
  t.is(life({}, absent, prepared, stop).state.value, "starting");
  t.is(life({}, absent, prepared, stop, started).state.value, "stopping");
  // Its exit arrives as well: the stop has caused it, and it is not reported twice.
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

test("K1: a report that is not higher than the newest is no news", (t) => {
  t.true(isNews(TaskState.STARTING, TaskState.RUNNING));
  t.false(isNews(TaskState.RUNNING, TaskState.RUNNING));
  t.false(isNews(TaskState.FAILED, TaskState.RUNNING));
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

test("a message's changes are sorted by kind, and a complete one removes what it does not name", (t) => {
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
