// Trace contexts on their way from a command to a task, and recording them without cost or side effect.
import { createServer } from "node:net";
import { SpanStatusCode, trace, type Tracer } from "@opentelemetry/api";
import { hostname } from "node:os";
import test from "ava";
import type { Environment } from "../../actors/environment.ts";
import { startLeadership } from "../../actors/ledger/leadership.ts";
import { followServiceTraces, traceOrchestration } from "../../actors/orchestration/tracing.ts";
import { traceparentOfTask } from "../../runtime/store/change-traces.ts";
import { startSpan, traced } from "../../actors/tracing.ts";
import { CommandTrace } from "../../cli/tracing.ts";
import type { Shell } from "../../cli/shell.ts";
import {
  Annotations,
  Cause,
  Change,
  ControlService,
  CreateServiceRequest,
  Kind,
  ListServicesRequest,
  LogsService,
  Operation,
  Removal,
  RemoveServiceRequest,
  SubscribeLogsRequest,
  TaskPatch,
  TaskState,
  WatchRequest,
  WatchService,
  type Task,
} from "../../proto/gen/messages.ts";
import { RpcError, Status, type RpcChannel } from "../../runtime/ports/rpc.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { Host } from "../../runtime/host.ts";
import { Simulation } from "../../runtime/sim/simulation.ts";
import { Replica } from "../../runtime/store/replica.ts";
import type { Cause as KnownCause, Proposal, ProposeOutcome } from "../../runtime/store/store.ts";
import { version } from "../../lib/version.ts";
import { controlSpans, spans, type SpanDeclaration } from "../../runtime/telemetry/spans.ts";
import { contextOf, createTracing, traceparentLabel, traceparentOf } from "../../runtime/telemetry/tracing.ts";
import { createRecorder } from "../support/recorder.ts";
import { startCollector } from "../fixtures/collector.ts";
import { call } from "../support/manager.ts";
import { create, node, proposal, put, service, status, task, testTtlMs, Writer } from "./store-kit.ts";

const given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const other = "00-11111111111111111111111111111111-2222222222222222-01";
const silent = trace.getTracer("nobody records");

function ports(tracer: Tracer = silent) {
  const clock = new SimClock();
  return { clock, telemetry: { tracer } as unknown as Environment["telemetry"] };
}

const traceIdOf = (traceparent: string): string => traceparent.split("-")[1] ?? "";
const spanIdOf = (traceparent: string): string => traceparent.split("-")[2] ?? "";

// Contexts.

test("a traceparent is parsed and written in W3C's format; an invalid one starts a new trace", (t) => {
  const span = silent.startSpan("any", {}, contextOf(given));
  t.is(traceparentOf(span), given);
  const malformed = ["", "00-xyz", given.toUpperCase(), `${given}-00`, given.replace(/b7ad\w+/, "0".repeat(16))];
  for (const traceparent of malformed) t.is(trace.getSpanContext(contextOf(traceparent)), undefined, traceparent);
  t.is(traceparentOf(silent.startSpan("any", {}, contextOf(""))), "");
});

test("without a collector, spans record nothing and pass the context on", async (t) => {
  const tracing = await createTracing("test", undefined);
  const span = startSpan(ports(tracing.tracer), spans.taskStart, given);
  t.false(span.isRecording());
  t.is(traceparentOf(span), given);
  await tracing.shutdown();
});

test("spans name the process, version and host that recorded them", async (t) => {
  const collector = await startCollector(t);
  const record = async (): Promise<void> => {
    const tracing = await createTracing("muster-manager", collector.endpoint);
    tracing.tracer.startSpan("service create").end();
    await tracing.shutdown();
  };
  await record();
  t.like(collector.spans[0]?.resource, {
    "service.name": "muster-manager",
    "service.version": version,
    "host.name": hostname(),
  });
  t.regex(collector.spans[0]?.resource["service.instance.id"] ?? "", /^[0-9a-f-]{36}$/);
  process.env["OTEL_RESOURCE_ATTRIBUTES"] = "deployment.environment.name=test,service.instance.id=m1";
  t.teardown(() => delete process.env["OTEL_RESOURCE_ATTRIBUTES"]);
  await record();
  t.like(collector.spans[1]?.resource, { "deployment.environment.name": "test", "service.instance.id": "m1" });
});

test("an unresponsive collector delays the exit only for its timeout", async (t) => {
  const server = createServer();
  t.teardown(() => server.close());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  const tracing = await createTracing("test", `http://127.0.0.1:${port}/`, { exportTimeoutMs: 300 });
  tracing.tracer.startSpan("service create").end();
  const before = Date.now();
  await tracing.shutdown().catch(() => undefined);
  t.true(Date.now() - before < 5_000);
});

// Handlers.

test("a handler runs in a span whose context replaces the caller's, timed by the injected clock", async (t) => {
  const recorder = createRecorder();
  const env = ports(recorder.tracer);
  const seen: string[] = [];
  const handler = traced(
    env,
    controlSpans.CreateService,
    (_: string, id: string | null) => (id === null ? {} : { "muster.service.id": id }),
    (request, { traceparent }) => {
      seen.push(traceparent);
      return Promise.resolve(`${request}!`);
    },
  );
  const startedAt = env.clock.now();
  t.is(await handler("web", { ...call(), traceparent: given }), "web!");
  const span = recorder.span("service create");
  t.deepEqual(seen.map(traceIdOf), [traceIdOf(given)]);
  t.is(span.spanContext().spanId, spanIdOf(seen[0] ?? ""));
  t.is(span.parentSpanContext?.spanId, spanIdOf(given));
  t.deepEqual({ ...span.attributes }, { "muster.service.id": "web!" });
  t.is(span.startTime[0], Math.floor(startedAt / 1_000));
  t.deepEqual([...span.duration], [0, 0], "the simulated clock did not move");
});

test("a server fault marks its span as failed; a caller's error does not", async (t) => {
  const recorder = createRecorder();
  const failing = (declared: SpanDeclaration, error: Error, isSync: boolean) =>
    traced(
      ports(recorder.tracer),
      declared,
      () => ({}),
      () => {
        if (isSync) throw error;
        return Promise.reject(error);
      },
    );
  const lost = new RpcError(Status.UNAVAILABLE, "no leader");
  await t.throwsAsync(async () => failing(controlSpans.CreateService, lost, false)(null, call()), { is: lost });
  const wrong = new RpcError(Status.INVALID_ARGUMENT, "no name");
  t.throws(() => failing(controlSpans.UpdateService, wrong, true)(null, call()), { is: wrong });
  t.is(recorder.span("service create").status.code, SpanStatusCode.ERROR);
  t.is(recorder.span("service update").status.code, SpanStatusCode.UNSET);
  t.is(recorder.span("service update").attributes["rpc.grpc.status_code"], Status.INVALID_ARGUMENT);
});

test("without a recorder, a handler gets its caller's original call and no attribute is created", (t) => {
  const context = { ...call(), traceparent: given };
  const handler = traced(
    ports(),
    controlSpans.CreateService,
    () => {
      throw new Error("attributes were requested");
    },
    (_: null, inner) => inner,
  );
  t.is(handler(null, context), context);
});

// The log.

test("proposals of several traces in one append: each change of the commit has its own trace, and one span links them", async (t) => {
  const recorder = createRecorder();
  const simulation = new Simulation({ seed: 1 });
  const own = simulation.ports("m1");
  const { clock, random, bus, log, blobs } = own;
  const telemetry = { ...own.telemetry, tracer: recorder.tracer };
  const host = new Host({ clock, telemetry, onCrash: (id, error) => own.fail(id, error) });
  const replica = new Replica();
  const leadership = startLeadership(
    { managerId: "m1", clock, random, bus, telemetry, host, store: replica },
    {
      leases: own.leases("leases", testTtlMs),
      log,
      replica,
      blobs,
      startDuties: () => ({ stop: () => {} }),
      onBroken: (error) => own.fail("store", error),
    },
  );
  const causes: KnownCause[] = [];
  replica.watch((commit) => causes.push(...commit.causes));
  const propose = (id: string, traceparent?: string) =>
    leadership.proposer.propose({
      ...proposal([create({ service: service(id, id) })]),
      ...(traceparent === undefined ? {} : { traceparent }),
    });
  await simulation.clock.run({ until: () => leadership.isLeading(), untilMs: clock.now() + 10_000 });
  let outcomes: readonly ProposeOutcome[] | null = null;
  void Promise.all([propose("a", given), propose("b", given), propose("c"), propose("d", other)]).then(
    (all) => (outcomes = all),
  );
  await simulation.clock.run({ until: () => outcomes !== null, untilMs: clock.now() + 10_000 });
  t.like(outcomes, Array(4).fill({ kind: "committed" }));
  t.deepEqual(
    causes.map(({ traceparent, changes }) => ({ traceparent, changes })),
    [
      { traceparent: given, changes: 2 },
      { traceparent: "", changes: 1 },
      { traceparent: other, changes: 1 },
    ],
  );
  const commits = recorder.spans().filter(({ name }) => name === "ledger commit");
  t.deepEqual(
    commits.map(({ parentSpanContext }) => parentSpanContext?.spanId),
    [given, given, other].map(spanIdOf),
  );
  const ids = commits.map((span) => span.spanContext().spanId);
  const append = recorder.span("log append");
  t.is(append.parentSpanContext?.spanId, ids[0]);
  t.deepEqual(
    append.links.map(({ context }) => context.spanId),
    ids.slice(1),
  );
});

// From a service to its tasks.

function orchestration(tracer: Tracer = silent) {
  const writer = new Writer();
  const store = new Replica();
  const proposals: Proposal[] = [];
  const env = {
    ...ports(tracer),
    store,
    proposer: {
      propose: (each: Proposal) => {
        proposals.push(each);
        return Promise.resolve({ kind: "committed", version: store.version, skipped: 0 } as const);
      },
    },
  } as unknown as Environment;
  const traces = followServiceTraces(store);
  const environment = traceOrchestration(env, traces);
  const write = (...[changes, fields]: Parameters<Writer["write"]>): void => {
    store.apply(writer.records.length + 1, writer.write(changes, fields));
  };
  const propose = (...operations: Operation[]) => environment.proposer.propose(proposal(operations));
  const created = (): (Task | null)[] =>
    (proposals.at(-1)?.operations ?? []).map((operation) => operation.create?.task ?? null);
  return { traces, write, propose, proposals, created, store };
}

test("new tasks carry the trace of their service's last change, each that of its own service", async (t) => {
  const recorder = createRecorder();
  const { write, propose, proposals, created } = orchestration(recorder.tracer);
  write(
    [put({ service: service("a", "a") }), put({ service: service("b", "b") }), put({ service: service("c", "c") })],
    {
      traceparent: given,
      causes: [
        Cause.create({ traceparent: given, changes: 1 }),
        Cause.create({ traceparent: "", changes: 1 }),
        Cause.create({ traceparent: other, changes: 1 }),
      ],
    },
  );
  const operations = ["a", "a", "b", "c"].map((serviceId, at) => create({ task: task(`t${at}`, { serviceId }) }));
  await propose(...operations);
  await Promise.resolve();
  const labels = created().map((each) => (each === null ? "" : traceparentOfTask(each)));
  t.deepEqual(labels.map(traceIdOf), [traceIdOf(given), traceIdOf(given), "", traceIdOf(other)]);
  const spans = recorder.spans();
  t.deepEqual(
    spans.map(({ name, attributes }) => [name, attributes["muster.service.id"], attributes["muster.tasks"]]),
    [
      ["tasks create", "a", 2],
      ["tasks create", "c", 1],
    ],
  );
  t.is(spanIdOf(labels[0] ?? ""), spans[0]?.spanContext().spanId ?? "");
  t.is(spans[0]?.parentSpanContext?.spanId, spanIdOf(given));
  t.is(proposals.at(-1)?.traceparent, labels[0]);
  t.is(traceparentOfTask(operations[0]?.create?.task as Task), "", "the proposal itself is unchanged");
});

test("without a recorder, new tasks carry the context of the request itself", async (t) => {
  const { write, propose, created } = orchestration();
  write([put({ service: service("a", "a") })], { traceparent: given });
  await propose(create({ task: task("t1", { serviceId: "a" }) }));
  t.deepEqual({ ...created()[0]?.annotations?.labels }, { [traceparentLabel]: given });
});

test("an untraced change, a removed service and the end of leadership leave no trace to carry", async (t) => {
  const { traces, write, propose, proposals } = orchestration();
  const one = create({ task: task("t1", { serviceId: "a" }) });
  const isUntouched = async (what: string): Promise<void> => {
    await propose(one);
    t.is(proposals.at(-1)?.operations[0], one, what);
    t.is(proposals.at(-1)?.traceparent, undefined, what);
  };
  write([put({ service: service("a", "a") })], { traceparent: given });
  write([put({ node: node("n1") }), put({ service: service("a", "a") })], {
    traceparent: given,
    causes: [Cause.create({ traceparent: given, changes: 1 }), Cause.create({ traceparent: "", changes: 1 })],
  });
  await isUntouched("an untraced change came later");
  write([put({ service: service("a", "a") })], { traceparent: given });
  write([Change.create({ remove: Removal.create({ kind: Kind.KIND_SERVICE, id: "a" }) })], { traceparent: given });
  await isUntouched("the service is removed");
  traces.stop();
  write([put({ service: service("a", "a") })], { traceparent: given });
  await isUntouched("it is stopped");
});

test("placing traced tasks is a span in each of their traces", async (t) => {
  const recorder = createRecorder();
  const { write, propose } = orchestration(recorder.tracer);
  const carrying = (id: string, traceparent: string): Task =>
    task(id, { annotations: Annotations.create({ labels: { [traceparentLabel]: traceparent } }) });
  write([
    put({ task: carrying("t1", given) }),
    put({ task: carrying("t2", given) }),
    put({ task: carrying("t3", "") }),
  ]);
  const assigned = ["t1", "t2", "t3"].map((id) =>
    Operation.create({ task: TaskPatch.create({ id, nodeId: "n1", status: status(TaskState.ASSIGNED) }) }),
  );
  await propose(
    ...assigned,
    Operation.create({ task: TaskPatch.create({ id: "t3", desiredState: TaskState.REMOVE }) }),
  );
  await Promise.resolve();
  const span = recorder.span("tasks assign");
  t.is(span.attributes["muster.tasks"], 2);
  t.is(span.parentSpanContext?.spanId, spanIdOf(given));
});

// Commands.

function shell() {
  const sent: [string, string | undefined][] = [];
  const streamed: string[] = [];
  const onStream = (what: string): void => void streamed.push(what);
  const channel = {
    unary: (method: { path: string }, _: unknown, options?: { traceparent?: string }) => {
      sent.push([method.path.split("/").at(-1) ?? "", options?.traceparent]);
      return Promise.resolve({});
    },
    serverStream: (method: { path: string }, _: unknown, _receiver: unknown, options?: { traceparent?: string }) => {
      sent.push([method.path.split("/").at(-1) ?? "", options?.traceparent]);
      return { cancel: () => onStream("cancel"), pause: () => onStream("pause"), resume: () => onStream("resume") };
    },
    close: () => undefined,
  } as unknown as RpcChannel;
  const given = { now: () => 1_000, connect: () => Promise.resolve(channel), at: () => given } as unknown as Shell;
  return { shell: given, sent, streamed };
}

const { ListServices, CreateService, RemoveService } = ControlService.methods;

test("a command creates one sampled context, and sends it only with changes", async (t) => {
  const { shell: plain, sent } = shell();
  const command = new CommandTrace("service create", plain.now(), {});
  const channel = await command.shell(plain).at("elsewhere").connect();
  await channel.unary(ListServices, ListServicesRequest.create({}), { timeoutMs: 1 });
  await channel.unary(CreateService, CreateServiceRequest.create({}));
  await channel.unary(RemoveService, RemoveServiceRequest.create({}));
  await command.end(null, plain.now());
  t.deepEqual(
    sent.map(([name]) => name),
    ["ListServices", "CreateService", "RemoveService"],
  );
  const [read, first, second] = sent.map(([, traceparent]) => traceparent);
  t.is(read, undefined);
  t.regex(first ?? "", /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
  t.is(second, first);
});

test("a command that reads the output of tasks sends its context", async (t) => {
  const { shell: plain, sent, streamed } = shell();
  const command = new CommandTrace("service logs", plain.now(), { TRACEPARENT: given });
  const channel = await command.shell(plain).connect();
  const receiver = { onMessage: () => t.fail(), onEnd: () => t.fail() };
  const open = () => channel.serverStream(LogsService.methods.SubscribeLogs, SubscribeLogsRequest.create({}), receiver);
  const paused = open();
  paused.pause();
  open().cancel();
  channel.serverStream(WatchService.methods.Watch, WatchRequest.create({}), receiver);
  t.deepEqual(sent, [["Watch", undefined]]);
  await command.end(null, plain.now());
  t.deepEqual(sent, [
    ["Watch", undefined],
    ["SubscribeLogs", given],
  ]);
  paused.resume();
  paused.cancel();
  t.deepEqual(streamed, ["pause", "resume", "cancel"]);
});

test("a command inside a trace continues it; one inside another command keeps its own", async (t) => {
  const { shell: plain, sent } = shell();
  const outer = new CommandTrace("start", plain.now(), {});
  const inner = new CommandTrace("service create", plain.now(), { TRACEPARENT: given });
  const channel = await inner.shell(outer.shell(plain)).connect();
  await channel.unary(CreateService, CreateServiceRequest.create({}));
  t.deepEqual(sent, [["CreateService", given]]);
});
