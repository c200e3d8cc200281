/**
 * Invariants of tasks with a health check, by what their driver has observed.
 *
 * S45: no task is RUNNING unless its check has passed.
 * L8: at rest every RUNNING task with a check is healthy: unhealthy ones were replaced.
 */
import { healthOf } from "../../machines/driver/health-spec.ts";
import { TaskState } from "../../proto/gen/messages.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";
import type { SimDrivers } from "../nodes/drivers.ts";

/** S45. `drivers`: of all nodes. */
export function checkProven(
  commit: Commit,
  drivers: readonly SimDrivers[],
  mark: (name: string) => void,
): string | null {
  for (const change of commit.changes) {
    if (change.table !== "task" || change.action === "remove") continue;
    const { id, spec, status } = change.object;
    if (healthOf(spec) === null) continue;
    if (status?.state === TaskState.FAILED && status.message === "unhealthy") mark("checked.unhealthy");
    if (status?.state !== TaskState.RUNNING) continue;
    if (!drivers.some((each) => each.isProven(id))) return `S45: task ${id} is RUNNING although its check never passed`;
  }
  return null;
}

/** Why not every task with a check is healthy, or null. L8 */
export function findUnwell(
  store: Store,
  drivers: readonly SimDrivers[],
  isReady: (nodeId: string) => boolean,
): string | null {
  for (const { desiredState, id, nodeId, spec, status } of store.all("task")) {
    const isMeant = desiredState === TaskState.RUNNING && status?.state === TaskState.RUNNING;
    if (!isMeant || healthOf(spec) === null || !isReady(nodeId)) continue;
    if (!drivers.some((each) => each.isWell(id))) return `L8: task ${id} is RUNNING but unhealthy`;
  }
  return null;
}
