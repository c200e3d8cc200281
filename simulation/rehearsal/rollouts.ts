/** The rollouts of services: their states, and for what they waited, in the words of `muster why`. */
import { explainTask, type ExplainView } from "../../machines/explain/explain.ts";
import { stampedTimes } from "../../machines/elapsed.ts";
import { isMoving, isPaused, phaseOf, recordOf } from "../../machines/orchestration/rollout/status.ts";
import { rolloutMachine } from "../../machines/orchestration/rollout.machine.ts";
import { taskMachine } from "../../machines/task.machine.ts";
import { waitOf } from "../../machines/wait-meta.ts";
import { trackerOf } from "../../actors/orchestration/rollout-view.ts";
import { NodeStatus_State, Reason, UpdateStatus_UpdateState, type Service } from "../../proto/gen/messages.ts";
import type { Store } from "../../runtime/store/store.ts";
import { nodeName } from "./moves.ts";
import type { RolloutOutcome } from "./outcome.ts";

const stateNames = new Map(
  Object.entries(UpdateStatus_UpdateState).map(([name, state]) => [state, name.toLowerCase()] as const),
);
const { COMPLETED, ROLLBACK_COMPLETED, UNKNOWN, UPDATING } = UpdateStatus_UpdateState;

interface Rolling {
  readonly beganMs: number;
  endedMs: number | null;
  state: UpdateStatus_UpdateState;
  readonly blocked: Map<string, number>;
}

export class Rollouts {
  /** By service id, oldest first. */
  readonly #rollouts = new Map<string, Rolling[]>();

  /** Those that were in progress since `began`, with times since then; one that began earlier has a negative one. */
  of(serviceId: string, began: number): readonly RolloutOutcome[] {
    const rollouts = (this.#rollouts.get(serviceId) ?? []).filter(
      ({ endedMs }) => endedMs === null || endedMs >= began,
    );
    return rollouts.map(({ beganMs, blocked, endedMs, state }) => ({
      beganMs: Math.round(beganMs - began),
      endedMs: endedMs === null ? null : Math.round(endedMs - began),
      state: stateNames.get(state) ?? String(state),
      blocked: [...blocked].map(([reason, ms]) => ({ reason, ms })).sort((a, b) => b.ms - a.ms),
    }));
  }

  /** A service has changed; `old` is null for a new one. */
  note(service: Service, old: Service | null, atMs: number): void {
    const state = service.updateStatus?.state ?? UNKNOWN;
    const before = old?.updateStatus ?? null;
    if (state === UNKNOWN) return;
    const began = service.updateStatus?.startedAt ?? null;
    const isSameStart = began?.seconds === before?.startedAt?.seconds && began?.nanos === before?.startedAt?.nanos;
    let rollouts = this.#rollouts.get(service.id);
    if (rollouts === undefined) this.#rollouts.set(service.id, (rollouts = []));
    let last = rollouts.at(-1);
    const isOver = last === undefined || last.endedMs !== null;
    const isNew = isOver ? state !== before?.state || !isSameStart : state === UPDATING && !isSameStart;
    if (isNew) {
      last = { beganMs: atMs, endedMs: null, state, blocked: new Map() };
      rollouts.push(last);
    }
    if (last === undefined || last.endedMs !== null) return;
    last.state = state;
    if (state === COMPLETED || state === ROLLBACK_COMPLETED) last.endedMs = atMs;
  }

  /** Adds this much time to what each rollout waits for now. `nowMs`: by a manager's clock. */
  sample(store: Store, nowMs: number, ms: number): void {
    for (const [serviceId, rollouts] of this.#rollouts) {
      const last = rollouts.at(-1);
      const service = store.get("service", serviceId);
      if (last === undefined || last.endedMs !== null || service === undefined) continue;
      const reason = whyWaiting(store, service, nowMs);
      if (reason !== null) last.blocked.set(reason, (last.blocked.get(reason) ?? 0) + ms);
    }
  }
}

/** Null when nothing blocks it. Without ids, and names of nodes that are well, so that equal reasons add up. */
function whyWaiting(store: Store, service: Service, nowMs: number): string | null {
  const record = recordOf(service, store.get("rollout", service.id));
  const phase = phaseOf(service, record);
  if (isPaused(phase)) return withoutIds(service.updateStatus?.message ?? "");
  if (!isMoving(phase)) return null;
  const { blockers, changing, waiting } = trackerOf(store, service, record, nowMs, stampedTimes).describe(nowMs);
  const [first] = blockers;
  if (first === undefined) {
    const state = waiting + changing === 0 ? "update.moving.watching" : "update.moving.delaying";
    return waitOf(rolloutMachine, state).waitingFor;
  }
  const [reason] = explainTask(first.task, viewOf(store, nowMs));
  const said = first.task.status?.err ?? "";
  const waitingFor = reason?.waitingFor ?? "";
  const node = store.get("node", first.task.nodeId);
  const general =
    node?.status?.state === NodeStatus_State.READY
      ? waitingFor.replaceAll(`node ${nodeName(node.id, store)}`, "its node")
      : waitingFor;
  return withoutIds(said === "" || general.includes(said) ? general : `${general}: ${said}`);
}

function withoutIds(text: string): string {
  return text.replaceAll(/\btask [a-z0-9]{20,}/g, "a task");
}

function viewOf(store: Store, nowMs: number): ExplainView {
  return {
    nowMs,
    times: stampedTimes,
    service: (id) => store.get("service", id),
    node: (id) => store.get("node", id),
    slot: (serviceId, slot, nodeId) => [...store.tasksAt(serviceId, slot, nodeId)],
    tasks: (serviceId) => store.tasksByService(serviceId),
    nodes: () => store.all("node"),
    nodeName: (id) => nodeName(id, store),
    schedule: () => null,
    placement: () => [Reason.create(waitOf(taskMachine, "PENDING"))],
    rollout: () => null,
  };
}
