/** Pages with a rehearsal's report or a comparison: one file, which loads nothing and can be mailed. */
import { createHash } from "node:crypto";
import { installedFile, installedPath } from "../../lib/installation.ts";
import { UserError } from "../../lib/user-error.ts";
import type { RehearsalOutcome, RunOutcome } from "../../simulation/rehearsal/outcome.ts";
import type { ReportPlots } from "../../ui/report/plots.ts";
import { differenceCells } from "./comparison-lines.ts";
import { compared } from "./compare.ts";
import { escaped, htmlList, htmlTable, scriptJson } from "./page-text.ts";
import { availabilityId, placementId, plotsOf } from "./plot-data.ts";
import { countText, plural, shareText, spreadTexts, timeText } from "./report-texts.ts";
import { reportOf, type Count, type Report, type ServiceReport } from "./report.ts";
import { rolloutDrawing } from "./rollout-drawing.ts";

/** Events of one seed on the page; the JSON report has all. */
const eventsMax = 500;
const reasonsMax = 10;

function built(name: string): string {
  const path = `ui/dist/report/${name}`;
  try {
    return installedFile(path).toString();
  } catch (error) {
    throw new UserError(`the page of reports is not built: ${installedPath(path)} is missing: run 'npm run setup'`, {
      cause: error,
    });
  }
}

function hashOf(text: string): string {
  return `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
}

/** A page that may run only its own script and load nothing. */
function pageOf(title: string, body: string, plots: ReportPlots): string {
  // Within an element, neither may contain its end.
  const script = built("main.js").replaceAll("</script", "<\\/script");
  const style = built("style.css");
  const policy = `default-src 'none'; script-src ${hashOf(script)}; style-src ${hashOf(style)}; base-uri 'none'; form-action 'none'`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(title)}</title>
<style>${style}</style>
</head>
<body>
${body}
<script type="application/json" id="plots">${scriptJson(plots)}</script>
<script>${script}</script>
</body>
</html>
`;
}

/** `openCommand`: runs a seed again and opens it in replay. Throws UserError if no run was finished. */
export function reportPage(outcome: RehearsalOutcome, openCommand: (seed: number) => string): string {
  const report = reportOf(outcome);
  if (report === null) throw new UserError("no seed was finished: there is nothing to report");
  const plots = plotsOf([outcome], [""]);
  const title = `${report.scenario} on ${report.cluster}`;
  return pageOf(
    title,
    [
      heading(report, title),
      marksList(plots),
      servicesTable(report),
      ...report.services.map((service, at) => serviceSection(outcome, service, at, plots)),
      jobsSection(report),
      placementSection(report),
      requestSection(report),
      seedsSection(outcome, report, openCommand),
    ].join("\n"),
    plots,
  );
}

function heading({ durationMs, seeds, seedsWanted, violations }: Report, title: string): string {
  const count = seeds === seedsWanted ? plural(seeds, "seed") : `${seeds} of ${plural(seedsWanted, "seed")}`;
  const verdict =
    violations.length === 0
      ? `<p class="good">All invariants held.</p>`
      : `<p class="bad">${plural(violations.length, "seed")} violated an invariant.</p>${htmlList(
          violations.map(({ seed, violation, atMs }) => `Seed ${seed} after ${timeText(atMs)}: ${violation}`),
        )}`;
  return `<h1>${escaped(title)}</h1>\n<p class="soft">${escaped(timeText(durationMs))} of simulated time, ${count}</p>\n${verdict}`;
}

function marksList({ marks }: ReportPlots): string {
  if (marks.length === 0) return "";
  const items = marks.map(({ at, text }) => [timeText(at * 1_000), text]);
  return `<details open><summary>Steps of the scenario (dashed lines in the plots)</summary>${htmlTable(["At", "Step"], items)}</details>`;
}

function servicesTable({ services }: Report): string {
  if (services.length === 0) return "";
  const rows = services.map((service) => {
    const [min, p5, median] = spreadTexts(service.availabilityMin, shareText, true);
    const [fullMin, , fullMedian] = spreadTexts(service.fullShare, shareText, true);
    const [, rollout, rolloutMedian] = spreadTexts(service.rollouts.durationMs, timeText, false);
    const moves = `${countText(service.moves.median)} / ${service.moves.max}`;
    const rollouts = service.rollouts.count === 0 ? "" : `${rolloutMedian} / ${rollout}`;
    return [service.name, min, p5, median, fullMedian, fullMin, rollouts, moves, `seed ${service.worst.seed}`];
  });
  const headings = ["Service", "Availability min", "p5", "median", "Time with all tasks, median", "min"];
  return `<h2>Services</h2>${htmlTable([...headings, "Rollout p50 / p95", "Moves p50 / max", "Worst"], rows)}`;
}

function serviceSection(outcome: RehearsalOutcome, service: ServiceReport, at: number, plots: ReportPlots): string {
  const { name, rollouts, moveReasons, unplaced } = service;
  const drawing = rolloutDrawing(outcome, name, plots.marks);
  const blocked = rollouts.blocked
    .slice(0, reasonsMax)
    .map(
      ({ reason, rollouts: count, meanMs }) =>
        `${reason}: ${timeText(meanMs)} on average in ${plural(count, "rollout")}`,
    );
  const lost = unplaced === 0 ? "" : `<p class="bad">${plural(unplaced, "task")} found no node by the end.</p>`;
  return [
    `<h2>${escaped(name)}</h2>`,
    `<h3>Share of wanted tasks that run (median and 5th to 95th percentile of the seeds)</h3>`,
    `<div class="plot" id="${availabilityId(at)}"></div>`,
    drawing === "" ? "" : `<h3>Rollouts: ${escaped(countsText(rollouts.states))}</h3>${drawing}`,
    blocked.length === 0 ? "" : `<h3>Rollouts waited for</h3>${htmlList(blocked)}`,
    moveReasons.length === 0 ? "" : `<h3>Reasons of moves and restarts</h3>${countsTable(moveReasons)}${lost}`,
  ].join("\n");
}

function jobsSection({ jobs }: Report): string {
  if (jobs.length === 0) return "";
  const rows = jobs.map(({ name, durationMs, executions, failedTasks, moveReasons, states, unfinished }) => {
    const [worst, p95, median] = spreadTexts(durationMs, timeText, false);
    const failed = `${countText(failedTasks.median)} / ${failedTasks.max}`;
    const reasons = moveReasons.slice(0, reasonsMax).map(({ text, count }) => `${text}: ${count}`);
    const times = [median, p95, worst];
    return [name, String(executions), ...times, String(unfinished), countsText(states), failed, reasons.join("; ")];
  });
  const times = ["Time until it succeeded, median", "p95", "max"];
  const headings = ["Job", "Executions", ...times, "Unfinished", "States", "Failed tasks p50 / max", "Tasks replaced"];
  return `<h2>Jobs</h2>${htmlTable(headings, rows)}`;
}

function countsText(counts: readonly Count[]): string {
  return counts.map(({ text, count }) => `${text} ${count}`).join(", ");
}

function countsTable(counts: readonly Count[]): string {
  const rows = counts.slice(0, reasonsMax).map(({ text, count }) => [String(count), text]);
  return htmlTable(["Count", "Reason"], rows);
}

function placementSection({ placement }: Report): string {
  if (placement === null) return "";
  const { widest, last } = placement;
  const text = `The fullest node has ${plural(last.median, "task")} more than the emptiest at the end (median; largest ${last.max}), and ${countText(widest.median)} at its widest (largest ${widest.max}).`;
  return `<h2>Placement</h2><p>${escaped(text)}</p><h3>Running tasks of a node (medians over the seeds)</h3><div class="plot" id="${placementId}"></div>`;
}

function requestSection({ requests }: Report): string {
  const { sent, refused, bySeed, reasons } = requests;
  if (refused === 0) return `<h2>Requests</h2><p class="good">None of ${sent} failed.</p>`;
  const text = `${refused} failed, of the scenario's and the ${sent} of the probe: ${countText(bySeed.median)} of a seed (median), at most ${bySeed.max}.`;
  return `<h2>Requests</h2><p>${escaped(text)}</p>${countsTable(reasons)}`;
}

function seedsSection({ runs }: RehearsalOutcome, { notable }: Report, openCommand: (seed: number) => string): string {
  if (notable.length === 0) return "";
  const parts = notable.map(({ seed, why }) => {
    const run = runs.find((each) => each.seed === seed);
    return `<details><summary>Seed ${seed}: ${escaped(why)}</summary><pre>${escaped(openCommand(seed))}</pre>${run === undefined ? "" : eventsTable(run)}</details>`;
  });
  return `<h2>Seeds to look at</h2>${parts.join("\n")}`;
}

function eventsTable({ events }: RunOutcome): string {
  const rows = events.slice(0, eventsMax).map(({ atMs, text }) => [timeText(atMs), text]);
  const more = events.length > eventsMax ? `<p class="soft">${events.length - eventsMax} more events</p>` : "";
  return `${htmlTable(["At", "Event"], rows)}${more}`;
}

/** Both rehearsals in the same plots. Throws UserError if one of them has no finished run. */
export function comparisonPage(before: RehearsalOutcome, after: RehearsalOutcome): string {
  if (before.runs.length === 0 || after.runs.length === 0) {
    throw new UserError("no seed was finished: there is nothing to compare");
  }
  const comparison = compared(before, after);
  const plots = plotsOf([before, after], ["before", "after"]);
  const names = [
    ...new Set(
      [before, after].flatMap(({ runs }) => runs.flatMap(({ services }) => services.map((each) => each.name))),
    ),
  ];
  const headings = ["Measure", "Before (median)", "After (median)", "Change", "Better seeds", "Worse", "Same"];
  const sections = names.map((name, at) => {
    const found = comparison.services.find((each) => each.name === name);
    const rows = found?.differences.filter((each) => each.before !== null || each.after !== null).map(differenceCells);
    return `<h2>${escaped(name)}</h2>${rows === undefined ? "<p>Only one of both has this service.</p>" : htmlTable(headings, rows)}
<h3>Share of wanted tasks that run (median and 5th to 95th percentile of the seeds)</h3>
<div class="plot" id="${availabilityId(at)}"></div>`;
  });
  const jobSections = comparison.jobs.map(({ name, differences }) => {
    const rows = differences.filter((each) => each.before !== null || each.after !== null).map(differenceCells);
    return `<h2>Job ${escaped(name)}</h2>${htmlTable(headings, rows)}`;
  });
  const { violations } = comparison;
  const isClean = violations.before + violations.after === 0;
  const verdict = isClean
    ? `<p class="good">All invariants held in both.</p>`
    : `<p class="bad">Seeds that violated an invariant: ${violations.before} before, ${violations.after} after.</p>`;
  return pageOf(
    "Comparison of two rehearsals",
    [
      `<h1>Comparison of two rehearsals</h1>`,
      `<p>Before: ${escaped(comparison.before)}</p><p>After: ${escaped(comparison.after)}</p>`,
      `<p class="soft">${plural(comparison.seeds, "seed")} of both</p>`,
      verdict,
      ...sections,
      ...jobSections,
      `<h2>Placement</h2><h3>Running tasks of a node (medians over the seeds)</h3><div class="plot" id="${placementId}"></div>`,
    ].join("\n"),
    plots,
  );
}
