/** Which nodes have the output that a log subscription selects (manager semantics §3.4). */
import {
  NodeStatus_State,
  TaskState,
  type LogSelector,
  type Node,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import { observedState } from "../task.ts";

/** The part of a store that selection reads. */
interface LogSources {
  get(table: "node", id: string): Node | undefined;
  get(table: "task", id: string): Task | undefined;
  get(table: "service", id: string): Service | undefined;
  tasksByService(serviceId: string): Iterable<Task>;
}

interface LogSelection {
  readonly nodes: readonly SelectedNode[];
  /** Tasks that were selected by id, or that a follower waits for, and that have no node yet. */
  readonly unscheduled: readonly string[];
  /** Some selected object still exists, or may be created. */
  readonly exists: boolean;
}

export interface SelectedNode {
  readonly id: string;
  /** False if the node is UNKNOWN or DOWN and need not be asked. */
  readonly isAvailable: boolean;
}

/** Why a selector is invalid; null if it is valid. SwarmKit's texts. */
export function selectorProblem(selector: LogSelector | null): string | null {
  if (selector === null) return "log selector must be provided";
  const { nodeIds, serviceIds, taskIds } = selector;
  return nodeIds.length + serviceIds.length + taskIds.length === 0 ? "log selector must not be empty" : null;
}

export function isSelected(selector: LogSelector, task: Pick<Task, "id" | "serviceId" | "nodeId">): boolean {
  return (
    selector.taskIds.includes(task.id) ||
    (task.serviceId !== "" && selector.serviceIds.includes(task.serviceId)) ||
    (task.nodeId !== "" && selector.nodeIds.includes(task.nodeId))
  );
}

/** Without `follow`, tasks of a service that have not started are left out, as in SwarmKit: they have no output. */
export function selectLogs(selector: LogSelector, store: LogSources, follow: boolean): LogSelection {
  const nodes = new Map<string, SelectedNode>();
  const unscheduled: string[] = [];
  let exists = false;
  const addNode = (id: string): void => {
    if (nodes.has(id)) return;
    const state = store.get("node", id)?.status?.state;
    nodes.set(id, { id, isAvailable: state !== undefined && state !== NodeStatus_State.DOWN });
  };
  const add = (task: Task): void => {
    exists = true;
    if (task.nodeId === "") unscheduled.push(task.id);
    else addNode(task.nodeId);
  };
  for (const id of selector.nodeIds) {
    exists ||= store.get("node", id) !== undefined;
    addNode(id);
  }
  for (const id of selector.taskIds) {
    const task = store.get("task", id);
    if (task !== undefined) add(task);
  }
  for (const id of selector.serviceIds) {
    exists ||= store.get("service", id) !== undefined;
    for (const task of store.tasksByService(id)) {
      if (!follow && observedState(task) < TaskState.RUNNING) continue;
      add(task);
    }
  }
  return { nodes: [...nodes.values()], unscheduled, exists };
}
