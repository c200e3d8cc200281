import test from "ava";
import { createFlags, type CreateValues } from "../../cli/service/flags.ts";
import { changedSpec, newSpec } from "../../cli/service/spec.ts";
import { convergence } from "../../cli/convergence.ts";
import { processLabel } from "../../machines/manager/role.ts";
import { isSameMessage } from "../../machines/same-message.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import {
  EngineDescription,
  Node,
  NodeDescription,
  NodeRole,
  PluginDescription,
  ExecSpec,
  Meta,
  Mount_Type,
  PortConfig_Protocol,
  PortConfig_PublishMode,
  Service,
  TaskState,
  TaskStatus,
  Timestamp,
  UpdateStatus,
  UpdateStatus_UpdateState,
  Version,
  type Task,
} from "../../proto/gen/messages.ts";
import { readyNode, served, taskOf } from "../support/served.ts";

function serviceNamed(store: { byName(table: "service", name: string): Service | undefined }, name: string): Service {
  const service = store.byName("service", name);
  if (service === undefined) throw new Error(`no service ${name}`);
  return service;
}

test("service create creates a container service as Docker's command line does", async (t) => {
  const { muster, manager } = await served(t);
  const ran = await muster(
    "service",
    "create",
    "-d",
    "--name",
    "web",
    "--replicas",
    "3",
    "--constraint",
    "node.role==worker",
    "-e",
    "A=1",
    "-l",
    "team=a",
    "--container-label",
    "c=d",
    "--limit-memory",
    "64m",
    "--reserve-cpu",
    "0.25",
    "--restart-condition",
    "on-failure",
    "--restart-delay",
    "1m30s",
    "--update-parallelism",
    "2",
    "--publish",
    "mode=host,target=80,published=8080",
    "--mount",
    "type=bind,source=/a,target=/b,readonly",
    "bb:1",
    "sleep",
    "-x",
    "1000",
  );
  t.deepEqual(ran.remarks, []);
  t.is(ran.status, 0);
  const { id, spec } = serviceNamed(manager.store, "web");
  t.deepEqual(ran.lines, [id]);
  t.is(spec?.replicated?.replicas, 3);
  t.deepEqual(spec?.annotations?.labels, { team: "a" });
  const container = spec?.task?.container;
  t.like(container, { image: "bb:1", args: ["sleep", "-x", "1000"], env: ["A=1"], labels: { c: "d" } });
  t.like(container?.mounts[0], { type: Mount_Type.BIND, source: "/a", target: "/b", readonly: true });
  t.is(spec?.task?.resources?.limits?.memoryBytes, 64 * 1024 * 1024);
  t.is(spec?.task?.resources?.reservations?.nanoCpus, 250_000_000);
  t.like(spec?.task?.restart, { condition: 1, maxAttempts: 0 });
  t.is(spec?.task?.restart?.delay?.seconds, 90);
  t.is(spec?.update?.parallelism, 2);
  t.deepEqual(spec?.task?.placement?.constraints, ["node.role==worker"]);
  t.like(spec?.endpoint?.ports[0], { targetPort: 80, publishedPort: 8080, publishMode: PortConfig_PublishMode.HOST });
});

test("service create --driver exec creates a service of plain processes", async (t) => {
  const { muster, manager } = await served(t);
  const ran = await muster(
    "service",
    "create",
    "--detach",
    "--name",
    "hello",
    "--driver",
    "exec",
    "--env",
    "P=1",
    "--stop-grace-period=3s",
    "--",
    "/usr/bin/python3",
    "-m",
    "http.server",
  );
  t.is(ran.status, 0);
  const generic = serviceNamed(manager.store, "hello").spec?.task?.generic;
  t.is(generic?.kind, "exec");
  t.is(generic?.payload?.type_url, "type.googleapis.com/muster.v1.ExecSpec");
  const exec = ExecSpec.decode(generic?.payload?.value ?? new Uint8Array());
  t.like(exec, { command: "/usr/bin/python3", args: ["-m", "http.server"], env: ["P=1"] });
  t.is(exec.stopGracePeriod?.seconds, 3);
});

test("an error of the server is one sentence with status 1; a usage error has status 125", async (t) => {
  const { muster, manager } = await served(t);
  const { version } = manager.store;
  t.deepEqual(await muster("service", "create", "--name", "a.b", "bb:1"), {
    status: 1,
    lines: [],
    remarks: ["muster: name must be valid as a DNS name component"],
  });
  t.deepEqual((await muster("service", "create", "--name", "web", "--replicas", "-1", "bb:1")).remarks, [
    "muster: Number of replicas must be non-negative",
  ]);
  for (const args of [
    ["service", "create", "--name"],
    ["service", "create", "--no-such-flag", "bb:1"],
    ["service", "create", "--replicas", "many", "bb:1"],
    ["service", "create", "--driver", "exec"],
    ["service", "create", "--limit-memory", "lots", "bb:1"],
    ["service", "paint"],
    ["frobnicate"],
    ["service", "ls", "--format", "yaml"],
    ["service", "scale", "web"],
  ]) {
    const ran = await muster(...args);
    t.is(ran.status, 125, args.join(" "));
    t.is(ran.remarks.length, 1, args.join(" "));
  }
  t.is(manager.store.version, version);
});

test("an unknown service, and a socket without a listener, are reported in one sentence each", async (t) => {
  const { muster } = await served(t);
  t.deepEqual(await muster("service", "inspect", "nothing"), {
    status: 1,
    lines: ["[]"],
    remarks: ["muster: no such service: nothing"],
  });
  const { status, remarks } = await muster("--host", "/nowhere/control.sock", "service", "ls");
  t.is(status, 1);
  t.regex(remarks[0] ?? "", /^muster: cannot connect to the manager at \/nowhere\/control.sock/);
  t.regex((await muster("service", "ls", "--host", "tcp://1.2.3.4")).remarks[0] ?? "", /invalid host/);
});

test("service ls prints Docker's columns, JSON lines and ids", async (t) => {
  const { muster, manager } = await served(t);
  await muster("service", "create", "-d", "--name", "web", "--replicas", "2", "bb:1");
  const service = serviceNamed(manager.store, "web");
  manager.seed("node", readyNode("n1", "alpha"));
  manager.seed("task", taskOf(service, 1, "n1", TaskState.RUNNING), taskOf(service, 2, "n1", TaskState.STARTING));
  const { lines } = await muster("service", "ls");
  t.regex(lines[0] ?? "", /^ID +NAME +MODE +REPLICAS +IMAGE +PORTS$/);
  t.regex(lines[1] ?? "", new RegExp(`^${service.id.slice(0, 12)} +web +replicated +1/2 +bb:1$`));
  t.deepEqual((await muster("service", "ls", "-q")).lines, [service.id]);
  const json = (await muster("service", "ls", "--format", "json")).lines;
  t.is(json.length, 1);
  t.like(JSON.parse(json[0] ?? ""), {
    id: service.id,
    ID: service.id,
    Name: "web",
    Replicas: "1/2",
    Mode: "replicated",
  });
});

test("service ps shows each slot's newest attempt and the older ones beneath it", async (t) => {
  const { muster, manager } = await served(t);
  await muster("service", "create", "-d", "--name", "web", "bb:1");
  const service = serviceNamed(manager.store, "web");
  manager.seed("node", readyNode("n1", "alpha"));
  const failed = TaskStatus.create({ state: TaskState.FAILED, err: "task: non-zero exit (1)" });
  manager.seed(
    "task",
    taskOf(service, 1, "n1", TaskState.FAILED, { id: "old", desiredState: TaskState.SHUTDOWN, status: failed }),
  );
  manager.clock.advance(60_000);
  manager.seed("task", taskOf(service, 1, "n1", TaskState.RUNNING, { id: "new" }));
  const { lines } = await muster("service", "ps", "web");
  t.regex(lines[0] ?? "", /^ID +NAME +IMAGE +NODE +DESIRED STATE +CURRENT STATE +ERROR +PORTS$/);
  t.regex(lines[1] ?? "", /^new +web\.1 +bb:1 +alpha +Running +Running about a minute ago$/);
  t.regex(lines[2] ?? "", /^old + \\_ web\.1 +bb:1 +alpha +Shutdown +Failed +"task: non-zero exit \(1\)"$/);
  // The tree belongs only in the table: scripts split the output of templates and JSON.
  t.deepEqual((await muster("service", "ps", "--format", "{{.Name}}", "web")).lines, ["web.1", "web.1"]);
  const json = (await muster("service", "ps", "--format", "json", "web")).lines;
  t.deepEqual(
    json.map((line) => (JSON.parse(line) as { Name: string }).Name),
    ["web.1", "web.1"],
  );
});

test("service create waits until all replicas run, and reports why they do not yet", async (t) => {
  const { musterWith, manager } = await served(t);
  const seen: string[] = [];
  const waiting = musterWith(
    (line) => void seen.push(line),
    "service",
    "create",
    "--name",
    "web",
    "--replicas",
    "2",
    "--update-monitor",
    "50ms",
    "bb:1",
  );
  await until(() => manager.store.byName("service", "web") !== undefined);
  const service = serviceNamed(manager.store, "web");
  const stuck = TaskStatus.create({
    state: TaskState.PENDING,
    err: "no suitable node (1 node not available for new tasks)",
  });
  manager.seed(
    "task",
    taskOf(service, 1, "", TaskState.PENDING, { status: stuck }),
    taskOf(service, 2, "n1", TaskState.RUNNING),
  );
  const stuckLine = "overall progress: 1 out of 2 tasks: no suitable node (1 node not available for new tasks)";
  await until(() => seen.includes(stuckLine));
  manager.seed("task", taskOf(service, 1, "n1", TaskState.RUNNING));
  const { status, remarks } = await waiting;
  t.is(status, 0);
  t.true(remarks.includes(stuckLine));
  t.is(remarks.at(-1), "verify: Service converged");
});

test("removing a service while it is awaited is a failure", async (t) => {
  const { muster, manager } = await served(t);
  const waiting = muster("service", "create", "--name", "web", "bb:1");
  await until(() => manager.store.byName("service", "web") !== undefined);
  await muster("service", "rm", "web");
  const { status, remarks } = await waiting;
  t.is(status, 1);
  t.regex(remarks.at(-1) ?? "", /removed|not found/);
});

test("service update changes only what it names, and retries if another writer intervened", async (t) => {
  const { muster, manager } = await served(t);
  await muster(
    "service",
    "create",
    "-d",
    "--name",
    "web",
    "-e",
    "A=1",
    "-e",
    "B=2",
    "--publish",
    "mode=host,target=1",
    "bb:1",
  );
  const before = serviceNamed(manager.store, "web");
  const ran = await muster(
    "service",
    "update",
    "-d",
    "--image",
    "bb:2",
    "--env-add",
    "A=3",
    "--env-rm",
    "B",
    "--label-add",
    "x=y",
    "--publish-rm",
    "1",
    "--replicas",
    "4",
    "--force",
    "web",
  );
  t.is(ran.status, 0);
  const { spec } = serviceNamed(manager.store, "web");
  t.like(spec?.task?.container, { image: "bb:2", env: ["A=3"] });
  t.is(spec?.task?.forceUpdate, 1);
  t.is(spec?.replicated?.replicas, 4);
  t.deepEqual(spec?.annotations?.labels, { x: "y" });
  t.deepEqual(spec?.endpoint?.ports, []);
  t.is((await muster("service", "rollback", "-d", "web")).status, 0);
  t.is(serviceNamed(manager.store, "web").spec?.task?.container?.image, "bb:1");
  t.is(serviceNamed(manager.store, "web").id, before.id);
});

test("a driver that no node has, and a placement on managers only, cause warnings", async (t) => {
  const { muster, manager } = await served(t);
  const create = async (...args: readonly string[]) => (await muster("service", "create", "-d", ...args)).remarks;
  t.deepEqual(await create("--name", "lone", "--driver", "exec", "/bin/true"), [
    "warning: service lone: no node has the driver exec (no node has any driver): tasks stay pending until one does",
  ]);
  const plugins = ["exec", "java"].map((name) => PluginDescription.create({ type: "Driver", name }));
  const node = readyNode("n1", "alpha");
  manager.seed(
    "node",
    Node.patch(node, {
      description: NodeDescription.patch(node.description ?? NodeDescription.create({}), {
        engine: EngineDescription.create({ plugins }),
      }),
    }),
  );
  t.deepEqual(await create("--name", "known", "--driver", "exec", "/bin/true"), []);
  t.deepEqual(await create("--name", "typo", "--driver", "jvaa", "--driver-config", "{}"), [
    "warning: service typo: no node has the driver jvaa (nodes have exec, java): tasks stay pending until one does",
  ]);
  // A stock manager's node runs tasks.
  t.deepEqual(await create("--name", "stock", "--constraint", "node.role == manager", "bb:1"), []);
  for (const each of [...manager.store.all("node")].filter(({ role }) => role === NodeRole.MANAGER)) {
    const labels = { [processLabel]: "manager" };
    const description = NodeDescription.create({ engine: EngineDescription.create({ labels }) });
    manager.seed("node", Node.patch(each, { description }));
  }
  const [asked = ""] = await create("--name", "edge", "--constraint", "node.role == manager", "bb:1");
  t.regex(asked, /^warning: service edge: constraint node\.role == manager: Muster's managers run no tasks/);
  t.regex((await create("--name", "e2", "--constraint", "node.role!=worker", "bb:1"))[0] ?? "", /run no tasks/);
  t.deepEqual(await create("--name", "inner", "--constraint", "node.role==worker", "bb:1"), []);
  const updated = await muster("service", "update", "-d", "--constraint-add", "node.role==manager", "inner");
  t.regex(updated.remarks[0] ?? "", /^warning: service inner: constraint node\.role==manager/);
  t.deepEqual((await muster("service", "update", "-d", "--label-add", "a=b", "inner")).remarks, []);
});

test("service scale and rm accept several services", async (t) => {
  const { muster, manager } = await served(t);
  for (const name of ["a", "b"]) await muster("service", "create", "-d", "--name", name, "bb:1");
  t.deepEqual((await muster("service", "scale", "-d", "a=3", "b=0")).lines, ["a scaled to 3", "b scaled to 0"]);
  t.is(serviceNamed(manager.store, "a").spec?.replicated?.replicas, 3);
  await muster("service", "create", "-d", "--name", "everywhere", "--mode", "global", "bb:1");
  const some = await muster("service", "scale", "-d", "none=2", "a=4", "everywhere=2", "b=1");
  t.deepEqual(some.lines, ["a scaled to 4", "b scaled to 1"], "a failing one does not stop the others");
  t.is(some.status, 1);
  t.is(some.remarks.length, 1);
  t.regex(some.remarks[0] ?? "", /service none not found\nmuster: scale can only be used with replicated/);
  t.is(serviceNamed(manager.store, "a").spec?.replicated?.replicas, 4);
  const none = await muster("service", "scale", "-d", "a=1", "b=many");
  t.deepEqual([none.status, none.lines], [125, []], "a usage error changes nothing");
  t.deepEqual(none.remarks, ['muster: invalid replicas value "many" in "b=many": expected a whole number']);
  await muster("service", "rm", "everywhere");
  t.deepEqual((await muster("service", "rm", "a", "b")).lines, ["a", "b"]);
  t.is(manager.store.count("service"), 0);
});

test("ports are parsed in both of Docker's forms", (t) => {
  const ports = (...publish: string[]) => newSpec({ name: "web", publish } as CreateValues, ["bb"]).endpoint?.ports;
  t.like(ports("8080:80/udp")?.[0], { publishedPort: 8080, targetPort: 80, protocol: PortConfig_Protocol.UDP });
  t.like(ports(":80")?.[0], { publishedPort: 0, targetPort: 80 });
  t.like(ports("80")?.[0], { publishedPort: 0, targetPort: 80, publishMode: PortConfig_PublishMode.INGRESS });
  for (const bad of ["a:b", "70000:80", "mode=host", "target=80,mode=other", "target=80,colour=red"]) {
    t.throws(() => ports(bad), { instanceOf: UsageError }, bad);
  }
});

test("a generated name is valid", (t) => {
  for (const image of ["example.org:5000/Team/web_app:v1.2", "/usr/bin/python3.11", "-", "a".repeat(200)]) {
    t.regex(newSpec({} as CreateValues, [image]).annotations?.name ?? "", /^[a-zA-Z0-9][a-zA-Z0-9-]{0,61}[a-zA-Z0-9]$/);
  }
});

test("jobs take their numbers from the same flags", (t) => {
  const job = newSpec({ mode: "replicated-job", replicas: "10", "max-concurrent": "2" }, ["bb"]);
  t.like(job.replicatedJob, { totalCompletions: 10, maxConcurrent: 2 });
  t.is(newSpec({ mode: "replicated-job", replicas: "10" }, ["bb"]).replicatedJob?.maxConcurrent, 10);
  t.is(newSpec({ mode: "replicated-job", "max-concurrent": "3" }, ["bb"]).replicatedJob?.totalCompletions, 3);
  t.throws(() => newSpec({ mode: "global", replicas: "2" }, ["bb"]), { instanceOf: UserError });
  t.true("mode" in createFlags);
});

test("an update with no flags changes nothing of a spec", (t) => {
  const spec = newSpec({ name: "web", env: ["A=1"], constraint: ["node.role==worker"], publish: ["8080:80"] }, [
    "bb",
    "x",
  ]);
  t.true(isSameMessage(changedSpec(spec, {}), spec));
});

test("a service has converged only when exactly the wanted tasks run", (t) => {
  const spec = newSpec({ name: "web", replicas: "2" }, ["bb"]);
  const service = Service.create({ id: "s", spec, specVersion: Version.create({}) });
  const judge = (tasks: readonly Task[], of = service) => convergence(of, tasks, [], false);
  const running = (slot: number, fields: Partial<Task> = {}) => taskOf(service, slot, "n1", TaskState.RUNNING, fields);
  t.is(judge([running(1), running(2)]).kind, "converged");
  t.like(judge([running(1)]), { kind: "moving", done: 1, wanted: 2 });
  t.is(judge([running(1), running(2), running(3)]).kind, "moving", "one too many still runs");
  t.is(judge([running(1), running(2, { desiredState: TaskState.SHUTDOWN })]).kind, "moving");
  const newer = changedSpec(spec, { image: "bb:2" });
  t.is(
    judge([running(1), running(2)], Service.patch(service, { spec: newer, specVersion: { index: 7 } })).kind,
    "moving",
  );
  const paused = UpdateStatus.create({ state: UpdateStatus_UpdateState.PAUSED, message: "task t1 failed" });
  t.deepEqual(judge([running(1), running(2)], Service.patch(service, { updateStatus: paused })), {
    kind: "failed",
    reason: "service update paused: task t1 failed",
  });
  const updating = UpdateStatus.create({ state: UpdateStatus_UpdateState.UPDATING });
  t.is(judge([running(1), running(2)], Service.patch(service, { updateStatus: updating })).kind, "moving");
});

test("an update that the manager calls completed is awaited no longer, even if some tasks failed or ended", (t) => {
  const spec = newSpec({ name: "web", replicas: "2", "update-max-failure-ratio": "0.5" }, ["bb"]);
  const at = (seconds: number) => Timestamp.create({ seconds });
  const completed = UpdateStatus.create({ state: UpdateStatus_UpdateState.COMPLETED, completedAt: at(100) });
  const service = Service.create({ id: "s", spec, specVersion: Version.create({ index: 3 }), updateStatus: completed });
  const judge = (tasks: readonly Task[], of = service, isRollback = false) => convergence(of, tasks, [], isRollback);
  const task = (slot: number, state: TaskState, seconds: number, fields: Partial<Task> = {}) =>
    taskOf(service, slot, "n1", state, { meta: Meta.create({ createdAt: at(seconds) }), ...fields });
  const over = { id: "over", desiredState: TaskState.SHUTDOWN };
  const runs = task(1, TaskState.RUNNING, 90);
  const failed = task(2, TaskState.FAILED, 90, over);
  const one = { kind: "converged", done: 1, wanted: 2, isProven: true } as const;
  t.deepEqual(judge([runs, failed, task(2, TaskState.READY, 95)]), one, "its successor was already on its way");
  t.deepEqual(judge([runs, task(2, TaskState.PREPARING, 101)]), one, "it came later; the one before is forgotten");
  t.deepEqual(judge([runs, task(2, TaskState.RUNNING, 90)]), { ...one, done: 2 });
  t.like(judge([runs, task(2, TaskState.PREPARING, 90)]), { kind: "moving", done: 1, wanted: 2 }, "the update scaled");

  const once = newSpec({ name: "web", "restart-condition": "none" }, ["bb"]);
  const oneShot = Service.patch(service, { spec: once });
  const ended = task(1, TaskState.COMPLETE, 90, over);
  t.deepEqual(judge([ended], oneShot), { ...one, done: 0, wanted: 1 });
  const back = UpdateStatus.patch(completed, { state: UpdateStatus_UpdateState.ROLLBACK_COMPLETED });
  const isBack = Service.patch(oneShot, { updateStatus: back });
  t.deepEqual(judge([ended], isBack, true), { ...one, done: 0, wanted: 1 });
  t.is(judge([ended], isBack, false).kind, "failed", "nobody requested it");
});

async function until(condition: () => boolean): Promise<void> {
  for (let turn = 0; turn < 500 && !condition(); turn += 1) await new Promise((resolve) => setTimeout(resolve, 10));
}
