/**
 * Hosts an orchestrator for each job. Turns store changes into checks of the job, and decisions into operations.
 * `actors/orchestration/replicated.ts` stops the tasks of removed jobs of any mode.
 */
import { jobMachine, type JobVerdict } from "../../machines/orchestration/job.machine.ts";
import { isSameToPlaces } from "../../machines/orchestration/global-nodes.ts";
import { decideJob, type JobDecision } from "../../machines/orchestration/jobs/decide.ts";
import { msUntil } from "../../machines/reconcile.ts";
import { newTask, taskTemplate } from "../../machines/orchestration/new-task.ts";
import { faultOf } from "../../machines/orchestration/restart.machine.ts";
import { isEnded, isHeld, isWanted, observedState } from "../../machines/task.ts";
import { isJob } from "../../machines/orchestration/service-mode.ts";
import { Kind, Operation, Removal, type Node, type Service, type Task } from "../../proto/gen/messages.ts";
import type { Environment } from "../environment.ts";
import { now, type Part, type Writer } from "./part.ts";
import { Orchestrators, type Orchestrator } from "./orchestrators.ts";
import type { Round } from "./reconciler.ts";

export function startJobs(env: Environment, writer: Writer): Part {
  const { store } = env;
  const expired = env.telemetry.metrics.counter(
    "muster_job_expired_total",
    "Finished jobs removed because their time to live had passed.",
  );
  const nodeOf = (id: string): Node | undefined => store.get("node", id);
  const all = new Orchestrators<typeof jobMachine, Orchestrator>({
    env,
    writer,
    noun: "job",
    machine: jobMachine,
    decide,
  });

  function start(serviceId: string): void {
    all.start({ serviceId, creating: new Set() });
  }

  function decide(one: Orchestrator): Round<JobVerdict> {
    const service = store.get("service", one.serviceId);
    // Its removal arrives with the end of the commit.
    if (service === undefined) return { verdict: { phase: "stopped", nextMs: -1 } };
    const nowMs = env.clock.now();
    const world = { nowMs, nodeOf, nodes: () => store.all("node"), times: env.times };
    const { phase, steps, lookAgainMs, isPartial, isExpired } = decideJob(
      service,
      store.tasksByService(service.id),
      world,
    );
    const verdict = { phase, nextMs: msUntil(lookAgainMs, nowMs) };
    if (isExpired) return { verdict, write: () => remove(one, service) };
    return steps.length === 0 ? { verdict } : { verdict, write: () => write(one, service, { steps, isPartial }) };
  }

  function remove(one: Orchestrator, service: Service): void {
    expired.add();
    writer.write([removal(service)], () => {
      all.touchNow(one);
      all.send(one, { type: "decision.written" });
    });
  }

  /** Conditional on the version that was found expired: an update would start a new iteration. */
  function removal({ id, meta }: Service): Operation {
    return Operation.create({
      remove: Removal.create({ kind: Kind.KIND_SERVICE, id }),
      version: meta?.version?.index ?? 0,
    });
  }

  function write(one: Orchestrator, service: Service, decision: Pick<JobDecision, "isPartial" | "steps">): void {
    const [cluster] = store.all("cluster");
    const template = taskTemplate(service, cluster, now(env));
    all.writeSteps(one, decision, ({ desired, place }, id) => newTask(template, id, place.slot, desired, place.nodeId));
  }

  for (const service of store.all("service")) if (isJob(service.spec)) start(service.id);

  return {
    taskChanged(old, task) {
      const one = all.get((task ?? old)?.serviceId ?? "");
      if (one === undefined) return;
      if (task === null) {
        // The reaper's deletions change nothing; any other deletion may reopen a place.
        if (isWanted(old as Task) || isHeld(observedState(old as Task))) all.touch(one);
      } else if (old === null) {
        if (!one.creating.delete(task.id)) all.touch(one);
      } else if (isEnded(observedState(task)) !== isEnded(observedState(old))) all.touch(one);
      else if (old.nodeId !== task.nodeId && faultOf(task, nodeOf) !== null) all.touch(one);
    },

    nodeChanged(old, node) {
      if (all.size === 0 || (old !== null && node !== null && isSameToPlaces(old, node))) return;
      for (const one of all.values()) {
        if (store.get("service", one.serviceId)?.spec?.globalJob != null) all.touch(one);
      }
      for (const task of store.tasksByNode(((node ?? old) as Node).id)) {
        const one = all.get(task.serviceId);
        if (one !== undefined && !isEnded(observedState(task))) all.touch(one);
      }
    },

    serviceChanged(old, service) {
      const one = all.get((service ?? old)?.id ?? "");
      if (service === null) {
        if (one === undefined) return;
        all.send(one, { type: "job.removed" });
        all.forget(one);
      } else if (isJob(service.spec)) {
        if (one === undefined) start(service.id);
        else all.touch(one);
      }
    },

    commitEnded: () => all.commitEnded(),
    stop: () => all.stop(),
  };
}
