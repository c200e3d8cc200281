/**
 * Decides whether tasks of one service may be moved, and which (R1 and R2 of `hold.ts`).
 *
 * R3: a service moves only while all its tasks run, and at most its update parallelism at a time. So at least as many tasks
 *     run as during an update.
 */
import { TaskState, type Service, type Task } from "../../../proto/gen/messages.ts";
import type { NodeOf } from "../restart.machine.ts";
import { isRollingOut } from "../rollout/states.ts";
import { isReady } from "../../node.ts";
import { isHeld, isWanted, observedState } from "../../task.ts";
import { untilAfter, type Hold } from "./hold.ts";
import type { LogTimes } from "../../elapsed.ts";
import type { RebalanceSettings } from "./settings.ts";

export type ServiceVerdict =
  | { readonly kind: "held"; readonly hold: Hold }
  /** `youngUntilMs`: when its next task becomes movable; null: all are. */
  | { readonly kind: "movable"; readonly tasks: readonly Task[]; readonly youngUntilMs: number | null };

/** R1, R2, R3. `tasks`: all tasks of the service. */
export function judgeService(
  service: Service,
  tasks: Iterable<Task>,
  settings: RebalanceSettings,
  nowMs: number,
  world: {
    readonly nodeOf: NodeOf;
    readonly isDirty: (task: Task) => boolean;
    readonly times: LogTimes;
  },
): ServiceVerdict {
  const { times } = world;
  const held = (reason: string, untilMs: number | null = null): ServiceVerdict => ({
    kind: "held",
    hold: { reason, untilMs },
  });
  const replicas = service.spec?.replicated?.replicas;
  if (replicas === undefined) return held("only tasks of replicated services can be moved");
  if (service.pendingDelete) return held("the service is being removed");
  if (isRollingOut(service)) {
    return held("a rollout of the service is in progress");
  }
  const settled: Task[] = [];
  const slots = new Set<number>();
  let youngUntilMs: number | null = null;
  for (const task of tasks) {
    const state = observedState(task);
    if (state === TaskState.FAILED || state === TaskState.REJECTED || state === TaskState.ORPHANED) {
      const untilMs = untilAfter(times.reachedMs(task), settings.quietMs, nowMs);
      if (untilMs !== null) return held(`task ${task.id} failed recently`, untilMs);
    }
    if (!isWanted(task)) {
      if (isHeld(state) && isReady(world.nodeOf(task.nodeId))) {
        return held(`task ${task.id} is being stopped`);
      }
      continue;
    }
    if (state !== TaskState.RUNNING || task.desiredState !== TaskState.RUNNING) {
      return held(`task ${task.id} does not run yet`);
    }
    if (slots.has(task.slot)) return held(`slot ${task.slot} has two tasks`);
    if (world.isDirty(task)) return held("a rollout of the service is in progress");
    slots.add(task.slot);
    const untilMs = untilAfter(times.reachedMs(task), settings.settleMs, nowMs);
    if (untilMs === null) settled.push(task);
    else if (youngUntilMs === null || untilMs < youngUntilMs) youngUntilMs = untilMs;
  }
  if (slots.size !== replicas) return held(`${slots.size} of ${replicas} tasks run`);
  return { kind: "movable", tasks: settled, youngUntilMs };
}
