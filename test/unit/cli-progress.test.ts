// How a service's progress towards its wanted state is shown and awaited.
import test from "ava";
import { convergence } from "../../cli/convergence.ts";
import { overallLine, progressLines, redrawn } from "../../cli/service/bars.ts";
import { prettyService } from "../../cli/service/pretty.ts";
import { ingressPorts } from "../../cli/service/listing.ts";
import { parsePublish } from "../../cli/publish-flag.ts";
import { newSpec } from "../../cli/service/spec.ts";
import type { CreateValues } from "../../cli/service/flags.ts";
import {
  Duration,
  JobStatus,
  Meta,
  Node,
  NodeSpec,
  NodeSpec_Availability,
  Service,
  ServiceSpec,
  TaskState,
  TaskStatus,
  Timestamp,
  UpdateConfig,
  UpdateStatus,
  UpdateStatus_UpdateState,
  Version,
  type Task,
} from "../../proto/gen/messages.ts";
import { readyNode, served, taskOf } from "../support/served.ts";

async function until(condition: () => boolean): Promise<void> {
  for (let turn = 0; turn < 500 && !condition(); turn += 1) await new Promise((resolve) => setTimeout(resolve, 10));
}

function serviceWith(flags: CreateValues, fields: Partial<Service> = {}): Service {
  return Service.create({
    id: "s",
    spec: newSpec({ name: "web", ...flags }, ["bb"]),
    specVersion: Version.create({}),
    ...fields,
  });
}

test("each of a few tasks has a line with its state and a bar", (t) => {
  const service = serviceWith({ replicas: "3" });
  const stuck = TaskStatus.create({ state: TaskState.PENDING, err: `no suitable node\n${"x".repeat(100)}` });
  const tasks = [
    taskOf(service, 1, "n1", TaskState.RUNNING),
    taskOf(service, 2, "n1", TaskState.PREPARING),
    taskOf(service, 3, "", TaskState.PENDING, { status: stuck }),
  ];
  const lines = progressLines({ service, tasks, nodes: [] }, 1, 3);
  t.is(lines[0], "overall progress: 1 out of 3 tasks");
  t.is(lines[1], `1/3: running   [${"=".repeat(49)}>]`);
  t.regex(lines[2] ?? "", /^2\/3: preparing \[=+> +\]$/);
  t.is(lines[3], `3/3: no suitable node ${"x".repeat(57)}…`);
  t.is(progressLines({ service: serviceWith({ replicas: "30" }), tasks, nodes: [] }, 1, 30).length, 1, "too many");
});

test("a global service has a line for each node, and a job shows completed and active tasks", (t) => {
  const everywhere = serviceWith({ mode: "global" });
  const one = taskOf(everywhere, 0, "n1", TaskState.STARTING);
  t.regex(
    progressLines({ service: everywhere, tasks: [one], nodes: [readyNode("n1", "alpha")] }, 0, 1)[1] ?? "",
    /^alpha: starting /,
  );
  const job = serviceWith(
    { mode: "replicated-job", replicas: "4", "max-concurrent": "2" },
    { jobStatus: JobStatus.create({ jobIteration: Version.create({}) }) },
  );
  const iteration = { jobIteration: Version.create({}) };
  const tasks = [
    taskOf(job, 0, "n1", TaskState.COMPLETE, iteration),
    taskOf(job, 1, "n1", TaskState.RUNNING, iteration),
  ];
  const lines = progressLines({ service: job, tasks, nodes: [] }, 1, 4);
  t.regex(lines[0] ?? "", /^job progress: 1 out of 4 complete \[=+> +\]$/);
  t.is(lines[1], "active tasks: 1 out of 2 tasks");
  t.regex(lines[2] ?? "", /^1\/4: complete +\[=+>\]$/);
  t.is(lines[5], "4/4: ");
});

test("a rollback in progress is labelled, and lines are redrawn over the previous ones", (t) => {
  const status = UpdateStatus.create({ state: UpdateStatus_UpdateState.ROLLBACK_STARTED });
  t.is(
    overallLine(serviceWith({}, { updateStatus: status }), 0, 1),
    "overall progress: rolling back update: 0 out of 1 tasks",
  );
  t.is(redrawn(0, ["abcdef", "x"], 5), "abcd\x1b[K\nx\x1b[K\n");
  t.is(redrawn(2, ["y"], 80), "\r\x1b[2Ay\x1b[K\n\x1b[J");
});

test("tasks are watched for the monitoring time, which restarts when one fails", async (t) => {
  const { musterWith, manager } = await served(t);
  const seen: string[] = [];
  const args = ["service", "create", "--name", "web", "--update-monitor", "5s", "bb:1"];
  const waiting = musterWith((line) => void seen.push(line), ...args);
  await until(() => manager.store.byName("service", "web") !== undefined);
  const service = manager.store.byName("service", "web") as Service;
  manager.seed("task", taskOf(service, 1, "n1", TaskState.RUNNING));
  const verifying = "verify: Waiting 5 seconds to verify that tasks are stable...";
  await until(() => seen.includes(verifying));
  manager.seed("task", taskOf(service, 1, "n1", TaskState.FAILED, { desiredState: TaskState.SHUTDOWN }));
  await until(() => seen.includes("verify: Detected task failure"));
  t.false(seen.includes("verify: Service converged"));
  manager.seed("task", taskOf(service, 1, "n1", TaskState.RUNNING, { id: "successor" }));
  t.is((await waiting).status, 0);
  t.deepEqual(seen.slice(-2), [verifying, "verify: Service converged"]);
});

test("an update that was rolled back is a failure, with the reason", async (t) => {
  const { muster, musterWith, manager } = await served(t);
  await muster("service", "create", "-d", "--name", "web", "bb:1");
  const seen: string[] = [];
  const waiting = musterWith((line) => void seen.push(line), "service", "update", "--image", "nope:1", "web");
  const current = () => manager.store.byName("service", "web") as Service;
  await until(
    () => current().spec?.task?.container?.image === "nope:1" && seen.some((line) => line.startsWith("overall")),
  );
  const { ROLLBACK_STARTED, ROLLBACK_COMPLETED } = UpdateStatus_UpdateState;
  const turn = (state: UpdateStatus_UpdateState, message: string) =>
    manager.seed("service", Service.patch(current(), { updateStatus: UpdateStatus.create({ state, message }) }));
  turn(ROLLBACK_STARTED, "update rolled back due to failure or early termination of task t1: No such image: nope:1");
  await until(() => seen.some((line) => line.startsWith("overall progress: rolling back update")));
  t.is(seen.filter((line) => line.startsWith("rollback: update rolled back due to failure")).length, 1);
  turn(ROLLBACK_COMPLETED, "rollback completed");
  const { status, remarks } = await waiting;
  t.is(status, 1);
  t.is(
    remarks.at(-1),
    "muster: service rolled back: update rolled back due to failure or early termination of task t1: No such image: nope:1",
  );
});

test("an update that was rolled back before the first check is reported with its reason", async (t) => {
  const { muster, musterWith, manager } = await served(t);
  await muster("service", "create", "-d", "--name", "web", "bb:1");
  const current = () => manager.store.byName("service", "web") as Service;
  const waiting = musterWith(() => {}, "service", "update", "--image", "nope:1", "web");
  await until(() => current().spec?.task?.container?.image === "nope:1");
  const updateStatus = UpdateStatus.create({
    state: UpdateStatus_UpdateState.ROLLBACK_COMPLETED,
    message: "rollback completed; update rolled back due to failure or early termination of task t1: No such image",
  });
  manager.seed("service", Service.patch(current(), { updateStatus }));
  t.is(
    (await waiting).remarks.at(-1),
    "muster: service rolled back: rollback completed; update rolled back due to failure or early termination of task t1: No such image",
  );
});

test("an update completed without all of its tasks ends the waiting, and reports how many run", async (t) => {
  const { muster, musterWith, manager } = await served(t);
  await muster("service", "create", "-d", "--name", "web", "--replicas", "2", "bb:1");
  const seen: string[] = [];
  const change = ["--image", "bb:2", "--update-failure-action", "continue"];
  const waiting = musterWith((line) => void seen.push(line), "service", "update", ...change, "web");
  const current = () => manager.store.byName("service", "web") as Service;
  await until(() => seen.some((line) => line.startsWith("overall")));
  manager.seed("task", taskOf(current(), 1, "n1", TaskState.RUNNING));
  const message = "update completed; 1 task failed";
  const updateStatus = UpdateStatus.create({ state: UpdateStatus_UpdateState.COMPLETED, message });
  manager.seed("service", Service.patch(current(), { updateStatus }));
  const { remarks, status } = await waiting;
  t.is(status, 0);
  t.deepEqual(remarks.slice(-2), [
    "overall progress: 1 out of 2 tasks",
    "verify: update completed; 1 task failed; 1 of 2 tasks run",
  ]);
});

test("when several services are scaled, each is awaited, even if another fails", async (t) => {
  const { muster, manager } = await served(t);
  for (const name of ["a", "b"])
    await muster("service", "create", "-d", "--restart-condition=none", "--update-monitor=1ms", "--name", name, "bb:1");
  const named = (name: string) => manager.store.byName("service", name) as Service;
  const waiting = muster("service", "scale", "a=1", "none=1", "b=1");
  await until(() => (named("b").specVersion?.index ?? 0) > 0);
  const failed = { id: "t1", desiredState: TaskState.SHUTDOWN };
  manager.seed("task", taskOf(named("a"), 1, "n1", TaskState.FAILED, failed));
  manager.seed("task", taskOf(named("b"), 1, "n1", TaskState.RUNNING));
  const { remarks, status } = await waiting;
  t.is(status, 1);
  t.true(remarks.includes("verify: Service converged"), remarks.join("\n"));
  t.regex(remarks.at(-1) ?? "", /service none not found\nmuster: task a\.1\.t1 ended and its/);
});

test("--quiet waits in silence", async (t) => {
  const { muster, manager } = await served(t);
  const waiting = muster("service", "create", "--quiet", "--name", "web", "--update-monitor", "10ms", "bb:1");
  await until(() => manager.store.byName("service", "web") !== undefined);
  const service = manager.store.byName("service", "web") as Service;
  manager.seed("task", taskOf(service, 1, "n1", TaskState.RUNNING));
  t.deepEqual(await waiting, { status: 0, lines: [service.id], remarks: [] });
});

test("a finished slot without a successor ends the waiting", (t) => {
  const judge = (service: Service, ...tasks: Task[]) => convergence(service, tasks, [], false);
  const failed = (service: Service, n: number, state: TaskState = TaskState.FAILED): Task =>
    taskOf(service, 1, "n1", state, {
      id: `t${n}`,
      desiredState: TaskState.SHUTDOWN,
      meta: Meta.create({ createdAt: Timestamp.create({ seconds: n }) }),
      status: TaskStatus.create({ state, err: `exit ${n}` }),
    });
  const never = serviceWith({ "restart-condition": "none" });
  t.deepEqual(judge(never, failed(never, 1)), {
    kind: "failed",
    reason: "task web.1.t1 ended and its restart policy allows no further attempt: exit 1",
  });
  t.is(judge(never).kind, "moving", "nothing has been attempted yet");
  const some = serviceWith({ "restart-max-attempts": "1" });
  t.is(judge(some, failed(some, 1)).kind, "moving");
  t.is(judge(some, failed(some, 1), failed(some, 2)).kind, "failed");
  t.is(judge(some, failed(some, 1), failed(some, 2), taskOf(some, 1, "n1", TaskState.STARTING)).kind, "moving");
  const onFailure = serviceWith({ "restart-condition": "on-failure" });
  t.is(judge(onFailure, failed(onFailure, 1)).kind, "moving");
  t.is(judge(onFailure, failed(onFailure, 1, TaskState.COMPLETE)).kind, "failed");
  const always = serviceWith({});
  t.is(judge(always, failed(always, 1), failed(always, 2)).kind, "moving");
});

test("a task that ended on a node which a global service has left does not end the waiting", (t) => {
  const service = serviceWith({ mode: "global", "restart-condition": "none" });
  const left = taskOf(service, 0, "left", TaskState.FAILED, { id: "old", desiredState: TaskState.SHUTDOWN });
  const [open, paused] = [readyNode("open", "alpha"), readyNode("left", "beta")];
  const spec = NodeSpec.create({ membership: 1, availability: NodeSpec_Availability.PAUSE });
  for (const nodes of [[open], [open, Node.patch(paused, { spec })]]) {
    t.like(convergence(service, [left], nodes, false), { kind: "moving", done: 0, wanted: 1 });
  }
  t.is(convergence(service, [left], [open, paused], false).kind, "failed", "it is open again");
});

test("neighbouring ports are one range", (t) => {
  const shown = (...texts: string[]) => ingressPorts(texts.flatMap((text) => parsePublish(text)));
  t.is(shown("80-82:80-82"), "*:80-82->80-82/tcp");
  t.is(shown("80-81:80"), "*:80-81->80/tcp");
  t.is(shown("80:80", "81:81", "82:80"), "*:80-81->80-81/tcp, *:82->80/tcp");
  t.is(shown("53:53/udp", "53:53", "mode=host,target=9,published=9"), "*:53->53/tcp, *:53->53/udp");
});

test("inspect --pretty shows a service for people, in Docker's sections", async (t) => {
  const { muster } = await served(t);
  const flags = "--name web --replicas 2 --label a=b -e A=1 --limit-memory 64m --update-delay 3s";
  await muster(
    "service",
    "create",
    "-d",
    ...flags.split(" "),
    "--constraint",
    "node.role==worker",
    "bb:1",
    "sleep",
    "9",
  );
  const { lines } = await muster("service", "inspect", "--pretty", "web");
  for (const line of [
    "Name:             web",
    " a=b",
    "Service Mode:     Replicated",
    " Replicas:        2",
    " Constraints:     node.role==worker",
    " Delay:           3s",
    " Update order:    stop-first",
    " Image:           bb:1",
    " Args:            sleep 9",
    "  Memory:         64MiB",
    "Endpoint Mode:    vip",
  ]) {
    t.true(lines.includes(line), `${line}\n--\n${lines.join("\n")}`);
  }
  t.is((await muster("service", "inspect", "--pretty", "--format", "json", "web")).status, 125);
});

test("an update's outcome is shown beside its time", (t) => {
  const service = Service.create({
    id: "s",
    spec: ServiceSpec.patch(newSpec({ name: "web", driver: "exec" }, ["sleep", "1"]), {
      update: UpdateConfig.create({ parallelism: 2, monitor: Duration.create({ seconds: 90 }), maxFailureRatio: 0.1 }),
    }),
    updateStatus: UpdateStatus.create({
      state: UpdateStatus_UpdateState.ROLLBACK_PAUSED,
      startedAt: Timestamp.create({ seconds: 100 }),
      message: "because",
    }),
  });
  const text = prettyService(service, new Map(), 160_000);
  t.regex(text, /UpdateStatus:\n State: +rollback_paused\n Started: +about a minute ago\n Message: +because\n/);
  t.regex(text, / Monitoring Period: 1m30s\n Max failure ratio: 0\.1\n/);
  t.regex(text, /Process:\n Command: +sleep\n Args: +1\n/);
});

test("service ls filters, and sorts numbers as numbers", async (t) => {
  const { muster } = await served(t);
  for (const name of ["web10", "web2", "db"])
    await muster("service", "create", "-d", "--name", name, "-l", `n=${name}`, "bb:1");
  const names = async (...args: string[]) =>
    (await muster("service", "ls", ...args)).lines.slice(1).map((line) => line.split(/ +/)[1]);
  t.deepEqual(await names(), ["db", "web2", "web10"]);
  t.deepEqual(await names("--filter", "name=web"), ["web2", "web10"]);
  t.deepEqual(await names("-f", "label=n=db"), ["db"]);
  t.deepEqual(await names("-f", "mode=global"), []);
  t.is((await muster("service", "ls", "-f", "colour=red")).status, 125);
});

test("--host of service create is a line of /etc/hosts, and -H the manager; boolean flags accept words", async (t) => {
  const { muster, manager, socket } = await served(t);
  const flags = ["--detach=true", "--init=false", "--host", "db:10.0.0.1", "-H", socket, "--name", "web"];
  const ran = await muster("service", "create", ...flags, "bb:1");
  t.is(ran.status, 0);
  t.deepEqual(manager.store.byName("service", "web")?.spec?.task?.container?.hosts, ["10.0.0.1 db"]);
  t.is((await muster("service", "create", "--tty=perhaps", "bb:1")).status, 125);
  const help = (await muster("service", "create", "--help")).lines;
  for (const heading of ["Service:", "What runs:", "Network:", "Placement and resources:", "Updates:"]) {
    t.true(help.includes(heading), heading);
  }
});
