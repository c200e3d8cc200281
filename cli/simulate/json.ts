/**
 * The report as JSON (docs/simulate.md). Stable: keys are added, not renamed, within one `version`. All times are milliseconds
 * since the scenario began, all shares from 0 to 1.
 */
import type { RehearsalOutcome } from "../../simulation/rehearsal/outcome.ts";
import { compared } from "./compare.ts";
import { reportOf } from "./report.ts";

export const reportVersion = 1;

/** With every run: its services, placement, failed requests and events. `command`: command line of the rehearsal. */
export function reportJson(outcome: RehearsalOutcome, command: string): string {
  return JSON.stringify({ version: reportVersion, command, report: reportOf(outcome), runs: outcome.runs });
}

export function comparisonJson(before: RehearsalOutcome, after: RehearsalOutcome): string {
  return JSON.stringify({
    version: reportVersion,
    comparison: compared(before, after),
    before: reportOf(before),
    after: reportOf(after),
  });
}
