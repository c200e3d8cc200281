/**
 * One task on a driver plugin, from StartTask to DestroyTask.
 *
 *   pending ──▶ starting ──▶ live { running, stopping, killing } ──▶ exited ──▶ destroying ──▶ destroyed
 *                  │            ▲      │ the plugin died
 *                  │            │      ▼
 *                  │   recovering ◀── awaiting ◀── (an agent that was started again begins here)
 *                  ▼ the plugin died in the middle
 *              doubtful ──▶ clearing ──▶ failed ──▶ destroying …
 *
 * T1: StartTask is called at most once for a task. If its outcome is unknown, the task is destroyed, whatever runs, and has
 *     failed: a new task may replace it, but it is never started again.
 * T2: the exit of a task is reported exactly once.
 * T3: every stop ends: after the task's own timeout and a slack it becomes a kill, which is repeated until it is answered.
 * T4: a stop that is requested while no plugin serves is performed as soon as one does.
 * T5: a hanging start delays no stop; if it succeeds after all, its caller destroys what it started.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

/** Times in milliseconds. */
const driverTaskTimes = {
  /** Beyond a stop's own timeout: for the driver's kill and clean-up. */
  stopSlackMs: 10_000,
  /** Between two kills. */
  killRetryMs: 30_000,
  /** After a stop that the driver reports as done, for WaitTask's answer. */
  exitGraceMs: 5_000,
  /** Between two destroy calls, if the first was refused. */
  destroyRetryMs: 5_000,
  /**
   * After this many refusals the task is given up with an error: nothing more can be done from outside. A driver that died
   * meanwhile has not refused.
   */
  refusalsMax: 5,
} as const;

export interface DriverTaskExit {
  readonly code: number;
  /** 0 for a task that exited by itself. */
  readonly signal: number;
  readonly oomKilled: boolean;
  /** Why its exit result is unknown; empty if it is known. */
  readonly err: string;
}

export type DriverTaskEvent =
  | { readonly type: "task.started" }
  | { readonly type: "start.refused"; readonly reason: string; readonly isRecoverable: boolean }
  | { readonly type: "task.recovered" }
  | { readonly type: "recover.refused"; readonly reason: string }
  | { readonly type: "task.exited"; readonly exit: DriverTaskExit }
  | { readonly type: "stop.wanted"; readonly signal: string; readonly timeoutMs: number }
  | { readonly type: "stop.done" }
  | { readonly type: "stop.refused"; readonly reason: string }
  | { readonly type: "destroy.wanted" }
  | { readonly type: "task.destroyed" }
  | { readonly type: "destroy.refused"; readonly reason: string }
  /** The plugin died during a call: the outcome of the call is unknown. */
  | { readonly type: "call.lost"; readonly reason: string }
  /** A plugin serves, possibly a new process. */
  | { readonly type: "plugin.ready" };

export type DriverTaskNews =
  | { readonly kind: "running" }
  | { readonly kind: "waiting"; readonly reason: string }
  | { readonly kind: "stopping" }
  | { readonly kind: "exited"; readonly exit: DriverTaskExit }
  /** The task does not run, and did not exit by itself. */
  | { readonly kind: "failed"; readonly reason: string; readonly isRecoverable: boolean }
  | { readonly kind: "destroyed"; readonly reason: string };

interface DriverTaskContext {
  readonly taskId: string;
  readonly before: DriverTaskInput["before"];
  readonly stop: { readonly signal: string; readonly timeoutMs: number } | null;
  readonly reason: string;
  readonly isRecoverable: boolean;
  readonly refusals: number;
}

export interface DriverTaskInput {
  readonly taskId: string;
  /** `started`: by an earlier agent process, and its handle was kept. `doubtful`: the agent died during the start. */
  readonly before: "new" | "started" | "doubtful";
}

/** For a task whose exit nobody observed. */
const unseenExit: DriverTaskExit = { code: -1, signal: 0, oomKilled: false, err: "killed; its exit result is unknown" };

export const driverTaskMachine = chart({
  types: { context: {} as DriverTaskContext, events: {} as DriverTaskEvent, input: {} as DriverTaskInput },
  effects: {
    /** Answered by `task.started` once the handle is stored, `start.refused` or `call.lost`. */
    startTask: effect(),
    /** Answered by `task.recovered`, `recover.refused` or `call.lost`. */
    recoverTask: effect(),
    /** Answered by `task.exited` or `call.lost`. */
    waitTask: effect(),
    /** Answered by `stop.done`, `stop.refused` or `call.lost`. */
    stopTask: effect<{ signal: string; timeoutMs: number }>(),
    /** By force; answered by `task.destroyed`, `destroy.refused` or `call.lost`. */
    destroyTask: effect(),
    /** Answered by `plugin.ready`, at once if a plugin serves already. */
    awaitPlugin: effect(),
    announce: effect<DriverTaskNews>(),
  },
  actions: {
    rememberStop: assign((_, stop: { signal: string; timeoutMs: number }) => ({
      stop: { signal: stop.signal, timeoutMs: stop.timeoutMs },
    })),
    rememberReason: assign((_, { reason, isRecoverable }: { reason: string; isRecoverable: boolean }) => ({
      reason,
      isRecoverable,
    })),
    countRefusal: assign({ refusals: ({ context }) => context.refusals + 1 }),
  },
  guards: {
    isStarted: ({ context }) => context.before === "started",
    isDoubtful: ({ context }) => context.before === "doubtful",
    mustStop: ({ context }) => context.stop !== null,
    isGivenUp: ({ context }) => context.refusals >= driverTaskTimes.refusalsMax,
  },
  delays: {
    stopTimeout: ({ context }) => (context.stop?.timeoutMs ?? 0) + driverTaskTimes.stopSlackMs,
    killRetry: driverTaskTimes.killRetryMs,
    exitGrace: driverTaskTimes.exitGraceMs,
    destroyRetry: driverTaskTimes.destroyRetryMs,
  },
  shows: {
    context: ["taskId", "before", "stop", "isRecoverable", "refusals"],
    events: ["isRecoverable", "exit.code", "exit.signal", "exit.oomKilled", "signal", "timeoutMs"],
  },
}).createMachine({
  id: "driverTask",
  context: ({ input }) => ({
    taskId: input.taskId,
    before: input.before,
    stop: null,
    reason: "",
    isRecoverable: false,
    refusals: 0,
  }),
  initial: "deciding",
  on: {
    // T4
    "stop.wanted": {
      actions: {
        type: "rememberStop",
        params: ({ event }) => ({ signal: event.signal, timeoutMs: event.timeoutMs }),
      },
    },
  },
  states: {
    deciding: {
      description: "Choosing the first state from what an earlier agent left. T1",
      always: [
        { guard: "isStarted", target: "awaiting" },
        {
          guard: "isDoubtful",
          target: "doubtful",
          actions: {
            type: "rememberReason",
            params: { reason: "the agent died while the driver was starting the task", isRecoverable: true },
          },
        },
        { target: "pending" },
      ],
    },
    pending: {
      description: "Nothing has been asked of the driver.",
      meta: {
        waitingFor: "the driver to serve",
        wokenBy: { "plugin.ready": "a plugin that serves", "stop.wanted": "a request to stop" },
      },
      entry: [{ type: "announce", params: { kind: "waiting", reason: "the driver is not running" } }, "awaitPlugin"],
      on: {
        "plugin.ready": "starting",
        "stop.wanted": {
          target: "failed",
          actions: {
            type: "rememberReason",
            params: { reason: "stopped before the start", isRecoverable: false },
          },
        },
      },
    },
    starting: {
      description:
        "StartTask is in flight. A stop waits for its outcome, up to a limit, so that nothing starts after it. T1, T5",
      initial: "requested",
      entry: "startTask",
      states: {
        requested: {
          description: "The driver may take its time: it is fetching what the task is made of.",
          meta: {
            waitingFor: "the driver, to start the task",
            wokenBy: {
              "task.started": "its answer",
              "start.refused": "its refusal",
              "call.lost": "the loss of the driver",
            },
          },
          on: {
            "stop.wanted": {
              target: "unwanted",
              actions: {
                type: "rememberStop",
                params: ({ event }) => ({ signal: event.signal, timeoutMs: event.timeoutMs }),
              },
            },
          },
        },
        unwanted: {
          description: "A stop is wanted while the start is in flight; whatever the driver starts will be destroyed.",
          meta: {
            waitingFor: "the driver's answer to the start, to stop the task afterwards",
            wokenBy: {
              "task.started": "its answer",
              "start.refused": "its refusal",
              "call.lost": "the loss of the driver",
              stopTimeout: "the time limit of the stop",
            },
          },
          after: {
            stopTimeout: {
              target: "#driverTask.doubtful",
              actions: {
                type: "rememberReason",
                params: {
                  reason: "stopped while the driver had not yet confirmed the start",
                  isRecoverable: false,
                },
              },
            },
          },
        },
      },
      on: {
        "task.started": [{ guard: "mustStop", target: "live.stopping" }, { target: "live" }],
        "start.refused": {
          target: "failed",
          actions: {
            type: "rememberReason",
            params: ({ event }) => ({ reason: event.reason, isRecoverable: event.isRecoverable }),
          },
        },
        "call.lost": {
          target: "doubtful",
          actions: {
            type: "rememberReason",
            params: ({ event }) => ({
              reason: `the driver died while starting the task: ${event.reason}`,
              isRecoverable: true,
            }),
          },
        },
      },
    },
    doubtful: {
      description: "The outcome of the start is unknown. T1",
      meta: {
        waitingFor: "the driver to serve again, to stop the task if it runs",
        wokenBy: { "plugin.ready": "a plugin that serves" },
      },
      entry: [
        { type: "announce", params: { kind: "waiting", reason: "the driver died; waiting for it to come back" } },
        "awaitPlugin",
      ],
      ignore: ["call.lost", "task.started", "start.refused", "stop.*"],
      on: { "plugin.ready": "clearing" },
    },
    clearing: {
      description: "Destroying whatever exists of the task before it counts as failed. T1",
      meta: {
        waitingFor: "the driver, to destroy whatever exists of the task",
        wokenBy: {
          "task.destroyed": "its answer",
          "destroy.refused": "its refusal",
          "call.lost": "the loss of the driver",
        },
      },
      entry: "destroyTask",
      ignore: ["task.started", "start.refused", "stop.*"],
      on: {
        "task.destroyed": "failed",
        // A driver that does not know the task has nothing to destroy.
        "destroy.refused": "failed",
        "call.lost": "doubtful",
      },
    },
    live: {
      description: "Running; a WaitTask call stays open for the exit.",
      initial: "running",
      tags: ["live"],
      entry: "waitTask",
      on: {
        "task.exited": {
          target: "exited",
          actions: { type: "announce", params: ({ event }) => ({ kind: "exited", exit: event.exit }) },
        },
        "call.lost": "awaiting",
      },
      states: {
        running: {
          description: "Running and meant to go on.",
          meta: {
            waitingFor: "nothing: the task runs",
            wokenBy: {
              "task.exited": "its exit",
              "stop.wanted": "a request to stop",
              "call.lost": "the loss of the driver",
            },
          },
          entry: { type: "announce", params: { kind: "running" } },
          on: {
            "stop.wanted": {
              target: "stopping",
              actions: {
                type: "rememberStop",
                params: ({ event }) => ({ signal: event.signal, timeoutMs: event.timeoutMs }),
              },
            },
          },
        },
        stopping: {
          description: "The driver is stopping the task: signal, the task's kill timeout, kill. T3",
          meta: {
            waitingFor: "the driver, to stop the task",
            wokenBy: {
              "task.exited": "the exit",
              "stop.*": "the driver's answer",
              stopTimeout: "the time limit of the stop",
            },
          },
          entry: [
            { type: "announce", params: { kind: "stopping" } },
            {
              type: "stopTask",
              params: ({ context }) => context.stop ?? { signal: "", timeoutMs: 0 },
            },
          ],
          on: { "stop.done": "stopped", "stop.refused": "killing" },
          after: { stopTimeout: "killing" },
        },
        stopped: {
          description: "The driver reports the task as dead.",
          meta: {
            waitingFor: "the exit result",
            wokenBy: { "task.exited": "the exit", exitGrace: "the end of the time allowed for it" },
          },
          after: { exitGrace: "killing" },
          ignore: ["stop.wanted"],
        },
        killing: {
          description: "Destroying the task by force, again until the driver confirms it. T3",
          meta: {
            waitingFor: "the driver, to destroy the task by force",
            wokenBy: { "task.destroyed": "its answer", killRetry: "the next attempt" },
          },
          entry: "destroyTask",
          ignore: ["destroy.refused", "stop.*"],
          on: {
            "task.destroyed": "gone",
          },
          after: { killRetry: { target: "killing", reenter: true } },
        },
        gone: {
          description: "The task is destroyed. T2",
          meta: {
            waitingFor: "the exit result, which the open WaitTask call may still return",
            wokenBy: { "task.exited": "the exit", exitGrace: "the end of the time allowed for it" },
          },
          after: {
            exitGrace: {
              target: "#driverTask.exited",
              actions: { type: "announce", params: { kind: "exited", exit: unseenExit } },
            },
          },
          ignore: ["stop.*"],
        },
      },
    },
    awaiting: {
      description: "The driver is gone but the task is not. T4",
      meta: { waitingFor: "a driver to serve again", wokenBy: { "plugin.ready": "a plugin that serves" } },
      entry: [
        { type: "announce", params: { kind: "waiting", reason: "the driver is not running; the task goes on" } },
        "awaitPlugin",
      ],
      ignore: ["call.lost", "stop.done", "stop.refused"],
      on: { "plugin.ready": "recovering" },
    },
    recovering: {
      description: "Handing the task's handle to the driver for recovery.",
      meta: {
        waitingFor: "the driver, to recover the task from its handle",
        wokenBy: {
          "task.recovered": "its answer",
          "recover.refused": "its refusal",
          "call.lost": "the loss of the driver",
        },
      },
      entry: "recoverTask",
      on: {
        "task.recovered": [{ guard: "mustStop", target: "live.stopping" }, { target: "live" }],
        "recover.refused": {
          target: "clearing",
          actions: {
            type: "rememberReason",
            params: ({ event }) => ({
              reason: `the driver cannot recover the task: ${event.reason}`,
              isRecoverable: true,
            }),
          },
        },
        "call.lost": "awaiting",
      },
    },
    exited: {
      description: "Finished and reported. The driver keeps its state until the task is destroyed. T2",
      meta: { waitingFor: "the removal of the task", wokenBy: { "destroy.wanted": "the agent's request" } },
      ignore: ["stop.*", "task.*", "destroy.refused", "call.lost"],
      on: {
        "destroy.wanted": "destroying",
      },
    },
    failed: {
      description: "Never ran, or its outcome is unknown; nothing of it runs. T2",
      meta: { waitingFor: "the removal of the task", wokenBy: { "destroy.wanted": "the agent's request" } },
      entry: {
        type: "announce",
        params: ({ context }) => ({ kind: "failed", reason: context.reason, isRecoverable: context.isRecoverable }),
      },
      ignore: ["stop.*", "call.lost", "plugin.ready", "task.started", "start.refused"],
      on: {
        "destroy.wanted": "destroying",
      },
    },
    destroying: {
      description: "Asking the driver to forget the task and free its resources.",
      meta: {
        waitingFor: "the driver, to forget the task and free its resources",
        wokenBy: {
          "task.destroyed": "its answer",
          "destroy.refused": "its refusal",
          "call.lost": "the loss of the driver",
        },
      },
      entry: "destroyTask",
      ignore: ["task.exited", "task.started", "start.refused", "stop.*", "destroy.wanted"],
      on: {
        "task.destroyed": {
          target: "destroyed",
          actions: { type: "announce", params: { kind: "destroyed", reason: "" } },
        },
        "destroy.refused": { target: "refused", actions: "countRefusal" },
        "call.lost": "unreachable",
      },
    },
    refused: {
      description: "The driver refused; asking again after a delay, a limited number of times.",
      meta: { waitingFor: "the next attempt to destroy the task", wokenBy: { destroyRetry: "the end of the delay" } },
      always: {
        guard: "isGivenUp",
        target: "destroyed",
        actions: {
          type: "announce",
          params: {
            kind: "destroyed",
            reason: "the driver refuses to destroy the task: parts of it may remain on the node",
          },
        },
      },
      after: { destroyRetry: "destroying" },
      ignore: ["stop.*", "destroy.*", "call.lost", "task.started", "start.refused"],
    },
    unreachable: {
      description: "The driver died before it answered; it is asked again when it is back.",
      meta: { waitingFor: "the driver to serve again", wokenBy: { "plugin.ready": "a plugin that serves" } },
      entry: "awaitPlugin",
      ignore: ["call.lost", "stop.*", "destroy.wanted", "task.started", "start.refused"],
      on: {
        "plugin.ready": "destroying",
      },
    },
    destroyed: { description: "Nothing of the task is left on this node.", type: "final" },
  },
});
