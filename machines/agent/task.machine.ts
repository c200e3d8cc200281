/**
 * One task on its node, from assignment to removal (worker protocol §5.5).
 *
 *   recovering ──▶ accepted ──▶ preparing ──▶ ready ──▶ starting ──▶ up { proving ──▶ running } ──▶ ended
 *                  └────────────┴───────────┴──▶ stopping ◀───────┘ └──▶ failing ──▶ ended     removing ──▶ removed from anywhere
 *
 * Each state that the manager needs to know reports itself on entry.
 *
 * K1: reported states never decrease, the text changes within a state only because of a health check, and nothing is
 *     reported after a terminal state or once the task is being removed.
 * K2: the task advances only while its state is below the desired one; it rests at READY if that is desired.
 * K3: a task that was STARTING or later in an earlier run of the agent is never started again: either its process is
 *     found, or it has failed.
 * K4: an error before STARTING rejects the task; an error from then on fails it.
 * K5: no process of a task runs any more when the task is forgotten.
 * K6: a task with a health check is STARTING until a check has passed. An unhealthy task is stopped like any other and
 *     becomes FAILED, however it then exits; that it was unhealthy is written to disk first, so a later run of the agent
 *     knows it.
 */
import { assign } from "xstate";
import { TaskState } from "../../proto/gen/messages.ts";
import { chart, effect } from "../chart.ts";
import { mayAdvance, mayDesire } from "../task.machine.ts";
import { isEnded } from "../task.ts";

export interface TaskReport {
  readonly state: TaskState;
  readonly message: string;
  readonly err: string;
  /** 0 if there is no process. */
  readonly pid: number;
  readonly exitCode: number;
}

interface ExitFacts {
  readonly code: number;
  readonly signal: string;
  readonly reason: string;
  readonly lastOutput: string;
}

export type AgentTaskEvent =
  /** The driver's answer about an earlier run; a task that no driver of this node can run is refused. */
  | { readonly type: "run.absent" }
  | { readonly type: "run.found"; readonly pid: number }
  | { readonly type: "run.refused"; readonly reason: string }
  | { readonly type: "run.prepared" }
  | { readonly type: "run.started"; readonly pid: number }
  | { readonly type: "run.exited"; readonly pid: number; readonly exit: ExitFacts }
  /** The process exited after a stop; `code` is 0 if there was no process. */
  | { readonly type: "run.stopped"; readonly code: number }
  | { readonly type: "run.forgotten" }
  /** Health check: it passed for the first time; it failed before that; it failed too often. */
  | { readonly type: "health.passed" }
  | { readonly type: "health.missed"; readonly reason: string }
  | { readonly type: "health.lost"; readonly reason: string }
  | { readonly type: "desired.raised"; readonly desired: TaskState }
  | { readonly type: "removal.wanted" };

interface AgentTaskContext {
  readonly taskId: string;
  /** The state in which this run of the agent found the task: as assigned, or as read from disk. */
  readonly before: TaskState;
  readonly desired: TaskState;
  readonly pid: number;
  readonly isChecked: boolean;
  /** Why the task is unhealthy; empty while it is not. */
  readonly flaw: string;
}

export interface AgentTaskInput {
  readonly taskId: string;
  readonly before: TaskState;
  readonly desired: TaskState;
  /** The task has a health check. */
  readonly isChecked: boolean;
  /** Why an earlier run of the agent found the task unhealthy; empty if it did not. K6 */
  readonly flaw: string;
}

/** The report of a finished run. SwarmKit's text, plus what it leaves out: signal and last output. */
export function reportOfExit(exit: ExitFacts, pid: number): TaskReport {
  const message = exit.lastOutput === "" ? "finished" : `finished; last output: ${exit.lastOutput}`;
  if (exit.code === 0 && exit.reason === "")
    return { state: TaskState.COMPLETE, message: "finished", err: "", pid, exitCode: 0 };
  const signal = exit.signal === "" ? "" : `, killed by ${exit.signal}`;
  const err = exit.reason === "" ? `task: non-zero exit (${exit.code})${signal}` : `task: ${exit.reason}`;
  return { state: TaskState.FAILED, message, err, pid, exitCode: exit.code };
}

/** The report of a run that ended because it was unhealthy, which its exit code does not show. K6 */
function reportOfFlaw(flaw: string, pid: number, exitCode: number): TaskReport {
  return { state: TaskState.FAILED, message: "unhealthy", err: `task: unhealthy: ${flaw}`, pid, exitCode };
}

interface Told {
  readonly state: TaskState;
  readonly message: string;
  readonly err: string;
}

/** Whether a report may follow the newest status and contains anything new. K1 */
export function isNews(newest: Told, reported: Told): boolean {
  if (reported.state !== newest.state) return mayAdvance(newest.state, reported.state, "node");
  // After a restart, the chart passes through states again and repeats their first message.
  const isOfHealth = reported.state === TaskState.STARTING || reported.err !== "";
  return isOfHealth && !isEnded(reported.state) && (reported.message !== newest.message || reported.err !== newest.err);
}

/** A report without a process. */
function told(state: TaskState, message: string, err = ""): TaskReport {
  return { state, message, err, pid: 0, exitCode: 0 };
}

export const agentTaskMachine = chart({
  types: { context: {} as AgentTaskContext, events: {} as AgentTaskEvent, input: {} as AgentTaskInput },
  effects: {
    /** Answered by `run.absent`, `run.found`, `run.exited` or `run.refused`. */
    look: effect(),
    /** Records the task on disk first; answered by `run.prepared` or `run.refused`. */
    prepare: effect(),
    /** Answered by `run.started` or `run.refused`. */
    start: effect(),
    /** Answered by `run.exited`. */
    awaitExit: effect<{ pid: number }>(),
    /** Answered by `run.stopped`. */
    stop: effect(),
    /** Cancels a start in progress: the driver need not wait any longer. */
    giveUpStart: effect(),
    /**
     * Starts the health check, unless there is none or it is running; `wasHealthy`: a check has passed before. Answered
     * by `health.*`.
     */
    check: effect<{ wasHealthy: boolean }>(),
    /** Stops the health check, if any. */
    endCheck: effect(),
    /** Deletes the run's state and record; answered by `run.forgotten`. */
    forget: effect(),
    /** Sent only if `isNews`: after a restart the chart passes through states that were reported before. K1 */
    report: effect<TaskReport>(),
  },
  actions: {
    rememberPid: assign((_, { pid }: { pid: number }) => ({ pid })),
    rememberFlaw: assign((_, { reason }: { reason: string }) => ({ flaw: reason })),
    raiseDesired: assign(({ context }, { desired }: { desired: TaskState }) => ({
      desired: mayDesire(context.desired, desired) ? desired : context.desired,
    })),
  },
  guards: {
    isEnded: ({ context }) => isEnded(context.before),
    wasStarted: ({ context }) => context.before >= TaskState.STARTING,
    wants: ({ context }, { above }: { above: TaskState }) =>
      context.desired > above && context.desired < TaskState.SHUTDOWN,
    mustStop: ({ context }) => context.desired >= TaskState.SHUTDOWN,
    isStop: (_, { desired }: { desired: TaskState }) => desired >= TaskState.SHUTDOWN,
    isFlawed: ({ context }) => context.flaw !== "",
    isChecked: ({ context }) => context.isChecked,
    // A task that was RUNNING had passed its check; any other may have been started just before the agent died. K6
    isUnproven: ({ context }) => context.isChecked && context.before < TaskState.RUNNING,
    isHigher: ({ context }, { desired }: { desired: TaskState }) => mayDesire(context.desired, desired),
  },
  shows: {
    context: ["taskId", "before", "desired", "pid", "isChecked", "flaw.$same"],
    events: ["pid", "code", "exit.code", "exit.signal", "desired"],
  },
}).createMachine({
  id: "agentTask",
  context: ({ input }) => ({ ...input, pid: 0 }),
  initial: "recovering",
  on: {
    "desired.raised": {
      guard: { type: "isHigher", params: ({ event }) => ({ desired: event.desired }) },
      actions: { type: "raiseDesired", params: ({ event }) => ({ desired: event.desired }) },
    },
    "removal.wanted": ".removing",
  },
  states: {
    recovering: {
      description: "Asking the driver what an earlier agent process left of this task. K3",
      meta: {
        waitingFor: "the driver, to say what an earlier agent process left of this task",
        wokenBy: { "run.*": "the driver's answer" },
      },
      always: { guard: "isEnded", target: "ended" },
      entry: "look",
      on: {
        "run.found": [
          {
            guard: "isFlawed",
            target: "failing",
            actions: { type: "rememberPid", params: ({ event }) => ({ pid: event.pid }) },
          },
          {
            guard: "isUnproven",
            target: "up.proving",
            actions: { type: "rememberPid", params: ({ event }) => ({ pid: event.pid }) },
          },
          { target: "up.running", actions: { type: "rememberPid", params: ({ event }) => ({ pid: event.pid }) } },
        ],
        "run.exited": [
          {
            guard: "isFlawed",
            target: "ended",
            actions: {
              type: "report",
              params: ({ context, event }) => reportOfFlaw(context.flaw, event.pid, event.exit.code),
            },
          },
          {
            target: "ended",
            actions: { type: "report", params: ({ event }) => reportOfExit(event.exit, event.pid) },
          },
        ],
        "run.absent": [
          {
            guard: "isFlawed",
            target: "ended",
            actions: { type: "report", params: ({ context }) => reportOfFlaw(context.flaw, 0, -1) },
          },
          {
            guard: "wasStarted",
            target: "ended",
            actions: {
              type: "report",
              params: {
                ...told(
                  TaskState.FAILED,
                  "recovering",
                  "task: its process no longer exists on this node; its exit status is unknown",
                ),
                exitCode: -1,
              },
            },
          },
          { target: "accepted" },
        ],
        "run.refused": [
          {
            guard: "wasStarted",
            target: "ended",
            actions: { type: "report", params: ({ event }) => told(TaskState.FAILED, "recovering", event.reason) },
          },
          {
            target: "ended",
            actions: {
              type: "report",
              params: ({ event }) => told(TaskState.REJECTED, "resolving controller failed", event.reason),
            },
          },
        ],
      },
    },
    accepted: {
      description: "Accepted; nothing is asked of the driver yet.",
      meta: {
        waitingFor: "a higher desired state",
        wokenBy: {
          "desired.raised": "the manager's next desired state",
          "removal.wanted": "its removal from the node",
        },
      },
      entry: { type: "report", params: told(TaskState.ACCEPTED, "accepted") },
      always: [
        { guard: "mustStop", target: "stopping" },
        { guard: { type: "wants", params: { above: TaskState.ACCEPTED } }, target: "preparing" },
      ],
    },
    preparing: {
      description: "The driver is preparing the task; the task is recorded on disk.",
      meta: {
        waitingFor: "the driver, to prepare the task",
        wokenBy: { "run.*": "the driver's answer", "desired.raised": "a request to stop it" },
      },
      entry: [{ type: "report", params: told(TaskState.PREPARING, "preparing") }, "prepare"],
      always: { guard: "mustStop", target: "stopping" },
      on: {
        "run.prepared": "ready",
        "run.refused": {
          target: "ended",
          actions: { type: "report", params: ({ event }) => told(TaskState.REJECTED, "preparing", event.reason) },
        },
      },
    },
    ready: {
      description: "Ready to start, as the new task of a start-first update is. K2",
      meta: {
        waitingFor: "the desired state RUNNING",
        wokenBy: {
          "desired.raised": "the manager's next desired state",
          "removal.wanted": "its removal from the node",
        },
      },
      entry: { type: "report", params: told(TaskState.READY, "prepared") },
      always: [
        { guard: "mustStop", target: "stopping" },
        { guard: { type: "wants", params: { above: TaskState.READY } }, target: "starting" },
      ],
    },
    starting: {
      description: "The driver is starting the task. A stop waits for the outcome, so that nothing starts after it.",
      meta: { waitingFor: "the driver, to start the task", wokenBy: { "run.*": "the driver's answer" } },
      entry: [{ type: "report", params: told(TaskState.STARTING, "starting") }, "start"],
      on: {
        "desired.raised": [
          {
            guard: { type: "isStop", params: ({ event }) => ({ desired: event.desired }) },
            actions: [{ type: "raiseDesired", params: ({ event }) => ({ desired: event.desired }) }, "giveUpStart"],
          },
          { actions: { type: "raiseDesired", params: ({ event }) => ({ desired: event.desired }) } },
        ],
        "run.started": [
          {
            guard: "isChecked",
            target: "up.proving",
            actions: { type: "rememberPid", params: ({ event }) => ({ pid: event.pid }) },
          },
          { target: "up.running", actions: { type: "rememberPid", params: ({ event }) => ({ pid: event.pid }) } },
        ],
        "run.refused": {
          target: "ended",
          actions: { type: "report", params: ({ event }) => told(TaskState.FAILED, "starting", event.reason) },
        },
      },
    },
    up: {
      description: "Running until the task exits, is stopped or becomes unhealthy.",
      tags: ["live"],
      initial: "proving",
      entry: { type: "awaitExit", params: ({ context }) => ({ pid: context.pid }) },
      exit: "endCheck",
      always: { guard: "mustStop", target: "stopping" },
      on: {
        "run.exited": {
          target: "ended",
          actions: { type: "report", params: ({ event }) => reportOfExit(event.exit, event.pid) },
        },
      },
      states: {
        proving: {
          description: "The task runs; its health is not known yet. K6",
          meta: {
            waitingFor: "its health check to pass for the first time",
            wokenBy: {
              "health.*": "the outcome of the checks",
              "run.exited": "the task's exit",
              "desired.raised": "a request to stop it",
            },
          },
          entry: { type: "check", params: { wasHealthy: false } },
          on: {
            "health.lost": {
              target: "#agentTask.failing",
              actions: [
                { type: "rememberFlaw", params: ({ event }) => ({ reason: event.reason }) },
                {
                  type: "report",
                  params: ({ event }) => told(TaskState.STARTING, "unhealthy; being stopped", event.reason),
                },
              ],
            },
            "health.passed": "running",
            "health.missed": {
              actions: {
                type: "report",
                params: ({ event }) => told(TaskState.STARTING, `health check: ${event.reason}`),
              },
            },
          },
        },
        running: {
          description: "Running and healthy, as far as is known.",
          meta: {
            waitingFor: "nothing: the task runs",
            wokenBy: {
              "run.exited": "the task's exit",
              "health.lost": "failed health checks",
              "desired.raised": "a request to stop it",
            },
          },
          entry: [
            { type: "report", params: ({ context }) => ({ ...told(TaskState.RUNNING, "started"), pid: context.pid }) },
            { type: "check", params: { wasHealthy: true } },
          ],
          on: {
            "health.lost": {
              target: "#agentTask.failing",
              actions: [
                { type: "rememberFlaw", params: ({ event }) => ({ reason: event.reason }) },
                {
                  type: "report",
                  params: ({ context, event }) => ({
                    ...told(TaskState.RUNNING, "unhealthy; being stopped", event.reason),
                    pid: context.pid,
                  }),
                },
              ],
            },
          },
        },
      },
    },
    failing: {
      description: "Unhealthy: stopping with signal, grace period and kill; then the task has failed. K6",
      meta: { waitingFor: "the driver, to stop the unhealthy task", wokenBy: { "run.*": "the driver's answer" } },
      tags: ["live"],
      entry: "stop",
      ignore: ["run.*"],
      on: {
        "run.stopped": {
          target: "ended",
          actions: {
            type: "report",
            params: ({ context, event }) => reportOfFlaw(context.flaw, context.pid, event.code),
          },
        },
      },
    },
    stopping: {
      description: "Stopping: signal, grace period, kill; done when no process of the task is left.",
      meta: { waitingFor: "the driver, to stop the task", wokenBy: { "run.*": "the driver's answer" } },
      tags: ["live"],
      entry: "stop",
      ignore: [
        // Answers to operations that were in progress when the stop came.
        "run.*",
      ],
      on: {
        "run.stopped": {
          target: "ended",
          actions: {
            type: "report",
            params: ({ context, event }) => ({
              ...told(TaskState.SHUTDOWN, "shutdown"),
              pid: context.pid,
              exitCode: event.code,
            }),
          },
        },
      },
    },
    ended: {
      description: "In a terminal state, which is reported again until the task is removed. K1",
      meta: {
        waitingFor: "the manager, to remove the task",
        wokenBy: { "removal.wanted": "its removal from the node's assignments" },
      },
      // The exit that a stop caused, or vice versa.
      ignore: ["run.*", "desired.raised"],
    },
    removing: {
      description: "The manager has removed the task; the node removes it without another report. K5",
      initial: "halting",
      ignore: ["run.*", "desired.raised", "removal.wanted"],
      states: {
        halting: {
          description: "Stopping what still runs.",
          meta: {
            waitingFor: "the driver, to stop what still runs",
            wokenBy: { "run.stopped": "the driver's answer" },
          },
          entry: "stop",
          on: { "run.stopped": "forgetting" },
        },
        forgetting: {
          description: "Deleting output and record.",
          meta: {
            waitingFor: "the disk, to delete output and record",
            wokenBy: { "run.forgotten": "the end of the deletion" },
          },
          entry: "forget",
          on: { "run.forgotten": "removed" },
        },
        removed: { description: "Nothing is left.", type: "final" },
      },
      onDone: "removed",
    },
    removed: { description: "The task is gone from this node.", type: "final" },
  },
});
