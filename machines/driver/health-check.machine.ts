/**
 * Checks the health of a running task at intervals, by Docker's rules for containers.
 *
 *   starting { waiting ⇄ checking ──▶ evaluating } ──▶ healthy { waiting ⇄ checking ──▶ evaluating } ──▶ unhealthy
 *                                          └─────────────────────────────────────────────────────────▲
 *
 * H1: one check at a time; the next one starts an interval after the end of the previous one.
 * H2: `retries` failures in a row make the task unhealthy, whether or not it was ever healthy.
 * H3: a check that began within the start period, while the task was never healthy, does not count as a failure.
 * H4: a check without a result, because the driver did not serve, counts neither way.
 * H5: unhealthy is final: the task is then stopped.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";
import type { HealthTimes } from "./health-spec.ts";

export type HealthCheckEvent =
  | { readonly type: "check.passed" }
  | { readonly type: "check.failed"; readonly reason: string }
  /** H4 */
  | { readonly type: "check.skipped" };

export type HealthNews =
  /** For the first time. */
  | { readonly kind: "healthy" }
  /** Never healthy so far; reported less and less often. */
  | { readonly kind: "failing"; readonly reason: string }
  | { readonly kind: "unhealthy"; readonly reason: string };

interface HealthCheckInput {
  readonly taskId: string;
  readonly times: HealthTimes;
  /** A check passed in an earlier run of the agent. */
  readonly wasHealthy: boolean;
}

interface HealthCheckContext extends HealthCheckInput {
  readonly isStartPeriodOver: boolean;
  /** Whether the current check may count as a failure. H3 */
  readonly isCounted: boolean;
  /** In a row, and counted. H2 */
  readonly failures: number;
  /** Checks that failed while the task was never healthy. */
  readonly misses: number;
  /** Reason of the newest failure. */
  readonly reason: string;
}

function secondsText(ms: number): string {
  return ms % 1_000 === 0 ? `${ms / 1_000} s` : `${ms} ms`;
}

function verdict({ failures, reason }: HealthCheckContext): string {
  return failures === 1 ? `its check failed: ${reason}` : `${failures} checks failed in a row, the last: ${reason}`;
}

/** Whether another miss is reported: the first, second, fourth, …, because each is a write to the cluster's log. */
function isReportedMiss(misses: number): boolean {
  return (misses & (misses - 1)) === 0;
}

export const healthCheckMachine = chart({
  types: { context: {} as HealthCheckContext, events: {} as HealthCheckEvent, input: {} as HealthCheckInput },
  effects: {
    /** Answered by `check.passed`, `check.failed` or `check.skipped`. */
    check: effect(),
    /** Cancels the current check; its answer is ignored. */
    cancelCheck: effect(),
    announce: effect<HealthNews>(),
  },
  actions: {
    endStartPeriod: assign({ isStartPeriodOver: true }),
    // H3
    noteBeginning: assign({ isCounted: ({ context }) => context.isStartPeriodOver }),
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
    countMiss: assign({
      misses: ({ context }) => context.misses + 1,
      failures: ({ context }) => context.failures + (context.isCounted ? 1 : 0),
    }),
    countFailure: assign({ failures: ({ context }) => context.failures + 1 }),
    forgetFailures: assign({ failures: 0, reason: "" }),
  },
  guards: {
    wasHealthy: ({ context }) => context.wasHealthy,
    isUnhealthy: ({ context }) => context.failures >= context.times.retries,
    isMissReported: ({ context }) => isReportedMiss(context.misses),
  },
  delays: {
    startPeriod: ({ context }) => context.times.startPeriodMs,
    firstPause: ({ context }) => (context.isStartPeriodOver ? context.times.intervalMs : context.times.startIntervalMs),
    pause: ({ context }) => context.times.intervalMs,
    timeout: ({ context }) => context.times.timeoutMs,
  },
  shows: { context: ["taskId", "times", "wasHealthy", "isStartPeriodOver", "isCounted", "failures", "misses"] },
}).createMachine({
  id: "healthCheck",
  context: ({ input }) => ({
    taskId: input.taskId,
    times: input.times,
    wasHealthy: input.wasHealthy,
    isStartPeriodOver: input.times.startPeriodMs === 0,
    isCounted: true,
    failures: 0,
    misses: 0,
    reason: "",
  }),
  initial: "deciding",
  states: {
    deciding: {
      description: "Choosing the first state from what an earlier agent recorded.",
      always: [{ guard: "wasHealthy", target: "healthy" }, { target: "starting" }],
    },
    starting: {
      description: "Never healthy so far.",
      initial: "waiting",
      after: { startPeriod: { actions: "endStartPeriod" } },
      states: {
        waiting: {
          description: "No check is running; checks come sooner during the start period. H1",
          meta: {
            waitingFor: "the next check",
            wokenBy: { firstPause: "the end of the interval" },
          },
          after: { firstPause: "checking" },
        },
        checking: {
          description: "A check is running.",
          meta: {
            waitingFor: "the outcome of the running check",
            wokenBy: { "check.*": "the outcome", timeout: "the time limit of the check" },
          },
          entry: ["noteBeginning", "check"],
          on: {
            "check.passed": {
              target: "#healthCheck.healthy",
              actions: ["forgetFailures", { type: "announce", params: { kind: "healthy" } }],
            },
            "check.failed": {
              target: "evaluating",
              actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
            },
            "check.skipped": "waiting",
          },
          after: {
            timeout: {
              target: "evaluating",
              actions: [
                "cancelCheck",
                {
                  type: "rememberReason",
                  params: ({ context }) => ({ reason: `took longer than ${secondsText(context.times.timeoutMs)}` }),
                },
              ],
            },
          },
        },
        evaluating: {
          description: "A failure counts unless its check began during the start period. H2, H3",
          entry: "countMiss",
          always: [
            { guard: "isUnhealthy", target: "#healthCheck.unhealthy" },
            {
              guard: "isMissReported",
              target: "waiting",
              actions: { type: "announce", params: ({ context }) => ({ kind: "failing", reason: context.reason }) },
            },
            { target: "waiting" },
          ],
        },
      },
    },
    healthy: {
      description: "The latest counted check passed, or too few have failed since.",
      initial: "waiting",
      states: {
        waiting: {
          description: "No check is running. H1",
          meta: { waitingFor: "the next check", wokenBy: { pause: "the end of the interval" } },
          after: { pause: "checking" },
        },
        checking: {
          description: "A check is running.",
          meta: {
            waitingFor: "the outcome of the running check",
            wokenBy: { "check.*": "the outcome", timeout: "the time limit of the check" },
          },
          entry: "check",
          on: {
            "check.passed": { target: "waiting", actions: "forgetFailures" },
            "check.failed": {
              target: "evaluating",
              actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
            },
            "check.skipped": "waiting",
          },
          after: {
            timeout: {
              target: "evaluating",
              actions: [
                "cancelCheck",
                {
                  type: "rememberReason",
                  params: ({ context }) => ({ reason: `took longer than ${secondsText(context.times.timeoutMs)}` }),
                },
              ],
            },
          },
        },
        evaluating: {
          description: "Counting failures. H2",
          entry: "countFailure",
          always: [{ guard: "isUnhealthy", target: "#healthCheck.unhealthy" }, { target: "waiting" }],
        },
      },
    },
    unhealthy: {
      description: "Reported as unhealthy; no more checks. H5",
      type: "final",
      entry: { type: "announce", params: ({ context }) => ({ kind: "unhealthy", reason: verdict(context) }) },
    },
  },
});
