/** A rollout according to the store, for its host on the leader and for requests to other managers. */
import type { LogTimes } from "../../machines/elapsed.ts";
import { explainRollout } from "../../machines/orchestration/rollout/explain.ts";
import { settingsOf } from "../../machines/orchestration/rollout/settings.ts";
import { isRollback, recordOf } from "../../machines/orchestration/rollout/status.ts";
import { RolloutTracker } from "../../machines/orchestration/rollout/tracker.ts";
import { TaskDirty } from "../../machines/orchestration/task-dirty.ts";
import { Operation, Rollout, StoreObject, type Reason, type Service } from "../../proto/gen/messages.ts";
import type { Store } from "../../runtime/store/store.ts";

/** The tracker of a service's rollout, built from the store. `record`: null while it has not begun. */
export function trackerOf(
  store: Store,
  service: Service,
  record: Rollout | null,
  nowMs: number,
  times: LogTimes,
): RolloutTracker {
  return new RolloutTracker(
    {
      service,
      settings: settingsOf(service, isRollback(service)),
      record,
      times,
      taskDirty: new TaskDirty(),
      nodeOf: (id) => store.get("node", id),
      tasksAt: (slot, nodeId) => [...store.tasksAt(service.id, slot, nodeId)],
    },
    store.tasksByService(service.id),
    nowMs,
  );
}

/** Why the service's rollout is waiting; null without a rollout. */
export function whyRollout(store: Store, service: Service, nowMs: number, times: LogTimes): Reason | null {
  const record = recordOf(service, store.get("rollout", service.id));
  return explainRollout(service, record, trackerOf(store, service, record, nowMs, times).describe(nowMs));
}

/** R4. `before`: the service on which the decision was based. */
export function writeOperations(
  store: Store,
  after: Service | null,
  record: Rollout | null,
  before: Service,
): readonly Operation[] {
  const operations: Operation[] = [];
  if (after !== null) operations.push(Operation.create({ update: StoreObject.create({ service: after }) }));
  if (record !== null) {
    const stored = store.get("rollout", before.id);
    const next = Rollout.patch(record, { meta: stored?.meta ?? null });
    const object = StoreObject.create({ rollout: next });
    operations.push(Operation.create(stored === undefined ? { create: object } : { update: object }));
  }
  return operations;
}
