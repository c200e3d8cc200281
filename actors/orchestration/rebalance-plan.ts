/** The dry run of rebalancing: the moves that would be made, and what blocks them now. */
import type { LogTimes } from "../../machines/elapsed.ts";
import { planRounds, type Candidate, type RoundMove } from "../../machines/orchestration/rebalancing/round.ts";
import type { Hold } from "../../machines/orchestration/rebalancing/hold.ts";
import { steadyLoads } from "../../machines/orchestration/rebalancing/moves.ts";
import type { ServiceVerdict } from "../../machines/orchestration/rebalancing/service.ts";
import type { RebalanceSettings } from "../../machines/orchestration/rebalancing/settings.ts";
import { WhatIf } from "../../machines/scheduling/what-if.ts";
import { timestampOf } from "../../proto/time.ts";
import {
  Duration,
  PlannedMove,
  PlanRebalanceResponse,
  Reason,
  type Node,
  type Service,
} from "../../proto/gen/messages.ts";
import type { Store } from "../../runtime/store/store.ts";
import { placementView } from "./placement-view.ts";

/** Maximum moves in a dry run; each takes a few passes over all nodes, a few milliseconds in a cluster of a thousand. */
const shownMovesMax = 100;
/** Maximum services whose reasons a dry run shows. */
const shownHoldsMax = 50;

interface DryRun {
  readonly store: Store;
  readonly settings: RebalanceSettings;
  readonly nowMs: number;
  readonly times: LogTimes;
  readonly phase: string;
  /** The reason that blocks all moves now; null: moves are allowed. */
  readonly now: Hold | null;
  readonly spent: { readonly spent: number; readonly untilMs: number | null };
  /** Checked as if rebalancing were enabled for them. */
  readonly services: readonly Service[];
  readonly judge: (service: Service) => ServiceVerdict;
}

export function planMoves({
  store,
  settings,
  nowMs,
  times,
  phase,
  now,
  spent,
  services,
  judge,
}: DryRun): PlanRebalanceResponse {
  const reasons: Reason[] = settings.flaws.map((flaw) => Reason.create({ waitingFor: flaw }));
  const say = (what: string, { reason, untilMs }: Hold): void => {
    const deadline = untilMs === null ? null : timestampOf(Math.round(untilMs));
    reasons.push(Reason.create({ waitingFor: `${what}${reason}`, deadline, atDeadline: "goes on" }));
  };
  if (now !== null) say("", now);
  const candidates: Candidate[] = [];
  let held = 0;
  for (const service of services) {
    const verdict = judge(service);
    if (verdict.kind === "movable") {
      candidates.push({ service, tasks: verdict.tasks });
      continue;
    }
    held += 1;
    if (held <= shownHoldsMax) say(`service ${service.spec?.annotations?.name ?? service.id}: `, verdict.hold);
  }
  if (held > shownHoldsMax) reasons.push(Reason.create({ waitingFor: `${held - shownHoldsMax} more services` }));
  const movesLeft = Math.max(0, settings.windowMovesMax - spent.spent);
  if (movesLeft === 0) {
    say("", { reason: `the budget of ${settings.windowMovesMax} moves is used up`, untilMs: spent.untilMs });
  }
  const whatIf = new WhatIf(placementView(store), nowMs);
  const roundMax = Math.max(1, settings.roundMovesMax);
  const steady = steadyLoads(store.all("task"), settings, nowMs, times);
  const { rounds, isPartial } = planRounds(candidates, roundMax, shownMovesMax, whatIf, steady);
  const nodeOf = (id: string): Node | undefined => store.get("node", id);
  return PlanRebalanceResponse.create({
    version: store.version,
    phase,
    moves: rounds.flatMap((round, at) => round.map((each) => toPlannedMove(each, at + 1, nodeOf))),
    isPartial,
    reasons,
    movesLeft,
    window: Duration.create({ seconds: Math.round(settings.windowMs / 1_000) }),
  });
}

function toPlannedMove(
  { task, service, toNodeId, isStartFirst, why }: RoundMove,
  round: number,
  nodeOf: (id: string) => Node | undefined,
): PlannedMove {
  const name = (id: string): string => nodeOf(id)?.description?.hostname ?? "";
  return PlannedMove.create({
    round,
    serviceId: service.id,
    serviceName: service.spec?.annotations?.name ?? "",
    slot: task.slot,
    taskId: task.id,
    fromNodeId: task.nodeId,
    fromNodeName: name(task.nodeId),
    nodeId: toNodeId,
    nodeName: name(toNodeId),
    order: isStartFirst ? "start-first" : "stop-first",
    why,
  });
}
