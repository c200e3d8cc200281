// Rehearsals of small scenarios: what their outcomes say, and that a seed repeats itself.
import test from "ava";
import { allCharts } from "../../cli/charts.ts";
import { verify } from "../../cli/replay/verify.ts";
import { UserError } from "../../lib/user-error.ts";
import {
  Annotations,
  IPAMConfig,
  IPAMOptions,
  NetworkSpec,
  ServiceSpec,
  TimelineAtRequest,
  UpdateConfig_FailureAction,
} from "../../proto/gen/messages.ts";
import { openRecording, type OpenedRecording } from "../../runtime/recording/opened.ts";
import { actorsAt } from "../../runtime/recording/timeline.ts";
import type { StepPlan } from "../../simulation/rehearsal/plan.ts";
import { rehearse } from "../../simulation/rehearsal/run.ts";
import { rehearseAll } from "../../simulation/rehearsal/rehearse-all.ts";
import { inOrder } from "../support/recordings.ts";
import { behaviour, clusterOf, jobOf, scenarioOf, serviceOf } from "../support/rehearsal-plans.ts";

const minute = 60_000;

function serviceIn(outcome: Awaited<ReturnType<typeof rehearse>>, name = "web") {
  const found = outcome.services.find((service) => service.name === name);
  if (found === undefined) throw new Error(`service ${name} is missing`);
  return found;
}

test.serial("a rehearsal without steps keeps every service whole", async (t) => {
  const outcome = await rehearse(clusterOf(3, [serviceOf("web", 6)]), scenarioOf(2 * minute, []), 1);
  t.is(outcome.violation, null);
  t.is(outcome.ranMs, 2 * minute);
  const { availabilityMin, firstFullMs, fullShare, moves, replicas, rollouts } = serviceIn(outcome);
  t.is(availabilityMin, 1);
  t.is(fullShare, 1);
  t.deepEqual(replicas, [{ atMs: 0, wanted: 6, running: 6 }]);
  t.true(firstFullMs !== null && firstFullMs >= 1_000, "a pull and a start take time");
  t.deepEqual([moves, rollouts], [[], []]);
  t.deepEqual(outcome.refusals, []);
  t.true(outcome.requests >= 119);
  t.deepEqual(outcome.placement.at(-1), { ...outcome.placement.at(-1), min: 2, max: 2, mean: 2 });
});

test.serial("a seed gives the same outcome again, and another seed another one", async (t) => {
  const cluster = clusterOf(4, [serviceOf("web", 8)], { meanUpMs: 2 * minute, meanDownMs: 20_000 });
  const steps: StepPlan[] = [
    { atMs: 5_000, action: { kind: "update", service: serviceOf("web", 8, { image: "web:2" }) } },
    { atMs: 20_000, action: { kind: "kill-leader", forMs: 10_000 } },
    { atMs: 30_000, action: { kind: "lose-nodes", nodes: { by: "number", count: 1 }, forMs: 20_000 } },
  ];
  const runs = [];
  for (const seed of [7, 7, 8]) runs.push(await rehearse(cluster, scenarioOf(2 * minute, steps), seed));
  t.deepEqual(runs[0], runs[1]);
  t.notDeepEqual(runs[0]?.events, runs[2]?.events);
  t.is(runs[0]?.violation, null);
});

test.serial("tasks of a rack that loses power run elsewhere, and the outcome says why they moved", async (t) => {
  const steps: StepPlan[] = [
    {
      atMs: 10_000,
      action: { kind: "lose-nodes", nodes: { by: "label", label: "rack", value: "r0" }, forMs: minute },
    },
  ];
  const outcome = await rehearse(clusterOf(6, [serviceOf("web", 12)]), scenarioOf(3 * minute, steps), 3);
  t.is(outcome.violation, null);
  const { availabilityMin, fullShare, moves, replicas } = serviceIn(outcome);
  t.is(moves.length, 4);
  for (const { from, reason, to } of moves) {
    t.true(["worker-1", "worker-4"].includes(from));
    t.is(reason, `node ${from} is down`);
    t.false(to === null || ["worker-1", "worker-4"].includes(to));
  }
  // Availability counts what runs, not what managers believe.
  t.is(availabilityMin, 8 / 12);
  t.is(replicas.find(({ running }) => running < 12)?.atMs, 10_000);
  t.is(replicas.at(-1)?.running, 12);
  t.true(fullShare > 0.5 && fullShare < 1);
  const texts = outcome.events.map(({ text }) => text);
  t.true(texts.includes("worker-1, worker-4 lost power for 60 s"));
  t.true(texts.includes("node worker-1 is down") && texts.includes("node worker-1 is back"));
});

test.serial("a bad image pauses a rollout, or rolls it back, while the other tasks keep running", async (t) => {
  const bad = { ...behaviour, startFailure: 1 };
  const outcomes = await Promise.all(
    [UpdateConfig_FailureAction.PAUSE, UpdateConfig_FailureAction.ROLLBACK].map((failureAction) =>
      rehearse(
        clusterOf(3, [serviceOf("web", 6, { failureAction })]),
        scenarioOf(3 * minute, [
          {
            atMs: 5_000,
            action: {
              kind: "update",
              service: { ...serviceOf("web", 6, { image: "web:bad", failureAction }), behaviour: bad },
            },
          },
        ]),
        4,
      ),
    ),
  );
  const [paused, rolledBack] = outcomes.map((outcome) => serviceIn(outcome));
  t.deepEqual(
    outcomes.map(({ violation }) => violation),
    [null, null],
  );
  t.is(paused?.rollouts[0]?.state, "paused");
  t.is(paused?.rollouts[0]?.endedMs, null);
  t.is(paused?.replicas.at(-1)?.running, 5);
  t.is(rolledBack?.rollouts[0]?.state, "rollback_completed");
  t.is(rolledBack?.replicas.at(-1)?.running, 6);
  t.is(rolledBack?.availabilityMin, 5 / 6);
  t.true((paused?.rollouts[0]?.blocked.length ?? 0) > 0);
});

function jobIn(outcome: Awaited<ReturnType<typeof rehearse>>, name: string) {
  const found = outcome.jobs.find((job) => job.name === name);
  if (found === undefined) throw new Error(`job ${name} is missing`);
  return found;
}

test.serial("jobs begin with the scenario, end after their runs, and take the place of no service", async (t) => {
  const jobs = [jobOf("import", 6, { concurrent: 2 }), jobOf("scan", 0)];
  const steps: StepPlan[] = [
    { atMs: 2 * minute, action: { kind: "update", service: jobOf("scan", 0) } },
    { atMs: 3 * minute, action: { kind: "deploy", service: jobOf("late", 1) } },
  ];
  const outcome = await rehearse(clusterOf(3, [serviceOf("web", 3), ...jobs]), scenarioOf(4 * minute, steps), 1);
  t.is(outcome.violation, null);
  t.deepEqual(
    outcome.services.map(({ name }) => name),
    ["web"],
  );
  const [imported] = jobIn(outcome, "import").executions;
  t.like(imported, { state: "succeeded", total: 6, done: 6, failedTasks: 0 });
  t.true(Math.abs(imported?.beganMs ?? -1_000_000) < 1_000);
  const ms = imported?.endedMs ?? 0;
  t.true(ms > 55_000 && ms < 110_000, "three times two runs of about 20 s, with a pull and starts");
  const late = jobIn(outcome, "late").executions[0];
  t.true(Math.abs((late?.beganMs ?? 0) - 3 * minute) < 1_000);
  t.is(late?.state, "succeeded");
  // An update starts its work again.
  t.deepEqual(
    jobIn(outcome, "scan").executions.map(({ done, state, total }) => ({ done, state, total })),
    [1, 2].map(() => ({ done: 3, state: "succeeded", total: 3 })),
  );
  t.true(outcome.events.some(({ text }) => text === "job import has succeeded"));
});

test.serial("failed runs of a job are counted, its tasks run again, and a lost node's run elsewhere", async (t) => {
  const jobs = [jobOf("import", 20, { failure: 0.3 }), jobOf("long", 6)];
  const [faulty, long] = jobs;
  if (faulty === undefined || long?.behaviour.run == null) throw new Error("no jobs");
  const slow = {
    ...long,
    behaviour: { ...long.behaviour, run: { length: { medianMs: minute, p99Ms: minute }, failure: 0 } },
  };
  const steps: StepPlan[] = [
    { atMs: 30_000, action: { kind: "lose-nodes", nodes: { by: "name", names: ["worker-1"] }, forMs: null } },
  ];
  const outcome = await rehearse(clusterOf(4, [faulty, slow]), scenarioOf(6 * minute, steps), 2);
  t.is(outcome.violation, null);
  const imported = jobIn(outcome, "import");
  t.is(imported.executions[0]?.state, "succeeded");
  const failedTasks = imported.executions[0]?.failedTasks ?? 0;
  t.true(failedTasks >= 2 && failedTasks <= 20, `${failedTasks} of more than 20 runs failed`);
  t.is(imported.moves.filter(({ reason }) => reason === "task failed: exit code 1").length, failedTasks);
  const moved = jobIn(outcome, "long");
  t.like(moved.executions[0], { state: "succeeded", done: 6, failedTasks: 0 });
  t.true(moved.moves.length > 0);
  for (const { reason } of moved.moves) t.is(reason, "node worker-1 is down");
});

test.serial("a scheduled job's runs behave like the job, and count as its executions", async (t) => {
  const labels = { "muster.schedule.cron": "*/2 * * * *" };
  const outcome = await rehearse(clusterOf(2, [jobOf("report", 2, { labels })]), scenarioOf(6 * minute, []), 3);
  t.is(outcome.violation, null);
  t.deepEqual(
    outcome.jobs.map(({ name }) => name),
    ["report"],
  );
  const { executions } = jobIn(outcome, "report");
  t.is(executions.length, 3);
  const [first, second] = executions;
  t.is((second?.beganMs ?? 0) - (first?.beganMs ?? 0) > 110_000, true);
  for (const { beganMs, done, endedMs, state } of executions.slice(0, 2)) {
    t.deepEqual([state, done], ["succeeded", 2]);
    t.true((endedMs ?? 0) - beganMs > 15_000);
  }
});

test.serial("an update of a job replaces an execution that has not ended, and a removal ends it", async (t) => {
  const { behaviour: jobBehaviour, spec } = jobOf("import", 2);
  const never = { ...jobBehaviour, run: { length: { medianMs: 60 * minute, p99Ms: 60 * minute }, failure: 0 } };
  const next = serviceOf("import", 0, { image: "import:2" }).spec.task;
  const steps: StepPlan[] = [
    {
      atMs: minute,
      action: { kind: "update", service: { spec: ServiceSpec.patch(spec, { task: next }), behaviour: never } },
    },
    { atMs: 2 * minute, action: { kind: "scale", service: "import", replicas: 3 } },
    { atMs: 3 * minute, action: { kind: "remove", service: "import" } },
  ];
  const outcome = await rehearse(clusterOf(2, [{ spec, behaviour: never }]), scenarioOf(4 * minute, steps), 4);
  t.is(outcome.violation, null);
  t.deepEqual(outcome.refusals, []);
  const { executions } = jobIn(outcome, "import");
  t.deepEqual(
    executions.map(({ state }) => state),
    ["replaced", "replaced", "removed"],
  );
  t.true(Math.abs((executions[2]?.endedMs ?? 0) - 3 * minute) < 1_000);
});

test.serial("managers without NATS refuse writes, and the outcome counts them", async (t) => {
  const steps: StepPlan[] = [{ atMs: 10_000, action: { kind: "lose-nats", forMs: 30_000 } }];
  const outcome = await rehearse(clusterOf(3, [serviceOf("web", 3)]), scenarioOf(2 * minute, steps), 3);
  t.is(outcome.violation, null);
  t.true(outcome.refusals.length >= 15, `${outcome.refusals.length} refusals`);
  // Seed 3: the answer to a removal is lost, and its repetition finds nothing.
  t.deepEqual([...new Set(outcome.refusals.map(({ reason }) => reason))], ["deadline exceeded"]);
  t.true(outcome.refusals.every(({ atMs }) => atMs >= 10_000 && atMs <= 60_000));
  t.is(serviceIn(outcome).availabilityMin, 1);
});

test.serial("a registry outage stops only tasks that need an image", async (t) => {
  const steps: StepPlan[] = [
    { atMs: 5_000, action: { kind: "registry-outage", forMs: minute } },
    { atMs: 10_000, action: { kind: "deploy", service: serviceOf("new", 3, { image: "new:1" }) } },
    { atMs: 10_000, action: { kind: "scale", service: "web", replicas: 9 } },
  ];
  const outcome = await rehearse(clusterOf(3, [serviceOf("web", 6)]), scenarioOf(4 * minute, steps), 6);
  t.is(outcome.violation, null);
  const [web, other] = [serviceIn(outcome), serviceIn(outcome, "new")];
  t.true(
    web.replicas.some(({ atMs, running }) => running === 9 && atMs < 30_000),
    "its image is on every node",
  );
  t.true(other.firstFullMs !== null && other.firstFullMs > 50_000);
  t.regex(other.moves[0]?.reason ?? "", /^task rejected: cannot pull new:1/);
});

test.serial("a cancelled rehearsal gives the outcome of what was run", async (t) => {
  let ranMs = 0;
  const outcome = await rehearse(clusterOf(3, [serviceOf("web", 3)]), scenarioOf(60 * minute, []), 1, {
    onProgress: (ms) => (ranMs = ms),
    isCancelled: () => ranMs > minute,
  });
  t.is(outcome.violation, null);
  t.true(outcome.ranMs > minute && outcome.ranMs < 2 * minute);
});

test.serial("several seeds in several processes give the same outcomes as one after another here", async (t) => {
  const cluster = clusterOf(3, [serviceOf("web", 6)], { meanUpMs: minute, meanDownMs: 20_000 });
  const service = serviceOf("web", 6, { image: "web:2" });
  const scenario = scenarioOf(minute, [{ atMs: 5_000, action: { kind: "update", service } }]);
  const seen: number[] = [];
  const outcome = await rehearseAll({
    name: "test",
    cluster,
    scenario,
    from: 3,
    seeds: 3,
    processes: 2,
    onRun: ({ seed }) => seen.push(seed),
  });
  t.deepEqual(seen, [3, 4, 5]);
  const here = [];
  for (const seed of seen) here.push(await rehearse(cluster, scenario, seed));
  t.deepEqual(outcome.runs, here);
});

test.serial("cancelled seeds end early, with what was run", async (t) => {
  const controller = new AbortController();
  const outcome = await rehearseAll({
    name: "test",
    cluster: clusterOf(3, [serviceOf("web", 6)]),
    scenario: scenarioOf(1_000 * minute, []),
    from: 1,
    seeds: 50,
    processes: 1,
    onProgress: (_seed, ranMs) => {
      if (ranMs > 0) controller.abort();
    },
    signal: controller.signal,
  });
  t.is(outcome.seedsWanted, 50);
  t.is(outcome.runs.length, 1);
  t.true((outcome.runs[0]?.ranMs ?? 0) < 1_000 * minute);
});

test.serial("seeds cancelled while their cluster is founded are not in the outcome", async (t) => {
  const controller = new AbortController();
  const outcome = await rehearseAll({
    name: "test",
    cluster: clusterOf(3, [serviceOf("web", 6)]),
    scenario: scenarioOf(1_000 * minute, []),
    from: 1,
    seeds: 50,
    processes: 1,
    onProgress: () => controller.abort(),
    signal: controller.signal,
  });
  t.deepEqual(outcome.runs, []);
});

test.serial("a recording changes nothing in the outcome, and is the same again", async (t) => {
  const steps: StepPlan[] = [{ atMs: 5_000, action: { kind: "kill-leader", forMs: 10_000 } }];
  const [cluster, scenario] = [clusterOf(2, [serviceOf("web", 4)]), scenarioOf(30_000, steps)];
  const files: Buffer[] = [];
  const onRecording = (file: Uint8Array): void => void files.push(Buffer.from(file));
  const without = await rehearse(cluster, scenario, 2);
  for (let run = 0; run < 2; run += 1) t.deepEqual(await rehearse(cluster, scenario, 2, { onRecording }), without);
  t.true((files[0]?.length ?? 0) > 1_000);
  t.true(files[0]?.equals(files[1] ?? Buffer.alloc(0)));
});

test.serial("a recording of a run that is too long for it has the last part of all processes", async (t) => {
  const steps: StepPlan[] = [
    { atMs: 5_000, action: { kind: "kill-leader", forMs: 10_000 } },
    { atMs: 19 * minute, action: { kind: "scale", service: "web", replicas: 8 } },
  ];
  const [cluster, scenario] = [clusterOf(3, [serviceOf("web", 4)]), scenarioOf(20 * minute, steps)];
  const recorded = async (recordingBytesMax?: number) => {
    let [file, fromMs] = [Buffer.alloc(0), 0];
    const onRecording = (bytes: Uint8Array, from: number): void => void ([file, fromMs] = [Buffer.from(bytes), from]);
    await rehearse(cluster, scenario, 2, { onRecording, ...(recordingBytesMax && { recordingBytesMax }) });
    return { fromMs, ...(await openRecording(inOrder([file]), { isForced: false })) };
  };
  const [whole, last] = [await recorded(), await recorded(150_000)];
  t.is(whole.fromMs, 0);
  t.true(last.fromMs > 10 * minute && last.fromMs < 19 * minute, `${last.fromMs} ms are missing`);
  t.is(last.head.fromMs - whole.head.fromMs, last.fromMs);
  t.is(last.index.toMs, whole.index.toMs);
  t.deepEqual(last.head.processes.toSorted(), whole.head.processes.toSorted());
  const machines = new Map((await allCharts()).map(({ machine }) => [machine.id, machine]));
  for (const { index } of [whole, last]) t.is(verify(index, machines).differences, 0);
  const atEnd = ({ index }: Pick<OpenedRecording, "index">): readonly string[] =>
    [...actorsAt(index, TimelineAtRequest.create({ atMs: index.toMs }))]
      .flatMap(({ process, snapshot }) =>
        (snapshot?.actors ?? []).map(({ actor, states }) => `${process} ${actor} ${states.join()}`),
      )
      .toSorted();
  t.deepEqual(atEnd(last), atEnd(whole), "both know the same at the end");
  t.deepEqual(last.index.gaps.within(last.head.fromMs, last.head.toMs), []);
});

test.serial(
  "a cluster that managers refuse is a mistake, not a violated invariant, and nothing is played",
  async (t) => {
    const ipam = IPAMOptions.create({ configs: [IPAMConfig.create({ subnet: "10.1.0.0/33" })] });
    const network = NetworkSpec.create({ annotations: Annotations.create({ name: "a" }), ipam });
    const cluster = { ...clusterOf(2, [serviceOf("web", 2)]), networks: [network] };
    const scenario = scenarioOf(minute, []);
    const refused = {
      instanceOf: UserError,
      message: /^managers refuse the cluster: .*invalid subnet 10\.1\.0\.0\/33$/,
    };
    await t.throwsAsync(rehearse(cluster, scenario, 1), refused);
    const runs: number[] = [];
    const all = rehearseAll({
      name: "test",
      cluster,
      scenario,
      from: 1,
      seeds: 50,
      processes: 1,
      onRun: ({ seed }) => void runs.push(seed),
    });
    await t.throwsAsync(all, refused);
    t.deepEqual(runs, []);
  },
);

test.serial("a node may be called like a manager, and is cut off alone", async (t) => {
  const plan = clusterOf(3, [serviceOf("web", 4)]);
  const names = ["manager-1", "nats", "worker-3"];
  const cluster = { ...plan, nodes: plan.nodes.map((node, at) => ({ ...node, name: names[at] ?? "" })) };
  const steps: StepPlan[] = [
    { atMs: 5_000, action: { kind: "partition-nodes", nodes: { by: "name", names: ["manager-1"] }, forMs: minute } },
    { atMs: 2 * minute, action: { kind: "partition-managers", managers: [1], forMs: minute } },
  ];
  const outcome = await rehearse(cluster, scenarioOf(4 * minute, steps), 1);
  t.is(outcome.violation, null);
  const texts = outcome.events.map(({ text }) => text);
  t.true(texts.includes("node manager-1 is down") && texts.includes("node manager-1 is back"), texts.join("\n"));
  t.is(texts.filter((text) => text.endsWith(" is down")).length, 1, "not when the manager is cut off");
});
