// Whether and when a finished task gets a successor.
import test from "ava";
import { stampedTimes } from "../../machines/elapsed.ts";
import {
  delayAfterMs,
  faultOf,
  releaseOf,
  restartMachine,
  shouldRestart,
  spentAttempts,
  stopWaitMs,
} from "../../machines/orchestration/restart.machine.ts";
import { timestampOf } from "../../proto/time.ts";
import {
  ContainerSpec,
  Duration,
  Meta,
  NodeSpec,
  NodeSpec_Availability,
  NodeStatus,
  NodeStatus_State,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  Version,
  type Node,
} from "../../proto/gen/messages.ts";
import { ChartRun } from "../support/chart-run.ts";
import { testNode } from "../support/cluster.ts";

const up = testNode("up");
const down = testNode("down", { status: NodeStatus.create({ state: NodeStatus_State.DOWN }) });
const drained = testNode("drained", { spec: NodeSpec.create({ availability: NodeSpec_Availability.DRAIN }) });
const nodes = new Map<string, Node>([up, down, drained].map((node) => [node.id, node]));
const nodeOf = (id: string): Node | undefined => nodes.get(id);

interface Shape {
  readonly state?: TaskState;
  readonly desired?: TaskState;
  readonly node?: string;
  readonly policy?: Partial<RestartPolicy> | null;
  readonly version?: number;
  readonly madeMs?: number;
  readonly endedMs?: number;
  readonly container?: ContainerSpec;
}

let count = 0;
function task(shape: Shape = {}): Task {
  const policy = shape.policy === undefined ? {} : shape.policy;
  return Task.create({
    id: `t${(count += 1)}`,
    nodeId: shape.node ?? "up",
    desiredState: shape.desired ?? TaskState.RUNNING,
    status: TaskStatus.create({ state: shape.state ?? TaskState.RUNNING, appliedAt: timestampOf(shape.endedMs ?? 0) }),
    meta: Meta.create({ createdAt: timestampOf(shape.madeMs ?? 0) }),
    specVersion: Version.create({ index: shape.version ?? 0 }),
    spec: TaskSpec.create({
      container: shape.container ?? null,
      restart:
        policy === null ? null : RestartPolicy.create({ condition: RestartPolicy_RestartCondition.ANY, ...policy }),
    }),
  });
}

const over = { desired: TaskState.SHUTDOWN } as const;
const { NONE, ON_FAILURE, ANY } = RestartPolicy_RestartCondition;

test("the restart condition decides, and without a policy it is any", (t) => {
  for (const [condition, state, expected] of [
    [ANY, TaskState.COMPLETE, true],
    [ANY, TaskState.FAILED, true],
    [ON_FAILURE, TaskState.COMPLETE, false],
    [ON_FAILURE, TaskState.FAILED, true],
    [ON_FAILURE, TaskState.RUNNING, true],
    [NONE, TaskState.FAILED, false],
  ] as const) {
    const one = task({ state, policy: { condition } });
    t.is(shouldRestart(one, [one]), expected, `${condition} after ${state}`);
  }
  const plain = task({ state: TaskState.COMPLETE, policy: null });
  t.true(shouldRestart(plain, [plain]));
});

test("attempts are counted since the spec last changed, and a lost node uses none", (t) => {
  const policy = { maxAttempts: 2 };
  const older = task({ ...over, state: TaskState.FAILED, version: 1, policy });
  const first = task({ ...over, state: TaskState.FAILED, version: 2, policy });
  const lost = task({ ...over, state: TaskState.RUNNING, node: "down", version: 2, policy });
  const second = task({ state: TaskState.FAILED, version: 2, policy });
  t.is(spentAttempts(second, [older, first, lost, second]), 1);
  t.true(shouldRestart(second, [older, first, lost, second]));
  const third = task({ state: TaskState.REJECTED, version: 2, policy });
  const ended = Task.patch(second, { desiredState: TaskState.SHUTDOWN });
  t.false(shouldRestart(third, [older, first, lost, ended, third]));
  const unreachable = task({ state: TaskState.RUNNING, node: "down", version: 2, policy });
  t.true(shouldRestart(unreachable, [older, first, lost, ended, unreachable]), "it did not fail");
});

test("with a window only restarts within it count", (t) => {
  const policy = { maxAttempts: 1, window: Duration.create({ seconds: 10 }) };
  const first = task({ ...over, state: TaskState.FAILED, policy, madeMs: 0 });
  const late = task({ state: TaskState.FAILED, policy, madeMs: 5_000, endedMs: 16_000 });
  t.true(shouldRestart(late, [first, late]));
  const early = task({ state: TaskState.FAILED, policy, madeMs: 5_000, endedMs: 14_000 });
  t.false(shouldRestart(early, [first, early]));
});

test("a task counts as over when it ended, or its node is removed, down or drained", (t) => {
  t.is(faultOf(task(), nodeOf), null);
  t.is(faultOf(task({ node: "" }), nodeOf), null);
  t.is(faultOf(task({ state: TaskState.COMPLETE }), nodeOf), "ended");
  t.is(faultOf(task({ node: "down" }), nodeOf), "lost");
  t.is(faultOf(task({ node: "nowhere" }), nodeOf), "lost");
  t.is(faultOf(task({ node: "drained" }), nodeOf), "drained");
});

test("the delay follows only a failure, and is five seconds unless the policy says otherwise", (t) => {
  const delayOf = (shape: Shape): number => {
    const one = task(shape);
    return delayAfterMs(one, [one], nodeOf);
  };
  t.is(delayOf({ state: TaskState.FAILED }), 5_000);
  t.is(delayOf({ state: TaskState.FAILED, policy: { delay: Duration.create({ nanos: 5e8 }) } }), 500);
  t.is(delayOf({ state: TaskState.FAILED, policy: { delay: Duration.create({}) } }), 0);
  t.is(delayOf({ state: TaskState.RUNNING, node: "down" }), 0);
  t.is(delayOf({ state: TaskState.SHUTDOWN }), 0);
  t.is(delayOf({ state: TaskState.FAILED, node: "drained" }), 0);
});

test("a successor waits for its delay, then runs", (t) => {
  const failed = task({ ...over, state: TaskState.FAILED });
  const next = task({ desired: TaskState.READY, state: TaskState.READY, madeMs: 1_000 });
  t.like(releaseOf(next, [failed, next], 2_000, nodeOf, stampedTimes), {
    kind: "wait",
    cause: "delay",
    untilMs: 6_000,
  });
  t.deepEqual(releaseOf(next, [failed, next], 6_000, nodeOf, stampedTimes), { kind: "release" });
});

test("a clock that was ahead makes nobody wait longer than the delay", (t) => {
  const failed = task({ ...over, state: TaskState.FAILED });
  const next = task({ desired: TaskState.READY, madeMs: 100_000 });
  t.like(releaseOf(next, [failed, next], 1_000, nodeOf, stampedTimes), { kind: "wait", untilMs: 6_000 });
});

test("without a delay nobody waits for a clock that was ahead, not even repeatedly for no time", (t) => {
  const lost = task({ ...over, node: "down" });
  const next = task({ desired: TaskState.READY, madeMs: 100_000 });
  t.deepEqual(releaseOf(next, [lost, next], 1_000, nodeOf, stampedTimes), { kind: "release" });
});

test("a successor waits for a predecessor that still runs, unless its node is lost", (t) => {
  const next = task({ desired: TaskState.READY, madeMs: 0 });
  const running = task(over);
  t.like(releaseOf(next, [running, next], 0, nodeOf, stampedTimes), {
    kind: "wait",
    cause: "predecessor",
    untilMs: 60_000,
  });
  t.is(releaseOf(next, [running, next], 60_000, nodeOf, stampedTimes).kind, "release");
  const lost = task({ ...over, node: "down" });
  t.is(releaseOf(next, [lost, next], 0, nodeOf, stampedTimes).kind, "release");
  const unplaced = task({ ...over, node: "", state: TaskState.PENDING });
  t.is(releaseOf(next, [unplaced, next], 0, nodeOf, stampedTimes).kind, "release");
});

test("a task with a long grace period gets all of it before another may run beside it", (t) => {
  t.is(stopWaitMs(task()), 60_000);
  const slow = task({ container: ContainerSpec.create({ stopGracePeriod: Duration.create({ seconds: 300 }) }) });
  t.is(stopWaitMs(slow), 310_000);
});

test("the supervisor checks again at the nearest deadline", (t) => {
  const touched = () => new ChartRun(restartMachine).send({ type: "work.arrived" });
  t.is(touched().state, "gathering");
  const waiting = touched().send(
    { type: "round.due" },
    { type: "round.done", verdict: { nextMs: 700, isPartial: false } },
  );
  t.is(waiting.state, "waiting");
  t.is(waiting.snapshot.context.verdict.nextMs, 700);
  t.is(
    touched().send({ type: "round.due" }, { type: "round.done", verdict: { nextMs: -1, isPartial: false } }).state,
    "resting",
  );
});
