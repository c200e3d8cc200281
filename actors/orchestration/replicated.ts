/**
 * Hosts an orchestrator for each replicated service, and one for each removed service that still has tasks. Turns store changes
 * into slots to check, and decisions into operations.
 */
import { newTask, taskTemplate } from "../../machines/orchestration/new-task.ts";
import { templatesFor } from "../../machines/orchestration/rollout/pinned.ts";
import type { Turns } from "../../machines/orchestration/rollout/turns.ts";
import { replicatedMachine, type ReplicatedVerdict } from "../../machines/orchestration/replicated.machine.ts";
import { faultOf } from "../../machines/orchestration/restart.machine.ts";
import { TaskDirty } from "../../machines/orchestration/task-dirty.ts";
import {
  decideService,
  decideSlots,
  endsPair,
  groupBySlot,
  isSameToSlots,
  mattersToSlot,
  type Decision,
  type World,
} from "../../machines/orchestration/slots.ts";
import { desired } from "../../machines/task-moves.ts";
import { isLeaving, isWanted } from "../../machines/task.ts";
import { TaskState, type Node, type Operation, type Service, type Task } from "../../proto/gen/messages.ts";
import { Attention } from "./attention.ts";
import type { Environment } from "../environment.ts";
import { now, type Part, type Writer } from "./part.ts";
import { Orchestrators, type Orchestrator } from "./orchestrators.ts";
import type { Round } from "./reconciler.ts";

interface ReplicatedOrchestrator extends Orchestrator {
  readonly taskDirty: TaskDirty;
  readonly attention: Attention<number>;
  isRemoved: boolean;
}

/** `turnsOf`: the turns that a service's rollout gives to its slots. */
export function startReplicated(env: Environment, writer: Writer, turnsOf: (service: Service) => Turns): Part {
  const { store } = env;
  const nodeOf = (id: string): Node | undefined => store.get("node", id);
  const all = new Orchestrators<typeof replicatedMachine, ReplicatedOrchestrator>({
    env,
    writer,
    noun: "replicated",
    machine: replicatedMachine,
    decide,
    effects: (one) => ({ removeTasks: () => removeTasks(one) }),
  });

  function start(serviceId: string, isRemoved: boolean): void {
    const one: ReplicatedOrchestrator = {
      serviceId,
      creating: new Set(),
      taskDirty: new TaskDirty(),
      attention: new Attention(),
      isRemoved,
    };
    all.start(one);
    if (isRemoved) all.send(one, { type: "service.removed" });
  }

  function touch(one: ReplicatedOrchestrator, slot: number): void {
    one.attention.add(slot);
    all.touch(one);
  }

  function touchAll(one: ReplicatedOrchestrator): void {
    one.attention.addAll();
    all.touch(one);
  }

  function decide(one: ReplicatedOrchestrator): Round<ReplicatedVerdict> {
    const service = store.get("service", one.serviceId);
    if (service?.spec?.replicated == null) return { verdict: { nextMs: -1 } };
    const world: World = {
      nowMs: env.clock.now(),
      nodeOf,
      taskDirty: one.taskDirty,
      turns: turnsOf(service),
      times: env.times,
    };
    const { replicas } = service.spec.replicated;
    const slots = one.attention.take(world.nowMs);
    const decision =
      slots === null
        ? decideService(service, groupBySlot(store.tasksByService(service.id)), replicas, world)
        : decideSlots(
            service,
            new Map([...slots].map((slot) => [slot, [...store.tasksBySlot(service.id, slot)]])),
            world,
          );
    const verdict = { nextMs: one.attention.waitUntil(decision.lookAgainMs, slots, world.nowMs) };
    if (decision.steps.length === 0) return { verdict };
    return { verdict, write: () => write(one, service, decision) };
  }

  function write(one: ReplicatedOrchestrator, service: Service, decision: Decision): void {
    const [cluster] = store.all("cluster");
    const templateFor = templatesFor(taskTemplate(service, cluster, now(env)));
    all.writeSteps(
      one,
      decision,
      (step, id) => newTask(templateFor(step.like), id, step.slot, step.desired),
      () => one.attention.addAll(),
    );
  }

  function removeTasks(one: ReplicatedOrchestrator): void {
    const operations: Operation[] = [];
    let count = 0;
    for (const task of store.tasksByService(one.serviceId)) {
      count += 1;
      if (!isLeaving(task)) operations.push(desired(task, TaskState.REMOVE));
    }
    // Tasks created by a decision are still pending.
    if (count === 0 && one.creating.size === 0) {
      all.send(one, { type: "tasks.gone" });
      all.forget(one, () => {
        if (hasTasks(one.serviceId)) start(one.serviceId, true);
      });
    } else if (operations.length > 0) writer.write(operations, () => all.send(one, { type: "decision.written" }));
  }

  function removed(serviceId: string): void {
    const one = all.get(serviceId);
    if (one !== undefined) {
      one.isRemoved = true;
      all.send(one, { type: "service.removed" });
    } else if (hasTasks(serviceId)) start(serviceId, true);
  }

  function hasTasks(serviceId: string): boolean {
    for (const _ of store.tasksByService(serviceId)) return true;
    return false;
  }

  for (const service of store.all("service")) if (service.spec?.replicated != null) start(service.id, false);
  const left = new Set<string>();
  for (const { serviceId } of store.all("task")) {
    if (serviceId !== "" && all.get(serviceId) === undefined && store.get("service", serviceId) === undefined)
      left.add(serviceId);
  }
  for (const serviceId of left) start(serviceId, true);

  return {
    taskChanged(old, task) {
      const { serviceId, slot } = (task ?? old) as Task;
      const one = all.get(serviceId);
      if (one === undefined) {
        if (old === null && serviceId !== "" && store.get("service", serviceId) === undefined) start(serviceId, true);
        return;
      }
      if (one.isRemoved) {
        const isOwn = old === null && one.creating.delete((task as Task).id);
        if (old === null || (task === null && !hasTasks(serviceId)) || isOwn) touchAll(one);
      } else if (old === null) {
        if (!one.creating.delete((task as Task).id)) touch(one, slot);
      } else if (task === null) {
        if (isWanted(old)) touchAll(one);
      } else if (mattersToSlot(old, task, nodeOf) || endsPair(old, task, () => store.tasksBySlot(serviceId, slot))) {
        touch(one, slot);
      }
    },

    nodeChanged(old, node) {
      const isSame = old !== null && node !== null && old.status === node.status && old.spec === node.spec;
      if (isSame) return;
      for (const task of store.tasksByNode(((node ?? old) as Node).id)) {
        const one = isWanted(task) ? all.get(task.serviceId) : undefined;
        if (one !== undefined && faultOf(task, nodeOf) !== null) touch(one, task.slot);
      }
    },

    serviceChanged(old, service) {
      if (service === null) removed((old as Service).id);
      else if (service.spec?.replicated != null) {
        const one = all.get(service.id);
        if (one === undefined) start(service.id, false);
        // Changes by a rollout or the allocator do not affect all slots.
        else if (old === null || !isSameToSlots(old, service)) touchAll(one);
      }
    },

    turnsCame(serviceId, slots) {
      const one = all.get(serviceId);
      if (one === undefined || one.isRemoved) return;
      for (const slot of slots) one.attention.add(Number(slot));
      all.touchNow(one);
    },

    commitEnded: () => all.commitEnded(),
    stop: () => all.stop(),
  };
}
