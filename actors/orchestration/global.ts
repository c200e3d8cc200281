/**
 * Hosts an orchestrator for each global service. Turns store changes into nodes to check, and decisions into operations.
 * `actors/orchestration/replicated.ts` stops the tasks of removed services of any mode.
 */
import { globalMachine, type GlobalVerdict } from "../../machines/orchestration/global.machine.ts";
import { decideNodes, isSameToPlaces, placesOf, type NodeDecision } from "../../machines/orchestration/global-nodes.ts";
import { newTask, taskTemplate } from "../../machines/orchestration/new-task.ts";
import { templatesFor } from "../../machines/orchestration/rollout/pinned.ts";
import type { Turns } from "../../machines/orchestration/rollout/turns.ts";
import { TaskDirty } from "../../machines/orchestration/task-dirty.ts";
import { endsPair, mattersToSlot, type World } from "../../machines/orchestration/slots.ts";
import { isWanted } from "../../machines/task.ts";
import type { Node, Service, Task } from "../../proto/gen/messages.ts";
import { Attention } from "./attention.ts";
import type { Environment } from "../environment.ts";
import { now, type Part, type Writer } from "./part.ts";
import { Orchestrators, type Orchestrator } from "./orchestrators.ts";
import type { Round } from "./reconciler.ts";

/** A global service's tasks have no slot number; their node identifies them. */
const noSlot = 0;

interface GlobalOrchestrator extends Orchestrator {
  readonly taskDirty: TaskDirty;
  /** By node id. */
  readonly attention: Attention<string>;
}

/** `turnsOf`: the turns that a service's rollout gives to its nodes. */
export function startGlobal(env: Environment, writer: Writer, turnsOf: (service: Service) => Turns): Part {
  const { store } = env;
  const nodeOf = (id: string): Node | undefined => store.get("node", id);
  const all = new Orchestrators<typeof globalMachine, GlobalOrchestrator>({
    env,
    writer,
    noun: "global",
    machine: globalMachine,
    decide,
  });

  function start(serviceId: string): void {
    all.start({ serviceId, creating: new Set(), taskDirty: new TaskDirty(), attention: new Attention() });
  }

  function touch(one: GlobalOrchestrator, nodeId: string): void {
    one.attention.add(nodeId);
    all.touch(one);
  }

  function decide(one: GlobalOrchestrator): Round<GlobalVerdict> {
    const service = store.get("service", one.serviceId);
    if (service?.spec?.global == null) return { verdict: { nextMs: -1 } };
    const world: World = {
      nowMs: env.clock.now(),
      nodeOf,
      taskDirty: one.taskDirty,
      turns: turnsOf(service),
      times: env.times,
    };
    const nodes = one.attention.take(world.nowMs);
    const places =
      nodes === null
        ? placesOf(store.all("node"), store.tasksByService(service.id))
        : new Map([...nodes].map((id) => [id, [...store.tasksAt(service.id, noSlot, id)]]));
    const decision = decideNodes(service, places, world);
    const verdict = { nextMs: one.attention.waitUntil(decision.lookAgainMs, nodes, world.nowMs) };
    if (decision.steps.length === 0) return { verdict };
    return { verdict, write: () => write(one, service, decision) };
  }

  function write(one: GlobalOrchestrator, service: Service, decision: NodeDecision): void {
    const [cluster] = store.all("cluster");
    const templateFor = templatesFor(taskTemplate(service, cluster, now(env)));
    all.writeSteps(
      one,
      decision,
      (step, id) => newTask(templateFor(step.like), id, noSlot, step.desired, step.slot),
      () => one.attention.addAll(),
    );
  }

  for (const service of store.all("service")) if (service.spec?.global != null) start(service.id);

  return {
    taskChanged(old, task) {
      const { serviceId, nodeId } = (task ?? old) as Task;
      const one = all.get(serviceId);
      if (one === undefined) return;
      if (old === null) {
        if (!one.creating.delete((task as Task).id)) touch(one, nodeId);
      } else if (task === null) {
        if (isWanted(old)) touch(one, nodeId);
      } else if (
        mattersToSlot(old, task, nodeOf) ||
        endsPair(old, task, () => store.tasksAt(serviceId, noSlot, nodeId))
      ) {
        touch(one, nodeId);
      }
    },

    nodeChanged(old, node) {
      if (all.size === 0 || (old !== null && node !== null && isSameToPlaces(old, node))) return;
      const { id } = (node ?? old) as Node;
      for (const one of all.values()) touch(one, id);
    },

    serviceChanged(old, service) {
      const one = all.get((service ?? old)?.id ?? "");
      if (service === null) {
        if (one === undefined) return;
        all.send(one, { type: "service.removed" });
        all.forget(one);
      } else if (service.spec?.global != null) {
        if (one === undefined) start(service.id);
        else {
          one.attention.addAll();
          all.touch(one);
        }
      }
    },

    turnsCame(serviceId, nodeIds) {
      const one = all.get(serviceId);
      if (one === undefined) return;
      for (const nodeId of nodeIds) one.attention.add(nodeId);
      all.touchNow(one);
    },

    commitEnded: () => all.commitEnded(),
    stop: () => all.stop(),
  };
}
