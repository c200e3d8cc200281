/** Hosts the progress chart: its probe asks the ledger for nothing and the log for its end, and compares the replica with it. */
import { ProposeRequest_Mode } from "../../proto/gen/messages.ts";
import { progressMachine } from "../../machines/manager/progress.ts";
import type { Log } from "../../runtime/ports.ts";
import type { Environment, Running } from "../environment.ts";

/** Often enough that a stuck manager is seen before its nodes are (their grace is 15 s), rare enough to cost nothing. */
const probeIntervalMs = 3_000;
const probeTimeoutMs = 2_500;
/** Two probes in a row may be lost. */
const staleMs = 3 * (probeIntervalMs + probeTimeoutMs);

export interface Progress extends Running {
  /** Why nothing has come back lately; null while it does. */
  stuckBecause(): string | null;
  /** Milliseconds since a probe last came back; -1: none has. */
  ageMs(): number;
}

export function startProgress(env: Environment, log: Log): Progress {
  const probe = async (): Promise<string | null> => {
    const answer = await env.proposer.propose({
      operations: [],
      mode: ProposeRequest_Mode.ATOMIC,
      timeoutMs: probeTimeoutMs,
    });
    if (answer.kind !== "committed") return answer.message;
    const bounds = await log.bounds(probeTimeoutMs);
    if (bounds === null) return "the log does not answer";
    // What was appended while the answer travelled is no lag: one look later it must be here.
    if (env.store.version >= bounds.last) return null;
    await new Promise<void>((resolve) => env.clock.setTimeout(resolve, probeIntervalMs / 3));
    return env.store.version >= bounds.last
      ? null
      : `the replica is at ${env.store.version}, the log at ${bounds.last}`;
  };
  const hosted = env.host.start(
    progressMachine.provide({
      actions: {
        probe: () => {
          void probe().then((reason) => {
            const at = env.clock.now();
            hosted.actor.send(reason === null ? { type: "probe.answered", at } : { type: "probe.failed", at, reason });
          });
        },
        reportStuck: (_, { reason }) => env.telemetry.log.error({ reason }, "this manager gets nothing done"),
      },
    }),
    `progress/${env.managerId}`,
    { intervalMs: probeIntervalMs, staleMs },
  );
  return {
    stuckBecause: () => {
      const snapshot = hosted.actor.getSnapshot();
      return snapshot.hasTag("healthy") ? null : snapshot.context.reason;
    },
    ageMs: () => {
      const { answeredAt } = hosted.actor.getSnapshot().context;
      return answeredAt < 0 ? -1 : env.clock.now() - answeredAt;
    },
    stop: hosted.stop,
  };
}
