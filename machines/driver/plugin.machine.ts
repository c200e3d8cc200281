/**
 * One task-driver plugin of a node: a process beside the agent, kept running.
 *
 *   absent ──▶ reattaching | launching ──▶ handshaking ──▶ configuring ──▶ running { word, pulse, age }
 *                   ▲                                                         │
 *                   └───────────── restarting { ending, waiting } ◀───────────┘           stopping ──▶ stopped
 *
 * D1: at most one process at a time: another is started only when the previous one has exited.
 * D2: tasks are started on a plugin only while it is healthy; running tasks are managed whenever it is running.
 * D3: a plugin that an earlier agent process started is found again, not started a second time, and gets no second
 *     configuration.
 * D4: the wait before a restart grows with each failure, and shrinks only after the plugin has run for `heldMs`.
 */
import { assign } from "xstate";
import { backoffMs } from "../../lib/backoff.ts";
import { chart, effect } from "../chart.ts";

/** Times in milliseconds. */
export const driverPluginTimes = {
  /** Nomad's back-off (reference §6.5): first wait and maximum. */
  backoff: { stepMs: 5_000, msMax: 120_000 },
  /** A plugin that has run this long is stable: the next failure counts as the first. */
  heldMs: 60_000,
  /** Four calls of up to 30 s each. */
  configureTimeoutMs: 120_000,
  /** Wait before an ended fingerprint stream is opened again: a stream that keeps ending must not cause a busy loop. */
  fingerprintRetryMs: 5_000,
  /** Nomad waits this long for a driver's first fingerprint at boot. */
  firstFingerprintMs: 50_000,
  /** Between two health checks; timeout of one; wait before a missed one is repeated. */
  pulseMs: 30_000,
  pulseTimeoutMs: 10_000,
  pulseRetryMs: 5_000,
} as const;

type DriverHealth = "undetected" | "unhealthy" | "healthy";

export type DriverPluginEvent =
  | { readonly type: "plugin.wanted" }
  | { readonly type: "plugin.unwanted" }
  | { readonly type: "process.spawned"; readonly pid: number }
  /** Handshake and connection are complete. */
  | { readonly type: "plugin.connected"; readonly pid: number }
  | { readonly type: "launch.failed"; readonly reason: string }
  | { readonly type: "configure.done" }
  | { readonly type: "configure.failed"; readonly reason: string }
  | { readonly type: "fingerprint.received"; readonly health: DriverHealth; readonly description: string }
  | { readonly type: "fingerprint.lost"; readonly reason: string }
  /** The health check that every plugin has: it only shows that the plugin answers. */
  | { readonly type: "health.answered" }
  | { readonly type: "health.missed" }
  /** The process exited without being asked to. */
  | { readonly type: "process.exited"; readonly how: string }
  /** The process that was being stopped has exited. */
  | { readonly type: "process.ended" };

/** The plugin's state as others see it. */
export interface DriverPluginNews {
  readonly state: "starting" | "awaiting" | DriverHealth | "restarting" | "stopped";
  /** Of the health, or of the failure; for operators. */
  readonly reason: string;
}

interface DriverPluginContext {
  readonly name: string;
  /** An earlier agent process recorded where the plugin runs. */
  readonly isKnown: boolean;
  /** 0 if there is no process. */
  readonly pid: number;
  /** Failures since the plugin was last stable. */
  readonly failures: number;
  readonly reason: string;
}

interface DriverPluginInput {
  readonly name: string;
  readonly isKnown: boolean;
}

export const driverPluginMachine = chart({
  types: { context: {} as DriverPluginContext, events: {} as DriverPluginEvent, input: {} as DriverPluginInput },
  effects: {
    /** Answered by `plugin.connected` or `launch.failed`. */
    reattach: effect(),
    /** Answered by `process.spawned`, then `plugin.connected` or `launch.failed`. */
    launch: effect(),
    /**
     * Asks for the plugin's identity and, unless it was found again, sends its configuration; answered by `configure.done` or
     * `configure.failed`.
     */
    configure: effect<{ isKnown: boolean }>(),
    /** Answered repeatedly by `fingerprint.received`, and by `fingerprint.lost`. */
    watchFingerprint: effect(),
    /** Opens the stream of task events. */
    watchEvents: effect(),
    /** Answered by `health.answered` or `health.missed`. */
    checkHealth: effect<{ timeoutMs: number }>(),
    endStreams: effect(),
    /** Stops the process in any stage; answered by `process.ended`. */
    endProcess: effect(),
    announce: effect<DriverPluginNews>(),
  },
  actions: {
    rememberPid: assign((_, { pid }: { pid: number }) => ({ pid })),
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
    forgetKnown: assign({ isKnown: false }),
    forgetProcess: assign({ pid: 0, isKnown: false }),
    forgetFailures: assign({ failures: 0 }),
    countFailure: assign({ failures: ({ context }) => context.failures + 1 }),
  },
  guards: {
    isKnown: ({ context }) => context.isKnown,
    /** Drivers repeat the same fingerprint. */
    isSame: (
      { context },
      { health, description, now }: { health: DriverHealth; description: string; now: DriverHealth },
    ) => health === now && description === context.reason,
    hasHealth: (_, { is, wanted }: { is: DriverHealth; wanted: DriverHealth }) => is === wanted,
  },
  delays: {
    held: driverPluginTimes.heldMs,
    configureTimeout: driverPluginTimes.configureTimeoutMs,
    fingerprintRetry: driverPluginTimes.fingerprintRetryMs,
    firstFingerprint: driverPluginTimes.firstFingerprintMs,
    pulse: driverPluginTimes.pulseMs,
    pulseRetry: driverPluginTimes.pulseRetryMs,
  },
  drawnDelays: { backoff: ({ context }) => backoffMs(driverPluginTimes.backoff, context.failures) },
  shows: {
    context: ["name", "isKnown", "pid", "failures", "reason.$same"],
    events: ["pid", "health", "description.$same", "reason.$same"],
  },
}).createMachine({
  id: "driverPlugin",
  context: ({ input }) => ({
    name: input.name,
    isKnown: input.isKnown,
    pid: 0,
    failures: 0,
    reason: "",
  }),
  initial: "absent",
  states: {
    absent: {
      description: "Not started yet.",
      meta: {
        waitingFor: "a task or agent that wants the driver",
        wokenBy: { "plugin.wanted": "the start of the agent" },
      },
      on: { "plugin.wanted": [{ guard: "isKnown", target: "reattaching" }, { target: "launching" }] },
    },
    reattaching: {
      description: "Looking for the process that an earlier agent started. D3",
      meta: {
        waitingFor: "the process that an earlier agent started",
        wokenBy: { "plugin.connected": "its connection", "launch.failed": "its absence" },
      },
      entry: [
        { type: "announce", params: { state: "starting", reason: "looking for the running plugin" } },
        "reattach",
      ],
      on: {
        "plugin.connected": {
          target: "configuring",
          actions: { type: "rememberPid", params: ({ event }) => ({ pid: event.pid }) },
        },
        "launch.failed": { target: "launching", actions: "forgetKnown" },
        "plugin.unwanted": "stopping",
      },
    },
    launching: {
      description: "Starting the executable. D1",
      meta: {
        waitingFor: "the executable to start",
        wokenBy: { "process.spawned": "the new process", "launch.failed": "its failure" },
      },
      entry: [{ type: "announce", params: ({ context }) => ({ state: "starting", reason: context.reason }) }, "launch"],
      on: {
        "process.spawned": {
          target: "handshaking",
          actions: { type: "rememberPid", params: ({ event }) => ({ pid: event.pid }) },
        },
        "launch.failed": {
          target: "restarting.waiting",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
        "plugin.unwanted": "stopping",
      },
    },
    handshaking: {
      description: "The process runs but does not serve yet.",
      meta: {
        waitingFor: "the plugin's handshake, connection and health check",
        wokenBy: { "plugin.connected": "its connection", "launch.failed": "the launch timeout" },
      },
      on: {
        "plugin.connected": {
          target: "configuring",
          actions: { type: "rememberPid", params: ({ event }) => ({ pid: event.pid }) },
        },
        "launch.failed": {
          target: "restarting.waiting",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
        "plugin.unwanted": "stopping",
      },
    },
    configuring: {
      description: "Asking for the plugin's identity, configuration schema and capabilities. D3",
      meta: {
        waitingFor: "the plugin's identity, configuration schema and capabilities",
        wokenBy: {
          "configure.*": "its answer",
          "process.exited": "its exit",
          configureTimeout: "the time limit of the answer",
        },
      },
      entry: { type: "configure", params: ({ context }) => ({ isKnown: context.isKnown }) },
      on: {
        "configure.done": "running",
        "configure.failed": {
          target: "restarting.ending",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
        "process.exited": {
          target: "restarting.waiting",
          actions: {
            type: "rememberReason",
            params: ({ event }) => ({ reason: `it exited during configuration: ${event.how}` }),
          },
        },
        "plugin.unwanted": "stopping",
      },
      after: {
        configureTimeout: {
          target: "restarting.ending",
          actions: { type: "rememberReason", params: { reason: "it did not take its configuration in time" } },
        },
      },
    },
    running: {
      description: "Serving. The driver's own health decides whether it gets new tasks. D2",
      tags: ["serving"],
      type: "parallel",
      entry: ["watchFingerprint", "watchEvents"],
      exit: "endStreams",
      on: {
        "fingerprint.received": [
          {
            guard: { type: "hasHealth", params: ({ event }) => ({ is: event.health, wanted: "healthy" as const }) },
            target: ".report.healthy",
            actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.description }) },
          },
          {
            guard: { type: "hasHealth", params: ({ event }) => ({ is: event.health, wanted: "unhealthy" as const }) },
            target: ".report.unhealthy",
            actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.description }) },
          },
          {
            target: ".report.undetected",
            actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.description }) },
          },
        ],
        "fingerprint.lost": {
          target: ".report.unreported",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
        "process.exited": {
          target: "restarting.waiting",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: `it ended: ${event.how}` }) },
        },
        "plugin.unwanted": "stopping",
      },
      states: {
        report: {
          description: "The driver's own health report.",
          initial: "awaiting",
          states: {
            awaiting: {
              description: "The plugin serves; the health of its driver is unknown.",
              meta: {
                waitingFor: "the driver's first fingerprint",
                wokenBy: { "fingerprint.received": "the fingerprint", firstFingerprint: "its time limit" },
              },
              entry: { type: "announce", params: { state: "awaiting", reason: "no fingerprint yet" } },
              after: {
                firstFingerprint: {
                  target: "#driverPlugin.restarting.ending",
                  actions: { type: "rememberReason", params: { reason: "its first fingerprint did not come in time" } },
                },
              },
            },
            healthy: {
              on: {
                "fingerprint.received": {
                  guard: {
                    type: "isSame",
                    params: ({ event }) => ({
                      health: event.health,
                      description: event.description,
                      now: "healthy" as const,
                    }),
                  },
                },
              },
              description: "Healthy: accepts tasks. D2",
              meta: {
                waitingFor: "nothing: the driver accepts tasks",
                wokenBy: {
                  "fingerprint.received": "another health report",
                  "fingerprint.lost": "the end of the reports",
                },
              },
              tags: ["healthy"],
              entry: { type: "announce", params: ({ context }) => ({ state: "healthy", reason: context.reason }) },
            },
            unhealthy: {
              on: {
                "fingerprint.received": {
                  guard: {
                    type: "isSame",
                    params: ({ event }) => ({
                      health: event.health,
                      description: event.description,
                      now: "unhealthy" as const,
                    }),
                  },
                },
              },
              description: "Unhealthy: accepts no new tasks; running ones go on.",
              meta: {
                waitingFor: "the driver to be healthy",
                wokenBy: {
                  "fingerprint.received": "its next health report",
                  "fingerprint.lost": "the end of the reports",
                },
              },
              entry: { type: "announce", params: ({ context }) => ({ state: "unhealthy", reason: context.reason }) },
            },
            undetected: {
              on: {
                "fingerprint.received": {
                  guard: {
                    type: "isSame",
                    params: ({ event }) => ({
                      health: event.health,
                      description: event.description,
                      now: "undetected" as const,
                    }),
                  },
                },
              },
              description: "Undetected: what the driver needs is not on this machine.",
              meta: {
                waitingFor: "this machine to get the things that the driver needs",
                wokenBy: {
                  "fingerprint.received": "its next health report",
                  "fingerprint.lost": "the end of the reports",
                },
              },
              entry: { type: "announce", params: ({ context }) => ({ state: "undetected", reason: context.reason }) },
            },
            unreported: {
              description: "The fingerprint stream ended.",
              meta: {
                waitingFor: "the next attempt to read the driver's fingerprints",
                wokenBy: { fingerprintRetry: "the end of the delay" },
              },
              entry: {
                type: "announce",
                params: ({ context }) => ({ state: "unhealthy", reason: `failed to fingerprint: ${context.reason}` }),
              },
              after: { fingerprintRetry: { target: "unreported", reenter: true, actions: "watchFingerprint" } },
            },
          },
        },
        age: {
          description: "How long this process has been up. D4",
          initial: "young",
          states: {
            young: {
              description: "Recently started: another failure counts as one more in a row.",
              meta: {
                waitingFor: "the process to prove stable",
                wokenBy: { held: "the end of that time", "process.exited": "its exit" },
              },
              after: { held: "proven" },
            },
            proven: {
              description: "Stable: a failure counts as the first.",
              meta: { waitingFor: "nothing: the process is stable", wokenBy: { "process.exited": "its exit" } },
              entry: "forgetFailures",
            },
          },
        },
        pulse: {
          description: "Whether the plugin answers calls; a hung plugin does not report that itself.",
          initial: "resting",
          states: {
            resting: {
              description: "The plugin answered the last probe.",
              meta: { waitingFor: "the next probe", wokenBy: { pulse: "the end of the interval" } },
              after: { pulse: "probing" },
            },
            probing: {
              description: "Probing the plugin.",
              meta: {
                waitingFor: "the plugin's answer to a probe",
                wokenBy: { "health.*": "the outcome of the probe" },
              },
              entry: { type: "checkHealth", params: { timeoutMs: driverPluginTimes.pulseTimeoutMs } },
              on: { "health.answered": "resting", "health.missed": "missed" },
            },
            missed: {
              description: "The plugin missed one probe.",
              meta: { waitingFor: "the last probe", wokenBy: { pulseRetry: "the end of the delay" } },
              after: { pulseRetry: "probingAgain" },
            },
            probingAgain: {
              description: "Probing the plugin for the last time.",
              meta: {
                waitingFor: "the plugin's answer to the last probe",
                wokenBy: { "health.*": "the outcome of the probe" },
              },
              entry: { type: "checkHealth", params: { timeoutMs: driverPluginTimes.pulseTimeoutMs } },
              on: {
                "health.answered": "resting",
                "health.missed": {
                  target: "#driverPlugin.restarting.ending",
                  actions: { type: "rememberReason", params: { reason: "it hangs: it does not answer" } },
                },
              },
            },
          },
        },
      },
    },
    restarting: {
      description: "Failed; another process will be started. D1, D4",
      initial: "waiting",
      entry: [
        "countFailure",
        { type: "announce", params: ({ context }) => ({ state: "restarting", reason: context.reason }) },
      ],
      states: {
        ending: {
          description: "Killing the rest of the failed process.",
          meta: { waitingFor: "the failed process to end", wokenBy: { "process.ended": "its end" } },
          entry: "endProcess",
          ignore: [
            // The exit report, and answers to operations in progress.
            "process.exited",
            "configure.*",
            "fingerprint.*",
            "health.*",
          ],
          on: {
            "process.ended": "waiting",
            "plugin.unwanted": "#driverPlugin.stopping.ending",
          },
        },
        waiting: {
          description: "No process runs.",
          meta: {
            waitingFor: "the next start of the plugin",
            wokenBy: { backoff: "the end of the delay", "plugin.unwanted": "the end of the agent" },
          },
          entry: "forgetProcess",
          ignore: ["configure.*", "fingerprint.*", "health.*"],
          on: { "plugin.unwanted": "#driverPlugin.stopped" },
          after: { backoff: "#driverPlugin.launching" },
        },
      },
    },
    stopping: {
      description: "No longer wanted: stopping, while its tasks go on.",
      initial: "signalling",
      ignore: [
        // Answers to operations in progress.
        "process.*",
        "plugin.*",
        "launch.*",
        "configure.*",
        "fingerprint.*",
        "health.*",
      ],
      on: {
        "process.ended": "stopped",
      },
      states: {
        signalling: { description: "Telling the process to stop.", entry: "endProcess", always: "ending" },
        ending: {
          description: "The process was told to stop.",
          meta: { waitingFor: "the process to end", wokenBy: { "process.ended": "its end" } },
        },
      },
    },
    stopped: {
      description: "No process is left.",
      meta: {
        waitingFor: "a task or agent that wants the driver",
        wokenBy: { "plugin.wanted": "the start of the agent" },
      },
      entry: ["forgetProcess", { type: "announce", params: { state: "stopped", reason: "not wanted" } }],
      ignore: ["process.exited"],
      on: { "plugin.wanted": "launching" },
    },
  },
});
