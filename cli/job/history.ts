/** The iterations of a job whose tasks still exist, newest first. */
import { observedState } from "../../machines/task.ts";
import { TaskState, type Task, type Timestamp } from "../../proto/gen/messages.ts";
import type { Row } from "../table.ts";

const failures: readonly TaskState[] = [TaskState.FAILED, TaskState.REJECTED, TaskState.ORPHANED];

export function iterationRows(tasks: readonly Task[], ago: (time: Timestamp | null) => string): readonly Row[] {
  const iterations = [...Map.groupBy(tasks, (task) => task.jobIteration?.index ?? 0)].toSorted(([a], [b]) => b - a);
  return iterations.map(([iteration, own]) => {
    const states = own.map((task) => observedState(task));
    const completed = states.filter((state) => state === TaskState.COMPLETE).length;
    const failed = states.filter((state) => failures.includes(state)).length;
    const first = own.reduce((oldest, task) => (createdAt(task) < createdAt(oldest) ? task : oldest));
    const row = { iteration, tasks: own.length, completed, failed };
    return {
      id: String(iteration),
      cells: [
        String(iteration),
        ago(first.meta?.createdAt ?? null),
        String(completed),
        String(failed),
        String(own.length - completed - failed),
      ],
      object: () => row,
    };
  });
}

function createdAt({ meta }: Task): number {
  return (meta?.createdAt?.seconds ?? 0) + (meta?.createdAt?.nanos ?? 0) / 1e9;
}
