// Which of a node's task reports reach the log. Labels are those of machines/dispatcher/task-report.ts.
import test from "ava";
import {
  cutText,
  examineReport,
  repeatBudget,
  reportTextMax,
  statusBytesMax,
} from "../../machines/dispatcher/task-report.ts";
import { WriteBudget } from "../../machines/write-budget.ts";
import { mayAdvance, maySet } from "../../machines/task.machine.ts";
import {
  ContainerStatus,
  Operation,
  PortConfig,
  PortStatus,
  ProposeRequest_Mode,
  TaskPatch,
  TaskState,
  TaskStatus,
  UpdateTaskStatusRequest,
  UpdateTaskStatusRequest_TaskStatusUpdate as TaskStatusUpdate,
} from "../../proto/gen/messages.ts";
import { TaskReports } from "../../actors/dispatcher/task-reports.ts";
import { testManager, type TestManager } from "../support/manager.ts";
import { task } from "../support/dispatcher-world.ts";

const states = Object.values(TaskState);
const ofNodes = ["ACCEPTED", "PREPARING", "READY", "STARTING", "RUNNING", "COMPLETE", "SHUTDOWN", "FAILED", "REJECTED"];
const { bytesMax, bytesPerS } = repeatBudget;
const utf8 = new TextEncoder();

function statusOf(state: number, fields: Partial<TaskStatus> = {}): TaskStatus {
  return TaskStatus.create({ state: state as TaskState, ...fields });
}

test("W1: from every state a node may make the transitions of a task's life, and repeat its state", (t) => {
  for (const before of states) {
    for (let to = 0; to <= 1_000; to += 1) {
      const examined = examineReport(before, statusOf(to));
      const isNodes = ofNodes.some((name) => TaskState[name as keyof typeof TaskState] === to);
      const isSame = to === before && (isNodes || to === TaskState.ASSIGNED);
      const expected = isSame || mayAdvance(before, to as TaskState, "node");
      t.is(examined.kind === "taken", expected, `${before} to ${to}`);
      t.is(maySet(before, to as TaskState, "node"), expected, `${before} to ${to}, in the ledger`);
      if (expected) t.true(isNodes || to === TaskState.ASSIGNED);
    }
  }
});

test("W1: a repeated report is not the node's fault; a report of a manager's state, or of an invalid one, is", (t) => {
  const reasonOf = (before: TaskState, to: number): string => {
    const examined = examineReport(before, statusOf(to));
    return examined.kind === "ignored" ? examined.reason : "taken";
  };
  t.is(reasonOf(TaskState.RUNNING, TaskState.ACCEPTED), "overtaken");
  t.is(reasonOf(TaskState.RUNNING, TaskState.ASSIGNED), "overtaken");
  t.is(reasonOf(TaskState.ORPHANED, TaskState.RUNNING), "overtaken");
  t.is(reasonOf(TaskState.RUNNING, TaskState.ORPHANED), "foreign");
  t.is(reasonOf(TaskState.RUNNING, TaskState.REMOVE), "foreign");
  t.is(reasonOf(TaskState.RUNNING, 513), "foreign");
  t.is(reasonOf(TaskState.RUNNING, 2 ** 31 - 1), "foreign");
  t.is(reasonOf(TaskState.RUNNING, -1), "overtaken");
  t.is(reasonOf(TaskState.PENDING, TaskState.RUNNING), "foreign");
  t.is(reasonOf(TaskState.COMPLETE, TaskState.FAILED), "foreign");
});

test("W2: texts are cut with a mark that states their length, and never within a character", (t) => {
  t.is(cutText("short", 100), "short");
  const cut = cutText("x".repeat(10_000), 100);
  t.is(cut.length, 100);
  t.true(cut.endsWith("… (cut: it had 10000 characters)"));
  for (let length = 90; length < 110; length += 1) t.true(cutText("😀".repeat(length), 100).isWellFormed());
});

test("W2: any report becomes a small enough status, and keeps its state, container and ports", (t) => {
  const ports = Array.from({ length: 3_000 }, (_, at) =>
    PortConfig.create({ name: "p".repeat(999), targetPort: at + 1 }),
  );
  const huge = statusOf(TaskState.RUNNING, {
    message: "語".repeat(900_000),
    err: "e".repeat(900_000),
    container: ContainerStatus.create({ containerId: "c".repeat(900_000), pid: 7, exitCode: 3 }),
    portStatus: PortStatus.create({ ports }),
  });
  // An unknown field, as a newer node may send it.
  const unknown = Buffer.concat([
    TaskStatus.encode(huge),
    Buffer.from([0xfa, 0x7f, 0x80, 0x80, 0x04]),
    Buffer.alloc(65_536),
  ]);
  const examined = examineReport(TaskState.STARTING, TaskStatus.decode(unknown));
  if (examined.kind !== "taken") return t.fail();
  t.true(examined.isCut);
  t.is(TaskStatus.encode(examined.status).length, examined.bytes);
  t.true(examined.bytes <= statusBytesMax);
  t.is(examined.status.message.length, reportTextMax);
  t.is(examined.status.err.length, reportTextMax);
  t.is(examined.status.container?.pid, 7);
  t.is(examined.status.container?.exitCode, 3);
  t.is(examined.status.portStatus?.ports[0]?.targetPort, 1);
  const plain = statusOf(TaskState.RUNNING, { message: "started" });
  const kept = examineReport(TaskState.STARTING, plain);
  t.like(kept, { kind: "taken", status: plain, isCut: false });
  return undefined;
});

test("W3: a node's budget is its burst plus its refill over time, whatever the clock does", (t) => {
  const budget = new WriteBudget(repeatBudget);
  let taken = 0;
  const drain = (nowMs: number): void => {
    while (budget.take("n1", 1_024, nowMs)) taken += 1_024;
  };
  drain(1_000);
  t.is(taken, bytesMax);
  drain(1_500);
  t.is(taken, bytesMax + bytesPerS / 2);
  drain(0);
  drain(500);
  t.is(taken, bytesMax + bytesPerS, "set back: half a second more");
  t.true(budget.take("n2", bytesMax, 0), "another node has its own");
});

/** Counters of a manager's telemetry, by name. */
function counting(manager: TestManager): { readonly counts: Map<string, number>; readonly env: TestManager["env"] } {
  const counts = new Map<string, number>();
  const { telemetry } = manager.env;
  const metrics = {
    ...telemetry.metrics,
    counter: (name: string) => ({ add: (value = 1) => void counts.set(name, (counts.get(name) ?? 0) + value) }),
    gauge: () => ({ set: () => undefined }),
    histogram: () => ({ observe: () => undefined }),
  };
  return { counts, env: { ...manager.env, telemetry: { ...telemetry, metrics } } };
}

function reportsOf(...statuses: readonly (readonly [string, TaskStatus])[]): UpdateTaskStatusRequest["updates"] {
  return UpdateTaskStatusRequest.create({
    updates: statuses.map(([taskId, status]) => TaskStatusUpdate.create({ taskId, status })),
  }).updates;
}

test("P4: ORPHANED, REMOVE and invalid states change nothing, and are counted", async (t) => {
  const manager = testManager("m1");
  const { counts, env } = counting(manager);
  const reports = new TaskReports(env);
  t.teardown(() => reports.stop());
  manager.seed("task", task("t1", "n1", TaskState.RUNNING), task("t2", "n1", TaskState.PENDING));
  for (const state of [TaskState.ORPHANED, TaskState.REMOVE, 513, 999])
    await reports.update("n1", reportsOf(["t1", statusOf(state)]), "");
  await reports.update("n1", reportsOf(["t2", statusOf(TaskState.RUNNING)]), "");
  await manager.clock.run({ untilMs: manager.clock.now() + 1_000 });
  t.is(manager.store.get("task", "t1")?.status?.state, TaskState.RUNNING);
  t.is(manager.store.get("task", "t2")?.status?.state, TaskState.PENDING);
  t.is(counts.get("muster_task_reports_ignored_total"), 5);
});

test("P5 of the ledger: the ledger rejects a state that a node may not set, whoever forwarded it", async (t) => {
  const { env, seed, store } = testManager("m1");
  seed("task", task("t1", "n1", TaskState.RUNNING));
  const propose = async (state: number, reporter: string): Promise<TaskState | undefined> => {
    const patch = TaskPatch.create({ id: "t1", status: statusOf(state) });
    await env.proposer.propose({
      operations: [Operation.create({ task: patch, reporter })],
      mode: ProposeRequest_Mode.EACH,
      timeoutMs: 1_000,
    });
    return store.get("task", "t1")?.status?.state;
  };
  for (const state of [513, TaskState.REMOVE, TaskState.ORPHANED]) t.is(await propose(state, "n1"), TaskState.RUNNING);
  t.is(await propose(TaskState.COMPLETE, "n1"), TaskState.COMPLETE);
  t.is(await propose(TaskState.FAILED, "n1"), TaskState.COMPLETE);
  t.is(await propose(TaskState.ORPHANED, ""), TaskState.COMPLETE, "it is too late for a manager's decision, too");
});

test("P3: a report in which only the ports changed is written, and its repetition is not", async (t) => {
  const manager = testManager("m1");
  const reports = new TaskReports(manager.env);
  t.teardown(() => reports.stop());
  manager.seed("task", task("t1", "n1", TaskState.STARTING));
  const ports = (publishedPort: number) => PortStatus.create({ ports: [PortConfig.create({ publishedPort })] });
  const report = async (publishedPort: number): Promise<void> => {
    const status = statusOf(TaskState.RUNNING, { message: "started", portStatus: ports(publishedPort) });
    await reports.update("n1", reportsOf(["t1", status]), "");
    await manager.clock.run({ untilMs: manager.clock.now() + 1_000 });
    t.is(manager.store.get("task", "t1")?.status?.portStatus?.ports[0]?.publishedPort, publishedPort);
  };
  await report(30_001);
  await report(30_002);
  const { length } = manager.proposals;
  await report(30_002);
  t.is(manager.proposals.length, length);
});

test("P4: a report of any size is cut and written, so none is acknowledged and lost", async (t) => {
  const manager = testManager("m1");
  const { counts, env } = counting(manager);
  const reports = new TaskReports(env);
  t.teardown(() => reports.stop());
  manager.seed("task", task("t1", "n1", TaskState.RUNNING));
  const err = "boom ".repeat(700_000);
  await reports.update("n1", reportsOf(["t1", statusOf(TaskState.FAILED, { err })]), "");
  await manager.clock.run({ untilMs: manager.clock.now() + 1_000 });
  const stored = manager.store.get("task", "t1")?.status;
  t.is(stored?.state, TaskState.FAILED);
  t.true((stored?.err ?? "").startsWith("boom boom"));
  t.true((stored?.err ?? "").endsWith("… (cut: it had 3500000 characters)"));
  t.is(counts.get("muster_task_reports_cut_total"), 1);
});

test("P5: a node that repeats the same in other words writes no more than its budget, and its last report arrives", async (t) => {
  const manager = testManager("m1");
  const reports = new TaskReports(manager.env);
  t.teardown(() => reports.stop());
  const ids = ["t1", "t2", "t3", "t4"];
  manager.seed("task", ...ids.map((id) => task(id, "n1", TaskState.RUNNING)), task("other", "n2", TaskState.RUNNING));
  const before = manager.proposals.length;
  const seconds = 60;
  let said = 0;
  for (let at = 0; at < seconds * 20; at += 1) {
    const message = `${at} `.padEnd(850_000, "x");
    const updates = reportsOf(...ids.map((id): [string, TaskStatus] => [id, statusOf(TaskState.RUNNING, { message })]));
    await Promise.race([reports.update("n1", updates, ""), manager.clock.run({ untilMs: manager.clock.now() + 50 })]);
    await manager.clock.run({ untilMs: manager.clock.now() + 50 });
    said += ids.length;
  }
  await reports.update("n2", reportsOf(["other", statusOf(TaskState.RUNNING, { message: "well" })]), "");
  await manager.clock.run({ untilMs: manager.clock.now() + 100 });
  t.is(manager.store.get("task", "other")?.status?.message, "well", "others do not wait for it");
  const written = (): { operations: number; bytes: number } => {
    const statuses = manager.proposals
      .slice(before)
      .flatMap(({ operations }) => operations)
      .flatMap(({ task: patch }) => patch?.status ?? []);
    return {
      operations: statuses.length,
      bytes: statuses.reduce((sum, status) => sum + utf8.encode(status.message).length, 0),
    };
  };
  const passedS = (seconds * 20 * 100) / 1_000 + 1;
  t.true(written().bytes <= bytesMax + bytesPerS * passedS, String(written().bytes));
  t.true(written().operations < said / 2);
  await manager.clock.run({ untilMs: manager.clock.now() + 60_000 });
  for (const id of ids) t.regex(manager.store.get("task", id)?.status?.message ?? "", /^1199 xxx/);
  // A transition does not wait.
  await reports.update("n1", reportsOf(["t1", statusOf(TaskState.COMPLETE)]), "");
  await manager.clock.run({ untilMs: manager.clock.now() + 200 });
  t.is(manager.store.get("task", "t1")?.status?.state, TaskState.COMPLETE);
});
