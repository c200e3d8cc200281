/**
 * Explains why a global service is waiting: which of its nodes run their task, what delays the others, and which nodes have
 * no task and why. See `machines/explain/explain.ts`.
 */
import { Reason, type Node, type Service, type Task } from "../../proto/gen/messages.ts";
import { explainTask, type ExplainView } from "./explain.ts";
import { admissionOf, placesOf, type Admission } from "../orchestration/global-nodes.ts";
import { isAttempt, shouldRestart } from "../orchestration/restart.machine.ts";
import { TaskDirty } from "../orchestration/task-dirty.ts";
import { isReady } from "../node.ts";
import { isRunning, isWanted, newestOf } from "../task.ts";
import { timeMs } from "../../proto/time.ts";

interface GlobalExplainView extends ExplainView {
  nodes(): Iterable<Node>;
}

/** Maximum number of different reasons shown for one service; the rest are counted. */
const reasonsMax = 8;
/** Maximum number of nodes named in one line, and of lines about nodes without a task. */
const nodesMax = 10;

interface Late {
  readonly first: Reason;
  readonly nodes: string[];
}

export function explainGlobal(service: Service, view: GlobalExplainView): readonly Reason[] {
  const taskDirty = new TaskDirty();
  const since = service.meta?.updatedAt ?? null;
  const late = new Map<string, Late>();
  const without: string[] = [];
  const count = { wanted: 0, running: 0, finished: 0, outdated: 0, closed: 0 };
  for (const [nodeId, tasks] of placesOf(view.nodes(), view.tasks(service.id))) {
    const node = view.node(nodeId);
    const admission = admissionOf(service, node);
    const task = tasks.find(isWanted);
    const excuse = task === undefined ? excuseOf(admission) : null;
    if (excuse !== null) {
      if (node === undefined) continue;
      count.closed += 1;
      if (without.length < nodesMax) without.push(`node ${view.nodeName(nodeId)}: ${excuse}`);
      continue;
    }
    count.wanted += 1;
    if (task === undefined) {
      if (isFinished(tasks)) count.finished += 1;
      else note(late, waitForOrchestrator(since), view.nodeName(nodeId));
      continue;
    }
    // A paused node's task is not updated, and nothing waits for it.
    const isOpen = admission.kind === "open";
    if (isOpen && taskDirty.isDirty(task, service, (id) => view.node(id))) count.outdated += 1;
    if (runs(task, node)) count.running += 1;
    else for (const why of explainTask(task, view)) note(late, why, view.nodeName(nodeId));
  }
  if (count.closed > without.length) without.push(`and ${count.closed - without.length} more nodes`);
  const why = view.rollout(service);
  return [headline(count, late.size, without, since), ...(why === null ? [] : [why]), ...shown(late)];
}

/** Why an open or closed node may lack a task; null: it should have one. */
function excuseOf(admission: Admission): string | null {
  switch (admission.kind) {
    case "open":
      return null;
    case "paused":
      return "is paused, and gets no task until it is active";
    case "removed":
      return "was removed";
    case "closed":
      switch (admission.reason) {
        case "drained":
          return "is drained";
        case "lost":
          return "is down";
        case "unregistered":
          return "has never registered";
        case "unmet":
          return `does not meet ${admission.unmet}`;
      }
  }
}

/** No task follows the newest one, which ended by itself. */
function isFinished(tasks: readonly Task[]): boolean {
  const newest = newestOf(tasks);
  return newest !== undefined && isAttempt(newest) && !shouldRestart(newest, tasks);
}

function runs(task: Task, node: Node | undefined): boolean {
  return isRunning(task) && isReady(node);
}

function waitForOrchestrator(since: Reason["since"]): Reason {
  return Reason.create({
    since,
    waitingFor: "the orchestrator, to create a task",
    wokenBy: "its next decision, which is due now",
  });
}

function note(late: Map<string, Late>, why: Reason, node: string): void {
  // The scheduler's reasons differ by the node that they name; the task's own error is what they have in common.
  const key = why.tried.at(-1) ?? why.waitingFor;
  const known = late.get(key);
  if (known === undefined) late.set(key, { first: why, nodes: [node] });
  else known.nodes.push(node);
}

interface Count {
  readonly wanted: number;
  readonly running: number;
  readonly finished: number;
  readonly outdated: number;
}

function headline(count: Count, reasons: number, tried: readonly string[], since: Reason["since"]): Reason {
  const { finished, outdated, running, wanted } = count;
  if (wanted === 0) {
    return Reason.create({
      since,
      waitingFor: "an eligible node: there is none",
      wokenBy: "a node that joins, is made active or gets a label",
      tried,
    });
  }
  const tasks = `${running} of ${wanted} nodes run a task`;
  if (running === wanted && outdated === 0) return Reason.create({ since, waitingFor: `nothing: ${tasks}`, tried });
  const done = finished === 0 ? "" : `, finished on ${finished}`;
  const more = reasons > reasonsMax ? `; ${reasons - reasonsMax} more reasons` : "";
  return Reason.create({
    since,
    waitingFor: `tasks: ${tasks}${done}${more}`,
    wokenBy: finished > 0 && reasons === 0 ? "an update of the service" : "the events that its tasks wait for",
    tried,
  });
}

function shown(late: ReadonlyMap<string, Late>): readonly Reason[] {
  return [...late.values()]
    .sort((a, b) => timeMs(a.first.since) - timeMs(b.first.since))
    .slice(0, reasonsMax)
    .map(({ first, nodes }) => {
      const more = nodes.length > nodesMax ? ` and ${nodes.length - nodesMax} more` : "";
      const names = `${nodes.slice(0, nodesMax).join(", ")}${more}`;
      return Reason.patch(first, {
        waitingFor: `${first.waitingFor} (${nodes.length === 1 ? "node" : "nodes"} ${names})`,
      });
    });
}
