/**
 * How a rollout of a service goes: its update settings, or during a rollback its rollback settings, with what they mean
 * where they are silent; and its deadlines, which SwarmKit's settings have no field for and which are read from labels of
 * the service.
 */
import {
  UpdateConfig_FailureAction,
  UpdateConfig_UpdateOrder,
  type Service,
  type ServiceSpec,
} from "../../../proto/gen/messages.ts";
import { invalid, type Refusal } from "../../refusal.ts";
import { stopWaitMsMin } from "../restart.ts";
import { durationMs } from "../../../proto/time.ts";

/** SwarmKit's: one slot after the other, each watched for five seconds (in milliseconds). */
const parallelismDefault = 1;
const monitorMsDefault = 5_000;
/** How long a new task may take to run, in milliseconds: Kubernetes' progressDeadlineSeconds, long enough for large images. */
const progressDeadlineMsDefault = 600_000;

/** Service labels; durations such as `90s` or `1h30m`. How long a new task may take to run before it counts as failed. */
export const progressDeadlineLabel = "muster.rollout.progress-deadline";
/** How long the whole rollout may take, from its start or from when it was last resumed. */
export const deadlineLabel = "muster.rollout.deadline";

export interface RolloutSettings {
  /** Slots under way at once; Infinity: all. */
  readonly parallelism: number;
  readonly delayMs: number;
  readonly monitorMs: number;
  readonly action: UpdateConfig_FailureAction;
  /** 0 to 1: share of the rollout's slots whose tasks may fail, each of them as often as it likes. */
  readonly failureRatio: number;
  readonly isStartFirst: boolean;
  readonly progressMs: number;
  /** Null: what the other settings add up to. */
  readonly deadlineMs: number | null;
}

export function settingsOf(service: Service, isRollback: boolean): RolloutSettings {
  const config = (isRollback ? service.spec?.rollback : service.spec?.update) ?? null;
  const labels = service.spec?.annotations?.labels ?? {};
  const parallelism = config === null ? parallelismDefault : config.parallelism;
  return {
    parallelism: parallelism === 0 ? Number.POSITIVE_INFINITY : parallelism,
    delayMs: durationMs(config?.delay ?? null, 0),
    monitorMs: durationMs(config?.monitor ?? null, monitorMsDefault),
    action: config?.failureAction ?? UpdateConfig_FailureAction.PAUSE,
    failureRatio: config?.maxFailureRatio ?? 0,
    isStartFirst: config?.order === UpdateConfig_UpdateOrder.START_FIRST,
    progressMs: labelledMs(labels[progressDeadlineLabel]) ?? progressDeadlineMsDefault,
    deadlineMs: labelledMs(labels[deadlineLabel]),
  };
}

/** How much there is to do when a rollout begins. */
export interface RolloutWork {
  readonly slots: number;
  /** Longest wait of a new task for the one before it, in milliseconds. */
  readonly waitMsMax: number;
}

/**
 * Milliseconds that a rollout may take. Where nobody set it: what it takes if every batch uses all the time that its tasks
 * have, those that stop included, so that only a rollout that no longer moves exceeds it.
 */
export function deadlineMsOf(settings: RolloutSettings, { slots, waitMsMax }: RolloutWork): number {
  if (settings.deadlineMs !== null) return settings.deadlineMs;
  const batches = Math.max(1, Math.ceil(slots / Math.min(settings.parallelism, Math.max(1, slots))));
  const waitMs = Math.max(stopWaitMsMin, waitMsMax);
  return batches * (waitMs + settings.progressMs + settings.delayMs) + settings.monitorMs;
}

const unitsMs: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1_000, ms: 1 };

/** Null for what is absent or no positive duration. */
function labelledMs(text: string | undefined): number | null {
  if (text === undefined || !/^(\d+(\.\d+)?(h|ms|m|s))+$/.test(text)) return null;
  let ms = 0;
  for (const [, number, , unit] of text.matchAll(/(\d+(\.\d+)?)(h|ms|m|s)/g)) {
    ms += Number(number) * (unitsMs[unit as string] ?? 0);
  }
  return ms > 0 ? ms : null;
}

export function checkRolloutLabels(spec: ServiceSpec): Refusal | null {
  const labels = spec.annotations?.labels ?? {};
  for (const label of [progressDeadlineLabel, deadlineLabel]) {
    const text = labels[label];
    if (text !== undefined && labelledMs(text) === null) {
      return invalid(`label ${label}: '${text}' is not a positive duration such as 90s or 1h30m`);
    }
  }
  return null;
}

/** `1h30m`, `90s`, `1.5s`: as the labels are written. */
export function shownMs(ms: number): string {
  if (ms >= 60_000 && ms % 60_000 === 0) {
    const minutes = ms / 60_000;
    const hours = Math.floor(minutes / 60);
    return `${hours > 0 ? `${hours}h` : ""}${minutes % 60 > 0 ? `${minutes % 60}m` : ""}`;
  }
  return ms % 1_000 === 0 || ms >= 1_000 ? `${ms / 1_000}s` : `${ms}ms`;
}
