// `muster job`: from flags to specs, and when a job counts as finished.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test from "ava";
import { jobConvergence } from "../../cli/job/convergence.ts";
import { jobSpec, type JobValues } from "../../cli/job/flags.ts";
import { iterationRows } from "../../cli/job/history.ts";
import { UsageError } from "../../lib/user-error.ts";
import type { Lookups } from "../../cli/service/references.ts";
import { driverRuntimeOf } from "../../machines/driver/spec.ts";
import { jobLabel } from "../../machines/orchestration/jobs/labels.ts";
import { newService } from "../../machines/orchestration/service-update.ts";
import {
  Node,
  NodeStatus,
  NodeStatus_State,
  Task,
  TaskState,
  TaskStatus,
  Version,
  type ServiceSpec,
} from "../../proto/gen/messages.ts";
import { served } from "../support/served.ts";

const noLookups: Lookups = {
  network: (name) => name,
  secret: (name) => name,
  config: (name) => name,
};

function spec(flags: JobValues, words: readonly string[] = ["busybox"]): ServiceSpec {
  return jobSpec(flags, words, noLookups);
}

test("by default a job runs once, with all tasks at once", (t) => {
  t.like(spec({}).replicatedJob, { totalCompletions: 1, maxConcurrent: 1 });
  t.like(spec({ total: "6" }).replicatedJob, { totalCompletions: 6, maxConcurrent: 6 });
  t.like(spec({ replicas: "6", "max-concurrent": "2" }).replicatedJob, { totalCompletions: 6, maxConcurrent: 2 });
  t.truthy(spec({ global: true }).globalJob);
  t.is(spec({}).update, null, "a job may have no update config");
});

test("a job may run on a driver plugin, whose configuration says what to run", async (t) => {
  const { manager, muster } = await served(t);
  const file = join(mkdtempSync(join(tmpdir(), "muster-job-")), "config.yaml");
  t.teardown(() => rmSync(dirname(file), { recursive: true, force: true }));
  writeFileSync(file, "image: backup\n");
  const configOf = (name: string) => {
    const service = manager.store.byName("service", name);
    t.is(service?.spec?.replicatedJob?.totalCompletions, 1);
    return driverRuntimeOf(service?.spec?.task ?? null)?.spec.config;
  };
  const driver = ["--driver", "docker", "--driver-config"];
  t.deepEqual((await muster("job", "run", "-d", "--name", "a", ...driver, '{"image":"a"}')).remarks, []);
  t.is(configOf("a"), '{"image":"a"}');
  t.deepEqual((await muster("job", "run", "--name", "b", ...driver, `@${file}`)).remarks, []);
  t.is(configOf("b"), '{"image":"backup"}');
  const refused = async (...args: string[]) => {
    const { remarks, status } = await muster("job", "run", ...args);
    t.is(status, 125);
    return remarks[0] ?? "";
  };
  t.regex(await refused(...driver, "{}", "word"), /unexpected argument "word"/);
  t.regex(await refused(), /the image is missing/);
  t.regex(await refused("--driver", "exec"), /the command is missing/);
  t.regex(await refused("-d", "--wait", "bb:1"), /--wait and --detach/);
  t.regex(await refused("--detach=false", "--schedule", "@daily", "bb:1"), /--wait cannot be used with --schedule/);
});

test("a job's settings become labels, beside its own", (t) => {
  const flags: JobValues = {
    name: "backup",
    label: ["own=label"],
    ttl: "1h",
    paused: true,
    schedule: "30 2 * * *",
    "time-zone": "Europe/Stockholm",
    overlap: "replace",
    "missed-run-window": "10m",
    history: "5",
    "failed-history": "2",
  };
  const { annotations, task } = spec(flags, ["busybox", "tar", "-c"]);
  t.is(annotations?.name, "backup");
  t.deepEqual(
    { ...annotations?.labels },
    {
      own: "label",
      [jobLabel.ttl]: "1h",
      [jobLabel.cron]: "30 2 * * *",
      [jobLabel.timeZone]: "Europe/Stockholm",
      [jobLabel.overlap]: "replace",
      [jobLabel.missedRunWindow]: "10m",
      [jobLabel.history]: "5",
      [jobLabel.failedHistory]: "2",
      [jobLabel.state]: "paused",
    },
  );
  t.deepEqual(task?.container?.args, ["tar", "-c"]);
});

for (const [what, flags] of [
  ["two totals", { total: "1", replicas: "2" }],
  ["a total for every node", { global: true, total: "3" }],
  ["an overlap policy without a schedule", { overlap: "allow" }],
  ["waiting for a schedule", { schedule: "@daily", wait: true }],
] as const) {
  test(`${what} is rejected as contradictory`, (t) => {
    t.throws(() => spec(flags), { instanceOf: UsageError });
  });
}

const nodes = [Node.create({ id: "n1", status: NodeStatus.create({ state: NodeStatus_State.READY }) })];

function taskIn(slot: number, state: TaskState, fields: Partial<Task> = {}): Task {
  return Task.create({
    id: `t${slot}-${state}`,
    slot,
    nodeId: "n1",
    jobIteration: Version.create({}),
    desiredState: state > TaskState.COMPLETE ? TaskState.SHUTDOWN : TaskState.COMPLETE,
    status: TaskStatus.create({ state, err: state === TaskState.FAILED ? "task: non-zero exit (3)" : "" }),
    ...fields,
  });
}

test("a job is awaited until all tasks are done, or until it has failed or is paused", (t) => {
  const service = newService("job", spec({ total: "2", "restart-condition": "none" }), 0);
  const { COMPLETE, FAILED, RUNNING } = TaskState;
  const none = { spec: service.spec?.task ?? null };
  t.like(jobConvergence(service, [taskIn(0, COMPLETE), taskIn(1, RUNNING)], nodes), {
    kind: "moving",
    done: 1,
    wanted: 2,
  });
  t.like(jobConvergence(service, [taskIn(0, COMPLETE), taskIn(1, COMPLETE)], nodes), { kind: "converged", wanted: 2 });
  t.deepEqual(jobConvergence(service, [taskIn(0, COMPLETE), taskIn(1, FAILED, none)], nodes), {
    kind: "failed",
    reason: "1 of 2 tasks of the job failed for good: task: non-zero exit (3)",
  });
  const paused = newService("job", spec({ total: "2", paused: true }), 0);
  t.like(jobConvergence(paused, [taskIn(0, COMPLETE)], nodes), {
    reason: "the job is paused: 1 of 2 tasks are complete",
  });
  const schedule = newService("job", spec({ schedule: "@daily" }), 0);
  t.like(jobConvergence(schedule, [], nodes), { kind: "converged" });
});

test("a job's iterations are listed from its tasks, newest first", (t) => {
  const { COMPLETE, FAILED, RUNNING } = TaskState;
  const next = { jobIteration: Version.create({ index: 1 }) };
  const rows = iterationRows(
    [taskIn(0, COMPLETE), taskIn(1, FAILED), taskIn(1, COMPLETE), taskIn(0, COMPLETE, next), taskIn(1, RUNNING, next)],
    () => "then",
  );
  t.deepEqual(
    rows.map(({ cells }) => cells.join(" ")),
    ["1 then 1 0 1", "0 then 2 1 0"],
  );
});
