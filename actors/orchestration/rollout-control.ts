/**
 * An operator's control of a rollout, on any manager: a request is written as a change of the service and its record, and the
 * leader's rollout follows the store. The view is also computed from the store alone.
 */
import { acted, phaseOf, recordOf, type RolloutAction } from "../../machines/orchestration/rollout/status.ts";
import { blockerText, stateNameOf, type Blocker } from "../../machines/orchestration/rollout/verdict.ts";
import { timestampOf } from "../../proto/time.ts";
import {
  ControlRolloutRequest_Action,
  ControlRolloutResponse,
  RolloutBlocker,
  type ControlRolloutRequest,
  type Service,
} from "../../proto/gen/messages.ts";
import { RpcError, Status, type CallContext } from "../../runtime/ports/rpc.ts";
import { rejection } from "../control/answer.ts";
import { transact } from "../control/write.ts";
import type { Environment } from "../environment.ts";
import { trackerOf, writeOperations } from "./rollout-view.ts";

const blockersMax = 10;

const actions: Readonly<Partial<Record<ControlRolloutRequest_Action, RolloutAction>>> = {
  [ControlRolloutRequest_Action.PAUSE]: "pause",
  [ControlRolloutRequest_Action.RESUME]: "resume",
  [ControlRolloutRequest_Action.STEP]: "step",
  [ControlRolloutRequest_Action.ABORT]: "abort",
};

export async function controlRollout(
  env: Environment,
  request: ControlRolloutRequest,
  call: CallContext,
): Promise<ControlRolloutResponse> {
  const { store } = env;
  const { id } = findService(env, request.service);
  const action = actions[request.action];
  if (action !== undefined) {
    await transact(env, call, () => {
      const service = store.get("service", id);
      if (service === undefined) throw new RpcError(Status.NOT_FOUND, `service ${id} not found`);
      const outcome = acted(service, store.get("rollout", id), action, env.clock.now());
      switch (outcome.kind) {
        case "refused":
          throw rejection(outcome.refusal);
        case "done":
          return [];
        case "write":
          return writeOperations(store, outcome.write.service, outcome.write.rollout, service);
      }
    });
  }
  const service = store.get("service", id);
  if (service === undefined) throw new RpcError(Status.NOT_FOUND, `service ${id} not found`);
  return described(env, service);
}

/** By id, then by name, then by unique prefix of the id. */
function findService({ store }: Environment, text: string): Service {
  if (text === "") throw new RpcError(Status.INVALID_ARGUMENT, "specify the id or name of a service");
  const found = store.get("service", text) ?? store.byName("service", text);
  if (found !== undefined) return found;
  const matches = [...store.all("service")].filter(({ id }) => id.startsWith(text));
  const [only] = matches;
  if (matches.length > 1) {
    throw new RpcError(Status.INVALID_ARGUMENT, `service ${text} is ambiguous (${matches.length} matches found)`);
  }
  if (only === undefined) throw new RpcError(Status.NOT_FOUND, `service ${text} not found`);
  return only;
}

function described(env: Environment, service: Service): ControlRolloutResponse {
  const { store } = env;
  const rollout = recordOf(service, store.get("rollout", service.id));
  const nowMs = env.clock.now();
  const { blockers, ...counts } = trackerOf(store, service, rollout, nowMs, env.times).describe(nowMs);
  return ControlRolloutResponse.create({
    serviceId: service.id,
    name: service.spec?.annotations?.name ?? "",
    phase: phaseOf(service, rollout),
    updateStatus: service.updateStatus,
    rollout,
    ...counts,
    blockers: blockers.slice(0, blockersMax).map(shownBlocker),
  });
}

function shownBlocker(blocker: Blocker): RolloutBlocker {
  return RolloutBlocker.create({
    taskId: blocker.task.id,
    slot: blocker.slot,
    state: stateNameOf(blocker.task),
    reason: blockerText(blocker),
    since: timestampOf(blocker.sinceMs),
    deadline: blocker.deadlineMs === null ? null : timestampOf(blocker.deadlineMs),
  });
}
