// The life of a task: the chart, the table compiled from it and the table in docs/model.md are equal.
import { readFileSync } from "node:fs";
import test from "ava";
import { initialTransition, transition } from "xstate";
import {
  mayAdvance,
  moverOf,
  stateAfter,
  taskMachine,
  type TaskEvent,
  type TaskMover,
} from "../../machines/task.machine.ts";
import { isEnded, isHeld, isSpent } from "../../machines/task.ts";
import { TaskState } from "../../proto/gen/messages.ts";

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
