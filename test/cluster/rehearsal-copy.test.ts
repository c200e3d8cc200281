// `muster simulate --from-cluster` on a cluster of processes that has a history: starts, stops, failures and a mixture of drivers.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { readCluster } from "../../cli/simulate/read-cluster.ts";
import type { ServicePlan } from "../../simulation/rehearsal/plan.ts";
import { runningTasks, tasks } from "../fixtures/control-client.ts";
import { runMuster, startAgent, startManager, tempDir } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";
import { TaskState } from "../../proto/gen/messages.ts";
import { patient } from "../support/slowness.ts";

/** Ready after a second, and ended half a second after it is asked to stop. */
const slow = "trap 'sleep 0.5; exit 0' TERM; sleep 1; touch ready; while :; do sleep 60 & wait $!; done";
const check = ["--health-cmd", "test -e ready", "--health-start-period", "60s", "--health-start-interval", "200ms"];
const quick = ["--restart-delay", "0s", "--driver", "exec"];

test.serial("a copy of a real cluster has the times and failures of its processes, and can be rehearsed", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  await startAgent(t, manager, { hostname: "worker-1" });
  await startAgent(t, manager, { hostname: "worker-2" });
  const create = (name: string, ...rest: readonly string[]): Promise<string> =>
    manager.muster("service", "create", "-d", "--name", name, ...rest);
  await create("slow", ...quick, ...check, "--replicas", "6", "sh", "-c", slow);
  await create("plain", ...quick, "--replicas", "6", "sleep", "600");
  // Runs for two seconds.
  await create("crashing", ...quick, "sh", "-c", "sleep 2; exit 1");
  await create("broken", ...quick, "/no/such/program");
  await until("twelve running tasks", async () => {
    const all = await runningTasks(manager);
    return all.length >= 12;
  });
  await manager.muster("service", "scale", "-d", "slow=0");
  const ofState = async (name: string, states: readonly TaskState[]): Promise<number> =>
    (await tasks(manager)).filter(
      ({ serviceAnnotations, status }) =>
        serviceAnnotations?.name === name && states.includes(status?.state ?? TaskState.NEW),
    ).length;
  await until("failures", async () => (await ofState("crashing", [TaskState.FAILED])) >= 4);
  await until("failed starts", async () => (await ofState("broken", [TaskState.FAILED, TaskState.REJECTED])) >= 6);
  await until("stopped tasks", async () => (await ofState("slow", [TaskState.RUNNING])) === 0);
  const path = join(tempDir(t, "copy"), "copy.yaml");
  await manager.muster("simulate", "--from-cluster", "--save", path);
  const text = readFileSync(path, "utf8");
  t.log(text);
  const plan = readCluster(text, path, { get: () => undefined });
  t.is(plan.managers, 1);
  t.deepEqual(
    plan.nodes.map(({ name }) => name),
    ["worker-1", "worker-2"],
    "managers run no tasks",
  );
  const behaviourOf = (name: string): ServicePlan["behaviour"] => {
    const found = plan.services.find(({ spec }) => spec.annotations?.name === name);
    if (found === undefined) throw new Error(`${name} is missing`);
    return found.behaviour;
  };
  const between = (what: string, value: number | null, least: number, most: number): void => {
    t.true(value !== null && value >= least && value <= patient(most), `${what}: ${value}`);
  };
  const [ready, plain, crashing, broken] = ["slow", "plain", "crashing", "broken"].map(behaviourOf) as [
    ServicePlan["behaviour"],
    ServicePlan["behaviour"],
    ServicePlan["behaviour"],
    ServicePlan["behaviour"],
  ];
  between("start of a checked process", ready.start.medianMs, 950, 3_000);
  between("stop of a process that takes its time", ready.stop.medianMs, 450, 2_000);
  between("start of a process that is not checked", plain.start.medianMs, 0, 800);
  between("preparation of a process", plain.pull.medianMs, 0, 1_500);
  between("life of a process that fails after two seconds", crashing.meanLifeMs, 1_500, 4_000);
  t.is(crashing.startFailure, 0);
  t.true(broken.startFailure > 0.9, `${broken.startFailure}`);
  t.is(ready.meanLifeMs, null);
  t.is(plain.startFailure, 0);

  const scenario = join(tempDir(t, "copy"), "scenario.yaml");
  writeFileSync(scenario, "duration: 2m\nsteps: [{at: 10s, scale: {service: slow, replicas: 4}}]\n");
  const flags = ["--file", path, "--scenario", scenario, "--seeds", "1", "--format", "json"];
  const { code, stderr, stdout } = await runMuster(["simulate", ...flags], { timeoutMs: 120_000 });
  t.is(code, 0, stderr);
  const { runs } = JSON.parse(stdout) as {
    readonly runs: readonly {
      readonly services: readonly {
        readonly name: string;
        readonly replicas: readonly { readonly running: number }[];
        readonly moves: readonly unknown[];
      }[];
    }[];
  };
  const services = new Map((runs[0]?.services ?? []).map((service) => [service.name, service]));
  t.is(services.get("slow")?.replicas.at(-1)?.running, 4);
  t.is(services.get("plain")?.replicas.at(-1)?.running, 6);
  t.is(services.get("broken")?.replicas.at(-1)?.running, 0);
  t.true((services.get("crashing")?.moves.length ?? 0) > 5, "it fails again and again");
});
