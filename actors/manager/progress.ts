/**
 * Hosts the progress chart. Its probe is an empty proposal that goes the whole way: over the bus to the leader's ledger, which
 * appends an empty record if the log has accepted none recently (`provenMsMax` in actors/ledger/ledger.ts), and back to this
 * manager's replica. When it fails, or no manager leads, this checks the bus and raises the troubles that it finds.
 */
import { busTroubleKinds, busTroubles } from "../../machines/manager/bus-troubles.ts";
import { flapping, recentChanges } from "../../machines/manager/leader-troubles.ts";
import { progressMachine } from "../../machines/manager/progress.machine.ts";
import { isoOf } from "../../machines/orchestration/jobs/runs.ts";
import { ProposeRequest_Mode, Trouble_Kind } from "../../proto/gen/messages.ts";
import type { BusServers, LeaseBucket, Log } from "../../runtime/ports/index.ts";
import type { Troubles } from "../../runtime/ports/troubles.ts";
import type { Environment, Running } from "../environment.ts";
import { leaseKey } from "../ledger/leadership.ts";

/**
 * Often enough that a stuck manager is detected before its nodes are (their grace period is 15 s), and rare enough to cost
 * nothing.
 */
const probeIntervalMs = 3_000;
const probeTimeoutMs = 2_500;
/** Two probes in a row may be lost. */
const staleMs = 3 * (probeIntervalMs + probeTimeoutMs);

interface ProgressParts {
  readonly log: Pick<Log, "bounds">;
  readonly leases: Pick<LeaseBucket, "get">;
  readonly troubles: Troubles;
  /** Epoch of the leader; null when unknown. */
  leaderEpoch(): number | null;
  /** Absent when there is nothing to count. */
  servers?(): Promise<BusServers>;
}

interface StoreAnswers {
  readonly log: boolean;
  readonly leases: boolean;
}

interface Failed {
  readonly reason: string;
  /** Null when unknown. */
  readonly answers: StoreAnswers | null;
}

export interface Progress extends Running {
  /** Why no probe has succeeded recently; null while probes succeed. */
  stuckBecause(): string | null;
  /** Whether the newest probe succeeded: the basis of verdicts on nodes, for which `stuckBecause` is too lenient. */
  isCurrent(): boolean;
  /** Calls back when probes have failed for too long, and with the first one that then succeeds. */
  onChange(listener: (isStuck: boolean) => void): void;
  /** Milliseconds since the last successful probe; -1: none yet. */
  ageMs(): number;
}

export function startProgress(env: Environment, parts: ProgressParts): Progress {
  const { bus, clock, proposer, store } = env;
  const { leases, log, troubles } = parts;
  let leaderlessSince: { readonly at: number; readonly time: string } | null = null;
  let lastEpoch: number | null = null;
  /** When new leaders took over, on the monotonic clock. */
  let changes: readonly number[] = [];
  let isStopped = false;
  const listeners: ((isStuck: boolean) => void)[] = [];

  /** Deferred out of the transition. */
  const report = (isStuck: boolean): void =>
    clock.soon(() => {
      for (const listener of listeners) if (!isStopped) listener(isStuck);
    });

  /** Which parts of the log's store answer; null when the link was lost meanwhile, so that this is unknown. */
  const storeAnswers = async (): Promise<StoreAnswers | null> => {
    let isLost = !bus.isUp();
    const watching = bus.onLink((isUp) => (isLost ||= !isUp));
    const [bounds, lease] = await Promise.all([log.bounds(probeTimeoutMs), leases.get(leaseKey)]);
    watching.unsubscribe();
    return isLost ? null : { log: bounds !== null, leases: lease.kind !== "unknown" };
  };

  const probe = async (): Promise<Failed | null> => {
    const answer = await proposer.propose({
      operations: [],
      mode: ProposeRequest_Mode.ATOMIC,
      timeoutMs: probeTimeoutMs,
      isProbe: true,
    });
    if (answer.kind !== "committed") return { reason: answer.message, answers: await storeAnswers() };
    const bounds = await log.bounds(probeTimeoutMs);
    if (bounds === null) return { reason: "the log does not answer", answers: await storeAnswers() };
    // Records appended during the answer are not a lag: they must be here one check later.
    if (store.version >= bounds.last) return null;
    await new Promise<void>((resolve) => clock.setTimeout(resolve, probeIntervalMs / 3));
    if (store.version >= bounds.last) return null;
    return {
      reason: `this manager's replica is at version ${store.version}, the log at ${bounds.last}`,
      answers: null,
    };
  };

  const lookForFlaps = (epoch: number | null): void => {
    const at = clock.monotonic();
    if (epoch !== null && lastEpoch !== null && epoch !== lastEpoch) changes = [...changes, at];
    lastEpoch = epoch ?? lastEpoch;
    changes = recentChanges(changes, at);
    const sentence = flapping(changes);
    if (sentence === null) troubles.clear(Trouble_Kind.LEADER_FLAPS);
    else troubles.raise({ kind: Trouble_Kind.LEADER_FLAPS, sentence, blocking: false });
  };

  /** Raises the current troubles of the bus and clears those that are over. */
  const look = async (failed: Failed | null): Promise<void> => {
    const epoch = parts.leaderEpoch();
    lookForFlaps(epoch);
    if (epoch !== null) leaderlessSince = null;
    else leaderlessSince ??= { at: clock.monotonic(), time: isoOf(clock.now()) };
    const isFine = failed === null && leaderlessSince === null && bus.isUp();
    const servers = isFine ? { named: 0, answering: 0 } : ((await parts.servers?.()) ?? { named: 0, answering: 0 });
    if (isStopped) return;
    const found = busTroubles({
      isUp: bus.isUp(),
      ...servers,
      logAnswers: failed?.answers?.log ?? true,
      leasesAnswer: failed?.answers?.leases ?? true,
      leaderlessMs: leaderlessSince === null ? 0 : clock.monotonic() - leaderlessSince.at,
      leaderlessSince: leaderlessSince?.time ?? "",
    });
    for (const { kind, sentence } of found) troubles.raise({ kind, sentence, blocking: true });
    for (const kind of busTroubleKinds) if (!found.some((trouble) => trouble.kind === kind)) troubles.clear(kind);
    if (failed === null) troubles.clear(Trouble_Kind.NO_PROGRESS);
  };

  const hosted = env.host.start(
    progressMachine,
    `progress/${env.managerId}`,
    { intervalMs: probeIntervalMs, staleMs },
    {
      effects: {
        probe: () => {
          void probe().then(async (failed) => {
            await look(failed);
            if (isStopped) return;
            const at = clock.monotonic();
            hosted.send(
              failed === null ? { type: "probe.answered", at } : { type: "probe.failed", at, reason: failed.reason },
            );
          });
        },
        reportStuck: ({ reason }) => {
          env.telemetry.log.error({ reason }, "this manager makes no progress");
          const sentence = `nothing has been written for ${staleMs / 1_000} s: ${reason}`;
          troubles.raise({ kind: Trouble_Kind.NO_PROGRESS, sentence, blocking: true });
          report(true);
        },
        reportProgress: () => report(false),
      },
    },
  );
  return {
    stuckBecause: () => {
      const snapshot = hosted.snapshot;
      return snapshot.hasTag("healthy") ? null : snapshot.context.reason;
    },
    isCurrent: () => {
      const snapshot = hosted.snapshot;
      return snapshot.hasTag("healthy") && snapshot.context.reason === "";
    },
    onChange: (listener) => listeners.push(listener),
    ageMs: () => {
      const { answeredAt } = hosted.snapshot.context;
      return answeredAt < 0 ? -1 : clock.monotonic() - answeredAt;
    },
    stop: () => {
      isStopped = true;
      hosted.stop();
    },
  };
}
