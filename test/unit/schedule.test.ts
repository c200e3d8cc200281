// Jobs on a schedule: expressions and clock changes, due times, and runs that start exactly once.
import test from "ava";
import { startOrchestration } from "../../actors/orchestration/orchestration.ts";
import { readCron } from "../../machines/orchestration/jobs/cron.ts";
import { jobLabel } from "../../machines/orchestration/jobs/labels.ts";
import { isoOf, readScheduleStatus, runId, runName, scheduleOf } from "../../machines/orchestration/jobs/runs.ts";
import { checkServiceSpec } from "../../machines/validation/service.ts";
import { timeMs } from "../../proto/time.ts";
import {
  ContainerSpec,
  EndpointSpec,
  GlobalJob,
  Kind,
  Network,
  NetworkSpec,
  Operation,
  PortConfig,
  PortConfig_PublishMode,
  Removal,
  ReplicatedJob,
  ReplicatedService,
  ScheduledRun_Outcome,
  Service,
  ServiceSpec,
  StoreObject,
  TaskSpec,
  TaskState,
  type ScheduledRun,
} from "../../proto/gen/messages.ts";
import { Host } from "../../runtime/host.ts";
import { testCluster, type TestCluster } from "../support/cluster.ts";
import { addJob, jobPicture, jobSpec, updateJob, withLabels } from "../support/jobs.ts";

const one: Partial<ServiceSpec> = { replicatedJob: ReplicatedJob.create({ maxConcurrent: 1, totalCompletions: 1 }) };

function dueAfter(expression: string, timeZone: string, from: string, count: number): readonly string[] {
  const reading = readCron(expression, timeZone);
  if (reading.kind === "invalid") return [reading.reason];
  const due: string[] = [];
  for (
    let at = reading.times.after(Date.parse(from));
    at !== null && due.length < count;
    at = reading.times.after(at)
  ) {
    due.push(isoOf(at));
  }
  return due;
}

test("a time of day that summer time skips is due at the first moment after the gap (D1)", (t) => {
  // On 29 March 2026 02:00 in Stockholm became 03:00, that is 01:00 UTC.
  t.deepEqual(dueAfter("30 2 * * *", "Europe/Stockholm", "2026-03-27T12:00:00Z", 3), [
    "2026-03-28T01:30:00Z",
    "2026-03-29T01:00:00Z",
    "2026-03-30T00:30:00Z",
  ]);
  t.deepEqual(dueAfter("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", 2), [
    "2018-11-04T03:00:00Z",
    "2018-11-05T02:00:00Z",
  ]);
});

test("a time of day that occurs twice is due only the first time (D1)", (t) => {
  // On 25 October 2026 03:00 in Stockholm became 02:00, that is 01:00 UTC.
  t.deepEqual(dueAfter("30 2 * * *", "Europe/Stockholm", "2026-10-24T12:00:00Z", 2), [
    "2026-10-25T00:30:00Z",
    "2026-10-26T01:30:00Z",
  ]);
});

test("an expression with many times is due at those that exist, in both passes of an overlap (D2)", (t) => {
  t.deepEqual(dueAfter("*/30 * * * *", "Europe/Stockholm", "2026-03-29T00:15:00Z", 3), [
    "2026-03-29T00:30:00Z",
    "2026-03-29T01:00:00Z",
    "2026-03-29T01:30:00Z",
  ]);
  t.deepEqual(dueAfter("15,45 2 * * *", "Europe/Stockholm", "2026-03-28T12:00:00Z", 1), ["2026-03-30T00:15:00Z"]);
  t.deepEqual(dueAfter("0 * * * *", "Europe/Stockholm", "2026-10-24T23:30:00Z", 4), [
    "2026-10-25T00:00:00Z",
    "2026-10-25T01:00:00Z",
    "2026-10-25T02:00:00Z",
    "2026-10-25T03:00:00Z",
  ]);
  t.deepEqual(dueAfter("30 1-3 * * *", "Europe/Stockholm", "2026-10-24T23:00:00Z", 4), [
    "2026-10-24T23:30:00Z",
    "2026-10-25T00:30:00Z",
    "2026-10-25T01:30:00Z",
    "2026-10-25T02:30:00Z",
  ]);
});

test("a shift of half an hour, and a change at midnight, are handled like any other", (t) => {
  t.deepEqual(dueAfter("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T20:00:00Z", 2), [
    "2026-10-03T15:30:00Z",
    "2026-10-04T15:15:00Z",
  ]);
  t.deepEqual(dueAfter("30 0 * * *", "America/Havana", "2026-03-07T12:00:00Z", 2), [
    "2026-03-08T05:00:00Z",
    "2026-03-09T04:30:00Z",
  ]);
});

test("expressions with seconds, names, nicknames and last days are parsed", (t) => {
  t.deepEqual(dueAfter("*/20 * * * * *", "UTC", "2026-02-02T02:40:00Z", 2), [
    "2026-02-02T02:40:20Z",
    "2026-02-02T02:40:40Z",
  ]);
  t.deepEqual(dueAfter("@daily", "Asia/Tokyo", "2026-02-02T02:40:00Z", 1), ["2026-02-02T15:00:00Z"]);
  t.deepEqual(dueAfter("0 9 * FEB MON-FRI", "UTC", "2026-02-06T10:00:00Z", 1), ["2026-02-09T09:00:00Z"]);
  t.deepEqual(dueAfter("0 0 L * *", "UTC", "2028-02-02T00:00:00Z", 1), ["2028-02-29T00:00:00Z"]);
  t.deepEqual(dueAfter("0 0 13 * FRI", "UTC", "2026-10-02T22:45:00Z", 2), [
    "2026-10-09T00:00:00Z",
    "2026-10-13T00:00:00Z",
  ]);
});

const withSchedule = (labels: Readonly<Record<string, string>>) =>
  withLabels({ [jobLabel.cron]: "*/10 * * * * *", ...labels })(ServiceSpec.patch(jobSpec(), one));

/** With valid values in the fields that are checked before the labels. */
function asContainer(spec: ServiceSpec): ServiceSpec {
  return ServiceSpec.patch(spec, { task: TaskSpec.create({ container: ContainerSpec.create({ image: "busybox" }) }) });
}

function publishing(
  spec: ServiceSpec,
  publishedPort: number,
  publishMode: PortConfig_PublishMode = PortConfig_PublishMode.INGRESS,
): ServiceSpec {
  const ports = [PortConfig.create({ publishedPort, targetPort: 80, publishMode })];
  return ServiceSpec.patch(spec, { endpoint: EndpointSpec.create({ ports }) });
}

for (const [what, spec, message] of [
  ["too few fields", withSchedule({ [jobLabel.cron]: "* * * *" }), /five fields, six with seconds/],
  ["a field out of range", withSchedule({ [jobLabel.cron]: "61 * * * *" }), /Invalid value for minute: 61/],
  ["the current time as a field", withSchedule({ [jobLabel.cron]: "? * * * *" }), /invalid field '\?'/],
  ["a date", withSchedule({ [jobLabel.cron]: "2026-10-02T22:45:00Z" }), /invalid cron expression/],
  ["a day that never occurs", withSchedule({ [jobLabel.cron]: "0 0 30 2 *" }), /is never due/],
  ["an unknown time zone", withSchedule({ [jobLabel.timeZone]: "Mars/Base" }), /invalid time zone 'Mars\/Base'/],
  ["an offset for a time zone", withSchedule({ [jobLabel.timeZone]: "+02:00" }), /invalid time zone/],
  [
    "an unknown policy",
    withSchedule({ [jobLabel.overlap]: "queue" }),
    /invalid value 'queue' for .*: expected one of forbid, allow, replace$/,
  ],
  ["a window without a unit", withSchedule({ [jobLabel.missedRunWindow]: "90" }), /expected a duration/],
  [
    "a window within which no run starts",
    withSchedule({ [jobLabel.missedRunWindow]: "0" }),
    /invalid value '0' .*, at least 1s$/,
  ],
  ["a time to live shorter than any run", withSchedule({ [jobLabel.ttl]: "0" }), /cannot be 0 for a schedule/],
  ["a negative history", withSchedule({ [jobLabel.history]: "-1" }), /expected a number up to 1000/],
  ["a misspelt label", withSchedule({ "muster.schedule.crom": "x" }), /unknown label muster.schedule.crom/],
  [
    "a time zone without an expression",
    withLabels({ [jobLabel.timeZone]: "UTC" })(ServiceSpec.patch(jobSpec(), one)),
    /requires label muster.schedule.cron/,
  ],
  [
    "a schedule on a service that is not a job",
    ServiceSpec.patch(withSchedule({}), { replicatedJob: null, replicated: ReplicatedService.create({ replicas: 1 }) }),
    /applies only to replicated-job and global-job services/,
  ],
  [
    "a port of every node",
    publishing(withSchedule({}), 8080),
    /cannot publish port 8080 in ingress mode for a scheduled job/,
  ],
  ["an unknown state", withSchedule({ [jobLabel.state]: "asleep" }), /expected one of running, paused, stopped/],
] as const) {
  test(`${what} is rejected with the reason`, (t) => {
    const refusal = checkServiceSpec(asContainer(spec));
    t.is(refusal?.kind, "invalid-argument");
    t.regex(refusal?.message ?? "", message);
  });
}

test("a port of the run's own node, or one that the cluster assigns, is accepted", (t) => {
  t.is(checkServiceSpec(asContainer(publishing(withSchedule({}), 8080, PortConfig_PublishMode.HOST))), null);
  t.is(checkServiceSpec(asContainer(publishing(withSchedule({}), 0))), null);
});

test("a valid schedule is accepted", (t) => {
  t.is(
    checkServiceSpec(
      asContainer(
        withSchedule({
          [jobLabel.timeZone]: "Europe/Stockholm",
          [jobLabel.overlap]: "replace",
          [jobLabel.missedRunWindow]: "1h30m",
          [jobLabel.history]: "0",
          [jobLabel.ttl]: "24h",
          own: "label",
        }),
      ),
    ),
    null,
  );
});

test("the same due time has the same id and name, and another has others", (t) => {
  const service = Service.create({ id: "0123456789abcdefghijklmno", spec: jobSpec("x".repeat(60)) });
  const at = Date.parse("2026-03-29T01:30:00Z");
  t.is(runId(service.id, at), runId(service.id, at));
  t.is(runId(service.id, at).length, 25);
  t.not(runId(service.id, at), runId(service.id, at + 1_000));
  t.is(runName(service, at).length, 63);
  t.true(runName(service, at).endsWith("-20260329-013000"));
  for (const ms of [0, at, Date.parse("2028-02-29T23:59:59Z"), Date.parse("2100-03-01T00:00:00Z")]) {
    t.is(isoOf(ms), new Date(ms).toISOString().replace(".000", ""));
  }
});

/** The outcome of each due time, by seconds after the first: `10:SUCCEEDED`. */
function history(cluster: TestCluster): readonly string[] {
  const names = new Map<number, string>(Object.entries(ScheduledRun_Outcome).map(([name, number]) => [number, name]));
  return records(cluster).map((run) => {
    const name = (names.get(run.outcome) ?? "").replace("OUTCOME_", "");
    return `${seconds(run)}:${name}${run.count > 1 ? `*${run.count}` : ""}`;
  });
}

function records(cluster: TestCluster): readonly ScheduledRun[] {
  return readScheduleStatus(cluster.store.get("resource", "job"))?.runs ?? [];
}

let epochMs = 0;

function seconds(run: ScheduledRun): number {
  return Math.round((timeMs(run.due) - epochMs) / 1_000);
}

function runsOf(cluster: TestCluster): readonly Service[] {
  return [...cluster.store.all("service")].filter((service) => scheduleOf(service) === "job");
}

/** A cluster whose clock is just after a whole minute, with a job that is due every ten seconds. */
async function scheduled(labels: Readonly<Record<string, string>> = {}): Promise<TestCluster> {
  const cluster = await testCluster(["n1"]);
  await cluster.run(60_000 - (cluster.clock.now() % 60_000) + 1);
  epochMs = cluster.clock.now() - 1;
  cluster.outcome = () => TaskState.COMPLETE;
  await addJob(cluster, withSchedule(labels));
  return cluster;
}

test.serial("each due time starts one run as a job of its own, and the record has its outcome", async (t) => {
  const cluster = await scheduled({ own: "label", [jobLabel.ttl]: "1h" });
  t.is(cluster.tasks("job").length, 0, "the schedule itself does nothing");
  const [waiting] = cluster.orchestration.explainService("job");
  t.regex(waiting?.waitingFor ?? "", /its next run, due at .* \(\*\/10 \* \* \* \* \* in UTC\)/);
  t.is(timeMs(waiting?.deadline ?? null), epochMs + 10_000);
  await cluster.run(25_000);
  t.deepEqual(history(cluster), ["10:SUCCEEDED", "20:SUCCEEDED"]);
  const [run] = runsOf(cluster);
  t.is(run?.id, runId("job", epochMs + 10_000));
  t.is(run?.spec?.annotations?.name, runName(cluster.store.get("service", "job") as Service, epochMs + 10_000));
  t.deepEqual(run?.spec?.annotations?.labels, {
    own: "label",
    [jobLabel.ttl]: "1h",
    [jobLabel.schedule]: "job",
    [jobLabel.due]: isoOf(epochMs + 10_000),
  });
  t.is(cluster.tasks(run?.id).length, 1);
  t.regex(cluster.orchestration.explainService("job")[0]?.tried.join() ?? "", /succeeded/);
});

test.serial("a change of leader neither repeats nor forgets a due time", async (t) => {
  const cluster = await scheduled();
  for (let second = 0; second < 60; second += 3) {
    cluster.changeLeader();
    await cluster.run(3_000);
  }
  t.deepEqual(
    records(cluster).map(seconds),
    [10, 20, 30, 40, 50, 60].filter((second) => epochMs + second * 1_000 <= cluster.clock.now()),
  );
});

test.serial("two leaders at once start each run once", async (t) => {
  const cluster = await scheduled({ [jobLabel.history]: "100" });
  // The old one does not know yet that it is no longer the leader.
  const { clock, telemetry } = cluster.env;
  const host = new Host({ clock, telemetry, onCrash: (_, error) => t.fail(String(error)) });
  const old = startOrchestration({ ...cluster.env, host });
  await cluster.run(35_000);
  old.stop();
  t.deepEqual(history(cluster), ["10:SUCCEEDED", "20:SUCCEEDED", "30:SUCCEEDED"]);
  t.is(runsOf(cluster).length, 3);
});

test.serial(
  "after a time without a leader the newest run starts late, and those before it are recorded as missed",
  async (t) => {
    const cluster = await scheduled();
    await cluster.run(12_000);
    cluster.orchestration.stop();
    await cluster.run(33_000);
    cluster.changeLeader();
    await cluster.run(2_000);
    t.deepEqual(history(cluster), ["10:SUCCEEDED", "30:MISSED*2", "40:SUCCEEDED"]);
    t.regex(
      cluster.orchestration.explainService("job")[0]?.tried.join() ?? "",
      /missed \(2 since .*a later run was due/,
    );
  },
);

test.serial("a run that is later than its window is missed", async (t) => {
  const cluster = await scheduled({ [jobLabel.missedRunWindow]: "2s" });
  cluster.orchestration.stop();
  await cluster.run(13_000);
  cluster.changeLeader();
  await cluster.run(1_000);
  t.deepEqual(history(cluster), ["10:MISSED"]);
  cluster.orchestration.stop();
  await cluster.run(7_500);
  cluster.changeLeader();
  await cluster.run(1_000);
  t.deepEqual(history(cluster), ["10:MISSED", "20:SUCCEEDED"]);
});

test.serial("forbid skips a due time while a run has not finished, and says why", async (t) => {
  const cluster = await scheduled();
  cluster.outcome = () => undefined;
  await cluster.run(32_000);
  t.deepEqual(history(cluster), ["10:ACTIVE", "20:SKIPPED", "30:SKIPPED"]);
  const [why] = cluster.orchestration.explainService("job");
  t.regex(why?.waitingFor ?? "", /unless job-\d+-\d+ still runs then/);
  t.regex(why?.tried.at(-1) ?? "", /skipped: job-\d+-\d+ had not finished/);
  const [task] = cluster.tasks(runsOf(cluster)[0]?.id);
  cluster.outcome = () => TaskState.COMPLETE;
  await cluster.report(task!, TaskState.COMPLETE);
  await cluster.run(10_000);
  t.deepEqual(history(cluster), ["10:SUCCEEDED", "20:SKIPPED", "30:SKIPPED", "40:SUCCEEDED"]);
});

test.serial("a permanently lost node blocks no later run, neither of a global job nor of a stopped one", async (t) => {
  const global = await scheduled();
  await global.addNode("n2");
  await updateJob(global, (spec) => ServiceSpec.patch(spec, { replicatedJob: null, globalJob: GlobalJob.create() }));
  global.outcome = ({ nodeId }) => (nodeId === "n2" ? undefined : TaskState.COMPLETE);
  await global.run(12_000);
  await global.killNode("n2");
  await global.run(80_000);
  t.deepEqual(history(global).slice(0, 2), ["10:SUCCEEDED", "20:SKIPPED"]);
  t.is(history(global).at(-1), "90:SUCCEEDED");

  const stopped = await scheduled();
  stopped.outcome = () => undefined;
  await stopped.run(12_000);
  await stopped.killNode("n1");
  const [run] = runsOf(stopped);
  await updateJob(stopped, withLabels({ ...run?.spec?.annotations?.labels, [jobLabel.state]: "stopped" }), run?.id);
  await stopped.run(10_000);
  t.deepEqual(history(stopped), ["10:STOPPED", "20:ACTIVE"]);
});

test.serial("allow runs them side by side, replace stops the earlier one", async (t) => {
  const side = await scheduled({ [jobLabel.overlap]: "allow" });
  side.outcome = () => undefined;
  await side.run(32_000);
  t.deepEqual(history(side), ["10:ACTIVE", "20:ACTIVE", "30:ACTIVE"]);
  const instead = await scheduled({ [jobLabel.overlap]: "replace", [jobLabel.failedHistory]: "5" });
  instead.outcome = () => undefined;
  await instead.run(32_000);
  t.deepEqual(history(instead), ["10:STOPPED", "20:STOPPED", "30:ACTIVE"]);
  t.regex(records(instead)[0]?.reason ?? "", /^replaced by job-/);
  const running = [...instead.store.all("task")].filter((task) => task.status?.state === TaskState.RUNNING);
  t.is(running.length, 1);
});

test.serial(
  "the newest finished runs are retained, up to the configured numbers of successful and other ones",
  async (t) => {
    const cluster = await scheduled({ [jobLabel.history]: "2", [jobLabel.failedHistory]: "1" });
    const fails = (): boolean => Math.floor((cluster.clock.now() - epochMs) / 10_000) % 2 === 0;
    cluster.outcome = () => (fails() ? TaskState.REJECTED : TaskState.COMPLETE);
    await updateJob(cluster, (spec) =>
      ServiceSpec.patch(spec, {
        task: { ...spec.task!, restart: { condition: 0, delay: null, maxAttempts: 0, window: null } } as never,
      }),
    );
    await cluster.run(65_000);
    t.deepEqual(history(cluster), [
      "10:SUCCEEDED",
      "20:FAILED",
      "30:SUCCEEDED",
      "40:FAILED",
      "50:SUCCEEDED",
      "60:FAILED",
    ]);
    t.deepEqual(
      runsOf(cluster)
        .map((run) => run.id)
        .toSorted(),
      [30, 50, 60].map((second) => runId("job", epochMs + second * 1_000)),
    );
    t.is([...cluster.store.all("task")].length, 3);
  },
);

test.serial("nothing is due while it is paused, and nothing is made up for afterwards", async (t) => {
  const cluster = await scheduled();
  await cluster.run(12_000);
  await updateJob(cluster, withLabels({ [jobLabel.cron]: "*/10 * * * * *", [jobLabel.state]: "paused" }));
  await cluster.run(20_000);
  t.regex(cluster.orchestration.explainService("job")[0]?.waitingFor ?? "", /an operator to resume/);
  await updateJob(cluster, withLabels({ [jobLabel.cron]: "*/10 * * * * *" }));
  await cluster.run(10_000);
  t.deepEqual(history(cluster), ["10:SUCCEEDED", "40:SUCCEEDED"]);
});

test.serial("stopping a schedule stops its runs once, and pausing it lets them continue", async (t) => {
  const labels = { [jobLabel.cron]: "*/10 * * * * *" };
  const cluster = await scheduled();
  cluster.outcome = () => undefined;
  await cluster.run(12_000);
  await updateJob(cluster, withLabels({ ...labels, [jobLabel.state]: "paused" }));
  await cluster.run(10_000);
  const [run] = runsOf(cluster);
  t.deepEqual(jobPicture(cluster, run?.id), ["0:RUNNING@n1"]);
  await updateJob(cluster, withLabels({ ...labels, [jobLabel.state]: "stopped" }));
  await cluster.run(10_000);
  t.deepEqual(jobPicture(cluster, run?.id), []);
  t.deepEqual(history(cluster), ["10:STOPPED"]);
  t.is(records(cluster)[0]?.reason, "its schedule was stopped");
  await updateJob(cluster, withLabels({ ...run?.spec?.annotations?.labels }), run?.id);
  await cluster.run(10_000);
  t.deepEqual(jobPicture(cluster, run?.id), ["0:RUNNING@n1"], "a run resumed by name continues");
});

test.serial("unstarted runs due before a change of the expression are recorded", async (t) => {
  const cluster = await scheduled();
  cluster.orchestration.stop();
  await cluster.run(12_000);
  await updateJob(cluster, withLabels({ [jobLabel.cron]: "*/15 * * * * *" }));
  cluster.changeLeader();
  await cluster.run(20_000);
  t.deepEqual(history(cluster), ["10:MISSED", "15:SUCCEEDED", "30:SUCCEEDED"]);
  t.is(records(cluster)[0]?.reason, "the schedule was changed before it started");
});

test.serial("a very long absence is one line, and does not delay the leader", async (t) => {
  const cluster = await scheduled();
  await cluster.run(1_000);
  cluster.orchestration.stop();
  await cluster.run(10_000 * 350);
  cluster.changeLeader();
  await cluster.run(2_000);
  t.is(history(cluster).length, 2);
  t.regex(history(cluster)[0] ?? "", /MISSED\*349$/);
});

test.serial("removing a schedule removes its runs and its record, also without a leader", async (t) => {
  const cluster = await scheduled();
  await cluster.run(12_000);
  await cluster.removeService("job");
  await cluster.run(1_000);
  t.deepEqual(
    [cluster.store.count("service"), cluster.store.count("resource"), cluster.store.count("task")],
    [0, 0, 0],
  );
  const other = await scheduled();
  await other.run(12_000);
  other.orchestration.stop();
  await other.removeService("job");
  other.changeLeader();
  await other.run(1_000);
  t.deepEqual([other.store.count("service"), other.store.count("resource"), other.store.count("task")], [0, 0, 0]);
  t.deepEqual(
    [...other.env.host.ids()].filter((id) => id.startsWith("schedule/") || id.startsWith("job/")),
    [],
  );
});

test.serial("a job that loses its schedule runs itself, and keeps its earlier runs", async (t) => {
  const cluster = await scheduled();
  await cluster.run(12_000);
  await updateJob(cluster, withLabels({}));
  await cluster.run(1_000);
  t.is(cluster.store.count("resource"), 0);
  t.is(runsOf(cluster).length, 1);
  t.is(cluster.tasks("job")[0]?.status?.state, TaskState.COMPLETE);
  await updateJob(cluster, withLabels({ [jobLabel.cron]: "*/10 * * * * *" }));
  await cluster.run(10_000);
  t.deepEqual(history(cluster), ["20:SUCCEEDED"]);
});

test.serial("a job that gets a schedule again at once follows the new one", async (t) => {
  const cluster = await scheduled();
  await cluster.run(12_000);
  const service = cluster.store.get("service", "job") as Service;
  cluster.seed("service", Service.patch(service, { spec: withLabels({})(service.spec as ServiceSpec) }));
  cluster.seed("service", service);
  await cluster.run(10_000);
  t.deepEqual(history(cluster), ["20:SUCCEEDED"]);
});

test.serial("a run that somebody removes is recorded as removed, and not started again", async (t) => {
  const cluster = await scheduled();
  cluster.outcome = () => undefined;
  await cluster.run(12_000);
  const [run] = runsOf(cluster);
  await cluster.propose(Operation.create({ remove: Removal.create({ kind: Kind.KIND_SERVICE, id: run?.id ?? "" }) }));
  await cluster.run(2_000);
  t.deepEqual(history(cluster), ["10:REMOVED"]);
});

test.serial("a run whose name is in use is named by its id", async (t) => {
  const cluster = await scheduled();
  const name = runName(cluster.store.get("service", "job") as Service, epochMs + 10_000);
  await cluster.propose(
    Operation.create({
      create: StoreObject.create({ service: Service.create({ id: "squatter", spec: jobSpec(name) }) }),
    }),
  );
  await cluster.run(12_000);
  t.is(records(cluster)[0]?.runName, runId("job", epochMs + 10_000));
});

test.serial("a run that the log rejects is skipped with the log's reason, and the next due time comes", async (t) => {
  const cluster = await scheduled();
  cluster.seed("network", Network.create({ id: "ingress", spec: NetworkSpec.create({ ingress: true }) }));
  // As accepted by an earlier version.
  await updateJob(cluster, (spec) => publishing(spec, 8080));
  await cluster.run(12_000);
  t.deepEqual(history(cluster), ["10:SKIPPED"]);
  t.regex(records(cluster)[0]?.reason ?? "", /cannot create its run: port '8080' is already in use by service 'job'/);
  cluster.changeLeader();
  await updateJob(cluster, (spec) => ServiceSpec.patch(spec, { endpoint: null }));
  await cluster.run(10_000);
  t.deepEqual(history(cluster), ["10:SKIPPED", "20:SUCCEEDED"]);
});

test.serial("after an outage of the log nothing is started twice", async (t) => {
  const cluster = await scheduled();
  await cluster.run(8_000);
  cluster.leaderless = true;
  await cluster.run(7_000);
  cluster.leaderless = false;
  await cluster.run(2_000);
  t.deepEqual(history(cluster), ["10:SUCCEEDED"]);
});
