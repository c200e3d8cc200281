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
import { mayAdvance } from "../../machines/task.machine.ts";
import { observedState } from "../../machines/task.ts";
import {
  Basis,
  Kind,
  Operation,
  TaskPatch,
  TaskState,
  type Node,
  type Service,
  type Task,
  type TaskStatus,
  type Volume,
} from "../../proto/gen/messages.ts";
import { assert } from "../../lib/assert.ts";
import type { Environment } from "../environment.ts";
import { sendSoon } from "../send-soon.ts";
import { now, roundTasksMax, type Part, type Writer } from "./part.ts";

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
  /** Ids of tasks that are being rejected. */
  const writing = new Set<string>();
  let hasNews = false;
  const serviceOf = (id: string): Service | undefined => store.get("service", id);
  const volumeOf = (id: string): Volume | undefined => store.get("volume", id);

  function noteUsersOf(volumeId: string): void {
    for (const task of store.all("task")) if (task.volumes.some(({ id }) => id === volumeId)) users.add(task.id);
    hasNews ||= users.size > 0;
  }

  function enforce(): { readonly isPartial: boolean } {
    const operations: Operation[] = [];
    const time = now(env);
    const statuses = { node: evictionStatus("node", time), volume: evictionStatus("volume", time) };
    let left = roundTasksMax;
    for (const id of nodes) {
      if (left <= 0) break;
      nodes.delete(id);
      const node = store.get("node", id);
      if (node === undefined) continue;
      const tasks = [...store.tasksByNode(id)].filter((task) => !writing.has(task.id));
      left -= tasks.length;
      for (const task of evictions(node, tasks, serviceOf)) operations.push(reject(task, "node", statuses.node, node));
    }
    for (const id of users) {
      if (left <= 0) break;
      users.delete(id);
      left -= 1;
      const task = store.get("task", id);
      if (task !== undefined && !writing.has(id) && isOnDrained(task, volumeOf))
        operations.push(reject(task, "volume", statuses.volume));
    }
    if (operations.length > 0) write(operations);
    return { isPartial: nodes.size > 0 || users.size > 0 };
  }

  function reject(task: Task, eviction: Eviction, status: TaskStatus, node?: Node): Operation {
    const from = observedState(task);
    assert(mayAdvance(from, TaskState.REJECTED, "manager"), `T2: a manager may not reject a task in state ${from}`);
    writing.add(task.id);
    env.telemetry.log.info(
      { task: task.id, node: task.nodeId, by: eviction },
      "rejecting a task that may not stay on its node",
    );
    const basis: Basis[] = [];
    if (node !== undefined) basis.push(basisOf(Kind.KIND_NODE, node));
    const service = serviceOf(task.serviceId);
    if (node !== undefined && service !== undefined) basis.push(basisOf(Kind.KIND_SERVICE, service));
    return Operation.create({ task: TaskPatch.create({ id: task.id, status }), basis });
  }

  function write(operations: readonly Operation[]): void {
    writer.write(operations, () => {
      for (const { task } of operations) {
        if (task === null) continue;
        writing.delete(task.id);
        const stored = store.get("task", task.id);
        if (stored === undefined) continue;
        if (observedState(stored) === TaskState.REJECTED) evicted.add();
        // A task that was not written is checked again.
        else if (stored.volumes.length > 0) users.add(stored.id);
        if (observedState(stored) <= TaskState.RUNNING) nodes.add(stored.nodeId);
      }
      hasNews = nodes.size > 0 || users.size > 0;
      tell();
    });
  }

  function tell(): void {
    if (!hasNews) return;
    hasNews = false;
    hostedActor.actor.send({ type: "work.arrived" });
  }

  const hostedActor = env.host.start(
    enforcerMachine.provide({
      actions: {
        gather: ({ self }) => sendSoon(env.clock, self, { type: "round.due" }),
        enforce: ({ self }) => self.send({ type: "round.done", ...enforce() }),
      },
    }),
    `enforcer/${env.managerId}`,
    undefined,
  );
  for (const { id } of store.all("node")) nodes.add(id);
  for (const volume of store.all("volume")) if (isDrained(volume)) noteUsersOf(volume.id);
  hasNews = nodes.size > 0 || users.size > 0;
  tell();

  return {
    taskChanged(old, task) {
      // A task may have got its volumes while one of them was being drained.
      if (task === null || task.volumes.length === 0 || old?.volumes === task.volumes) return;
      users.add(task.id);
      hasNews = true;
    },

    nodeChanged(old, node) {
      if (node === null || !concernsEnforcer(old, node)) return;
      nodes.add(node.id);
      hasNews = true;
    },

    volumeChanged(old, volume) {
      if (volume !== null && isDrained(volume) && (old === null || !isDrained(old))) noteUsersOf(volume.id);
    },

    commitEnded: tell,
    stop: () => hostedActor.stop(),
  };
}

function basisOf(kind: Kind, object: Node | Service): Basis {
  return Basis.create({ kind, id: object.id, version: object.meta?.version?.index ?? 0 });
}
