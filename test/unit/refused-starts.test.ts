// Starts that are rejected repeatedly are retried ever less often, and visibly so.
import test from "ava";
import fc from "fast-check";
import { stampedTimes } from "../../machines/elapsed.ts";
import { evictionStatus } from "../../machines/orchestration/enforcer.machine.ts";
import { refusedStartDelayMsMax, refusedInARow, wasRefused } from "../../machines/orchestration/refused-starts.ts";
import { reapable } from "../../machines/orchestration/reaper.machine.ts";
import { releaseOf, shouldRestart } from "../../machines/orchestration/restart.machine.ts";
import { timestampOf } from "../../proto/time.ts";
import {
  ContainerSpec,
  ContainerStatus,
  Duration,
  GenericRuntimeSpec,
  Meta,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  Version,
  type Node,
} from "../../proto/gen/messages.ts";
import { testCluster, testNode } from "../support/cluster.ts";

const node = testNode("up");
const nodeOf = (): Node => node;

type End = "refused" | "rejected" | "exited" | "completed" | "evicted" | "stopped";

interface Shape {
  readonly end?: End;
  readonly version?: number;
  readonly madeMs?: number;
  readonly endedMs?: number;
  readonly delayMs?: number;
  readonly policy?: Partial<RestartPolicy>;
  readonly isContainer?: boolean;
}

const ranWith = (exitCode: number): ContainerStatus => ContainerStatus.create({ pid: 7, exitCode });

function statusOf(end: End | undefined, endedMs: number): TaskStatus {
  const at = { timestamp: timestampOf(endedMs), appliedAt: timestampOf(endedMs) };
  switch (end) {
    case undefined:
      return TaskStatus.create({ ...at, state: TaskState.READY });
    case "refused":
      return TaskStatus.create({ ...at, state: TaskState.FAILED, message: "starting", err: "no such command" });
    case "rejected":
      return TaskStatus.create({ ...at, state: TaskState.REJECTED, message: "preparing", err: "no such driver" });
    case "exited":
      return TaskStatus.create({ ...at, state: TaskState.FAILED, container: ranWith(1) });
    case "completed":
      return TaskStatus.create({ ...at, state: TaskState.COMPLETE });
    case "evicted":
      return evictionStatus("node", timestampOf(endedMs));
    case "stopped":
      return TaskStatus.create({ ...at, state: TaskState.SHUTDOWN });
  }
}

let count = 0;
function task(shape: Shape): Task {
  const { delayMs = 5_000, end, endedMs = 0, isContainer = false, madeMs = 0, version = 1 } = shape;
  return Task.create({
    id: `task${(count += 1)}`,
    nodeId: "up",
    desiredState: end === undefined ? TaskState.READY : TaskState.SHUTDOWN,
    status: statusOf(end, endedMs),
    meta: Meta.create({ createdAt: timestampOf(madeMs) }),
    specVersion: Version.create({ index: version }),
    spec: TaskSpec.create({
      container: isContainer ? ContainerSpec.create({}) : null,
      generic: isContainer ? null : GenericRuntimeSpec.create({ kind: "raw_exec" }),
      restart: RestartPolicy.create({
        condition: RestartPolicy_RestartCondition.ANY,
        delay: Duration.create({ seconds: Math.floor(delayMs / 1_000), nanos: (delayMs % 1_000) * 1e6 }),
        ...shape.policy,
      }),
    }),
  });
}

/** Milliseconds that the successor of these waits, if created the moment the last of them ended. */
function waitAfter(slot: readonly Task[], successor: Task = task({})): number {
  const release = releaseOf(successor, [...slot, successor], 0, nodeOf, stampedTimes);
  return release.kind === "wait" ? release.untilMs : 0;
}

const refused = (n: number, shape: Shape = {}): Task[] =>
  Array.from({ length: n }, () => task({ end: "refused", ...shape }));

test("a start counts as rejected if nothing of the task ran and its node was asked", (t) => {
  t.true(wasRefused(task({ end: "refused" })));
  t.true(wasRefused(task({ end: "rejected" })), "its node could not prepare it");
  t.false(wasRefused(task({ end: "rejected", isContainer: true })), "an engine's missing image waits as in SwarmKit");
  t.true(wasRefused(task({ end: "refused", isContainer: true })));
  for (const end of ["exited", "completed", "evicted", "stopped"] as const) t.false(wasRefused(task({ end })), end);
  t.false(wasRefused(Task.patch(task({ end: "refused" }), { nodeId: "" })));
});

test("RS1, RS2: each rejected start waits longer than the one before it, up to five minutes", (t) => {
  for (const delayMs of [0, 500, 5_000, 60_000, 600_000]) {
    for (let n = 2; n <= 14; n += 1) {
      const full = Math.min(refusedStartDelayMsMax, Math.max(1_000, delayMs) * 2 ** (n - 1));
      const wait = waitAfter(refused(n, { delayMs }), task({ delayMs }));
      const at = `${n} times, delay ${delayMs}`;
      t.true(wait >= Math.max(delayMs, 0.75 * full), `${at}: ${wait}`);
      t.true(wait <= Math.max(delayMs, full), `${at}: ${wait}`);
    }
  }
});

test("RS1: slots rejected together do not all retry together", (t) => {
  const waits = Array.from({ length: 40 }, () => waitAfter(refused(5)));
  t.true(new Set(waits).size > 30, waits.join(" "));
});

test("RS3: the first rejected start waits as after any failure", (t) => {
  t.is(waitAfter(refused(1)), 5_000);
  t.is(waitAfter([...refused(4), task({ end: "exited" })]), 5_000, "it ran, and failed");
  t.is(waitAfter([...refused(4), task({ end: "exited" }), ...refused(1)]), 5_000, "after one that ran");
  t.is(waitAfter([...refused(4), task({ end: "completed" }), ...refused(1)]), 5_000, "after one that completed");
  t.is(waitAfter([...refused(4), ...refused(1, { version: 2 })], task({ version: 2 })), 5_000, "after an update");
});

test("RS3: an update is attempted after the plain delay, however often the earlier spec was rejected", (t) => {
  t.is(waitAfter(refused(6), task({ version: 2 })), 5_000);
});

test("a task that was stopped or evicted before it could start does not count as a rejected start", (t) => {
  const slot = [...refused(2), task({ end: "stopped" }), task({ end: "evicted" }), ...refused(1)];
  t.is(refusedInARow(slot.at(-1)!, slot).length, 3);
});

test("RS4: a limit on attempts within a window is reached", (t) => {
  const policies = fc.record({
    maxAttempts: fc.integer({ min: 1, max: 8 }),
    windowS: fc.integer({ min: 60, max: 3_600 }),
    delayMs: fc.constantFrom(0, 1_000, 5_000),
  });
  fc.assert(
    fc.property(policies, ({ delayMs, maxAttempts, windowS }) => {
      const policy = { maxAttempts, window: Duration.create({ seconds: windowS }) };
      const slot: Task[] = [];
      let nowMs = 0;
      for (let tries = 0; tries <= maxAttempts; tries += 1) {
        const one = task({ end: "refused", delayMs, policy, madeMs: nowMs, endedMs: nowMs });
        // As the orchestrator creates it: at the end of the one before it, and started when its wait is over.
        const before = slot.at(-1);
        if (before !== undefined) {
          const successor = Task.patch(one, { desiredState: TaskState.READY });
          const release = releaseOf(successor, [...slot, successor], nowMs, nodeOf, stampedTimes);
          if (release.kind === "wait") nowMs = release.untilMs;
          slot.push(Task.patch(one, { status: statusOf("refused", nowMs) }));
        } else slot.push(one);
      }
      t.false(shouldRestart(slot.at(-1)!, slot), `${maxAttempts} in ${windowS} s, delay ${delayMs} ms`);
    }),
  );
});

test("Q5: whatever the reaper deletes, the next wait is the same", (t) => {
  const ends = fc.array(fc.constantFrom<End>("refused", "refused", "refused", "rejected", "exited", "stopped"), {
    minLength: 1,
    maxLength: 25,
  });
  fc.assert(
    fc.property(ends, fc.integer({ min: 0, max: 6 }), (list, historyLimit) => {
      const successor = task({});
      const slot = [...list.map((end) => task({ end })), successor];
      const gone = new Set(reapable({ tasks: slot, historyLimit, hasService: true, hasNode: () => true }));
      const left = slot.filter((one) => !gone.has(one));
      const [before, after] = [slot, left].map((tasks) => releaseOf(successor, tasks, 0, nodeOf, stampedTimes));
      t.deepEqual(after, before);
    }),
  );
});

test("a service that its driver rejects is retried ever less often, and `why` shows the next attempt", async (t) => {
  const cluster = await testCluster(["n1"]);
  const tries: number[] = [];
  const seen = new Set<string>();
  cluster.store.watch(({ changes }) => {
    for (const { table, object } of changes) {
      if (table !== "task" || object.status?.state !== TaskState.FAILED || seen.has(object.id)) continue;
      seen.add(object.id);
      tries.push(cluster.clock.now() / 1_000);
    }
  });
  cluster.outcome = () => TaskState.FAILED;
  cluster.isRefused = () => true;
  await cluster.addService("web", 1);
  await cluster.run(600_000);
  const waits = tries.slice(1).map((at, index) => Math.round(at - tries[index]!));
  // After 5 s, then up to 10, 20, 40, 80, 160 and 300 s: at the plain delay there would have been 120.
  t.true(tries.length >= 7 && tries.length <= 9, waits.join(" "));
  for (const [index, wait] of waits.entries()) if (index > 0) t.true(wait > waits[index - 1]!, waits.join(" "));
  cluster.changeLeader();
  await cluster.run();
  const waiting = cluster.tasks().find(({ desiredState }) => desiredState === TaskState.READY)!;
  const [why] = cluster.orchestration.explainTask(waiting);
  t.regex(why!.waitingFor, /restart delay after task \w+, which grows: the last [789] starts were refused/);
  t.is(why!.atDeadline, "retries");
  t.true(Number(why!.deadline!.seconds) > cluster.clock.now() / 1_000);
  cluster.outcome = () => undefined;
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { task: TaskSpec.patch(spec.task!, { forceUpdate: 1 }) }),
  );
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1"], "an update is attempted at once");
});
