// An agent's reports on its tasks, with a manager that answers when the test says so.
import test, { type ExecutionContext } from "ava";
import { StatusReports } from "../../actors/agent/reports.ts";
import { TaskState, TaskStatus } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { SimClock } from "../../runtime/sim/clock.ts";

const status = (state: TaskState, message = ""): TaskStatus => TaskStatus.create({ state, message });

function world(t: ExecutionContext) {
  const failures: unknown[] = [];
  const reports = new StatusReports((error) => failures.push(error));
  const calls: {
    readonly sent: readonly string[];
    readonly trace: string;
    readonly answer: (error?: RpcError) => void;
  }[] = [];
  const attach = (): void =>
    reports.attach((updates, trace) => {
      const { promise, reject, resolve } = Promise.withResolvers<void>();
      calls.push({
        sent: updates.map((update) => `${update.taskId} ${update.status.state} ${update.status.message}`.trimEnd()),
        trace,
        answer: (error) => (error === undefined ? resolve() : reject(error)),
      });
      return promise;
    });
  attach();
  const { ACCEPTED, PREPARING, RUNNING, STARTING } = TaskState;
  return {
    attach,
    calls,
    failures,
    reports,
    states: { ACCEPTED, PREPARING, RUNNING, STARTING },
    /** Answers the newest call, and lets what follows from it happen. */
    answer: async (error?: RpcError): Promise<void> => {
      const newest = calls.at(-1);
      if (newest === undefined) return t.fail("no call");
      newest.answer(error);
      await new SimClock().run();
    },
  };
}

test("R1: reports that wait for an answer are sent in one call, each task's states in order", async (t) => {
  const { answer, calls, reports, states } = world(t);
  reports.report("t1", status(states.ACCEPTED));
  reports.report("t1", status(states.PREPARING));
  reports.report("t2", status(states.ACCEPTED));
  reports.report("t1", status(states.RUNNING));
  t.is(calls.length, 1);
  await answer();
  reports.report("t3", status(states.ACCEPTED));
  t.deepEqual(
    calls.map(({ sent }) => sent),
    [[`t1 ${states.ACCEPTED}`], [`t2 ${states.ACCEPTED}`, `t1 ${states.PREPARING}`, `t1 ${states.RUNNING}`]],
  );
  await answer();
  await answer();
  t.deepEqual(calls[2]?.sent, [`t3 ${states.ACCEPTED}`]);
  t.is(calls.length, 3);
});

test("R2: a new session gets each task's newest status, and an answer of the old one changes nothing", async (t) => {
  const { answer, attach, calls, failures, reports, states } = world(t);
  reports.report("t1", status(states.ACCEPTED));
  reports.report("t1", status(states.RUNNING));
  reports.report("t2", status(states.ACCEPTED));
  await answer(new RpcError(Status.UNAVAILABLE, "gone"));
  t.is(failures.length, 1);
  reports.report("t2", status(states.STARTING));
  attach();
  calls[0]?.answer();
  t.deepEqual(calls.at(-1)?.sent, [`t1 ${states.RUNNING}`, `t2 ${states.STARTING}`]);
  t.is(calls.length, 2);
});

test("R3: only the newest of several queued reports of one state is sent", async (t) => {
  const { answer, calls, reports, states } = world(t);
  for (const message of ["starting", "refused", "timed out", "answered 503"])
    reports.report("t1", status(states.STARTING, message));
  reports.report("t1", status(states.RUNNING, "started"));
  await answer();
  t.deepEqual(
    calls.flatMap(({ sent }) => sent),
    [`t1 ${states.STARTING} starting`, `t1 ${states.STARTING} answered 503`, `t1 ${states.RUNNING} started`],
  );
});

test("R4: a task that the manager does not have does not keep it from getting the other tasks' states", async (t) => {
  const { answer, calls, failures, reports, states } = world(t);
  const known = new Set<string>();
  reports.report("t0", status(states.ACCEPTED));
  for (const id of ["t1", "t2", "gone", "t3", "t4"]) reports.report(id, status(states.RUNNING));
  await answer();
  t.is(calls.at(-1)?.sent.length, 5);
  for (let round = 0; round < 20; round += 1) {
    const at = calls.length;
    const sent = calls.at(-1)?.sent ?? [];
    const isRefused = sent.some((each) => each.startsWith("gone"));
    if (!isRefused) for (const each of sent) known.add(each);
    await answer(isRefused ? new RpcError(Status.NOT_FOUND, "no such task") : undefined);
    if (calls.length === at) break;
  }
  t.deepEqual(
    [...known].toSorted(),
    ["t1", "t2", "t3", "t4"].map((id) => `${id} ${states.RUNNING}`),
  );
  t.deepEqual(failures, []);
  reports.report("t1", status(states.RUNNING, "again"));
  t.deepEqual(calls.at(-1)?.sent, [`t1 ${states.RUNNING} again`]);
});

test("a call is limited in reports and bytes, and the next one has the others", async (t) => {
  const { answer, calls, reports, states } = world(t);
  reports.report("first", status(states.ACCEPTED));
  for (let at = 0; at < 1_500; at += 1) reports.report(`t${at}`, status(states.ACCEPTED));
  await answer();
  await answer();
  t.deepEqual(
    calls.map(({ sent }) => sent.length),
    [1, 1_000, 500],
  );
  for (let at = 0; at < 10; at += 1) reports.report(`t${at}`, status(states.RUNNING, "x".repeat(100_000)));
  for (let rest = 0; rest < 4; rest += 1) await answer();
  t.deepEqual(
    calls.slice(3).map(({ sent }) => sent.length),
    [3, 3, 3, 1],
  );
});

test("tasks of different traces are reported in calls of their own, at most four at once", async (t) => {
  const { calls, reports, states } = world(t);
  for (let at = 0; at < 6; at += 1) {
    reports.report(`t${at}`, status(states.ACCEPTED), `trace-${at % 5}`);
    reports.report(`t${at}`, status(states.RUNNING), `trace-${at % 5}`);
  }
  t.deepEqual(
    calls.map(({ sent, trace }) => [trace, ...sent]),
    [0, 1, 2, 3].map((at) => [`trace-${at}`, `t${at} ${states.ACCEPTED}`]),
  );
  calls[0]?.answer();
  await new SimClock().run();
  t.deepEqual(
    calls.slice(4).map(({ sent, trace }) => [trace, ...sent]),
    [["trace-4", `t4 ${states.ACCEPTED}`, `t4 ${states.RUNNING}`]],
  );
});
