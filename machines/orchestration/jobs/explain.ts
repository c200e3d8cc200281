/** Explains a job: its progress, or, for a scheduled job, its next run; with the outcomes of the last runs. */
import {
  Reason,
  TaskState,
  type Node,
  type ScheduleStatus,
  type Service,
  type Task,
} from "../../../proto/gen/messages.ts";
import { jobMachine } from "../job.machine.ts";
import type { NodeOf } from "../restart.machine.ts";
import { scheduleMachine } from "../schedule.machine.ts";
import { timeMs, timestampOf } from "../../../proto/time.ts";
import { isEnded, isHeld, isWanted, observedState } from "../../task.ts";
import { waitOf } from "../../wait-meta.ts";
import { readCron } from "./cron.ts";
import { describeRun } from "./due.ts";
import { jobSettings, scheduleSettings, type ScheduleSettings } from "./labels.ts";
import { isOfIteration, iterationOf } from "./places.ts";
import { progressOf, type JobProgress } from "./progress.ts";
import { isActive, isoOf } from "./runs.ts";

/** Distinct task reasons shown for one job (equal ones are counted), and due times shown for a schedule. */
const reasonsMax = 8;
const pastMax = 5;

interface JobView {
  readonly nowMs: number;
  readonly nodeOf: NodeOf;
  readonly nodes: () => Iterable<Node>;
  /** The schedule's record; null if there is none yet. */
  readonly schedule: (serviceId: string) => ScheduleStatus | null;
  readonly explainTask: (task: Task) => readonly Reason[];
}

export function explainJob(service: Service, tasks: Iterable<Task>, view: JobView): readonly Reason[] {
  const settings = scheduleSettings(service.spec);
  if (settings !== null) return explainSchedule(service, settings, view);
  const all = [...tasks];
  const progress = progressOf(service, all, view);
  const since = service.jobStatus?.lastExecution ?? service.meta?.createdAt ?? null;
  const { done, total, failed, finishedMs } = progress;
  const sums = `${done} of ${total} done${failed === 0 ? "" : ` and ${failed} failed`}`;
  const { ttlMs } = jobSettings(service.spec);
  const expiry =
    finishedMs === null || ttlMs === null
      ? {}
      : {
          deadline: timestampOf(Math.round(finishedMs + ttlMs)),
          atDeadline: "is removed",
        };
  const wait = waitOf(jobMachine, progress.phase);
  switch (progress.phase) {
    case "succeeded":
    case "failed":
      return [
        Reason.create({
          since: finishedMs === null ? since : timestampOf(Math.round(finishedMs)),
          ...wait,
          waitingFor: `${wait.waitingFor}, ${sums}`,
          ...expiry,
          tried: progress.phase === "failed" ? failures(service, all) : [],
        }),
      ];
    case "paused":
    case "stopped":
      return [
        Reason.create({
          since,
          ...wait,
          waitingFor: `${wait.waitingFor}: it is ${progress.phase}, ${sums}${stillRunning(progress)}`,
        }),
      ];
    case "working":
    case "scheduled":
      return explainWork(service, all, progress, sums, view);
  }
}

function stillRunning({ held }: JobProgress): string {
  return held === 0 ? "" : `, ${held} still run`;
}

/** The errors of the newest failed tasks. */
function failures(service: Service, tasks: readonly Task[]): readonly string[] {
  const iteration = iterationOf(service);
  const words = tasks
    .filter((task) => isOfIteration(task, iteration) && observedState(task) > TaskState.COMPLETE)
    .map(({ id, status }) => `task ${id}: ${status?.err === "" ? status.message : (status?.err ?? "")}`);
  return words.slice(-reasonsMax);
}

function explainWork(
  service: Service,
  tasks: readonly Task[],
  progress: JobProgress,
  sums: string,
  view: JobView,
): readonly Reason[] {
  const since = service.jobStatus?.lastExecution ?? null;
  const iteration = iterationOf(service);
  const job = service.spec?.replicatedJob ?? null;
  const late = new Map<string, { readonly first: Reason; count: number }>();
  let running = 0;
  let leaving = 0;
  for (const task of tasks) {
    const state = observedState(task);
    if (!isOfIteration(task, iteration)) {
      if (isHeld(state)) leaving += 1;
      continue;
    }
    if (!isWanted(task) || isEnded(state)) continue;
    if (state === TaskState.RUNNING && task.desiredState === TaskState.COMPLETE) {
      running += 1;
      continue;
    }
    for (const why of view.explainTask(task)) {
      const key = why.tried.at(-1) ?? why.waitingFor;
      const known = late.get(key);
      if (known === undefined) late.set(key, { first: why, count: 1 });
      else known.count += 1;
    }
  }
  const head = (waitingFor: string, wokenBy: string): Reason => Reason.create({ since, waitingFor, wokenBy });
  const reasons = [...late.values()]
    .slice(0, reasonsMax)
    .map(({ first, count }) =>
      count === 1 ? first : Reason.patch(first, { waitingFor: `${first.waitingFor} (${count} tasks)` }),
    );
  if (job?.maxConcurrent === 0) {
    return [head("nothing: max-concurrent is 0, so no task can start", "an update of the service")];
  }
  if (job === null && progress.total === 0) return [head("an eligible node", "a node that joins or changes")];
  const rest =
    job === null
      ? ""
      : `, ${Math.max(0, job.totalCompletions - progress.done - progress.failed - progress.busy)} to start, at most ${job.maxConcurrent} at a time`;
  const earlier = leaving === 0 ? "" : `; ${leaving} of an earlier iteration have not stopped`;
  const wait = waitOf(jobMachine, "working");
  return [head(`${wait.waitingFor}: ${sums}, ${running} running${rest}${earlier}`, wait.wokenBy), ...reasons];
}

function explainSchedule(service: Service, settings: ScheduleSettings, view: JobView): readonly Reason[] {
  const record = view.schedule(service.id);
  const past = (record?.runs ?? []).slice(-pastMax).map((run) => describeRun(run));
  const active = (record?.runs ?? []).filter(isActive);
  const since = record?.considered ?? service.meta?.createdAt ?? null;
  const overlap =
    active.length === 0 || settings.overlap === "allow"
      ? ""
      : settings.overlap === "forbid"
        ? `, unless ${active[0]?.runName} still runs then`
        : `, which would end ${active[0]?.runName}`;
  if (settings.isPaused) {
    return [
      Reason.create({
        since,
        ...waitOf(scheduleMachine, "paused"),
        tried: past,
      }),
    ];
  }
  const reading = readCron(settings.cron, settings.timeZone);
  if (reading.kind === "invalid") {
    const invalid = waitOf(scheduleMachine, "invalid");
    return [
      Reason.create({
        since,
        ...invalid,
        waitingFor: `${invalid.waitingFor}: ${reading.reason}`,
        tried: past,
      }),
    ];
  }
  const dueMs = reading.times.after(Math.max(timeMs(record?.considered ?? null), record === null ? view.nowMs : 0));
  if (dueMs === null) {
    return [
      Reason.create({
        since,
        waitingFor: "nothing: its cron expression is never due again",
        wokenBy: "an update of the service",
        tried: past,
      }),
    ];
  }
  const isLate = dueMs <= view.nowMs;
  const next = waitOf(scheduleMachine, "waiting");
  return [
    Reason.create({
      since,
      waitingFor: isLate
        ? `the schedule, to start the run that was due at ${isoOf(dueMs)}`
        : `${next.waitingFor}, due at ${isoOf(dueMs)} (${settings.cron} in ${settings.timeZone})${overlap}`,
      wokenBy: isLate ? "its next decision, due at once" : next.wokenBy,
      ...(isLate ? {} : { deadline: timestampOf(dueMs), atDeadline: "starts" }),
      tried: past,
    }),
  ];
}
