/** The plot of the time line: how many events there were over time, and how many of them were trouble. */
import uPlot from "uplot";
import type { TimelineOverview } from "../../proto/gen/page.ts";
import type { Span } from "../model/span.ts";

/** In sizes of the page's font: the axis with the times (also in the style sheet), its text, and the longest of these. */
const axisHeight = 1.6;
const axisFont = 0.85;
const axisTextWidth = 6.2;
/** Trouble is drawn at least this high, as a share of the highest bar: one bad event among thousands must be seen. */
const troubleShareMin = 0.2;

interface Colours {
  readonly steps: string;
  readonly troubles: string;
  readonly text: string;
  readonly line: string;
}

export interface Density {
  /** `divided`: the part that the overview's buckets divide. `span`: the part that is shown. */
  draw(overview: TimelineOverview | null, divided: Span, span: Span): void;
  resize(): void;
  destroy(): void;
}

/** Heights grow with the square root, so that quiet times do not vanish beside busy ones. */
function dataOf({ steps, troubles }: TimelineOverview, { fromMs, toMs }: Span): uPlot.AlignedData {
  const width = (toMs - fromMs + 1) / Math.max(1, steps.length);
  const times = steps.map((_, index) => (fromMs + (index + 0.5) * width) / 1_000);
  const high = Math.sqrt(steps.reduce((most, number) => Math.max(most, number), 1));
  return [
    times,
    steps.map((number) => Math.sqrt(number) / high),
    troubles.map((number) => (number === 0 ? null : Math.max(troubleShareMin, Math.sqrt(number) / high))),
  ];
}

/** `colours` is asked at each drawing, since the page's may change. */
export function createDensity(box: HTMLElement, colours: () => Colours): Density {
  let span: Span = { fromMs: 0, toMs: 1 };
  const size = (): { width: number; height: number } => ({ width: box.clientWidth, height: box.clientHeight });
  const em = Number.parseFloat(getComputedStyle(box).fontSize);
  const labelRoom = axisTextWidth * em;
  const bars = uPlot.paths.bars?.({ size: [1], gap: 0 });
  const series = { ...(bars === undefined ? {} : { paths: bars }), points: { show: false }, width: 0 };
  const plot = new uPlot(
    {
      ...size(),
      padding: [4, 0, 0, 0],
      cursor: { show: false },
      legend: { show: false },
      scales: {
        x: { range: () => [span.fromMs / 1_000, Math.max(span.toMs, span.fromMs + 1) / 1_000] },
        y: { range: [0, 1] },
      },
      axes: [
        {
          size: axisHeight * em,
          font: `${axisFont * em}px system-ui, sans-serif`,
          stroke: () => colours().text,
          ticks: { stroke: () => colours().line, size: 4 },
          grid: { stroke: () => colours().line, width: 1 },
          gap: 2,
          // Hours from 0 to 24, as in every other time on the page.
          values: (plot, splits, _, __, incr) =>
            splits.map((seconds) => {
              const x = plot.valToPos(seconds, "x");
              return x < labelRoom / 2 || x > box.clientWidth - labelRoom / 2 ? "" : axisText(seconds, incr);
            }),
          space: labelRoom * 1.3,
        },
        { show: false },
      ],
      series: [{}, { ...series, fill: () => colours().steps }, { ...series, fill: () => colours().troubles }],
    },
    [[], [], []],
    box,
  );
  return {
    draw(overview, divided, next) {
      span = next;
      plot.setData(overview === null ? [[], [], []] : dataOf(overview, divided));
    },
    resize: () => plot.setSize(size()),
    destroy: () => plot.destroy(),
  };
}

/** `incr`: seconds between two marks. */
function axisText(seconds: number, incr: number): string {
  const at = new Date(seconds * 1_000);
  const time = at.toTimeString().slice(0, incr < 60 ? 8 : 5);
  if (incr < 1) return `${time}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  if (incr < 86_400) return time;
  return at.toLocaleDateString(undefined, { month: "short", day: "numeric" });
}
