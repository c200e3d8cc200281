/** `muster job`: run, ls, ps, history, pause, resume, stop, rerun, rm. */
import { describeOutcome, nextDue, phaseOf, readRecords, type JobRecords } from "./job/records.ts";
import { jobLabel, scheduleSettings } from "../machines/orchestration/jobs/labels.ts";
import { scheduleOf } from "../machines/orchestration/jobs/runs.ts";
import { isJob } from "../machines/orchestration/service-mode.ts";
import {
  Annotations,
  ControlService,
  CreateServiceRequest,
  ListTasksRequest_Filters,
  RemoveServiceRequest,
  ScheduledRun,
  Service,
  ServiceSpec,
  UpdateServiceRequest,
} from "../proto/gen/messages.ts";
import { command, listingOptions, type Command } from "./command.ts";
import { iterationRows } from "./job/history.ts";
import { isAwaited, jobFlags, jobSpec } from "./job/flags.ts";
import {
  findService,
  listServices,
  listTasks,
  retryingConflicts,
  serviceName,
  withManager,
  type ManagerClient,
} from "./manager-client.ts";
import { eachOperand } from "./operands.ts";
import { untilConverged } from "./progress.ts";
import { withDriverConfig } from "./service/driver.ts";
import { lookupsFor } from "./service/references.ts";
import { withRegistryAuth } from "./service/registry-auth.ts";
import { printListing, type Row } from "./table.ts";
import { printTasks, taskListingOptions } from "./task/listing.ts";
import { imageOf } from "./task/table.ts";
import { UserError } from "../lib/user-error.ts";
import { ago, millisecondsOf } from "./values.ts";
import { humanDuration } from "../lib/human-duration.ts";

const methods = ControlService.methods;

/** Docker's length of ids in listings. */
const shortIdLength = 12;

const run = command({
  operands: "[IMAGE|COMMAND] [ARG...]",
  stopsAtOperand: true,
  summary: "Run tasks to completion, once or on a schedule.",
  options: jobFlags,
  run: ({ values, operands, shell }) => {
    const isToEnd = isAwaited(values);
    return withManager(shell, async (client) => {
      const spec = jobSpec(await withDriverConfig(values), operands, await lookupsFor(client, values));
      const isAuthSent = values["with-registry-auth"] === true;
      const request = CreateServiceRequest.create({ spec: isAuthSent ? withRegistryAuth(spec) : spec });
      const { service } = await client.call(methods.CreateService, request);
      const id = service?.id ?? "";
      shell.print(id);
      if (isToEnd) await untilConverged(client, shell, id, { quiet: values.quiet ?? false });
    });
  },
});

/** Throws UserError when the service is not a job. */
async function findJob(client: ManagerClient, operand: string): Promise<Service> {
  const service = await findService(client, operand);
  if (!isJob(service.spec)) throw new UserError(`service ${operand} is not a job: use 'muster service' for it`);
  return service;
}

function jobRow(service: Service, records: JobRecords, nowMs: number): Row {
  const settings = scheduleSettings(service.spec);
  const { phase, done, total } = phaseOf(service, records);
  const due = settings === null ? null : nextDue(service, settings, records, nowMs);
  const cells = [
    service.id.slice(0, shortIdLength),
    serviceName(service),
    phase,
    settings === null ? `${done}/${total}` : "",
    settings === null ? "" : `${settings.cron} ${settings.timeZone}`,
    due === null ? "" : new Date(due).toISOString().replace(".000Z", "Z"),
    imageOf(service.spec?.task ?? null),
  ];
  return { id: service.id, cells, object: () => Service.toJson(service) };
}

const ls = command({
  summary: "List jobs with their progress and the next run of scheduled ones.",
  options: { ...listingOptions, "no-runs": { type: "boolean", help: "Do not show the runs of schedules" } },
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const jobs = (await listServices(client))
        .filter((service) => isJob(service.spec) && (values["no-runs"] !== true || scheduleOf(service) === null))
        .toSorted((a, b) => serviceName(a).localeCompare(serviceName(b)));
      const records = await readRecords(client, jobs);
      const headings = ["ID", "NAME", "STATE", "COMPLETED", "SCHEDULE", "NEXT RUN", "IMAGE"];
      printListing(shell, { headings, rows: jobs.map((job) => jobRow(job, records, shell.now())) }, values);
    }),
});

const ps = command({
  operands: "JOB [JOB...]",
  min: 1,
  summary: "List the tasks of one or more jobs, or of a scheduled job's runs.",
  options: taskListingOptions,
  run: ({ values, operands, shell }) =>
    withManager(shell, (client) =>
      printTasks(client, shell, values, async () => {
        const services = await listServices(client);
        const serviceIds: string[] = [];
        for (const operand of operands) {
          const { id } = await findJob(client, operand);
          serviceIds.push(id, ...services.filter((service) => scheduleOf(service) === id).map((each) => each.id));
        }
        return ListTasksRequest_Filters.create({ serviceIds });
      }),
    ),
});

/** One row per due time, newest first. */
function runRow(record: ScheduledRun, nowMs: number): Row {
  const [started, ended] = [millisecondsOf(record.decidedAt), millisecondsOf(record.finishedAt)];
  const duration = record.runId === "" || started === null ? "" : humanDuration((ended ?? nowMs) - started);
  return {
    id: record.runId,
    cells: [
      new Date(millisecondsOf(record.due) ?? 0).toISOString().replace(".000Z", "Z"),
      describeOutcome(record),
      record.runName,
      duration,
      record.reason,
    ],
    object: () => ScheduledRun.toJson(record),
  };
}

const history = command({
  operands: "JOB",
  min: 1,
  max: 1,
  summary: "Show the outcome of each due time of a schedule, or of each iteration of a job.",
  options: listingOptions,
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const service = await findJob(client, operands[0] as string);
      if (scheduleSettings(service.spec) === null) {
        const tasks = await listTasks(client, ListTasksRequest_Filters.create({ serviceIds: [service.id] }));
        const headings = ["ITERATION", "BEGAN", "COMPLETED", "FAILED", "OTHER"];
        printListing(shell, { headings, rows: iterationRows(tasks, (time) => ago(time, shell.now())) }, values);
        return;
      }
      const record = (await readRecords(client, [service])).schedules.get(service.id);
      const runs = (record?.runs ?? []).toReversed();
      const headings = ["DUE", "OUTCOME", "RUN", "DURATION", "REASON"];
      printListing(shell, { headings, rows: runs.map((each) => runRow(each, shell.now())) }, values);
    }),
});

/** An update of labels only: completed tasks stay completed. */
function labelled(spec: ServiceSpec, state: string): ServiceSpec {
  const annotations = spec.annotations ?? Annotations.create({});
  const labels: Record<string, string> = { ...annotations.labels, [jobLabel.state]: state };
  if (state === "running") delete labels[jobLabel.state];
  return ServiceSpec.patch(spec, { annotations: Annotations.patch(annotations, { labels }) });
}

function changing(summary: string, change: (service: Service) => ServiceSpec | null): Command {
  return command({
    operands: "JOB [JOB...]",
    min: 1,
    summary,
    options: {},
    run: ({ operands, shell }) =>
      withManager(shell, (client) =>
        eachOperand(operands, async (operand) => {
          await retryingConflicts(async () => {
            const service = await findJob(client, operand);
            const spec = change(service);
            if (spec === null) return;
            const serviceVersion = service.meta?.version ?? null;
            const request = UpdateServiceRequest.create({ serviceId: service.id, serviceVersion, spec });
            await client.call(methods.UpdateService, request);
          });
          shell.print(operand);
        }),
      ),
  });
}

/** Null when the job is already in that state: an update, even without a change, would start a new iteration. */
const steering =
  (state: string) =>
  ({ spec }: Service): ServiceSpec | null =>
    (spec?.annotations?.labels[jobLabel.state] ?? "running") === state
      ? null
      : labelled(spec ?? ServiceSpec.create({}), state);

const pause = changing("Pause one or more jobs: start no new tasks; running ones go on.", steering("paused"));
const resume = changing(
  "Resume one or more paused or stopped jobs; completed tasks stay completed.",
  steering("running"),
);
const stop = changing(
  "Stop the running tasks of one or more jobs or schedules; completed tasks stay completed.",
  steering("stopped"),
);

const rerun = changing("Run one or more jobs again from the start, in a new iteration.", (service) => {
  if (scheduleSettings(service.spec) !== null) {
    throw new UserError(
      `${serviceName(service)} is a schedule: rerun one of its runs instead (see 'muster job history')`,
    );
  }
  return service.spec;
});

const rm = command({
  operands: "JOB [JOB...]",
  min: 1,
  summary: "Remove one or more jobs, and a schedule's runs; their tasks are stopped.",
  options: {},
  run: ({ operands, shell }) =>
    withManager(shell, (client) =>
      eachOperand(operands, async (operand) => {
        const { id } = await findJob(client, operand);
        await client.call(methods.RemoveService, RemoveServiceRequest.create({ serviceId: id }));
        shell.print(operand);
      }),
    ),
});

export const commands: Readonly<Record<string, Command>> = { run, ls, ps, history, pause, resume, stop, rerun, rm };
