import test from "ava";
import fc from "fast-check";
import { comparisonLines } from "../../cli/simulate/comparison-lines.ts";
import { compared } from "../../cli/simulate/compare.ts";
import { comparisonPage, reportPage } from "../../cli/simulate/html.ts";
import { comparisonJson, reportJson } from "../../cli/simulate/json.ts";
import { plotsOf } from "../../cli/simulate/plot-data.ts";
import { shareText, timeText } from "../../cli/simulate/report-texts.ts";
import { readOutcome } from "../../cli/simulate/read-outcome.ts";
import { reportOf } from "../../cli/simulate/report.ts";
import { spreadOf } from "../../cli/simulate/spread.ts";
import { summaryLines } from "../../cli/simulate/summary.ts";
import type { RehearsalOutcome } from "../../simulation/rehearsal/outcome.ts";
import { drawnOutcome } from "../fixtures/rehearsal.ts";

const openCommand = (seed: number): string => `muster simulate --seed ${seed}`;
const hostile = `<script>alert("x")</script>\u001b[31m`;

test("percentiles are values that a seed had, in order", (t) => {
  t.deepEqual(spreadOf([5, 1, 3]), { min: 1, p5: 1, median: 3, p95: 5, max: 5 });
  t.is(spreadOf([]), null);
  fc.assert(
    fc.property(fc.array(fc.integer(), { minLength: 1 }), (values) => {
      const { min, p5, median, p95, max } = spreadOf(values) ?? { min: 0, p5: 0, median: 0, p95: 0, max: 0 };
      t.true(min <= p5 && p5 <= median && median <= p95 && p95 <= max);
      for (const value of [min, p5, median, p95, max]) t.true(values.includes(value));
      t.true(values.filter((value) => value <= median).length * 2 >= values.length);
    }),
  );
});

test("a share is never rounded to all or nothing", (t) => {
  t.deepEqual([0, 0.5, 0.9999999, 1, 0.0000001, 0.9995, 0.6667].map(shareText), [
    "0%",
    "50%",
    "99.999%",
    "100%",
    "0.001%",
    "99.95%",
    "66.7%",
  ]);
  t.deepEqual([0, 40, 1_500, 59_999, 60_000, 3_725_000].map(timeText), ["0s", "0s", "1.5s", "1m", "1m", "1h2m5s"]);
});

test("the summary has a verdict, each service, rollouts, moves and the seeds to open", (t) => {
  const lines = summaryLines(drawnOutcome({ violated: [7] }), { width: null, openCommand });
  t.is(lines[0], "rack-loss on shop.yaml: 2h, 40 seeds; 1 seed violated an invariant");
  t.true(lines.includes("  seed 7 after 30m: S12: two tasks of slot 3 run"));
  const text = lines.join("\n");
  t.regex(text, /^web +60% +60% +70% +95% +96\.2% +40s \/ 40s +seed 1$/m);
  t.regex(text, /^web +11m10s +24m30s +24m47s +4 +completed 36, updating 4$/m);
  t.regex(text, /web waited 3m14s on average in 40 rollouts: waiting for a task to be RUNNING/);
  t.regex(text, /api: median 4, p95 4, max 4 \(node NODE is down 153\)/);
  t.regex(text, /seed 7: violates an invariant\n {4}muster simulate --seed 7/);
});

test("a report has a row for each job: when it succeeded, how often it did not, and its failed tasks", (t) => {
  const outcome = drawnOutcome({ seeds: 8, jobs: ["import"] });
  const [job] = reportOf(outcome)?.jobs ?? [];
  t.like(job, { name: "import", executions: 8, unfinished: 2 });
  t.deepEqual(job?.states, [
    { text: "succeeded", count: 6 },
    { text: "working", count: 2 },
  ]);
  t.like(job?.failedTasks, { min: 0, max: 2 });
  const text = summaryLines(outcome, { width: null, openCommand }).join("\n");
  t.regex(text, /^import +8 +4m +8m +8m +2 +succeeded 6, working 2 +1 \/ 2$/m);
  t.regex(text, /^ {2}import: median 1, p95 2, max 2 \(task failed: exit code 1 9\)$/m);
  const page = reportPage(outcome, openCommand);
  t.regex(page, /<h2>Jobs<\/h2>/);
  t.false(reportPage(drawnOutcome({ seeds: 2 }), openCommand).includes("<h2>Jobs</h2>"));
});

test("a job of two rehearsals is compared seed by seed, and one that does not end any more is worse", (t) => {
  const before = drawnOutcome({ seeds: 4, jobs: ["import"] });
  const runs = before.runs.map((run) => ({
    ...run,
    jobs: run.jobs.map((job) => ({
      ...job,
      executions: job.executions.map((each) => ({
        ...each,
        endedMs: run.seed === 1 ? null : each.endedMs,
        state: run.seed === 1 ? "working" : each.state,
      })),
    })),
  }));
  const { jobs } = compared(before, { ...before, runs });
  t.like(jobs[0], { name: "import" });
  const time = jobs[0]?.differences.find(({ measure }) => measure === "jobMs");
  t.like(time, { better: 0, worse: 1, same: 3 });
  t.regex(comparisonLines(before, { ...before, runs }, null).join("\n"), /^time until it succeeded /m);
  t.regex(comparisonPage(before, before), /<h2>Job import<\/h2>/);
});

test("a quiet rehearsal has no seeds to open, and an empty one says so", (t) => {
  const { runs, ...rest } = drawnOutcome({ seeds: 1, lost: 0, services: [] });
  const lines = summaryLines({ ...rest, runs, seedsWanted: 3 }, { width: 80, openCommand });
  t.is(lines[0], "rack-loss on shop.yaml: 2h, 1 of 3 seeds; all invariants held");
  t.false(lines.some((line) => line.startsWith("Seeds to look at")));
  t.deepEqual(summaryLines({ ...rest, runs: [] }, { width: 80, openCommand }), ["rack-loss: no seed was finished"]);
  t.throws(() => reportPage({ ...rest, runs: [] }, openCommand), { message: /no seed was finished/ });
});

test("control characters of names do not reach the terminal", (t) => {
  const outcome = { ...drawnOutcome({ services: [hostile], violated: [1] }), scenario: hostile };
  const text = [...summaryLines(outcome, { width: 60, openCommand }), ...comparisonLines(outcome, outcome, 60)].join(
    "\n",
  );
  t.false(text.includes("\u001b"));
});

test("the JSON report has a version, the summary and all runs", (t) => {
  const outcome = drawnOutcome({ seeds: 3 });
  const { version, report, runs } = JSON.parse(reportJson(outcome, "muster simulate")) as Record<string, unknown>;
  t.is(version, 1);
  t.deepEqual(report, JSON.parse(JSON.stringify(reportOf(outcome))));
  t.deepEqual(runs, outcome.runs);
  const comparison = JSON.parse(comparisonJson(outcome, outcome)) as Record<string, unknown>;
  t.deepEqual(comparison["comparison"], JSON.parse(JSON.stringify(compared(outcome, outcome))));
});

test("a saved report is read back, also one of a version that had no jobs", (t) => {
  const outcome = drawnOutcome({ seeds: 2, jobs: ["import"] });
  const saved = reportJson(outcome, "muster simulate");
  t.deepEqual(readOutcome(saved, "a.json").outcome, outcome);
  const { report, runs, ...rest } = JSON.parse(saved) as { readonly report: object; readonly runs: readonly object[] };
  const older = JSON.stringify({ ...rest, report, runs: runs.map((run) => ({ ...run, jobs: undefined })) });
  t.deepEqual(
    readOutcome(older, "a.json").outcome.runs.map(({ jobs }) => jobs),
    [[], []],
  );
  const wrong = JSON.stringify({ ...rest, report, runs: runs.map((run) => ({ ...run, jobs: [{ name: 1 }] })) });
  t.throws(() => readOutcome(wrong, "a.json"), { message: "a.json: runs[0].jobs[0].name must be a string" });
});

test("a comparison counts seeds, of those that both have", (t) => {
  const before = drawnOutcome({ seeds: 10, lost: 3 });
  const after = drawnOutcome({ seeds: 8, lost: 1 });
  const { seeds, services } = compared(before, after);
  t.is(seeds, 8);
  const [web] = services;
  const availability = web?.differences.find(({ measure }) => measure === "availabilityMin");
  t.like(availability, { better: 8, worse: 0, same: 0 });
  const moves = web?.differences.find(({ measure }) => measure === "moves");
  t.like(moves, { better: 8, worse: 0, same: 0, medianChange: -2 });
  for (const { differences } of compared(after, before).services)
    t.like(
      differences.find(({ measure }) => measure === "moves"),
      { better: 0, worse: 8 },
    );
  for (const { better, worse, same } of services.flatMap(({ differences }) => differences))
    t.is(better + worse + same, 8);
});

test("a rollout that does not end any more is worse", (t) => {
  const before = drawnOutcome({ seeds: 1 });
  const after = endless(before);
  const rollouts = (a: RehearsalOutcome, b: RehearsalOutcome) =>
    compared(a, b).services[0]?.differences.find(({ measure }) => measure === "rolloutMs");
  t.like(rollouts(before, after), { better: 0, worse: 1, same: 0, medianChange: null });
  t.like(rollouts(after, before), { better: 1, worse: 0, same: 0 });
  t.like(rollouts(after, after), { better: 0, worse: 0, same: 1 });
});

function endless(outcome: RehearsalOutcome): RehearsalOutcome {
  const runs = outcome.runs.map((run) => ({
    ...run,
    services: run.services.map((service) => ({
      ...service,
      rollouts: service.rollouts.map((rollout) => ({ ...rollout, endedMs: null, state: "updating" })),
    })),
  }));
  return { ...outcome, runs };
}

test("plots show the lowest share of each interval, and the steps that all seeds have", (t) => {
  const base = drawnOutcome({ seeds: 2, services: ["web"] });
  const [run] = base.runs;
  if (run === undefined) return t.fail();
  const replicas = [
    { atMs: 0, wanted: 4, running: 4 },
    { atMs: 3_600_100, wanted: 4, running: 1 },
    { atMs: 3_600_200, wanted: 4, running: 4 },
  ];
  const runs = base.runs.map((each) => ({ ...each, services: each.services.map((one) => ({ ...one, replicas })) }));
  const { plots, marks } = plotsOf([{ ...base, runs }], [""]);
  const [web] = plots;
  t.is(Math.min(...(web?.bands[0]?.low ?? []).map((value) => value ?? 1)), 0.25);
  t.is(web?.bands[0]?.low.filter((value) => value === 0.25).length, 1);
  t.is(web?.times.at(-1), 7_200);
  t.deepEqual(
    marks.map(({ at }) => at),
    [300, 1_200],
  );
});

test("a page runs its own script only, loads nothing, and escapes every text", (t) => {
  const outcome = drawnOutcome({ services: [hostile, "</script><b>"], violated: [2] });
  const runs = outcome.runs.map((run) => ({
    ...run,
    events: [...run.events, { atMs: 1, text: `</script>${hostile}` }],
  }));
  const named = { ...outcome, runs, scenario: hostile, cluster: "<b>&amp;</b>" };
  for (const page of [reportPage(named, () => hostile), comparisonPage(named, named)]) {
    t.regex(
      page,
      /content="default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'; base-uri 'none'; form-action 'none'"/,
    );
    t.is(page.match(/<script/g)?.length, 2, "the data and the program");
    t.is(page.match(/<\/script/g)?.length, 2);
    t.false(/<b>/.test(page));
    t.false(/\s(?:src|href|style|onload|onclick)=/.test(page.replace(/<script>[\s\S]*?<\/script>/, "")));
    const data = /<script type="application\/json" id="plots">(.*)<\/script>/.exec(page)?.[1] ?? "";
    t.notThrows(() => JSON.parse(data) as unknown);
  }
});
