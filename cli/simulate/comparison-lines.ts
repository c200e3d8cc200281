/** A comparison of two rehearsals in the terminal, one table for each service and job. */
import { formatTable } from "../table.ts";
import { printable } from "../text-width.ts";
import type { RehearsalOutcome } from "../../simulation/rehearsal/outcome.ts";
import { compared, jobMeasures, measures, type Difference } from "./compare.ts";
import { countText, plural, shareText, timeText } from "./report-texts.ts";
import type { Spread } from "./spread.ts";

const headings = ["MEASURE", "BEFORE", "AFTER", "CHANGE", "BETTER", "WORSE", "SAME"];

/** `width`: of the terminal in columns; null: any. */
export function comparisonLines(
  before: RehearsalOutcome,
  after: RehearsalOutcome,
  width: number | null,
): readonly string[] {
  const comparison = compared(before, after);
  const { violations } = comparison;
  return [
    `before: ${printable(comparison.before)}`,
    `after:  ${printable(comparison.after)}`,
    `${plural(comparison.seeds, "seed")} of both; an invariant was violated in ${violations.before} before, ${violations.after} after`,
    ...[...comparison.services, ...comparison.jobs].flatMap(({ name, differences }) => {
      const rows = differences
        .filter(({ before: old, after: now }) => old !== null || now !== null)
        .map(differenceCells);
      return [
        "",
        `${printable(name)} (medians, and seeds that are better, worse or the same):`,
        ...formatTable(headings, rows, width).split("\n"),
      ];
    }),
  ];
}

/** Cells of one row, also on the page. */
export function differenceCells({
  measure,
  before,
  after,
  medianChange,
  better,
  worse,
  same,
}: Difference): readonly string[] {
  const { title, kind } = [...measures, ...jobMeasures].find(({ key }) => key === measure) ?? measures[0];
  const text = kind === "share" ? shareText : kind === "time" ? timeText : countText;
  const median = (spread: Spread | null): string => (spread === null ? "-" : text(spread.median));
  const change =
    medianChange === null
      ? "-"
      : medianChange === 0
        ? "0"
        : `${medianChange > 0 ? "+" : "-"}${text(Math.abs(medianChange))}`;
  return [title, median(before), median(after), change, String(better), String(worse), String(same)];
}
