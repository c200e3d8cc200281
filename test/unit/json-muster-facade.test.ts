import test, { type ExecutionContext } from "ava";
import type { FacadeSources, Identity } from "../../edges/juju/facade.ts";
import { machineId } from "../../edges/juju/entities/names.ts";
import {
  Annotations,
  EngineDescription,
  LogContext,
  LogMessage,
  LogStream,
  Manager,
  NodeDescription,
  NodeRole,
  NodeSpec,
  PlannedStep,
  PlanRebalanceResponse,
  PlannedMove,
  PlanServiceResponse,
  type LeaderQuestion,
  SubscribeLogsMessage,
  type SubscribeLogsRequest,
  Task,
  TaskAnswer,
  type TaskCallRequest,
  TaskState,
  TaskStatus,
  Timestamp,
  UpdateStatus,
  UpdateStatus_UpdateState,
} from "../../proto/gen/messages.ts";
import { processLabel } from "../../machines/manager/role.ts";
import { CPUUsage, MemoryUsage, TaskResourceUsage, TaskStats } from "../../proto/gen/nomad.ts";
import { RpcError, Status, type Sink, type CallSignal } from "../../runtime/ports/rpc.ts";
import type { LogLines } from "../../proto/log-lines.ts";
import { createdService, spec, updateOf, workerNode } from "../support/control.ts";
import { failureOf, jsonWorld, type JsonWorldOptions, type Reply } from "../support/json-world.ts";
import { call } from "../support/manager.ts";

const reader: Identity = { kind: "user", name: "r", role: "read-only" };
const operator: Identity = { kind: "user", name: "o", role: "operator" };

/** A service `web` of one running task, on a node. */
async function musterWorld(t: ExecutionContext, options: JsonWorldOptions = {}) {
  const made = await jsonWorld(t, options);
  const { connect, control, manager, store } = made;
  manager.seed("node", workerNode("n1"));
  const { id } = await createdService(control, spec("web", 2, "bb:1"));
  manager.seed(
    "task",
    Task.create({
      id: "t1",
      serviceId: id,
      serviceAnnotations: Annotations.create({ name: "web" }),
      slot: 1,
      nodeId: "n1",
      desiredState: TaskState.RUNNING,
      status: TaskStatus.create({ state: TaskState.RUNNING }),
    }),
  );
  const service = () => {
    const found = store.get("service", id);
    if (found === undefined) throw new Error("the service does not exist");
    return found;
  };
  const asker = (identity?: Identity) => {
    const { ask } = connect("V1", identity);
    return (request: string, params: object): Promise<Reply> => ask({ type: "Muster", version: 1, request, params });
  };
  return { ...made, id, service, asker };
}

test("admins demote and promote managers, and learn when nothing changes; nobody else may", async (t) => {
  const { asker, manager, store } = await musterWorld(t);
  const engine = EngineDescription.create({ labels: { [processLabel]: "manager" } });
  manager.seed(
    "node",
    workerNode("m1", {
      description: NodeDescription.create({ hostname: "m1", engine }),
      role: NodeRole.MANAGER,
      spec: NodeSpec.create({ desiredRole: NodeRole.MANAGER }),
    }),
  );
  manager.seed("manager", Manager.create({ id: "m1", alive: true, addr: "192.0.2.9:2377" }));
  const machine = machineId("m1");
  const ask = asker();
  t.like(await failureOf(() => ask("Demote", { machine })), {
    code: "operation is blocked",
    message: "attempting to demote the last manager of the swarm",
  });
  manager.seed("manager", Manager.create({ id: "m2", alive: true }));
  for (const request of ["Promote", "Demote"]) {
    t.is((await failureOf(() => asker(operator)(request, { machine })))?.code, "unauthorized access");
  }
  const desired = () => store.get("node", "m1")?.spec?.desiredRole;
  t.deepEqual(await ask("Promote", { machine }), { changed: false });
  t.deepEqual(await ask("Demote", { machine: `machine-${machine}` }), { changed: true });
  t.is(desired(), NodeRole.WORKER);
  t.deepEqual(await ask("Promote", { machine }), { changed: true });
  t.is(desired(), NodeRole.MANAGER);
});

test("an agent's machine cannot be promoted, nor an unknown one", async (t) => {
  const { asker } = await musterWorld(t);
  const code = async (params: object) => (await failureOf(() => asker()("Promote", params)))?.code;
  t.is(await code({ machine: machineId("n1") }), "operation is blocked");
  t.is(await code({ machine: "1" }), "not found");
  t.is(await code({}), "bad request");
});

test("a service is rolled back to the previous spec, in either style, and rejected without one", async (t) => {
  const { asker, connect, control, service } = await musterWorld(t);
  const ask = asker(operator);
  t.is((await failureOf(() => ask("Rollback", { application: "web" })))?.code, "operation is blocked");
  const image = () => service().spec?.task?.container?.image;
  await control.UpdateService(updateOf(service(), { spec: spec("web", 2, "bb:2") }), call());
  t.deepEqual(await ask("Rollback", { application: "web" }), {});
  t.is(image(), "bb:1");
  await control.UpdateService(updateOf(service(), { spec: spec("web", 2, "bb:3") }), call());
  const seed = { type: "Service", id: "web", request: "Rollback" };
  const agents: Identity = { kind: "machine", nodeId: "n1" };
  for (const identity of [reader, agents]) {
    t.is((await failureOf(() => connect("V0", identity).ask(seed)))?.code, "unauthorized access");
  }
  t.deepEqual(await connect("V0", operator).ask(seed), {});
  t.is(image(), "bb:1");
  t.is((await failureOf(() => asker(reader)("Rollback", { application: "web" })))?.code, "unauthorized access");
  t.is((await failureOf(() => ask("Rollback", { application: "nobody" })))?.code, "not found");
});

test("everybody can see a rollout, and operators can pause, resume and roll it back", async (t) => {
  const { asker, control, manager, service } = await musterWorld(t);
  const ask = asker(operator);
  const application = "web";
  t.like(await asker(reader)("Rollout", { application }), { name: "web", phase: "none", started: null });
  t.is((await failureOf(() => ask("PauseRollout", { application })))?.code, "operation is blocked");
  await control.UpdateService(updateOf(service(), { spec: spec("web", 2, "bb:2") }), call());
  manager.seed("service", {
    ...service(),
    updateStatus: UpdateStatus.create({
      state: UpdateStatus_UpdateState.UPDATING,
      startedAt: Timestamp.create({ seconds: 60 }),
    }),
  });
  t.like(await ask("Rollout", { application }), { phase: "updating", started: "1970-01-01T00:01:00.000Z" });
  t.like(await ask("PauseRollout", { application }), { phase: "paused" });
  t.is(service().updateStatus?.state, UpdateStatus_UpdateState.PAUSED);
  t.like(await ask("StepRollout", { application }), { phase: "stepping" });
  t.like(await ask("PauseRollout", { application }), { phase: "paused" });
  t.like(await ask("ResumeRollout", { application }), { phase: "updating" });
  await ask("AbortRollout", { application });
  t.is(service().spec?.task?.container?.image, "bb:1");
  for (const request of ["PauseRollout", "ResumeRollout", "StepRollout", "AbortRollout"]) {
    t.is((await failureOf(() => asker(reader)(request, { application })))?.code, "unauthorized access");
  }
});

test("a plan uses the spec that the write would create, is computed by the leader, and writes nothing", async (t) => {
  const asked: Partial<LeaderQuestion>[] = [];
  const { asker, id, service } = await musterWorld(t, {
    leader: (question) => {
      asked.push(question);
      const steps = [
        PlannedStep.create({ kind: "create", slot: 3, nodeId: "n1", nodeName: "host-n1", reasons: ["r"] }),
      ];
      return { planService: PlanServiceResponse.create({ name: "web", created: 1, kept: 2, steps }) };
    },
  });
  const before = service();
  const ask = asker(reader);
  const plan = await ask("Plan", { application: "web", scale: 3, "charm-url": "bb:2", config: { A: "1" } });
  t.like(plan, { name: "web", created: 1, replaced: 0, kept: 2, "steps-omitted": 0 });
  t.like(plan["steps"], [{ kind: "create", slot: 3, "instance-id": "n1", name: "host-n1", reasons: ["r"] }]);
  await ask("PlanRollback", { application: "web" });
  await ask("PlanDeploy", { application: "fresh", "charm-url": "bb:1", "num-units": 4 });
  const [update, rollback, deploy] = asked.map(({ planService }) => planService);
  t.is(update?.serviceId, id);
  t.is(update?.spec?.replicated?.replicas, 3);
  t.like(update?.spec?.task?.container, { image: "bb:2", env: ["A=1"] });
  t.like(rollback, { serviceId: id, rollback: true });
  t.like(deploy, { serviceId: "", spec: { annotations: { name: "fresh" }, replicated: { replicas: 4 } } });
  t.is(service(), before);
});

test("the moves of rebalancing are shown, for all or by name; an annotation switches it on", async (t) => {
  const asked: Partial<LeaderQuestion>[] = [];
  const { asker, connect, id, service } = await musterWorld(t, {
    leader: (question) => {
      asked.push(question);
      const moves = [PlannedMove.create({ round: 1, serviceName: "web", slot: 1, nodeId: "n2", why: "room" })];
      return { planRebalance: PlanRebalanceResponse.create({ phase: "watching", moves, movesLeft: 60 }) };
    },
  });
  const ask = asker(reader);
  const shown = await ask("PlanRebalance", { applications: ["web"] });
  t.like(shown, { phase: "watching", "moves-left": 60, "is-partial": false });
  t.like(shown["moves"], [{ round: 1, application: "web", "instance-id": "n2", why: "room" }]);
  await ask("PlanRebalance", { all: true });
  t.like(asked[0]?.planRebalance, { serviceIds: [id], all: false });
  t.like(asked[1]?.planRebalance, { serviceIds: [], all: true });
  t.is((await failureOf(() => ask("PlanRebalance", { applications: ["web"], all: true })))?.code, "bad request");
  const annotations = [{ entity: "application-web", annotations: { "muster.rebalance": "on" } }];
  await connect("V1", operator).ask({ type: "Annotations", version: 2, request: "Set", params: { annotations } });
  t.is(service().spec?.annotations?.labels["muster.rebalance"], "on");
});

test("without a leader a plan must be requested again", async (t) => {
  const { asker } = await musterWorld(t);
  t.is((await failureOf(() => asker()("PlanRebalance", {})))?.code, "try again");
});

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

function line(data: string, taskId = "t1"): LogMessage {
  const context = LogContext.create({ taskId, nodeId: "n1" });
  const timestamp = Timestamp.create({ seconds: 60, nanos: 5_000_000 });
  return LogMessage.create({ context, timestamp, stream: LogStream.LOG_STREAM_STDERR, data: bytes(data) });
}

/** Nodes with these lines of any requested output. */
function outputs(write: (send: (messages: readonly LogMessage[]) => void, sink: Sink<LogLines>) => void) {
  const asked: SubscribeLogsRequest[] = [];
  const given: CallSignal[] = [];
  const logs: FacadeSources["logs"] = {
    SubscribeLogs(request, sink, { signal }) {
      asked.push(request);
      given.push(signal);
      write((messages) => {
        sink.write(Uint8Array.from(SubscribeLogsMessage.encode(SubscribeLogsMessage.create({ messages }))));
      }, sink);
    },
  };
  return { logs, asked, given };
}

test("the last lines of services, units and tasks are one answer", async (t) => {
  const { logs, asked } = outputs((send, sink) => {
    send([line("one"), line("two")]);
    send([line("node n2 does not answer\n", "")]);
    sink.end(new RpcError(Status.UNKNOWN, "some are missing"));
  });
  const { asker, id } = await musterWorld(t, { logs });
  const ask = asker(reader);
  const shown = await ask("Logs", { applications: ["web"], units: ["web/0"], tasks: ["t1"], tail: 5 });
  t.deepEqual(shown["lines"], [
    {
      unit: "web/0",
      "task-id": "t1",
      "instance-id": "n1",
      time: "1970-01-01T00:01:00.005Z",
      stream: "stderr",
      text: "one",
    },
    {
      unit: "web/0",
      "task-id": "t1",
      "instance-id": "n1",
      time: "1970-01-01T00:01:00.005Z",
      stream: "stderr",
      text: "two",
    },
  ]);
  t.like(shown, { "is-cut": false, warnings: ["node n2 does not answer", "some are missing"] });
  t.like(asked[0], { selector: { serviceIds: [id], taskIds: ["t1", "t1"] }, options: { follow: false, tail: -6 } });
  await ask("Logs", { units: ["unit-web-0"], since: "1970-01-01T00:01:00.250Z" });
  t.like(asked[1]?.options, { tail: -101, since: { seconds: 60, nanos: 250_000_000 } });
});

test("output beyond the limit is dropped, and no more of it is read", async (t) => {
  const { logs, given } = outputs((send) => {
    for (let n = 0; n < 10; n += 1) send([line("x".repeat(60 * 1024))]);
  });
  const { asker } = await musterWorld(t, { logs });
  const shown = await asker()("Logs", { units: ["web/0"] });
  t.is((shown["lines"] as unknown[]).length, 8);
  t.true(shown["is-cut"]);
  t.true(given[0]?.aborted);
});

test("output that does not arrive in time, of nothing or of too many tasks is rejected", async (t) => {
  const { logs, given } = outputs(() => {});
  const { asker, settle } = await musterWorld(t, { logs });
  const ask = asker();
  const waiting = failureOf(() => ask("Logs", { units: ["web/0"] }));
  await new Promise(setImmediate);
  await settle(31_000);
  t.is((await waiting)?.code, "deadline exceeded");
  t.true(given[0]?.aborted);
  const code = async (params: object) => (await failureOf(() => ask("Logs", params)))?.code;
  t.is(await code({}), "bad request");
  t.is(await code({ tasks: ["t9"] }), "not found");
  t.is(await code({ units: ["web/9"] }), "not found");
  t.is(await code({ units: ["web/0"], tail: 10_001 }), "not valid");
  t.is(await code({ units: ["web/0"], since: "yesterday" }), "not valid");
  t.is(await code({ units: Array.from({ length: 101 }, () => "web/0") }), "quota limit exceeded");
});

/** A driver that sends samples until nobody listens. */
function driver() {
  const asked: TaskCallRequest[] = [];
  const given: CallSignal[] = [];
  const usage = TaskResourceUsage.create({
    cpu: CPUUsage.create({ percent: 12.5 }),
    memory: MemoryUsage.create({ rss: 4096 }),
  });
  const stats = TaskStats.encode(
    TaskStats.create({ aggResourceUsage: usage, resourceUsageByPid: { "1": usage, "2": usage } }),
  );
  const taskAccess: FacadeSources["taskAccess"] = {
    Call(request, sink, { signal }) {
      if (request.signal?.name === "SIGNO") throw new RpcError(Status.FAILED_PRECONDITION, "it cannot");
      asked.push(request);
      given.push(signal);
      sink.write(TaskAnswer.create({ callId: "c1" }));
      if (request.signal !== null) return sink.end();
      sink.write(TaskAnswer.create({ number: 1, stats }));
      sink.write(TaskAnswer.create({ number: 2, stats }));
    },
    Send: () => {
      throw new Error("no input expected");
    },
  };
  return { taskAccess, asked, given };
}

test("one sample of a unit's resource usage is an answer, and the driver is asked for no more", async (t) => {
  const { taskAccess, asked, given } = driver();
  const { asker } = await musterWorld(t, { taskAccess });
  t.deepEqual(await asker(reader)("Stats", { unit: "web/0" }), {
    time: null,
    "cpu-percent": 12.5,
    "memory-bytes": 4096,
    "memory-max-bytes": null,
    processes: 2,
  });
  t.is(asked[0]?.taskId, "t1");
  t.true(given[0]?.aborted);
});

test("operators signal a unit's task, by either name of the signal", async (t) => {
  const { taskAccess, asked } = driver();
  const { asker } = await musterWorld(t, { taskAccess });
  const ask = asker(operator);
  t.deepEqual(await ask("Signal", { unit: "web/0", signal: "hup" }), {});
  t.deepEqual(await ask("Signal", { unit: "unit-web-0", signal: "SIGUSR1" }), {});
  t.deepEqual(
    asked.map((each) => each.signal?.name),
    ["SIGHUP", "SIGUSR1"],
  );
  t.is((await failureOf(() => ask("Signal", { unit: "web/0" })))?.code, "bad request");
  t.is((await failureOf(() => ask("Signal", { unit: "web/0", signal: "NO" })))?.code, "operation is blocked");
  t.is((await failureOf(() => ask("Signal", { unit: "web/9", signal: "HUP" })))?.code, "not found");
  t.is((await failureOf(() => asker(reader)("Signal", { unit: "web/0", signal: "HUP" })))?.code, "unauthorized access");
});

test("the older shape has it too, with its version, and agents do not have it", async (t) => {
  const { connect } = await musterWorld(t);
  const ask = { type: "Muster", version: 1, request: "Rollout", params: { Application: "web" } };
  t.like(await connect("V0", reader).ask(ask), { Name: "web", Phase: "none" });
  t.is((await failureOf(() => connect("V0", { kind: "machine", nodeId: "n1" }).ask(ask)))?.code, "unauthorized access");
});
