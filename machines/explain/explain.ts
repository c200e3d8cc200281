/**
 * Explains what a task or a service is waiting for, since when, what would wake it, and what was tried. Uses only stored
 * objects, as the orchestrators do, so it describes what they act on.
 *
 * E1: everything that is not in its wanted state names what it waits for; nothing waits without a reason.
 */
import type { LogTimes } from "../elapsed.ts";
import {
  Reason,
  TaskState,
  type Timestamp,
  type Node,
  type ScheduleStatus,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import { allocatorMachine } from "../allocation/allocator.machine.ts";
import { healthOf, healthTimes, healthWords } from "../driver/health-spec.ts";
import { explainJob } from "../orchestration/jobs/explain.ts";
import { keptUntilMs } from "../orchestration/on-disconnect.ts";
import { goDurationText } from "../../lib/go-duration.ts";
import { conditionOf, releaseOf, shouldRestart } from "../orchestration/restart.machine.ts";
import { timeMs, timestampOf } from "../../proto/time.ts";
import { modeOf } from "../orchestration/service-mode.ts";
import { taskMachine } from "../task.machine.ts";
import { isReady } from "../node.ts";
import { isEnded, isHeld, isLeaving, isRunning, isWanted, newestOf, observedState, stateNames } from "../task.ts";
import { waitOf, type StatePath, type Wait } from "../wait-meta.ts";
import { groupBySlot } from "../orchestration/slots.ts";

export interface ExplainView {
  readonly nowMs: number;
  readonly times: LogTimes;
  service(id: string): Service | undefined;
  node(id: string): Node | undefined;
  /** Tasks of the slot (for slot 0: those on the node), in creation order. */
  slot(serviceId: string, slot: number, nodeId: string): readonly Task[];
  tasks(serviceId: string): Iterable<Task>;
  nodes(): Iterable<Node>;
  /** The node's name, unambiguous among nodes with the same hostname. */
  nodeName(id: string): string;
  /** The record of a scheduled job; null if there is none. */
  schedule(serviceId: string): ScheduleStatus | null;
  /** Why a PENDING task has no node, according to the scheduler. */
  placement(task: Task): readonly Reason[];
  /** Why the service's rollout is waiting; null if no rollout is in progress. */
  rollout(service: Service): Reason | null;
}

/** SwarmKit's: after this many hours, a DOWN node's tasks become ORPHANED. */
const orphanDelayHours = 24;
/** Maximum number of different reasons shown for one service; the rest are counted. */
const reasonsMax = 8;

function stateName(state: TaskState): string {
  return stateNames.get(state) ?? String(state);
}

function reason(task: Task, fields: Partial<Reason>): Reason {
  return Reason.create({ since: task.status?.timestamp ?? task.meta?.updatedAt ?? null, ...fields });
}

/** The task's last message and error, if any. */
function words(task: Task): readonly string[] {
  const { message = "", err = "" } = task.status ?? {};
  return [message, err].filter((text) => text !== "");
}

export function explainTask(task: Task, view: ExplainView): readonly Reason[] {
  const state = observedState(task);
  if (isEnded(state)) return [explainEnd(task, view)];
  if (!isWanted(task)) return [explainStop(task, view)];
  if (state === TaskState.NEW) {
    const err = task.status?.err ?? "";
    const facts = { "addresses or ports that the cluster lacks": err };
    const wait = err === "" ? lifeWait(task, view) : waitOf(allocatorMachine, "blocked", facts);
    return [reason(task, { ...wait, tried: words(task) })];
  }
  const start = task.desiredState === TaskState.READY ? [explainStart(task, view)] : [];
  if (state === TaskState.PENDING) return [...view.placement(task), ...start];
  if (state === TaskState.RUNNING && start.length === 0) {
    const node = view.node(task.nodeId);
    if (isReady(node) && task.status?.err) return [explainUnhealthy(task, nodeName(task, view))];
    if (isReady(node)) return [reason(task, lifeWait(task, view))];
    return [
      reason(task, {
        waitingFor: `${nodeName(task, view)} to return: the task was running there when it was last reported`,
        wokenBy: explainKept(task, view),
      }),
    ];
  }
  // A ready successor only waits for its start.
  if (start.length > 0 && state >= TaskState.READY) return start;
  return [explainNode(task, view), ...start];
}

/** K1 */
function explainKept(task: Task, view: ExplainView): string {
  const world = { nowMs: view.nowMs, times: view.times, nodeOf: (id: string) => view.node(id) };
  const untilMs = keptUntilMs(task, view.service(task.serviceId), world);
  if (untilMs === null) return "the node's return, or its replacement elsewhere";
  if (untilMs === Number.POSITIVE_INFINITY)
    return "the node's return: its service keeps tasks on nodes that are down (on-disconnect keep)";
  return `the node's return, or its replacement elsewhere in ${goDurationText(Math.ceil((untilMs - view.nowMs) / 1_000) * 1_000)} (disconnect-after)`;
}

function explainEnd(task: Task, view: ExplainView): Reason {
  const state = observedState(task);
  const end = `nothing: it has ended (${stateName(state)})`;
  const slot = view.slot(task.serviceId, task.slot, task.nodeId);
  const successor = slot.find((other) => other !== task && isWanted(other) && slot.indexOf(other) > slot.indexOf(task));
  if (successor !== undefined)
    return reason(task, { waitingFor: `${end}; task ${successor.id} follows it`, tried: words(task) });
  if (task.jobIteration !== null && state === TaskState.COMPLETE) return reason(task, { waitingFor: end });
  if (isWanted(task))
    return reason(task, {
      waitingFor: "the orchestrator, to replace it",
      wokenBy: "its next decision, which is due now",
      tried: words(task),
    });
  if (isLeaving(task)) {
    return reason(task, {
      waitingFor: "the reaper, to delete it",
      wokenBy: "its next round, which is due now",
      tried: words(task),
    });
  }
  const policy = task.spec?.restart ?? null;
  const isFinal = view.service(task.serviceId) !== undefined && !shouldRestart(task, slot);
  const condition = ["none", "on-failure", "any"][conditionOf(policy)] ?? "any";
  const attempts = (policy?.maxAttempts ?? 0) > 0 ? `, at most ${policy?.maxAttempts} attempts` : "";
  const why = isFinal ? `; not restarted (restart condition ${condition}${attempts})` : "";
  return reason(task, {
    waitingFor: `${end}${why}`,
    wokenBy: isFinal ? "an update of the service" : "",
    tried: words(task),
  });
}

function explainStop(task: Task, view: ExplainView): Reason {
  if (!isHeld(observedState(task))) {
    return reason(task, { waitingFor: "the reaper, to shut it down", wokenBy: "its next round, which is due now" });
  }
  const node = view.node(task.nodeId);
  const name = nodeName(task, view);
  if (isReady(node))
    return reason(task, {
      waitingFor: `${name}, to stop it`,
      wokenBy: "the node's report that it has stopped",
      tried: words(task),
    });
  return reason(task, {
    waitingFor: `${name}, which is unreachable, to report that it has stopped; its replacement does not wait for this`,
    wokenBy: `the node's return or removal; after ${orphanDelayHours} hours DOWN the task is orphaned`,
    tried: words(task),
  });
}

/** Q2, Q4 */
function explainStart(task: Task, view: ExplainView): Reason {
  const slot = view.slot(task.serviceId, task.slot, task.nodeId);
  const release = releaseOf(task, slot, view.nowMs, (id) => view.node(id), view.times);
  if (release.kind === "release")
    return reason(task, { waitingFor: "the restart supervisor", wokenBy: "its next round, which is due now" });
  const before = release.task;
  const deadline: Timestamp = timestampOf(Math.round(release.untilMs));
  const since = task.meta?.createdAt ?? null;
  if (release.cause === "delay") {
    return reason(task, {
      since,
      waitingFor:
        release.refusals > 1
          ? `the restart delay after task ${before.id}, which grows: the last ${release.refusals} starts were refused`
          : `the restart delay after task ${before.id}`,
      wokenBy: release.refusals > 1 ? "the end of the delay, or an update of the service" : "the end of the delay",
      deadline,
      atDeadline: "retries",
      tried: words(before),
    });
  }
  return reason(task, {
    since,
    waitingFor: `task ${before.id} of the same slot, to stop on ${nodeName(before, view)}`,
    wokenBy: "the node's report, or the loss of the node",
    deadline,
    atDeadline: "starts",
    tried: words(before),
  });
}

function explainNode(task: Task, view: ExplainView): Reason {
  const node = view.node(task.nodeId);
  const name = nodeName(task, view);
  const state = stateName(observedState(task));
  if (!isReady(node))
    return reason(task, {
      waitingFor: `${name}, which is unreachable (${state})`,
      wokenBy: "the node's return, or its change to DOWN",
      tried: words(task),
    });
  const check = healthOf(task.spec);
  if (observedState(task) === TaskState.STARTING && check !== null) {
    if (task.status?.err) return explainUnhealthy(task, name);
    const { retries, startPeriodMs } = healthTimes(check);
    const counted = startPeriodMs === 0 ? "" : ` after the first ${startPeriodMs / 1_000} s`;
    return reason(task, {
      waitingFor: `${name}, to start it; its health check must pass: ${healthWords(check)}`,
      wokenBy: `a passing check; ${retries} failures in a row${counted} stop it`,
      tried: words(task),
    });
  }
  return reason(task, { ...lifeWait(task, view), tried: words(task) });
}

/** The wait of its state, for a task that nothing keeps from going on. */
function lifeWait(task: Task, view: ExplainView): Wait {
  const state = stateName(observedState(task)) as StatePath<typeof taskMachine>;
  return waitOf(taskMachine, state, { "its node": nodeName(task, view) });
}

/** The error of a task that has not ended comes from its health check. */
function explainUnhealthy(task: Task, node: string): Reason {
  return reason(task, {
    waitingFor: `${node}, to stop it: it is unhealthy`,
    wokenBy: "the node's report that it has stopped, then it is replaced",
    tried: words(task),
  });
}

function nodeName({ nodeId }: Task, view: ExplainView): string {
  return `node ${view.nodeName(nodeId)}`;
}

export function explainService(service: Service, view: ExplainView): readonly Reason[] {
  const since = service.meta?.updatedAt ?? null;
  const mode = modeOf(service.spec);
  if (mode === "replicated-job" || mode === "global-job") {
    return explainJob(service, view.tasks(service.id), {
      nowMs: view.nowMs,
      nodeOf: (id) => view.node(id),
      nodes: () => view.nodes(),
      schedule: (id) => view.schedule(id),
      explainTask: (task) => explainTask(task, view),
    });
  }
  if (mode !== "replicated") {
    return [
      Reason.create({
        since,
        waitingFor: `an orchestrator: this manager does not support ${mode ?? "unknown"} services`,
        wokenBy: "a newer version",
      }),
    ];
  }
  const replicas = service.spec?.replicated?.replicas ?? 0;
  const late = new Map<string, Late>();
  const note = (task: Task): void => {
    for (const first of explainTask(task, view)) {
      const key = first.tried.at(-1) ?? first.waitingFor;
      const known = late.get(key) ?? { first, states: [] };
      known.states.push(observedState(task));
      late.set(key, known);
    }
  };
  let running = 0;
  let finished = 0;
  for (const tasks of groupBySlot(view.tasks(service.id)).values()) {
    const wanted = tasks.find(isWanted);
    if (wanted === undefined) {
      const last = newestOf(tasks);
      if (last === undefined || shouldRestart(last, tasks)) continue;
      finished += 1;
      if (observedState(last) > TaskState.COMPLETE) note(last);
      continue;
    }
    if (isRunning(wanted) && isReady(view.node(wanted.nodeId))) {
      running += 1;
      continue;
    }
    note(wanted);
  }
  const why = view.rollout(service);
  const rollout = why === null ? [] : [why];
  if (running === replicas && late.size === 0 && why !== null) return rollout;
  if (running === replicas && late.size === 0)
    return [Reason.create({ since, waitingFor: `nothing: ${running} of ${replicas} tasks run` })];
  const reasons = [...late.values()].sort((a, b) => timeMs(a.first.since) - timeMs(b.first.since));
  const shown = reasons
    .slice(0, reasonsMax)
    .map(({ first, states }) => Reason.patch(first, { waitingFor: `${first.waitingFor} (${statesText(states)})` }));
  const done = finished === 0 ? "" : `, ${finished} finished`;
  const more = reasons.length > shown.length ? `; ${reasons.length - shown.length} more reasons` : "";
  return [
    Reason.create({
      since,
      waitingFor: `tasks: ${running} of ${replicas} run${done}${more}`,
      wokenBy:
        finished > 0 && running + finished === replicas
          ? "an update of the service"
          : "the events that its tasks wait for",
    }),
    ...rollout,
    ...shown,
  ];
}

/** Tasks with the same reason. */
interface Late {
  readonly first: Reason;
  readonly states: TaskState[];
}

/** `1 task PENDING`, `3 tasks: 2 READY, 1 PENDING` */
function statesText(states: readonly TaskState[]): string {
  const counts = new Map<TaskState, number>();
  for (const state of states) counts.set(state, (counts.get(state) ?? 0) + 1);
  const [only] = counts.keys();
  if (counts.size === 1 && only !== undefined)
    return `${states.length} ${states.length === 1 ? "task" : "tasks"} ${stateName(only)}`;
  const each = [...counts].toSorted(([a], [b]) => b - a).map(([state, count]) => `${count} ${stateName(state)}`);
  return `${states.length} tasks: ${each.join(", ")}`;
}
