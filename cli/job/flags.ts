/** Flags of `job run`: those of `service create` that fit a job, the job's own, and their labels. */
import { jobLabel } from "../../machines/orchestration/jobs/labels.ts";
import type { ServiceSpec } from "../../proto/gen/messages.ts";
import { UsageError } from "../../lib/user-error.ts";
import { behaviourFlags, createFlags, type CreateValues, type FlagValues } from "../service/flags.ts";
import { newSpec } from "../service/spec.ts";
import type { Lookups } from "../service/references.ts";

const jobs = "Job";
const schedules = "Schedule";

/** Omits flags that `mode` implies, and those of features that jobs lack: updates, and waiting by default. */
function withoutUnsupported<Flags extends Readonly<Record<string, unknown>>>(flags: Flags) {
  const unfit = /^(mode|detach|(update|rollback)-.*)$/;
  return Object.fromEntries(Object.entries(flags).filter(([name]) => !unfit.test(name))) as Omit<
    Flags,
    "mode" | "detach" | `update-${string}` | `rollback-${string}`
  >;
}

export const jobFlags = {
  ...withoutUnsupported(createFlags),
  total: { type: "string", group: jobs, value: "N", help: "Number of completions (default 1); same as --replicas" },
  global: { type: "boolean", group: jobs, help: "Run once on each node, including nodes that join later" },
  ttl: {
    type: "string",
    group: jobs,
    value: "DURATION",
    help: "Remove the job this long after it has finished (default: never)",
  },
  wait: { type: "boolean", group: jobs, help: "Wait until the job has finished; exit status 1 if it fails" },
  detach: { ...behaviourFlags.detach, help: "Accepted for compatibility; always the case without --wait" },
  paused: { type: "boolean", group: jobs, help: "Start nothing until 'muster job resume'" },
  schedule: {
    type: "string",
    group: schedules,
    value: "CRON",
    help: "Cron expression of the times to run, such as '30 2 * * *'",
  },
  "time-zone": {
    type: "string",
    group: schedules,
    value: "NAME",
    help: "Time zone of the schedule, such as Europe/Rome (default UTC)",
  },
  overlap: {
    type: "string",
    group: schedules,
    value: "POLICY",
    help: "What to do when a run is due while another is running: forbid, allow or replace (default forbid)",
  },
  "missed-run-window": {
    type: "string",
    group: schedules,
    value: "DURATION",
    help: "How late a run may start (default: unlimited)",
  },
  history: { type: "string", group: schedules, value: "N", help: "Number of succeeded runs to keep (default 3)" },
  "failed-history": {
    type: "string",
    group: schedules,
    value: "N",
    help: "Number of other finished runs to keep (default 1)",
  },
} as const;

export type JobValues = FlagValues<typeof jobFlags>;

const labelFlags = {
  ttl: jobLabel.ttl,
  schedule: jobLabel.cron,
  "time-zone": jobLabel.timeZone,
  overlap: jobLabel.overlap,
  "missed-run-window": jobLabel.missedRunWindow,
  history: jobLabel.history,
  "failed-history": jobLabel.failedHistory,
} as const;

/** Whether the command waits for the job; `--detach=false` is Docker's way to say so. Throws UsageError. */
export function isAwaited({ detach, wait }: JobValues): boolean {
  if (detach === true && wait === true) throw new UsageError("--wait and --detach are mutually exclusive");
  return wait === true || detach === false;
}

/** Throws UsageError for flags that contradict each other; the manager validates their values. */
export function jobSpec(flags: JobValues, words: readonly string[], lookups: Lookups): ServiceSpec {
  if (flags.total !== undefined && flags.replicas !== undefined)
    throw new UsageError("--total and --replicas mean the same: set only one");
  const total = flags.total ?? flags.replicas;
  const isGlobal = flags.global === true;
  if (isGlobal && (total ?? flags["max-concurrent"]) !== undefined) {
    throw new UsageError("a --global job runs one task per node: omit --total and --max-concurrent");
  }
  if (flags.schedule === undefined) {
    const stray = ["time-zone", "overlap", "missed-run-window", "history", "failed-history"] as const;
    const given = stray.find((name) => flags[name] !== undefined);
    if (given !== undefined) throw new UsageError(`--${given} requires --schedule`);
  } else if (isAwaited(flags))
    throw new UsageError("--wait cannot be used with --schedule: a schedule never completes");
  const labels = [...(flags.label ?? [])];
  for (const [flag, label] of Object.entries(labelFlags)) {
    const value = flags[flag as keyof typeof labelFlags];
    if (value !== undefined) labels.push(`${label}=${value}`);
  }
  if (flags.paused === true) labels.push(`${jobLabel.state}=paused`);
  const common: CreateValues = { ...flags, label: labels, mode: isGlobal ? "global-job" : "replicated-job" };
  return newSpec(total === undefined ? common : { ...common, replicas: total }, words, lookups);
}
