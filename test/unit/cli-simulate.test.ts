import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import fc from "fast-check";
import { reportJson } from "../../cli/simulate/json.ts";
import { readCluster } from "../../cli/simulate/read-cluster.ts";
import { readOutcome } from "../../cli/simulate/read-outcome.ts";
import { UserError } from "../../lib/user-error.ts";
import { tempDir } from "../fixtures/muster.ts";
import { drawnOutcome } from "../fixtures/rehearsal.ts";
import { readyNode, served } from "../support/served.ts";

test("a running cluster is saved as a file that reads back, without the environment of its services", async (t) => {
  const { manager, muster } = await served(t);
  manager.seed("node", readyNode("n1", "alpha"), readyNode("n2", "beta"));
  await muster("network", "create", "back");
  await muster(
    "service",
    "create",
    "-d",
    "--name",
    "web",
    "--replicas",
    "3",
    "--env",
    "TOKEN=hunter2",
    "--network",
    "back",
    "bb:1",
  );
  await muster("service", "create", "-d", "--name", "top", "--constraint", "node.role==manager", "bb:1");
  const path = join(tempDir(t, "saved"), "cluster.yaml");
  // A test's log answers by the manager's clock.
  const timer = setInterval(() => manager.clock.advance(1), 1);
  t.teardown(() => clearInterval(timer));
  const { lines, remarks, status } = await muster(
    "simulate",
    "--from-cluster",
    "--save",
    path,
    "--scenario",
    "bad-image",
  );
  t.is(status, 0, remarks.join("\n"));
  t.regex(lines[0] ?? "", /^1 manager, 2 nodes, 1 service; bad-image: 1 step$/);
  t.regex(remarks.join("\n"), /times and failures are those of the log's last/);
  t.true(remarks.includes("left out: 1 service that none of these nodes can run"), remarks.join("\n"));
  const text = readFileSync(path, "utf8");
  t.false(text.includes("hunter2"));
  const plan = readCluster(text, path, { get: () => undefined });
  t.deepEqual(
    plan.nodes.map(({ name }) => name),
    ["alpha", "beta"],
  );
  t.deepEqual(
    plan.services.map(({ spec }) => spec.annotations?.name),
    ["web"],
  );
  t.deepEqual(
    plan.networks.map(({ annotations }) => annotations?.name),
    ["back"],
  );
});

test("ready scenarios are listed and completed, and mistakes name the file", async (t) => {
  const { muster } = await served(t);
  t.regex((await muster("simulate", "--list")).lines.join("\n"), /^slow-disk {3,}The disk of the log/m);
  t.deepEqual((await muster("completion", "words", "--", "simulate", "--scenario", "slow")).lines, [
    "slow-disk",
    ":files",
  ]);
  const unknown = await muster("simulate", "--check", "--scenario", "slow-dis");
  t.is(unknown.status, 2);
  t.regex(unknown.remarks.join("\n"), /no scenario 'slow-dis': did you mean 'slow-disk'\?/);
  const path = join(tempDir(t, "wrong"), "c.yaml");
  writeFileSync(path, "nodes: x\nmanagers: 0");
  const wrong = await muster("simulate", "--check", "--file", path);
  t.is(wrong.status, 2);
  t.deepEqual(
    wrong.remarks
      .join("\n")
      .split("\n")
      .map((line) => line.slice(line.indexOf(`${path}:`))),
    [
      `${path}:1:8: nodes: must be a whole number from 1 to 20000, not 'x'`,
      `${path}:2:11: managers: must be a whole number from 1 to 9, not '0'`,
    ],
  );
});

test("a saved report is printed again, written as a page, and compared with another", async (t) => {
  const { muster } = await served(t);
  const folder = tempDir(t, "reports");
  const [before, after, page] = ["before.json", "after.json", "page.html"].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  const command = "muster simulate --file shop.yaml --scenario rack-loss";
  writeFileSync(before, reportJson(drawnOutcome({ seeds: 5, violated: [2] }), command));
  const printed = await muster("simulate", before, "--html", page, "--json", `${before}.2`);
  t.regex(printed.lines.join("\n"), /^rack-loss on shop\.yaml: 2h, 5 seeds; 1 seed violated an invariant$/m);
  t.true(printed.lines.includes(`    ${command} --seed 2 --record seed-2.mrec && muster replay seed-2.mrec`));
  t.true(printed.lines.includes("Requests: none of 3600 failed"));
  const whole = drawnOutcome({ seeds: 5 });
  const refusals = [{ atMs: 1, request: "list services", reason: "UNAVAILABLE: no leader" }];
  writeFileSync(after, reportJson({ ...whole, runs: whole.runs.map((run) => ({ ...run, refusals })) }, command));
  const failed = (await muster("simulate", after)).lines.join("\n");
  t.regex(failed, /^Requests: 5 failed, of the scenario's and the 3600 of the probe; median 1 of a seed/m);
  t.is(readFileSync(`${before}.2`, "utf8"), readFileSync(before, "utf8"), "reading and writing change nothing");
  t.regex(readFileSync(page, "utf8"), /<h1>rack-loss on shop\.yaml<\/h1>/);
  writeFileSync(after, reportJson(drawnOutcome({ seeds: 5, lost: 1 }), command));
  const comparison = await muster("simulate", before, after, "--html", page);
  t.regex(comparison.lines.join("\n"), /^minimum availability +60% +80% +\+20% +5 +0 +0$/m);
  t.regex(readFileSync(page, "utf8"), /Comparison of two rehearsals/);
  const asJson = await muster("simulate", before, "--format", "json");
  t.deepEqual(asJson.lines, [readFileSync(before, "utf8")], "standard output has nothing else");
  const both = await muster("simulate", before, after, "--format", "json");
  t.deepEqual(Object.keys(JSON.parse(both.lines.join("\n")) as object), ["version", "comparison", "before", "after"]);
  const yaml = await muster("simulate", before, "--format", "yaml");
  t.is(yaml.status, 125);
  t.regex(yaml.remarks.join("\n"), /invalid argument "yaml" for "--format" flag: expected table or json/);
  const missing = await muster("simulate", join(folder, "none.json"));
  t.regex(missing.remarks.join("\n"), /cannot read the report .*none\.json/);
});

test("a report in which a value is replaced is read, or refused with the value's name", (t) => {
  const right = JSON.parse(reportJson(drawnOutcome({ seeds: 1 }), "muster")) as unknown;
  const value = fc.oneof(fc.constant(null), fc.integer(), fc.string(), fc.constant([]), fc.constant({}));
  const path = fc.array(fc.nat({ max: 9 }), { maxLength: 6 });
  fc.assert(
    fc.property(path, value, (steps, by) => {
      const text = JSON.stringify(damaged(right, steps, by));
      try {
        readOutcome(text, "r.json");
      } catch (error) {
        if (!(error instanceof UserError)) throw error;
        t.regex(error.message, /^r\.json/);
      }
    }),
    { numRuns: 500 },
  );
  t.throws(() => readOutcome("{", "r.json"), {
    instanceOf: UserError,
    message: /^r\.json is not a report of a rehearsal/,
  });
  t.throws(() => readOutcome("{}", "r.json"), { message: /expected a report with version 1/ });
  const wrong = JSON.stringify(damaged(right, [3, 0, 0], "x"));
  t.throws(() => readOutcome(wrong, "r.json"), { message: "r.json: runs[0].seed must be a number" });
});

function damaged(right: unknown, [first, ...rest]: readonly number[], by: unknown): unknown {
  if (first === undefined || typeof right !== "object" || right === null) return by;
  const entries = Object.entries(right);
  const [key] = entries[first % Math.max(1, entries.length)] ?? [""];
  const changed = entries.map(([name, each]) => [name, name === key ? damaged(each, rest, by) : each] as const);
  return Array.isArray(right) ? changed.map(([, each]) => each) : Object.fromEntries(changed);
}

/** Paths of the values of a report; of a list, those of its first element. */
function pathsIn(value: unknown, path: readonly string[] = []): readonly (readonly string[])[] {
  if (typeof value !== "object" || value === null) return [path];
  const entries = Array.isArray(value) ? Object.entries(value).slice(0, 1) : Object.entries(value);
  return [path, ...entries.flatMap(([key, each]) => pathsIn(each, [...path, key]))];
}

test("each value of a run that has another type is refused", (t) => {
  const text = reportJson(drawnOutcome({ seeds: 4 }), "muster");
  const paths = pathsIn(JSON.parse(text), []).filter(([top]) => top === "runs" || top === "command");
  t.true(paths.some((path) => path.at(-1) === "refusals") && paths.length > 40);
  for (const path of paths) {
    const report = JSON.parse(text) as Record<string, unknown>;
    const holder = path.slice(0, -1).reduce<Record<string, unknown>>((held, key) => held[key] as typeof held, report);
    const key = path.at(-1) ?? "";
    // Neither is a number, a text, a list or null; an object is expected only where there is one.
    holder[key] = typeof holder[key] === "object" && !Array.isArray(holder[key]) && holder[key] !== null ? 0 : {};
    t.throws(() => readOutcome(JSON.stringify(report), "r.json"), { instanceOf: UserError }, path.join("."));
  }
});

test("a rehearsal prints its report, writes it, and ends with a status that tells mistakes from violations", async (t) => {
  const { muster } = await served(t);
  const folder = tempDir(t, "rehearsed");
  const [cluster, other, scenario, json] = ["a.yaml", "b.yaml", "s.yaml", "r.json"].map((name) => join(folder, name));
  const text = "managers: 1\nnodes: 2\nservices: {web: {deploy: {replicas: 2}}}\n";
  writeFileSync(cluster as string, text);
  writeFileSync(other as string, text.replace("replicas: 2", "replicas: 4"));
  writeFileSync(scenario as string, "duration: 1m\nsteps: [{at: 10s, scale: {service: web, replicas: 3}}]\n");
  const flags = ["--file", cluster as string, "--scenario", scenario as string, "--seeds", "2", "-j", "1"];
  const run = await muster("simulate", ...flags, "--json", json as string);
  t.is(run.status, 0, run.remarks.join("\n"));
  t.regex(run.lines.join("\n"), /^s on a\.yaml: 1m, 2 seeds; all invariants held/);
  t.deepEqual(run.remarks, ["1 of 2 seeds, 50 %", "2 of 2 seeds, 100 %"]);
  const { command, outcome } = readOutcome(readFileSync(json as string, "utf8"), "r.json");
  t.is(command, `muster simulate --file ${cluster} --scenario ${scenario}`);
  t.deepEqual(
    outcome.runs.map(({ seed, services }) => [seed, services[0]?.replicas.at(-1)?.running]),
    [
      [1, 3],
      [2, 3],
    ],
  );
  const compared = await muster("simulate", ...flags, "--compare", other as string);
  t.regex(compared.lines.join("\n"), /^before: .*a\.yaml\nafter: .*b\.yaml\n2 seeds of both/);

  const recording = join(folder, "seed-2.mrec");
  const one = ["--file", cluster as string, "--scenario", scenario as string, "--seed", "2"];
  const recorded = await muster("simulate", ...one, "--record", recording);
  t.is(recorded.remarks.at(-1), `recording of seed 2: ${recording} (muster replay ${recording})`);
  const verified = await muster("replay", recording, "--verify");
  t.is(verified.status, 0, verified.remarks.join("\n"));
  t.regex(verified.lines.join("\n"), /^agentTask .*\n[^]*no difference in \d+ verified steps/m);
  t.is((await muster("simulate", ...flags, "--record", recording)).status, 125);

  t.is((await muster("simulate", "--scenario", join(folder, "none.yaml"))).status, 2);
  t.is((await muster("simulate", "--scenario", scenario as string, "--hours", "0.001")).status, 2);
  t.is((await muster("simulate")).status, 125);
  t.is((await muster("simulate", ...flags, "--seeds", "0")).status, 125);
});
