// Metrics of real processes: each has the type of the sources and the labels of the documentation, and promtool finds nothing to correct.
import test from "ava";
import { createService, runningTasks, sleepers } from "../fixtures/control-client.ts";
import { startAgent, startManager } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { until } from "../fixtures/until.ts";
import {
  documentedLabels,
  metricTypes,
  promtool,
  runPromtool,
  served,
  type ServedMetric,
} from "../support/prometheus.ts";

async function scraped(port: number): Promise<string> {
  return until("metrics", async () => (await fetch(`http://127.0.0.1:${port}/metrics`)).text());
}

test.serial("a manager and an agent serve the documented metrics, which dashboards and rules use", async (t) => {
  const [managerPort, agentPort] = [await freePort(), await freePort()];
  const manager = await startManager(t, { args: ["--metrics", `127.0.0.1:${managerPort}`] });
  await startAgent(t, manager, { args: ["--metrics", `127.0.0.1:${agentPort}`] });
  await createService(manager, sleepers("web", 2));
  await until("two running tasks", async () => (await runningTasks(manager)).length === 2);
  const [types, labelsOf] = [await metricTypes(), documentedLabels()];
  const found = new Map<string, ServedMetric>();
  for (const port of [managerPort, agentPort]) {
    const text = await until("all metrics", async () => {
      const answer = await scraped(port);
      return served(answer).size > 20 && answer;
    });
    for (const [name, metric] of served(text)) found.set(name, metric);
    if (promtool === null) continue;
    const { code, output } = runPromtool(".", ["check", "metrics"], text);
    // Names of prom-client's own metrics about Node are not ours.
    const ours = output.split("\n").filter((line) => line !== "" && !/^muster_(?:nodejs|process)_/.test(line));
    t.deepEqual(ours, [], `promtool check metrics, status ${code}`);
  }
  for (const [name, { help, labels, type }] of found) {
    t.is<string | undefined, string | undefined>(type, types.get(name), `${name} is served as ${type}`);
    t.true(help.length > 10, `${name} has no help`);
    if (/^muster_(?:nodejs|process)_/.test(name)) continue;
    t.deepEqual([...labels].toSorted(), [...(labelsOf.get(name) ?? ["is not documented"])].toSorted(), name);
  }
  for (const name of [
    "muster_leading",
    "muster_healthy",
    "muster_nodes",
    "muster_agent_serving",
    "muster_log_append_seconds",
  ])
    t.true(found.has(name), name);
});
