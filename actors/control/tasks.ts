/** Control's task methods. */
import { matchesTask, unknownTaskFilter } from "../../machines/list-filters.ts";
import { invalid } from "../../machines/refusal.ts";
import { isUpToDate } from "../../machines/orchestration/task-dirty.ts";
import {
  GetTaskResponse,
  ListTasksResponse,
  RemoveTaskResponse,
  type ListTasksRequest_Filters,
  type Task,
} from "../../proto/gen/messages.ts";
import { demandGiven, notFound, rejection } from "./answer.ts";
import { candidates } from "./candidates.ts";
import type { ControlHandlers } from "./handlers.ts";
import { commit, removal, type WriteEnvironment } from "./write.ts";

type TaskHandlers = Pick<ControlHandlers, "GetTask" | "ListTasks" | "RemoveTask">;

export function taskHandlers(env: WriteEnvironment): TaskHandlers {
  const { store } = env;

  function taskOf(id: string): Task {
    demandGiven(id);
    const task = store.get("task", id);
    if (task === undefined) throw notFound("task", id);
    return task;
  }

  /** The smallest set that contains every match: an index if the filter names one. */
  function* selected(filters: ListTasksRequest_Filters): Iterable<Task> {
    if (filters.serviceIds.length > 0) {
      for (const id of new Set(filters.serviceIds)) yield* store.tasksByService(id);
    } else if (filters.nodeIds.length > 0) {
      for (const id of new Set(filters.nodeIds)) yield* store.tasksByNode(id);
    } else {
      yield* candidates(store, "task", filters);
    }
  }

  return {
    GetTask({ taskId }) {
      return GetTaskResponse.create({ task: taskOf(taskId) });
    },

    ListTasks({ filters }) {
      // One turn of a manager with many tasks: nothing is done for each that is not asked for.
      if (filters === null) return ListTasksResponse.create({ tasks: [...store.all("task")] });
      const unknown = unknownTaskFilter(filters);
      if (unknown !== null) throw rejection(invalid(unknown));
      const isCurrent = (task: Task): boolean => isUpToDate(task, store.get("service", task.serviceId));
      const tasks: Task[] = [];
      for (const task of selected(filters)) {
        if (matchesTask(filters, task, isCurrent)) tasks.push(task);
      }
      return ListTasksResponse.create({ tasks });
    },

    async RemoveTask({ taskId }, call) {
      taskOf(taskId);
      await commit(env, call, removal("task", taskId));
      return RemoveTaskResponse.create({});
    },
  };
}
