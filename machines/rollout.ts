/**
 * Replacing tasks whose service has changed: a plain stop-first replacement, so many slots at a time as the update config
 * says. It keeps no state: which slots are done, under way or left is read from the tasks. The order start-first, watching
 * for failures, pausing and rolling back are not decided here.
 *
 * U1: at most `parallelism` slots are between two specs, not counting slots in which nothing runs anyway.
 * U2: a new spec that never runs goes no further than the slots it has: the other slots keep running the old one.
 */
import {
  Task,
  TaskSpec,
  TaskState,
  UpdateStatus_UpdateState,
  type Node,
  type Service,
  type ServiceSpec,
  type UpdateConfig,
} from "../proto/gen/messages.ts";
import { meetsPlacement } from "./scheduling/constraints.ts";
import { isUpToDate } from "./task-currency.ts";
import { observedState } from "./task.ts";
import { durationMs, timeMs } from "./time.ts";

/** SwarmKit's default: one slot after the other. */
const parallelismDefault = 1;

/** What the tasks of one slot are to a rollout. */
export interface SlotProgress {
  readonly slot: number;
  /** The task that is wanted there, or, where none is, the finished one that fills the slot. */
  readonly task: Task;
  readonly isOutdated: boolean;
  /** Other tasks were in the slot before: of an older spec, or failures of the present one. Unlike that of a slot just added. */
  readonly hasHistory: boolean;
  /** The task is being replaced anyway, by one of the present spec. */
  readonly isChanging: boolean;
}

export interface Rollout {
  /** Slots whose task is to be replaced now. */
  readonly replace: readonly number[];
  /** True while there is more to do: then each task that reaches RUNNING matters. */
  readonly isUnderWay: boolean;
  /** When the pause between two slots ends, in milliseconds since the epoch; null when nothing waits for that. */
  readonly lookAgainMs: number | null;
}

export function updateConfigOf(service: Service): UpdateConfig | null {
  const isRollback = service.updateStatus?.state === UpdateStatus_UpdateState.ROLLBACK_STARTED;
  return (isRollback ? service.spec?.rollback : service.spec?.update) ?? null;
}

export function planRollout(service: Service, slots: readonly SlotProgress[], nowMs: number): Rollout {
  const outdated = slots.filter((slot) => slot.isOutdated && !slot.isChanging);
  if (outdated.length === 0) return { replace: [], isUnderWay: false, lookAgainMs: null };
  const config = updateConfigOf(service);
  const parallelism = config === null ? parallelismDefault : config.parallelism;
  const pauseMs = durationMs(config?.delay ?? null, 0);
  const replace: number[] = [];
  const running: SlotProgress[] = [];
  for (const slot of outdated) {
    // Nothing is lost by replacing what does not run, and it may be the very reason for the change.
    if (observedState(slot.task) === TaskState.RUNNING) running.push(slot);
    else replace.push(slot.slot);
  }
  let busy = 0;
  let lookAgainMs: number | null = null;
  for (const { task, isOutdated, hasHistory, isChanging } of slots) {
    if (isChanging && (isOutdated || hasHistory)) busy += 1;
    if (isChanging || isOutdated || !hasHistory) continue;
    const state = observedState(task);
    // One that finished well has done what its spec asks for; one that ended otherwise, for good, holds the rollout (U2).
    if (state === TaskState.COMPLETE) continue;
    if (state !== TaskState.RUNNING) {
      busy += 1;
      continue;
    }
    const untilMs = timeMs(task.status?.appliedAt ?? task.status?.timestamp ?? null) + pauseMs;
    if (untilMs <= nowMs) continue;
    busy += 1;
    if (lookAgainMs === null || untilMs < lookAgainMs) lookAgainMs = untilMs;
  }
  const room = parallelism === 0 ? running.length : Math.max(0, parallelism - busy - replace.length);
  running.sort((a, b) => a.slot - b.slot);
  for (const slot of running.slice(0, room)) replace.push(slot.slot);
  return { replace, isUnderWay: true, lookAgainMs };
}

/**
 * Whether the tasks of one service are what it asks for now. Comparing two specs costs some 100 µs, and the tasks of a
 * service share few, so each pair is compared once.
 */
export class Currency {
  #service: ServiceSpec | null = null;
  #known = new Map<TaskSpec, Map<string, boolean>>();
  #movedOnly = new Map<TaskSpec, boolean>();

  isOutdated(task: Task, service: Service, nodeOf: (id: string) => Node | undefined): boolean {
    if ((task.specVersion?.index ?? 0) === (service.specVersion?.index ?? 0)) return false;
    const { spec } = task;
    if (spec === null || service.spec === null) return true;
    if (this.#service !== service.spec) {
      this.#service = service.spec;
      this.#known = new Map();
      this.#movedOnly = new Map();
    }
    if (this.#isCurrent(task, spec, service)) return false;
    // A change of placement alone leaves the tasks where they satisfy it.
    const node = task.nodeId === "" ? undefined : nodeOf(task.nodeId);
    if (node === undefined || !this.#differsInPlacementOnly(task, spec, service)) return true;
    return !meetsPlacement(service.spec.task?.placement ?? null, node);
  }

  #isCurrent(task: Task, spec: TaskSpec, service: Service): boolean {
    let verdicts = this.#known.get(spec);
    if (verdicts === undefined) this.#known.set(spec, (verdicts = new Map()));
    const state = observedState(task);
    const isPulled = task.desiredState <= TaskState.RUNNING && state >= TaskState.READY && state <= TaskState.RUNNING;
    const key = `${isPulled}/${endpointKey(task)}`;
    let isCurrent = verdicts.get(key);
    if (isCurrent === undefined) verdicts.set(key, (isCurrent = isUpToDate(task, service)));
    return isCurrent;
  }

  #differsInPlacementOnly(task: Task, spec: TaskSpec, service: Service): boolean {
    let answer = this.#movedOnly.get(spec);
    if (answer === undefined) {
      const moved = TaskSpec.patch(spec, { placement: service.spec?.task?.placement ?? null });
      this.#movedOnly.set(spec, (answer = isUpToDate(Task.patch(task, { spec: moved }), service)));
    }
    return answer;
  }
}

/** What of a task's endpoint the comparison looks at. */
function endpointKey(task: Task): string {
  const spec = task.endpoint?.spec ?? null;
  if (spec === null) return "";
  return `${spec.mode};${spec.ports.map((port) => `${port.name},${port.protocol},${port.targetPort},${port.publishedPort},${port.publishMode}`).join(";")}`;
}
