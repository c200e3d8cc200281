/** Whether a service's update or rollback is in progress, so that tasks with the old spec are intended. */
import { UpdateStatus_UpdateState, type Service } from "../../../proto/gen/messages.ts";

const rolloutStates: ReadonlySet<UpdateStatus_UpdateState> = new Set([
  UpdateStatus_UpdateState.UPDATING,
  UpdateStatus_UpdateState.PAUSED,
  UpdateStatus_UpdateState.ROLLBACK_STARTED,
  UpdateStatus_UpdateState.ROLLBACK_PAUSED,
]);

/** True also while it is paused. */
export function isRollingOut({ updateStatus }: Service): boolean {
  return rolloutStates.has(updateStatus?.state ?? UpdateStatus_UpdateState.UNKNOWN);
}
