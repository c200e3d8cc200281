/**
 * Decides the next steps of one scheduled job. Pure and stateless: the result follows from the schedule's record and its runs.
 *
 * C1: each due time is handled exactly once: the record's `considered` and the run, if any, change in one transaction, and
 *     only if the record has not changed since it was read.
 * C2: of several due times missed together, only the newest may still start; the earlier ones are recorded as missed. So a
 *     delayed schedule does not start many runs at once.
 * C3: a change of expression, time zone or pause takes effect when the service is changed. Earlier due times of the old
 *     settings that were not started are recorded as missed.
 * C4: history: the configured number of newest finished runs is kept, and the newest hundred due times.
 * C5: a due time whose run the log refuses (for example because another service has its port) is skipped, with the log's
 *     reason.
 * C6: stopping a schedule stops its runs, once: a run that an operator resumes by name continues.
 */
import {
  ScheduledRun,
  ScheduledRun_Outcome,
  ScheduleStatus,
  Service,
  type ServiceSpec,
} from "../../../proto/gen/messages.ts";
import { newService } from "../service-update.ts";
import { timeMs, timestampOf } from "../../../proto/time.ts";
import { readCron, type DueTimes } from "./cron.ts";
import type { ScheduleSettings } from "./labels.ts";
import { isOver, type JobProgress } from "./progress.ts";
import { isActive, isoOf, runId, runName, runSpec, stoppedSpec } from "./runs.ts";

/** Due times in the record, in addition to active runs. */
const recordsMax = 100;
/** Concurrent runs of one schedule with overlap `allow`: bounds jobs that never end. */
const activeRunsMax = 100;
/** Due times handled in one decision: about 15 ms of work. */
const dueTimesMax = 100;

export interface RunFacts {
  readonly service: Service;
  readonly progress: JobProgress;
}

interface DueWorld {
  readonly nowMs: number;
  /** All runs, by id. */
  readonly runs: ReadonlyMap<string, RunFacts>;
  isNameTaken(name: string): boolean;
  /** Why the log refused the run when it was last proposed; null: it has not. */
  refusalOf(id: string): string | null;
}

interface ScheduleDecision {
  readonly phase: "waiting" | "paused" | "invalid";
  /** The new record; null: unchanged. */
  readonly status: ScheduleStatus | null;
  readonly create: Service | null;
  /** Runs to stop, with the spec that stops them. */
  readonly stop: readonly Service[];
  readonly remove: readonly Service[];
  /** When the next run is due, in milliseconds since the epoch; null: never, or paused. */
  readonly nextMs: number | null;
  /** One decision cannot hold all steps; more follow. */
  readonly isPartial: boolean;
}

const missedReason = "a later run was due before it could start";
const Outcome = ScheduledRun_Outcome;

/** `record`: the stored record; null: none yet. */
export function decideSchedule(
  service: Service,
  settings: ScheduleSettings,
  record: ScheduleStatus | null,
  world: DueWorld,
): ScheduleDecision {
  const ledger = new Runs(service, record, world);
  ledger.settleRuns();
  const { cron, timeZone, isPaused, isStopped } = settings;
  if (isStopped) ledger.stopRuns();
  const isSame = record !== null && record.cron === cron && record.timeZone === timeZone && record.paused === isPaused;
  let isPartial = false;
  let consideredMs = timeMs(record?.considered ?? null);
  if (!isSame) {
    // C3. The ledger's time of the last write, so that a later leader decides the same.
    const changedMs = Math.floor(Math.min(world.nowMs, timeMs(service.meta?.updatedAt ?? null)));
    const before = record === null || record.paused ? null : timesOf(record.cron, record.timeZone);
    if (before !== null) {
      const missed = dueBetween(before, consideredMs, changedMs);
      ledger.miss(missed.due, "the schedule was changed before it started");
      consideredMs = missed.isCut ? (missed.due.at(-1) as number) : consideredMs;
      if (missed.isCut) return ledger.decision("waiting", consideredMs, record as ScheduleStatus, settings, null, true);
    }
    consideredMs = Math.max(consideredMs, changedMs);
  }
  const signature = { cron, timeZone, paused: isPaused };
  if (isPaused) return ledger.decision("paused", consideredMs, signature, settings, null, false);
  const times = timesOf(cron, timeZone);
  if (times === null) return ledger.decision("invalid", consideredMs, signature, settings, null, false);
  const { due, isCut } = dueBetween(times, consideredMs, world.nowMs);
  if (isCut) {
    // C2: a later one is due, too.
    ledger.miss(due, missedReason);
    isPartial = true;
  } else {
    ledger.miss(due.slice(0, -1), missedReason);
    const newest = due.at(-1);
    if (newest !== undefined) ledger.start(newest, settings);
  }
  consideredMs = due.at(-1) ?? consideredMs;
  return ledger.decision("waiting", consideredMs, signature, settings, times.after(consideredMs), isPartial);
}

function timesOf(cron: string, timeZone: string): DueTimes | null {
  const reading = readCron(cron, timeZone);
  return reading.kind === "times" ? reading.times : null;
}

/** Due times after `fromMs` up to `toMs`, oldest first; at most `dueTimesMax`. */
function dueBetween(
  times: DueTimes,
  fromMs: number,
  toMs: number,
): { readonly due: readonly number[]; readonly isCut: boolean } {
  const due: number[] = [];
  for (let at = times.after(fromMs); at !== null && at <= toMs; at = times.after(at)) {
    if (due.length === dueTimesMax) return { due, isCut: true };
    due.push(at);
  }
  return { due, isCut: false };
}

class Runs {
  readonly #service: Service;
  readonly #world: DueWorld;
  readonly #before: ScheduleStatus | null;
  #records: ScheduledRun[];
  #create: Service | null = null;
  readonly #stop: Service[] = [];
  #hasChanged = false;

  constructor(service: Service, before: ScheduleStatus | null, world: DueWorld) {
    this.#service = service;
    this.#before = before;
    this.#world = world;
    this.#records = [...(before?.runs ?? [])];
  }

  /** Records the outcomes of active runs. */
  settleRuns(): void {
    this.#records = this.#records.map((record) => {
      if (!isActive(record)) return record;
      const run = this.#world.runs.get(record.runId);
      if (run !== undefined && !isOver(run.progress)) return record;
      this.#hasChanged = true;
      const finishedMs = run?.progress.finishedMs ?? null;
      return ScheduledRun.patch(record, {
        outcome: run === undefined ? Outcome.OUTCOME_REMOVED : outcomeOf(run.progress),
        finishedAt: timestampOf(finishedMs ?? this.#world.nowMs),
        ...(run === undefined ? { reason: "its service was removed before it was observed to finish" } : {}),
      });
    });
  }

  miss(due: readonly number[], reason: string): void {
    const [first] = due;
    const last = due.at(-1);
    if (first === undefined || last === undefined) return;
    const newest = this.#records.at(-1);
    if (newest?.outcome === Outcome.OUTCOME_MISSED && newest.reason === reason) {
      this.#records[this.#records.length - 1] = ScheduledRun.patch(newest, {
        due: timestampOf(last),
        count: newest.count + due.length,
      });
      this.#hasChanged = true;
      return;
    }
    this.#note(last, { outcome: Outcome.OUTCOME_MISSED, count: due.length, firstDue: timestampOf(first), reason });
  }

  start(dueMs: number, { overlap, windowMs }: ScheduleSettings): void {
    const { nowMs } = this.#world;
    if (windowMs !== null && nowMs - dueMs > windowMs) return this.miss([dueMs], "its missed-run window had passed");
    const active = this.#records.filter(isActive);
    const [first] = active;
    const skip = (reason: string): void => this.#note(dueMs, { outcome: Outcome.OUTCOME_SKIPPED, reason });
    if (overlap === "forbid" && first !== undefined) return skip(`${first.runName} had not finished`);
    if (overlap === "allow" && active.length >= activeRunsMax) return skip(`${active.length} runs had not finished`);
    const run = this.#newRun(dueMs);
    const refusal = this.#world.refusalOf(run.id);
    if (refusal !== null) return skip(`cannot create its run: ${refusal}`);
    const name = run.spec?.annotations?.name ?? "";
    if (overlap === "replace") this.#end(active, `replaced by ${name}`);
    this.#note(dueMs, { outcome: Outcome.OUTCOME_ACTIVE, runId: run.id, runName: name });
    // The run exists already if a user has deleted the record.
    if (!this.#world.runs.has(run.id)) this.#create = run;
  }

  #newRun(dueMs: number): Service {
    const id = runId(this.#service.id, dueMs);
    const name = runName(this.#service, dueMs);
    const known = this.#world.runs.get(id)?.service;
    if (known !== undefined) return known;
    return newService(id, runSpec(this.#service, dueMs, this.#world.isNameTaken(name) ? id : name), this.#world.nowMs);
  }

  /** C6. A run with a reason was already stopped before. */
  stopRuns(): void {
    this.#end(
      this.#records.filter((record) => isActive(record) && record.reason === ""),
      "its schedule was stopped",
    );
  }

  #end(active: readonly ScheduledRun[], reason: string): void {
    for (const record of active) {
      this.#hasChanged = true;
      const run = this.#world.runs.get(record.runId)?.service;
      if (run !== undefined) this.#stop.push(Service.patch(run, { spec: stoppedSpec(run) as ServiceSpec }));
      const at = this.#records.indexOf(record);
      this.#records[at] = ScheduledRun.patch(record, { reason });
    }
  }

  #note(dueMs: number, fields: Partial<ScheduledRun>): void {
    this.#hasChanged = true;
    this.#records.push(
      ScheduledRun.create({
        due: timestampOf(dueMs),
        decidedAt: timestampOf(this.#world.nowMs),
        count: 1,
        firstDue: timestampOf(dueMs),
        ...fields,
      }),
    );
  }

  decision(
    phase: ScheduleDecision["phase"],
    consideredMs: number,
    signature: Pick<ScheduleStatus, "cron" | "timeZone" | "paused">,
    settings: ScheduleSettings,
    nextMs: number | null,
    isPartial: boolean,
  ): ScheduleDecision {
    const before = this.#before;
    const isSame =
      !this.#hasChanged &&
      before !== null &&
      before.cron === signature.cron &&
      before.timeZone === signature.timeZone &&
      before.paused === signature.paused &&
      timeMs(before.considered) === consideredMs;
    const status = isSame
      ? null
      : ScheduleStatus.create({
          serviceId: this.#service.id,
          considered: timestampOf(consideredMs),
          cron: signature.cron,
          timeZone: signature.timeZone,
          paused: signature.paused,
          runs: this.#kept(),
        });
    return {
      phase,
      status,
      create: this.#create,
      stop: this.#stop,
      remove: this.#surplus(settings),
      nextMs,
      isPartial,
    };
  }

  /** C4 */
  #kept(): readonly ScheduledRun[] {
    let surplus = this.#records.filter((record) => !isActive(record)).length - recordsMax;
    return this.#records.filter((record) => isActive(record) || (surplus -= 1) < 0);
  }

  /** C4. A run with a time to live may also be removed by that. */
  #surplus({ history, failedHistory }: ScheduleSettings): readonly Service[] {
    const active = new Set(this.#records.filter(isActive).map((record) => record.runId));
    const finished = [...this.#world.runs.values()]
      .filter(({ service, progress }) => !active.has(service.id) && isOver(progress))
      .sort((a, b) => (a.service.id < b.service.id ? 1 : -1));
    const [good, other] = [
      finished.filter(({ progress }) => progress.phase === "succeeded"),
      finished.filter(({ progress }) => progress.phase !== "succeeded"),
    ];
    return [...good.slice(history), ...other.slice(failedHistory)].map(({ service }) => service);
  }
}

function outcomeOf({ phase }: JobProgress): ScheduledRun_Outcome {
  if (phase === "succeeded") return Outcome.OUTCOME_SUCCEEDED;
  return phase === "failed" ? Outcome.OUTCOME_FAILED : Outcome.OUTCOME_STOPPED;
}

/** The outcome of a due time as text, for `why` and the command line. */
export function describeRun(run: ScheduledRun): string {
  const due = isoOf(timeMs(run.due));
  const why = run.reason === "" ? "" : `: ${run.reason}`;
  switch (run.outcome) {
    case Outcome.OUTCOME_ACTIVE:
      return `${due}: ${run.runName} was started and has not finished`;
    case Outcome.OUTCOME_SUCCEEDED:
      return `${due}: ${run.runName} succeeded`;
    case Outcome.OUTCOME_FAILED:
      return `${due}: ${run.runName} failed${why}`;
    case Outcome.OUTCOME_STOPPED:
      return `${due}: ${run.runName} was stopped${why}`;
    case Outcome.OUTCOME_REMOVED:
      return `${due}: ${run.runName} was started${why}`;
    case Outcome.OUTCOME_SKIPPED:
      return `${due}: skipped${why}`;
    case Outcome.OUTCOME_MISSED:
      return `${due}: missed${run.count > 1 ? ` (${run.count} since ${isoOf(timeMs(run.firstDue))})` : ""}${why}`;
    case Outcome.OUTCOME_UNKNOWN:
      return `${due}: unknown`;
  }
}
