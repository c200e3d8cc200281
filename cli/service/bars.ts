/**
 * Progress lines of a service: an overall line and, for few tasks, one line per task. Pure; `progress.ts` decides when to draw
 * them.
 */
import { isEnded, observedState } from "../../machines/task.ts";
import { nodeNames } from "../../machines/node-names.ts";
import { modeOf } from "../../machines/orchestration/service-mode.ts";
import { isUpToDate } from "../../machines/orchestration/task-dirty.ts";
import { TaskState, UpdateStatus_UpdateState, type Node, type Service, type Task } from "../../proto/gen/messages.ts";
import { stateName } from "../task/table.ts";

/** Docker's limit: with more tasks, only the overall line is shown. */
const barsMax = 20;
/** Width between the brackets, like Docker's. */
const barWidth = 50;
/** Longer errors would wrap on a narrow terminal. */
const errorLengthMax = 75;

/** The states on the way to running, in order; a job has one more. */
const path: readonly TaskState[] = [
  TaskState.NEW,
  TaskState.PENDING,
  TaskState.ASSIGNED,
  TaskState.ACCEPTED,
  TaskState.PREPARING,
  TaskState.READY,
  TaskState.STARTING,
  TaskState.RUNNING,
  TaskState.COMPLETE,
];
const longestName = Math.max(...path.map((state) => stateName(state).length));

interface Picture {
  readonly service: Service;
  readonly tasks: Iterable<Task>;
  readonly nodes: Iterable<Node>;
}

function bar(share: number): string {
  const filled = Math.max(0, Math.min(barWidth, Math.round(share * barWidth)));
  const body = filled === 0 ? "" : `${"=".repeat(filled - 1)}>`;
  return `[${body.padEnd(barWidth)}]`;
}

function isJob(service: Service): boolean {
  const mode = modeOf(service.spec);
  return mode === "replicated-job" || mode === "global-job";
}

function isRollingBack(service: Service): boolean {
  return service.updateStatus?.state === UpdateStatus_UpdateState.ROLLBACK_STARTED;
}

/** The tasks to show, one per slot (node): the one with the highest desired state, then the least advanced. */
function shown({ service, tasks }: Picture): Task[] {
  const mode = modeOf(service.spec);
  const isBound = mode === "global" || mode === "global-job";
  const iteration = service.jobStatus?.jobIteration?.index ?? 0;
  const slots = new Map<string | number, Task>();
  for (const task of tasks) {
    const isOurs = isJob(service) ? (task.jobIteration?.index ?? 0) === iteration : isUpToDate(task, service);
    if (!isOurs) continue;
    const key = isBound ? task.nodeId : task.slot;
    const held = slots.get(key);
    const isBetter =
      held === undefined ||
      task.desiredState < held.desiredState ||
      (task.desiredState === held.desiredState && observedState(task) < observedState(held));
    if (isBetter) slots.set(key, task);
  }
  return [...slots.values()].toSorted((a, b) => a.slot - b.slot || (a.nodeId < b.nodeId ? -1 : 1));
}

function taskText(task: Task, goal: TaskState): string {
  const error = (task.status?.err ?? "").replaceAll("\n", " ");
  if (error !== "") return error.length > errorLengthMax ? `${error.slice(0, errorLengthMax - 1)}…` : error;
  const state = observedState(task);
  const steps = path.filter((each) => each <= goal);
  const share = steps.filter((each) => each <= state).length / steps.length;
  return `${stateName(state).toLowerCase().padEnd(longestName)} ${bar(state > goal ? 0 : share)}`;
}

/** Overall progress, in Docker's words. */
export function overallLine(service: Service, done: number, wanted: number): string {
  if (isJob(service)) {
    return `job progress: ${String(done).padStart(String(wanted).length)} out of ${wanted} complete`;
  }
  const what = isRollingBack(service) ? "rolling back update: " : "";
  return `overall progress: ${what}${done} out of ${wanted} tasks`;
}

/** All lines. */
export function progressLines(picture: Picture, done: number, wanted: number): readonly string[] {
  const { service } = picture;
  const tasks = shown(picture);
  const overall = overallLine(service, done, wanted);
  const lines = [isJob(service) ? `${overall} ${bar(wanted === 0 ? 1 : done / wanted)}` : overall];
  const job = service.spec?.replicatedJob;
  if (job != null) {
    const active = tasks.filter((task) => !isEnded(observedState(task))).length;
    lines.push(`active tasks: ${active} out of ${Math.min(wanted - done, job.maxConcurrent)} tasks`);
  }
  if (wanted > barsMax || tasks.length > barsMax) return lines;
  const goal = isJob(service) ? TaskState.COMPLETE : TaskState.RUNNING;
  const nameOf = nodeNames(picture.nodes);
  const isBound = service.spec?.global != null || service.spec?.globalJob != null;
  if (isBound) return [...lines, ...tasks.map((task) => `${nameOf(task.nodeId)}: ${taskText(task, goal)}`)];
  // Slot numbers may have gaps; the lines are numbered consecutively.
  const bars = Array.from({ length: wanted }, (_, at) => {
    const task = tasks[at];
    return `${at + 1}/${wanted}: ${task === undefined ? "" : taskText(task, goal)}`;
  });
  return [...lines, ...bars];
}

/** Escape sequences that draw `lines` over the `drawn` lines above the cursor, cut to `columns`. */
export function redrawn(drawn: number, lines: readonly string[], columns: number): string {
  const up = drawn === 0 ? "" : `\r\x1b[${drawn}A`;
  const body = lines.map((line) => `${line.slice(0, columns - 1)}\x1b[K\n`).join("");
  return `${up}${body}${lines.length < drawn ? "\x1b[J" : ""}`;
}
