/**
 * Hosts an orchestrator for each global service. Turns store changes into "look at these nodes" and decisions into
 * operations. What a removed service leaves behind is stopped by `actors/replicated.ts`, whatever its mode was.
 */
import { globalMachine, type GlobalEvent } from "../machines/global.ts";
import { decideNodes, placesOf, type NodeDecision, type NodeStep } from "../machines/global-nodes.ts";
import { newTask, taskTemplate } from "../machines/new-task.ts";
import { templatesFor } from "../machines/rollout/pinned.ts";
import type { Turns } from "../machines/rollout/turns.ts";
import { Currency } from "../machines/task-currency.ts";
import { endsPair, mattersToSlot, type World } from "../machines/slots.ts";
import { isWanted } from "../machines/task.ts";
import { Operation, StoreObject, type Node, type Service, type Task } from "../proto/gen/messages.ts";
import type { HostedActor } from "../runtime/host.ts";
import { newId } from "../runtime/ids.ts";
import type { Environment } from "./environment.ts";
import { hosted } from "./hosted.ts";
import { desire, now, type Part, type Writer } from "./orchestration-part.ts";

const orchestrator = hosted(globalMachine, ["gather", "decide"]);

/** A global service's tasks have no slot number; their nodes stand in for it. */
const noSlot = 0;

interface Entry {
  readonly serviceId: string;
  actor: HostedActor<typeof globalMachine> | null;
  readonly currency: Currency;
  /** Ids of nodes to look at; null: all of them. */
  nodes: Set<string> | null;
  /** Ids of tasks that a decision made and the store has not shown yet. */
  readonly creating: Set<string>;
  /** When something is due, in milliseconds since the epoch; null: nothing is. */
  lookAgainMs: number | null;
}

/** `turnsOf`: what the rollout of a service says to its nodes. */
export function startGlobal(env: Environment, writer: Writer, turnsOf: (service: Service) => Turns): Part {
  const { store } = env;
  const random = env.random.fork("global");
  const entries = new Map<string, Entry>();
  /** To be told at the end of the commit. */
  const touched = new Set<Entry>();
  let isStopped = false;
  const nodeOf = (id: string): Node | undefined => store.get("node", id);

  function send(entry: Entry, event: GlobalEvent): void {
    if (!isStopped && entries.get(entry.serviceId) === entry) entry.actor?.actor.send(event);
  }

  function start(serviceId: string): void {
    const entry: Entry = {
      serviceId,
      actor: null,
      currency: new Currency(),
      nodes: null,
      creating: new Set(),
      lookAgainMs: null,
    };
    entries.set(serviceId, entry);
    entry.actor = orchestrator.start(
      env.host,
      `global/${serviceId}`,
      { serviceId },
      {
        effects: {
          gather: () => env.clock.soon(() => send(entry, { type: "round.due" })),
          decide: () => decide(entry),
        },
      },
    );
  }

  /** `nodeId`: null for all. */
  function touch(entry: Entry, nodeId: string | null): void {
    if (nodeId === null) entry.nodes = null;
    else entry.nodes?.add(nodeId);
    touched.add(entry);
  }

  function decide(entry: Entry): void {
    const service = store.get("service", entry.serviceId);
    if (service?.spec?.global == null) {
      send(entry, { type: "decision.empty", nextMs: -1 });
      return;
    }
    const world: World = { nowMs: env.clock.now(), nodeOf, currency: entry.currency, turns: turnsOf(service) };
    const isDue = entry.lookAgainMs !== null && entry.lookAgainMs <= world.nowMs;
    const nodes = isDue ? null : entry.nodes;
    entry.nodes = new Set();
    let decision: NodeDecision;
    if (nodes === null) {
      decision = decideNodes(service, placesOf(store.all("node"), store.tasksByService(service.id)), world);
      entry.lookAgainMs = decision.lookAgainMs;
    } else {
      const some = new Map([...nodes].map((id) => [id, [...store.tasksAt(service.id, noSlot, id)]]));
      decision = decideNodes(service, some, world);
      // What other nodes wait for is still to come.
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

  function write(entry: Entry, service: Service, { steps, isPartial }: NodeDecision): void {
    const [cluster] = store.all("cluster");
    const templateFor = templatesFor(taskTemplate(service, cluster, now(env)));
    const operationOf = (step: NodeStep): Operation => {
      if (step.kind === "desire") return desire(step.task, step.state);
      const id = newId(random);
      entry.creating.add(id);
      const task = newTask(templateFor(step.like), id, noSlot, step.desired, step.slot);
      return Operation.create({ create: StoreObject.create({ task }) });
    };
    writer.writeSteps(steps, operationOf, () => {
      const isAllThere = !isPartial && entry.creating.size === 0;
      entry.creating.clear();
      if (!isAllThere) {
        entry.nodes = null;
        send(entry, { type: "nodes.touched" });
      }
      send(entry, { type: "decision.written" });
    });
  }

  for (const service of store.all("service")) if (service.spec?.global != null) start(service.id);

  return {
    taskChanged(old, task) {
      const { serviceId, nodeId } = (task ?? old) as Task;
      const entry = entries.get(serviceId);
      if (entry === undefined) return;
      if (old === null) {
        if (!entry.creating.delete((task as Task).id)) touch(entry, nodeId);
      } else if (task === null) {
        if (isWanted(old)) touch(entry, nodeId);
      } else if (
        mattersToSlot(old, task, nodeOf) ||
        endsPair(old, task, () => store.tasksAt(serviceId, noSlot, nodeId))
      ) {
        touch(entry, nodeId);
      }
    },

    nodeChanged(old, node) {
      if (entries.size === 0 || (old !== null && node !== null && looksTheSame(old, node))) return;
      const { id } = (node ?? old) as Node;
      for (const entry of entries.values()) touch(entry, id);
    },

    serviceChanged(old, service) {
      const entry = entries.get((service ?? old)?.id ?? "");
      if (service === null) {
        if (entry === undefined) return;
        send(entry, { type: "service.removed" });
        entries.delete(entry.serviceId);
        touched.delete(entry);
        env.clock.soon(() => entry.actor?.stop());
      } else if (service.spec?.global != null) {
        if (entry === undefined) start(service.id);
        else touch(entry, null);
      }
    },

    turnsCame(serviceId, nodeIds) {
      const entry = entries.get(serviceId);
      if (entry === undefined) return;
      for (const nodeId of nodeIds) entry.nodes?.add(nodeId);
      send(entry, { type: "nodes.touched" });
    },

    commitEnded() {
      if (touched.size === 0) return;
      const told = [...touched];
      touched.clear();
      for (const entry of told) send(entry, { type: "nodes.touched" });
    },

    stop() {
      isStopped = true;
      for (const entry of entries.values()) entry.actor?.stop();
      entries.clear();
    },
  };
}

/** Nothing has changed that a global service asks of a node. */
function looksTheSame(old: Node, node: Node): boolean {
  return (
    old.spec === node.spec &&
    old.status === node.status &&
    old.role === node.role &&
    old.description === node.description
  );
}
