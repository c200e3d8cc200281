/**
 * Hosts a schedule for each job that has one, and for each removed one that still has runs. A decision goes into the log as a
 * whole or not at all: the run, the record of its due time, and what it replaces.
 */
import { decideSchedule, type RunFacts } from "../../machines/orchestration/jobs/due.ts";
import { scheduleSettings } from "../../machines/orchestration/jobs/labels.ts";
import { progressOf } from "../../machines/orchestration/jobs/progress.ts";
import {
  readScheduleStatus,
  scheduleKind,
  scheduleOf,
  scheduleResource,
} from "../../machines/orchestration/jobs/runs.ts";
import { scheduleMachine, type ScheduleVerdict } from "../../machines/orchestration/schedule.machine.ts";
import { msUntil } from "../../machines/reconcile.ts";
import { isEnded, isWanted, observedState } from "../../machines/task.ts";
import {
  Kind,
  Operation,
  ProposeRequest_Mode,
  Removal,
  StoreObject,
  type Node,
  type ScheduleStatus,
  type Service,
} from "../../proto/gen/messages.ts";
import { ErrorCode } from "../../runtime/error-codes.ts";
import type { Environment } from "../environment.ts";
import type { Part } from "./part.ts";
import { Reconcilers, type Served } from "./orchestrators.ts";
import type { Round } from "./reconciler.ts";

/** Timeout of proposals to the ledger, in milliseconds; the ledger is in this process, so only the log can delay it. */
const proposalTimeoutMs = 10_000;

interface Entry extends Served {
  isEnding: boolean;
  /** C5. Null: the last proposal was accepted, or may still be. */
  refused: { readonly runId: string; readonly reason: string } | null;
}

/** Codes for which a retry would be refused again. */
const finalCodes: ReadonlySet<number> = new Set([
  ErrorCode.portTaken,
  ErrorCode.referenceMissing,
  ErrorCode.ingressMissing,
  ErrorCode.tooLarge,
  ErrorCode.malformed,
]);

export function startSchedules(env: Environment): Part {
  const { store, telemetry } = env;
  const metrics = {
    started: telemetry.metrics.counter("muster_schedule_runs_total", "Runs started by schedules."),
    passed: telemetry.metrics.counter("muster_schedule_passed_total", "Due times that were skipped or missed."),
  };
  const all = new Reconcilers<typeof scheduleMachine, Entry>({
    env,
    noun: "schedule",
    machine: scheduleMachine,
    decide,
    effects: (entry) => ({ removeRest: () => removeRest(entry) }),
  });
  /** Ids of the runs of each schedule. */
  const runs = new Map<string, Set<string>>();
  const nodeOf = (id: string): Node | undefined => store.get("node", id);

  function start(serviceId: string, isEnding: boolean): void {
    const entry: Entry = { serviceId, isEnding, refused: null };
    all.start(entry);
    if (isEnding) all.send(entry, { type: "schedule.removed" });
  }

  function touch(serviceId: string | null): void {
    const entry = serviceId === null ? undefined : all.get(serviceId);
    if (entry !== undefined && !entry.isEnding) all.touch(entry);
  }

  function factsOf(serviceId: string): Map<string, RunFacts> {
    const facts = new Map<string, RunFacts>();
    const view = { nodeOf, nodes: () => store.all("node") };
    for (const id of runs.get(serviceId) ?? []) {
      const service = store.get("service", id);
      if (service === undefined) continue;
      facts.set(id, { service, progress: progressOf(service, store.tasksByService(id), view) });
    }
    return facts;
  }

  function decide(entry: Entry): Round<ScheduleVerdict> {
    const service = store.get("service", entry.serviceId);
    const settings = scheduleSettings(service?.spec ?? null);
    // Its removal arrives with the end of the commit.
    if (service === undefined || settings === null) return { verdict: { phase: "paused", nextMs: -1 } };
    const nowMs = env.clock.now();
    const resource = store.get("resource", entry.serviceId);
    const decision = decideSchedule(service, settings, readScheduleStatus(resource), {
      nowMs,
      runs: factsOf(entry.serviceId),
      isNameTaken: (name) => store.byName("service", name) !== undefined,
      refusalOf: (id) => (entry.refused?.runId === id ? entry.refused.reason : null),
    });
    const { phase, status, create, stop, remove } = decision;
    const verdict = { phase, nextMs: msUntil(decision.nextMs, nowMs) };
    const operations: Operation[] = [];
    if (status !== null) {
      const record = StoreObject.create({ resource: scheduleResource(resource, status) });
      operations.push(Operation.create(resource === undefined ? { create: record } : { update: record }));
    }
    for (const run of stop) operations.push(Operation.create({ update: StoreObject.create({ service: run }) }));
    for (const run of remove) operations.push(removal(Kind.KIND_SERVICE, run.id));
    if (create !== null) operations.push(Operation.create({ create: StoreObject.create({ service: create }) }));
    if (operations.length === 0) return { verdict };
    const written = (): void => {
      count(status, create);
      if (decision.isPartial) all.touchNow(entry);
    };
    return { verdict, write: () => write(entry, operations, create?.id ?? "", written) };
  }

  function count(status: ScheduleStatus | null, create: Service | null): void {
    if (create !== null) metrics.started.add();
    else if (status?.runs.at(-1)?.runId === "") metrics.passed.add();
  }

  /**
   * C1: all or nothing. A write that was refused, or may have happened, is decided again from the store. `runId`: id of the
   *     proposed run; empty: none.
   */
  function write(entry: Entry, operations: readonly Operation[], runId: string, written: () => void): void {
    const proposal = { operations, mode: ProposeRequest_Mode.ATOMIC, timeoutMs: proposalTimeoutMs };
    void env.proposer.propose(proposal).then((outcome) => {
      if (all.get(entry.serviceId) !== entry) return;
      entry.refused = null;
      if (outcome.kind === "committed") {
        written();
        all.send(entry, { type: "decision.written" });
        return;
      }
      // Another writer came first, or another manager leads now: nothing to report.
      const isOrdinary =
        outcome.kind === "unavailable" ||
        outcome.code === ErrorCode.outOfSequence ||
        outcome.code === ErrorCode.exists ||
        outcome.code === ErrorCode.notFound ||
        outcome.code === ErrorCode.staleEpoch;
      const isFinal = outcome.kind === "refused" && finalCodes.has(outcome.code);
      if (isFinal && runId !== "") entry.refused = { runId, reason: outcome.message };
      if (!isOrdinary) telemetry.log.error({ reason: outcome.message }, "the ledger refused a decision of a schedule");
      all.send(entry, { type: "write.failed" });
    });
  }

  function removeRest(entry: Entry): void {
    const operations: Operation[] = [];
    if (readScheduleStatus(store.get("resource", entry.serviceId)) !== null) {
      operations.push(removal(Kind.KIND_RESOURCE, entry.serviceId));
    }
    // Runs of a job that only lost its schedule stay, as any other finished or unfinished job.
    if (store.get("service", entry.serviceId) === undefined) {
      for (const id of runs.get(entry.serviceId) ?? []) {
        if (store.get("service", id) !== undefined) operations.push(removal(Kind.KIND_SERVICE, id));
      }
    }
    if (operations.length > 0) {
      // Atomicity is not needed; a part that is already removed is noticed at the next check.
      write(entry, operations, "", () => undefined);
      return;
    }
    all.send(entry, { type: "rest.gone" });
    all.forget(entry, () => startNeeded(entry.serviceId));
  }

  /** Starts the schedule if there is one, or if a removed one has left something. */
  function startNeeded(id: string): void {
    const service = store.get("service", id);
    if (service !== undefined && scheduleSettings(service.spec) !== null) start(id, false);
    // Runs of a job that is no longer scheduled stay.
    else if (service === undefined && runs.has(id)) start(id, true);
    else if (store.get("resource", id)?.kind === scheduleKind) start(id, true);
  }

  function end(entry: Entry): void {
    entry.isEnding = true;
    all.send(entry, { type: "schedule.removed" });
  }

  function noteRun(old: Service | null, service: Service | null): void {
    const before = old === null ? null : scheduleOf(old);
    const after = service === null ? null : scheduleOf(service);
    if (before !== null && before !== after) {
      const known = runs.get(before);
      known?.delete((old as Service).id);
      if (known?.size === 0) runs.delete(before);
    }
    if (after !== null) {
      let known = runs.get(after);
      if (known === undefined) runs.set(after, (known = new Set()));
      known.add((service as Service).id);
    }
    touch(before);
    touch(after);
  }

  for (const service of store.all("service")) noteRun(null, service);
  for (const { id } of store.all("service")) startNeeded(id);
  // Some may have been removed while no manager led.
  for (const { id } of store.all("resource")) if (all.get(id) === undefined) startNeeded(id);
  for (const id of runs.keys()) if (all.get(id) === undefined) startNeeded(id);

  return {
    taskChanged(old, task) {
      // Only the end of a run matters here: its tasks end or are abandoned, and no others follow.
      if (task === null || (isWanted(task) && !isEnded(observedState(task)))) return;
      const wasEnded = old !== null && isEnded(observedState(old));
      if (old?.desiredState === task.desiredState && wasEnded === isEnded(observedState(task))) return;
      const service = store.get("service", task.serviceId);
      if (service !== undefined) touch(scheduleOf(service));
    },

    nodeChanged(old, node) {
      // A global job's run is over when every node has done its part.
      if (runs.size === 0 || (old !== null && node !== null && old.status === node.status && old.spec === node.spec))
        return;
      for (const [serviceId, ids] of runs) {
        for (const id of ids) {
          if (store.get("service", id)?.spec?.globalJob != null) touch(serviceId);
        }
      }
    },

    serviceChanged(old, service) {
      noteRun(old, service);
      const id = (service ?? old)?.id ?? "";
      const entry = all.get(id);
      const isScheduled = service !== null && scheduleSettings(service.spec) !== null;
      if (entry === undefined) startNeeded(id);
      else if (isScheduled) touch(id);
      else if (!entry.isEnding) end(entry);
    },

    commitEnded: () => all.commitEnded(),
    stop: () => all.stop(),
  };
}

function removal(kind: Kind, id: string): Operation {
  return Operation.create({ remove: Removal.create({ kind, id }) });
}
