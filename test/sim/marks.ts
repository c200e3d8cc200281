/**
 * Rare branches that enough seeds should reach. `npm run sim` reports those that no seed reached. A run of CI's seeds fails for
 * an
 * unreached mark, because some fault or operation is no longer tested.
 */

/** Number of seeds that CI runs, from the first one on: `.ci/run`. */
export const seedsOfCi = 200;

export const knownMarks = [
  "access.ended",
  "agent.joined.again",
  "agent.joined.late",
  "answer.lost",
  "append.answer.lost",
  "append.conflict",
  "append.full",
  "append.refused",
  "append.unknown",
  "attack.answer",
  "attack.change",
  "attack.forge",
  "attack.garbage",
  "attack.redirect",
  "attack.replay",
  "attack.truncate",
  "autolock.off",
  "autolock.on",
  "autolock.rotate",
  "call.repeated",
  "checked.created",
  "checked.unhealthy",
  "checked.updated.never",
  "checked.updated.well",
  "choosy.created",
  "choosy.scaled",
  "connection.broken",
  "contended.dropped.in",
  "contended.dropped.key",
  "contended.dropped.net",
  "contended.dropped.settings",
  "contended.made.in",
  "contended.made.key",
  "contended.made.net",
  "contended.made.settings",
  "contending.back",
  "contending.created",
  "contending.updated",
  "dataplane.launched",
  "disk.older",
  "disk.unsynced.lost",
  "disk.write.refused",
  "driven.created",
  "driven.networked",
  "driven.removed",
  "driver.plugin.crash",
  "driver.plugin.hang",
  "driver.plugin.taken.away",
  "driver.start.forgotten",
  "error: this manager is cut off from the log: sending its nodes to other managers",
  "fault.agent.crash",
  "fault.append.answer.lost",
  "fault.clock.jump",
  "fault.disk.full",
  "fault.disk.older",
  "fault.leader.pause",
  "fault.log.full",
  "fault.log.silent",
  "fault.machine.gone",
  "fault.manager.crash",
  "fault.manager.older",
  "fault.nats.crash",
  "fault.nats.older",
  "fault.partition",
  "fault.pause",
  "fault.power.failure",
  "fault.route.cut",
  "fault.snapshot.torn",
  "fault.snapshots.stale",
  "format.raised",
  "global.created",
  "history.read",
  "history.told",
  "info: rejecting a task that may not stay on its node",
  "info: moving a task to a better node",
  "intruder.thrown.out",
  "job.created",
  "job.scheduled",
  "job.steer",
  "job.update",
  "json.slow",
  "json.told",
  "json.user.removed",
  "link.broken",
  "link.down",
  "link.message.lost",
  "link.opened",
  "log.push.stalled",
  "log.tail.lost",
  "logs.cut.off",
  "logs.ended",
  "logs.ended.incomplete",
  "logs.followed",
  "logs.missing.told",
  "machine.thrown.away",
  "manager.demoted",
  "manager.locked",
  "manager.refused.level",
  "manager.refused.log",
  "manager.started.again",
  "message.duplicated",
  "message.lost",
  "message.reordered",
  "names.asked",
  "network.created",
  "network.created.special",
  "network.removed",
  "networked.created",
  "networked.updated",
  "node.availability",
  "node.label",
  "policy.members",
  "policy.step",
  "record.damaged",
  "record.redelivered",
  "replica.stopped.at.break",
  "role.demoted",
  "role.promoted",
  "rollout.abort",
  "rollout.back.by.hand",
  "rollout.bad",
  "rollout.good",
  "rollout.pause",
  "rollout.resume",
  "rollout.step",
  "root.back",
  "root.forced",
  "root.own",
  "root.rotation.begun",
  "root.rotation.called.off",
  "root.rotation.done",
  "root.rotation.replaced",
  "root.tokens",
  "route.lost",
  "schedule.missed",
  "schedule.skipped",
  "schedule.started",
  "snapshot.torn",
  "snapshots.too.old",
  "storage.ControllerPublishVolume",
  "storage.ControllerUnpublishVolume",
  "storage.CreateVolume",
  "storage.DeleteVolume",
  "storage.NodePublishVolume",
  "storage.NodeStageVolume",
  "storage.NodeUnpublishVolume",
  "storage.NodeUnstageVolume",
  "storage.answer.lost",
  "storage.failed",
  "task.found",
  "task.refused",
  "trial.agent.frozen",
  "trial.agent.killed",
  "trial.agent.rebooted",
  "trial.leader.paused",
  "trial.manager.back.alone",
  "trial.manager.cut.off",
  "trial.manager.gone",
  "trial.manager.left.behind",
  "trial.manager.unlinked",
  "trial.managers.unlinked",
  "trial.managers.unrouted",
  "trial.snapshots.lost",
  "unlock.newest",
  "unlock.older",
  "unlock.wrong",
  "volume.availability",
  "volume.created",
  "volume.removed",
  "warn: the log no longer has what this replica needs next",
  "watch.resumed",
] as const;

type KnownMark = (typeof knownMarks)[number];

/** Marks that CI's seeds reach only sometimes, each with the test that covers it. */
export const rareMarks: Partial<Record<KnownMark, string>> = {
  // The disk must go back to a moment within the tenths of a second between a start and its report.
  "driver.start.forgotten": "unit/sim-drivers",
};

export interface MarkRun {
  readonly reached: ReadonlySet<string>;
  readonly known: readonly string[];
  /** By mark: the reason. */
  readonly rare: Readonly<Partial<Record<string, string>>>;
  /** The first seed, and the number of passed seeds from it on. */
  readonly from: number;
  readonly passed: number;
  readonly failed: number;
}

interface MarkFindings {
  /** Each fails the run. */
  readonly problems: readonly string[];
  readonly notes: readonly string[];
}

/** Notes and problems about marks. Fewer or other seeds than CI's, or early failures, may well miss some. */
export function judgeMarks({ failed, from, known, passed, rare, reached }: MarkRun): MarkFindings {
  const missed = known.filter((mark) => !reached.has(mark));
  const isWhole = from === 1 && passed >= seedsOfCi && failed === 0;
  const problems: string[] = [];
  const notes: string[] = [];
  for (const mark of missed) {
    const reason = rare[mark];
    if (reason !== undefined) notes.push(`${mark} was not reached: ${reason}`);
    else if (isWhole)
      problems.push(
        `no seed reached ${mark}: draw it more often, or list it in test/sim/marks.ts with a test that covers it`,
      );
    else notes.push(`${mark} was not reached`);
  }
  return { problems, notes };
}
