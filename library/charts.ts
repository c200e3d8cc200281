/** `import … from "muster/charts"`: the statecharts of the system, as XState machines. */
export { allCharts, type Chart } from "../cli/charts.ts";
