// Calls to a running task: from one manager over another to the node's agent, its driver, and back.
import test from "ava";
import { AgentCalls, type CallTarget } from "../../actors/agent/calls.ts";
import type { UserOutcome } from "../../actors/agent/ports.ts";
import { createNodeCalls, type NodeCalls } from "../../actors/node-calls.ts";
import { createTaskCalls } from "../../actors/task-calls.ts";
import { taskCallMachine, taskCallTimes } from "../../machines/task-call.machine.ts";
import {
  ListenTaskCallsRequest,
  NodeQuestion,
  Task,
  TaskCallRequest,
  EngineDescription,
  Node,
  NodeDescription,
  NodeStatus,
  NodeStatus_State,
  TaskAttach,
  TaskExec,
  TaskExecAs,
  TaskExecIdentity,
  TaskTerminalSize,
  TaskInput,
  TaskSignal,
  TaskState,
  TaskStatsWish,
  TaskStatus,
  TaskAnswer,
  TaskAnswerDelivery,
  TaskAnswerDeliveryReply,
  TaskAnswerVerdict,
  TaskCallEnd,
  type TaskAnswerResponse,
} from "../../proto/gen/messages.ts";
import {
  ExecTaskStreamingIOOperation,
  ExecTaskStreamingResponse,
  ExitResult,
  type TaskAttachment,
  type TaskCommandIdentity,
  type ExecTaskStreamingRequest,
} from "../../proto/gen/nomad.ts";
import type { DriverClient, StreamReceiver } from "../../runtime/ports/plugins.ts";
import { RpcError, Status, type DuplexCall, type RpcChannel, type SendingCall } from "../../runtime/ports/rpc.ts";
import * as subjects from "../../runtime/subjects.ts";
import { ChartRun } from "../support/chart-run.ts";
import { call, collectedStream, refusalOf, testManager, type TestManager } from "../support/manager.ts";
import { sharedBus } from "../support/shared-bus.ts";

const worker = { identity: { nodeId: "n1", role: "swarm-worker", organization: "c" }, local: false } as const;

/** A driver whose commands print and do what the test wants. */
class FakeDriver {
  readonly written: ExecTaskStreamingRequest[] = [];
  readonly signals: string[] = [];
  receiver: StreamReceiver<ExecTaskStreamingResponse> | null = null;
  isCancelled = false;
  isPaused = false;
  identity: TaskCommandIdentity | null = null;
  attachment: TaskAttachment | null = null;

  readonly client = {
    execTaskAs: (identity: TaskCommandIdentity, receiver: StreamReceiver<ExecTaskStreamingResponse>) => {
      this.identity = identity;
      return this.client.execTaskStreaming(receiver);
    },
    attachTask: (attachment: TaskAttachment, receiver: StreamReceiver<ExecTaskStreamingResponse>) => {
      this.attachment = attachment;
      return this.client.execTaskStreaming(receiver);
    },
    execTaskStreaming: (receiver: StreamReceiver<ExecTaskStreamingResponse>): DuplexCall<ExecTaskStreamingRequest> => {
      this.receiver = receiver;
      return {
        write: (message) => void this.written.push(message),
        finish: () => {},
        bufferedBytes: () => 0,
        cancel: () => void (this.isCancelled = true),
        pause: () => void (this.isPaused = true),
        resume: () => void (this.isPaused = false),
      };
    },
    signalTask: async (_id: string, name: string) => {
      if (name === "SIGNOT") throw new RpcError(Status.UNKNOWN, "SIGNOT is not a signal");
      this.signals.push(name);
    },
  } as unknown as DriverClient;

  says(text: string): void {
    const stdout = ExecTaskStreamingIOOperation.create({ data: new TextEncoder().encode(text) });
    this.receiver?.onMessage(ExecTaskStreamingResponse.create({ stdout }));
  }

  exits(exitCode: number): void {
    this.receiver?.onMessage(
      ExecTaskStreamingResponse.create({ exited: true, result: ExitResult.create({ exitCode }) }),
    );
    this.receiver?.onEnd(null);
  }
}

/** A client stream to a manager, written manually. */
function answersTo(holder: NodeCalls): SendingCall<TaskAnswer, TaskAnswerResponse> {
  const waiting: TaskAnswer[] = [];
  let isOver = false;
  let wake = (): void => {};
  async function* read(): AsyncGenerator<TaskAnswer> {
    for (;;) {
      const next = waiting.shift();
      if (next !== undefined) yield next;
      else if (isOver) return;
      else await new Promise<void>((resolve) => (wake = resolve));
    }
  }
  const response = Promise.resolve(holder.handlers.Answer(read(), call(worker)));
  response.catch(() => {});
  const over = (): void => {
    isOver = true;
    wake();
  };
  return {
    write: (answer) => {
      waiting.push(answer);
      wake();
    },
    finish: () => {
      over();
      return response;
    },
    cancel: over,
    bufferedBytes: () => waiting.reduce((sum, { stdout }) => sum + stdout.length, 0),
  };
}

function world() {
  const bus = sharedBus();
  const managers = ["m1", "m2"].map((id) => testManager(id)) as [TestManager, TestManager];
  const status = TaskStatus.create({ state: TaskState.RUNNING });
  for (const { seed } of managers) seed("task", Task.create({ id: "t1", nodeId: "n1", status }));
  const holder = createNodeCalls();
  const home = createTaskCalls({ ...managers[0].env, bus }, createNodeCalls());
  createTaskCalls({ ...managers[1].env, bus }, holder);
  const driver = new FakeDriver();
  const commandUser = (name: string): UserOutcome =>
    name === "root" ? { kind: "refused", reason: "this node runs no task as root" } : { kind: "user", name };
  let target: CallTarget = { client: driver.client, driverTaskId: "t1/web/00000001", commandUser };
  const { clock, telemetry } = managers[1].env;
  const calls = new AgentCalls({ clock, telemetry }, () => target);
  const listening = new AbortController();
  const channel = { clientStream: () => answersTo(holder) } as unknown as RpcChannel;
  const questions = collectedStream<NodeQuestion>();
  const sink = { ...questions, write: (question: NodeQuestion) => calls.hear(channel, question) };
  holder.handlers.Listen(ListenTaskCallsRequest.create(), sink, call(worker, listening.signal));
  return {
    bus,
    home,
    holder,
    asked: managers[0].proposals,
    seed: managers[0].seed,
    driver,
    calls,
    listening,
    refuse: (reason: string) => (target = { reason }),
    run: async (ms = 100) => {
      for (const { clock: each } of managers) await each.run({ untilMs: each.now() + ms });
    },
    ask: (request: Partial<TaskCallRequest>, leaving = new AbortController()) => {
      const answers = collectedStream<TaskAnswer>();
      home.access.Call(TaskCallRequest.create({ taskId: "t1", ...request }), answers, {
        ...call({}, leaving.signal),
        method: "/muster.v1.TaskAccess/Call",
      });
      return { answers, leave: () => leaving.abort() };
    },
  };
}

const textOf = (answers: readonly TaskAnswer[]): string =>
  answers.map(({ stdout }) => new TextDecoder().decode(stdout)).join("");

test("a command requested at one manager runs where its node is connected, with input, output and exit code", async (t) => {
  const { ask, driver, home, run } = world();
  const size = TaskTerminalSize.create({ height: 31, width: 77 });
  const { answers } = ask({ exec: TaskExec.create({ command: ["cat"], tty: true, size }) });
  await run();
  t.deepEqual(driver.written[0]?.setup?.command, ["cat"]);
  t.is(driver.written[0]?.setup?.taskId, "t1/web/00000001");
  for (const message of driver.written)
    t.like(message.ttySize, { height: 31, width: 77 }, "at first, and as Nomad does");
  t.is(driver.written.length, 2);
  const { callId } = answers.messages[0] as TaskAnswer;
  const sent = Promise.resolve(
    home.access.Send(TaskInput.create({ callId, number: 1, data: new TextEncoder().encode("typed") }), call()),
  );
  await run();
  await sent;
  t.is(new TextDecoder().decode(driver.written[2]?.stdin?.data), "typed");
  driver.says("shown");
  driver.exits(3);
  await run();
  t.is(textOf(answers.messages), "shown");
  t.is(answers.messages.at(-1)?.end?.exitCode, 3);
  t.is(answers.ended, null);
  t.is(
    (await refusalOf(() => home.access.Send(TaskInput.create({ callId, number: 2 }), call())))?.code,
    Status.NOT_FOUND,
  );
});

test("TC1, AC1: a caller that does not read stops the driver, and nothing is lost or repeated", async (t) => {
  const { ask, bus, driver, run } = world();
  const { answers } = ask({ exec: TaskExec.create({ command: ["yes"] }) });
  await run();
  answers.buffered = 1e9;
  for (let part = 0; part < 10; part += 1) driver.says(`${part}`.repeat(32 * 1024));
  await run();
  t.true(driver.isPaused);
  t.is(textOf(answers.messages), "");
  answers.buffered = 0;
  // An answer of the home manager is lost now and then, and the same question comes again.
  let requests = 0;
  bus.loses = (subject) => subject.includes(".out.") && (requests += 1) % 3 === 0;
  await run(1_000);
  bus.loses = () => false;
  t.false(driver.isPaused);
  driver.exits(0);
  await run(1_000);
  t.is(textOf(answers.messages).length, 10 * 32 * 1024);
  t.regex(textOf(answers.messages), /^0+1+2+3+4+5+6+7+8+9+$/);
  t.is(answers.ended, null);
});

test("C2, AC2: a caller that leaves ends the command; so does a lost session, which waiting callers learn of", async (t) => {
  const first = world();
  const { leave } = first.ask({ exec: TaskExec.create({ command: ["sleep"] }) });
  await first.run();
  leave();
  await first.run();
  t.true(first.driver.isCancelled);

  const second = world();
  const { answers } = second.ask({ exec: TaskExec.create({ command: ["sleep"] }) });
  await second.run();
  second.listening.abort();
  second.calls.detach();
  t.true(second.driver.isCancelled);
  await second.run(taskCallTimes.pulseMs * (taskCallTimes.missedMax + 1));
  t.is(answers.ended?.code, Status.UNAVAILABLE);
  t.regex(answers.ended?.message ?? "", /was lost/);
});

test("C2: a cancellation reaches a node whose stream of answers has ended because the caller was gone", async (t) => {
  const holder = createNodeCalls();
  const heard = collectedStream<NodeQuestion>();
  holder.handlers.Listen(ListenTaskCallsRequest.create(), heard, call(worker));
  const request = TaskCallRequest.create({ taskId: "t1", exec: TaskExec.create({ command: ["yes"] }) });
  t.true(holder.ask("n1", NodeQuestion.create({ callId: "c1", request }), { task: async () => false }));
  const answers = (async function* () {
    yield TaskAnswer.create({ callId: "c1", number: 1 });
  })();
  await t.throwsAsync(async () => holder.handlers.Answer(answers, call(worker)), { message: /the caller is gone/ });
  t.false(holder.ask("n1", NodeQuestion.create({ callId: "c1", input: TaskInput.create({}) })), "any other question");
  t.true(holder.ask("n1", NodeQuestion.create({ callId: "c1", cancel: true })));
  t.true(heard.messages.at(-1)?.cancel);
});

test("AC3: a command with a user of its own needs the node's permission, and a driver that supports it", async (t) => {
  const { ask, driver, run } = world();
  const exec = TaskExec.create({ command: ["id"] });
  const as = (user: string) => ({
    execAs: TaskExecAs.create({ exec, identity: TaskExecIdentity.create({ user, env: ["A=b"], directory: "/d" }) }),
  });
  const refused = ask(as("root"));
  await run();
  t.is(refused.answers.ended?.code, Status.PERMISSION_DENIED);
  t.is(refused.answers.ended?.message, "this node runs no task as root");
  t.is(driver.identity, null);
  const done = ask(as("nobody"));
  await run();
  t.like(driver.identity, { user: "nobody", env: ["A=b"], directory: "/d", privileged: false });
  t.deepEqual(driver.written[0]?.setup?.command, ["id"]);
  driver.exits(0);
  await run();
  t.is(done.answers.ended, null);
  const foreign = ask(as(""));
  await run();
  driver.receiver?.onEnd(new RpcError(Status.UNIMPLEMENTED, "unknown service muster.driver.v1.TaskCommands"));
  await run();
  t.is(foreign.answers.ended?.code, Status.UNIMPLEMENTED);
  t.regex(foreign.answers.ended?.message ?? "", /cannot give a command another user/);
});

test("an attached client types into the task itself, and leaves it running", async (t) => {
  const { ask, driver, run } = world();
  const attached = ask({ attach: TaskAttach.create({ detachKeys: "x,y", logs: true }) });
  await run();
  t.like(driver.attachment, { detachKeys: "x,y", logs: true });
  t.deepEqual(driver.written[0]?.setup?.command, []);
  driver.says("hello");
  driver.exits(0);
  await run();
  t.is(attached.answers.ended, null);
  t.true(attached.answers.messages.some(({ stdout }) => new TextDecoder().decode(stdout) === "hello"));
  const foreign = ask({ attach: TaskAttach.create() });
  await run();
  driver.receiver?.onEnd(new RpcError(Status.UNIMPLEMENTED, "unknown service muster.driver.v1.TaskCommands"));
  await run();
  t.is(foreign.answers.ended?.code, Status.UNIMPLEMENTED);
  t.regex(foreign.answers.ended?.message ?? "", /cannot reach the standard input of a task: attach with --no-stdin/);
});

test("signals, and impossible requests, get an answer in words", async (t) => {
  const { ask, driver, refuse, run } = world();
  const done = ask({ signal: TaskSignal.create({ name: "SIGHUP" }) });
  const wrong = ask({ signal: TaskSignal.create({ name: "SIGNOT" }) });
  await run();
  t.deepEqual(driver.signals, ["SIGHUP"]);
  t.is(done.answers.ended, null);
  t.regex(wrong.answers.ended?.message ?? "", /SIGNOT is not a signal/);
  refuse("the task does not run on a driver plugin");
  const refused = ask({ stats: TaskStatsWish.create({ intervalMs: 1_000 }) });
  await run();
  t.is(refused.answers.ended?.code, Status.FAILED_PRECONDITION);
  for (const [request, code] of [
    [{}, Status.INVALID_ARGUMENT],
    [{ exec: TaskExec.create() }, Status.INVALID_ARGUMENT],
    [{ execAs: TaskExecAs.create() }, Status.INVALID_ARGUMENT],
    [{ stats: TaskStatsWish.create({ intervalMs: 1 }) }, Status.INVALID_ARGUMENT],
    [{ taskId: "t2", signal: TaskSignal.create({ name: "SIGHUP" }) }, Status.NOT_FOUND],
  ] as const) {
    t.is((await refusalOf(() => ask(request)))?.code, code);
  }
});

test("TC2: senders of signals and commands are recorded with the task, without the command; readers are not", async (t) => {
  const { ask, asked, home, refuse, run } = world();
  const peer = { identity: null, local: false, address: "192.0.2.9", user: "user-ada" };
  const request = TaskCallRequest.create({ taskId: "t1", signal: TaskSignal.create({ name: "SIGHUP" }) });
  home.access.Call(request, collectedStream<TaskAnswer>(), { ...call(peer), method: "Muster/Signal" });
  await run();
  ask({ exec: TaskExec.create({ command: ["echo", "a secret"] }) });
  await run();
  refuse("the task does not run on a driver plugin");
  ask({ stats: TaskStatsWish.create({ intervalMs: 1_000 }) });
  await run();
  t.deepEqual(
    asked.map(({ caller, operations }) => [
      caller?.user,
      caller?.method,
      operations.map(({ update }) => update?.task?.id),
    ]),
    [
      ["user-ada", "Muster.Signal SIGHUP", ["t1"]],
      ["", "TaskAccess.Call exec", ["t1"]],
    ],
  );
});

test("invalid questions, answers and replies end nobody, and a call continues", async (t) => {
  const { ask, bus, driver, run } = world();
  const { answers } = ask({ exec: TaskExec.create({ command: ["cat"] }) });
  await run();
  for (const garbage of [
    new Uint8Array(),
    Uint8Array.of(1, 2, 3),
    Uint8Array.of(0x0a, 0xff),
    new Uint8Array(100_000),
  ]) {
    for (const subject of [subjects.taskQuestion("n1"), subjects.taskAnswered("m1"), subjects.taskAnswered("m2")]) {
      bus.publish(subject, garbage);
      await bus.request(subject, garbage, { timeoutMs: 10 });
    }
  }
  const replying = bus.request;
  bus.request = async (subject, data, options) => {
    const outcome = await replying(subject, data, options);
    return outcome.kind === "reply" ? { kind: "reply", data: Uint8Array.of(0x0a, 0xff) } : outcome;
  };
  driver.says("lost at first");
  await run();
  bus.request = replying;
  await run(1_000);
  driver.exits(0);
  await run(1_000);
  t.is(textOf(answers.messages), "lost at first");
  t.is(answers.ended, null);
});

test("a node answers only its own calls", async (t) => {
  const { ask, bus, driver, holder, run } = world();
  const { answers } = ask({ exec: TaskExec.create({ command: ["cat"] }) });
  await run();
  const { callId } = answers.messages[0] as TaskAnswer;
  const stdout = new TextEncoder().encode("not of this node");
  const foreign = TaskAnswer.create({ callId, number: 1, stdout, end: TaskCallEnd.create({ exitCode: 9 }) });
  // Another node, which is connected to the same manager, and one which is not.
  const other = { identity: { nodeId: "n2", role: "swarm-worker", organization: "c" }, local: false } as const;
  const send = () => holder.handlers.Answer(each(foreign), call(other));
  t.is((await refusalOf(send))?.code, Status.NOT_FOUND);
  holder.handlers.Listen(ListenTaskCallsRequest.create(), collectedStream<NodeQuestion>(), call(other));
  t.is((await refusalOf(send))?.code, Status.NOT_FOUND);
  // And by a manager that claims to be it.
  const delivery = TaskAnswerDelivery.encode(TaskAnswerDelivery.create({ nodeId: "n2", answer: foreign }));
  const outcome = await bus.request(subjects.taskAnswered("m1"), delivery, { timeoutMs: 10 });
  t.is(
    outcome.kind === "reply" ? TaskAnswerDeliveryReply.decode(outcome.data).verdict : null,
    TaskAnswerVerdict.TASK_ANSWER_GONE,
  );
  driver.says("of this node");
  driver.exits(0);
  await run();
  t.is(textOf(answers.messages), "of this node");
  t.is(answers.messages.at(-1)?.end?.exitCode, 0);
});

async function* each(answer: TaskAnswer): AsyncGenerator<TaskAnswer> {
  yield answer;
}

test("a call to a node without a connection fails at once", async (t) => {
  const { ask, listening, run } = world();
  listening.abort();
  const { answers } = ask({ exec: TaskExec.create({ command: ["true"] }) });
  await run();
  t.is(answers.ended?.code, Status.UNAVAILABLE);
  t.regex(answers.ended?.message ?? "", /is not connected to any manager/);
});

test("a call to a task on a stock engine fails with a sentence that says what to use", async (t) => {
  const { ask, listening, run, seed } = world();
  listening.abort();
  const node = (state: NodeStatus_State) =>
    Node.create({
      id: "n1",
      status: NodeStatus.create({ state }),
      description: NodeDescription.create({
        hostname: "one",
        engine: EngineDescription.create({ engineVersion: "20.10.24" }),
      }),
    });
  const outcome = async () => {
    const { answers } = ask({ exec: TaskExec.create({ command: ["true"] }) });
    await run();
    return answers.ended;
  };
  seed("node", node(NodeStatus_State.READY));
  const refused = await outcome();
  t.is(refused?.code, Status.UNIMPLEMENTED);
  t.regex(refused?.message ?? "", /^node one is a stock engine, .* \(docker -H ssh:\/\/one exec …\)$/);
  seed("node", node(NodeStatus_State.DOWN));
  t.is((await outcome())?.code, Status.UNAVAILABLE, "it may be any node that is away");
});

test("C1: a call is lost only after several unconfirmed questions", (t) => {
  const run = new ChartRun(taskCallMachine, { callId: "c" }).send({ type: "node.reached" });
  for (const outcome of ["pulse.missed", "pulse.missed", "pulse.heard", "pulse.missed", "pulse.missed"] as const) {
    t.is(run.send("pulse").state, "pulsing");
    t.is(run.send({ type: outcome }).state, "open");
  }
  t.is(run.send("pulse", { type: "pulse.missed" }).state, "over");
});
