/**
 * Invariants of jobs and schedules, in addition to `invariants.ts`.
 *
 * S11: a replicated job has at most MaxConcurrent wanted unfinished tasks, and its slots are 0 to Total - 1.
 * S12: at most one wanted task completes per place and iteration, so no more than TotalCompletions do.
 * S13: each due time of a schedule is handled once: it has one record, as started, skipped or missed, and `considered`
 *      never decreases.
 * S14: a run is created once, in the transaction that records it.
 * S15: at rest a job has finished, is halted, or waits for nodes that an operator paused; a failed job has a failed task; and
 *      a removed schedule has left nothing behind.
 */
import { groupByPlace, isOfIteration, iterationOf, standingOf } from "../../machines/orchestration/jobs/places.ts";
import { progressOf } from "../../machines/orchestration/jobs/progress.ts";
import { readScheduleStatus, scheduleKind, scheduleOf } from "../../machines/orchestration/jobs/runs.ts";
import { isAttempt } from "../../machines/orchestration/restart.machine.ts";
import { isEnded, isWanted, observedState } from "../../machines/task.ts";
import { timeMs } from "../../proto/time.ts";
import { isJob } from "../../machines/orchestration/service-mode.ts";
import {
  NodeSpec_Availability,
  ScheduledRun_Outcome,
  TaskState,
  type Node,
  type Resource,
  type ScheduledRun,
  type ScheduleStatus,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";

/** The version in which each run was created, from any replica. */
export type RunCreations = Map<string, number>;

/** S11 and S12, for the jobs that the commit changed. */
export function checkJobs(commit: Commit, store: Store): string | null {
  const jobs = new Set<Service>();
  for (const change of commit.changes) {
    if (change.table !== "task" || change.object.jobIteration === null) continue;
    const service = store.get("service", change.object.serviceId);
    if (service !== undefined && isJob(service.spec)) jobs.add(service);
  }
  for (const service of jobs) {
    const wrong = checkJob(service, store);
    if (wrong !== null) return wrong;
  }
  return null;
}

function checkJob(service: Service, store: Store): string | null {
  const iteration = iterationOf(service);
  const own = [...store.tasksByService(service.id)].filter((task) => isOfIteration(task, iteration));
  const job = service.spec?.replicatedJob ?? null;
  if (job !== null) {
    const unfinished = own.filter((task) => isWanted(task) && !isEnded(observedState(task)));
    if (unfinished.length > job.maxConcurrent)
      return `S11: job ${service.id} has ${unfinished.length} wanted tasks, more than ${job.maxConcurrent}`;
    const outside = own.find(({ slot }) => slot < 0 || slot >= job.totalCompletions);
    if (outside !== undefined) return `S11: job ${service.id} has a task in slot ${outside.slot}`;
  }
  for (const [place, tasks] of groupByPlace(service, own)) {
    const completed = tasks.filter((task) => isWanted(task) && observedState(task) === TaskState.COMPLETE);
    if (completed.length > 1)
      return `S12: ${place} of job ${service.id} was completed ${completed.length} times in iteration ${iteration}`;
  }
  return null;
}

/** S13 and S14. Schedules in simulations have one form: every N seconds of the minute, in UTC. */
export function checkSchedules(commit: Commit, creations: RunCreations, mark: (name: string) => void): string | null {
  const records = new Map<string, ScheduleStatus>();
  for (const change of commit.changes) {
    if (change.table !== "resource" || change.object.kind !== scheduleKind || change.action === "remove") continue;
    const status = readScheduleStatus(change.object);
    if (status === null) return `S13: the record of ${change.object.id} cannot be read`;
    records.set(status.serviceId, status);
    const wrong = checkRecord(change.old, status);
    if (wrong !== null) return wrong;
    const outcomes = new Set(status.runs.map(({ outcome }) => outcome));
    if (outcomes.has(ScheduledRun_Outcome.OUTCOME_ACTIVE)) mark("schedule.started");
    if (outcomes.has(ScheduledRun_Outcome.OUTCOME_SKIPPED)) mark("schedule.skipped");
    if (outcomes.has(ScheduledRun_Outcome.OUTCOME_MISSED)) mark("schedule.missed");
  }
  for (const change of commit.changes) {
    if (change.table !== "service" || change.action !== "create") continue;
    const { id } = change.object;
    const scheduleId = scheduleOf(change.object);
    if (scheduleId === null) continue;
    const first = creations.get(id);
    if (first !== undefined && first !== commit.version)
      return `S14: run ${id} was created in ${first} and ${commit.version}`;
    creations.set(id, commit.version);
    const isRecorded = records.get(scheduleId)?.runs.some((run) => run.runId === id) === true;
    if (!isRecorded) return `S14: run ${id} was created in ${commit.version} without a record`;
  }
  return null;
}

function checkRecord(old: Resource | null, status: ScheduleStatus): string | null {
  const before = old === null ? null : readScheduleStatus(old);
  const [from, to] = [timeMs(before?.considered ?? null), timeMs(status.considered)];
  if (before === null) return null;
  if (to < from) return `S13: schedule ${status.serviceId} goes back from ${from} to ${to}`;
  const told = new Map(before.runs.map((run) => [timeMs(run.due), run]));
  const fresh = status.runs.reduce((sum, run) => sum + newDueTimes(run, told, from), 0);
  const isChanged =
    before.cron !== status.cron || before.timeZone !== status.timeZone || before.paused !== status.paused;
  // After a change of the schedule, which may be earlier than `to`, other times are due; this bounds the number of records.
  const periodMs = periodOf(before.cron);
  const due = periodMs === null || before.paused ? 0 : Math.floor(to / periodMs) - Math.floor(from / periodMs);
  const most = isChanged ? due + (Math.floor(to / 1_000) - Math.floor(from / 1_000)) : due;
  if (fresh > most || (!isChanged && fresh < due))
    return `S13: schedule ${status.serviceId} (${before.cron}) had ${due} due times from ${from} to ${to}, but ${fresh} are recorded`;
  return null;
}

/** How many due times after `from` are new in the record. */
function newDueTimes(run: ScheduledRun, told: ReadonlyMap<number, ScheduledRun>, from: number): number {
  if (told.has(timeMs(run.due)) || timeMs(run.due) <= from) return 0;
  // A line for several missed runs may have grown from an earlier line.
  const before = [...told.values()].find((other) => other.count > 0 && timeMs(other.firstDue) === timeMs(run.firstDue));
  return run.count - (before?.count ?? 0);
}

function periodOf(cron: string): number | null {
  const seconds = /^\*\/(\d+) \* \* \* \* \*$/.exec(cron)?.[1];
  return seconds === undefined ? null : Number(seconds) * 1_000;
}

/** S15: why one job is not at rest, or null. */
export function findUnfinished(service: Service, store: Store): string | null {
  const { phase, held, done, failed, total } = progressOf(service, store.tasksByService(service.id), {
    nodeOf: (id) => store.get("node", id),
    nodes: () => store.all("node"),
  });
  if (held > 0) return `job ${service.id} (${phase}) has ${held} tasks that nodes hold`;
  const hasFailed = (task: Task): boolean => isAttempt(task) && observedState(task) !== TaskState.COMPLETE;
  if (phase === "failed" && ![...store.tasksByService(service.id)].some(hasFailed))
    return `job ${service.id} has failed without a failed task`;
  if (phase !== "working" || done + failed + waitingForNodes(service, store) >= total) return null;
  return `job ${service.id} has done ${done} of ${total}`;
}

/** S15: leftovers of a removed schedule, or null. */
export function findLeftovers(store: Store): string | null {
  for (const { id, kind } of store.all("resource"))
    if (kind === scheduleKind && store.get("service", id) === undefined)
      return `schedule ${id} was removed but its record remains`;
  for (const service of store.all("service")) {
    const scheduleId = scheduleOf(service);
    if (scheduleId !== null && store.get("service", scheduleId) === undefined)
      return `run ${service.id} is left over from schedule ${scheduleId}`;
  }
  return null;
}

/** Nodes whose failed task of a global job gets no successor until an operator activates them again. */
function waitingForNodes(service: Service, store: Store): number {
  if (service.spec?.globalJob == null) return 0;
  const own = [...store.tasksByService(service.id)].filter((task) => isOfIteration(task, iterationOf(service)));
  const nodeOf = (id: string): Node | undefined => store.get("node", id);
  let count = 0;
  for (const [nodeId, tasks] of groupByPlace(service, own) as Map<string, Task[]>) {
    const isPaused = nodeOf(nodeId)?.spec?.availability === NodeSpec_Availability.PAUSE;
    if (isPaused && standingOf(tasks, nodeOf).kind === "faulty") count += 1;
  }
  return count;
}
