/** The trials (`trials.ts`), in the order in which seeds take them. */
export const trialNames = [
  "agent.killed",
  "manager.unlinked",
  "manager.back.alone",
  "agent.rebooted",
  "agent.frozen",
  "managers.unlinked",
  "manager.gone",
  "leader.paused",
  "manager.cut.off",
  "managers.unrouted",
  "manager.left.behind",
  "snapshots.lost",
] as const;

export type TrialName = (typeof trialNames)[number];
