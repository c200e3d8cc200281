/**
 * The life cycle of a task: SwarmKit's states in order, and who may move a task into each. Every mover asks `mayAdvance` or
 * `maySet`, tables compiled from the chart; a test checks that they are equal.
 *
 * T1: an observed state only increases.
 * T2: each transition has one owner (see the table in docs/model.md).
 * T3: the desired state only increases, too.
 */
import { TaskState } from "../proto/gen/messages.ts";
import { chart } from "./chart.ts";

/**
 * Reporter of a state: the allocator, the scheduler, the reaper (for tasks that never had a node), the node itself, or a
 * manager on behalf of a node.
 */
export type TaskMover = "allocator" | "scheduler" | "reaper" | "node" | "manager";

export type TaskEvent =
  | { readonly type: "allocator.allocated" }
  | { readonly type: "scheduler.assigned" }
  | { readonly type: "reaper.dropped" }
  | { readonly type: "node.accepted" }
  | { readonly type: "node.preparing" }
  | { readonly type: "node.ready" }
  | { readonly type: "node.starting" }
  | { readonly type: "node.running" }
  | { readonly type: "node.completed" }
  | { readonly type: "node.shutdown" }
  | { readonly type: "node.failed" }
  | { readonly type: "node.rejected" }
  | { readonly type: "manager.rejected" }
  | { readonly type: "manager.orphaned" };

/** The state that each event leads to. */
export const stateAfter: Readonly<Record<TaskEvent["type"], TaskState>> = {
  "allocator.allocated": TaskState.PENDING,
  "scheduler.assigned": TaskState.ASSIGNED,
  "reaper.dropped": TaskState.SHUTDOWN,
  "node.accepted": TaskState.ACCEPTED,
  "node.preparing": TaskState.PREPARING,
  "node.ready": TaskState.READY,
  "node.starting": TaskState.STARTING,
  "node.running": TaskState.RUNNING,
  "node.completed": TaskState.COMPLETE,
  "node.shutdown": TaskState.SHUTDOWN,
  "node.failed": TaskState.FAILED,
  "node.rejected": TaskState.REJECTED,
  "manager.rejected": TaskState.REJECTED,
  "manager.orphaned": TaskState.ORPHANED,
};

/** A node coalesces its reports: from any state that it owns, it may report any later one. */
export const taskMachine = chart({
  types: { events: {} as TaskEvent },
  shows: {},
}).createMachine({
  id: "task",
  initial: "NEW",
  states: {
    NEW: {
      description: "Created by an orchestrator, without addresses and ports.",
      meta: {
        waitingFor: "the allocator",
        wokenBy: { "allocator.allocated": "the allocator's next round, which is due now" },
      },
      on: { "allocator.allocated": "PENDING", "reaper.dropped": "SHUTDOWN", "manager.orphaned": "ORPHANED" },
    },
    PENDING: {
      description: "Addresses and ports are allocated.",
      meta: {
        waitingFor: "a node to run on",
        wokenBy: {
          "scheduler.assigned": "a node that joins, changes or is freed by a task, or a volume that becomes usable",
        },
      },
      on: { "scheduler.assigned": "ASSIGNED", "reaper.dropped": "SHUTDOWN", "manager.orphaned": "ORPHANED" },
    },
    ASSIGNED: {
      description: "Assigned to a node that has not received it yet.",
      meta: {
        waitingFor: "{its node}, to take it from ASSIGNED to RUNNING",
        wokenBy: { "node.*": "the node's next report" },
      },
      on: {
        "node.accepted": "ACCEPTED",
        "node.preparing": "PREPARING",
        "node.ready": "READY",
        "node.starting": "STARTING",
        "node.running": "RUNNING",
        "node.completed": "COMPLETE",
        "node.shutdown": "SHUTDOWN",
        "node.failed": "FAILED",
        "node.rejected": "REJECTED",
        "manager.rejected": "REJECTED",
        "manager.orphaned": "ORPHANED",
      },
    },
    ACCEPTED: {
      description: "The node has accepted the task and can run its driver.",
      meta: {
        waitingFor: "{its node}, to take it from ACCEPTED to RUNNING",
        wokenBy: { "node.*": "the node's next report" },
      },
      on: {
        "node.preparing": "PREPARING",
        "node.ready": "READY",
        "node.starting": "STARTING",
        "node.running": "RUNNING",
        "node.completed": "COMPLETE",
        "node.shutdown": "SHUTDOWN",
        "node.failed": "FAILED",
        "node.rejected": "REJECTED",
        "manager.rejected": "REJECTED",
        "manager.orphaned": "ORPHANED",
      },
    },
    PREPARING: {
      description: "The node is fetching what the task needs: image, volumes, networks.",
      meta: {
        waitingFor: "{its node}, to take it from PREPARING to RUNNING",
        wokenBy: { "node.*": "the node's next report" },
      },
      on: {
        "node.ready": "READY",
        "node.starting": "STARTING",
        "node.running": "RUNNING",
        "node.completed": "COMPLETE",
        "node.shutdown": "SHUTDOWN",
        "node.failed": "FAILED",
        "node.rejected": "REJECTED",
        "manager.rejected": "REJECTED",
        "manager.orphaned": "ORPHANED",
      },
    },
    READY: {
      description: "Ready to start once its desired state is RUNNING.",
      meta: {
        waitingFor: "{its node}, to take it from READY to RUNNING",
        wokenBy: { "node.*": "the node's next report" },
      },
      on: {
        "node.starting": "STARTING",
        "node.running": "RUNNING",
        "node.completed": "COMPLETE",
        "node.shutdown": "SHUTDOWN",
        "node.failed": "FAILED",
        "node.rejected": "REJECTED",
        "manager.rejected": "REJECTED",
        "manager.orphaned": "ORPHANED",
      },
    },
    STARTING: {
      description: "Starting; with a health check, until the check passes.",
      meta: {
        waitingFor: "{its node}, to take it from STARTING to RUNNING",
        wokenBy: { "node.*": "the node's next report" },
      },
      on: {
        "node.running": "RUNNING",
        "node.completed": "COMPLETE",
        "node.shutdown": "SHUTDOWN",
        "node.failed": "FAILED",
        "node.rejected": "REJECTED",
        "manager.rejected": "REJECTED",
        "manager.orphaned": "ORPHANED",
      },
    },
    RUNNING: {
      description: "Running.",
      meta: { waitingFor: "nothing: it runs on {its node}", wokenBy: { "node.*": "its end" } },
      on: {
        "node.completed": "COMPLETE",
        "node.shutdown": "SHUTDOWN",
        "node.failed": "FAILED",
        "node.rejected": "REJECTED",
        "manager.rejected": "REJECTED",
        "manager.orphaned": "ORPHANED",
      },
    },
    COMPLETE: { description: "Ended by itself with success.", type: "final" },
    SHUTDOWN: { description: "Stopped on request.", type: "final" },
    FAILED: { description: "Ran, and ended with an error.", type: "final" },
    REJECTED: { description: "Could not be run.", type: "final" },
    ORPHANED: { description: "The node is lost for good; the outcome is unknown.", type: "final" },
  },
});

export function moverOf(event: TaskEvent["type"]): TaskMover {
  return event.slice(0, event.indexOf(".")) as TaskMover;
}

/**
 * In the ledger, a proposal names the node that reported, but not the part of a manager that decided. The transition tells
 * that: each has one owner (T2).
 */
const anyManager: readonly TaskMover[] = ["allocator", "scheduler", "reaper", "manager"];

type Table = ReadonlyMap<TaskState, ReadonlySet<TaskState>>;

/** The states that follow each state by the transitions of these movers, and the state itself if they may restate it. */
function tableOf(movers: readonly TaskMover[]): Table {
  const table = new Map<TaskState, Set<TaskState>>();
  const add = (from: TaskState, to: TaskState): void => {
    table.set(from, (table.get(from) ?? new Set()).add(to));
  };
  for (const [name, state] of Object.entries(taskMachine.config.states ?? {})) {
    const from = TaskState[name as keyof typeof TaskState];
    for (const event of Object.keys(state.on ?? {}) as TaskEvent["type"][]) {
      if (!movers.includes(moverOf(event))) continue;
      const to = stateAfter[event];
      add(from, from);
      add(from, to);
      // A node may add to the outcome of its task, but a decision of a manager must not replace it.
      if (moverOf(event) === "node") add(to, to);
    }
  }
  return table;
}

const tables: Readonly<Record<TaskMover | "anyManager", Table>> = {
  allocator: tableOf(["allocator"]),
  scheduler: tableOf(["scheduler"]),
  reaper: tableOf(["reaper"]),
  node: tableOf(["node"]),
  manager: tableOf(["manager"]),
  anyManager: tableOf(anyManager),
};

/** T1, T2. Staying in a state is not an advance. False for unknown numbers. */
export function mayAdvance(from: TaskState, to: TaskState, by: TaskMover): boolean {
  return from !== to && maySet(from, to, by);
}

/**
 * Whether `by` may write a status with the state `to`: an advance, or the same state in other words: a state that `by` moves
 * tasks out of, or one that a node has reported.
 */
export function maySet(from: TaskState, to: TaskState, by: TaskMover | "anyManager"): boolean {
  return tables[by].get(from)?.has(to) ?? false;
}

/** The states that a node may report; it may also repeat ASSIGNED before it has handled the task. */
export const nodeStates: ReadonlySet<TaskState> = new Set(tables.node.keys());

/** The states that a task may be desired to have. */
const desirable: ReadonlySet<number> = new Set([
  TaskState.READY,
  TaskState.RUNNING,
  TaskState.COMPLETE,
  TaskState.SHUTDOWN,
  TaskState.REMOVE,
]);

/** T3. False for unknown numbers. */
export function mayDesire(from: TaskState, to: number): boolean {
  return to > from && desirable.has(to);
}
