import test from "ava";
import { execTask } from "../../cli/service/settings.ts";
import { copiedCluster } from "../../cli/simulate/copied-cluster.ts";
import { ObservedTimes } from "../../cli/simulate/observed-times.ts";
import { isRunOf, runId } from "../../machines/orchestration/jobs/runs.ts";
import { modeOf } from "../../machines/orchestration/service-mode.ts";
import { behaviourDefaults, runDefaults } from "../../cli/simulate/read-behaviour.ts";
import { readCluster } from "../../cli/simulate/read-cluster.ts";
import { writeCluster } from "../../cli/simulate/write-cluster.ts";
import {
  Annotations,
  ContainerSpec,
  Duration,
  EngineDescription,
  ExecSpec,
  GenericRuntimeSpec,
  GlobalJob,
  HealthCheck,
  Meta,
  Network,
  NetworkAttachmentConfig,
  NetworkSpec,
  Node,
  NodeDescription,
  NodeRole,
  NodeSpec,
  NodeSpec_Availability,
  NodeStatus,
  NodeStatus_State,
  Placement,
  Platform,
  PluginDescription,
  Resources,
  SecretReference,
  Service,
  ServiceSpec,
  ReplicatedJob,
  ReplicatedService,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  Version,
} from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";

interface NodeParts {
  readonly role?: NodeRole;
  readonly state?: NodeStatus_State;
  readonly availability?: NodeSpec_Availability;
  readonly labels?: Record<string, string>;
  readonly architecture?: string;
  readonly atMs?: number;
}

function node(id: string, hostname: string, parts: NodeParts = {}): Node {
  const {
    role = NodeRole.WORKER,
    state = NodeStatus_State.READY,
    labels = {},
    architecture = "x86_64",
    atMs = 0,
  } = parts;
  return Node.create({
    id,
    role,
    meta: Meta.create({ updatedAt: timestampOf(atMs) }),
    spec: NodeSpec.create({
      annotations: Annotations.create({ labels }),
      availability: parts.availability ?? NodeSpec_Availability.ACTIVE,
    }),
    status: NodeStatus.create({ state }),
    description: NodeDescription.create({
      hostname,
      platform: Platform.create({ architecture, os: "linux" }),
      resources: Resources.create({ nanoCpus: 2e9, memoryBytes: 4 * 2 ** 30 }),
    }),
  });
}

/** Reports the states of a task at these times. */
function report(
  observed: ObservedTimes,
  id: string,
  states: readonly (readonly [TaskState, number])[],
  { stopMs = null as number | null, nodeId = "n1", image = "web:1" } = {},
): void {
  for (const [state, ms] of states) {
    const isAsked = stopMs !== null && state > TaskState.RUNNING;
    if (isAsked) observed.addTask(task(id, nodeId, image, TaskState.RUNNING, ms, stopMs));
    observed.addTask(task(id, nodeId, image, state, ms, isAsked ? stopMs : null));
  }
}

function task(id: string, nodeId: string, image: string, state: TaskState, ms: number, stopMs: number | null): Task {
  return Task.create({
    id,
    serviceId: "s1",
    nodeId,
    spec: TaskSpec.create({ container: ContainerSpec.create({ image }) }),
    meta: Meta.create({ updatedAt: timestampOf(stopMs ?? ms) }),
    desiredState: stopMs === null ? TaskState.RUNNING : TaskState.SHUTDOWN,
    status: TaskStatus.create({ state, timestamp: timestampOf(ms) }),
  });
}

const { ASSIGNED, COMPLETE, PREPARING, READY, STARTING, RUNNING, SHUTDOWN, FAILED } = TaskState;

test("times of tasks are those between their states; only a node's first pull of an image counts", (t) => {
  const observed = new ObservedTimes();
  for (let at = 0; at < 10; at += 1) {
    const began = at * 100_000;
    const [nodeId, pull] = at < 5 ? [`n${at}`, 4_000 + at * 1_000] : [`n${at - 5}`, 10];
    report(
      observed,
      `t${at}`,
      [
        [ASSIGNED, began],
        [PREPARING, began + 100],
        [READY, began + 100 + pull],
        [STARTING, began + 200 + pull],
        [RUNNING, began + 200 + pull + 1_000 + at],
        [SHUTDOWN, began + 60_300],
      ],
      { stopMs: began + 60_000, nodeId },
    );
  }
  t.deepEqual(observed.behaviourOf("s1"), {
    pull: { medianMs: 6_000, p99Ms: 8_000 },
    start: { medianMs: 1_004, p99Ms: 1_009 },
    stop: { medianMs: 300, p99Ms: 300 },
    startFailure: 0,
    meanLifeMs: null,
    run: null,
  });
});

test("a failed start and a failure of a running task count apart; a stopped task has not failed", (t) => {
  const observed = new ObservedTimes();
  for (let at = 0; at < 4; at += 1)
    report(observed, `bad${at}`, [
      [ASSIGNED, 0],
      [FAILED, 500],
    ]);
  for (let at = 0; at < 12; at += 1)
    report(
      observed,
      `run${at}`,
      [
        [STARTING, 0],
        [RUNNING, 1_000],
        [FAILED, at < 2 ? 61_000 : 1_000 + 36_000],
      ],
      { stopMs: at < 2 ? null : 30_000 },
    );
  const { startFailure, meanLifeMs } = observed.behaviourOf("s1");
  t.is(startFailure, 0.25);
  t.is(meanLifeMs, (2 * 60_000 + 10 * 36_000) / 2);
});

test("a service without a past has the times of the others, or the defaults", (t) => {
  const observed = new ObservedTimes();
  t.deepEqual(observed.behaviourOf("new"), behaviourDefaults);
  for (let at = 0; at < 5; at += 1)
    report(observed, `t${at}`, [
      [STARTING, 0],
      [RUNNING, 2_500],
    ]);
  t.deepEqual(observed.behaviourOf("new").start, { medianMs: 2_500, p99Ms: 2_500 });
  t.deepEqual(observed.behaviourOf("new").pull, behaviourDefaults.pull);
});

test("failures of nodes are the mean of all nodes", (t) => {
  const observed = new ObservedTimes();
  t.is(observed.nodeFailures(), null);
  const hour = 3_600_000;
  for (const id of ["a", "b"]) observed.addNode(node(id, id, { atMs: 0 }));
  observed.addNode(node("a", "a", { atMs: 10 * hour, state: NodeStatus_State.DOWN }));
  observed.addNode(node("a", "a", { atMs: 11 * hour }));
  observed.addNode(node("a", "a", { atMs: 12 * hour }));
  observed.close(21 * hour);
  t.deepEqual(observed.nodeFailures(), { meanUpMs: (10 + 10 + 21) * hour, meanDownMs: hour });
});

test("a copy has the usable nodes, services without secrets, and constraints on labels only; it is saved and read back", (t) => {
  const spec = ServiceSpec.create({
    annotations: Annotations.create({ name: "web", labels: { "traefik.auth": "hunter2" } }),
    replicated: ReplicatedService.create({ replicas: 3 }),
    task: TaskSpec.create({
      container: ContainerSpec.create({
        image: "web:1",
        env: ["TOKEN=hunter2"],
        args: ["--password=hunter2"],
        labels: { a: "hunter2" },
        secrets: [SecretReference.create({ secretId: "x", secretName: "hunter2" })],
      }),
      placement: Placement.create({
        constraints: ["node.role == manager", "node.labels.rack==a", "node.platform.arch != aarch64"],
      }),
      networks: [NetworkAttachmentConfig.create({ target: "net1", aliases: ["w"] })],
    }),
  });
  const objects = {
    nodes: [
      node("n10", "worker-10", { role: NodeRole.MANAGER, labels: { rack: "a" } }),
      node("n2", "worker-2", { labels: { rack: "$b" } }),
      node("n3", "worker-2", { architecture: "aarch64" }),
      node("n4", "!", {}),
      node("n5", "gone", { state: NodeStatus_State.DOWN }),
      node("n6", "drained", { availability: NodeSpec_Availability.DRAIN }),
    ],
    services: [
      Service.create({ id: "s1", spec }),
      Service.create({
        id: "s2",
        spec: ServiceSpec.create({
          annotations: Annotations.create({ name: "scan" }),
          globalJob: GlobalJob.create({}),
        }),
      }),
    ],
    networks: [
      Network.create({ id: "net1", spec: NetworkSpec.create({ annotations: Annotations.create({ name: "front" }) }) }),
      Network.create({ id: "in", spec: NetworkSpec.create({ ingress: true }) }),
    ],
    tasks: [],
  };
  const { plan, remarks } = copiedCluster(objects, new ObservedTimes());
  t.is(plan.managers, 1);
  t.deepEqual(
    plan.nodes.map(({ name, labels }) => [name, labels]),
    [
      ["node", { "rehearsal.node-platform-arch-is-not-aarch64": "true" }],
      ["worker-2", { rack: "$b", "rehearsal.node-platform-arch-is-not-aarch64": "true" }],
      ["worker-2-2", {}],
      [
        "worker-10",
        { rack: "a", "rehearsal.node-platform-arch-is-not-aarch64": "true", "rehearsal.node-role-is-manager": "true" },
      ],
    ],
  );
  t.deepEqual(plan.services[0]?.spec.task?.placement?.constraints, [
    "node.labels.rehearsal.node-role-is-manager == true",
    "node.labels.rack==a",
    "node.labels.rehearsal.node-platform-arch-is-not-aarch64 == true",
  ]);
  t.deepEqual(
    plan.services[0]?.spec.task?.networks.map(({ target }) => target),
    ["front"],
  );
  t.deepEqual(
    plan.services.map(({ behaviour, spec: copied }) => [copied.annotations?.name, modeOf(copied), behaviour.run]),
    [
      ["web", "replicated", null],
      ["scan", "global-job", runDefaults],
    ],
  );
  t.deepEqual(remarks, ["left out: 2 nodes not READY or not active"]);
  const text = writeCluster(plan, remarks);
  t.false(text.includes("hunter2"));
  t.deepEqual(readCluster(text, "saved.yaml", { get: () => "unused" }), plan);
});

/** Reports runs of a job's tasks: how long each took, and whether it failed. */
function reportRuns(observed: ObservedTimes, serviceId: string, runs: readonly (readonly [number, boolean])[]): void {
  for (const [at, [ms, isFailed]] of runs.entries())
    for (const [state, atMs] of [
      [STARTING, 0],
      [RUNNING, 1_000],
      [isFailed ? FAILED : COMPLETE, 1_000 + ms],
    ] as const)
      observed.addTask(
        Task.create({
          id: `${serviceId}-${at}`,
          serviceId,
          jobIteration: Version.create({ index: 0 }),
          meta: Meta.create({ updatedAt: timestampOf(atMs) }),
          desiredState: COMPLETE,
          status: TaskStatus.create({ state, timestamp: timestampOf(atMs) }),
        }),
      );
}

test("runs of jobs have a length and a share of failures; those of a schedule's runs are its own", (t) => {
  const scheduleId = "0123456789abcdefghijklmno";
  const observed = new ObservedTimes((id) => (isRunOf(id, scheduleId) ? scheduleId : id));
  const first = runId(scheduleId, 1_000_000);
  reportRuns(
    observed,
    first,
    [10_000, 12_000, 14_000].map((ms) => [ms, false]),
  );
  reportRuns(observed, runId(scheduleId, 2_000_000), [
    [50_000, true],
    [11_000, false],
  ]);
  t.deepEqual(observed.behaviourOf(scheduleId, true).run, {
    length: { medianMs: 12_000, p99Ms: 50_000 },
    failure: 0.2,
  });
  t.is(observed.behaviourOf(scheduleId, true).meanLifeMs, null);
  // Another job has the lengths of all jobs, but not their failures.
  t.deepEqual(observed.behaviourOf("other", true).run, { length: { medianMs: 12_000, p99Ms: 50_000 }, failure: 0 });
  t.is(observed.behaviourOf("web").run, null);
});

test("a copy leaves out jobs that are over and runs of schedules, and keeps those that still work", (t) => {
  const job = (id: string, labels: Record<string, string> = {}): Service =>
    Service.create({
      id,
      spec: ServiceSpec.create({
        annotations: Annotations.create({ name: id.slice(0, 8), labels }),
        replicatedJob: ReplicatedJob.create({ maxConcurrent: 1, totalCompletions: 1 }),
        task: TaskSpec.create({ container: ContainerSpec.create({ image: "job:1" }) }),
      }),
    });
  const scheduleId = "schedule-0123456789abcdef";
  const run = job(runId(scheduleId, 1_000_000), { "muster.job.schedule": scheduleId });
  const done = Task.create({
    id: "t1",
    serviceId: "finished",
    jobIteration: Version.create({ index: 0 }),
    desiredState: COMPLETE,
    status: TaskStatus.create({ state: COMPLETE }),
  });
  const { plan, remarks } = copiedCluster(
    {
      nodes: [node("n1", "one")],
      services: [job("finished"), job("working"), job(scheduleId, { "muster.schedule.cron": "@daily" }), run],
      networks: [],
      tasks: [done],
    },
    new ObservedTimes(),
  );
  t.deepEqual(
    plan.services.map(({ spec }) => spec.annotations?.name),
    ["working", "schedule"],
  );
  t.deepEqual(remarks, ["left out: 2 jobs (finished ones, and runs of scheduled jobs)"]);
});

test("a process is prepared anew each time, and services of processes share no image", (t) => {
  const observed = new ObservedTimes();
  for (let at = 0; at < 6; at += 1)
    report(
      observed,
      `t${at}`,
      [
        [ASSIGNED, 0],
        [PREPARING, 100],
        [READY, 300],
        [STARTING, 310],
        [RUNNING, 400],
      ],
      { image: "" },
    );
  t.deepEqual(observed.behaviourOf("s1").pull, { medianMs: 200, p99Ms: 200 });
  t.is(observed.startsOf("s1"), 6);
});

test("a process service's health check is copied with its timing, but without its command", (t) => {
  const health = HealthCheck.create({
    command: ["curl", "-u", "hunter2"],
    interval: Duration.create({ seconds: 7 }),
    startPeriod: Duration.create({ seconds: 20 }),
    retries: 4,
  });
  const service = Service.create({
    id: "s1",
    spec: ServiceSpec.create({
      annotations: Annotations.create({ name: "clock" }),
      replicated: ReplicatedService.create({ replicas: 1 }),
      task: TaskSpec.create(execTask(ExecSpec.create({ command: "clock", health }))),
    }),
  });
  const { plan } = copiedCluster(
    { nodes: [node("n1", "one")], services: [service], networks: [], tasks: [] },
    new ObservedTimes(),
  );
  const copied = plan.services[0]?.spec.task?.container?.healthcheck;
  t.like(copied, { test: ["CMD", "healthcheck"], retries: 4, interval: { seconds: 7 }, startPeriod: { seconds: 20 } });
  const text = writeCluster(plan, []);
  t.false(text.includes("hunter2"));
  t.deepEqual(readCluster(text, "saved.yaml", { get: () => undefined }), plan);
});

test("a copy keeps tasks on the nodes that have their driver, and leaves out services that none can run", (t) => {
  const engine = (id: string, ...plugins: readonly (readonly [string, string])[]): Node => {
    const plain = node(id, id);
    const description = NodeDescription.patch(plain.description ?? NodeDescription.create(), {
      engine: EngineDescription.create({
        plugins: plugins.map(([type, name]) => PluginDescription.create({ type, name })),
      }),
    });
    return Node.patch(plain, { description });
  };
  const service = (name: string, kind: string | null, constraints: readonly string[] = []): Service =>
    Service.create({
      id: name,
      spec: ServiceSpec.create({
        annotations: Annotations.create({ name }),
        replicated: ReplicatedService.create({ replicas: 1 }),
        task: TaskSpec.create({
          ...(kind === null
            ? { container: ContainerSpec.create({ image: "web:1" }) }
            : { generic: GenericRuntimeSpec.create({ kind }) }),
          placement: Placement.create({ constraints: [...constraints] }),
        }),
      }),
    });
  const { plan, remarks } = copiedCluster(
    {
      nodes: [
        engine("n1", ["Driver", "exec"]),
        engine("n2", ["Volume", "local"], ["Network", "overlay"]),
        engine("n3", ["Driver", "exec"], ["Driver", "raw_exec"]),
      ],
      services: [
        service("process", "exec"),
        service("container", null),
        service("other", "raw_exec"),
        service("unknown", "java"),
        service("nowhere", null, ["node.labels.x==y"]),
      ],
      networks: [],
      tasks: [],
    },
    new ObservedTimes(),
  );
  t.deepEqual(
    plan.nodes.map(({ labels }) => labels),
    [
      { "rehearsal.runs-exec": "true" },
      { "rehearsal.runs-containers": "true" },
      { "rehearsal.runs-exec": "true", "rehearsal.runs-raw-exec": "true" },
    ],
  );
  t.deepEqual(
    plan.services.map(({ spec }) => [spec.annotations?.name, spec.task?.placement?.constraints]),
    [
      ["process", ["node.labels.rehearsal.runs-exec == true"]],
      ["container", ["node.labels.rehearsal.runs-containers == true"]],
      ["other", ["node.labels.rehearsal.runs-raw-exec == true"]],
    ],
  );
  t.deepEqual(remarks, ["left out: 2 services that none of these nodes can run"]);
});
