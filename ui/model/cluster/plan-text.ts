/** A PlanServiceResponse in words, as `muster service plan` prints it. */
import type { PlannedStep, PlanServiceResponse } from "../../../proto/gen/cluster.ts";

/** `2 new, 1 replaced, 0 removed, 3 unchanged` */
export function planTotals({ created, kept, removed, replaced }: PlanServiceResponse): string {
  return `${created} new, ${replaced} replaced, ${removed} removed, ${kept} unchanged`;
}

export function isNothing({ created, removed, replaced }: PlanServiceResponse): boolean {
  return created + removed + replaced === 0;
}

interface StepRow {
  readonly batch: string;
  readonly action: string;
  readonly task: string;
  readonly from: string;
  readonly to: string;
  readonly why: string;
}

export function stepRow(step: PlannedStep, service: string): StepRow {
  const { batch, fromNodeId, fromNodeName, kind, nodeId, nodeName, reasons, slot } = step;
  const from = fromNodeName || fromNodeId;
  const to = nodeName || nodeId;
  return {
    batch: batch === 0 ? "at once" : String(batch),
    action: kind,
    task: `${service}.${slot === 0 ? to || from : slot}`,
    from,
    to: to === "" && kind !== "remove" ? "pending" : to,
    why: reasons.join("; "),
  };
}
