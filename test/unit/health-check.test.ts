// Health checks of tasks that are not containers: the chart on virtual time, the checks, and the outcome for the task.
import { createServer } from "node:http";
import { once } from "node:events";
import { connect, createServer as createTcpServer, type AddressInfo } from "node:net";
import test, { type ExecutionContext } from "ava";
import type { DriverTask } from "../../actors/agent/ports.ts";
import type { DriverPluginPorts } from "../../actors/driver/plugin.ts";
import { HealthCheckActor } from "../../actors/driver/health-check.ts";
import type { CallTarget } from "../../actors/agent/calls.ts";
import { PluginDriver, type PluginDriverOptions } from "../../actors/driver/plugin-driver.ts";
import type { HealthNews } from "../../machines/driver/health-check.machine.ts";
import { healthSaid, healthTimes, healthWords } from "../../machines/driver/health-spec.ts";
import {
  Any,
  DriverSpec,
  Duration,
  ExecSpec,
  GenericRuntimeSpec,
  HealthCheck,
  HealthHttp,
  HealthTcp,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import { DriverCapabilities, ExecTaskResponse, ExitResult, type ExecTaskRequest } from "../../proto/gen/nomad.ts";
import { Host } from "../../runtime/host.ts";
import type { DriverClient } from "../../runtime/ports/plugins.ts";
import type { HttpProbe, ProbeOutcome } from "../../runtime/ports/probes.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";
import { systemProbes } from "../../runtime/system/probes.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";
import type { SimDrivers } from "../../simulation/nodes/drivers.ts";
import { checkProven, findUnwell } from "../../simulation/invariants/health.ts";
import { task, World } from "./agent-world.ts";

const seconds = (count: number) => Duration.create({ seconds: count });
const passed: ProbeOutcome = { kind: "passed" };
const refused: ProbeOutcome = { kind: "failed", reason: "connection refused" };
const bytes = (text: string) => new TextEncoder().encode(text);

const every10s = { interval: seconds(10), timeout: seconds(3), retries: 3 };
const overTcp = HealthCheck.create({ ...every10s, tcp: HealthTcp.create({ port: 80 }) });

/** One check on virtual time; `looks` are the times of the checks, in seconds from the start. */
class Bench {
  readonly clock = new SimClock();
  readonly news: HealthNews[] = [];
  readonly looks: number[] = [];
  readonly asked: ({ readonly address: string; readonly port: number } & Partial<HttpProbe>)[] = [];
  readonly actor: HealthCheckActor;
  aborted = 0;
  outcome: ProbeOutcome | "hangs" = passed;
  exec: (request: ExecTaskRequest) => Promise<ExecTaskResponse> = async () => ExecTaskResponse.create();
  target: CallTarget = {
    driverTaskId: "t/1",
    commandUser: (name) => ({ kind: "user", name }),
    client: { execTask: (request: ExecTaskRequest) => this.#note(this.exec(request)) } as unknown as DriverClient,
  };
  address: string | null = null;
  readonly #begin = this.clock.elapsed;

  constructor(check: HealthCheck, wasHealthy = false) {
    const telemetry = createSimTelemetry({
      who: "agent",
      random: new SimRandom("health"),
      trace: new SimTrace(),
    });
    const onCrash = (_: string, error: unknown): never => {
      throw error;
    };
    const look = (signal: AbortSignal): Promise<ProbeOutcome> => {
      signal.addEventListener("abort", () => (this.aborted += 1));
      return this.#note(this.outcome === "hangs" ? new Promise(() => {}) : Promise.resolve(this.outcome));
    };
    const probes = {
      http: (probe: HttpProbe, signal: AbortSignal) => (this.asked.push(probe), look(signal)),
      tcp: (at: { address: string; port: number }, signal: AbortSignal) => (this.asked.push(at), look(signal)),
    };
    this.actor = new HealthCheckActor(
      { clock: this.clock, host: new Host({ clock: this.clock, telemetry, onCrash }), probes },
      {
        taskId: "t",
        check,
        wasHealthy,
        target: () => this.target,
        address: () => this.address,
        onNews: (news) => this.news.push(news),
      },
    );
  }

  async pass(count: number): Promise<void> {
    await this.clock.run({ untilMs: this.clock.now() + count * 1_000 });
  }

  #note<T>(outcome: T): T {
    this.looks.push(Math.round((this.clock.elapsed - this.#begin) / 1_000));
    return outcome;
  }
}

test("unset values have Docker's defaults", (t) => {
  const times = { intervalMs: 30_000, timeoutMs: 30_000, retries: 3, startPeriodMs: 0, startIntervalMs: 5_000 };
  t.deepEqual(healthTimes(HealthCheck.create()), times);
  t.deepEqual(healthTimes(HealthCheck.create({ interval: seconds(0), timeout: seconds(0) })), times);
  t.is(healthTimes(HealthCheck.create({ interval: Duration.create({ nanos: 5e6 }) })).intervalMs, 5);
});

test("H1, H2: the first check comes after an interval, and this many failures in a row make a task unhealthy", async (t) => {
  const bench = new Bench(overTcp);
  await bench.pass(35);
  t.deepEqual(bench.looks, [10, 20, 30]);
  t.deepEqual(bench.news, [{ kind: "healthy" }], "said once");
  bench.outcome = refused;
  await bench.pass(20);
  bench.outcome = passed;
  await bench.pass(10);
  t.is(bench.news.length, 1, "two in a row are too few");
  bench.outcome = refused;
  await bench.pass(100);
  t.deepEqual(bench.looks.slice(-3), [70, 80, 90]);
  t.deepEqual(bench.news.slice(1), [
    {
      kind: "unhealthy",
      reason: "3 checks failed in a row, the last: connecting to 127.0.0.1:80: connection refused",
    },
  ]);
});

test("H3: checks that begin within the start period do not count, and are more frequent", async (t) => {
  const bench = new Bench(HealthCheck.patch(overTcp, { startPeriod: seconds(23), startInterval: seconds(4) }));
  bench.outcome = refused;
  await bench.pass(60);
  t.deepEqual(bench.looks, [4, 8, 12, 16, 20, 24, 34, 44]);
  t.deepEqual(
    bench.news.map(({ kind }) => kind),
    ["failing", "failing", "failing", "unhealthy"],
    "the first, second and fourth, and then the end",
  );
  const well = new Bench(HealthCheck.patch(overTcp, { startPeriod: seconds(23), startInterval: seconds(4) }));
  await well.pass(30);
  t.deepEqual(well.looks, [4, 14, 24], "once healthy, the interval is the usual one");
  const begun = new Bench(
    HealthCheck.patch(overTcp, { startPeriod: seconds(5), startInterval: seconds(4), retries: 1 }),
  );
  begun.outcome = "hangs";
  await begun.pass(8);
  t.deepEqual(
    begun.news.map(({ kind }) => kind),
    ["failing"],
    "it began within the period and ended after it",
  );
});

test("a check that takes too long fails and is ended", async (t) => {
  const bench = new Bench(overTcp, true);
  bench.outcome = "hangs";
  await bench.pass(50);
  t.deepEqual(bench.looks, [10, 23, 36]);
  t.is(bench.aborted, 3);
  t.like(bench.news[0], { kind: "unhealthy", reason: "3 checks failed in a row, the last: took longer than 3 s" });
});

test("nothing is reported or checked once it is stopped", async (t) => {
  const bench = new Bench(overTcp);
  bench.outcome = "hangs";
  await bench.pass(11);
  bench.actor.stop();
  await bench.pass(100);
  t.is(bench.aborted, 1);
  t.deepEqual(bench.looks, [10]);
  t.deepEqual(bench.news, []);
});

test("the check connects to the task's own address if it has one", async (t) => {
  const http = HealthHttp.create({ port: 8080, path: "/ready?x=1", host: "shop.example" });
  const bench = new Bench(HealthCheck.create({ ...every10s, retries: 1, http }));
  bench.address = "fd00::5";
  bench.outcome = { kind: "failed", reason: `answered 503: ${"no ".repeat(500)}` };
  await bench.pass(11);
  t.deepEqual(bench.asked, [{ address: "fd00::5", port: 8080, path: "/ready?x=1", host: "shop.example" }]);
  const [news] = bench.news;
  const reason = news?.kind === "unhealthy" ? news.reason : "";
  t.regex(reason, /^its check failed: GET http:\/\/\[fd00::5\]:8080\/ready\?x=1: answered 503: no no .* … .*no$/);
  t.true(reason.length < 450);
});

test("a command is run by the task's driver, with the check's timeout", async (t) => {
  const bench = new Bench(HealthCheck.create({ ...every10s, retries: 2, command: ["pg_isready", "-q"] }));
  const requests: ExecTaskRequest[] = [];
  bench.exec = async (request) => {
    requests.push(request);
    return ExecTaskResponse.create();
  };
  await bench.pass(15);
  t.deepEqual(
    requests.map(({ command, taskId, timeout }) => [taskId, [...command], timeout?.seconds]),
    [["t/1", ["pg_isready", "-q"], 3]],
  );
  bench.exec = async () =>
    ExecTaskResponse.create({ stderr: bytes("no\n\tspace\n"), result: ExitResult.create({ exitCode: 2 }) });
  await bench.pass(20);
  t.deepEqual(bench.news.at(-1), {
    kind: "unhealthy",
    reason: "2 checks failed in a row, the last: the command exited with 2: no space",
  });
});

test("H4: a check without a driver counts neither way", async (t) => {
  const bench = new Bench(HealthCheck.create({ ...every10s, retries: 1, command: ["true"] }));
  bench.exec = () => Promise.reject(new RpcError(Status.UNAVAILABLE, "the plugin is gone"));
  await bench.pass(35);
  t.deepEqual(bench.looks, [10, 20, 30]);
  bench.target = { reason: "the driver does not run just now" };
  await bench.pass(30);
  t.deepEqual(bench.news, []);
});

test("commands that a driver does not end do not pile up", async (t) => {
  const bench = new Bench(HealthCheck.create({ ...every10s, command: ["sleep", "inf"] }));
  bench.exec = () => new Promise(() => {});
  await bench.pass(60);
  t.deepEqual(bench.looks, [10], "asked once");
  t.like(bench.news.at(-1), {
    kind: "unhealthy",
    reason: "3 checks failed in a row, the last: the previous command has not ended",
  });
});

test("a check is printed as people write it", (t) => {
  t.is(healthWords(HealthCheck.create({ command: ["/bin/sh", "-c", "curl -f x | grep y"] })), "curl -f x | grep y");
  t.is(healthWords(HealthCheck.create({ command: ["pg_isready", "-q"] })), "pg_isready -q");
  t.is(healthWords(HealthCheck.create({ http: HealthHttp.create({ port: 80, host: "a.b" }) })), "GET a.b:80/");
  t.is(healthWords(HealthCheck.create({ http: HealthHttp.create({ port: 81, host: "a.b:81" }) })), "GET a.b:81/");
  t.is(healthWords(overTcp), "a connection to port 80");
  t.is(healthSaid(" a\n\u001b[31mb \r\n"), "a [31mb");
});

async function listening(t: ExecutionContext, server: ReturnType<typeof createTcpServer>): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  return (server.address() as AddressInfo).port;
}

test("real checks: statuses, hosts, bodies and connections", async (t) => {
  const hosts: string[] = [];
  const server = createServer((request, response) => {
    hosts.push(request.headers.host ?? "");
    if (request.url === "/endless") {
      response.writeHead(500);
      for (let chunk = 0; chunk < 20; chunk += 1) response.write("x".repeat(1_000));
      return;
    }
    response.writeHead(Number(request.url?.slice(1)), { Location: "/500" }).end(`said ${request.url}`);
  });
  const port = await listening(t, server);
  t.teardown(() => server.closeAllConnections());
  const { signal } = new AbortController();
  const get = (path: string, host = "") => systemProbes.http({ address: "127.0.0.1", port, path, host }, signal);
  for (const path of ["/200", "/204", "/302"]) t.deepEqual(await get(path), passed);
  t.deepEqual(await get("/404"), { kind: "failed", reason: "answered 404: said /404" });
  const endless = await get("/endless", "shop.example");
  t.is(endless.kind === "failed" ? endless.reason.length : 0, "answered 500: ".length + 4_096);
  t.deepEqual([hosts[0], hosts.at(-1)], [`127.0.0.1:${port}`, "shop.example"]);
  t.deepEqual(await systemProbes.tcp({ address: "127.0.0.1", port }, signal), passed);
});

test("real checks of a target that does not listen, does not speak HTTP, or never answers", async (t) => {
  const free = createTcpServer();
  const port = await listening(t, free);
  free.close();
  await once(free, "close");
  const { signal } = new AbortController();
  t.deepEqual(await systemProbes.tcp({ address: "127.0.0.1", port }, signal), refused);
  const none = await systemProbes.http({ address: "127.0.0.1", port, path: "/", host: "" }, signal);
  t.deepEqual(none, refused);
  const garbage = await listening(
    t,
    createTcpServer((socket) => socket.on("error", () => {}).end("what?\r\n\r\n")),
  );
  const answer = await systemProbes.http({ address: "127.0.0.1", port: garbage, path: "/", host: "" }, signal);
  t.is(answer.kind, "failed");
  const silent = await listening(
    t,
    createTcpServer((socket) => t.teardown(() => socket.destroy())),
  );
  const controller = new AbortController();
  const waiting = systemProbes.http({ address: "127.0.0.1", port: silent, path: "/", host: "" }, controller.signal);
  // By then it is connected, as far as that matters.
  const later = connect(silent, "127.0.0.1");
  await once(later, "connect");
  later.destroy();
  controller.abort();
  t.is((await waiting).kind, "failed");
});

function checkedTask(check: HealthCheck) {
  const payload = Any.create({
    type_url: "muster.v1.ExecSpec",
    value: ExecSpec.encode(ExecSpec.create({ command: "x", health: check })),
  });
  return task("t1", { spec: TaskSpec.create({ generic: GenericRuntimeSpec.create({ kind: "exec", payload }) }) });
}

test("a task is STARTING until its check passes, reports why it does not, and fails when it is unhealthy", async (t) => {
  const world = await new World().serving();
  world.probe = async () => refused;
  world.assignAll(checkedTask(overTcp));
  await world.pass(15_000);
  t.is(world.statesOf("t1").at(-1), TaskState.STARTING);
  t.is(world.lastReport("t1").message, "health check: connecting to 127.0.0.1:80: connection refused");
  world.probe = async () => passed;
  await world.pass(10_000);
  t.is(world.statesOf("t1").at(-1), TaskState.RUNNING);
  world.probe = async () => refused;
  await world.pass(40_000);
  t.like(world.lastReport("t1"), {
    state: TaskState.FAILED,
    err: "task: unhealthy: 3 checks failed in a row, the last: connecting to 127.0.0.1:80: connection refused",
  });
  t.deepEqual(world.machine.running(), [], "its process was stopped");
  t.deepEqual(new Set(world.statesOf("t1")), new Set(world.statesOf("t1").toSorted((a, b) => a - b)));
});

test("a restarted agent continues: a RUNNING task stays RUNNING, and a STARTING one must still pass", async (t) => {
  const world = await new World().serving();
  world.assignAll(checkedTask(overTcp));
  await world.pass(15_000);
  t.is(world.statesOf("t1").at(-1), TaskState.RUNNING);
  world.node.restart();
  world.probe = async () => refused;
  await world.pass(25_000);
  t.is(world.statesOf("t1").at(-1), TaskState.RUNNING, "two failures are too few");
  await world.pass(20_000);
  t.is(world.statesOf("t1").at(-1), TaskState.FAILED);

  const other = await new World().serving();
  other.probe = async () => refused;
  other.assignAll(checkedTask(HealthCheck.patch(overTcp, { retries: 5 })));
  await other.pass(15_000);
  other.node.restart();
  await other.pass(15_000);
  t.is(other.statesOf("t1").at(-1), TaskState.STARTING);
  other.probe = async () => passed;
  await other.pass(15_000);
  t.is(other.statesOf("t1").at(-1), TaskState.RUNNING);
  t.is(other.machine.running().length, 1);
});

test("a driver that cannot run commands in its tasks gets no task with a command check", async (t) => {
  const plugin = { description: { capabilities: DriverCapabilities.create() } };
  const options = { kind: "plain", plugin, plugins: {}, networks: null } as unknown as PluginDriverOptions;
  const driver = new PluginDriver({ telemetry: {} } as unknown as DriverPluginPorts, options);
  const spec = DriverSpec.create({ config: "{}", health: HealthCheck.create({ command: ["true"] }) });
  const payload = Any.create({ type_url: "muster.v1.DriverSpec", value: DriverSpec.encode(spec) });
  t.deepEqual(await driver.prepare({ id: "t1", payload } as unknown as DriverTask), {
    kind: "refused",
    reason: "plain: the driver runs no commands in its tasks, which the health check requires",
  });
});

test("S45, L8: the simulation notices a task that runs unproven or unhealthy", (t) => {
  const task = Task.patch(checkedTask(overTcp), {
    status: TaskStatus.create({ state: TaskState.RUNNING }),
    desiredState: TaskState.RUNNING,
  });
  const drivers = (has: boolean) => [{ isProven: () => has, isWell: () => has }] as unknown as readonly SimDrivers[];
  const commit = { changes: [{ table: "task", action: "update", object: task }] } as unknown as Commit;
  t.regex(checkProven(commit, drivers(false), () => {}) ?? "", /^S45: task t1/);
  t.is(
    checkProven(commit, drivers(true), () => {}),
    null,
  );
  const store = { all: () => [task] } as unknown as Store;
  t.regex(findUnwell(store, drivers(false), () => true) ?? "", /^L8: task t1/);
  t.is(
    findUnwell(store, drivers(false), () => false),
    null,
    "a disconnected node can do nothing about it",
  );
  t.is(
    findUnwell(store, drivers(true), () => true),
    null,
  );
});
