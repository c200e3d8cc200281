/**
 * Hosts the rollout of one service: keeps its tracker, gives turns to the service's orchestrator, and writes the chart's
 * decisions. `actors/orchestration/rollouts.ts` decides which services have one.
 *
 * R4: writes are conditional on the service and the record on which they were decided: the ledger compares both, and after a
 *     concurrent change they are decided again.
 */
import { rolloutMachine, type RolloutEvent } from "../../machines/orchestration/rollout.machine.ts";
import {
  afterFailure,
  cannotRollBack,
  begun,
  completed,
  isMoving,
  isOver,
  isPaused,
  hasRollbackStatus,
  progressMessage,
  paused,
  phaseOf,
  recordOf,
  rolledBack,
  stepChosen,
  type RolloutWrite,
} from "../../machines/orchestration/rollout/status.ts";
import { deadlineMs } from "../../machines/orchestration/rollout/slot.ts";
import { settingsOf, type RolloutSettings } from "../../machines/orchestration/rollout/settings.ts";
import type { RolloutTracker } from "../../machines/orchestration/rollout/tracker.ts";
import { blockerText } from "../../machines/orchestration/rollout/verdict.ts";
import {
  ProposeRequest_Mode,
  Rollout,
  Service,
  UpdateStatus,
  type Operation,
  type Task,
} from "../../proto/gen/messages.ts";
import { ErrorCode } from "../../runtime/error-codes.ts";
import type { HostedActor } from "../../runtime/host.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import type { ProposeOutcome } from "../../runtime/store/store.ts";
import type { Environment } from "../environment.ts";
import { hosted } from "../hosted.ts";
import { admissionOf, basisOf, trackerOf, writeOperations } from "./rollout-view.ts";

/** Timeout of proposals to the ledger, in milliseconds; the ledger is in this process, so only the log can delay it. */
export const proposalTimeoutMs = 10_000;
/** The ledger's error codes for a spec that cannot be satisfied: only a rollback can cause them here. */
const rollbackRejections: ReadonlySet<ErrorCode> = new Set([
  ErrorCode.portTaken,
  ErrorCode.referenceMissing,
  ErrorCode.ingressMissing,
]);
/** Delay before a refused or unanswered write is decided again, in milliseconds. */
const retryMs = 100;
/**
 * Minimum interval between updates of the message about a blocked rollout, in milliseconds: each is a new version of the
 * service.
 */
const noticeEveryMs = 30_000;

const rollout = hosted(rolloutMachine, [
  "readPhase",
  "gather",
  "look",
  "note",
  "begin",
  "pause",
  "startRollback",
  "complete",
  "chooseBatch",
]);

/** A rollout's interface to its owner. */
export interface RolloutPorts {
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
  readonly #timers = new Set<TimerHandle>();
  #tracker: RolloutTracker | null = null;
  /** The basis of the tracker. */
  #basis = "";
  /** Spec version of the tracker's service. */
  #target = -1;
  /** Why it is to be paused or rolled back. */
  #why = "";
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
    const effects = {
      readPhase: () => clock.soon(() => this.tellPhase()),
      gather: () => clock.soon(() => this.#send({ type: "round.due" })),
      look: () => this.#look(),
      note: () => this.#note(),
      begin: () => this.#begin(),
      pause: () => this.#write(({ service, record }) => paused(service, this.#counted(record), this.#why)),
      startRollback: () => this.#write(({ service, record }) => rolledBack(service, this.#counted(record), this.#why)),
      complete: () => this.#write(({ service, record }) => completed(service, this.#counted(record), clock.now())),
      chooseBatch: () => this.#write(({ record }) => this.#batchChosen(record)),
    };
    this.#actor = rollout.start(host, `rollout/${serviceId}`, { serviceId }, { effects });
  }

  /** The tracker if it belongs to the current version of the service. */
  trackerFor(service: Service): RolloutTracker | null {
    return this.#isFor(service) ? this.#tracker : null;
  }

  adopt(tracker: RolloutTracker, { record, service }: Stored): void {
    this.#tracker = tracker;
    this.#basis = basisOf(service, record);
    this.#target = service.specVersion?.index ?? 0;
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
    const phase = phaseOf(service, record);
    if (isPaused(phase)) this.#tracker = null;
    else this.#renewTracker(stored);
    const hasWork = (this.#tracker?.outdated ?? 0) > 0;
    if (isOver(phase) && !hasWork) {
      this.end();
      this.#ports.onOver(this);
      return;
    }
    const nowMs = this.#env.clock.now();
    const remainingMs = record === null ? -1 : Math.max(0, Math.ceil(deadlineMs(record, this.#env.times) - nowMs));
    const mustBegin = isOver(phase) || (isMoving(phase) && record === null);
    this.#send({ type: "phase.is", phase, mustBegin, remainingMs });
  }

  /** Ends the chart, also when the chart itself requests it. */
  end(): void {
    this.#send({ type: "rollout.over" });
    this.#isEnded = true;
    this.#clearTimers();
    this.#env.clock.soon(() => this.#actor.stop());
  }

  /** To be called when this process no longer leads. */
  stop(): void {
    this.#isEnded = true;
    this.#clearTimers();
    this.#actor.stop();
  }

  #clearTimers(): void {
    for (const timer of this.#timers) this.#env.clock.clearTimeout(timer);
    this.#timers.clear();
  }

  #send(event: RolloutEvent): void {
    if (!this.#isEnded) this.#actor.actor.send(event);
  }

  #tellPhaseLater(): void {
    const { clock } = this.#env;
    const timer = clock.setTimeout(() => {
      this.#timers.delete(timer);
      this.tellPhase();
    }, retryMs);
    this.#timers.add(timer);
  }

  #stored(): Stored | null {
    const { store } = this.#env;
    const service = store.get("service", this.serviceId);
    return service === undefined ? null : { service, record: recordOf(service, store.get("rollout", service.id)) };
  }

  #isFor(service: Service): boolean {
    return this.#target === (service.specVersion?.index ?? 0);
  }

  /** Rebuilds the tracker when its basis changes: the spec, the start of the rollout, or how much of it may proceed. */
  #renewTracker(stored: Stored): void {
    const { record, service } = stored;
    const basis = basisOf(service, record);
    if (this.#tracker !== null && this.#basis === basis) return;
    const hasJustBegun = this.#basis === basisOf(service, null) && record?.failures === 0;
    if (this.#tracker !== null && record !== null && hasJustBegun) {
      this.#tracker.begin(record);
      this.#basis = basis;
    } else {
      const { clock, store } = this.#env;
      this.adopt(trackerOf(store, service, record, clock.now(), this.#env.times), stored);
    }
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
    switch (verdict.kind) {
      case "busy":
        this.#send({ type: "look.busy", nextMs: verdict.nextMs });
        break;
      case "delayed":
        this.#send({ type: "look.delayed", nextMs: verdict.nextMs });
        break;
      case "watching":
        this.#send({ type: "look.watching", nextMs: verdict.nextMs });
        break;
      case "finished":
        this.#send({ type: "look.finished" });
        break;
      case "stepped":
        this.#why = " after one step";
        this.#send({ type: "look.stepped" });
        break;
      case "choose":
        this.#send({ type: "look.choose" });
        break;
      case "failed":
      case "expired": {
        const after = afterFailure(record, settingsNow(service).action, verdict.why);
        this.#why = after.why;
        this.#send({ type: "look.failed", wantsRollback: after.wantsRollback });
      }
    }
  }

  /** The record with what this leader has counted since. */
  #counted(record: Rollout | null): Rollout | null {
    if (record === null || this.#tracker === null) return record;
    const failedTasks = this.#tracker.failedTasks((id) => this.#env.store.get("task", id) !== undefined);
    const { failedSlots, failures } = this.#tracker;
    return Rollout.patch(record, { failures, failedSlots, failedTasks });
  }

  #begin(): void {
    const stored = this.#stored();
    if (stored === null) return;
    const { record, service } = stored;
    const isBegun = record !== null && isMoving(phaseOf(service, record));
    const work = this.#tracker?.work() ?? { slots: 0, waitMsMax: 0 };
    if (isBegun || !this.#isFor(service)) this.#tellPhaseLater();
    else this.#propose(begun(service, work, this.#env.clock.now()), service);
  }

  /** Writes the decision if the rollout is moving, else decides again. */
  #write(decide: (stored: Stored) => RolloutWrite): void {
    const stored = this.#stored();
    if (stored === null) return;
    const { record, service } = stored;
    if (isMoving(phaseOf(service, record)) && this.#isFor(service)) this.#propose(decide(stored), service);
    else this.#tellPhaseLater();
  }

  #batchChosen(record: Rollout | null): RolloutWrite {
    const verdict = this.#tracker?.look(this.#env.clock.now(), { kind: "choose" });
    const isChosen = record !== null && verdict?.kind === "choose";
    return isChosen ? stepChosen(record, verdict.batch) : { service: null, rollout: null };
  }

  #propose({ rollout: record, service: after }: RolloutWrite, before: Service): void {
    const operations = writeOperations(this.#env.store, after, record, before);
    if (operations.length === 0) {
      this.#tellPhaseLater();
      return;
    }
    void this.#proposed(operations).then((outcome) => {
      // A committed write has already been handled through the store.
      if (this.#isEnded || outcome.kind === "committed") return;
      if (outcome.kind === "refused" && rollbackRejections.has(outcome.code)) {
        this.#why = cannotRollBack(this.#why, outcome.message);
        this.#send({ type: "rollback.rejected" });
      } else this.#tellPhaseLater();
    });
  }

  #proposed(operations: readonly Operation[]): Promise<ProposeOutcome> {
    const mode = ProposeRequest_Mode.ATOMIC;
    return this.#env.proposer.propose({ operations, mode, timeoutMs: proposalTimeoutMs });
  }

  /** Records the counts and what blocks the rollout: for the next leader, and for readers of the service. */
  #note(): void {
    const stored = this.#stored();
    const tracker = this.#tracker;
    if (stored === null || stored.record === null || tracker === null) return;
    this.#isNoteDue = this.#isNoting;
    if (this.#isNoting) return;
    const { record, service } = stored;
    const nowMs = this.#env.clock.now();
    const held = tracker.blocker(nowMs);
    const blocker = held === null ? "" : blockerText(held);
    const isNews = blocker !== record.blocker && (blocker === "" || nowMs - this.#notedAtMs >= noticeEveryMs);
    if (tracker.failures === record.failures && !isNews) return;
    if (isNews) this.#notedAtMs = nowMs;
    const next = Rollout.patch(this.#counted(record) ?? record, isNews ? { blocker } : {});
    const message = progressMessage(service, blocker);
    const told = Service.patch(service, {
      updateStatus: UpdateStatus.patch(service.updateStatus ?? UpdateStatus.create(), { message }),
    });
    this.#isNoting = true;
    const operations = writeOperations(this.#env.store, isNews ? told : null, next, service);
    void this.#proposed(operations).then((outcome) => {
      this.#isNoting = false;
      if (this.#isEnded) return;
      // A lost count is a failure that the next leader does not see.
      if (outcome.kind !== "committed") this.#tellPhaseLater();
      else if (this.#isNoteDue) this.#note();
    });
  }
}
