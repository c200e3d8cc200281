/** Keeps a rollout for each service with tasks of another spec, and passes it the changes of each commit that concern it. */
import {
  isMoving,
  isOver,
  isPaused,
  isSameBasis,
  phaseOf,
  recordOf,
} from "../../machines/orchestration/rollout/status.ts";
import { isOtherVersion, mayHaveOutdated } from "../../machines/orchestration/rollout/slot.ts";
import type { Turns } from "../../machines/orchestration/rollout/turns.ts";
import { isWanted, specVersionOf } from "../../machines/task.ts";
import { isJob } from "../../machines/orchestration/service-mode.ts";
import { Kind, Operation, ProposeRequest_Mode, Removal, type Service, type Task } from "../../proto/gen/messages.ts";
import type { Environment } from "../environment.ts";
import type { Part } from "./part.ts";
import { proposalTimeoutMs, ServiceRollout, settingsNow } from "./rollout.ts";
import { trackerOf } from "./rollout-view.ts";

interface Rollouts extends Part {
  /** The turns for the service's orchestrator, for the current version of the service. */
  turnsOf(service: Service): Turns;
}

/** `onTurns`: called with the slots of a service to update now. */
export function startRollouts(
  env: Environment,
  onTurns: (serviceId: string, slots: readonly string[]) => void,
): Rollouts {
  const { store } = env;
  const rollouts = new Map<string, ServiceRollout>();
  const touched = new Set<ServiceRollout>();
  /** Ids of services that changed in the store. */
  const changed = new Set<string>();

  function start(serviceId: string): ServiceRollout {
    const rollout = new ServiceRollout({ env, onTurns, onOver: forget }, serviceId);
    rollouts.set(serviceId, rollout);
    return rollout;
  }

  function forget(rollout: ServiceRollout): void {
    rollouts.delete(rollout.serviceId);
    touched.delete(rollout);
  }

  /** Starts a rollout of the service if one is in progress or needed. */
  function consider(service: Service): void {
    if (rollouts.has(service.id) || isJob(service.spec)) return;
    const record = recordOf(service, store.get("rollout", service.id));
    if (!isOver(phaseOf(service, record))) start(service.id);
    else if (mayHaveOutdated(service, store.tasksByService(service.id))) {
      const tracker = trackerOf(store, service, record, env.clock.now(), env.times);
      if (tracker.outdated > 0) start(service.id).adopt(tracker);
    }
  }

  /** For a service without a rollout: a decision on its task was pending while the service changed. */
  function noteLate(task: Task): void {
    if (!isWanted(task) || rollouts.has(task.serviceId)) return;
    const service = store.get("service", task.serviceId);
    if (service !== undefined && isOtherVersion(task, service)) changed.add(service.id);
  }

  function removeRecord(id: string): void {
    const remove = Removal.create({ kind: Kind.KIND_ROLLOUT, id });
    void env.proposer.propose({
      operations: [Operation.create({ remove })],
      mode: ProposeRequest_Mode.EACH,
      timeoutMs: proposalTimeoutMs,
    });
  }

  for (const service of store.all("service")) consider(service);
  const left = [...store.all("rollout")].filter(({ id }) => store.get("service", id) === undefined);
  for (const { id } of left) removeRecord(id);

  return {
    turnsOf(service) {
      const phase = phaseOf(service, null);
      const tracker = isMoving(phase) ? (rollouts.get(service.id)?.trackerFor(service) ?? null) : null;
      const { isStartFirst } = settingsNow(service);
      const isHeld = isPaused(phase);
      return { mayReplace: (slot) => tracker?.mayReplace(slot) ?? false, isStartFirst, isHeld };
    },

    taskChanged(old, task) {
      const rollout = rollouts.get(((task ?? old) as Task).serviceId);
      if (rollout?.noteTask(old, task) === true) touched.add(rollout);
      if (rollout === undefined && old === null && task !== null) noteLate(task);
    },

    nodeChanged(old, node) {
      if (node === null || (old !== null && old.status === node.status && old.spec === node.spec)) return;
      for (const rollout of rollouts.values()) {
        if (rollout.noteNode(store.tasksByNode(node.id))) touched.add(rollout);
      }
      for (const task of store.tasksByNode(node.id)) noteLate(task);
    },

    serviceChanged(old, service) {
      if (service === null) {
        const { id } = old as Service;
        const rollout = rollouts.get(id);
        if (rollout !== undefined) {
          rollout.end();
          forget(rollout);
        }
        changed.delete(id);
        if (store.get("rollout", id) !== undefined) removeRecord(id);
        return;
      }
      const isSameSpec = old !== null && specVersionOf(old) === specVersionOf(service);
      const isSameStatus = old?.updateStatus?.state === service.updateStatus?.state;
      if (!isSameSpec || !isSameStatus) changed.add(service.id);
    },

    rolloutChanged(old, record) {
      if (record === null || !rollouts.has(record.id)) return;
      if (old === null || !isSameBasis(old, record)) changed.add(record.id);
    },

    commitEnded() {
      const told = [...changed];
      changed.clear();
      for (const id of told) {
        const rollout = rollouts.get(id);
        const service = store.get("service", id);
        if (rollout !== undefined) rollout.tellPhase();
        else if (service !== undefined) consider(service);
      }
      const looked = [...touched];
      touched.clear();
      for (const rollout of looked) rollout.touch();
    },

    stop() {
      for (const rollout of rollouts.values()) rollout.stop();
      rollouts.clear();
    },
  };
}
