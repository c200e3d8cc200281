/**
 * Hosts the rollout of one service: keeps its tracker, gives turns to the service's orchestrator, and writes the chart's
 * decisions. `actors/orchestration/rollouts.ts` decides which services have one.
 *
 * R4: writes are conditional on the service and the record on which they were decided: the ledger compares both, and after a
 *     concurrent change they are decided again.
 */
import {
  lookEvent,
  phaseEvent,
  rolloutMachine,
  type RolloutEvent,
} from "../../machines/orchestration/rollout.machine.ts";
import {
  decided,
  hasRollbackStatus,
  isPaused,
  noted,
  phaseOf,
  recordOf,
  type RolloutDecision,
  type RolloutWrite,
} from "../../machines/orchestration/rollout/status.ts";
import { deadlineMs } from "../../machines/orchestration/rollout/slot.ts";
import { settingsOf, type RolloutSettings } from "../../machines/orchestration/rollout/settings.ts";
import type { RolloutTracker } from "../../machines/orchestration/rollout/tracker.ts";
import { admissionOf } from "../../machines/orchestration/rollout/verdict.ts";
import { ProposeRequest_Mode, type Rollout, type Service, type Task } from "../../proto/gen/messages.ts";
import { ErrorCode } from "../../runtime/error-codes.ts";
import type { EffectsOf, HostedActor } from "../../runtime/host.ts";
import type { ProposeOutcome } from "../../runtime/store/store.ts";
import type { Environment } from "../environment.ts";
import { trackerOf, writeOperations } from "./rollout-view.ts";

/** Timeout of proposals to the ledger, in milliseconds; the ledger is in this process, so only the log can delay it. */
export const proposalTimeoutMs = 10_000;
/** The ledger's error codes for a spec that cannot be satisfied: only a rollback can cause them here. */
const rollbackRejections: ReadonlySet<ErrorCode> = new Set([
  ErrorCode.portTaken,
  ErrorCode.referenceMissing,
  ErrorCode.ingressMissing,
]);

/** A rollout's interface to its owner. */
interface RolloutPorts {
  readonly env: Environment;
  /** Called with slots to update now. */
  onTurns(serviceId: string, slots: readonly string[]): void;
  /** Called when nothing is left to do. */
  onOver(ended: ServiceRollout): void;
}

interface Stored {
  readonly service: Service;
  /** Null while the rollout has not begun. */
  readonly record: Rollout | null;
}

export function settingsNow(service: Service): RolloutSettings {
  return settingsOf(service, hasRollbackStatus(service));
}

export class ServiceRollout {
  readonly serviceId: string;
  readonly #ports: RolloutPorts;
  readonly #env: Environment;
  readonly #actor: HostedActor<typeof rolloutMachine>;
  /** Null while the rollout is paused. */
  #tracker: RolloutTracker | null = null;
  #isNoting = false;
  /** Whether something else has to be recorded meanwhile. */
  #isNoteDue = false;
  #notedAtMs = Number.NEGATIVE_INFINITY;
  #isEnded = false;

  constructor(ports: RolloutPorts, serviceId: string) {
    this.serviceId = serviceId;
    this.#ports = ports;
    this.#env = ports.env;
    const { clock, host } = ports.env;
    const effects: EffectsOf<typeof rolloutMachine> = {
      readPhase: () => clock.soon(() => this.tellPhase()),
      gather: () => clock.soon(() => this.#send({ type: "round.due" })),
      look: () => this.#look(),
      note: () => this.#note(),
      begin: () => this.#write((tracker) => ({ kind: "begin", work: tracker.work() })),
      pause: ({ why }) => this.#write(() => ({ kind: "pause", why })),
      startRollback: ({ why }) => this.#write(() => ({ kind: "roll back", why })),
      complete: () => this.#write(() => ({ kind: "complete" })),
      chooseBatch: () => this.#write((tracker) => ({ kind: "choose", batch: tracker.nextBatch(clock.now()) })),
    };
    this.#actor = host.start(rolloutMachine, `rollout/${serviceId}`, { serviceId }, { effects });
  }

  /** The tracker if it belongs to the current version of the service. */
  trackerFor(service: Service): RolloutTracker | null {
    return this.#tracker?.isFor(service) === true ? this.#tracker : null;
  }

  adopt(tracker: RolloutTracker): void {
    this.#tracker = tracker;
  }

  /** Returns whether the change can matter; then `touch` must follow at the end of the commit. */
  noteTask(old: Task | null, task: Task | null): boolean {
    return this.#tracker?.note(old, task) === true;
  }

  /** The same for a changed node. */
  noteNode(tasks: Iterable<Task>): boolean {
    return this.#tracker?.noteNode(tasks) === true;
  }

  touch(): void {
    this.#send({ type: "slots.touched" });
  }

  /** R1. To be called when the store has changed. */
  tellPhase(): void {
    const stored = this.#stored();
    if (this.#isEnded || stored === null) return;
    const { record, service } = stored;
    const { clock, store, times } = this.#env;
    const phase = phaseOf(service, record);
    const nowMs = clock.now();
    if (isPaused(phase)) this.#tracker = null;
    else if (this.#tracker?.follow(service, record) !== true)
      this.#tracker = trackerOf(store, service, record, nowMs, times);
    const outdated = this.#tracker?.outdated ?? 0;
    const remainingMs = record === null ? -1 : Math.max(0, Math.ceil(deadlineMs(record, times) - nowMs));
    const event = phaseEvent(phase, { isRecorded: record !== null, outdated, remainingMs });
    if (event.type === "rollout.over") {
      this.end();
      this.#ports.onOver(this);
    } else this.#send(event);
  }

  /** Ends the chart, also when the chart itself requests it. */
  end(): void {
    this.#send({ type: "rollout.over" });
    this.#isEnded = true;
    this.#env.clock.soon(() => this.#actor.stop());
  }

  /** To be called when this process no longer leads. */
  stop(): void {
    this.#isEnded = true;
    this.#actor.stop();
  }

  #send(event: RolloutEvent): void {
    if (!this.#isEnded) this.#actor.send(event);
  }

  #stored(): Stored | null {
    const { store } = this.#env;
    const service = store.get("service", this.serviceId);
    return service === undefined ? null : { service, record: recordOf(service, store.get("rollout", service.id)) };
  }

  #look(): void {
    // A clock that was just set ends the term before a decision depends on it. H5
    this.#env.clockWatch?.look();
    if (this.#isEnded) return;
    const stored = this.#stored();
    const tracker = stored === null ? null : this.trackerFor(stored.service);
    // A change is handled at the end of its commit.
    if (stored === null || stored.record === null || tracker === null) return;
    const { record, service } = stored;
    const verdict = tracker.look(this.#env.clock.now(), admissionOf(record));
    const turns = tracker.takeTurns();
    if (turns.length > 0) this.#ports.onTurns(service.id, turns);
    this.#send(lookEvent(verdict, record, settingsNow(service).action));
  }

  #counted(tracker: RolloutTracker, record: Rollout): Rollout {
    return tracker.counted(record, (id) => this.#env.store.get("task", id) !== undefined);
  }

  #write(decide: (tracker: RolloutTracker) => RolloutDecision): void {
    const stored = this.#stored();
    if (stored === null) return;
    const { record, service } = stored;
    const tracker = this.trackerFor(service);
    const counted = tracker === null || record === null ? record : this.#counted(tracker, record);
    const write = tracker === null ? null : decided(decide(tracker), service, counted, this.#env.clock.now());
    if (write === null) {
      this.#send({ type: "write.failed" });
      return;
    }
    void this.#proposed(write, service).then((outcome) => {
      // A committed write has already been handled through the store.
      if (outcome.kind === "committed") return;
      const isRejected = outcome.kind === "refused" && rollbackRejections.has(outcome.code);
      this.#send(isRejected ? { type: "rollback.rejected", reason: outcome.message } : { type: "write.failed" });
    });
  }

  #proposed({ rollout: record, service: after }: RolloutWrite, before: Service): Promise<ProposeOutcome> {
    const operations = writeOperations(this.#env.store, after, record, before);
    const mode = ProposeRequest_Mode.ATOMIC;
    return this.#env.proposer.propose({ operations, mode, timeoutMs: proposalTimeoutMs });
  }

  /** Writes at most one note at a time. */
  #note(): void {
    const stored = this.#stored();
    const tracker = this.#tracker;
    if (stored === null || stored.record === null || tracker === null) return;
    this.#isNoteDue = this.#isNoting;
    if (this.#isNoting) return;
    const { record, service } = stored;
    const nowMs = this.#env.clock.now();
    const quietMs = nowMs - this.#notedAtMs;
    const write = noted(service, record, this.#counted(tracker, record), tracker.blocker(nowMs), quietMs);
    if (write === null) return;
    if (write.service !== null) this.#notedAtMs = nowMs;
    this.#isNoting = true;
    void this.#proposed(write, service).then((outcome) => {
      this.#isNoting = false;
      // A lost count is a failure that the next leader does not see.
      if (outcome.kind !== "committed") this.#send({ type: "write.failed" });
      else if (this.#isNoteDue && !this.#isEnded) this.#note();
    });
  }
}
