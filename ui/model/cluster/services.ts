/** Texts about services: mode, replicas, rollouts, and the effect of a removal. */
import {
  ControlRolloutRequest_Action,
  TaskState,
  UpdateStatus_UpdateState,
  type Service,
  type Task,
} from "../../../proto/gen/cluster.ts";
import { isEnded, isWanted, stateOf } from "./tasks.ts";

export function serviceName({ id, spec }: Service): string {
  return spec?.annotations?.name || id;
}

type Mode = "replicated" | "global" | "replicated job" | "global job";

export function modeOf({ spec }: Pick<Service, "spec">): Mode {
  if (spec?.globalJob != null) return "global job";
  if (spec?.replicatedJob != null) return "replicated job";
  return spec?.global != null ? "global" : "replicated";
}

/** The number that `scale` sets; null: the service has none. */
export function replicasOf({ spec }: Pick<Service, "spec">): number | null {
  return spec?.replicatedJob?.totalCompletions ?? spec?.replicated?.replicas ?? null;
}

interface Counts {
  readonly running: number;
  readonly wanted: number;
  readonly failed: number;
}

/** `tasks` are those of the service. For a job, completed tasks count as running. */
export function countsOf(service: Service, tasks: readonly Task[]): Counts {
  const isJob = modeOf(service).endsWith("job");
  const iteration = service.jobStatus?.jobIteration?.index ?? 0;
  let running = 0;
  let wanted = 0;
  let failed = 0;
  for (const task of tasks) {
    if (isJob && (task.jobIteration?.index ?? 0) !== iteration) continue;
    const state = stateOf(task);
    if (isWanted(task) && (isJob || !isEnded(task))) wanted += 1;
    if (isWanted(task) && (state === TaskState.RUNNING || (isJob && state === TaskState.COMPLETE))) running += 1;
    if (state === TaskState.FAILED || state === TaskState.REJECTED) failed += 1;
  }
  return { running, wanted: replicasOf(service) ?? wanted, failed };
}

const rolloutTexts: Readonly<Record<number, string>> = {
  [UpdateStatus_UpdateState.UPDATING]: "updating",
  [UpdateStatus_UpdateState.PAUSED]: "paused",
  [UpdateStatus_UpdateState.ROLLBACK_STARTED]: "rolling back",
  [UpdateStatus_UpdateState.ROLLBACK_PAUSED]: "rollback paused",
};

/** Such as `updating`; empty: no rollout is in progress. */
export function rolloutText({ updateStatus }: Service): string {
  return rolloutTexts[updateStatus?.state ?? UpdateStatus_UpdateState.UNKNOWN] ?? "";
}

export interface RolloutButton {
  readonly action: ControlRolloutRequest_Action;
  readonly text: string;
  readonly title: string;
  /** Shows the plan first: it changes tasks that have been updated already. */
  readonly isPlanned: boolean;
}

/** By the phase of a ControlRolloutResponse; empty: no rollout is in progress. */
export function rolloutButtons(phase: string): readonly RolloutButton[] {
  const isRollback = phase.startsWith("rollback") || phase === "rolling back";
  const isOver = ["", "none", "completed", "rollback completed"].includes(phase);
  if (isOver) return [];
  const isPaused = phase.endsWith("paused");
  const isStepping = phase.endsWith("stepping");
  const { ABORT, PAUSE, RESUME, STEP } = ControlRolloutRequest_Action;
  const buttons: RolloutButton[] = [];
  if (!isPaused)
    buttons.push({
      action: PAUSE,
      text: "Pause",
      title: "No further slots change; changes in progress finish",
      isPlanned: false,
    });
  if (isPaused || isStepping)
    buttons.push({ action: RESUME, text: "Resume", title: "The remaining slots change", isPlanned: false });
  if (!isStepping)
    buttons.push({ action: STEP, text: "Step", title: "One more batch changes, then it pauses", isPlanned: false });
  if (!isRollback)
    buttons.push({ action: ABORT, text: "Abort …", title: "Roll back to the previous spec", isPlanned: true });
  else if (!isPaused)
    buttons.push({ action: ABORT, text: "Abort", title: "The rollback stops where it is", isPlanned: false });
  return buttons;
}

/** The effect of a removal, as a sentence. `tasks` are those of the service. */
export function removalEffect(service: Service, tasks: readonly Task[], nodeName: (id: string) => string): string {
  const live = tasks.filter((task) => !isEnded(task));
  const nodes = [...new Set(live.map(({ nodeId }) => nodeId).filter(Boolean))].map(nodeName).toSorted();
  const name = serviceName(service);
  if (live.length === 0) return `${name} has no tasks to stop. Its spec is removed and cannot be restored from here.`;
  const where = nodes.length === 0 ? "" : ` on ${nodes.join(", ")}`;
  const count = live.length === 1 ? "1 task stops" : `${live.length} tasks stop`;
  return `${count}${where}, and clients can no longer reach ${name}. Its spec is removed and cannot be restored from here.`;
}
