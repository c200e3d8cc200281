/** Sums up what generated paths reached of each chart, from one log line per chart (test/support/chart-model.ts). */

interface Share {
  readonly reached: number;
  readonly all: number;
}

export interface ChartCoverage {
  readonly states: Share;
  readonly transitions: Share;
}

/** The log line of a chart. */
export const coverageLine = (id: string, { states, transitions }: ChartCoverage): string =>
  `chart ${id}: ${states.reached}/${states.all} states, ${transitions.reached}/${transitions.all} transitions`;

const shape = /chart (\S+): (\d+)\/(\d+) states, (\d+)\/(\d+) transitions$/;

/** One line about all charts that these lines of a test's output name; null if they name none. */
export function summaryOfCoverage(lines: readonly string[]): string | null {
  const charts = new Map<string, readonly number[]>();
  for (const line of lines) {
    const [, id, ...counts] = shape.exec(line) ?? [];
    if (id !== undefined) charts.set(id, counts.map(Number));
  }
  if (charts.size === 0) return null;
  const [reachedStates, states, reachedTransitions, transitions] = [0, 1, 2, 3].map((index) =>
    [...charts.values()].reduce((sum, counts) => sum + (counts[index] ?? 0), 0),
  );
  return `${charts.size} charts: generated paths reach ${reachedStates} of ${states} states and ${reachedTransitions} of ${transitions} transitions; the others are listed with reasons in test/model/`;
}
