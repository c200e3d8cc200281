/**
 * Hosts an orchestrator for each replicated service, and one for each service that is gone but has left tasks. Turns
 * store changes into "look at these slots" and decisions into operations.
 */
import { newTask, taskTemplate } from "../machines/new-task.ts";
import { templatesFor } from "../machines/rollout/pinned.ts";
import type { Turns } from "../machines/rollout/turns.ts";
import { replicatedMachine, type ReplicatedEvent } from "../machines/replicated.ts";
import { faultOf } from "../machines/restart.ts";
import { Currency } from "../machines/task-currency.ts";
import {
  decideService,
  decideSlots,
  endsPair,
  groupBySlot,
  isSameToSlots,
  mattersToSlot,
  type Decision,
  type Step,
  type World,
} from "../machines/slots.ts";
import { isWanted } from "../machines/task.ts";
import { Operation, StoreObject, TaskState, type Node, type Service, type Task } from "../proto/gen/messages.ts";
import type { HostedActor } from "../runtime/host.ts";
import { newId } from "../runtime/ids.ts";
import type { Environment } from "./environment.ts";
import { hosted } from "./hosted.ts";
import { desire, now, type Part, type Writer } from "./orchestration-part.ts";

const orchestrator = hosted(replicatedMachine, ["gather", "decide", "removeTasks"]);

interface Entry {
  readonly serviceId: string;
  actor: HostedActor<typeof replicatedMachine> | null;
  readonly currency: Currency;
  /** Slots to look at; null: all of them. */
  slots: Set<number> | null;
  /** Ids of tasks that a decision made and the store has not shown yet. */
  readonly creating: Set<string>;
  isRemoved: boolean;
  /** When something is due, in milliseconds since the epoch; null: nothing is. */
  lookAgainMs: number | null;
}

/** `turnsOf`: what the rollout of a service says to its slots. */
export function startReplicated(env: Environment, writer: Writer, turnsOf: (service: Service) => Turns): Part {
  const { store } = env;
  const random = env.random.fork("replicated");
  const entries = new Map<string, Entry>();
  /** To be told at the end of the commit. */
  const touched = new Set<Entry>();
  let isStopped = false;
  const nodeOf = (id: string): Node | undefined => store.get("node", id);

  function send(entry: Entry, event: ReplicatedEvent): void {
    if (!isStopped && entries.get(entry.serviceId) === entry) entry.actor?.actor.send(event);
  }

  function start(serviceId: string, isRemoved: boolean): Entry {
    const entry: Entry = {
      serviceId,
      actor: null,
      currency: new Currency(),
      slots: null,
      creating: new Set(),
      isRemoved,
      lookAgainMs: null,
    };
    entries.set(serviceId, entry);
    entry.actor = orchestrator.start(
      env.host,
      `replicated/${serviceId}`,
      { serviceId },
      {
        effects: {
          gather: () => env.clock.soon(() => send(entry, { type: "round.due" })),
          decide: () => decide(entry),
          removeTasks: () => removeTasks(entry),
        },
      },
    );
    if (isRemoved) send(entry, { type: "service.removed" });
    return entry;
  }

  function touch(entry: Entry, slot: number | null): void {
    if (slot === null) entry.slots = null;
    else entry.slots?.add(slot);
    touched.add(entry);
  }

  function decide(entry: Entry): void {
    const service = store.get("service", entry.serviceId);
    if (service === undefined || service.spec?.replicated == null) {
      send(entry, { type: "decision.empty", nextMs: -1 });
      return;
    }
    const world: World = { nowMs: env.clock.now(), nodeOf, currency: entry.currency, turns: turnsOf(service) };
    const isDue = entry.lookAgainMs !== null && entry.lookAgainMs <= world.nowMs;
    const slots = isDue ? null : entry.slots;
    entry.slots = new Set();
    let decision: Decision;
    if (slots === null) {
      decision = decideService(
        service,
        groupBySlot(store.tasksByService(service.id)),
        service.spec.replicated.replicas,
        world,
      );
      entry.lookAgainMs = decision.lookAgainMs;
    } else {
      const some = new Map([...slots].map((slot) => [slot, [...store.tasksBySlot(service.id, slot)]]));
      decision = decideSlots(service, some, world);
      // What other slots wait for is still to come.
      const waits = [entry.lookAgainMs, decision.lookAgainMs].filter((time) => time !== null);
      entry.lookAgainMs = waits.length === 0 ? null : Math.min(...waits);
    }
    const nextMs = entry.lookAgainMs === null ? -1 : Math.max(0, Math.ceil(entry.lookAgainMs - world.nowMs));
    if (decision.steps.length === 0) send(entry, { type: "decision.empty", nextMs });
    else {
      send(entry, { type: "decision.made", nextMs });
      write(entry, service, decision);
    }
  }

  function write(entry: Entry, service: Service, { steps, isPartial }: Decision): void {
    const [cluster] = store.all("cluster");
    const templateFor = templatesFor(taskTemplate(service, cluster, now(env)));
    const operationOf = (step: Step): Operation => {
      if (step.kind === "desire") return desire(step.task, step.state);
      const id = newId(random);
      entry.creating.add(id);
      return Operation.create({
        create: StoreObject.create({ task: newTask(templateFor(step.like), id, step.slot, step.desired) }),
      });
    };
    writer.writeSteps(steps, operationOf, () => {
      const isAllThere = !isPartial && entry.creating.size === 0;
      entry.creating.clear();
      if (!isAllThere) {
        entry.slots = null;
        send(entry, { type: "service.touched" });
      }
      send(entry, { type: "decision.written" });
    });
  }

  function removeTasks(entry: Entry): void {
    const operations: Operation[] = [];
    let count = 0;
    for (const task of store.tasksByService(entry.serviceId)) {
      count += 1;
      if (task.desiredState < TaskState.REMOVE) operations.push(desire(task, TaskState.REMOVE));
    }
    // What a decision made is on its way still.
    if (count === 0 && entry.creating.size === 0) {
      send(entry, { type: "tasks.gone" });
      entries.delete(entry.serviceId);
      env.clock.soon(() => entry.actor?.stop());
    } else if (operations.length > 0) writer.write(operations, () => send(entry, { type: "decision.written" }));
  }

  function removed(serviceId: string): void {
    const entry = entries.get(serviceId);
    if (entry !== undefined) {
      entry.isRemoved = true;
      send(entry, { type: "service.removed" });
    } else if (hasTasks(serviceId)) start(serviceId, true);
  }

  function hasTasks(serviceId: string): boolean {
    for (const _ of store.tasksByService(serviceId)) return true;
    return false;
  }

  for (const service of store.all("service")) if (service.spec?.replicated != null) start(service.id, false);
  const left = new Set<string>();
  for (const { serviceId } of store.all("task")) {
    if (serviceId !== "" && !entries.has(serviceId) && store.get("service", serviceId) === undefined)
      left.add(serviceId);
  }
  for (const serviceId of left) start(serviceId, true);

  return {
    taskChanged(old, task) {
      const { serviceId, slot } = (task ?? old) as Task;
      const entry = entries.get(serviceId);
      if (entry === undefined) {
        if (old === null && serviceId !== "" && store.get("service", serviceId) === undefined) start(serviceId, true);
        return;
      }
      if (entry.isRemoved) {
        const isOwn = old === null && entry.creating.delete((task as Task).id);
        if (old === null || (task === null && !hasTasks(serviceId)) || isOwn) touch(entry, null);
      } else if (old === null) {
        if (!entry.creating.delete((task as Task).id)) touch(entry, slot);
      } else if (task === null) {
        if (isWanted(old)) touch(entry, null);
      } else if (mattersToSlot(old, task, nodeOf) || endsPair(old, task, () => store.tasksBySlot(serviceId, slot))) {
        touch(entry, slot);
      }
    },

    nodeChanged(old, node) {
      const isSame = old !== null && node !== null && old.status === node.status && old.spec === node.spec;
      if (isSame) return;
      for (const task of store.tasksByNode(((node ?? old) as Node).id)) {
        const entry = isWanted(task) ? entries.get(task.serviceId) : undefined;
        if (entry !== undefined && faultOf(task, nodeOf) !== null) touch(entry, task.slot);
      }
    },

    serviceChanged(old, service) {
      if (service === null) removed((old as Service).id);
      else if (service.spec?.replicated != null) {
        const entry = entries.get(service.id);
        if (entry === undefined) start(service.id, false);
        // What a rollout, or the allocator, says about the service is no reason to look at all of its slots.
        else if (old === null || !isSameToSlots(old, service)) touch(entry, null);
      }
    },

    turnsCame(serviceId, slots) {
      const entry = entries.get(serviceId);
      if (entry === undefined || entry.isRemoved) return;
      for (const slot of slots) entry.slots?.add(Number(slot));
      send(entry, { type: "service.touched" });
    },

    commitEnded() {
      if (touched.size === 0) return;
      const told = [...touched];
      touched.clear();
      for (const entry of told) send(entry, { type: "service.touched" });
    },

    stop() {
      isStopped = true;
      for (const entry of entries.values()) entry.actor?.stop();
      entries.clear();
    },
  };
}
