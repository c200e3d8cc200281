/** Waits for a state of the cluster, for a request that is answered only then. */
import { TaskState, type Task } from "../../proto/gen/messages.ts";
import type { Backend } from "./request.ts";

/** Whether the task has ended or was removed. */
export function isOver(task: Task | undefined): boolean {
  return task === undefined || (task.status?.state ?? TaskState.NEW) > TaskState.RUNNING;
}

/** `isMet` is asked after each change. Resolves also when the client is gone, and after `msMax`. */
export function untilMet(
  { clock, store }: Backend,
  signal: AbortSignal,
  isMet: () => boolean,
  msMax = Number.POSITIVE_INFINITY,
): Promise<void> {
  return new Promise((resolve) => {
    if (isMet()) return resolve();
    const finish = (): void => {
      watching.unsubscribe();
      signal.removeEventListener("abort", finish);
      if (timer !== null) clock.clearTimeout(timer);
      resolve();
    };
    const watching = store.watch(() => isMet() && finish());
    const timer = Number.isFinite(msMax) ? clock.setTimeout(finish, msMax) : null;
    signal.addEventListener("abort", finish, { once: true });
  });
}
