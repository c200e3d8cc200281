// The life of a task: the chart, the table compiled from it and the table in docs/model.md are equal, and the ledger accepts
// nothing else.
import { readFileSync } from "node:fs";
import test from "ava";
import fc from "fast-check";
import { initialTransition, transition } from "xstate";
import {
  mayAdvance,
  mayDesire,
  maySet,
  moverOf,
  stateAfter,
  taskMachine,
  type TaskEvent,
  type TaskMover,
} from "../../machines/task.machine.ts";
import { decide } from "../../machines/ledger/proposals.ts";
import { desired, moved } from "../../machines/task-moves.ts";
import { isEnded, isHeld, isSameStatus, isSpent } from "../../machines/task.ts";
import { ContainerStatus, PortConfig, PortStatus, TaskState, TaskStatus, Timestamp } from "../../proto/gen/messages.ts";
import { Staging } from "../../runtime/store/staging.ts";
import { meta, patchOperation, put, replicaOf, task, update, Writer } from "./store-kit.ts";

const observed = Object.keys(taskMachine.config.states ?? {}) as (keyof typeof TaskState)[];
const events = Object.keys(stateAfter) as TaskEvent["type"][];
const movers = [...new Set(events.map(moverOf))];

/** Where the event leads in the chart; null: the state does not handle it. */
function lead(from: keyof typeof TaskState, event: TaskEvent["type"]): keyof typeof TaskState | null {
  const snapshot = taskMachine.resolveState({ value: from });
  const [next] = transition(taskMachine, snapshot, { type: event });
  return next.value === from ? null : (next.value as keyof typeof TaskState);
}

test("every observed state of SwarmKit is in the chart, and REMOVE, which is only desired, is not", (t) => {
  t.deepEqual([...observed, "REMOVE"].sort(), Object.keys(TaskState).sort());
  t.is(initialTransition(taskMachine)[0].value, "NEW");
});

test("the compiled table equals the chart", (t) => {
  for (const from of observed) {
    const reached = new Set<string>();
    for (const event of events) {
      const to = lead(from, event);
      if (to === null) continue;
      t.is(stateAfter[event], TaskState[to], `${event} leads to ${to}`);
      reached.add(`${moverOf(event)} ${to}`);
    }
    for (const by of movers) {
      for (const to of observed) {
        t.is(mayAdvance(TaskState[from], TaskState[to], by), reached.has(`${by} ${to}`), `${from} to ${to} by ${by}`);
      }
    }
  }
});

test("no event leads back, and none leads out of a final state", (t) => {
  for (const from of observed) {
    for (const event of events) {
      const to = lead(from, event);
      if (to === null) continue;
      t.true(TaskState[to] > TaskState[from], `${event} in ${from}`);
      t.false(isEnded(TaskState[from]), `${event} in ${from}`);
    }
  }
});

test("docs/model.md shows the same owners", (t) => {
  const text = readFileSync(new URL("../../docs/model.md", import.meta.url), "utf8");
  const section = text.split("## Who moves a task")[1]?.split("\n## ")[0] ?? "";
  const documented = new Set<string>();
  for (const [, from, to, by] of section.matchAll(/^\| ([A-Z, ]+) \| ([A-Z, ]+) \| (\w+) \|/gm)) {
    for (const a of (from as string).split(", ")) {
      for (const b of (to as string).split(", ")) {
        if (TaskState[b as keyof typeof TaskState] > TaskState[a as keyof typeof TaskState])
          documented.add(`${a} ${b} ${by}`);
      }
    }
  }
  const actual = new Set<string>();
  for (const from of observed) {
    for (const to of observed) {
      for (const by of movers)
        if (mayAdvance(TaskState[from], TaskState[to], by as TaskMover)) actual.add(`${from} ${to} ${by}`);
    }
  }
  t.deepEqual([...documented].sort(), [...actual].sort());
});

test("docs/model.md shows only desired states that may follow", (t) => {
  const text = readFileSync(new URL("../../docs/model.md", import.meta.url), "utf8");
  const section = text.split("## Who moves the desired state")[1]?.split("\n## ")[0] ?? "";
  const rows = [...section.matchAll(/^\| ([A-Z, ]+|\(new\)|any) \| ([A-Z, ]+) \|/gm)];
  t.true(rows.length >= 10);
  for (const [row, from, to] of rows) {
    const before = from === "(new)" ? ["NEW"] : from === "any" ? ["READY", "SHUTDOWN"] : (from as string).split(", ");
    for (const a of before) {
      for (const b of (to as string).split(", "))
        t.true(mayDesire(TaskState[a as keyof typeof TaskState], TaskState[b as keyof typeof TaskState]), row);
    }
  }
});

/** Every number that a status can have, as far as it matters: all states, and unknown ones between and beyond them. */
const numbers = [...new Set([...Object.values(TaskState), -1, 1, 513, 800, 900, 2 ** 31 - 1])];

test("a mover restates only what it moves tasks out of, and a node also what it reported", (t) => {
  for (const by of movers) {
    const own = new Set<number>();
    for (const from of observed) {
      for (const event of events) {
        const to = moverOf(event) === by ? lead(from, event) : null;
        if (to !== null) own.add(TaskState[from]);
        if (to !== null && by === "node") own.add(TaskState[to]);
      }
    }
    for (const from of numbers) {
      for (const to of numbers) {
        const expected = from === to ? own.has(from) : mayAdvance(from as TaskState, to as TaskState, by);
        t.is(maySet(from as TaskState, to as TaskState, by), expected, `${from} to ${to} by ${by}`);
      }
    }
  }
});

test("T2: each transition has one owner among the parts of a manager, so the ledger needs no name", (t) => {
  const ofManagers = movers.filter((by) => by !== "node");
  for (const from of numbers as TaskState[]) {
    for (const to of numbers as TaskState[]) {
      const owners = ofManagers.filter((by) => mayAdvance(from, to, by));
      t.true(owners.length <= 1, `${from} to ${to}`);
      const may = ofManagers.some((by) => maySet(from, to, by));
      t.is(maySet(from, to, "anyManager"), may, `${from} to ${to}`);
    }
  }
});

/** A state of the store with task t1 on node n1. */
function storeWith(state: TaskState): Staging {
  const writer = new Writer();
  writer.write([put({ task: task("t1", { nodeId: "n1", status: TaskStatus.create({ state }) }) })]);
  return new Staging(replicaOf(writer));
}

test("from every state, the ledger accepts of each mover only what the chart allows", (t) => {
  for (const from of observed.map((name) => TaskState[name])) {
    const view = storeWith(from);
    for (const to of numbers as TaskState[]) {
      const status = TaskStatus.create({ state: to, message: "news" });
      const report = patchOperation({ id: "t1", status }, "n1");
      t.is(decide(view, report).kind === "change", maySet(from, to, "node"), `${from} to ${to} by the node`);
      const bare = patchOperation({ id: "t1", status });
      t.is(decide(view, bare).kind === "change", maySet(from, to, "anyManager"), `${from} to ${to} by a manager`);
      const whole = update({ task: task("t1", { nodeId: "n1", status, meta: meta(1) }) });
      const isAllowed = from === to || maySet(from, to, "anyManager");
      t.is(decide(view, whole).kind === "change", isAllowed, `${from} to ${to} as a whole`);
      const stored = view.get("task", "t1") ?? task("t1");
      for (const by of movers) {
        if (!maySet(from, to, by)) t.throws(() => moved(stored, by, status), { message: /^T2: / });
        else if (by !== "node")
          t.is(decide(view, moved(stored, by, status)).kind, "change", `${from} to ${to} by ${by}`);
      }
    }
  }
});

test("T3: the ledger raises the desired state only, and to known states only", (t) => {
  const desirable = [TaskState.READY, TaskState.RUNNING, TaskState.COMPLETE, TaskState.SHUTDOWN, TaskState.REMOVE];
  for (const from of [TaskState.NEW, ...desirable]) {
    const writer = new Writer();
    writer.write([put({ task: task("t1", { desiredState: from }) })]);
    const view = new Staging(replicaOf(writer));
    for (const to of numbers as TaskState[]) {
      const expected = to > from && desirable.includes(to as (typeof desirable)[number]);
      t.is(mayDesire(from, to), expected, `${from} to ${to}`);
      t.is(
        decide(view, patchOperation({ id: "t1", desiredState: to })).kind === "change",
        expected,
        `${from} to ${to}`,
      );
      const stored = view.get("task", "t1") ?? task("t1");
      if (expected) t.is(decide(view, desired(stored, to)).kind, "change");
      else t.throws(() => desired(stored, to), { message: /^T3: / });
      const whole = update({ task: task("t1", { desiredState: to, meta: meta(1) }) });
      t.is(decide(view, whole).kind === "change", expected || from === to, `${from} to ${to} as a whole`);
    }
  }
});

test("whatever a node reports, its task only takes states that a node may set, and never a lower one", (t) => {
  const reports = fc.array(fc.oneof(fc.constantFrom(...numbers), fc.integer({ min: -2, max: 1_000 })), {
    maxLength: 30,
  });
  fc.assert(
    fc.property(fc.constantFrom(TaskState.NEW, TaskState.PENDING, TaskState.ASSIGNED), reports, (first, all) => {
      const view = storeWith(first);
      let before: TaskState = first;
      for (const state of all as TaskState[]) {
        const status = TaskStatus.create({ state, message: "news" });
        const decision = decide(view, patchOperation({ id: "t1", status }, "n1"));
        if (decision.kind === "change") view.stage(decision.change);
        const after = view.get("task", "t1")?.status?.state ?? TaskState.NEW;
        t.true(after >= before, `${before} to ${after}`);
        if (after !== first) t.true(after > TaskState.ASSIGNED && after <= TaskState.REJECTED, String(after));
        t.true(
          observed.some((name) => TaskState[name] === after),
          String(after),
        );
        before = after;
      }
      if (first !== TaskState.ASSIGNED) t.is(before, first, "no node has it yet");
    }),
    { numRuns: 300 },
  );
});

test("two statuses are the same only if they agree in all that a node reports", (t) => {
  const ports = (publishedPort: number) =>
    PortStatus.create({ ports: [PortConfig.create({ name: "http", publishedPort, targetPort: 80 })] });
  const container = ContainerStatus.create({ containerId: "c", pid: 7, exitCode: 0 });
  const status = TaskStatus.create({
    state: TaskState.RUNNING,
    message: "started",
    timestamp: Timestamp.create({ seconds: 1, nanos: 2 }),
    container,
    portStatus: ports(30_001),
  });
  t.true(isSameStatus(status, TaskStatus.decode(TaskStatus.encode(status))));
  t.true(
    isSameStatus(status, TaskStatus.patch(status, { appliedBy: "m1", appliedAt: Timestamp.create({ seconds: 9 }) })),
  );
  const others: readonly Partial<TaskStatus>[] = [
    { state: TaskState.FAILED },
    { message: "healthy" },
    { err: "unhealthy" },
    { timestamp: Timestamp.create({ seconds: 2, nanos: 2 }) },
    { timestamp: Timestamp.create({ seconds: 1, nanos: 3 }) },
    { timestamp: null },
    { container: null },
    { container: ContainerStatus.patch(container, { containerId: "d" }) },
    { container: ContainerStatus.patch(container, { pid: 8 }) },
    { container: ContainerStatus.patch(container, { exitCode: 1 }) },
    { portStatus: null },
    { portStatus: PortStatus.create({}) },
    { portStatus: ports(30_002) },
  ];
  for (const fields of others) {
    const other = TaskStatus.patch(status, fields);
    t.false(isSameStatus(status, other), JSON.stringify(fields));
    t.false(isSameStatus(other, status), JSON.stringify(fields));
  }
});

test("held, ended and spent match their definitions", (t) => {
  t.deepEqual(
    observed.filter((name) => isHeld(TaskState[name])),
    ["ASSIGNED", "ACCEPTED", "PREPARING", "READY", "STARTING", "RUNNING"],
  );
  t.deepEqual(
    observed.filter((name) => isEnded(TaskState[name])),
    ["COMPLETE", "SHUTDOWN", "FAILED", "REJECTED", "ORPHANED"],
  );
  t.deepEqual(
    observed.filter((name) => isSpent(TaskState[name])),
    ["COMPLETE", "FAILED", "REJECTED"],
  );
});
