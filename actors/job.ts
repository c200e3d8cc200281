/**
 * Hosts an orchestrator for each job. Turns store changes into "look at this job" and decisions into operations. What a
 * removed job leaves behind is stopped by `actors/replicated.ts`, whatever its mode was.
 */
import { jobMachine, type JobEvent } from "../machines/job.ts";
import { decideJob, type JobStep } from "../machines/jobs/decide.ts";
import { newTask, taskTemplate } from "../machines/new-task.ts";
import { faultOf } from "../machines/restart.ts";
import { isEnded, isHeld, isWanted, observedState } from "../machines/task.ts";
import { isJob } from "../machines/validation/service.ts";
import { Kind, Operation, Removal, StoreObject, type Node, type Service, type Task } from "../proto/gen/messages.ts";
import type { HostedActor } from "../runtime/host.ts";
import { newId } from "../runtime/ids.ts";
import type { Environment } from "./environment.ts";
import { hosted } from "./hosted.ts";
import { desire, now, type Part, type Writer } from "./orchestration-part.ts";

const orchestrator = hosted(jobMachine, ["gather", "decide"]);

interface Entry {
  readonly serviceId: string;
  actor: HostedActor<typeof jobMachine> | null;
  /** Ids of tasks that a decision made and the store has not shown yet. */
  readonly creating: Set<string>;
}

export function startJobs(env: Environment, writer: Writer): Part {
  const { store } = env;
  const random = env.random.fork("job");
  const expired = env.telemetry.metrics.counter(
    "muster_job_expired_total",
    "Finished jobs that were removed because their time to live was over.",
  );
  const entries = new Map<string, Entry>();
  /** To be told at the end of the commit. */
  const touched = new Set<Entry>();
  let isStopped = false;
  const nodeOf = (id: string): Node | undefined => store.get("node", id);

  function send(entry: Entry, event: JobEvent): void {
    if (!isStopped && entries.get(entry.serviceId) === entry) entry.actor?.actor.send(event);
  }

  function start(serviceId: string): void {
    const entry: Entry = { serviceId, actor: null, creating: new Set() };
    entries.set(serviceId, entry);
    entry.actor = orchestrator.start(
      env.host,
      `job/${serviceId}`,
      { serviceId },
      {
        effects: {
          gather: () => env.clock.soon(() => send(entry, { type: "round.due" })),
          decide: () => decide(entry),
        },
      },
    );
  }

  function decide(entry: Entry): void {
    const service = store.get("service", entry.serviceId);
    // Its removal is on its way here with the end of the commit.
    if (service === undefined) return send(entry, { type: "decision.empty", phase: "stopped", nextMs: -1 });
    const nowMs = env.clock.now();
    const world = { nowMs, nodeOf, nodes: () => store.all("node") };
    const { phase, steps, lookAgainMs, isPartial, isExpired } = decideJob(
      service,
      store.tasksByService(service.id),
      world,
    );
    const nextMs = lookAgainMs === null ? -1 : Math.max(0, Math.ceil(lookAgainMs - nowMs));
    if (steps.length === 0 && !isExpired) return send(entry, { type: "decision.empty", phase, nextMs });
    send(entry, { type: "decision.made", phase, nextMs });
    const written = (): void => {
      const isAllThere = !isPartial && !isExpired && entry.creating.size === 0;
      entry.creating.clear();
      if (!isAllThere) send(entry, { type: "job.touched" });
      send(entry, { type: "decision.written" });
    };
    if (isExpired) {
      expired.add();
      writer.write([removal(service)], written);
    } else writer.writeSteps(steps, operationsOf(entry, service), written);
  }

  /** Only as it was when its time was found to be over: an update would begin a new iteration. */
  function removal({ id, meta }: Service): Operation {
    return Operation.create({
      remove: Removal.create({ kind: Kind.KIND_SERVICE, id }),
      version: meta?.version?.index ?? 0,
    });
  }

  function operationsOf(entry: Entry, service: Service): (step: JobStep) => Operation {
    const [cluster] = store.all("cluster");
    const template = taskTemplate(service, cluster, now(env));
    return (step) => {
      if (step.kind === "desire") return desire(step.task, step.state);
      const id = newId(random);
      entry.creating.add(id);
      const task = newTask(template, id, step.place.slot, step.desired, step.place.nodeId);
      return Operation.create({ create: StoreObject.create({ task }) });
    };
  }

  for (const service of store.all("service")) if (isJob(service.spec)) start(service.id);

  return {
    taskChanged(old, task) {
      const entry = entries.get((task ?? old)?.serviceId ?? "");
      if (entry === undefined) return;
      if (task === null) {
        // The reaper's deletions change nothing; whatever else deletes a task, a place may be open again.
        if (isWanted(old as Task) || isHeld(observedState(old as Task))) touched.add(entry);
      } else if (old === null) {
        if (!entry.creating.delete(task.id)) touched.add(entry);
      } else if (isEnded(observedState(task)) !== isEnded(observedState(old))) touched.add(entry);
      else if (old.nodeId !== task.nodeId && faultOf(task, nodeOf) !== null) touched.add(entry);
    },

    nodeChanged(old, node) {
      if (entries.size === 0 || (old !== null && node !== null && looksTheSame(old, node))) return;
      for (const entry of entries.values()) {
        if (store.get("service", entry.serviceId)?.spec?.globalJob != null) touched.add(entry);
      }
      for (const task of store.tasksByNode(((node ?? old) as Node).id)) {
        const entry = entries.get(task.serviceId);
        if (entry !== undefined && !isEnded(observedState(task))) touched.add(entry);
      }
    },

    serviceChanged(old, service) {
      const entry = entries.get((service ?? old)?.id ?? "");
      if (service === null) {
        if (entry === undefined) return;
        send(entry, { type: "job.removed" });
        entries.delete(entry.serviceId);
        touched.delete(entry);
        env.clock.soon(() => entry.actor?.stop());
      } else if (isJob(service.spec)) {
        if (entry === undefined) start(service.id);
        else touched.add(entry);
      }
    },

    commitEnded() {
      if (touched.size === 0) return;
      const told = [...touched];
      touched.clear();
      for (const entry of told) send(entry, { type: "job.touched" });
    },

    stop() {
      isStopped = true;
      for (const entry of entries.values()) entry.actor?.stop();
      entries.clear();
    },
  };
}

/** Nothing has changed that a job asks of a node. */
function looksTheSame(old: Node, node: Node): boolean {
  return (
    old.spec === node.spec &&
    old.status === node.status &&
    old.role === node.role &&
    old.description === node.description
  );
}
