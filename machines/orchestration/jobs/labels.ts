/**
 * Job settings beyond SwarmKit's own fields, in service labels, so that stock clients can set them, too (docs/adr/0009).
 * Reading never fails: a value that `checkJobLabels` would refuse counts as absent.
 */
import { Annotations, PortConfig_PublishMode, ServiceSpec } from "../../../proto/gen/messages.ts";
import { goDurationMs } from "../../../lib/go-duration.ts";
import { invalid, type Refusal } from "../../refusal.ts";
import { isSameMessage } from "../../same-message.ts";
import { readCron } from "./cron.ts";

/** Names of the labels. */
export const jobLabel = {
  /** `running` (default), `paused`: nothing new is started, or `stopped`: running tasks are stopped, too. */
  state: "muster.job.state",
  /** How long the service stays after the job has finished, such as `1h30m`; absent: forever. */
  ttl: "muster.job.ttl",
  /** On a run: id of its scheduled service. Written by the cluster. */
  schedule: "muster.job.schedule",
  /** On a run: its due time, ISO 8601 in UTC. Written by the cluster. */
  due: "muster.job.due",
  /** Five fields, six with seconds first, or a nickname such as `@daily`. */
  cron: "muster.schedule.cron",
  /** IANA name of the expression's time zone; default: UTC. */
  timeZone: "muster.schedule.time-zone",
  /** `forbid` (default), `allow` or `replace`. */
  overlap: "muster.schedule.overlap",
  /** How late a run may start, such as `5m`; absent: any time before the next one is due. */
  missedRunWindow: "muster.schedule.missed-run-window",
  /** How many succeeded runs, and how many other finished runs, are kept. */
  history: "muster.schedule.history",
  failedHistory: "muster.schedule.failed-history",
} as const;

type JobState = "running" | "paused" | "stopped";
type Overlap = "forbid" | "allow" | "replace";

/** Kubernetes' defaults: enough to inspect, without filling the store. */
const historyDefault = 3;
const failedHistoryDefault = 1;
/** Each kept run is a service with all its tasks. */
const historyMax = 1_000;

const jobStates: readonly string[] = ["running", "paused", "stopped"] satisfies readonly JobState[];
const overlaps: readonly string[] = ["forbid", "allow", "replace"] satisfies readonly Overlap[];

/** At least a second: timers fire late, so a shorter window would always have passed. */
function readWindowMs(text: string): number | null {
  const ms = goDurationMs(text);
  return ms === null || ms < 1_000 ? null : ms;
}

function readCount(text: string): number | null {
  return /^\d{1,4}$/.test(text) && Number(text) <= historyMax ? Number(text) : null;
}

interface JobSettings {
  readonly state: JobState;
  /** Null: it stays forever. */
  readonly ttlMs: number | null;
}

export interface ScheduleSettings {
  readonly cron: string;
  readonly timeZone: string;
  readonly isPaused: boolean;
  /** Paused, and running tasks are stopped, too. */
  readonly isStopped: boolean;
  readonly overlap: Overlap;
  /** Null: no limit. */
  readonly windowMs: number | null;
  readonly history: number;
  readonly failedHistory: number;
}

function labelsOf(spec: ServiceSpec | null): Readonly<Record<string, string>> {
  return spec?.annotations?.labels ?? {};
}

export function jobSettings(spec: ServiceSpec | null): JobSettings {
  const labels = labelsOf(spec);
  const state = labels[jobLabel.state] ?? "running";
  return {
    state: jobStates.includes(state) ? (state as JobState) : "running",
    ttlMs: goDurationMs(labels[jobLabel.ttl] ?? ""),
  };
}

/** Null for a service without a schedule of its own. */
export function scheduleSettings(spec: ServiceSpec | null): ScheduleSettings | null {
  if (spec === null || (spec.replicatedJob === null && spec.globalJob === null)) return null;
  const labels = labelsOf(spec);
  const cron = labels[jobLabel.cron] ?? "";
  if (cron === "") return null;
  const { state } = jobSettings(spec);
  const overlap = labels[jobLabel.overlap] ?? "";
  return {
    cron,
    timeZone: labels[jobLabel.timeZone] ?? "UTC",
    isPaused: state !== "running",
    isStopped: state === "stopped",
    overlap: overlaps.includes(overlap) ? (overlap as Overlap) : "forbid",
    windowMs: readWindowMs(labels[jobLabel.missedRunWindow] ?? ""),
    history: readCount(labels[jobLabel.history] ?? "") ?? historyDefault,
    failedHistory: readCount(labels[jobLabel.failedHistory] ?? "") ?? failedHistoryDefault,
  };
}

function isOurs(label: string): boolean {
  return label.startsWith("muster.job.") || label.startsWith("muster.schedule.");
}

/** The labels except those that control jobs. */
export function otherLabels(labels: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(labels).filter(([label]) => !isOurs(label)));
}

/** True for an update that changes only job labels: completed work stays completed, and no new iteration starts. */
export function isSteering(before: ServiceSpec | null, after: ServiceSpec): boolean {
  if (before === null || isSameMessage(before, after)) return false;
  return isSameMessage(withoutOurs(before), withoutOurs(after));
}

function withoutOurs(spec: ServiceSpec): ServiceSpec {
  const annotations = Annotations.patch(spec.annotations ?? Annotations.create(), {
    labels: otherLabels(labelsOf(spec)),
  });
  return ServiceSpec.patch(spec, { annotations });
}

/** Refuses the first invalid label, in the order of `jobLabel`. */
export function checkJobLabels(spec: ServiceSpec): Refusal | null {
  const labels = labelsOf(spec);
  const isJob = spec.replicatedJob !== null || spec.globalJob !== null;
  const first = Object.keys(labels).find(isOurs);
  if (first === undefined) return null;
  if (!isJob) return invalid(`label ${first} applies only to replicated-job and global-job services`);
  const known: readonly string[] = Object.values(jobLabel);
  const unknown = Object.keys(labels).find((label) => isOurs(label) && !known.includes(label));
  if (unknown !== undefined) return invalid(`unknown label ${unknown}: expected one of ${known.join(", ")}`);
  const given = (label: string, isRight: (value: string) => boolean, wanted: string): Refusal | null => {
    const value = labels[label];
    return value === undefined || isRight(value)
      ? null
      : invalid(`invalid value '${value}' for label ${label}: expected ${wanted}`);
  };
  const aDuration = "a duration such as 90s or 1h30m";
  return (
    given(jobLabel.state, (value) => jobStates.includes(value), `one of ${jobStates.join(", ")}`) ??
    given(jobLabel.ttl, (value) => goDurationMs(value) !== null, aDuration) ??
    checkSchedule(spec, labels) ??
    given(jobLabel.overlap, (value) => overlaps.includes(value), `one of ${overlaps.join(", ")}`) ??
    given(jobLabel.missedRunWindow, (value) => readWindowMs(value) !== null, `${aDuration}, at least 1s`) ??
    given(jobLabel.history, (value) => readCount(value) !== null, `a number up to ${historyMax}`) ??
    given(jobLabel.failedHistory, (value) => readCount(value) !== null, `a number up to ${historyMax}`)
  );
}

function checkSchedule(spec: ServiceSpec, labels: Readonly<Record<string, string>>): Refusal | null {
  const cron = labels[jobLabel.cron];
  if (cron === undefined) {
    const other = Object.keys(labels).find((label) => label.startsWith("muster.schedule."));
    return other === undefined ? null : invalid(`label ${other} requires label ${jobLabel.cron}`);
  }
  if (labels[jobLabel.schedule] !== undefined) return invalid("a run of a schedule cannot have a schedule of its own");
  const reading = readCron(cron, labels[jobLabel.timeZone] ?? "UTC");
  if (reading.kind === "invalid") return invalid(`label ${jobLabel.cron}: ${reading.reason}`);
  if (goDurationMs(labels[jobLabel.ttl] ?? "") === 0)
    return invalid(
      `label ${jobLabel.ttl} cannot be 0 for a schedule, which must see the end of its runs before their removal`,
    );
  // An ingress port belongs to one service, and the schedule and each of its runs, also in the history, are services.
  const port = (spec.endpoint?.ports ?? []).find(
    ({ publishMode, publishedPort }) => publishMode === PortConfig_PublishMode.INGRESS && publishedPort !== 0,
  );
  if (port === undefined) return null;
  return invalid(
    `cannot publish port ${port.publishedPort} in ingress mode for a scheduled job, because each run is a service: ` +
      "use mode=host, or let the cluster choose the port",
  );
}
