/**
 * Hosts a rollout for each service that has tasks of another spec: feeds its tracker with changes, hands turns to the
 * service's orchestrator, and writes what the chart decides.
 *
 * R4: what is written was decided on the service and the record as they are stored: the ledger compares both, and what
 *     another writer changed in between is looked at anew.
 */
import { rolloutMachine, type RolloutEvent } from "../machines/rollout.ts";
import {
  begun,
  completed,
  isMoving,
  isOver,
  isPaused,
  isWayBack,
  paused,
  phaseOf,
  recordOf,
  rolledBack,
  stepChosen,
  type RolloutWrite,
} from "../machines/rollout/status.ts";
import { settingsOf, type RolloutSettings } from "../machines/rollout/settings.ts";
import type { RolloutTracker } from "../machines/rollout/tracker.ts";
import { blockerText } from "../machines/rollout/verdict.ts";
import type { Turns } from "../machines/rollout/turns.ts";
import { isWanted } from "../machines/task.ts";
import { timeMs } from "../machines/time.ts";
import { isJob } from "../machines/validation/service.ts";
import {
  Kind,
  Operation,
  ProposeRequest_Mode,
  Removal,
  Rollout,
  Service,
  UpdateConfig_FailureAction,
  UpdateStatus,
  UpdateStatus_UpdateState,
  type Task,
} from "../proto/gen/messages.ts";
import type { HostedActor } from "../runtime/host.ts";
import type { TimerHandle } from "../runtime/ports.ts";
import type { Environment } from "./environment.ts";
import { hosted } from "./hosted.ts";
import type { Part } from "./orchestration-part.ts";
import {
  admissionOf,
  basisOf,
  isOtherVersion,
  isSameBasis,
  mayHaveOutdated,
  trackerOf,
  writeOperations,
} from "./rollout-view.ts";

/** How long a proposal looks for the ledger, in milliseconds; it is this process's own, so only the log can hold it up. */
const proposalTimeoutMs = 10_000;
/** Before what was refused or got no answer is looked at anew, in milliseconds. */
const retryMs = 100;
/** Between two changes of the message about what holds a rollout up, in milliseconds: each is a new version of the service. */
const noticeEveryMs = 30_000;

const rollout = hosted(rolloutMachine, [
  "readPhase",
  "gather",
  "look",
  "note",
  "begin",
  "pause",
  "turnBack",
  "complete",
  "chooseBatch",
]);

interface Entry {
  readonly serviceId: string;
  actor: HostedActor<typeof rolloutMachine> | null;
  tracker: RolloutTracker | null;
  /** What the tracker was made for. */
  basis: string;
  /** Spec version of the service that the tracker was made for. */
  target: number;
  /** Why it is to be paused or turned back. */
  why: string;
  isNoting: boolean;
  notedAtMs: number;
}

export interface Rollouts extends Part {
  /** For who tends the slots of the service, as it is now. */
  turnsOf(service: Service): Turns;
}

/** `onTurns`: told which slots of a service are to be tended now. */
export function startRollouts(
  env: Environment,
  onTurns: (serviceId: string, slots: readonly string[]) => void,
): Rollouts {
  const { store } = env;
  const entries = new Map<string, Entry>();
  const touched = new Set<Entry>();
  /** Ids of services of which the store says something new. */
  const changed = new Set<string>();
  const timers = new Set<TimerHandle>();
  let isStopped = false;

  function send(entry: Entry, event: RolloutEvent): void {
    if (!isStopped && entries.get(entry.serviceId) === entry) entry.actor?.actor.send(event);
  }

  function later(callback: () => void): void {
    const timer = env.clock.setTimeout(() => {
      timers.delete(timer);
      callback();
    }, retryMs);
    timers.add(timer);
  }

  function start(serviceId: string): Entry {
    const entry: Entry = {
      serviceId,
      actor: null,
      tracker: null,
      basis: "",
      target: -1,
      why: "",
      isNoting: false,
      notedAtMs: Number.NEGATIVE_INFINITY,
    };
    entries.set(serviceId, entry);
    entry.actor = rollout.start(
      env.host,
      `rollout/${serviceId}`,
      { serviceId },
      {
        effects: {
          readPhase: () => env.clock.soon(() => tellPhase(entry)),
          gather: () => env.clock.soon(() => send(entry, { type: "round.due" })),
          look: () => look(entry),
          note: () => note(entry),
          begin: () => begin(entry),
          pause: () => write(entry, (service, record) => paused(service, counted(entry, record), entry.why)),
          turnBack: () => write(entry, (service, record) => rolledBack(service, counted(entry, record), entry.why)),
          complete: () =>
            write(entry, (service, record) => completed(service, counted(entry, record), env.clock.now())),
          chooseBatch: () => chooseBatch(entry),
        },
      },
    );
    return entry;
  }

  function end(entry: Entry): void {
    send(entry, { type: "rollout.over" });
    entries.delete(entry.serviceId);
    touched.delete(entry);
    env.clock.soon(() => entry.actor?.stop());
  }

  /** Whether a rollout of the service is under way, or should be. */
  function consider(service: Service): void {
    if (entries.has(service.id) || isJob(service.spec)) return;
    const record = recordOf(service, store.get("rollout", service.id));
    if (!isOver(phaseOf(service, record))) start(service.id);
    else if (mayHaveOutdated(service, store.tasksByService(service.id))) {
      const tracker = trackerOf(store, service, record, env.clock.now());
      if (tracker.outdated > 0) adopt(start(service.id), tracker, service, record);
    }
  }

  function adopt(entry: Entry, tracker: RolloutTracker, service: Service, record: Rollout | null): void {
    entry.tracker = tracker;
    entry.basis = basisOf(service, record);
    entry.target = service.specVersion?.index ?? 0;
  }

  /** R1 */
  function tellPhase(entry: Entry): void {
    const service = store.get("service", entry.serviceId);
    if (service === undefined) return;
    const record = recordOf(service, store.get("rollout", service.id));
    const phase = phaseOf(service, record);
    if (isPaused(phase)) entry.tracker = null;
    else renewTracker(entry, service, record);
    const hasWork = (entry.tracker?.outdated ?? 0) > 0;
    if (isOver(phase) && !hasWork) {
      end(entry);
      return;
    }
    const remainingMs = record === null ? -1 : Math.max(0, Math.ceil(timeMs(record.deadline) - env.clock.now()));
    const mustBegin = isOver(phase) || (isMoving(phase) && record === null);
    send(entry, { type: "phase.is", phase, mustBegin, remainingMs });
  }

  /** Made anew whenever what it rests on is another: the spec, the beginning of the rollout, or how much of it may go on. */
  function renewTracker(entry: Entry, service: Service, record: Rollout | null): void {
    const basis = basisOf(service, record);
    if (entry.tracker !== null && entry.basis === basis) return;
    const hasJustBegun = entry.basis === basisOf(service, null) && record?.failures === 0;
    if (entry.tracker !== null && record !== null && hasJustBegun) {
      entry.tracker.begin(record);
      entry.basis = basis;
    } else adopt(entry, trackerOf(store, service, record, env.clock.now()), service, record);
  }

  function look(entry: Entry): void {
    const service = store.get("service", entry.serviceId);
    const record = service === undefined ? null : recordOf(service, store.get("rollout", service.id));
    const { tracker } = entry;
    if (
      service === undefined ||
      record === null ||
      tracker === null ||
      entry.target !== (service.specVersion?.index ?? 0)
    ) {
      // What has changed is told at the end of its commit.
      return;
    }
    const verdict = tracker.look(env.clock.now(), admissionOf(record));
    const turns = tracker.takeTurns();
    if (turns.length > 0) onTurns(service.id, turns);
    switch (verdict.kind) {
      case "busy":
        send(entry, { type: "look.busy", nextMs: verdict.nextMs });
        break;
      case "delayed":
        send(entry, { type: "look.delayed", nextMs: verdict.nextMs });
        break;
      case "watching":
        send(entry, { type: "look.watching", nextMs: verdict.nextMs });
        break;
      case "finished":
        send(entry, { type: "look.finished" });
        break;
      case "stepped":
        entry.why = " after one step";
        send(entry, { type: "look.stepped" });
        break;
      case "choose":
        send(entry, { type: "look.choose" });
        break;
      case "failed":
      case "expired": {
        entry.why = verdict.why;
        const { action } = settings(service);
        const isWayBackWanted = action === UpdateConfig_FailureAction.ROLLBACK && !record.isRollback;
        send(entry, { type: "look.failed", isWayBack: isWayBackWanted });
      }
    }
  }

  function settings(service: Service): RolloutSettings {
    return settingsOf(service, isWayBack(service));
  }

  /** The record with what this leader has counted since. */
  function counted(entry: Entry, record: Rollout | null): Rollout | null {
    if (record === null || entry.tracker === null) return record;
    const failedTasks = entry.tracker.failedTasks((id) => store.get("task", id) !== undefined);
    return Rollout.patch(record, { failures: entry.tracker.failures, failedTasks });
  }

  function begin(entry: Entry): void {
    const service = store.get("service", entry.serviceId);
    if (service === undefined) return;
    const record = recordOf(service, store.get("rollout", service.id));
    const isBegun = record !== null && isMoving(phaseOf(service, record));
    const total = entry.tracker?.outdated ?? 0;
    if (isBegun || entry.target !== (service.specVersion?.index ?? 0)) later(() => tellPhase(entry));
    else propose(entry, begun(service, total, env.clock.now()), service);
  }

  /** Writes what is decided of a rollout that moves; any other is looked at anew. */
  function write(entry: Entry, decide: (service: Service, record: Rollout | null) => RolloutWrite): void {
    const service = store.get("service", entry.serviceId);
    if (service === undefined) return;
    const record = recordOf(service, store.get("rollout", service.id));
    if (isMoving(phaseOf(service, record)) && entry.target === (service.specVersion?.index ?? 0)) {
      propose(entry, decide(service, record), service);
    } else later(() => tellPhase(entry));
  }

  function chooseBatch(entry: Entry): void {
    write(entry, (_, record) => {
      const verdict = entry.tracker?.look(env.clock.now(), { kind: "choose" });
      return record === null || verdict?.kind !== "choose"
        ? { service: null, rollout: null }
        : stepChosen(record, verdict.batch);
    });
  }

  function propose(entry: Entry, { rollout: record, service: after }: RolloutWrite, before: Service): void {
    const operations = writeOperations(store, after, record, before);
    if (operations.length === 0) {
      later(() => tellPhase(entry));
      return;
    }
    void env.proposer
      .propose({ operations, mode: ProposeRequest_Mode.ATOMIC, timeoutMs: proposalTimeoutMs })
      .then((outcome) => {
        // What was written has come back through the store, and been told from there.
        if (!isStopped && outcome.kind !== "committed") later(() => tellPhase(entry));
      });
  }

  /** What was counted, and what holds the rollout up: for the next leader, and for whoever looks at the service. */
  function note(entry: Entry): void {
    const service = store.get("service", entry.serviceId);
    const record = service === undefined ? null : recordOf(service, store.get("rollout", service.id));
    const { tracker } = entry;
    if (service === undefined || record === null || tracker === null || entry.isNoting) return;
    const nowMs = env.clock.now();
    const held = tracker.blocker(nowMs);
    const blocker = held === null ? "" : blockerText(held);
    const isNews = blocker !== record.blocker && (blocker === "" || nowMs - entry.notedAtMs >= noticeEveryMs);
    if (tracker.failures === record.failures && !isNews) return;
    if (isNews) entry.notedAtMs = nowMs;
    const next = Rollout.patch(counted(entry, record) ?? record, isNews ? { blocker } : {});
    const how = `${isWayBack(service) ? "rollback" : "update"} in progress`;
    const message = blocker === "" ? how : `${how}: waits for ${blocker}`;
    const told = Service.patch(service, {
      updateStatus: UpdateStatus.patch(service.updateStatus ?? UpdateStatus.create(), { message }),
    });
    entry.isNoting = true;
    void env.proposer
      .propose({
        operations: writeOperations(store, isNews ? told : null, next, service),
        mode: ProposeRequest_Mode.ATOMIC,
        timeoutMs: proposalTimeoutMs,
      })
      .then(() => (entry.isNoting = false));
  }

  for (const service of store.all("service")) consider(service);
  const left = [...store.all("rollout")].filter(({ id }) => store.get("service", id) === undefined);
  for (const { id } of left) removeRecord(id);

  function removeRecord(id: string): void {
    const remove = Removal.create({ kind: Kind.KIND_ROLLOUT, id });
    void env.proposer.propose({
      operations: [Operation.create({ remove })],
      mode: ProposeRequest_Mode.EACH,
      timeoutMs: proposalTimeoutMs,
    });
  }

  return {
    turnsOf(service) {
      const entry = entries.get(service.id);
      const { isStartFirst } = settings(service);
      const state = service.updateStatus?.state;
      const isUnderWay =
        state === UpdateStatus_UpdateState.UPDATING || state === UpdateStatus_UpdateState.ROLLBACK_STARTED;
      const tracker = isUnderWay && entry?.target === (service.specVersion?.index ?? 0) ? entry.tracker : null;
      const isHeld = isPaused(phaseOf(service, null));
      return { mayReplace: (slot) => tracker?.mayReplace(slot) ?? false, isStartFirst, isHeld };
    },

    taskChanged(old, task) {
      const { serviceId } = (task ?? old) as Task;
      const entry = entries.get(serviceId);
      if (entry !== undefined) {
        if (entry.tracker?.note(old, task) === true) touched.add(entry);
        return;
      }
      // A decision that was on its way while the service changed.
      if (old !== null || task === null || !isWanted(task)) return;
      const service = store.get("service", serviceId);
      if (service !== undefined && isOtherVersion(task, service)) changed.add(serviceId);
    },

    nodeChanged(old, node) {
      if (node === null || (old !== null && old.status === node.status && old.spec === node.spec)) return;
      for (const entry of entries.values()) {
        if (entry.tracker?.noteNode(store.tasksByNode(node.id)) === true) touched.add(entry);
      }
      for (const task of store.tasksByNode(node.id)) {
        if (!isWanted(task) || entries.has(task.serviceId)) continue;
        const service = store.get("service", task.serviceId);
        if (service !== undefined && isOtherVersion(task, service)) changed.add(task.serviceId);
      }
    },

    serviceChanged(old, service) {
      if (service === null) {
        const { id } = old as Service;
        const entry = entries.get(id);
        if (entry !== undefined) end(entry);
        changed.delete(id);
        if (store.get("rollout", id) !== undefined) removeRecord(id);
        return;
      }
      const isSameSpec = old !== null && (old.specVersion?.index ?? 0) === (service.specVersion?.index ?? 0);
      const isSameStatus = old?.updateStatus?.state === service.updateStatus?.state;
      if (!isSameSpec || !isSameStatus) changed.add(service.id);
    },

    rolloutChanged(old, record) {
      if (record === null || !entries.has(record.id)) return;
      const isNote =
        old !== null &&
        old.step === record.step &&
        old.batch.length === record.batch.length &&
        isSameBasis(old, record);
      if (!isNote) changed.add(record.id);
    },

    commitEnded() {
      const told = [...changed];
      changed.clear();
      for (const id of told) {
        const entry = entries.get(id);
        const service = store.get("service", id);
        if (entry !== undefined) tellPhase(entry);
        else if (service !== undefined) consider(service);
      }
      const looked = [...touched];
      touched.clear();
      for (const entry of looked) send(entry, { type: "slots.touched" });
    },

    stop() {
      isStopped = true;
      for (const timer of timers) env.clock.clearTimeout(timer);
      for (const entry of entries.values()) entry.actor?.stop();
      entries.clear();
    },
  };
}
