/** When the rollouts of a service ran, as SVG: one row for each seed, from the longest total to the shortest. */
import type { RehearsalOutcome, RolloutOutcome } from "../../simulation/rehearsal/outcome.ts";
import { escaped } from "./page-text.ts";
import { margins, type ReportPlots } from "../../ui/report/plots.ts";
import { timeText } from "./report-texts.ts";
import { servicesBySeed } from "./report.ts";

/** Maximum number of rows; of more seeds, evenly chosen ones are drawn, with the longest. */
const rowsMax = 40;
const [width, rowHeight, axisHeight] = [1_000, 14, 18];
const left = margins.left * width;
const rowWidth = width * (1 - margins.left - margins.right);
const ticks = 6;

/** Empty: the service had no rollout. */
export function rolloutDrawing(
  { runs, durationMs }: RehearsalOutcome,
  name: string,
  marks: ReportPlots["marks"],
): string {
  const lengthOf = (rollouts: readonly RolloutOutcome[]): number =>
    rollouts.reduce((sum, { beganMs, endedMs }) => sum + (endedMs ?? durationMs) - beganMs, 0);
  const all = (servicesBySeed(runs).get(name) ?? [])
    .filter(({ of }) => of.rollouts.length > 0)
    .toSorted((a, b) => lengthOf(b.of.rollouts) - lengthOf(a.of.rollouts) || a.seed - b.seed);
  if (all.length === 0) return "";
  const count = Math.min(rowsMax, all.length);
  const rows = Array.from({ length: count }, (_, at) => all[Math.floor((at * all.length) / count)]);
  const bottom = count * rowHeight;
  const x = (ms: number): string => (left + (rowWidth * Math.min(ms, durationMs)) / durationMs).toFixed(1);
  const bars = rows.flatMap((row, at) => {
    const y = at * rowHeight;
    const ends = (row?.of.rollouts ?? []).map((rollout) => {
      const to = rollout.endedMs ?? durationMs;
      const length = Math.max(1.5, Number(x(to)) - Number(x(rollout.beganMs))).toFixed(1);
      const title = `seed ${row?.seed}: ${rollout.state} after ${timeText(to - rollout.beganMs)}`;
      return `<rect class="${classOf(rollout)}" x="${x(rollout.beganMs)}" y="${y + 2}" width="${length}" height="${rowHeight - 3}"><title>${escaped(title)}</title></rect>`;
    });
    return [
      `<rect class="row" x="${left}" y="${y + 1}" width="${rowWidth}" height="${rowHeight - 1}"/>`,
      `<text x="${left - 6}" y="${y + rowHeight - 3}" text-anchor="end">seed ${row?.seed}</text>`,
      ...ends,
    ];
  });
  const axis = Array.from({ length: ticks + 1 }, (_, at) => (durationMs * at) / ticks).map(
    (ms) => `<text x="${x(ms)}" y="${bottom + axisHeight - 4}" text-anchor="middle">${escaped(timeText(ms))}</text>`,
  );
  const lines = marks.map(({ at, text }) => {
    const to = x(at * 1_000);
    return `<line class="mark" x1="${to}" x2="${to}" y1="0" y2="${bottom}"><title>${escaped(text)}</title></line>`;
  });
  const label = `Rollouts of ${name}: ${count} of ${all.length} seeds, from the longest`;
  return `<svg viewBox="0 0 ${width} ${bottom + axisHeight}" role="img" aria-label="${escaped(label)}">${[...bars, ...lines, ...axis].join("")}</svg>`;
}

function classOf({ state, endedMs }: RolloutOutcome): string {
  if (endedMs === null) return "running";
  return state === "completed" ? "completed" : "stopped";
}
