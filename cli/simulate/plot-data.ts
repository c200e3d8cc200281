/** Plots of a rehearsal's page: each value at evenly spaced times, with its percentiles over the seeds. */
import type { RehearsalOutcome, RunOutcome, ServiceOutcome } from "../../simulation/rehearsal/outcome.ts";
import type { Band, Plot, ReportPlots } from "../../ui/report/plots.ts";
import { servicesBySeed } from "./report.ts";
import { spreadOf } from "./spread.ts";

/** As many as a wide screen has room for, and few enough for pages of some hundred services. */
const pointsMax = 400;

/** Times in seconds. */
function gridOf(durationMs: number): readonly number[] {
  const count = Math.min(pointsMax, Math.max(2, Math.ceil(durationMs / 1_000)));
  return Array.from({ length: count + 1 }, (_, at) => (durationMs * at) / count / 1_000);
}

/** Of several outcomes, a band for each, in the same plots. `names`: of the outcomes. */
export function plotsOf(outcomes: readonly RehearsalOutcome[], names: readonly string[]): ReportPlots {
  const times = gridOf(Math.max(...outcomes.map(({ durationMs }) => durationMs)));
  const bySeed = outcomes.map(({ runs }) => servicesBySeed(runs));
  const services = [...new Set(bySeed.flatMap((each) => [...each.keys()]))];
  const plots = services.map((name, at): Plot => {
    const bands = bySeed.map((each, which): Band => {
      const all = (each.get(name) ?? []).map(({ of }) => sharesAt(of, times));
      return { name: names[which] ?? "", ...percentilesOf(all) };
    });
    return { id: availabilityId(at), kind: "share", times, bands };
  });
  const placement: Plot = {
    id: placementId,
    kind: "count",
    times,
    bands: outcomes.map(({ runs }, which) => ({ name: names[which] ?? "", ...placementBand(runs, times) })),
  };
  return { plots: [...plots, placement], marks: marksOf(outcomes.flatMap(({ runs }) => runs)) };
}

export const placementId = "placement";

/** `at`: the service's position on the page. */
export function availabilityId(at: number): string {
  return `availability-${at}`;
}

/** Running share at each time; null before the service exists. */
function sharesAt({ replicas }: ServiceOutcome, times: readonly number[]): readonly (number | null)[] {
  let next = 0;
  let share: number | null = null;
  return times.map((seconds) => {
    // The lowest value of the step, so that a short loss shows.
    let least: number | null = null;
    for (let change = replicas[next]; change !== undefined && change.atMs <= seconds * 1_000; change = replicas[next]) {
      share = change.wanted === 0 ? 1 : Math.min(1, change.running / change.wanted);
      least = Math.min(least ?? share, share);
      next += 1;
    }
    return least ?? share;
  });
}

function percentilesOf(all: readonly (readonly (number | null)[])[]): Omit<Band, "name"> {
  const length = all[0]?.length ?? 0;
  const spreads = Array.from({ length }, (_, at) => spreadOf(all.flatMap((values) => values[at] ?? [])));
  return {
    low: spreads.map((spread) => spread?.p5 ?? null),
    middle: spreads.map((spread) => spread?.median ?? null),
    high: spreads.map((spread) => spread?.p95 ?? null),
  };
}

/** Medians over the seeds, of the emptiest node, the mean and the fullest. */
function placementBand(runs: readonly RunOutcome[], times: readonly number[]): Omit<Band, "name"> {
  const of = (key: "min" | "mean" | "max"): readonly (number | null)[] => {
    const all = runs.map(({ placement }) => {
      let next = 0;
      let value: number | null = null;
      return times.map((seconds) => {
        for (
          let sample = placement[next];
          sample !== undefined && sample.atMs <= seconds * 1_000;
          sample = placement[next]
        ) {
          value = sample[key];
          next += 1;
        }
        return value;
      });
    });
    return times.map((_, at) => spreadOf(all.flatMap((values) => values[at] ?? []))?.median ?? null);
  };
  return { low: of("min"), middle: of("mean"), high: of("max") };
}

/** Times at which every run has an event, other than by chance: the scenario's steps. Drawn nodes differ between the seeds. */
export function marksOf(runs: readonly RunOutcome[]): ReportPlots["marks"] {
  const [first, ...others] = runs;
  const times = others.map(({ events }) => new Map(events.map(({ atMs, text }) => [atMs, text] as const)));
  return (first?.events ?? [])
    .filter(({ atMs }) => times.every((each) => each.has(atMs)))
    .map(({ atMs, text }) => {
      const isSame = others.every(({ events }) => events.some((each) => each.atMs === atMs && each.text === text));
      return { at: atMs / 1_000, text: isSame ? text : `${text} (other seeds differ)` };
    });
}
