import test, { type ExecutionContext } from "ava";
import { createNodeCalls } from "../../actors/node-calls.ts";
import { createTaskCalls } from "../../actors/task-calls.ts";
import { differenceOf } from "../../machines/history/fields.ts";
import {
  Annotations,
  Cluster,
  Config,
  ConfigSpec,
  ContainerSpec,
  Duration,
  EncryptionKey,
  EndpointSpec,
  HistoryRequest,
  type HistoryResponse,
  JoinTokens,
  Mount,
  Node,
  NodeStatus,
  NodeStatus_State,
  OperatorService,
  PortConfig,
  ReplicatedService,
  ResourceRequirements,
  Resources,
  RestartPolicy,
  RootCA,
  Secret,
  SecretReference,
  SecretSpec,
  Service,
  ServiceSpec,
  Task,
  TaskCallRequest,
  TaskSignal,
  TaskSpec,
  TaskState,
  TaskStatus,
  UpdateStatus,
  UpdateStatus_UpdateState,
  Volume,
  VolumeSpec,
  type TaskAnswer,
} from "../../proto/gen/messages.ts";
import { connectUnix } from "../../edges/grpc/client.ts";
import { snapshotName } from "../../runtime/store/snapshots.ts";
import { until } from "../fixtures/until.ts";
import { call, collectedStream } from "../support/manager.ts";
import { readyNode, served, taskOf } from "../support/served.ts";

/** A test's log answers by the manager's clock. */
async function ticking(t: ExecutionContext): ReturnType<typeof served> {
  const world = await served(t);
  const timer = setInterval(() => world.manager.clock.advance(1), 1);
  t.teardown(() => clearInterval(timer));
  return world;
}

type World = Awaited<ReturnType<typeof served>>;

function web({ manager }: World): Service {
  const service = manager.store.byName("service", "web");
  if (service === undefined) throw new Error("no service");
  return service;
}

/** Lines without times of day and process ids. */
function plain(lines: readonly string[]): readonly string[] {
  return lines.map((line) =>
    line
      .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/, "TIME")
      .replace(/by .*uid \d+, pid \d+\)? with/, "by USER with")
      .replace(/^( +)\+\S+ +/, "$1+ ")
      .replace(/^(\d+) /, "V "),
  );
}

async function changed(world: World): Promise<void> {
  const { manager, muster } = world;
  manager.seed("node", readyNode("n1", "alpha"));
  await muster("service", "create", "-d", "--name", "web", "--replicas", "2", "--env", "PORT=80", "bb:1");
  const service = web(world);
  for (const state of [TaskState.NEW, TaskState.ASSIGNED, TaskState.RUNNING]) {
    manager.clock.advance(1_000);
    manager.seed("task", taskOf(service, 1, "n1", state), taskOf(service, 2, "n1", state));
  }
  await muster("service", "update", "-d", "--image", "bb:2", "--env-add", "PORT=81", "--replicas", "5", "web");
  const failed = TaskStatus.create({ state: TaskState.FAILED, err: "exit 3" });
  manager.seed("task", Task.patch(taskOf(service, 1, "n1", TaskState.FAILED), { status: failed }));
  const updateStatus = UpdateStatus.create({ state: UpdateStatus_UpdateState.PAUSED, message: "a task failed" });
  manager.seed("service", Service.patch(web(world), { updateStatus }));
  await muster("service", "rm", "web");
}

test("the history of a service shows its changes, who requested them, and what its tasks did", async (t) => {
  const world = await ticking(t);
  await changed(world);
  const told = await world.muster("history", "service", "web");
  t.is(told.status, 0);
  t.deepEqual(plain(told.lines), [
    "V TIME service web created by USER with Control.CreateService, written by manager manager1",
    "    name web",
    "    image bb:1",
    "    env PORT 80",
    "    replicas 2",
    "    + 2 tasks created",
    "    + 2 tasks placed: alpha ×2",
    "    + 2 tasks running: alpha ×2",
    "V TIME service web changed by USER with Control.UpdateService, written by manager manager1",
    "    image bb:1 → bb:2",
    "    env PORT 80 → 81",
    "    replicas 2 → 5",
    "    + 1 task failed: alpha: exit 3",
    "    + rollout paused: a task failed",
    "V TIME service web removed by USER with Control.RemoveService, written by manager manager1",
  ]);
  t.regex(told.lines[0] ?? "", new RegExp(`uid ${process.getuid?.()}, pid ${process.pid}\\b`));
  t.regex(told.lines[5] ?? "", /^ {4}\+1s /);
  const node = await world.muster("history", "node", "alpha");
  t.true(plain(node.lines).includes("    + 2 tasks running: web ×2"));
  const slot = await world.muster("history", "task", "web.1");
  t.true(slot.lines.includes("    state running → failed"));
  t.true(slot.lines.includes("    error added: exit 3"));
});

test("a task's history shows who signalled it or ran a command in it, although nothing of it changed", async (t) => {
  const world = await ticking(t);
  const { manager, muster } = world;
  await muster("service", "create", "-d", "--name", "web", "bb:1");
  const task = taskOf(web(world), 1, "n1", TaskState.RUNNING);
  manager.seed("task", task);
  const calls = createTaskCalls(manager.env, createNodeCalls());
  t.teardown(() => calls.stop());
  const peer = { identity: null, local: false, address: "192.0.2.9", user: "user-ada" };
  const request = TaskCallRequest.create({ taskId: task.id, signal: TaskSignal.create({ name: "SIGHUP" }) });
  calls.access.Call(request, collectedStream<TaskAnswer>(), { ...call(peer), method: "Muster/Signal" });
  const told = await until("the entry", async () => {
    const { lines } = await muster("history", "task", task.id);
    return lines.find((line) => line.includes("Signal"));
  });
  t.regex(told, / task web\.1\S* asked by user-ada from 192\.0\.2\.9 with Muster\.Signal SIGHUP, written by /);
});

test("a history can be limited by time and number, and states what was omitted", async (t) => {
  const world = await ticking(t);
  const { manager, muster } = world;
  const begin = manager.clock.now();
  await changed(world);
  const json = async (...more: string[]): Promise<readonly Record<string, unknown>[]> =>
    (await muster("history", "service", "web", "--format", "json", ...more)).lines
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  const actions = async (...more: string[]) => (await json(...more)).map(({ action }) => action);
  t.deepEqual(await actions(), ["create", "update", "remove"]);
  t.deepEqual(await actions("-n", "1"), ["remove"]);
  const middle = new Date(begin + 1_500).toISOString();
  t.deepEqual(await actions("--until", middle), ["create"]);
  t.deepEqual(await actions("--since", middle), ["before", "update", "remove"]);
  t.regex((await muster("history", "service", "web", "-n", "1")).remarks.join("\n"), /2 earlier entries omitted/);
  const caller = (await json())[1]?.["caller"] as { method: string; process: { pid: number } };
  t.like(caller, { method: "Control.UpdateService", process: { pid: process.pid } });
  t.is((await muster("history", "service", "web", "-n", "0")).status, 125);
  t.is((await muster("history", "service", "web", "--since", "later")).status, 125);
  const crossed = await muster("history", "service", "web", "--since", "1m", "--until", "2h");
  t.regex(crossed.remarks.join("\n"), /'since' is after 'until'/);
});

test("a reused name shows both objects with their ids; an unknown name is reported", async (t) => {
  const world = await ticking(t);
  const { muster } = world;
  const ids: string[] = [];
  for (const image of ["bb:1", "bb:2"]) {
    await muster("service", "create", "-d", "--name", "web", image);
    ids.push(web(world).id);
    await muster("service", "rm", "web");
  }
  const told = (await muster("history", "service", "web")).lines;
  t.is(told.filter((line) => line.includes(`(${ids[1]}) created`)).length, 1);
  t.is(told.filter((line) => line.includes("removed")).length, 2);
  const one = (await muster("history", "service", ids[0]?.slice(0, 12) ?? "")).lines.join("\n");
  t.true(one.includes("image bb:1") && !one.includes("image bb:2"));
  const none = await muster("history", "service", "db");
  t.is(none.status, 1);
  t.regex(none.remarks.join("\n"), /service db not found, nor in the retained history/);
  t.regex((await muster("history", "things", "db")).remarks.join("\n"), /no history of kind "things"/);
});

test("a history starts with the retained part, and says so", async (t) => {
  const world = await ticking(t);
  const { manager, muster, retained } = world;
  await muster("service", "create", "-d", "--name", "web", "bb:1");
  const { version } = manager.store;
  retained.stored.set(snapshotName(version), manager.store.snapshot());
  retained.first = version + 1;
  manager.seed("task", taskOf(web(world), 1, "n1", TaskState.RUNNING));
  await muster("service", "update", "-d", "--image", "bb:2", "web");
  const told = await muster("history", "service", "web");
  t.regex(told.remarks[0] ?? "", new RegExp(`^the history begins at version ${version}, written at `));
  t.regex(told.lines[0] ?? "", /^- service web before that$/);
  t.regex(told.lines[1] ?? "", /TIME|1 task created/);
  t.true(told.lines.includes("    image bb:1 → bb:2"));
});

test("a followed history continues after the past without a gap or a repetition", async (t) => {
  const world = await ticking(t);
  const { manager, muster, socket } = world;
  await muster("service", "create", "-d", "--name", "web", "bb:0");
  const channel = await connectUnix(socket);
  t.teardown(() => channel.close());
  const images: string[] = [];
  let followed = 0;
  const request = HistoryRequest.create({ kind: "service", subject: "web", follow: true });
  channel.serverStream(OperatorService.methods.History, request, {
    onMessage: ({ entries }: HistoryResponse) => {
      for (const entry of entries) {
        images.push(...entry.fields.filter(({ field }) => field === "image").map(({ new: image }) => image));
        for (const { text, count } of entry.followed) if (text === "tasks created") followed += count;
      }
    },
    onEnd: () => undefined,
  });
  for (let at = 1; at <= 20; at += 1) {
    const service = web(world);
    manager.seed("task", taskOf(service, at, "n1", TaskState.NEW));
    const container = ContainerSpec.create({ image: `bb:${at}` });
    const spec = ServiceSpec.patch(service.spec as ServiceSpec, { task: TaskSpec.create({ container }) });
    manager.seed("service", Service.patch(service, { spec }));
    await new Promise((resolve) => setTimeout(resolve, 3));
  }
  for (let tries = 0; images.length < 21 && tries < 400; tries += 1)
    await new Promise((resolve) => setTimeout(resolve, 10));
  t.deepEqual(
    images,
    Array.from({ length: 21 }, (_, at) => `bb:${at}`),
  );
  t.is(followed, 20);
});

const container = ContainerSpec.create({
  image: "bb:1",
  env: ["A=1", "B=2"],
  args: ["sleep", "5"],
  mounts: [Mount.create({ source: "data", target: "/data" })],
  secrets: [SecretReference.create({ secretId: "s1", secretName: "key" })],
});
const spec = ServiceSpec.create({
  annotations: Annotations.create({ name: "web", labels: { "com.example.team": "a" } }),
  replicated: ReplicatedService.create({ replicas: 3 }),
  task: TaskSpec.create({ container }),
});

test("fields have the names of flags, and lists show what was added and removed", (t) => {
  const before = Service.create({ id: "s", spec });
  const after = Service.create({
    id: "s",
    spec: ServiceSpec.patch(spec, {
      annotations: Annotations.create({ name: "web", labels: { "com.example.team": "b", x: "1" } }),
      replicated: ReplicatedService.create({ replicas: 0 }),
      endpoint: EndpointSpec.create({ ports: [PortConfig.create({ publishedPort: 8080, targetPort: 80 })] }),
      task: TaskSpec.create({
        container: ContainerSpec.patch(container, {
          env: ["A=1", "B=3=4", "C=5"],
          args: ["sleep", "6"],
          mounts: [],
          secrets: [SecretReference.create({ secretId: "s2", secretName: "other" })],
          readOnly: false,
        }),
        resources: ResourceRequirements.create({
          limits: Resources.create({ nanoCpus: 5e8, memoryBytes: 64 * 1_024 * 1_024 }),
        }),
        restart: RestartPolicy.create({
          delay: Duration.create({ nanos: 5e8 }),
          window: Duration.create({ seconds: 7_200 }),
        }),
        forceUpdate: 1,
      }),
    }),
  });
  const { fields } = differenceOf("service", before, after);
  t.deepEqual(Object.fromEntries(fields.map(({ field, old, new: now }) => [`${field}|${old}`, now])), {
    "label com.example.team|a": "b",
    "label x|": "1",
    "args|sleep 5": "sleep 6",
    "env B|2": "3=4",
    "env C|": "5",
    "secret|": "other",
    "secret|key": "",
    "mount|bind data:/data": "",
    "cpu limit|": "0.5",
    "memory limit|": "64MiB",
    "restart delay|": "500ms",
    "restart window|": "2h",
    "force update|": "1",
    "replicas|3": "0",
    "port|": "8080:80/tcp",
  });
});

test("content, keys and tokens are never shown, only that they changed", (t) => {
  const canary = "the canary sings";
  const data = Buffer.from(canary);
  const annotations = Annotations.create({ name: "key" });
  const cluster = (text: string): Cluster =>
    Cluster.create({
      id: "c",
      unlockKeys: [EncryptionKey.create({ subsystem: "manager", key: Buffer.from(text) })],
      networkBootstrapKeys: [EncryptionKey.create({ subsystem: "gossip", key: Buffer.from(text) })],
      rootCa: RootCA.create({
        caKey: Buffer.from(text),
        joinTokens: JoinTokens.create({ worker: `w ${text}`, manager: `m ${text}` }),
      }),
    });
  const told = [
    differenceOf("secret", null, Secret.create({ id: "s", spec: SecretSpec.create({ annotations, data }) })),
    differenceOf("config", null, Config.create({ id: "s", spec: ConfigSpec.create({ annotations, data }) })),
    differenceOf("cluster", cluster("other"), cluster(canary)),
  ].map(({ fields }) => fields.map(({ field, old, new: now }) => [field, old, now].join("|")));
  t.deepEqual(told, [
    ["name||key", "data||(not shown)"],
    ["name||key", "data||(not shown)"],
    [
      "worker join token|(not shown)|(not shown)",
      "manager join token|(not shown)|(not shown)",
      "unlock key|(not shown)|(not shown)",
      "network keys|(not shown)|(not shown)",
    ],
  ]);
  const text = JSON.stringify(told);
  for (const hidden of [canary, data.toString("base64"), data.join(",")]) t.false(text.includes(hidden));
});

test("a node's history shows when it was lost and found, with the reason", (t) => {
  const down = NodeStatus.create({ state: NodeStatus_State.DOWN, message: "heartbeat failure" });
  const { fields } = differenceOf("node", readyNode("n1", "a"), Node.patch(readyNode("n1", "a"), { status: down }));
  t.deepEqual(
    fields.map(({ field, old, new: now }) => [field, old, now]),
    [
      ["state", "ready", "down"],
      ["message", "", "heartbeat failure"],
    ],
  );
});

test("enums, byte counts and pairs of a spec are shown in words", (t) => {
  const told = (kind: "service" | "volume", object: Service & Volume): readonly string[] =>
    differenceOf(kind, null, object).fields.map(({ field, new: now }) => `${field} ${now}`);
  const volume = Volume.create({
    spec: VolumeSpec.fromJson({
      accessMode: { scope: "MULTI_NODE", sharing: "ALL" },
      capacityRange: { requiredBytes: 1_073_741_824, limitBytes: 2_147_483_647 },
    }),
  });
  t.deepEqual(told("volume", volume as Service & Volume), [
    "scope multi node",
    "sharing all",
    "required capacity 1GiB",
    "capacity limit 2GiB",
  ]);
  const service = Service.create({
    spec: ServiceSpec.fromJson({
      task: {
        container: { ulimits: [{ name: "nofile", soft: 1, hard: 2 }] },
        resources: { swapBytes: { value: 1_048_576 }, memorySwappiness: { value: 10 } },
        placement: { platforms: [{ os: "linux", architecture: "amd64" }] },
        resourceReferences: [{ resourceId: "x", resourceType: "SECRET" }],
      },
    }),
  });
  t.deepEqual([...told("service", service as Service & Volume)].toSorted(), [
    "memory swappiness 10",
    "platform linux/amd64",
    "resource reference secret x",
    "swap 1MiB",
    "ulimit nofile=1:2",
  ]);
});
