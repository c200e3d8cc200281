import test from "ava";
import { LogMemory } from "../../simulation/invariants/log.ts";
import {
  Annotations,
  Meta,
  ReplicatedService,
  Service,
  ServiceSpec,
  Task,
  TaskState,
  TaskStatus,
  Version,
} from "../../proto/gen/messages.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import type { Commit, ObjectChange } from "../../runtime/store/store.ts";
import { testManager } from "../support/manager.ts";
import {
  checkAcknowledged,
  checkSameState,
  checkSlots,
  checkStatesGrow,
  checkVersionGrows,
  findUnconverged,
} from "../../simulation/invariants/always.ts";

function task(id: string, fields: Partial<Task> & { readonly state?: TaskState } = {}): Task {
  const { state = TaskState.RUNNING, ...rest } = fields;
  return Task.create({
    id,
    serviceId: "s",
    slot: 1,
    nodeId: "n",
    desiredState: TaskState.RUNNING,
    status: TaskStatus.create({ state }),
    ...rest,
  });
}

function commit(version: number, ...changes: ObjectChange[]): Commit {
  return { version, time: 0, changes, causes: [] };
}

function change(object: Task, old: Task | null = null): ObjectChange {
  return { table: "task", action: old === null ? "create" : "update", object, old };
}

test("S1: two assigned tasks in one slot are wrong, and one without a node does not count", (t) => {
  const { store, seed } = testManager();
  const [one, two] = [task("t1"), task("t2")];
  seed("task", one, two);
  const both = commit(1, change(one), change(two));
  t.regex(checkSlots(both, store) ?? "", /^S1: slot 1 of s has t1 and t2/);
  seed("task", Task.patch(two, { nodeId: "" }));
  t.is(checkSlots(both, store), null);
});

test("S1: a task that is stopping, or has stopped, leaves its slot", (t) => {
  const { store, seed } = testManager();
  const tasks = [task("t1"), task("t2", { desiredState: TaskState.SHUTDOWN }), task("t3", { state: TaskState.FAILED })];
  seed("task", ...tasks);
  const all = commit(1, ...tasks.map((each) => change(each)));
  t.is(checkSlots(all, store), null);
});

test("S2 and S5: neither state of a task decreases", (t) => {
  const old = task("t1");
  t.is(
    checkStatesGrow(commit(2, change(task("t1", { state: TaskState.FAILED, desiredState: TaskState.SHUTDOWN }), old))),
    null,
  );
  t.regex(checkStatesGrow(commit(2, change(task("t1", { state: TaskState.STARTING }), old))) ?? "", /^S2/);
  t.regex(checkStatesGrow(commit(2, change(task("t1", { desiredState: TaskState.READY }), old))) ?? "", /^S5/);
});

test("S3: an acknowledged service is missed from the version on with which it was acknowledged", (t) => {
  const { store, seed } = testManager();
  const write = { table: "service" as const, id: "s", version: 2, mayBeGone: false, holds: () => true };
  seed("task", task("t1"));
  t.is(checkAcknowledged(store, [write]), null);
  seed("task", task("t2"));
  t.regex(checkAcknowledged(store, [write]) ?? "", /^S3/);
  t.is(checkAcknowledged(store, [{ ...write, mayBeGone: true }]), null);
  seed("service", Service.create({ id: "s" }));
  t.is(checkAcknowledged(store, [write]), null);
  t.regex(checkAcknowledged(store, [{ ...write, holds: () => false }]) ?? "", /^S3/);
});

test("S4 and S6: one version has one state, and the next is greater", (t) => {
  const hashes = new Map<number, string>();
  t.is(checkSameState(3, "a", hashes), null);
  t.is(checkSameState(3, "a", hashes), null);
  t.regex(checkSameState(3, "b", hashes) ?? "", /^S4/);
  t.is(checkVersionGrows(commit(4), 3), null);
  t.regex(checkVersionGrows(commit(3), 3) ?? "", /^S6/);
  const ahead = task("t1", { meta: Meta.create({ version: Version.create({ index: 9 }) }) });
  t.regex(checkVersionGrows(commit(4, change(ahead)), 3) ?? "", /^S6/);
});

test("a cluster has converged when each service has its replicas on READY nodes, and nothing else is left", (t) => {
  const { store, seed } = testManager();
  const spec = ServiceSpec.create({
    annotations: Annotations.create({ name: "s" }),
    replicated: ReplicatedService.create({ replicas: 1 }),
  });
  seed("service", Service.create({ id: "s", spec }));
  t.is(
    findUnconverged(store, () => true),
    "service s has 0 of 1 tasks",
  );
  seed("task", task("t1"), task("t0", { state: TaskState.FAILED, desiredState: TaskState.SHUTDOWN }));
  t.is(
    findUnconverged(store, () => true),
    null,
  );
  t.regex(findUnconverged(store, () => false) ?? "", /not READY/);
  seed("task", task("t2", { serviceId: "gone" }));
  t.regex(findUnconverged(store, () => true) ?? "", /left over/);
});

test("S70: a write acknowledged without a mark counts once a mark of the same life covers it", (t) => {
  const failures: string[] = [];
  const memory = new LogMemory((claim) => failures.push(claim));
  const live = () => {
    let tell: (commit: { readonly version: number }) => void = () => {};
    const replica = { checksum: new Uint8Array(), watch: (listener: typeof tell) => void (tell = listener) };
    memory.follow(replica as unknown as Replica);
    return (version: number, record: number): void => {
      replica.checksum = Uint8Array.of(record);
      tell({ version });
    };
  };
  const first = live();
  for (const version of [1, 2, 3]) first(version, version);
  memory.acknowledge(1);
  memory.acknowledge(2, false);
  const second = live();
  second(2, 9);
  t.deepEqual(failures, [], "an unnoticed loss had been announced");
  second(1, 9);
  t.is(failures.length, 1);
  second(3, 3);
  memory.acknowledge(2, false);
  memory.acknowledge(3);
  live()(2, 8);
  t.is(failures.length, 2, "the mark after version 3 covers version 2 as well");
});
