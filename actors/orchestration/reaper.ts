/** Hosts the reaper: tracks the slots in which a task ended, and deletes tasks that are over. */
import {
  historyLimitDefault,
  isAbandoned,
  neverPlacedMessage,
  reapable,
  reaperMachine,
} from "../../machines/orchestration/reaper.machine.ts";
import { iterationOf } from "../../machines/orchestration/jobs/places.ts";
import { moved } from "../../machines/task-moves.ts";
import { isEnded, isRunning, isWanted, observedState } from "../../machines/task.ts";
import { isJob } from "../../machines/orchestration/service-mode.ts";
import { TaskState, TaskStatus, type Node, type Task } from "../../proto/gen/messages.ts";
import type { Environment } from "../environment.ts";
import { deletion, now, roundTasksMax, slotKey, type Part, type Writer } from "./part.ts";
import { Reconciler, type Round } from "./reconciler.ts";
import { TaskWrites } from "./task-writes.ts";

export function startReaper(env: Environment, writer: Writer): Part {
  const { store } = env;
  const reaped = env.telemetry.metrics.counter("muster_reaper_deleted_total", "Ended tasks that were deleted.");
  /** One task of each slot, by slot. */
  const touched = new Map<string, Task>();
  const hasNode = (id: string): boolean => store.get("node", id) !== undefined;

  function touch(task: Task): void {
    // Slot 0 is keyed by node, even for a replicated job: without the service, nothing distinguishes the two.
    touched.set(task.slot === 0 ? `${task.serviceId}@${task.nodeId}` : slotKey(task), task);
    loop.note();
  }

  function historyLimit(): number {
    const [cluster] = store.all("cluster");
    return cluster?.spec?.orchestration?.taskHistoryRetentionLimit ?? historyLimitDefault;
  }

  function reap(): Round<{ readonly isPartial: boolean }> {
    const limit = historyLimit();
    const ended = TaskStatus.create({ state: TaskState.SHUTDOWN, message: neverPlacedMessage, timestamp: now(env) });
    let left = roundTasksMax;
    for (const [key, { serviceId, slot, nodeId }] of touched) {
      if (left <= 0) break;
      touched.delete(key);
      const tasks: Task[] = [];
      for (const task of store.tasksAt(serviceId, slot, nodeId)) if (!writes.has(task.id)) tasks.push(task);
      left -= tasks.length;
      const service = serviceId === "" ? undefined : store.get("service", serviceId);
      const hasService = service !== undefined;
      const jobIteration = hasService && isJob(service.spec) ? iterationOf(service) : undefined;
      // Tasks without a service have no history to keep.
      const historyLimit = serviceId === "" ? -1 : limit;
      for (const task of reapable({ tasks, historyLimit, hasService, hasNode, jobIteration })) {
        writes.add(deletion(task));
      }
      for (const task of tasks) {
        if (isAbandoned(task) && !writes.has(task.id)) writes.add(moved(task, "reaper", ended));
      }
    }
    writes.flush(() => loop.commitEnded());
    return { verdict: { isPartial: touched.size > 0 } };
  }

  const writes = new TaskWrites(env, writer, ({ remove }, stored) => {
    if (stored === undefined) reaped.add();
    // A failed write is still to be done.
    else if (remove !== null || isAbandoned(stored)) touch(stored);
  });
  const loop = new Reconciler(env, {
    machine: reaperMachine,
    id: `reaper/${env.managerId}`,
    input: undefined,
    decide: reap,
  });
  for (const task of store.all("task")) if (!isWanted(task) || isEnded(observedState(task))) touch(task);
  loop.commitEnded();

  return {
    taskChanged(old, task) {
      if (task === null) return;
      const state = observedState(task);
      if (old !== null && observedState(old) === state && old.desiredState === task.desiredState) return;
      // A running successor releases its predecessor.
      if (!isWanted(task) || isEnded(state) || isRunning(task)) touch(task);
    },

    nodeChanged(old, node) {
      if (node !== null) return;
      for (const task of store.tasksByNode((old as Node).id)) touch(task);
    },

    clusterChanged(old, cluster) {
      const before = old?.spec?.orchestration?.taskHistoryRetentionLimit;
      if (before === cluster?.spec?.orchestration?.taskHistoryRetentionLimit) return;
      for (const task of store.all("task")) touch(task);
    },

    commitEnded: () => loop.commitEnded(),
    stop: () => loop.stop(),
  };
}
