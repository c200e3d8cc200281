/** Draws the plots of a rehearsal's page. Everything that it needs is in the page. */
import uPlot from "uplot";
import { margins, type Plot, type ReportPlots } from "./plots.ts";

const height = 200;
const bandOpacity = 0.22;

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** `1h05m`, `12m`, `30s`. */
function clock(seconds: number): string {
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3_600), Math.floor(whole / 60) % 60, whole % 60];
  if (hours > 0) return `${hours}h${minutes > 0 ? `${String(minutes).padStart(2, "0")}m` : ""}`;
  return rest === 0 || minutes >= 10 ? `${minutes}m` : `${minutes > 0 ? `${minutes}m` : ""}${rest}s`;
}

function percent(share: number): string {
  return `${Number((share * 100).toFixed(1))}%`;
}

const bandColours = ["--band-1", "--band-2"] as const;

function colourOf(band: number): string {
  return colour(bandColours[band % bandColours.length] ?? "--band-1");
}

/** Vertical lines at the steps of the scenario. */
function marksPlugin(marks: ReportPlots["marks"]): uPlot.Plugin {
  return {
    hooks: {
      drawAxes: (plot) => {
        const { ctx, bbox } = plot;
        ctx.save();
        ctx.strokeStyle = colour("--mark");
        ctx.lineWidth = devicePixelRatio;
        ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
        for (const { at } of marks) {
          const x = Math.round(plot.valToPos(at, "x", true));
          if (x < bbox.left || x > bbox.left + bbox.width) continue;
          ctx.beginPath();
          ctx.moveTo(x, bbox.top);
          ctx.lineTo(x, bbox.top + bbox.height);
          ctx.stroke();
        }
        ctx.restore();
      },
    },
  };
}

function optionsFor({ kind, bands }: Plot, marks: ReportPlots["marks"], width: number): uPlot.Options {
  const text = (value: number | null): string =>
    value === null ? "–" : kind === "share" ? percent(value) : String(Number(value.toFixed(1)));
  const axis = {
    font: "12px system-ui, sans-serif",
    stroke: () => colour("--soft"),
    ticks: { stroke: () => colour("--line"), size: 4 },
    grid: { stroke: () => colour("--grid"), width: 1 },
  };
  const isOne = bands.length === 1;
  // A value holds until it changes.
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  return {
    width,
    height,
    padding: [null, (plot) => plot.width * margins.right, null, null],
    plugins: [marksPlugin(marks)],
    cursor: { y: false, sync: { key: "time" } },
    scales: {
      x: { time: false },
      y: { range: kind === "share" ? [0, 1.02] : (_, __, high) => [0, Math.max(1, high * 1.05)] },
    },
    axes: [
      {
        ...axis,
        values: (_, splits) => splits.map(clock),
        incrs: [1, 5, 10, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400, 604_800],
        space: 60,
      },
      { ...axis, size: ({ width: now }) => now * margins.left, values: (_, splits) => splits.map(text) },
    ],
    series: [
      { label: "time", value: (_, value) => (value === null ? "–" : clock(value)) },
      ...bands.flatMap(({ name }, at) => {
        const own = isOne ? "" : `${name} `;
        const line = {
          ...(stepped === undefined ? {} : { paths: stepped }),
          stroke: () => colourOf(at),
          points: { show: false },
          value: (_: uPlot, value: number | null) => text(value),
        };
        const words = kind === "share" ? ["p95", "median", "p5"] : ["fullest", "mean", "emptiest"];
        return [
          { ...line, label: `${own}${words[0]}`, width: 0.5 },
          { ...line, label: `${own}${words[1]}`, width: 2 },
          { ...line, label: `${own}${words[2]}`, width: 0.5 },
        ];
      }),
    ],
    bands: bands.map((_, at) => ({
      series: [1 + 3 * at, 3 + 3 * at] as [number, number],
      fill: () => faded(colourOf(at)),
    })),
  };
}

/** The colours are `#rrggbb`. */
function faded(hex: string): string {
  return `${hex}${Math.round(bandOpacity * 255)
    .toString(16)
    .padStart(2, "0")}`;
}

function draw({ plots, marks }: ReportPlots): void {
  const drawn = plots.flatMap((plot) => {
    const box = document.getElementById(plot.id);
    if (box === null) return [];
    const data = [plot.times, ...plot.bands.flatMap(({ high, middle, low }) => [high, middle, low])];
    return [{ box, of: new uPlot(optionsFor(plot, marks, box.clientWidth), data as uPlot.AlignedData, box) }];
  });
  addEventListener("resize", () => {
    for (const { box, of } of drawn) of.setSize({ width: box.clientWidth, height });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const { of } of drawn) of.redraw();
  });
}

const held = document.getElementById("plots");
if (held !== null) draw(JSON.parse(held.textContent) as ReportPlots);
