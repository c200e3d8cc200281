// An agent's side of log subscriptions, over the real gRPC edge to a manager's log broker: its output, and how it ends.
import test, { type ExecutionContext } from "ava";
import { AgentLogs, type LogSource } from "../../actors/agent/logs.ts";
import type { OutputLine, OutputReader } from "../../actors/agent/ports.ts";
import { createLogBroker } from "../../actors/logs/broker.ts";
import { createAdmission } from "../../edges/grpc/admission/admission.ts";
import { connectTls } from "../../edges/grpc/client.ts";
import { createGrpcServer } from "../../edges/grpc/server.ts";
import { createRoot } from "../../lib/pki/index.ts";
import {
  ListenSubscriptionsRequest,
  LogBrokerService,
  LogSelector,
  LogsService,
  LogSubscriptionOptions,
  Node,
  NodeStatus,
  NodeStatus_State,
  Service,
  Session,
  type SubscribeLogsMessage,
  SubscribeLogsRequest,
  Task,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import { LogBrokerLines, LogsLines } from "../../proto/log-lines.ts";
import type { RpcError } from "../../runtime/ports/rpc.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { SystemClock } from "../../runtime/system/clock.ts";
import { collect, identityOf, organization, telemetry } from "../support/grpc-world.ts";
import { testManager } from "../support/manager.ts";

/** A task's output, of which the test decides when it comes. */
class Output implements OutputReader {
  readonly #waiting: (readonly OutputLine[] | null | Error)[] = [];
  #wake: (() => void) | null = null;
  isClosed = false;

  say(text: string): void {
    this.#put([{ stream: "stdout", atMs: 1_000, data: Buffer.from(`${text}\n`) }]);
  }

  finish(): void {
    this.#put(null);
  }

  fail(text: string): void {
    this.#put(new Error(text));
  }

  #put(next: readonly OutputLine[] | null | Error): void {
    this.#waiting.push(next);
    this.#wake?.();
  }

  async next(): Promise<readonly OutputLine[] | null> {
    while (this.#waiting.length === 0 && !this.isClosed) await new Promise<void>((resolve) => (this.#wake = resolve));
    const next = this.#waiting.shift() ?? null;
    if (next instanceof Error) throw next;
    return next;
  }

  position(): Record<string, number> {
    return {};
  }

  /** Later items stand for existing output that takes long to read. */
  stopFollowing(): void {}

  close(): void {
    this.isClosed = true;
    this.#wake?.();
  }
}

/** Node n1 with tasks t1 and t2 of service s1, at one manager. */
async function world(t: ExecutionContext) {
  const manager = testManager("m1");
  const { clock, env, seed } = manager;
  const ready = NodeStatus.create({ state: NodeStatus_State.READY });
  const running = TaskStatus.create({ state: TaskState.RUNNING });
  seed("node", Node.create({ id: "n1", status: ready }));
  seed("session", Session.create({ id: "n1", managerId: "m1" }));
  seed("service", Service.create({ id: "s1" }));
  for (const id of ["t1", "t2"]) seed("task", Task.create({ id, serviceId: "s1", nodeId: "n1", status: running }));
  const broker = createLogBroker(env);
  t.teardown(() => broker.stop());
  const root = await createRoot();
  const { ports } = telemetry();
  const server = createGrpcServer({ telemetry: ports, admission: createAdmission(ports) });
  server.add(LogBrokerLines, broker.handlers);
  server.add(LogsLines, broker.logs);
  const { port } = await server.listenTls({
    host: "127.0.0.1",
    port: 0,
    credentials: { ...(await identityOf({ root, nodeId: "m1", role: "swarm-manager" })), rootPem: root.certificatePem },
    organization: () => organization,
    isRemoved: () => false,
    onChange: () => ({ unsubscribe: () => {} }),
    clock: new SystemClock(),
  });
  t.teardown(() => server.close(0));
  const connect = async (nodeId: string, role: "swarm-worker" | "swarm-manager") => {
    const identity = await identityOf({ root, nodeId, role });
    const rootPem = root.certificatePem;
    const address = { host: "127.0.0.1", port, serverName: "swarm-manager", timeoutMs: 5_000 } as const;
    const channel = await connectTls({ ...address, rootPem, ...identity });
    t.teardown(() => channel.close());
    return channel;
  };

  const outputs = { t1: new Output(), t2: new Output() };
  const sources = Object.entries(outputs).map(([taskId, output]): LogSource => ({
    taskId,
    serviceId: "s1",
    read: () => output,
  }));
  const logs = new AgentLogs({ clock, telemetry: env.telemetry }, { nodeId: () => "n1", sources: () => sources });
  const node = await connect("n1", "swarm-worker");
  node.serverStream(LogBrokerService.methods.ListenSubscriptions, ListenSubscriptionsRequest.create(), {
    onMessage: (message) => logs.hear(node, message),
    onEnd: () => logs.detach(),
  });

  const reader = await connect("m2", "swarm-manager");
  /** Passes simulated time in small steps, and lets the real connections work after each. */
  const until = async (what: string, condition: () => boolean, simulatedMs = 60_000): Promise<void> => {
    for (const end = clock.now() + simulatedMs; !condition();) {
      if (clock.now() >= end) throw new Error(`not within ${simulatedMs} ms: ${what}`);
      await clock.run({ untilMs: clock.now() + 20 });
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
  const read = (options: Partial<LogSubscriptionOptions> = {}) => {
    const stream = collect<SubscribeLogsMessage>();
    let ended: RpcError | null | undefined;
    void stream.ended.then((error) => (ended = error));
    reader.serverStream(
      LogsService.methods.SubscribeLogs,
      SubscribeLogsRequest.create({
        selector: LogSelector.create({ serviceIds: ["s1"] }),
        options: LogSubscriptionOptions.create(options),
      }),
      stream.receiver,
    );
    return {
      text: () => stream.messages.flatMap(({ messages }) => messages.map(({ data }) => Buffer.from(data).toString())),
      ended: async () => {
        await until("the end of the subscription", () => ended !== undefined);
        return ended === null ? null : { code: ended?.code, message: ended?.message };
      },
    };
  };
  return { manager, node, outputs, read, until };
}

const warning = "warning: incomplete log stream. some logs could not be retrieved for the following reasons: ";
const incomplete = { code: Status.UNKNOWN, message: `${warning}node n1 has not sent all its output` };

test("AL4: a stream whose tasks have sent all their output ends as complete", async (t) => {
  const { outputs, read } = await world(t);
  const reader = read();
  outputs.t1.say("a");
  outputs.t1.finish();
  outputs.t2.say("b");
  outputs.t2.finish();
  t.is(await reader.ended(), null);
  t.deepEqual(reader.text().toSorted(), ["a\n", "b\n"]);
});

test("AL4: output that is not sent in time after the service was removed is reported as missing", async (t) => {
  const { manager, outputs, read, until } = await world(t);
  const reader = read({ follow: true });
  outputs.t1.say("a");
  await until("the first line", () => reader.text().length === 1);
  for (const id of ["t1", "t2"]) manager.drop("task", id);
  manager.drop("service", "s1");
  outputs.t2.finish();
  t.deepEqual(await reader.ended(), incomplete);
  t.deepEqual(reader.text(), ["a\n"]);
  t.true(outputs.t1.isClosed);
});

test("AL4: a task whose output cannot be read is reported, and the others' output arrives whole", async (t) => {
  const { outputs, read } = await world(t);
  const reader = read();
  outputs.t1.fail("EIO: i/o error, read");
  const lines = Array.from({ length: 200 }, (_, at) => `${at} ${"x".repeat(5_000)}`);
  for (const line of lines) outputs.t2.say(line);
  outputs.t2.finish();
  t.deepEqual(await reader.ended(), incomplete);
  t.deepEqual(
    reader.text(),
    lines.map((line) => `${line}\n`),
  );
});

test("AL4: a follower learns at once that a task's output cannot be read, and goes on with the others", async (t) => {
  const { outputs, read, until } = await world(t);
  const reader = read({ follow: true });
  outputs.t1.fail("EIO: i/o error, read");
  await until("the notice", () => reader.text().length === 1);
  outputs.t2.say("b");
  await until("a line of the other task", () => reader.text().length === 2);
  t.deepEqual(reader.text(), ["node n1 cannot read the output of task t1\n", "b\n"]);
});

test("a node whose connection ends is reported as disconnected", async (t) => {
  const { node, outputs, read, until } = await world(t);
  const reader = read();
  outputs.t1.say("a");
  await until("the first line", () => reader.text().length === 1);
  node.close();
  t.deepEqual(await reader.ended(), {
    code: Status.UNKNOWN,
    message: `${warning}node n1 disconnected unexpectedly`,
  });
});
