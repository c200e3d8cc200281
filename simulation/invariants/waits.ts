/** Everything that waits in a cluster, according to the store of one manager, with the words for `budgets.ts`. */
import { isJob } from "../../machines/orchestration/service-mode.ts";
import { isEnded, observedState } from "../../machines/task.ts";
import {
  IssuanceStatus_State,
  NodeSpec_Availability,
  NodeStatus_State,
  TaskState,
  UpdateStatus_UpdateState,
} from "../../proto/gen/messages.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { Wait } from "./budgets.ts";
import { findUnfinished } from "./jobs.ts";

const movingStates: readonly UpdateStatus_UpdateState[] = [
  UpdateStatus_UpdateState.UPDATING,
  UpdateStatus_UpdateState.ROLLBACK_STARTED,
];

/** `agents`: names of the nodes whose agents run. */
export function* waitsIn(store: Store, agents: ReadonlySet<string>): Generator<Wait> {
  const reachable = new Set<string>();
  const named = new Set<string>();
  for (const { certificate, description, id, status } of store.all("node")) {
    const name = description?.hostname ?? "";
    named.add(name);
    if (!agents.has(name)) continue;
    if (status?.state === NodeStatus_State.READY) reachable.add(id);
    else yield { kind: "session", what: `node ${name} is in state ${status?.state ?? 0} although its agent runs` };
    const issuance = certificate?.status?.state ?? IssuanceStatus_State.ISSUED;
    if (issuance !== IssuanceStatus_State.ISSUED)
      yield { kind: "certificate", what: `the certificate of ${name} is in state ${issuance}` };
  }
  for (const name of agents)
    if (!named.has(name)) yield { kind: "session", what: `node ${name} has not registered although its agent runs` };
  for (const { rootCa } of store.all("cluster"))
    if (rootCa?.rootRotation != null) yield { kind: "rotation", what: "the root certificate is being rotated" };
  for (const service of store.all("service")) {
    if (service.pendingDelete) yield { kind: "removal", what: `service ${service.id} is being removed` };
    const state = service.updateStatus?.state;
    if (state !== undefined && movingStates.includes(state))
      yield {
        kind: "rollout",
        what: `service ${service.id} is in state ${state} since ${service.meta?.version?.index}`,
      };
    const unfinished = isJob(service.spec) ? findUnfinished(service, store) : null;
    if (unfinished !== null) yield { kind: "job", what: unfinished };
  }
  yield* taskWaits(store, reachable);
}

/** `reachable`: ids of nodes that are READY and whose agents run. */
function* taskWaits(store: Store, reachable: ReadonlySet<string>): Generator<Wait> {
  for (const task of store.all("task")) {
    const state = observedState(task);
    if (isEnded(state)) continue;
    const what = `task ${task.id} is in state ${state}, desired ${task.desiredState}`;
    if (state === TaskState.NEW) yield { kind: "placement", what };
    if (!reachable.has(task.nodeId)) continue;
    const isUnstopped = task.desiredState > TaskState.RUNNING && task.desiredState <= TaskState.REMOVE;
    const isUnstarted = task.desiredState === TaskState.RUNNING && state < TaskState.RUNNING;
    if (isUnstopped || isUnstarted) yield { kind: "order", what };
    const isDrained = store.get("node", task.nodeId)?.spec?.availability === NodeSpec_Availability.DRAIN;
    if (isDrained && task.desiredState <= TaskState.RUNNING) yield { kind: "drain", what };
  }
}
