/** Metrics as the sources write them, as the documentation describes them and as a process serves them; and Prometheus' promtool. */
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createMetrics } from "../../runtime/telemetry/metrics.ts";

export const top = fileURLToPath(new URL("../..", import.meta.url));

export type MetricType = "counter" | "gauge" | "histogram" | "summary";

/** Types by name of all metrics that processes may serve: ours from the sources, and prom-client's of a process. */
export async function metricTypes(): Promise<ReadonlyMap<string, MetricType>> {
  const types = new Map<string, MetricType>();
  for (const folder of ["actors", "edges", "processes", "runtime"])
    for (const file of readdirSync(join(top, folder), { recursive: true, encoding: "utf8" })) {
      if (!file.endsWith(".ts") || file.startsWith("sim/")) continue;
      const text = readFileSync(join(top, folder, file), "utf8");
      for (const [, type, name] of text.matchAll(/\b(counter|gauge|histogram)(?:\(\s*|: )"(muster_[a-z0-9_]+)"/g))
        types.set(name as string, type as MetricType);
    }
  const metrics = createMetrics();
  metrics.watchProcess();
  for (const [name, { type }] of served((await metrics.expose()).text)) types.set(name, type);
  return types;
}

/** Label names by metric, as docs/observability.md lists them; prom-client's are not listed there. */
export function documentedLabels(): ReadonlyMap<string, readonly string[]> {
  const labels = new Map<string, readonly string[]>();
  const text = readFileSync(join(top, "docs/observability.md"), "utf8");
  for (const [, name = "", list = ""] of text.matchAll(/`(muster_[a-z0-9_]+[a-z0-9])(?:\{([a-z,]+)\})?`/g))
    if (list !== "" || !labels.has(name)) labels.set(name, list === "" ? [] : list.split(","));
  return labels;
}

export interface ServedMetric {
  readonly type: MetricType;
  readonly help: string;
  /** Label names of its samples, without those of a histogram's or summary's own. */
  readonly labels: Set<string>;
}

/** The metrics of an answer of `/metrics`. */
export function served(text: string): ReadonlyMap<string, ServedMetric> {
  const found = new Map<string, ServedMetric>();
  let help = "";
  for (const line of text.split("\n")) {
    const [, helped] = /^# HELP \S+ (.*)$/.exec(line) ?? [];
    if (helped !== undefined) help = helped;
    const [, name, type] = /^# TYPE (\S+) (\S+)$/.exec(line) ?? [];
    if (name !== undefined) found.set(name, { type: type as MetricType, help, labels: new Set() });
    const [, sample = "", labels = ""] = /^([a-z][a-z0-9_]*)(?:\{([^}]*)\})? \S+$/.exec(line) ?? [];
    const metric = found.get(sample) ?? found.get(sample.replace(/_(?:bucket|sum|count)$/, ""));
    for (const [, label] of labels.matchAll(/([a-z_]+)="/g))
      if (label !== "le" && label !== "quantile") metric?.labels.add(label as string);
  }
  return found;
}

const candidates = [process.env["MUSTER_PROMTOOL"] ?? "", "promtool"].filter((path) => path !== "");

/** The promtool of MUSTER_PROMTOOL or on PATH (Debian's package prometheus has it); null if there is none. */
export const promtool: string | null =
  candidates.find((path) => spawnSync(path, ["--version"], { stdio: "ignore" }).status === 0) ?? null;

/** The server of the same package, beside promtool; null if there is none. */
export const prometheus: string | null =
  promtool === null
    ? null
    : ([promtool.replace(/promtool$/, "prometheus")].find(
        (path) => spawnSync(path, ["--version"], { stdio: "ignore" }).status === 0,
      ) ?? null);

/** Runs promtool in a folder of this tree; returns its output and exit status. */
export function runPromtool(folder: string, args: readonly string[], input?: string) {
  const ran = spawnSync(promtool as string, args, { cwd: join(top, folder), encoding: "utf8", input });
  return { code: ran.status, output: ran.stdout + ran.stderr };
}
