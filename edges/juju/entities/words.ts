/** Status words of the JSON API, and the cluster's states for each (table in `docs/json-api.md`). */
import {
  NodeSpec_Availability,
  NodeStatus_State,
  TaskState,
  type Node,
  type Service,
  type Task,
} from "../../../proto/gen/messages.ts";

export type Life = "alive" | "dying" | "dead";

export interface Word {
  readonly current: string;
  readonly message: string;
}

export interface MachineWords {
  readonly agent: Word;
  readonly instance: Word;
}

/** Node labels in which the node's agent stores a status of its own (`Machine.SetStatus`). */
export const statusLabels = { status: "muster.json.status", info: "muster.json.status-info" } as const;

function isDown(node: Node | undefined): boolean {
  return node === undefined || node.status?.state === NodeStatus_State.DOWN;
}

export function machineWords(node: Node): MachineWords {
  const message = node.status?.message ?? "";
  switch (node.status?.state ?? NodeStatus_State.UNKNOWN) {
    case NodeStatus_State.READY:
      return {
        agent: { current: "started", message: readyMessage(node) },
        instance: { current: "running", message: "" },
      };
    case NodeStatus_State.DOWN:
      return { agent: { current: "down", message }, instance: { current: "unknown", message } };
    case NodeStatus_State.DISCONNECTED:
      return { agent: { current: "stopped", message }, instance: { current: "unknown", message } };
    default:
      return { agent: { current: "pending", message }, instance: { current: "allocating", message } };
  }
}

function readyMessage(node: Node): string {
  switch (node.spec?.availability) {
    case NodeSpec_Availability.DRAIN:
      return "drained: runs nothing";
    case NodeSpec_Availability.PAUSE:
      return "paused: gets nothing new";
    default:
      return node.spec?.annotations?.labels[statusLabels.info] ?? node.status?.message ?? "";
  }
}

export interface UnitWords {
  readonly agent: Word;
  readonly workload: Word;
  /** The single status word of 1.x. */
  readonly old: string;
}

/** `node`: the task's node; undefined if it has none or the node was removed. */
export function unitWords(task: Task, node: Node | undefined): UnitWords {
  const state = task.status?.state ?? TaskState.NEW;
  const message = task.status?.err !== "" && task.status !== null ? task.status.err : (task.status?.message ?? "");
  const word = (agent: string, workload: string, old: string): UnitWords => ({
    agent: { current: agent, message: agent === "error" ? message : "" },
    workload: { current: workload, message },
    old,
  });
  const isHeld = state >= TaskState.ASSIGNED && state <= TaskState.RUNNING;
  if (state === TaskState.ORPHANED || (isHeld && isDown(node))) {
    const lost: Word = { current: "lost", message: "agent is not communicating with the server" };
    return { agent: lost, workload: { current: "unknown", message: lost.message }, old: "down" };
  }
  switch (state) {
    case TaskState.RUNNING:
      return word("idle", "active", "started");
    case TaskState.STARTING:
      return word("executing", "maintenance", "pending");
    case TaskState.COMPLETE:
    case TaskState.SHUTDOWN:
    case TaskState.REMOVE:
      return word("idle", "terminated", "stopped");
    case TaskState.FAILED:
    case TaskState.REJECTED:
      return word("error", "error", "error");
    default:
      return word("allocating", "waiting", "pending");
  }
}

export function taskLife(task: Task): Life {
  if (task.desiredState < TaskState.SHUTDOWN) return "alive";
  return (task.status?.state ?? TaskState.NEW) > TaskState.RUNNING ? "dead" : "dying";
}

export function serviceLife(service: Service): Life {
  return service.pendingDelete ? "dying" : "alive";
}

/** Number of units by status word of their workload; absent means zero. */
export type Tally = { readonly [word: string]: number | undefined };

/** The worst status of the units; without units, unknown if the service wants none, otherwise waiting. */
export function worstOf(tally: Tally, wanted: number): Word {
  for (const word of ["error", "unknown", "waiting", "maintenance", "active", "terminated"]) {
    const count = tally[word] ?? 0;
    if (count > 0)
      return { current: word, message: word === "active" ? "" : `${count} ${count === 1 ? "unit" : "units"}` };
  }
  return wanted > 0 ? { current: "waiting", message: "no unit yet" } : { current: "unknown", message: "" };
}
