/**
 * Leadership of this manager: connects the lease, the ledger, the follower of the log and the leader's duties.
 *
 * Start order: lease taken → replica at the log's end → barrier in the log → duties. Stop order: duties → ledger → lease. So
 * nothing reserved to the leader happens without both the lease and the log's consent.
 */
import { leaseMachine } from "../../machines/ledger/lease.machine.ts";
import { isKept, type LeaseSight } from "../../machines/manager/leader-troubles.ts";
import type { BatchLimits } from "../../machines/ledger/batch.ts";
import { LeaderBeat, Lease } from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import type { Blobs, LeaseBucket, Log, TimerHandle } from "../../runtime/ports/index.ts";
import { startFollowing, type Follower } from "../../runtime/store/follow.ts";
import type { MarkKeeper } from "../../runtime/store/log-mark.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import { snapshotDefaults, startSnapshotWriter, type SnapshotOptions } from "../../runtime/store/snapshots.ts";
import type { Proposer } from "../../runtime/store/store.ts";
import { sleep } from "../../runtime/store/wait.ts";
import * as subjects from "../../runtime/subjects.ts";
import { busMessage } from "../bus-message.ts";
import type { Troubles } from "../../runtime/ports/troubles.ts";
import type { Environment, Running } from "../environment.ts";
import { startLedger, type Ledger } from "./ledger.ts";
import { startProposer } from "./proposer.ts";

/** Key in the bucket of leases. */
export const leaseKey = "leader";
/** Interval of LeaderBeats, in milliseconds. */
const beatIntervalMs = 1_000;
/** Silence after which a leader is no longer reported, in milliseconds: three beats and their delay. */
const leaderSilenceMs = 3_500;

export interface LeadershipParts {
  readonly leases: LeaseBucket;
  readonly log: Log;
  /** The same object as `env.store`. */
  readonly replica: Replica;
  readonly blobs: Blobs;
  /** Starts the leader's duties; they are stopped at once when this manager stops leading. */
  startDuties(epoch: number): Running;
  /**
   * Whether this manager may lead, according to the replica at the log's end; true when absent. One that may not writes
   * nothing.
   */
  mayLead?(): boolean;
  /** The log does not match the replica: the process must exit. */
  onBroken(error: Error): void;
  /** The mark of the last record that this manager has seen; absent when none is kept. */
  readonly mark?: MarkKeeper | undefined;
  /** Accepts the log even if it lacks records that the mark covers. */
  readonly acceptsLogLoss?: boolean | undefined;
  /** Where troubles of the log are raised. */
  readonly troubles?: Troubles | undefined;
  /** Why writes fail now, as far as this process knows; null when it knows no cause. */
  cause?(): string | null;
  /** See ProposerParts. */
  fullCause?(): string | null;
  /** Called with the round-trip time of each write of the lease. */
  onLeaseAnswered?(roundTripMs: number): void;
  /** Called when another manager has renewed its lease between two checks: the link is fast enough for a leader. */
  onLeaseKept?(): void;
  readonly snapshots?: Partial<SnapshotOptions>;
  readonly batchLimits?: Partial<BatchLimits>;
  /** See ProposerParts. */
  readonly encodesAlways?: boolean;
}

export interface Leadership extends Running {
  isLeading(): boolean;
  /**
   * Whether the lease of this term lasts until now, by this process's clock. A process that was stopped for longer handles what was
   * due before the end of its term, and only then learns of it: whatever the log does not reject must ask first.
   */
  isTermCurrent(): boolean;
  /** The leader as far as this process knows; null when none was heard recently. */
  leader(): { readonly managerId: string; readonly epoch: number } | null;
  readonly proposer: Proposer;
  readonly follower: Follower;
  /**
   * Ends this term, but not the candidacy: for duties that cannot be done now. A manager, maybe this one, soon leads again in a
   * new epoch.
   */
  stepDown(): void;
  /**
   * Ends duties, finishes pending writes and releases the lease; this manager does not lead again. Takes at most the lease's
   * TTL.
   */
  release(): Promise<void>;
}

export function startLeadership(env: Omit<Environment, "proposer" | "times">, parts: LeadershipParts): Leadership {
  const { clock, bus, telemetry, managerId } = env;
  const { leases, log, replica, blobs } = parts;
  const random = env.random.fork("leadership");
  const instance = newId(random);
  const leaseValue = Lease.encode(Lease.create({ managerId, instance }));
  const leadingGauge = telemetry.metrics.gauge("muster_leading", "1 while this manager leads.");

  let led: { readonly epoch: number; readonly running: readonly Running[] } | null = null;
  let beatTimer: TimerHandle | null = null;
  let heard: { readonly managerId: string; readonly epoch: number; readonly at: number } | null = null;
  let onReleased: (() => void) | null = null;
  let isReleasing = false;
  let isStopped = false;
  /** The lease of another manager at the last check. */
  let seen: LeaseSight | null = null;

  const beat = (): void => {
    if (led === null) return;
    bus.publish(
      subjects.leaderBeat,
      LeaderBeat.encode(LeaderBeat.create({ managerId, epoch: led.epoch, clock: Math.floor(clock.monotonic()) })),
    );
    beatTimer = clock.setTimeout(beat, beatIntervalMs);
  };

  const endDuties = (): void => {
    const ending = led;
    led = null;
    if (beatTimer !== null) clock.clearTimeout(beatTimer);
    beatTimer = null;
    if (ending === null) return;
    leadingGauge.set(0);
    for (const running of ending.running.toReversed()) running.stop();
  };

  const follower: Follower = startFollowing({
    log,
    blobs,
    replica,
    clock,
    telemetry,
    mark: parts.mark,
    acceptsLoss: parts.acceptsLogLoss,
    troubles: parts.troubles,
    onBroken: (error) => parts.onBroken(error),
    onApplied: (record) => ledger.onApplied(record),
  });

  const ledger: Ledger = startLedger(env, {
    log,
    replica,
    follower,
    mayLead: () => parts.mayLead?.() !== false,
    ...(parts.batchLimits === undefined ? {} : { limits: parts.batchLimits }),
    onLeading: (epoch) => {
      if (isReleasing) return;
      leadingGauge.set(1);
      // Set before duties start, so that they see this manager leading; a stop then also stops the duties started so far.
      const running: Running[] = [];
      led = { epoch, running };
      beat();
      running.push(
        startSnapshotWriter({
          clock,
          log,
          blobs,
          replica,
          telemetry,
          options: { ...snapshotDefaults, ...parts.snapshots },
        }),
        parts.startDuties(epoch),
      );
    },
    onEnded: endDuties,
    onDeposed: () => lease.send({ type: "leader.deposed" }),
    onBroken: (error) => parts.onBroken(error),
  });

  // A log with missing records, or with records that this version does not support, is detected before its end: a manager that
  // meets one must not keep the lease from others.
  let hasReached = false;
  const reached = follower.caughtUp().then(() => {
    hasReached = true;
  });

  const look = async (attempt: number): Promise<void> => {
    if (!hasReached) {
      await Promise.race([reached, sleep(clock, leases.ttlMs / 3)]);
      if (isStopped) return;
      if (!hasReached) {
        lease.send({ type: "lease.unreadable", attempt, jitter: random.next() });
        return;
      }
    }
    const found = await leases.get(leaseKey);
    if (isStopped) return;
    const jitter = random.next();
    // A manager that may not lead does not resume its own lease either: the lease expires, and another manager takes it.
    if (parts.mayLead?.() === false) {
      lease.send({ type: "lease.unreadable", attempt, jitter });
      return;
    }
    switch (found.kind) {
      case "absent":
        lease.send({ type: "lease.absent", attempt, jitter });
        return;
      case "unknown":
        lease.send({ type: "lease.unreadable", attempt, jitter });
        return;
      case "found": {
        const holder = decodeLease(found.value);
        const sight = holder.instance === instance ? null : { instance: holder.instance, revision: found.revision };
        if (isKept(seen, sight)) parts.onLeaseKept?.();
        seen = sight;
        lease.send({ type: "lease.held", attempt, ...holder, revision: found.revision, jitter });
        return;
      }
    }
  };

  const write = async (attempt: number, revision: number): Promise<void> => {
    const sentAt = clock.monotonic();
    const outcome =
      revision === 0 ? await leases.create(leaseKey, leaseValue) : await leases.update(leaseKey, leaseValue, revision);
    if (isStopped) return;
    if (outcome.kind !== "unknown") parts.onLeaseAnswered?.(clock.monotonic() - sentAt);
    switch (outcome.kind) {
      case "stored":
        lease.send({ type: "lease.written", attempt, revision: outcome.revision, sentAt, at: clock.monotonic() });
        return;
      case "conflict":
        lease.send({ type: "lease.conflict", attempt });
        return;
      case "unknown":
        lease.send({ type: "lease.unknown", attempt });
        return;
    }
  };

  const remove = async (attempt: number, revision: number): Promise<void> => {
    await leases.remove(leaseKey, revision);
    if (!isStopped) lease.send({ type: "lease.removed", attempt });
  };

  const lease = env.host.start(
    leaseMachine,
    "lease",
    { ttlMs: leases.ttlMs, managerId, instance, jitter: random.next() },
    {
      effects: {
        look: ({ attempt }) => void look(attempt),
        write: ({ attempt, revision }) => void write(attempt, revision),
        remove: ({ attempt, revision }) => void remove(attempt, revision),
        announceTaken: ({ revision }) => ledger.take(revision),
        announceEnded: () => ledger.end(),
        announceReleased: () => onReleased?.(),
      },
    },
  );

  const beats = bus.subscribe(subjects.leaderBeat, (message) => {
    const beaten = busMessage(env, LeaderBeat, message);
    if (beaten === null || (heard !== null && beaten.epoch < heard.epoch)) return;
    heard = { managerId: beaten.managerId, epoch: beaten.epoch, at: clock.monotonic() };
    proposer.hearLeader(beaten);
  });

  const proposer = startProposer(env, {
    ledger,
    ...(parts.mark === undefined ? {} : { mark: parts.mark }),
    cause: () => parts.cause?.() ?? null,
    fullCause: () => parts.fullCause?.() ?? null,
    ...(parts.encodesAlways === undefined ? {} : { encodesAlways: parts.encodesAlways }),
  });

  return {
    isLeading: () => led !== null,
    isTermCurrent: () => led !== null && clock.monotonic() < lease.snapshot.context.deadline,
    leader: () => {
      if (led !== null) return { managerId, epoch: led.epoch };
      if (heard === null || clock.monotonic() - heard.at > leaderSilenceMs) return null;
      return { managerId: heard.managerId, epoch: heard.epoch };
    },
    proposer,
    follower,
    stepDown: () => lease.send({ type: "leader.deposed" }),
    release: async () => {
      isReleasing = true;
      endDuties();
      // A third of the TTL is less than the rest of any term.
      await Promise.race([ledger.drain(), sleep(clock, leases.ttlMs / 3)]);
      if (isStopped) return;
      const released = new Promise<void>((resolve) => {
        onReleased = resolve;
      });
      lease.send({ type: "release.requested" });
      await released;
    },
    stop: () => {
      if (isStopped) return;
      isStopped = true;
      endDuties();
      beats.unsubscribe();
      proposer.stop();
      lease.stop();
      ledger.stop();
      follower.stop();
    },
  };
}

function decodeLease(value: Uint8Array): { managerId: string; instance: string } {
  try {
    const { managerId, instance } = Lease.decode(value);
    return { managerId, instance };
  } catch {
    // The lease is held, by an unknown manager.
    return { managerId: "", instance: "" };
  }
}
