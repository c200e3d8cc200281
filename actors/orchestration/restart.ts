/** Hosts the restart supervisor: starts successors that are desired READY when their delay is over. */
import { releaseOf, restartMachine } from "../../machines/orchestration/restart.machine.ts";
import { isEnded, isWanted, observedState } from "../../machines/task.ts";
import { TaskState, type Node, type Operation, type Task } from "../../proto/gen/messages.ts";
import type { Environment } from "../environment.ts";
import { sendSoon } from "../send-soon.ts";
import { desire, roundTasksMax, slotKey, type Part, type Writer } from "./part.ts";

export function startRestart(env: Environment, writer: Writer): Part {
  const { store } = env;
  /** Ids of waiting successors, by slot. A slot has at most one for longer than a commit. */
  const waiting = new Map<string, string>();
  /** When each is checked again, by task id, in milliseconds of the monotonic clock. */
  const deadlines = new Map<string, number>();
  const touched = new Set<string>();
  const raising = new Set<string>();
  let hasNews = false;
  const nodeOf = (id: string): Node | undefined => store.get("node", id);

  function note(task: Task): void {
    if (task.desiredState !== TaskState.READY || isEnded(observedState(task))) return;
    waiting.set(slotKey(task), task.id);
    touched.add(task.id);
    hasNews = true;
  }

  function forget(task: Task): void {
    const key = slotKey(task);
    if (waiting.get(key) === task.id) waiting.delete(key);
    deadlines.delete(task.id);
    touched.delete(task.id);
  }

  function release(): number {
    const nowMs = env.clock.now();
    const atMs = env.clock.monotonic();
    for (const [id, dueMs] of deadlines) if (dueMs <= atMs) touched.add(id);
    const operations: Operation[] = [];
    for (const id of touched) {
      if (operations.length === roundTasksMax) break;
      touched.delete(id);
      deadlines.delete(id);
      const task = store.get("task", id);
      if (
        task === undefined ||
        task.desiredState !== TaskState.READY ||
        isEnded(observedState(task)) ||
        raising.has(id)
      )
        continue;
      const slot = [...store.tasksAt(task.serviceId, task.slot, task.nodeId)];
      const outcome = releaseOf(task, slot, nowMs, nodeOf, env.times);
      if (outcome.kind === "wait") deadlines.set(id, atMs + outcome.untilMs - nowMs);
      else {
        raising.add(id);
        operations.push(desire(task, task.jobIteration === null ? TaskState.RUNNING : TaskState.COMPLETE));
      }
    }
    if (operations.length > 0) write(operations);
    if (touched.size > 0) return 0;
    let nextMs = -1;
    for (const dueMs of deadlines.values()) {
      const inMs = Math.max(0, Math.ceil(dueMs - atMs));
      if (nextMs < 0 || inMs < nextMs) nextMs = inMs;
    }
    return nextMs;
  }

  function write(operations: readonly Operation[]): void {
    writer.write(operations, () => {
      for (const { task } of operations) {
        if (task === null) continue;
        raising.delete(task.id);
        const stored = store.get("task", task.id);
        if (stored !== undefined) note(stored);
      }
      tell();
    });
  }

  function tell(): void {
    if (!hasNews) return;
    hasNews = false;
    hostedActor.actor.send({ type: "slots.touched" });
  }

  const hostedActor = env.host.start(
    restartMachine.provide({
      actions: {
        gather: ({ self }) => sendSoon(env.clock, self, { type: "round.due" }),
        release: ({ self }) => self.send({ type: "round.done", nextMs: release() }),
      },
    }),
    `restart/${env.managerId}`,
    undefined,
  );
  for (const task of store.all("task")) note(task);
  tell();

  return {
    taskChanged(old, task) {
      if (task !== null && task.desiredState === TaskState.READY) {
        if (old === null || isEnded(observedState(task))) (isEnded(observedState(task)) ? forget : note)(task);
        return;
      }
      if (waiting.size === 0) return;
      const some = (task ?? old) as Task;
      if (old?.desiredState === TaskState.READY) forget(some);
      // A predecessor that ended, is no longer wanted, or was removed.
      if (task !== null && isWanted(task) && !isEnded(observedState(task))) return;
      const successor = waiting.get(slotKey(some));
      if (successor === undefined || successor === some.id) return;
      touched.add(successor);
      hasNews = true;
    },

    nodeChanged() {
      for (const id of waiting.values()) touched.add(id);
      hasNews ||= waiting.size > 0;
    },

    commitEnded: tell,
    stop: () => hostedActor.stop(),
  };
}
