/**
 * The report as JSON (docs/simulate.md). Stable: keys are added, not renamed, within one `version`. All times are milliseconds
 * since the scenario began, all shares from 0 to 1.
 */
import type { RehearsalOutcome } from "../../simulation/rehearsal/outcome.ts";
import { compared } from "./compare.ts";
import { reportOf } from "./report.ts";

const version = 1;

/** With every run: its services, placement, failed requests and events. */
export function reportJson(outcome: RehearsalOutcome): string {
  return JSON.stringify({ version, report: reportOf(outcome), runs: outcome.runs });
}

export function comparisonJson(before: RehearsalOutcome, after: RehearsalOutcome): string {
  return JSON.stringify({
    version,
    comparison: compared(before, after),
    before: reportOf(before),
    after: reportOf(after),
  });
}
