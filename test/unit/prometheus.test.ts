// The rules and dashboards of deploy/: every metric that they name exists with that type and these labels; and names of metrics by
// Prometheus' conventions.
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import anyTest from "ava";
import { parse } from "yaml";
import { documentedLabels, metricTypes, promtool, runPromtool, top, type MetricType } from "../support/prometheus.ts";

const test = anyTest;
const real = promtool === null ? anyTest.skip : anyTest;

interface Rules {
  readonly groups: readonly {
    readonly name: string;
    readonly rules: readonly {
      readonly alert: string;
      readonly expr: string;
      readonly labels: { readonly severity: string };
      readonly annotations: { readonly summary: string; readonly description: string };
    }[];
  }[];
}

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly fieldConfig?: { readonly defaults: { readonly unit: string } };
  readonly targets?: readonly { readonly refId: string; readonly expr: string; readonly legendFormat: string }[];
}

interface Dashboard {
  readonly uid: string;
  readonly title: string;
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly name: string; readonly query: unknown }[] };
}

const rulesFile = "deploy/prometheus/muster.rules.yml";
const read = (path: string): string => readFileSync(join(top, path), "utf8");
const rules = parse(read(rulesFile)) as Rules;
const dashboards = readdirSync(join(top, "deploy/grafana"))
  .filter((name) => name.endsWith(".json"))
  .map((name) => ({
    name: `deploy/grafana/${name}`,
    dashboard: JSON.parse(read(`deploy/grafana/${name}`)) as Dashboard,
  }));

/** Every expression of deploy/, with the place that has it. */
const expressions: readonly { readonly place: string; readonly expr: string }[] = [
  ...rules.groups.flatMap((group) => group.rules.map(({ alert, expr }) => ({ place: `${rulesFile}, ${alert}`, expr }))),
  ...dashboards.flatMap(({ dashboard, name }) =>
    dashboard.panels.flatMap(({ targets = [], title }) =>
      targets.map(({ expr }) => ({ place: `${name}, ${title}`, expr })),
    ),
  ),
];

/** Labels that Prometheus adds. */
const ownLabels = ["instance", "job", "le"];

interface Named {
  readonly series: string;
  readonly name: string;
  readonly type: MetricType | undefined;
  /** Labels that its selector names. */
  readonly labels: readonly string[];
  /** The function around it that needs a counter, if any. */
  readonly inFunction: string;
}

function metricsIn(expr: string, types: ReadonlyMap<string, MetricType>): readonly Named[] {
  return Array.from(
    expr.matchAll(/(?:\b(rate|increase|irate)\()?\b(muster_[a-z0-9_]+)(?:\{([^}]*)\})?/g),
    ([, inFunction = "", series = "", selector = ""]) => {
      const base = series.replace(/_(?:bucket|sum|count)$/, "");
      const name = types.has(series) ? series : base;
      const labels = Array.from(selector.matchAll(/([a-z_]+)\s*(?:=~|!~|!=|=)/g), ([, label]) => label as string);
      return { series, name, type: types.get(name), labels, inFunction };
    },
  );
}

test("each metric that a rule or dashboard names exists, with a type that fits its use and with its labels", async (t) => {
  const types = await metricTypes();
  const labelsOf = documentedLabels();
  let count = 0;
  for (const { expr, place } of expressions) {
    const named = metricsIn(expr, types);
    for (const { inFunction, labels, name, series, type } of named) {
      count += 1;
      t.not(type, undefined, `${place}: no process serves ${series}`);
      const isCumulative = type === "counter" || (type === "histogram" && series !== name);
      t.is(
        isCumulative,
        inFunction !== "",
        `${place}: ${series} is a ${type}, and is ${inFunction || "not in rate()"}`,
      );
      const known = [...ownLabels, ...(labelsOf.get(name) ?? [])];
      for (const label of labels) t.true(known.includes(label), `${place}: ${name} has no label ${label}`);
      for (const [, list = ""] of expr.matchAll(/\bby \(([^)]*)\)/g))
        for (const label of list.split(",").map((each) => each.trim()))
          t.true(known.includes(label), `${place}: ${name} has no label ${label}`);
    }
    t.true(named.length > 0 || /\bup\b/.test(expr), `${place} names no metric`);
  }
  t.true(count > 50, "too few were found");
});

test("names of metrics follow Prometheus' conventions", async (t) => {
  const types = await metricTypes();
  t.true(types.size > 80, "too few were found");
  // Those of Node and the process are named by prom-client.
  for (const [name, type] of [...types].filter(([each]) => !/^muster_(?:nodejs|process)_/.test(each))) {
    t.regex(name, /^muster_[a-z][a-z0-9]*(?:_[a-z0-9]+)*$/, name);
    t.is(type === "counter", name.endsWith("_total"), `${name} is a ${type}: counters, and only they, end with _total`);
    t.notRegex(name, /_(?:ms|millis|milliseconds|minutes|hours|kb|mb|mib|percent)(?:_|$)/, `${name}: use base units`);
    t.notRegex(
      name,
      /_(?:counter|gauge|histogram|count|sum|bucket)$/,
      `${name} ends with a type or a suffix of series`,
    );
    if (type === "histogram") t.regex(name, /_(?:seconds|bytes)$/, `${name}: a histogram ends with its unit`);
  }
});

test("alerts have a severity and say what to do, and dashboards have no panel without unit or over another", (t) => {
  const alerts = rules.groups.flatMap((group) => group.rules);
  t.is(new Set(alerts.map(({ alert }) => alert)).size, alerts.length);
  for (const { alert, annotations, labels } of alerts) {
    t.regex(alert, /^Muster[A-Z]\w+$/);
    t.regex(labels.severity, /^(?:page|ticket)$/, alert);
    t.true(annotations.summary !== "" && annotations.description.length > 20, alert);
  }
  t.is(new Set(dashboards.map(({ dashboard }) => dashboard.uid)).size, dashboards.length);
  t.true(dashboards.length >= 2);
  for (const { dashboard, name } of dashboards) {
    t.is(new Set(dashboard.panels.map(({ id }) => id)).size, dashboard.panels.length, name);
    const taken = new Map<string, string>();
    for (const { fieldConfig, gridPos, targets = [], title, type } of dashboard.panels) {
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1)
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
          t.is(taken.get(`${x},${y}`), undefined, `${name}: ${title} lies over another panel`);
          taken.set(`${x},${y}`, title);
        }
      t.true(gridPos.x + gridPos.w <= 24, `${name}: ${title} is too wide`);
      if (type === "row") continue;
      t.truthy(fieldConfig?.defaults.unit, `${name}: ${title} has no unit`);
      t.true(targets.length > 0 && targets.every(({ legendFormat }) => legendFormat !== ""), `${name}: ${title}`);
    }
  }
});

real("promtool accepts the rules, their tests and the configuration", (t) => {
  for (const args of [
    ["check", "rules", "muster.rules.yml"],
    ["check", "config", "prometheus.yml"],
    ["test", "rules", "muster.rules.test.yml"],
  ]) {
    const { code, output } = runPromtool("deploy/prometheus", args);
    t.is(code, 0, output);
  }
});

real("promtool accepts every expression of the dashboards", (t) => {
  const panels = dashboards.flatMap(({ dashboard }) => dashboard.panels.flatMap(({ targets = [] }) => targets));
  const recorded = panels.map(({ expr }, at) => ({
    record: `dashboard:expression${at}`,
    expr: expr.replaceAll("$instance", ".*"),
  }));
  const folder = mkdtempSync(join(tmpdir(), "muster-dashboards-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, "rules.yml"), JSON.stringify({ groups: [{ name: "dashboards", rules: recorded }] }));
  const { code, output } = runPromtool("deploy/prometheus", ["check", "rules", join(folder, "rules.yml")]);
  t.is(code, 0, output);
  t.regex(output, new RegExp(`SUCCESS: ${panels.length} rules found`));
});
