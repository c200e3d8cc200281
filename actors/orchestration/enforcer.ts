/**
 * Hosts the enforcers: tracks changed nodes and volumes, and rejects the tasks that may not stay there. A decision based on a
 * node or service that has changed again is not written: that change triggers another check.
 */
import {
  concernsEnforcer,
  enforcerMachine,
  evictions,
  evictionStatus,
  isDrained,
  isOnDrained,
  type Eviction,
} from "../../machines/orchestration/enforcer.machine.ts";
import { moved } from "../../machines/task-moves.ts";
import { isEnded, observedState } from "../../machines/task.ts";
import {
  Basis,
  Kind,
  Operation,
  TaskState,
  type Node,
  type Service,
  type Task,
  type TaskStatus,
  type Volume,
} from "../../proto/gen/messages.ts";
import type { Environment } from "../environment.ts";
import { now, roundTasksMax, type Part, type Writer } from "./part.ts";
import { Reconciler, type Round } from "./reconciler.ts";
import { TaskWrites } from "./task-writes.ts";

export function startEnforcer(env: Environment, writer: Writer): Part {
  const { store } = env;
  const evicted = env.telemetry.metrics.counter(
    "muster_enforcer_evicted_total",
    "Tasks rejected because they may no longer stay on their node.",
  );
  /** Ids of nodes to check. */
  const nodes = new Set<string>();
  /** Ids of tasks with volumes to check. */
  const users = new Set<string>();
  const serviceOf = (id: string): Service | undefined => store.get("service", id);
  const volumeOf = (id: string): Volume | undefined => store.get("volume", id);

  const hasWork = (): boolean => nodes.size > 0 || users.size > 0;

  function noteUsersOf(volumeId: string): void {
    for (const task of store.all("task")) if (task.volumes.some(({ id }) => id === volumeId)) users.add(task.id);
    if (users.size > 0) loop.note();
  }

  function enforce(): Round<{ readonly isPartial: boolean }> {
    const time = now(env);
    const statuses = { node: evictionStatus("node", time), volume: evictionStatus("volume", time) };
    let left = roundTasksMax;
    for (const id of nodes) {
      if (left <= 0) break;
      nodes.delete(id);
      const node = store.get("node", id);
      if (node === undefined) continue;
      const tasks = [...store.tasksByNode(id)].filter((task) => !rejections.has(task.id));
      left -= tasks.length;
      for (const task of evictions(node, tasks, serviceOf)) rejections.add(reject(task, "node", statuses.node, node));
    }
    for (const id of users) {
      if (left <= 0) break;
      users.delete(id);
      left -= 1;
      const task = store.get("task", id);
      if (task !== undefined && !rejections.has(id) && isOnDrained(task, volumeOf))
        rejections.add(reject(task, "volume", statuses.volume));
    }
    rejections.flush(() => {
      if (hasWork()) loop.wake();
    });
    return { verdict: { isPartial: hasWork() } };
  }

  function reject(task: Task, eviction: Eviction, status: TaskStatus, node?: Node): Operation {
    env.telemetry.log.info(
      { task: task.id, node: task.nodeId, by: eviction },
      "rejecting a task that may not stay on its node",
    );
    const basis: Basis[] = [];
    if (node !== undefined) basis.push(basisOf(Kind.KIND_NODE, node));
    const service = serviceOf(task.serviceId);
    if (node !== undefined && service !== undefined) basis.push(basisOf(Kind.KIND_SERVICE, service));
    return Operation.patch(moved(task, "manager", status), { basis });
  }

  const rejections = new TaskWrites(env, writer, (_, stored) => {
    if (stored === undefined) return;
    if (observedState(stored) === TaskState.REJECTED) evicted.add();
    // A task that was not written is checked again.
    else if (stored.volumes.length > 0) users.add(stored.id);
    if (!isEnded(observedState(stored))) nodes.add(stored.nodeId);
  });
  const loop = new Reconciler(env, {
    machine: enforcerMachine,
    id: `enforcer/${env.managerId}`,
    input: undefined,
    decide: enforce,
  });
  for (const { id } of store.all("node")) nodes.add(id);
  for (const volume of store.all("volume")) if (isDrained(volume)) noteUsersOf(volume.id);
  if (hasWork()) loop.wake();

  return {
    taskChanged(old, task) {
      // A task may have got its volumes while one of them was being drained.
      if (task === null || task.volumes.length === 0 || old?.volumes === task.volumes) return;
      users.add(task.id);
      loop.note();
    },

    nodeChanged(old, node) {
      if (node === null || !concernsEnforcer(old, node)) return;
      nodes.add(node.id);
      loop.note();
    },

    volumeChanged(old, volume) {
      if (volume !== null && isDrained(volume) && (old === null || !isDrained(old))) noteUsersOf(volume.id);
    },

    commitEnded: () => loop.commitEnded(),
    stop: () => loop.stop(),
  };
}

function basisOf(kind: Kind, object: Node | Service): Basis {
  return Basis.create({ kind, id: object.id, version: object.meta?.version?.index ?? 0 });
}
