/** Whether a job has finished, judged as the manager does, from the service, its tasks and the nodes only. Pure. */
import { isOfIteration, iterationOf } from "../../machines/orchestration/jobs/places.ts";
import { progressOf } from "../../machines/orchestration/jobs/progress.ts";
import { TaskState, type Node, type Service, type Task } from "../../proto/gen/messages.ts";

export type Convergence =
  /**
   * `isProven`: no monitoring is needed, because the manager has done it or the service is a job. `done` is less than `wanted`
   * when the manager completed the update although some tasks failed or ended.
   */
  | { readonly kind: "converged"; readonly done: number; readonly wanted: number; readonly isProven: boolean }
  /** `remark`: why the slowest task is not running yet; empty when unknown. */
  | { readonly kind: "moving"; readonly done: number; readonly wanted: number; readonly remark: string }
  | { readonly kind: "failed"; readonly reason: string };

/** A schedule converges as soon as it exists: its runs are separate jobs. */
export function jobConvergence(service: Service, tasks: readonly Task[], nodes: readonly Node[]): Convergence {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const { phase, done, failed, total } = progressOf(service, tasks, {
    nodeOf: (id) => byId.get(id),
    nodes: () => nodes,
  });
  switch (phase) {
    case "succeeded":
    case "scheduled":
      return { kind: "converged", done: total, wanted: total, isProven: true };
    case "failed":
      return {
        kind: "failed",
        reason: `${failed} of ${total} tasks of the job failed for good${lastWords(service, tasks)}`,
      };
    case "paused":
    case "stopped":
      return { kind: "failed", reason: `the job is ${phase}: ${done} of ${total} tasks are complete` };
    case "working": {
      const waiting = tasks.findLast((task) => isOurs(service, task) && !isComplete(task) && words(task) !== "");
      return { kind: "moving", done, wanted: total, remark: waiting === undefined ? "" : words(waiting) };
    }
  }
}

function isOurs(service: Service, task: Task): boolean {
  return isOfIteration(task, iterationOf(service));
}

function isComplete({ status }: Task): boolean {
  return status?.state === TaskState.COMPLETE;
}

function words({ status }: Task): string {
  return status?.err ?? "";
}

function lastWords(service: Service, tasks: readonly Task[]): string {
  const last = tasks.findLast((task) => isOurs(service, task) && !isComplete(task) && words(task) !== "");
  return last === undefined ? "" : `: ${words(last)}`;
}
