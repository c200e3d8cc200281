/** Reads a JSON report back, to print it again or to compare it. Checks every value: the file may come from anywhere. */
import { UserError } from "../../lib/user-error.ts";
import type { RehearsalOutcome, RunOutcome } from "../../simulation/rehearsal/outcome.ts";
import { reportVersion } from "./json.ts";

export interface SavedOutcome {
  readonly outcome: RehearsalOutcome;
  /** Command line of the rehearsal. */
  readonly command: string;
}

type Check = (value: unknown, path: string) => string | null;

const number: Check = (value, path) =>
  typeof value === "number" && Number.isFinite(value) ? null : `${path} must be a number`;
const text: Check = (value, path) => (typeof value === "string" ? null : `${path} must be a string`);

function orNull(check: Check): Check {
  return (value, path) => (value === null ? null : check(value, path));
}

/** For keys that reports of earlier versions lack. */
function orAbsent(check: Check): Check {
  return (value, path) => (value === undefined ? null : check(value, path));
}

function listOf(check: Check): Check {
  return (value, path) => {
    if (!Array.isArray(value)) return `${path} must be a list`;
    return value.reduce<string | null>((found, each, at) => found ?? check(each, `${path}[${at}]`), null);
  };
}

/** Further keys are allowed: later versions add some. */
function object(keys: Readonly<Record<string, Check>>): Check {
  return (value, path) => {
    if (typeof value !== "object" || value === null || Array.isArray(value))
      return `${path || "the file"} must be an object`;
    const held = value as Readonly<Record<string, unknown>>;
    return Object.entries(keys).reduce<string | null>(
      (found, [key, check]) =>
        found ?? check(Object.hasOwn(held, key) ? held[key] : undefined, path === "" ? key : `${path}.${key}`),
      null,
    );
  };
}

const rollout = object({
  beganMs: number,
  endedMs: orNull(number),
  state: text,
  blocked: listOf(object({ reason: text, ms: number })),
});

const move = object({ atMs: number, from: text, to: orNull(text), reason: text });

const service = object({
  name: text,
  replicas: listOf(object({ atMs: number, wanted: number, running: number })),
  availabilityMin: number,
  fullShare: number,
  rollouts: listOf(rollout),
  moves: listOf(move),
  firstFullMs: orNull(number),
});

const job = object({
  name: text,
  executions: listOf(
    object({ beganMs: number, endedMs: orNull(number), state: text, total: number, done: number, failedTasks: number }),
  ),
  moves: listOf(move),
});

const run = object({
  seed: number,
  ranMs: number,
  violation: orNull(text),
  services: listOf(service),
  jobs: orAbsent(listOf(job)),
  placement: listOf(object({ atMs: number, min: number, max: number, mean: number })),
  refusals: listOf(object({ atMs: number, request: text, reason: text })),
  requests: number,
  events: listOf(object({ atMs: number, text })),
});

const file = object({
  command: text,
  report: orNull(object({ cluster: text, scenario: text, durationMs: number, seedsWanted: number })),
  runs: listOf(run),
});

/** `name`: of the file in errors. Throws UserError. */
export function readOutcome(json: string, name: string): SavedOutcome {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    throw new UserError(`${name} is not a report of a rehearsal: ${(error as Error).message}`, { cause: error });
  }
  const version = (value as { readonly version?: unknown } | null)?.version;
  if (version !== reportVersion) {
    throw new UserError(
      `${name}: expected a report with version ${reportVersion}, written by 'muster simulate --json'`,
    );
  }
  const problem = file(value, "");
  if (problem !== null) throw new UserError(`${name}: ${problem}`);
  const { command, report, runs } = value as {
    readonly command: string;
    readonly report: Omit<RehearsalOutcome, "runs"> | null;
    readonly runs: readonly (Omit<RunOutcome, "jobs"> & { readonly jobs?: RunOutcome["jobs"] })[];
  };
  if (report === null) throw new UserError(`${name}: no seed was finished`);
  const { cluster, scenario, durationMs, seedsWanted } = report;
  if (durationMs <= 0) throw new UserError(`${name}: report.durationMs must be above 0`);
  const whole = runs.map((each) => ({ ...each, jobs: each.jobs ?? [] }));
  return { command, outcome: { cluster, scenario, durationMs, seedsWanted, runs: whole } };
}
