/**
 * The settings of a service's rollout: its update settings, or for a rollback its rollback settings, with defaults; and its
 * deadlines, which SwarmKit's settings lack and which are read from service labels.
 */
import {
  UpdateConfig_FailureAction,
  UpdateConfig_UpdateOrder,
  type Service,
  type ServiceSpec,
} from "../../../proto/gen/messages.ts";
import { goDurationMs } from "../../../lib/go-duration.ts";
import { invalid, type Refusal } from "../../refusal.ts";
import { stopWaitMsMin } from "../restart.machine.ts";
import { durationMs } from "../../../proto/time.ts";

/** SwarmKit's: one slot at a time, each monitored for five seconds (in milliseconds). */
const parallelismDefault = 1;
const monitorMsDefault = 5_000;
/** Progress deadline in milliseconds: Kubernetes' progressDeadlineSeconds, long enough to pull large images. */
const progressDeadlineMsDefault = 600_000;

/** Service labels with durations such as `90s` or `1h30m`. How long a new task may take to run before it counts as failed. */
export const progressDeadlineLabel = "muster.rollout.progress-deadline";
/** How long the whole rollout may take, from its start or its last resumption. */
export const deadlineLabel = "muster.rollout.deadline";

export interface RolloutSettings {
  /** Slots that change at the same time; Infinity: all. */
  readonly parallelism: number;
  readonly delayMs: number;
  readonly monitorMs: number;
  readonly action: UpdateConfig_FailureAction;
  /** 0 to 1: fraction of the rollout's slots whose tasks may fail, any number of times each. */
  readonly failureRatio: number;
  readonly isStartFirst: boolean;
  readonly progressMs: number;
  /** Null: derived from the other settings. */
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

/** The work of a rollout at its start. */
export interface RolloutWork {
  readonly slots: number;
  /** Longest wait of a new task for its predecessor, in milliseconds. */
  readonly waitMsMax: number;
}

/**
 * Milliseconds that a rollout may take. Default: the time that it takes if every batch uses all the time that its tasks have
 * to stop and start, so that only a stuck rollout exceeds it.
 */
export function deadlineMsOf(settings: RolloutSettings, { slots, waitMsMax }: RolloutWork): number {
  if (settings.deadlineMs !== null) return settings.deadlineMs;
  const batches = Math.max(1, Math.ceil(slots / Math.min(settings.parallelism, Math.max(1, slots))));
  const waitMs = Math.max(stopWaitMsMin, waitMsMax);
  return batches * (waitMs + settings.progressMs + settings.delayMs) + settings.monitorMs;
}

/** Null if the text is absent or not a positive duration. */
function labelledMs(text: string | undefined): number | null {
  const ms = text === undefined ? null : goDurationMs(text);
  return ms !== null && ms > 0 ? ms : null;
}

export function checkRolloutLabels(spec: ServiceSpec): Refusal | null {
  const labels = spec.annotations?.labels ?? {};
  for (const label of [progressDeadlineLabel, deadlineLabel]) {
    const text = labels[label];
    if (text !== undefined && labelledMs(text) === null) {
      return invalid(`invalid value '${text}' for label ${label}: expected a positive duration such as 90s or 1h30m`);
    }
  }
  return null;
}
