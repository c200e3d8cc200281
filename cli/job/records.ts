/** Records that `muster job` reads besides services: tasks, nodes and schedules. */
import { readCron } from "../../machines/orchestration/jobs/cron.ts";
import type { ScheduleSettings } from "../../machines/orchestration/jobs/labels.ts";
import { progressOf, type JobProgress } from "../../machines/orchestration/jobs/progress.ts";
import { readScheduleStatus, scheduleKind } from "../../machines/orchestration/jobs/runs.ts";
import {
  ControlService,
  ListResourcesRequest,
  ListResourcesRequest_Filters,
  ListTasksRequest_Filters,
  ScheduledRun_Outcome,
  type Node,
  type ScheduledRun,
  type ScheduleStatus,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import { listNodes, listTasks, type ManagerClient } from "../manager-client.ts";
import { millisecondsOf } from "../values.ts";

export interface JobRecords {
  readonly tasks: ReadonlyMap<string, readonly Task[]>;
  readonly nodes: ReadonlyMap<string, Node>;
  /** By service id. */
  readonly schedules: ReadonlyMap<string, ScheduleStatus>;
}

export async function readRecords(client: ManagerClient, jobs: readonly Service[]): Promise<JobRecords> {
  const serviceIds = jobs.map(({ id }) => id);
  const tasks = jobs.length === 0 ? [] : await listTasks(client, ListTasksRequest_Filters.create({ serviceIds }));
  const filters = ListResourcesRequest_Filters.create({ kind: scheduleKind });
  const { resources } = await client.call(
    ControlService.methods.ListResources,
    ListResourcesRequest.create({ filters }),
  );
  const schedules = new Map<string, ScheduleStatus>();
  for (const resource of resources) {
    const status = readScheduleStatus(resource);
    if (status !== null) schedules.set(status.serviceId, status);
  }
  return {
    tasks: Map.groupBy(tasks, ({ serviceId }) => serviceId),
    nodes: new Map((await listNodes(client)).map((node) => [node.id, node])),
    schedules,
  };
}

export function phaseOf(service: Service, { tasks, nodes }: JobRecords): JobProgress {
  return progressOf(service, tasks.get(service.id) ?? [], {
    nodeOf: (id) => nodes.get(id),
    nodes: () => nodes.values(),
  });
}

/** When the next run is due, in milliseconds since the epoch; null while it is paused, or never. */
export function nextDue(
  service: Service,
  settings: ScheduleSettings,
  { schedules }: JobRecords,
  nowMs: number,
): number | null {
  const reading = readCron(settings.cron, settings.timeZone);
  if (settings.isPaused || reading.kind === "invalid") return null;
  return reading.times.after(millisecondsOf(schedules.get(service.id)?.considered ?? null) ?? nowMs);
}

const outcomeNames: { readonly [Outcome in ScheduledRun_Outcome]: string } = {
  [ScheduledRun_Outcome.OUTCOME_UNKNOWN]: "unknown",
  [ScheduledRun_Outcome.OUTCOME_ACTIVE]: "active",
  [ScheduledRun_Outcome.OUTCOME_SUCCEEDED]: "succeeded",
  [ScheduledRun_Outcome.OUTCOME_FAILED]: "failed",
  [ScheduledRun_Outcome.OUTCOME_STOPPED]: "stopped",
  [ScheduledRun_Outcome.OUTCOME_REMOVED]: "removed",
  [ScheduledRun_Outcome.OUTCOME_SKIPPED]: "skipped",
  [ScheduledRun_Outcome.OUTCOME_MISSED]: "missed",
};

/** Such as `missed (12)` for 12 due times in a row, of which the last is shown. */
export function describeOutcome({ outcome, count }: ScheduledRun): string {
  return `${outcomeNames[outcome] ?? "unknown"}${count > 1 ? ` (${count})` : ""}`;
}
