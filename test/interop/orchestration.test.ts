// Operators' actions on services, on two stock engines: rolling update, rollback, global service, job, drain.
import anyTest from "ava";
import { engineMissing } from "../fixtures/docker-engine.ts";
import { labMissing } from "../fixtures/lab.ts";
import { runMuster, type Ran, type TestManager } from "../fixtures/muster.ts";
import { labSwarm, running, tasksOf, words, type LabSwarm, type TaskRow } from "../fixtures/swarm.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const missing = engineMissing() ?? labMissing();
const test = missing === null ? anyTest.serial : anyTest.serial.skip;

const sleeper = ["--stop-signal=SIGKILL", "bb:1", "sleep", "1000"] as const;

function ranBy(manager: TestManager, line: string): Promise<Ran> {
  return runMuster(["--host", `unix://${manager.dataDir}/control.sock`, ...words(line)], { timeoutMs: 150_000 });
}

interface ServiceJson {
  readonly updateStatus?: { readonly state?: string; readonly message?: string };
  readonly spec: { readonly task: { readonly container: { readonly image: string } } };
}

async function inspected(manager: TestManager, service: string): Promise<ServiceJson> {
  const [found] = await manager.json<ServiceJson>("service", "inspect", service);
  return found as ServiceJson;
}

interface ImageRow extends TaskRow {
  readonly spec?: { readonly container?: { readonly image?: string } };
}

/** Images of the tasks whose desired and current state is RUNNING. */
async function imagesOf(manager: TestManager, service: string): Promise<string[]> {
  return ((await running(manager, service)) as ImageRow[]).map(({ spec }) => spec?.container?.image ?? "");
}

/** Polls both engines for a slot of the service with two containers, until stopped. */
function watchForDoubles({ members }: LabSwarm, service: string): { stop(): Promise<readonly string[]> } {
  const doubles = new Set<string>();
  let isStopped = false;
  const work = (async () => {
    while (!isStopped) {
      const names = (await Promise.all(members.map(({ engine }) => engine.containers()))).flat();
      const slots = names.filter((name) => name.startsWith(`${service}.`)).map((name) => name.split(".")[1] as string);
      for (const slot of slots) if (slots.indexOf(slot) !== slots.lastIndexOf(slot)) doubles.add(slot);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  })();
  return {
    stop: async () => {
      isStopped = true;
      await work;
      return [...doubles];
    },
  };
}

test("a rolling update replaces replicas slot by slot, and a missing image is rolled back with its reason", async (t) => {
  t.timeout(patient(300_000));
  const swarm = await labSwarm(t);
  const { manager, members } = swarm;
  for (const { engine } of members) await engine.docker("tag", "bb:1", "bb:2");
  await manager.muster(
    ...words("service create --detach --name web --replicas 4 --update-delay 0s --update-monitor 1s"),
    ...words("--update-failure-action rollback --rollback-monitor 1s --rollback-parallelism 0"),
    ...sleeper,
  );
  await until("4 running tasks", async () => (await running(manager, "web")).length === 4);

  const watch = watchForDoubles(swarm, "web");
  const updated = await ranBy(manager, "service update --quiet --image bb:2 web");
  t.is(updated.code, 0, updated.stderr);
  t.deepEqual(await watch.stop(), [], "stop-first: a slot never has two containers");
  t.deepEqual(await imagesOf(manager, "web"), ["bb:2", "bb:2", "bb:2", "bb:2"]);
  t.is((await inspected(manager, "web")).updateStatus?.state, "COMPLETED");
  for (const { engine } of members)
    t.true((await engine.docker("ps", "--format", "{{.Image}}")).split("\n").every((image) => image === "bb:2"));

  const failed = await ranBy(manager, "service update --image bb:none web");
  t.is(failed.code, 1);
  t.regex(failed.stderr, /^muster: service rolled back: .*No such image: bb:none$/m);
  const { updateStatus, spec } = await inspected(manager, "web");
  t.is(updateStatus?.state, "ROLLBACK_COMPLETED");
  t.is(spec.task.container.image, "bb:2");
  t.deepEqual(await imagesOf(manager, "web"), ["bb:2", "bb:2", "bb:2", "bb:2"]);
  const history = await manager.muster("service", "ps", "web");
  t.is(history.match(/bb:none .*Rejected .*"No such image: bb:none"/g)?.length, 1, history);
});

test("a global service runs on each engine, jobs run to completion, and a drained engine gets no tasks", async (t) => {
  t.timeout(patient(300_000));
  const swarm = await labSwarm(t);
  const { manager, members } = swarm;
  const [first, second] = members;
  await manager.muster(...words("service create --detach --name each --mode global"), ...sleeper);
  await manager.muster(...words("service create --detach --name web --replicas 4"), ...sleeper);
  const onNodes = async (service: string): Promise<readonly number[]> => {
    const tasks = await running(manager, service);
    return members.map(({ nodeId }) => tasks.filter((task) => task.nodeId === nodeId).length);
  };
  const are = (what: string, service: string, counts: readonly [number, number]): Promise<true> =>
    until(what, async () => (await onNodes(service)).join() === counts.join());
  await are("a global task on each engine", "each", [1, 1]);
  await are("replicas on both engines", "web", [2, 2]);

  const job = await ranBy(manager, "job run --name once --replicas 3 --max-concurrent 2 --wait bb:1 true");
  t.is(job.code, 0, job.stderr);
  t.regex(job.stderr, /3 out of 3 complete/);
  const done = await tasksOf(manager, "once");
  t.deepEqual(
    done.map(({ status }) => status?.state),
    ["COMPLETE", "COMPLETE", "COMPLETE"],
  );
  const bad = await ranBy(manager, "job run --name bad --restart-max-attempts 1 --restart-delay 0s --wait bb:1 false");
  t.is(bad.code, 1);
  t.regex(bad.stderr, /^muster: .*task: non-zero exit \(1\)$/m);

  await manager.muster("node", "update", "--availability", "drain", first.nodeId);
  await are("all replicas on the other engine", "web", [0, 4]);
  await are("no global task on the drained engine", "each", [0, 1]);
  await until("no container on the drained engine", async () => (await first.engine.containers()).length === 0);
  t.is((await second.engine.containers()).length, 5);
  await manager.muster("node", "update", "--availability", "active", first.nodeId);
  await are("a global task on each engine again", "each", [1, 1]);
  t.deepEqual(await onNodes("web"), [0, 4], "running tasks are not moved");
});
