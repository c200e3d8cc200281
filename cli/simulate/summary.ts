/** The report of a rehearsal in the terminal: one screen for a few services, the verdict first. */
import { printable } from "../text-width.ts";
import { formatTable } from "../table.ts";
import type { RehearsalOutcome } from "../../simulation/rehearsal/outcome.ts";
import { countText, plural, shareText, spreadTexts, timeText } from "./report-texts.ts";
import { reportOf, type Count, type Report, type ServiceReport } from "./report.ts";

export interface SummaryOptions {
  /** Width of the terminal in columns; null: any. */
  readonly width: number | null;
  /** Command that runs one seed again and opens it in replay. */
  openCommand(seed: number): string;
}

/** Reasons of a kind that are listed; the others are counted. */
const reasonsMax = 3;
const violationsMax = 5;

export function summaryLines(outcome: RehearsalOutcome, options: SummaryOptions): readonly string[] {
  const report = reportOf(outcome);
  if (report === null) return [`${printable(outcome.scenario)}: no seed was finished`];
  return [
    headline(report),
    ...violationLines(report),
    ...availabilityLines(report, options),
    ...rolloutLines(report, options),
    ...jobLines(report, options),
    ...moveLines(report),
    ...placementLines(report),
    requestLine(report),
    ...notableLines(report, options),
  ].map((line) => line.trimEnd());
}

function headline({ cluster, scenario, durationMs, seeds, seedsWanted, violations }: Report): string {
  const count = seeds === seedsWanted ? plural(seeds, "seed") : `${seeds} of ${plural(seedsWanted, "seed")}`;
  const verdict =
    violations.length === 0 ? "all invariants held" : `${plural(violations.length, "seed")} violated an invariant`;
  return `${printable(scenario)} on ${printable(cluster)}: ${timeText(durationMs)}, ${count}; ${verdict}`;
}

function violationLines({ violations }: Report): readonly string[] {
  const lines = violations
    .slice(0, violationsMax)
    .map(({ seed, violation, atMs }) => `  seed ${seed} after ${timeText(atMs)}: ${printable(violation)}`);
  const more = violations.length - lines.length;
  return more > 0 ? [...lines, `  and ${plural(more, "more seed")}`] : lines;
}

function table(headings: readonly string[], rows: readonly (readonly string[])[], { width }: SummaryOptions): string[] {
  return ["", ...formatTable(headings, rows, width).split("\n")];
}

/** Columns: the worst seed, the seed at 5 % from the worst, the median. */
function availabilityLines({ services }: Report, options: SummaryOptions): readonly string[] {
  if (services.length === 0) return [];
  const rows = services.map((service) => {
    const [min, p5, median] = spreadTexts(service.availabilityMin, shareText, true);
    const [fullMin, , fullMedian] = spreadTexts(service.fullShare, shareText, true);
    const [, first, firstMedian] = spreadTexts(service.firstFullMs, timeText, false);
    const never = service.neverFull === 0 ? "" : ` (never: ${plural(service.neverFull, "seed")})`;
    const worst = `seed ${service.worst.seed}`;
    return [service.name, min, p5, median, fullMin, fullMedian, `${firstMedian} / ${first}${never}`, worst];
  });
  const headings = ["SERVICE", "AVAIL MIN", "P5", "MEDIAN", "FULL MIN", "MEDIAN", "FIRST FULL P50/P95", "WORST"];
  return table(headings, rows, options);
}

function rolloutLines({ services }: Report, options: SummaryOptions): readonly string[] {
  const rolled = services.filter(({ rollouts }) => rollouts.count > 0);
  if (rolled.length === 0) return [];
  const rows = rolled.map(({ name, rollouts }) => {
    const [worst, p95, median] = spreadTexts(rollouts.durationMs, timeText, false);
    return [name, median, p95, worst, String(rollouts.unfinished), listedCounts(rollouts.states)];
  });
  return [
    ...table(["ROLLOUT", "MEDIAN", "P95", "MAX", "UNFINISHED", "ENDED AS"], rows, options),
    ...rolled.flatMap(({ name, rollouts }) =>
      rollouts.blocked
        .slice(0, reasonsMax)
        .map(
          ({ reason, rollouts: count, meanMs }) =>
            `  ${printable(name)} waited ${timeText(meanMs)} on average in ${plural(count, "rollout")}: ${printable(reason)}`,
        ),
    ),
  ];
}

function jobLines({ jobs }: Report, options: SummaryOptions): readonly string[] {
  if (jobs.length === 0) return [];
  const rows = jobs.map(({ name, durationMs, executions, failedTasks, states, unfinished }) => {
    const [worst, p95, median] = spreadTexts(durationMs, timeText, false);
    const failed = `${countText(failedTasks.median)} / ${failedTasks.max}`;
    return [name, String(executions), median, p95, worst, String(unfinished), listedCounts(states), failed];
  });
  const headings = ["JOB", "EXECUTIONS", "MEDIAN", "P95", "MAX", "UNFINISHED", "STATES", "FAILED TASKS P50/MAX"];
  return table(headings, rows, options);
}

function listedCounts(counts: readonly Count[]): string {
  const shown = counts.slice(0, reasonsMax).map(({ text, count }) => `${printable(text)} ${count}`);
  const more = counts.length - shown.length;
  return [...shown, ...(more > 0 ? [`${more} more`] : [])].join(", ");
}

function moveLines({ jobs, services }: Report): readonly string[] {
  const moved = [...services, ...jobs.map((job) => ({ ...job, unplaced: 0 }))].filter(({ moves }) => moves.max > 0);
  if (moved.length === 0) return [];
  return ["", "Moves and restarts of a seed:", ...moved.map(moveLine)];
}

type Moved = Pick<ServiceReport, "name" | "moves" | "moveReasons" | "unplaced">;

function moveLine({ name, moves, moveReasons, unplaced }: Moved): string {
  const unplacedText = unplaced === 0 ? "" : `; ${unplaced} found no node by the end`;
  const counts = `median ${countText(moves.median)}, p95 ${moves.p95}, max ${moves.max}`;
  return `  ${printable(name)}: ${counts}${unplacedText} (${listedCounts(moveReasons)})`;
}

function placementLines({ placement }: Report): readonly string[] {
  if (placement === null) return [];
  const { widest, last } = placement;
  const text = `tasks of the fullest minus the emptiest node: median ${countText(last.median)} at the end (max ${last.max}); at its widest median ${countText(widest.median)} (max ${widest.max})`;
  return ["", `Placement: ${text}`];
}

function requestLine({ requests }: Report): string {
  const { sent, refused, bySeed, reasons } = requests;
  if (refused === 0) return `Requests: none of ${sent} failed`;
  return `Requests: ${refused} failed, of the scenario's and the ${sent} of the probe; median ${countText(bySeed.median)} of a seed, max ${bySeed.max} (${listedCounts(reasons)})`;
}

function notableLines({ notable }: Report, { openCommand }: SummaryOptions): readonly string[] {
  if (notable.length === 0) return [];
  const lines = notable.flatMap(({ seed, why }) => [`  seed ${seed}: ${printable(why)}`, `    ${openCommand(seed)}`]);
  return ["", "Seeds to look at:", ...lines];
}
