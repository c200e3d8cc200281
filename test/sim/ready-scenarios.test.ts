// Each ready scenario on the sample cluster: what must be true of its outcome, whatever the seed.
import { readFileSync } from "node:fs";
import test from "ava";
import { readCluster } from "../../cli/simulate/read-cluster.ts";
import { readScenario } from "../../cli/simulate/read-scenario.ts";
import { readyScenario, readyScenarios, sampleCluster } from "../../cli/simulate/ready-scenarios.ts";
import type { RunOutcome, ServiceOutcome } from "../../simulation/rehearsal/outcome.ts";
import type { ScenarioPlan } from "../../simulation/rehearsal/plan.ts";
import { rehearse } from "../../simulation/rehearsal/run.ts";

const seed = 11;
const nothing = { get: () => undefined };
const sample = sampleCluster();
const cluster = readCluster(sample.text, sample.path, nothing);
const wanted: Readonly<Record<string, number>> = { web: 12, api: 6, database: 1, metrics: 12 };

function scenarioOf(name: string): ScenarioPlan {
  const { path, text } = readyScenario(name);
  return readScenario(text, path, cluster, nothing);
}

interface Played {
  readonly outcome: RunOutcome;
  readonly service: (name: string) => ServiceOutcome;
  readonly texts: readonly string[];
}

/** `minutes`: where the test ends the scenario, which is over by then. No scenario may violate an invariant. */
async function play(
  name: string,
  minutes: number,
  change: (scenario: ScenarioPlan) => ScenarioPlan = (same) => same,
): Promise<Played> {
  const outcome = await rehearse(cluster, { ...change(scenarioOf(name)), durationMs: minutes * 60_000 }, seed);
  if (outcome.violation !== null) throw new Error(`${name} violated an invariant: ${outcome.violation}`);
  const service = (wanted: string): ServiceOutcome => {
    const found = outcome.services.find((each) => each.name === wanted);
    if (found === undefined) throw new Error(`service ${wanted} is missing`);
    return found;
  };
  return { outcome, service, texts: outcome.events.map(({ text }) => text) };
}

function running({ replicas }: ServiceOutcome): number {
  return replicas.at(-1)?.running ?? 0;
}

test.serial("every ready scenario has a test here", (t) => {
  const text = readFileSync(new URL(import.meta.url), "utf8");
  for (const name of readyScenarios()) t.true(text.includes(`play("${name}"`), name);
});

test.serial(
  "rolling-update-rack-loss: the update completes, and four of twelve nodes are missed at most",
  async (t) => {
    const { outcome, service, texts } = await play("rolling-update-rack-loss", 20);
    t.is(service("web").rollouts[0]?.state, "completed");
    // Start-first: never fewer than the tasks of two racks.
    t.true(service("web").availabilityMin >= 7 / 12, `${service("web").availabilityMin}`);
    t.true(service("web").availabilityMin < 1);
    t.is(service("database").availabilityMin, 1);
    for (const [name, count] of Object.entries(wanted)) t.is(running(service(name)), count, name);
    t.true(service("api").moves.length > 0);
    t.true(service("api").moves.every(({ reason, to }) => reason.endsWith(" is down") && to !== null));
    t.is(texts.filter((text) => text.endsWith(" is down")).length, 4);
    t.deepEqual(outcome.refusals, []);
  },
);

test.serial("manager-failover: the update completes under a new leader, and few writes fail", async (t) => {
  const { outcome, service, texts } = await play("manager-failover", 17);
  t.is(service("web").rollouts[0]?.state, "completed");
  t.true((service("web").rollouts[0]?.endedMs ?? Number.POSITIVE_INFINITY) < 6 * 60_000);
  t.true(texts.filter((text) => / leads/.test(text)).length >= 1);
  // A write a second waits 10 s at most; when the first one has waited that long, the next ones ask another manager.
  t.true(outcome.refusals.length <= 10, `${outcome.refusals.length} refusals`);
  for (const [name, count] of Object.entries(wanted)) t.is(running(service(name)), count, name);
});

test.serial("flapping-node: tasks leave the node once, and the services stay available", async (t) => {
  const { service } = await play("flapping-node", 27);
  t.true(service("web").availabilityMin >= 11 / 12);
  t.true(service("web").moves.length <= 2, "a replaced task does not return to the node");
  t.true(service("metrics").moves.length >= 5, "a global service's task starts again each time");
  for (const [name, count] of Object.entries(wanted)) t.is(running(service(name)), count, name);
});

test.serial("slow-disk: the update takes longer than on a fast disk, and completes", async (t) => {
  const slow = await play("slow-disk", 8);
  const fast = await play("slow-disk", 8, (scenario) => ({
    ...scenario,
    steps: scenario.steps.filter(({ action }) => action.kind !== "slow-log"),
  }));
  const [slowMs, fastMs] = [slow, fast].map(({ service }) => {
    const [rollout] = service("web").rollouts;
    t.is(rollout?.state, "completed");
    return (rollout?.endedMs ?? Number.NaN) - (rollout?.beganMs ?? Number.NaN);
  }) as [number, number];
  t.true(slowMs > fastMs * 1.2, `${slowMs} ms instead of ${fastMs} ms`);
  t.is(slow.service("web").availabilityMin, 1);
  t.deepEqual(slow.service("web").moves, [], "an update moves no task");
  t.deepEqual(slow.outcome.refusals, []);
});

test.serial(
  "registry-outage: the update pauses with the registry as the reason, and no running task is lost",
  async (t) => {
    const { service } = await play("registry-outage", 8);
    const [rollout] = service("web").rollouts;
    t.is(rollout?.state, "paused");
    t.is(rollout?.endedMs, null);
    t.regex(rollout?.blocked[0]?.reason ?? "", /the registry does not answer/);
    t.is(service("web").availabilityMin, 1);
  },
);

test.serial("bad-image: the update pauses after the first failure, and the earlier tasks keep running", async (t) => {
  const { service } = await play("bad-image", 6);
  const [rollout] = service("web").rollouts;
  t.is(rollout?.state, "paused");
  t.regex(rollout?.blocked[0]?.reason ?? "", /^update paused due to failure/);
  t.is(service("web").availabilityMin, 1);
});

test.serial(
  "bad-image-rollback: the update is rolled back within minutes, and the earlier tasks keep running",
  async (t) => {
    const { service } = await play("bad-image-rollback", 6);
    const [rollout] = service("web").rollouts;
    t.is(rollout?.state, "rollback_completed");
    t.true((rollout?.endedMs ?? Number.POSITIVE_INFINITY) < 5 * 60_000);
    t.is(service("web").availabilityMin, 1);
    t.is(running(service("web")), 12);
  },
);

test.serial("mass-join: the nodes join, here fifty, and the services are not disturbed", async (t) => {
  const { outcome, service, texts } = await play("mass-join", 5, (scenario) => ({
    ...scenario,
    steps: scenario.steps.map((step) =>
      step.action.kind === "join"
        ? { ...step, action: { ...step.action, nodes: step.action.nodes.slice(0, 50) } }
        : step,
    ),
  }));
  t.is(texts.filter((text) => text.endsWith(" has joined")).length, 50);
  t.is(service("web").availabilityMin, 1);
  t.deepEqual(service("web").moves, []);
  // The global service runs on every one.
  t.is(running(service("metrics")), 62);
  t.deepEqual(outcome.refusals, []);
});
