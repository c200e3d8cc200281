// One trace over real processes: the command, the manager, the agent and the process that they start.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { startCollector, type CollectedSpan } from "../fixtures/collector.ts";
import { asRoot, MusterProcess, startManager, tempDir } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { until } from "../fixtures/until.ts";

test("a command, the manager, the agent and the process that it starts share one trace", async (t) => {
  const collector = await startCollector(t);
  // Inherited by every process of this test and by no other test: each file has its own process.
  process.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.endpoint;
  delete process.env["TRACEPARENT"];
  const metricsPort = await freePort();
  const manager = await startManager(t, { args: ["--metrics", `127.0.0.1:${metricsPort}`] });
  const token = await manager.muster("token", "worker");
  const agentMetricsPort = await freePort();
  const agentDir = tempDir(t, "agent");
  const agent = new MusterProcess(agentDir, [
    "agent",
    "--join",
    manager.address,
    "--token",
    token,
    "--data-dir",
    agentDir,
    "--metrics",
    `127.0.0.1:${agentMetricsPort}`,
    ...asRoot,
  ]);
  t.teardown(async () => void (await agent.end()));

  const file = join(tempDir(t, "trace"), "traceparent");
  const script = `printf %s "$TRACEPARENT" > ${file}.new && mv ${file}.new ${file}; exec sleep 600`;
  await manager.muster("service", "create", "--quiet", "--name", "traced", "--driver", "exec", "sh", "-c", script);

  const traceparent = await until("the process's environment", () => readFileSync(file, "utf8"));
  const [, traceId = "", spanId = ""] = traceparent.split("-");
  t.regex(traceparent, /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);

  const root = await until("the command's span", () => collector.spans.find(({ service }) => service === "muster-cli"));
  t.like(root, { name: "service create", traceId, parentSpanId: "" });
  const named = (service: string, name: string): Promise<CollectedSpan> =>
    until(`${name} of ${service}`, () =>
      collector.spans.find((span) => span.service === service && span.name === name && span.traceId === traceId),
    );
  const request = await named("muster-manager", "service create");
  t.is(request.parentSpanId, root.spanId);
  const [id] = (await manager.muster("service", "ls", "--quiet")).split("\n");
  t.true((request.attributes["muster.service.id"] ?? "").startsWith(id ?? "-"));
  const tasks = await named("muster-manager", "tasks create");
  t.is(tasks.parentSpanId, request.spanId);
  t.is(tasks.attributes["muster.tasks"], "1");
  for (const name of ["tasks assign", "assignments send"])
    t.is((await named("muster-manager", name)).parentSpanId, tasks.spanId, name);
  await named("muster-manager", "ledger commit");
  await named("muster-manager", "log append");
  const start = await named("muster-agent", "task start");
  t.is(start.parentSpanId, tasks.spanId);
  t.is(start.spanId, spanId, "the process continues the agent's span");
  t.is((await named("muster-manager", "task report")).parentSpanId, start.spanId);

  await manager.muster("service", "logs", "traced");
  const read = await until("the span of the agent's output", () =>
    collector.spans.find(({ name, service }) => service === "muster-agent" && name === "logs read"),
  );
  t.is(read.attributes["muster.tasks"], "1");
  const subscribed = await until("the subscription's span", () =>
    collector.spans.find(({ name, spanId: each }) => name === "logs subscribe" && each === read.parentSpanId),
  );
  t.is(subscribed.service, "muster-manager");

  const response = await fetch(`http://127.0.0.1:${metricsPort}/metrics`);
  t.is(response.status, 200);
  const names = [...(await response.text()).matchAll(/^# TYPE (\S+) /gm)].map(([, name]) => name as string);
  t.true(names.includes("muster_ledger_proposal_seconds"));
  t.true(names.includes("muster_sessions"));
  t.true(names.includes("muster_nodes"), "the cluster's own duties are traced as well as the process");
  for (const name of names) t.regex(name, /^muster_[a-z0-9]+(_[a-z0-9]+)*$/);
  t.is((await fetch(`http://127.0.0.1:${metricsPort}/healthz`)).status, 200);
  const ofAgent = await (await fetch(`http://127.0.0.1:${agentMetricsPort}/metrics`)).text();
  t.regex(ofAgent, /^muster_agent_serving 1$/m);
  t.regex(ofAgent, /^muster_agent_tasks 1$/m);
  t.is((await fetch(`http://127.0.0.1:${agentMetricsPort}/healthz`)).status, 200);

  await manager.muster("service", "rm", "traced");
  await until("the task to exit", async () => (await manager.muster("task", "ls", "--quiet")) === "");
});
