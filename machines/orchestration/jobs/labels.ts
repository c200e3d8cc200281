/**
 * What a job is told beyond SwarmKit's own fields, in labels of its service, so that stock clients can set it too
 * (docs/adr/0009). Reading never fails: a value that `checkJobLabels` would have refused counts as absent.
 */
import { Annotations, PortConfig_PublishMode, ServiceSpec } from "../../../proto/gen/messages.ts";
import { invalid, type Refusal } from "../../refusal.ts";
import { isSameMessage } from "../../same-message.ts";
import { readCron } from "./cron.ts";

/** Names of labels. Whoever writes one uses these. */
export const jobLabel = {
  /** `running` (also when absent), `paused`: nothing new is started, or `stopped`: what runs is stopped too. */
  state: "muster.job.state",
  /** How long the service stays once the job has finished, such as `1h30m`; absent: for good. */
  ttl: "muster.job.ttl",
  /** On a run: id of the scheduled service that it is a run of. Written by the cluster. */
  schedule: "muster.job.schedule",
  /** On a run: its due time, ISO 8601 in UTC. Written by the cluster. */
  due: "muster.job.due",
  /** Five fields, six with seconds in front, or a nickname such as `@daily`. */
  cron: "muster.schedule.cron",
  /** IANA name of the time zone in which the expression is read; absent: UTC. */
  timeZone: "muster.schedule.time-zone",
  /** `forbid` (also when absent), `allow` or `replace`. */
  overlap: "muster.schedule.overlap",
  /** How late a run may start, such as `5m`; absent: however late, as long as no later one is due. */
  missedRunWindow: "muster.schedule.missed-run-window",
  /** How many succeeded, and how many other finished, runs are kept. */
  history: "muster.schedule.history",
  failedHistory: "muster.schedule.failed-history",
} as const;

export type JobState = "running" | "paused" | "stopped";
export type Overlap = "forbid" | "allow" | "replace";

/** Kubernetes' defaults: enough to look at, without filling the store. */
const historyDefault = 3;
const failedHistoryDefault = 1;
/** Each kept run is a service with all its tasks. */
const historyMax = 1_000;

const jobStates: readonly string[] = ["running", "paused", "stopped"] satisfies readonly JobState[];
const overlaps: readonly string[] = ["forbid", "allow", "replace"] satisfies readonly Overlap[];

const unitMs: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };
const durationPattern = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h))+$/;

/** `1h30m`, `500ms`, `0`: as Go writes durations, milliseconds at the finest. Null for anything else. */
function readDurationMs(text: string): number | null {
  if (text === "0") return 0;
  if (!durationPattern.test(text)) return null;
  let sum = 0;
  for (const [, amount, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)) {
    sum += Number(amount) * (unitMs[unit as string] as number);
  }
  return sum;
}

/** Timers fire after their time, so that less than a second would be over whenever a run is due. */
function readWindowMs(text: string): number | null {
  const ms = readDurationMs(text);
  return ms === null || ms < 1_000 ? null : ms;
}

function readCount(text: string): number | null {
  return /^\d{1,4}$/.test(text) && Number(text) <= historyMax ? Number(text) : null;
}

export interface JobSettings {
  readonly state: JobState;
  /** Null: it stays. */
  readonly ttlMs: number | null;
}

export interface ScheduleSettings {
  readonly cron: string;
  readonly timeZone: string;
  readonly isPaused: boolean;
  /** Paused, and what runs is to be stopped too. */
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
    ttlMs: readDurationMs(labels[jobLabel.ttl] ?? ""),
  };
}

/** Null for a service that is not started by a schedule of its own. */
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

/** The labels without those that steer jobs. */
export function otherLabels(labels: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(labels).filter(([label]) => !isOurs(label)));
}

/** True for an update that only steers the job: the work that was done stays done, and no new iteration begins. */
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

/** The first label that cannot be what it says, in the order of `jobLabel`. */
export function checkJobLabels(spec: ServiceSpec): Refusal | null {
  const labels = labelsOf(spec);
  const isJob = spec.replicatedJob !== null || spec.globalJob !== null;
  const first = Object.keys(labels).find(isOurs);
  if (first === undefined) return null;
  if (!isJob) return invalid(`label ${first} fits replicated-job and global-job services only`);
  const known: readonly string[] = Object.values(jobLabel);
  const unknown = Object.keys(labels).find((label) => isOurs(label) && !known.includes(label));
  if (unknown !== undefined) return invalid(`there is no label ${unknown}: ${known.join(", ")} are known`);
  const given = (label: string, isRight: (value: string) => boolean, wanted: string): Refusal | null => {
    const value = labels[label];
    return value === undefined || isRight(value) ? null : invalid(`label ${label} takes ${wanted}, not '${value}'`);
  };
  const aDuration = "a duration such as 90s or 1h30m";
  return (
    given(jobLabel.state, (value) => jobStates.includes(value), `one of ${jobStates.join(", ")}`) ??
    given(jobLabel.ttl, (value) => readDurationMs(value) !== null, aDuration) ??
    checkSchedule(spec, labels) ??
    given(jobLabel.overlap, (value) => overlaps.includes(value), `one of ${overlaps.join(", ")}`) ??
    given(jobLabel.missedRunWindow, (value) => readWindowMs(value) !== null, `${aDuration}, of a second or more`) ??
    given(jobLabel.history, (value) => readCount(value) !== null, `a number up to ${historyMax}`) ??
    given(jobLabel.failedHistory, (value) => readCount(value) !== null, `a number up to ${historyMax}`)
  );
}

function checkSchedule(spec: ServiceSpec, labels: Readonly<Record<string, string>>): Refusal | null {
  const cron = labels[jobLabel.cron];
  if (cron === undefined) {
    const other = Object.keys(labels).find((label) => label.startsWith("muster.schedule."));
    return other === undefined ? null : invalid(`label ${other} needs label ${jobLabel.cron}`);
  }
  if (labels[jobLabel.schedule] !== undefined) return invalid("a run of a schedule cannot have a schedule of its own");
  const reading = readCron(cron, labels[jobLabel.timeZone] ?? "UTC");
  if (reading.kind === "invalid") return invalid(`label ${jobLabel.cron}: ${reading.reason}`);
  if (readDurationMs(labels[jobLabel.ttl] ?? "") === 0)
    return invalid(`label ${jobLabel.ttl} cannot be 0 for a schedule: it is to see how its runs end before they go`);
  // A port of every node is one service's alone, and the schedule, each run and each run kept as history is a service.
  const port = (spec.endpoint?.ports ?? []).find(
    ({ publishMode, publishedPort }) => publishMode === PortConfig_PublishMode.INGRESS && publishedPort !== 0,
  );
  if (port === undefined) return null;
  return invalid(
    `port ${port.publishedPort} cannot be published on every node by each run of a schedule: use mode=host, or leave its number to the cluster`,
  );
}
