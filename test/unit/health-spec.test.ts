// How a health check of a non-container task is requested, validated, shown, and explained while it has not passed.
import test from "ava";
import { driverPayload } from "../../cli/service/driver.ts";
import type { CreateValues, UpdateValues } from "../../cli/service/flags.ts";
import { prettyService } from "../../cli/service/pretty.ts";
import { changedSpec, newSpec } from "../../cli/service/spec.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import { explainTask, type ExplainView } from "../../machines/explain/explain.ts";
import { healthOf } from "../../machines/driver/health-spec.ts";
import { differenceOf } from "../../machines/history/fields.ts";
import { checkTaskSpec } from "../../machines/validation/task-spec.ts";
import {
  DriverSpec,
  Duration,
  HealthCheck,
  HealthHttp,
  HealthTcp,
  Node,
  NodeDescription,
  NodeStatus,
  NodeStatus_State,
  Service,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  type ServiceSpec,
} from "../../proto/gen/messages.ts";

const onDriver = (flags: CreateValues = {}) => newSpec({ name: "a", driver: "mock", ...flags }, []);
const asProcess = (flags: CreateValues = {}) => newSpec({ name: "a", driver: "exec", ...flags }, ["sleep", "1"]);
const inContainer = (flags: CreateValues = {}) => newSpec({ name: "a", ...flags }, ["bb:1"]);
const checkOf = (spec: ServiceSpec) => healthOf(spec.task);
const seconds = (count: number) => Duration.create({ seconds: count });

test("flags set what is checked and when, for driver tasks and processes", (t) => {
  for (const make of [onDriver, asProcess]) {
    t.is(checkOf(make()), null);
    const times = {
      "health-interval": "10s",
      "health-timeout": "2s",
      "health-retries": "5",
      "health-start-period": "1m",
      "health-start-interval": "500ms",
    };
    t.deepEqual(
      checkOf(make({ "health-cmd": "curl -f localhost", ...times })),
      HealthCheck.create({
        command: ["/bin/sh", "-c", "curl -f localhost"],
        interval: seconds(10),
        timeout: seconds(2),
        retries: 5,
        startPeriod: seconds(60),
        startInterval: Duration.create({ nanos: 500e6 }),
      }),
    );
    t.deepEqual(
      checkOf(make({ "health-tcp": ":5432" })),
      HealthCheck.create({ tcp: HealthTcp.create({ port: 5432 }) }),
    );
    t.is(checkOf(make({ "no-healthcheck": true })), null);
  }
});

for (const [text, port, path, host] of [
  [":8080/ready?a=b", 8080, "/ready?a=b", ""],
  [":8080", 8080, "/", ""],
  ["http://shop.example/ready", 80, "/ready", "shop.example"],
  ["http://shop.example:8080", 8080, "/", "shop.example:8080"],
  ["http://:8080/x", 8080, "/x", ""],
  ["http://[::1]:81/x", 81, "/x", "[::1]:81"],
  ["/ready", 80, "/ready", ""],
] as const) {
  test(`--health-http ${text}`, (t) => {
    t.like(checkOf(onDriver({ "health-http": text }))?.http, { port, path, host });
  });
}

const mistakes: readonly (readonly [CreateValues, RegExp, typeof UsageError | typeof UserError])[] = [
  [
    { "health-http": "https://a/b" },
    /invalid --health-http "https:.*": expected :PORT\/PATH or http:\/\/HOST:PORT\/PATH/,
    UsageError,
  ],
  [{ "health-http": "" }, /invalid --health-http/, UsageError],
  [{ "health-http": ":80/a b" }, /invalid --health-http/, UsageError],
  [{ "health-tcp": "db:5432" }, /invalid --health-tcp "db:5432": expected :PORT/, UsageError],
  [{ "health-cmd": "" }, /use --no-healthcheck/, UserError],
  [{ "health-cmd": "x", "health-tcp": ":1" }, /--health-cmd conflicts with --health-tcp/, UserError],
  [{ "health-interval": "5s" }, /one of --health-cmd, --health-http and --health-tcp/, UserError],
  [{ "health-tcp": ":1", "health-retries": "-1" }, /--health-retries cannot be negative/, UsageError],
  [{ "health-tcp": ":1", "health-timeout": "-1s" }, /--health-timeout cannot be negative/, UsageError],
  [{ "health-tcp": ":1", "no-healthcheck": true }, /--no-healthcheck conflicts with --health-\* options/, UserError],
];
for (const [flags, message, instanceOf] of mistakes) {
  test(`refuses ${JSON.stringify(flags)}`, (t) => {
    t.throws(() => onDriver(flags), { message, instanceOf });
    t.throws(() => asProcess(flags), { message, instanceOf });
  });
}

test("a container's check is its engine's: a command, as before", (t) => {
  t.throws(() => inContainer({ "health-http": ":80" }), { message: /--health-http is not supported for containers/ });
  t.throws(() => inContainer({ "health-tcp": ":80" }), { message: /--health-tcp is not supported for containers/ });
  t.deepEqual(inContainer({ "health-cmd": "x" }).task?.container?.healthcheck?.test, ["CMD-SHELL", "x"]);
});

test("an update changes what it names, replaces the check's target, or removes the check", (t) => {
  const before = onDriver({ "health-http": ":80/a", "health-retries": "2" });
  const after = (flags: UpdateValues) => checkOf(changedSpec(before, flags));
  t.deepEqual(after({}), checkOf(before));
  t.deepEqual(after({ "health-retries": "7" }), HealthCheck.patch(checkOf(before) as HealthCheck, { retries: 7 }));
  t.deepEqual(after({ "health-tcp": ":9" }), HealthCheck.create({ tcp: HealthTcp.create({ port: 9 }), retries: 2 }));
  t.is(after({ "no-healthcheck": true }), null);
});

const tcp = HealthTcp.create({ port: 80 });
const flaws: readonly (readonly [Partial<HealthCheck>, RegExp])[] = [
  [{}, /health check: specify exactly one of command, http and tcp$/],
  [{ tcp, command: ["x"] }, /specify exactly one of command, http and tcp$/],
  [{ command: [""] }, /the command is empty$/],
  [{ tcp: HealthTcp.create({ port: 0 }) }, /invalid port 0: expected 1 to 65535$/],
  [{ http: HealthHttp.create({ port: 70_000 }) }, /invalid port 70000: expected 1 to 65535$/],
  [{ http: HealthHttp.create({ port: 80, path: "ready" }) }, /invalid path "ready": expected "\/"/],
  [{ http: HealthHttp.create({ port: 80, path: "/a\r\nX: y" }) }, /no spaces$/],
  [{ http: HealthHttp.create({ port: 80, host: "a b" }) }, /invalid host "a b": expected a host name or address$/],
  [{ tcp, interval: seconds(-1) }, /interval cannot be negative$/],
  [{ tcp, timeout: Duration.create({ nanos: 1_000 }) }, /timeout cannot be less than 1ms$/],
  [{ tcp, startPeriod: seconds(100_000) }, /start period cannot be more than 24h$/],
  [{ tcp, startInterval: seconds(-1) }, /start interval cannot be negative$/],
];

const driven = (health: HealthCheck) =>
  TaskSpec.create({ generic: driverPayload("mock", DriverSpec.create({ config: "{}", health })) });

test("a manager's error names the field", (t) => {
  for (const [fields, message] of flaws) {
    const refusal = checkTaskSpec(driven(HealthCheck.create(fields)));
    t.regex(refusal?.message ?? "", message);
    t.regex(refusal?.message ?? "", /^Generic runtime: health check: /);
  }
  t.is(checkTaskSpec(driven(HealthCheck.create({ tcp, interval: seconds(1) }))), null);
  t.is(checkTaskSpec(asProcess({ "health-http": "http://a.b:80/c" }).task as TaskSpec), null);
  t.regex(checkTaskSpec(asProcess({ "health-tcp": ":0" }).task as TaskSpec)?.message ?? "", /port 0/);
});

test("inspect --pretty shows the check with its defaults", (t) => {
  const service = Service.create({ id: "s", spec: onDriver({ "health-http": ":80/a", "health-interval": "1500ms" }) });
  t.regex(
    prettyService(service, new Map(), 0),
    / Interval = 1.5s\n Retries = 3\n StartPeriod = 0s\n Timeout = 30s\n StartInterval = 5s\n Tests:\n {2}Test = GET :80\/a/,
  );
});

test("the history shows what has changed in a check", (t) => {
  const before = Service.create({ id: "s", spec: asProcess({ "health-tcp": ":80" }) });
  const spec = changedSpec(before.spec as ServiceSpec, { "health-retries": "9" });
  const { fields } = differenceOf("service", before, Service.patch(before, { spec }));
  t.deepEqual(
    fields.map(({ field }) => field),
    ["health retries"],
  );
});

const node = Node.create({
  id: "n",
  description: NodeDescription.create({ hostname: "one" }),
  status: NodeStatus.create({ state: NodeStatus_State.READY }),
});
const view = { node: () => node, nodeName: () => "one", slot: () => [], nowMs: 0 } as unknown as ExplainView;

test("why names the pending check and its result, and says that an unhealthy task is being stopped", (t) => {
  const spec = driven(HealthCheck.create({ http: HealthHttp.create({ port: 80 }), startPeriod: seconds(20) }));
  const task = (state: TaskState, message: string, err = "") =>
    Task.create({
      id: "t",
      nodeId: "n",
      spec,
      desiredState: TaskState.RUNNING,
      status: TaskStatus.create({ state, message, err }),
    });
  const [waits] = explainTask(task(TaskState.STARTING, "health check: connection refused"), view);
  t.like(waits, {
    waitingFor: "node one, to start it; its health check must pass: GET :80/",
    wokenBy: "a passing check; 3 failures in a row after the first 20 s stop it",
    tried: ["health check: connection refused"],
  });
  for (const state of [TaskState.STARTING, TaskState.RUNNING]) {
    const [ends] = explainTask(task(state, "unhealthy; being stopped", "3 checks failed"), view);
    t.like(ends, {
      waitingFor: "node one, to stop it: it is unhealthy",
      tried: ["unhealthy; being stopped", "3 checks failed"],
    });
  }
  t.regex(explainTask(task(TaskState.RUNNING, "started"), view)[0]?.waitingFor ?? "", /^nothing: it runs/);
});
