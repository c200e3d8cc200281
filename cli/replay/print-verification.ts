/** The output of `muster replay --verify`. */
import { UserError } from "../../lib/user-error.ts";
import { isoTime } from "../../runtime/recording/iso-time.ts";
import type { TimelineIndex } from "../../runtime/recording/timeline-index.ts";
import { allCharts } from "../charts.ts";
import type { Shell } from "../shell.ts";
import { formatTable } from "../table.ts";
import { printable } from "../text-width.ts";
import { verify, type ChartCount, type Difference } from "./verify.ts";

/** Reasons that are listed for a chart; the others are counted. */
const reasonsMax = 3;

function reasonsOf({ unknown }: ChartCount): string {
  const reasons = [...unknown].toSorted(([, a], [, b]) => b - a);
  const named = reasons.slice(0, reasonsMax).map(([reason, count]) => `${reason} (${count})`);
  return [...named, ...(reasons.length > reasonsMax ? [`${reasons.length - reasonsMax} more`] : [])].join(", ");
}

/** The recording may have been made by anyone. */
function sentenceOf({ process, step, part, recorded, now }: Difference): string {
  const { actor, atMs, event, number } = step;
  return [
    `this Muster decides differently at step ${number} of ${actor} in ${process}, at ${isoTime(atMs)}, event ${event}:`,
    `  ${part} recorded: ${recorded === "" ? "none" : recorded}`,
    `  ${part} now:      ${now === "" ? "none" : now}`,
  ]
    .map(printable)
    .join("\n");
}

/** Throws UserError if a step differs. */
export async function printVerification(shell: Shell, index: TimelineIndex): Promise<void> {
  const machines = new Map((await allCharts()).map(({ machine }) => [machine.id, machine]));
  const { charts, differences, first } = verify(index, machines);
  const rows = charts.map((chart) => [
    chart.chart,
    String(chart.steps),
    String(chart.verified),
    `${Math.floor((chart.verified * 100) / chart.steps)} %`,
    reasonsOf(chart),
  ]);
  shell.print(formatTable(["CHART", "STEPS", "VERIFIED", "SHARE", "NOT VERIFIED"], rows, shell.width));
  if (first !== null) {
    const others = differences - 1;
    const more = others === 0 ? "" : `\n${others} more ${others === 1 ? "step differs" : "steps differ"}`;
    throw new UserError(`${sentenceOf(first)}${more}`);
  }
  const verified = charts.reduce((sum, chart) => sum + chart.verified, 0);
  shell.print(`no difference in ${verified} verified steps`);
}
