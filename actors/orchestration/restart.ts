/** Hosts the restart supervisor: starts successors that are desired READY when their delay is over. */
import { releaseOf, restartMachine, type RestartVerdict } from "../../machines/orchestration/restart.machine.ts";
import { desired } from "../../machines/task-moves.ts";
import { isEnded, isWanted, observedState } from "../../machines/task.ts";
import { TaskState, type Node, type Task } from "../../proto/gen/messages.ts";
import type { Environment } from "../environment.ts";
import { roundTasksMax, slotKey, type Part, type Writer } from "./part.ts";
import { Reconciler, type Round } from "./reconciler.ts";
import { TaskWrites } from "./task-writes.ts";

export function startRestart(env: Environment, writer: Writer): Part {
  const { store } = env;
  /** Ids of waiting successors, by slot. A slot has at most one for longer than a commit. */
  const waiting = new Map<string, string>();
  /** When each is checked again, by task id, in milliseconds of the monotonic clock. */
  const deadlines = new Map<string, number>();
  const touched = new Set<string>();
  const nodeOf = (id: string): Node | undefined => store.get("node", id);

  function note(task: Task): void {
    if (task.desiredState !== TaskState.READY || isEnded(observedState(task))) return;
    waiting.set(slotKey(task), task.id);
    touched.add(task.id);
    loop.note();
  }

  function forget(task: Task): void {
    const key = slotKey(task);
    if (waiting.get(key) === task.id) waiting.delete(key);
    deadlines.delete(task.id);
    touched.delete(task.id);
  }

  function release(): Round<RestartVerdict> {
    const nowMs = env.clock.now();
    const atMs = env.clock.monotonic();
    for (const [id, dueMs] of deadlines) if (dueMs <= atMs) touched.add(id);
    for (const id of touched) {
      if (raises.size === roundTasksMax) break;
      touched.delete(id);
      deadlines.delete(id);
      const task = store.get("task", id);
      if (task === undefined || task.desiredState !== TaskState.READY || isEnded(observedState(task)) || raises.has(id))
        continue;
      const slot = [...store.tasksAt(task.serviceId, task.slot, task.nodeId)];
      const outcome = releaseOf(task, slot, nowMs, nodeOf, env.times);
      if (outcome.kind === "wait") deadlines.set(id, atMs + outcome.untilMs - nowMs);
      else raises.add(desired(task, task.jobIteration === null ? TaskState.RUNNING : TaskState.COMPLETE));
    }
    raises.flush(() => loop.commitEnded());
    let nextMs = -1;
    for (const dueMs of deadlines.values()) {
      const inMs = Math.max(0, Math.ceil(dueMs - atMs));
      if (nextMs < 0 || inMs < nextMs) nextMs = inMs;
    }
    return { verdict: { nextMs, isPartial: touched.size > 0 } };
  }

  const raises = new TaskWrites(env, writer, (_, stored) => {
    if (stored !== undefined) note(stored);
  });
  const loop = new Reconciler(env, {
    machine: restartMachine,
    id: `restart/${env.managerId}`,
    input: undefined,
    decide: release,
  });
  for (const task of store.all("task")) note(task);
  loop.commitEnded();

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
      loop.note();
    },

    nodeChanged() {
      for (const id of waiting.values()) touched.add(id);
      if (waiting.size > 0) loop.note();
    },

    commitEnded: () => loop.commitEnded(),
    stop: () => loop.stop(),
  };
}
