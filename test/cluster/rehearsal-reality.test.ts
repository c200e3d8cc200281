// Rehearsals are held to reality: one scenario on a cluster of real processes and in the simulator.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { readCluster } from "../../cli/simulate/read-cluster.ts";
import { definitionOf } from "../../cli/simulate/read-service.ts";
import { readScenario } from "../../cli/simulate/read-scenario.ts";
import { connectUnix } from "../../edges/grpc/client.ts";
import {
  ControlService,
  ListServicesRequest,
  ReplicatedService,
  ServiceSpec,
  UpdateServiceRequest,
  WatchRequest,
  WatchRequest_WatchEntry,
  WatchService,
  type WatchMessage,
} from "../../proto/gen/messages.ts";
import { timeMs } from "../../proto/time.ts";
import type { Action, ServicePlan } from "../../simulation/rehearsal/plan.ts";
import { rehearse } from "../../simulation/rehearsal/run.ts";
import type { Tables } from "../../runtime/store/store.ts";
import { ask, createService, nodes } from "../fixtures/control-client.ts";
import { runMuster, startAgent, startManager, type TestAgent, type TestManager } from "../fixtures/muster.ts";
import { kill, processesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { Chronicle } from "../support/chronicle.ts";
import { patient } from "../support/slowness.ts";

const pathOf = (name: string): string => fileURLToPath(new URL(`../fixtures/reality/${name}`, import.meta.url));
const [clusterFile, scenarioFile] = [pathOf("cluster.yaml"), pathOf("scenario.yaml")];
const unset = { get: () => undefined };
const cluster = readCluster(readFileSync(clusterFile, "utf8"), clusterFile, unset);
const scenario = readScenario(readFileSync(scenarioFile, "utf8"), scenarioFile, cluster, unset);
const seeds = [1, 2, 3];

/**
 * A step takes at least this share of its shortest rehearsed time, and at most this multiple of its longest and this addition
 * (milliseconds; longer on a slow machine). Stated in docs/simulate.md.
 */
const bounds = { least: 0.7, most: 1.5, extraMs: 1_500 };
const lost = "worker-2 is lost";

/** As a stack would deploy it. */
function realSpec(plan: ServicePlan): ServiceSpec {
  const whole = definitionOf(plan)?.whole;
  if (whole === undefined) throw new Error("the scenario does not define the service");
  return ServiceSpec.patch(whole, { networks: [] });
}

async function change(manager: TestManager, patch: (spec: ServiceSpec) => ServiceSpec): Promise<void> {
  const { services } = await ask(manager, ControlService.methods.ListServices, ListServicesRequest.create({}));
  const [service] = services;
  if (service === undefined) throw new Error("there is no service");
  const request = UpdateServiceRequest.create({
    serviceId: service.id,
    serviceVersion: service.meta?.version ?? null,
    spec: patch(service.spec ?? ServiceSpec.create()),
  });
  await ask(manager, ControlService.methods.UpdateService, request);
}

/** Its machine loses power: nothing says goodbye. */
function losePower(agent: TestAgent): void {
  agent.process.child.kill("SIGSTOP");
  for (const pid of processesOf(agent.dataDir)) if (pid !== agent.process.child.pid) kill(pid);
}

async function play(action: Action, { agents, chronicle, manager, now }: Real): Promise<void> {
  switch (action.kind) {
    case "deploy":
      return void (await createService(manager, realSpec(action.service)));
    case "scale":
      return change(manager, (spec) =>
        ServiceSpec.patch(spec, { replicated: ReplicatedService.create({ replicas: action.replicas }) }),
      );
    case "update":
      return change(manager, () => realSpec(action.service));
    case "lose-nodes": {
      const names = action.nodes.by === "name" ? action.nodes.names : [];
      for (const name of names) {
        chronicle.add(now(), `${name} is lost`);
        losePower(agents.get(name) as TestAgent);
      }
      return undefined;
    }
    default:
      throw new Error(`${action.kind} is not played on real clusters`);
  }
}

interface Real {
  readonly manager: TestManager;
  readonly agents: ReadonlyMap<string, TestAgent>;
  readonly chronicle: Chronicle;
  /** Milliseconds since the scenario began. */
  readonly now: () => number;
}

/** Plays the scenario on processes. */
async function inReality(t: ExecutionContext): Promise<Chronicle> {
  const manager = await startManager(t);
  const agents = new Map<string, TestAgent>();
  for (const { name } of cluster.nodes) agents.set(name, await startAgent(t, manager, { hostname: name }));
  await until("all nodes", async () => (await nodes(manager)).length === cluster.nodes.length + 1);
  const channel = await connectUnix(`${manager.dataDir}/control.sock`);
  t.teardown(() => channel.close());
  const chronicle = new Chronicle();
  const began = Date.now();
  const entries = ["service", "task", "node"].map((kind) =>
    WatchRequest_WatchEntry.create({ kind, action: 7 as never }),
  );
  const watching = channel.serverStream(WatchService.methods.Watch, WatchRequest.create({ entries }), {
    onMessage({ events }: WatchMessage) {
      const versions = events.flatMap(({ object }) => (object === null ? [] : [object]));
      const stamps = versions.flatMap(({ node, service, task }) => (node ?? service ?? task)?.meta?.updatedAt ?? []);
      // The time of the write: the message comes later.
      const atMs = stamps[0] === undefined ? Number.NaN : timeMs(stamps[0]) - began;
      chronicle.commit(atMs, versions);
    },
    onEnd: () => undefined,
  });
  t.teardown(() => watching.cancel());
  const now = (): number => Date.now() - began;
  const wait = (atMs: number): Promise<void> =>
    new Promise((resolve) => void setTimeout(resolve, Math.max(0, atMs - now())));
  for (const { action, atMs } of scenario.steps) {
    // The scenario's own times.
    await wait(atMs);
    await play(action, { manager, agents, chronicle, now });
  }
  await wait(scenario.durationMs);
  return chronicle;
}

async function inRehearsal(seed: number): Promise<Chronicle> {
  const chronicle = new Chronicle();
  const loss = scenario.steps.find(({ action }) => action.kind === "lose-nodes")?.atMs ?? 0;
  let isLost = false;
  const { violation } = await rehearse(cluster, scenario, seed, {
    onCommit({ changes }, atMs) {
      if (atMs >= loss && !isLost) {
        isLost = true;
        chronicle.add(loss, lost);
      }
      const versions = changes
        .filter(({ action }) => action !== "remove")
        .map(({ object, table }) => ({ [table]: object as Tables[typeof table] }));
      chronicle.commit(atMs, versions);
    },
  });
  if (violation !== null) throw new Error(violation);
  return chronicle;
}

/** The steps of the scenario, by name, in milliseconds. */
function durationsOf(chronicle: Chronicle): ReadonlyMap<string, number> {
  const running = chronicle.timesOf("running");
  const first = (kind: string): number => chronicle.timesOf(kind)[0] ?? Number.NaN;
  const nth = (at: number): number => running[at] ?? Number.NaN;
  const rollout = [6, 7, 8, 9, 10, 11];
  return new Map([
    ["deployment until 4 tasks run", nth(3) - first("deployed")],
    ["scaling until 6 tasks run", nth(5) - first("scaled")],
    ["first turn of the update", nth(6) - first("updating")],
    ...rollout.slice(1).map((at) => [`turn ${at - 5} of the update`, nth(at) - nth(at - 1)] as const),
    ["update", first("completed") - first("updating")],
    ["loss of the node until it is down", first("worker-2 is down") - first(lost)],
    ["replacement of its tasks", nth(13) - first("worker-2 is down")],
  ]);
}

test.serial("a rehearsal has the events of a real cluster in the same order, and takes as long", async (t) => {
  t.timeout(patient(600_000));
  const real = await inReality(t);
  const rehearsed: Chronicle[] = [];
  for (const seed of seeds) rehearsed.push(await inRehearsal(seed));
  t.log(real.order.join(", "));
  for (const chronicle of rehearsed) t.deepEqual(chronicle.order, real.order);
  const durations = rehearsed.map(durationsOf);
  for (const [step, ms] of durationsOf(real)) {
    const simulated = durations.map((each) => each.get(step) ?? Number.NaN).toSorted((a, b) => a - b);
    const [least, median, most] = simulated as [number, number, number];
    const told = `${step}: ${Math.round(ms)} ms, rehearsed ${simulated.join(", ")} ms, ratio ${(ms / median).toFixed(2)}`;
    t.log(told);
    t.true(ms >= bounds.least * least && ms <= bounds.most * most + patient(bounds.extraMs), told);
  }
  // The command prints the same runs.
  const flags = ["--file", clusterFile, "--scenario", scenarioFile, "--seeds", "3", "-j", "1", "--format", "json"];
  const { code, stderr, stdout } = await runMuster(["simulate", ...flags], { timeoutMs: 300_000 });
  t.is(code, 0, stderr);
  const { runs } = JSON.parse(stdout) as { readonly runs: readonly Printed[] };
  for (const [at, { services }] of runs.entries()) {
    const [rollout, moves] = [services[0]?.rollouts[0], services[0]?.moves ?? []];
    t.is(Math.round((rollout?.endedMs ?? 0) - (rollout?.beganMs ?? 0)), durations[at]?.get("update") ?? Number.NaN);
    const causes = moves.map(({ from, reason }) => `${from}: ${reason}`);
    t.deepEqual(causes, ["worker-2: node worker-2 is down", "worker-2: node worker-2 is down"]);
  }
});

interface Printed {
  readonly services: readonly {
    readonly rollouts: readonly { readonly beganMs: number; readonly endedMs: number | null }[];
    readonly moves: readonly { readonly from: string; readonly reason: string }[];
  }[];
}
