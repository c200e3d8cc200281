/** Data of the plots on a rehearsal's page, as the program that writes the page computes them. Plain JSON. */

export interface ReportPlots {
  readonly plots: readonly Plot[];
  /** Steps of the scenario, in seconds, drawn into every plot. */
  readonly marks: readonly { readonly at: number; readonly text: string }[];
}

export interface Plot {
  /** Id of the element that holds it. */
  readonly id: string;
  /** Of the values: a share from 0 to 1, or a number of tasks. */
  readonly kind: "share" | "count";
  /** Seconds since the scenario began. */
  readonly times: readonly number[];
  readonly bands: readonly Band[];
}

/** Percentiles at each time; null: no value. */
export interface Band {
  readonly name: string;
  readonly low: readonly (number | null)[];
  readonly middle: readonly (number | null)[];
  readonly high: readonly (number | null)[];
}

/** Margins of every plot over time, as shares of its width: the same moment is at the same place in all. */
export const margins = { left: 0.07, right: 0.025 };
