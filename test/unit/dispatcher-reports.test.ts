// Traffic between a dispatcher and its nodes: assignments, and reports of tasks and volumes.
import test from "ava";
import {
  type AssignmentsMessage,
  AssignmentsMessage_Type,
  AssignmentsRequest,
  EngineDescription,
  NodeDescription,
  Task,
  type TasksMessage,
  TasksRequest,
  TaskState,
  UpdateVolumeStatusRequest,
  UpdateVolumeStatusRequest_VolumeStatusUpdate as VolumeStatusUpdate,
  Volume,
  VolumePublishStatus,
  VolumePublishStatus_State as PublishState,
} from "../../proto/gen/messages.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { collectedStream, refusalOf } from "../support/manager.ts";
import { setUp, from, join, open, task, report } from "../support/dispatcher-world.ts";

test("a commit that concerns many nodes reaches each of them, and so do changes during the distribution", async (t) => {
  const names = Array.from({ length: 100 }, (_, at) => `n${at}`);
  const world = setUp(t, { nodes: names });
  const streams = new Map(names.map((name) => [name, collectedStream<AssignmentsMessage>()]));
  for (const [name, stream] of streams) {
    const { sessionId } = await join(world, name);
    world.dispatcher.handlers.Assignments(AssignmentsRequest.create({ sessionId }), stream, from(name));
  }
  const idsOf = (name: string): (string | undefined)[] =>
    (streams.get(name)?.messages ?? []).flatMap(({ changes }) => changes.map(({ assignment }) => assignment?.task?.id));
  world.seed("task", ...names.map((name) => task(`first-${name}`, name)));
  // Only for the time of one batch, not until all of them have it.
  await world.run(4);
  world.seed("task", ...names.map((name) => task(`second-${name}`, name)));
  await world.run(100);
  for (const name of names) t.deepEqual(idsOf(name), [`first-${name}`, `second-${name}`]);
});

test("assignments start with everything and continue with changes, in one message per batch", async (t) => {
  const world = setUp(t);
  world.seed("task", task("t1", "n1"), task("other", "n2"));
  const { sessionId } = await join(world, "n1");
  const stream = collectedStream<AssignmentsMessage>();
  const abort = new AbortController();
  world.dispatcher.handlers.Assignments(AssignmentsRequest.create({ sessionId }), stream, from("n1", abort.signal));
  t.deepEqual(
    stream.messages.map(({ type, appliesTo, resultsIn, changes }) => [type, appliesTo, resultsIn, changes.length]),
    [[AssignmentsMessage_Type.COMPLETE, "", "1", 1]],
  );
  world.seed("task", task("t2", "n1"), task("other2", "n2"));
  world.seed("task", task("t3", "n1"));
  await world.run(20);
  t.deepEqual(
    stream.messages
      .slice(1)
      .map(({ type, appliesTo, resultsIn, changes }) => [
        type,
        appliesTo,
        resultsIn,
        changes.map(({ assignment }) => assignment?.task?.id),
      ]),
    [[AssignmentsMessage_Type.INCREMENTAL, "1", "2", ["t2", "t3"]]],
  );
  stream.buffered = 100e6;
  for (let at = 0; at < 10; at += 1) {
    world.seed("task", task(`late${at}`, "n1"));
    await world.run(20);
  }
  t.is(stream.messages.length, 2, "nothing is written to a node that does not read");
  stream.buffered = 0;
  await world.run(100);
  t.deepEqual(
    stream.messages.slice(2).map(({ appliesTo, resultsIn, changes }) => [appliesTo, resultsIn, changes.length]),
    [["2", "3", 10]],
  );
  abort.abort();
  world.seed("task", task("unheard", "n1"));
  await world.run(20);
  t.is(stream.messages.length, 3);
});

test("the deprecated Tasks stream sends the whole list each time", async (t) => {
  const world = setUp(t);
  world.seed("task", task("t1", "n1"));
  const { sessionId } = await join(world, "n1");
  const stream = collectedStream<TasksMessage>();
  world.dispatcher.handlers.Tasks(TasksRequest.create({ sessionId }), stream, from("n1"));
  world.seed("task", task("t2", "n1"));
  await world.run(20);
  t.deepEqual(
    stream.messages.map(({ tasks }) => tasks.map(({ id }) => id)),
    [["t1"], ["t1", "t2"]],
  );
});

test("a task that would crash an engine is REJECTED with the reason instead of sent", async (t) => {
  const world = setUp(t);
  const { sessionId } = await join(world, "n1");
  const stream = collectedStream<AssignmentsMessage>();
  world.dispatcher.handlers.Assignments(AssignmentsRequest.create({ sessionId }), stream, from("n1"));
  world.seed("task", Task.patch(task("poison", "n1"), { serviceAnnotations: null }));
  await world.run(50);
  t.is(stream.messages.length, 1);
  const status = world.store.get("task", "poison")?.status;
  t.is(status?.state, TaskState.REJECTED);
  t.regex(status?.err ?? "", /neither the service nor the task has a name/);
});

test("a report waits for the log without delaying its node, only a task's newest is kept, and it names the manager that received it", async (t) => {
  const world = setUp(t);
  world.seed("task", task("t1", "n1"));
  const { sessionId } = await join(world, "n1");
  world.manager.leaderless = true;
  const { UpdateTaskStatus } = world.dispatcher.handlers;
  await UpdateTaskStatus(report(sessionId, ["t1", TaskState.ACCEPTED]), from("n1"));
  await UpdateTaskStatus(report(sessionId, ["t1", TaskState.RUNNING]), from("n1"));
  await world.run(20_000);
  t.is(world.store.get("task", "t1")?.status?.state, TaskState.ASSIGNED);
  world.manager.leaderless = false;
  await world.run(3_000);
  const status = world.store.get("task", "t1")?.status;
  t.is(status?.state, TaskState.RUNNING);
  t.is(status?.appliedBy, "m1");
  t.truthy(status?.appliedAt);
});

test("reports of all nodes share a proposal; states never decrease; unknown or empty ones are skipped", async (t) => {
  const world = setUp(t);
  world.seed("task", task("a", "n1"), task("b", "n2"), task("done", "n1", TaskState.COMPLETE));
  const [first, second] = [await join(world, "n1"), await join(world, "n2")];
  const before = world.proposals.length;
  const { UpdateTaskStatus } = world.dispatcher.handlers;
  const answers = [
    UpdateTaskStatus(
      report(first.sessionId, ["a", TaskState.RUNNING], ["unknown", TaskState.RUNNING], ["a", null]),
      from("n1"),
    ),
    UpdateTaskStatus(report(first.sessionId, ["a", TaskState.ACCEPTED], ["done", TaskState.RUNNING]), from("n1")),
    UpdateTaskStatus(report(second.sessionId, ["b", TaskState.ACCEPTED]), from("n2")),
  ];
  await world.run(50);
  await Promise.all(answers.map((answer) => Promise.resolve(answer)));
  t.is(world.proposals.length, before + 1);
  t.deepEqual(
    ["a", "b", "done"].map((id) => world.store.get("task", id)?.status?.state),
    [TaskState.RUNNING, TaskState.ACCEPTED, TaskState.COMPLETE],
  );
  await Promise.resolve(UpdateTaskStatus(report(first.sessionId, ["a", TaskState.PREPARING]), from("n1")));
  t.is(world.proposals.length, before + 1);
});

test("under many reports, a task's states within a tenth of a second are one write; a lone report is not delayed", async (t) => {
  const world = setUp(t);
  const ids = Array.from({ length: 100 }, (_, at) => `t${at}`);
  world.seed("task", ...ids.map((id) => task(id, "n1")));
  const { sessionId } = await join(world, "n1");
  const { UpdateTaskStatus } = world.dispatcher.handlers;
  const tell = (state: TaskState, ...which: string[]): unknown =>
    UpdateTaskStatus(report(sessionId, ...which.map((id): [string, TaskState] => [id, state])), from("n1"));
  const stateOf = (id: string): TaskState | undefined => world.store.get("task", id)?.status?.state;
  await tell(TaskState.ACCEPTED, ...ids);
  await world.run(25);
  t.is(stateOf("t99"), TaskState.ACCEPTED);
  const before = world.proposals.length;
  await tell(TaskState.PREPARING, ...ids);
  await world.run(60);
  await tell(TaskState.RUNNING, ...ids);
  await world.run(50);
  t.is(world.proposals.length, before + 1);
  t.true(ids.every((id) => stateOf(id) === TaskState.RUNNING));
  await tell(TaskState.COMPLETE, "t0");
  await world.run(110);
  t.is(stateOf("t0"), TaskState.COMPLETE);
  await tell(TaskState.COMPLETE, "t1");
  await world.run(25);
  t.is(stateOf("t1"), TaskState.COMPLETE, "the previous batch was small");
});

test("a report of another node's task is rejected as a whole", async (t) => {
  const world = setUp(t);
  world.seed("task", task("mine", "n1"), task("theirs", "n2"));
  const { sessionId } = await join(world, "n1");
  const before = world.proposals.length;
  t.deepEqual(
    await refusalOf(() =>
      world.dispatcher.handlers.UpdateTaskStatus(
        report(sessionId, ["mine", TaskState.RUNNING], ["theirs", TaskState.RUNNING]),
        from("n1"),
      ),
    ),
    { code: Status.PERMISSION_DENIED, message: "cannot update a task not assigned this node" },
  );
  await world.run(20);
  t.is(world.proposals.length, before);
});

test("a volume released by the node is unpublished by the controller", async (t) => {
  const world = setUp(t);
  const { sessionId } = await join(world, "n1");
  world.seed(
    "volume",
    Volume.create({
      id: "v1",
      publishStatus: [VolumePublishStatus.create({ nodeId: "n1", state: PublishState.PENDING_NODE_UNPUBLISH })],
    }),
  );
  const updates = ["v1", "unknown"].map((id) => VolumeStatusUpdate.create({ id, unpublished: true }));
  await world.dispatcher.handlers.UpdateVolumeStatus(
    UpdateVolumeStatusRequest.create({ sessionId, updates }),
    from("n1"),
  );
  t.is(world.store.get("volume", "v1")?.publishStatus[0]?.state, PublishState.PENDING_UNPUBLISH);
});

test("P6: volumes that a node releases repeatedly are written only at the rate of its budget", async (t) => {
  const world = setUp(t);
  const { sessionId } = await join(world, "n1");
  const pending = VolumePublishStatus.create({ nodeId: "n1", state: PublishState.PENDING_NODE_UNPUBLISH });
  const others = Array.from({ length: 1_000 }, (_, at) =>
    VolumePublishStatus.create({ nodeId: `other${at}`.padEnd(25) }),
  );
  const updates = Array.from({ length: 100 }, (_, at) =>
    VolumeStatusUpdate.create({ id: `v${at}`, unpublished: true }),
  );
  for (const { id } of updates) world.seed("volume", Volume.create({ id, publishStatus: [pending, ...others] }));
  const report = () =>
    refusalOf(() =>
      world.dispatcher.handlers.UpdateVolumeStatus(
        UpdateVolumeStatusRequest.create({ sessionId, updates }),
        from("n1"),
      ),
    );
  t.deepEqual(await report(), {
    code: Status.UNAVAILABLE,
    message: "node n1 exceeded rate limit of reports on volumes",
  });
  const left = () =>
    updates.filter(({ id }) => world.store.get("volume", id)?.publishStatus[0]?.state === pending.state);
  const { length } = left();
  t.true(length > 50 && length < 100, `${length} of 100`);
  // As an agent does: it repeats rejected reports.
  for (let again = 0; again < 600 && left().length > 0; again += 1) {
    await world.run(1_000);
    await report();
  }
  t.deepEqual(left(), []);
});

test("D1, D2: a description that is too large is rejected, and one that changes constantly is not written each time", async (t) => {
  const world = setUp(t);
  const { sessionId } = await join(world, "n1");
  const described = (at: number, bytes: number): NodeDescription =>
    NodeDescription.create({
      hostname: "n1",
      engine: EngineDescription.create({ labels: { at: `${at}`.padEnd(bytes) } }),
    });
  const register = (at: number, bytes: number) => refusalOf(() => open(world, "n1", sessionId, described(at, bytes)));
  t.like(await register(0, 300_000), { code: Status.INVALID_ARGUMENT });
  const refused: unknown[] = [];
  for (let at = 1; at <= 50; at += 1) {
    const refusal = await register(at, 200_000);
    if (refusal !== null) refused.push(refusal);
    await world.run(100);
  }
  // 1 MiB at once, and 32 KiB in each of five seconds.
  t.is(refused.length, 50 - 6);
  t.like(refused[0], {
    code: Status.UNAVAILABLE,
    message: "node n1 exceeded rate limit of changes to its description",
  });
  t.is(world.store.get("node", "n1")?.description?.hostname, "n1");
});
