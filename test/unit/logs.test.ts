// Subscriptions to task output across managers: which nodes are asked, how output travels, and the effect of a slow follower.
import test, { type ExecutionContext } from "ava";
import { createLogBroker, stalledStreamsMax, type LogBroker } from "../../actors/logs/broker.ts";
import { followerBytesMax, followerStalledMsMax } from "../../actors/logs/home.ts";
import { noticeAttribute } from "../../machines/logs/publish.ts";
import {
  ListenSubscriptionsRequest,
  LogContext,
  LogMessage,
  LogSelector,
  LogStream,
  LogSubscriptionOptions,
  Node,
  NodeStatus,
  NodeStatus_State,
  PublishLogsMessage,
  Service,
  Session,
  SubscribeLogsMessage,
  SubscribeLogsRequest,
  Task,
  TaskState,
  TaskStatus,
  Timestamp,
  type SubscriptionMessage,
} from "../../proto/gen/messages.ts";
import { publishedLines, type LogLines, type PublishedLines } from "../../proto/log-lines.ts";
import { Status, type Sink } from "../../runtime/ports/rpc.ts";
import { call, collectedStream, refusalOf, testManager, type CollectedStream } from "../support/manager.ts";
import { sharedBus } from "../support/shared-bus.ts";

/** Two managers with the same state: service s1 with task t1 on n1 and t2 on n2; n1's session is with the first. */
function cluster(t: ExecutionContext) {
  const bus = sharedBus();
  const managers = ["m1", "m2"].map((id) => testManager(id));
  const brokers = managers.map(({ env }) => createLogBroker({ ...env, bus }));
  const ready = NodeStatus.create({ state: NodeStatus_State.READY });
  const running = TaskStatus.create({ state: TaskState.RUNNING });
  for (const { seed } of managers) {
    seed("node", Node.create({ id: "n1", status: ready }), Node.create({ id: "n2", status: ready }));
    seed("session", Session.create({ id: "n1", managerId: "m1" }), Session.create({ id: "n2", managerId: "m2" }));
    seed("service", Service.create({ id: "s1" }));
    seed("task", Task.create({ id: "t1", serviceId: "s1", nodeId: "n1", status: running }));
    seed("task", Task.create({ id: "t2", serviceId: "s1", nodeId: "n2", status: running }));
  }
  t.teardown(() => brokers.forEach((broker) => broker.stop()));
  const clocks = managers.map(({ clock }) => clock);
  const pass = async (ms: number): Promise<void> => {
    for (let passed = 0; passed < ms; passed += 50)
      for (const clock of clocks) await clock.run({ untilMs: clock.now() + 50 });
  };
  return { bus, managers, brokers: brokers as [LogBroker, LogBroker], pass };
}

/** A node's side: its requests, and one stream on which it publishes. */
function node(broker: LogBroker, nodeId: string) {
  const aborts = new AbortController();
  const context = call({ identity: { nodeId, role: "swarm-worker", organization: "c" }, local: false }, aborts.signal);
  const asked: CollectedStream<SubscriptionMessage> = collectedStream();
  broker.handlers.ListenSubscriptions(ListenSubscriptionsRequest.create(), asked, context);
  return {
    asked,
    leave: () => aborts.abort(),
    publish(subscriptionId: string) {
      const waiting: PublishLogsMessage[] = [];
      let wake: (() => void) | null = null;
      let isOver = false;
      let taken = 0;
      async function* stream(): AsyncGenerator<PublishedLines> {
        for (;;) {
          const next = waiting.shift();
          if (next !== undefined) {
            taken += 1;
            yield publishedLines.decode(PublishLogsMessage.encode(next));
          } else if (isOver || aborts.signal.aborted) return;
          else await new Promise<void>((resolve) => (wake = resolve));
        }
      }
      aborts.signal.addEventListener("abort", () => wake?.());
      const done = refusalOf(() => broker.handlers.PublishLogs(stream(), context));
      const put = (message: Partial<PublishLogsMessage>): void => {
        waiting.push(PublishLogsMessage.create({ subscriptionId, ...message }));
        wake?.();
      };
      return {
        done,
        taken: () => taken,
        line: (text: string, at = 1, from = nodeId) =>
          put({
            messages: [
              LogMessage.create({
                context: LogContext.create({ nodeId: from, serviceId: "s1", taskId: `t${nodeId.slice(1)}` }),
                timestamp: Timestamp.create({ seconds: at }),
                stream: LogStream.LOG_STREAM_STDOUT,
                data: Buffer.from(`${text}\n`),
              }),
            ],
          }),
        close: () => {
          put({ close: true });
          isOver = true;
        },
      };
    },
  };
}

function subscribe(broker: LogBroker, options: Partial<LogSubscriptionOptions> = {}) {
  const sink: CollectedStream<SubscribeLogsMessage> = collectedStream();
  const aborts = new AbortController();
  const request = SubscribeLogsRequest.create({
    selector: LogSelector.create({ serviceIds: ["s1"] }),
    options: LogSubscriptionOptions.create(options),
  });
  const wire: Sink<LogLines> = {
    write: (lines) => sink.write(SubscribeLogsMessage.decode(lines)),
    end: (error) => sink.end(error),
    bufferedBytes: () => sink.bufferedBytes(),
  };
  broker.logs.SubscribeLogs(request, wire, call({}, aborts.signal));
  const text = (): readonly string[] =>
    sink.messages.flatMap(({ messages }) => messages.map(({ data }) => Buffer.from(data).toString().trimEnd()));
  return { sink, text, leave: () => aborts.abort() };
}

const idOf = ({ asked }: { asked: CollectedStream<SubscriptionMessage> }): string => asked.messages.at(-1)?.id ?? "";

test("a subscription at one manager reaches the nodes of all, and ends when all have sent", async (t) => {
  const { brokers, pass } = cluster(t);
  const [n1, n2] = [node(brokers[0], "n1"), node(brokers[1], "n2")];
  const reader = subscribe(brokers[0], { tail: -3 });
  await pass(100);
  for (const { asked } of [n1, n2]) {
    t.is(asked.messages.length, 1);
    t.deepEqual(asked.messages[0]?.selector?.serviceIds, ["s1"]);
    t.is(asked.messages[0]?.options?.tail, -3);
  }
  t.is(idOf(n1), idOf(n2));
  const [first, second] = [n1.publish(idOf(n1)), n2.publish(idOf(n2))];
  for (let at = 1; at <= 100; at += 1) second.line(`b${at}`);
  first.line("a");
  first.close();
  await pass(200);
  t.is(reader.sink.ended, undefined);
  second.close();
  await pass(200);
  t.is(reader.sink.ended, null);
  t.deepEqual(
    reader.text().filter((line) => line !== "a"),
    Array.from({ length: 100 }, (_, at) => `b${at + 1}`),
  );
  t.is(reader.text().filter((line) => line === "a").length, 1);
  t.is(await first.done, null);
  t.is(await second.done, null);
});

test("LO1: lost requests and answers neither lose nor repeat a line", async (t) => {
  const { brokers, bus, pass } = cluster(t);
  node(brokers[0], "n1").publish("none").close();
  const n2 = node(brokers[1], "n2");
  const reader = subscribe(brokers[0], { follow: true });
  await pass(100);
  const stream = n2.publish(idOf(n2));
  let count = 0;
  bus.loses = (subject) => subject.includes(".out.") && (count += 1) % 3 !== 0;
  for (let at = 1; at <= 20; at += 1) {
    stream.line(`b${at}`, at);
    await pass(100);
  }
  await pass(3_000);
  t.deepEqual(
    reader.text(),
    Array.from({ length: 20 }, (_, at) => `b${at + 1}`),
  );
});

test("LB1: output that a follower does not read stops the node, does not fill the manager's memory, and continues once it reads", async (t) => {
  const { brokers, pass } = cluster(t);
  node(brokers[0], "n1");
  const n2 = node(brokers[1], "n2");
  const reader = subscribe(brokers[0], { follow: true });
  await pass(100);
  reader.sink.buffered = followerBytesMax + 1;
  const stream = n2.publish(idOf(n2));
  for (let at = 1; at <= 2_000; at += 1) stream.line("x".repeat(10_000), at);
  await pass(5_000);
  t.is(reader.text().length, 0);
  t.true(stream.taken() < 100, `${stream.taken()} messages of 10 kB were read from the node`);
  reader.sink.buffered = 0;
  await pass(10_000);
  t.is(reader.text().length, 2_000);
});

test("LS3: a follower that still does not read is cut with RESOURCE_EXHAUSTED and the limit", async (t) => {
  const { brokers, pass } = cluster(t);
  const n2 = node(brokers[1], "n2");
  const reader = subscribe(brokers[0], { follow: true });
  await pass(100);
  const stream = n2.publish(idOf(n2));
  reader.sink.buffered = followerBytesMax + 1;
  stream.line("x");
  await pass(followerStalledMsMax - 2_000);
  t.is(reader.sink.ended, undefined);
  await pass(5_000);
  t.is(reader.sink.ended?.code, Status.RESOURCE_EXHAUSTED);
  t.is(reader.sink.ended?.message, "the follower reads too slowly: it has not read for 120 s");
  t.true(n2.asked.messages.at(-1)?.close, "the node is notified");
  stream.line("y");
  await pass(1_000);
  t.is(await stream.done, null);
});

test("LB2: only a limited number of a node's streams may be blocked: the one blocked longest is closed", async (t) => {
  const { brokers, pass } = cluster(t);
  const n1 = node(brokers[0], "n1");
  const readers = Array.from({ length: stalledStreamsMax + 1 }, () => subscribe(brokers[0], { follow: true }));
  await pass(100);
  const ids = n1.asked.messages.map(({ id }) => id);
  for (const [at, id] of ids.entries()) {
    const reader = readers[at];
    if (reader !== undefined) reader.sink.buffered = followerBytesMax + 1;
    n1.publish(id).line("x");
    await pass(500);
  }
  await pass(5_000);
  t.deepEqual(
    readers.map(({ sink }) => sink.ended?.code),
    [Status.RESOURCE_EXHAUSTED, ...Array<undefined>(stalledStreamsMax).fill(undefined)],
  );
});

test("a node that leaves with unsent output is named at the end; a follower learns it at once", async (t) => {
  const { brokers, pass } = cluster(t);
  const [n1, n2] = [node(brokers[0], "n1"), node(brokers[1], "n2")];
  const reader = subscribe(brokers[0]);
  const follower = subscribe(brokers[0], { follow: true });
  await pass(100);
  for (const { id } of n1.asked.messages) n1.publish(id).close();
  const stream = n2.publish(n2.asked.messages[0]?.id ?? "");
  stream.line("b1");
  await pass(100);
  n2.leave();
  await pass(300);
  t.is(reader.sink.ended?.code, Status.UNKNOWN);
  t.is(
    reader.sink.ended?.message,
    "warning: incomplete log stream. some logs could not be retrieved for the following reasons: node n2 disconnected unexpectedly",
  );
  t.deepEqual(reader.text(), ["b1"]);
  t.deepEqual(follower.text(), ["node n2 disconnected unexpectedly"]);
  t.is(follower.sink.messages[0]?.messages[0]?.attrs[0]?.key, noticeAttribute);
  t.is(follower.sink.ended, undefined);
});

test("LS4: a node whose stream breaks each time is asked again once a second, and the follower learns of each time", async (t) => {
  const { brokers, pass } = cluster(t);
  node(brokers[0], "n1");
  const n2 = node(brokers[1], "n2");
  const reader = subscribe(brokers[0], { follow: true });
  await pass(100);
  for (let asked = 1; asked <= 3; asked += 1) {
    const starts = n2.asked.messages.filter(({ close }) => !close);
    t.is(starts.length, asked);
    n2.publish(idOf(n2)).line("forged", 1, "n1");
    await pass(700);
    t.is(n2.asked.messages.filter(({ close }) => !close).length, asked, "not before the next announcement");
    await pass(300);
  }
  t.deepEqual(reader.text(), Array(3).fill("node n2 sent output that was rejected: log message for a different node"));
});

test("LS2: output that was rejected is missing at the end", async (t) => {
  const { brokers, pass } = cluster(t);
  const [n1, n2] = [node(brokers[0], "n1"), node(brokers[1], "n2")];
  const reader = subscribe(brokers[0]);
  await pass(100);
  n1.publish(idOf(n1)).close();
  const stream = n2.publish(idOf(n2));
  stream.line("b1");
  stream.line("forged", 1, "n1");
  await pass(300);
  t.deepEqual(reader.text(), ["b1"]);
  t.is(
    reader.sink.ended?.message,
    "warning: incomplete log stream. some logs could not be retrieved for the following reasons: node n2 sent output that was rejected: log message for a different node",
  );
});

test("LH2: a node that comes back is asked for new output, and repeated lines are not passed on", async (t) => {
  const { brokers, pass } = cluster(t);
  node(brokers[0], "n1");
  const before = node(brokers[1], "n2");
  const reader = subscribe(brokers[0], { follow: true, tail: -11 });
  await pass(100);
  const stream = before.publish(idOf(before));
  stream.line("b1", 1);
  stream.line("b2", 2);
  await pass(100);
  before.leave();
  const after = node(brokers[1], "n2");
  await pass(1_500);
  t.is(idOf(after), idOf(before));
  const { since, tail } = after.asked.messages[0]?.options ?? {};
  t.is(since?.seconds, 2);
  t.is(tail, 0);
  const again = after.publish(idOf(after));
  again.line("b2", 2);
  again.line("b3", 3);
  again.line("b4", 3);
  await pass(200);
  t.deepEqual(
    reader.text().filter((line) => line.startsWith("b")),
    ["b1", "b2", "b3", "b4"],
    "also with two new lines of one time",
  );
});

test("LH2: if a node answers one request in two streams, each line is passed on once and in order", async (t) => {
  const { brokers, pass } = cluster(t);
  node(brokers[0], "n1");
  const n2 = node(brokers[1], "n2");
  const reader = subscribe(brokers[0], { follow: true });
  await pass(100);
  const [one, other] = [n2.publish(idOf(n2)), n2.publish(idOf(n2))];
  one.line("b1", 1);
  one.line("b2", 2);
  await pass(100);
  other.line("b2", 2);
  other.line("b3", 3);
  await pass(100);
  one.line("b3", 3);
  one.line("b4", 4);
  await pass(100);
  t.deepEqual(reader.text(), ["b1", "b2", "b3", "b4"]);
});

test("LN3: a manager restarted under its nodes leaves no gap and repeats no line silently", async (t) => {
  const { brokers, bus, managers, pass } = cluster(t);
  node(brokers[0], "n1");
  const before = node(brokers[1], "n2");
  const reader = subscribe(brokers[0], { follow: true });
  await pass(100);
  before.publish(idOf(before)).line("b1", 1);
  await pass(100);
  // A crash: nobody reports anything, and the node is back before anybody has noticed.
  bus.loses = () => true;
  brokers[1].stop();
  before.leave();
  await pass(100);
  bus.loses = () => false;
  const env = managers[1]?.env;
  if (env === undefined) return t.fail();
  const reborn = createLogBroker({ ...env, bus, random: env.random.fork("again") });
  t.teardown(() => reborn.stop());
  const after = node(reborn, "n2");
  await pass(3_000);
  t.is(after.asked.messages.length, 1);
  t.is(after.asked.messages[0]?.options?.since?.seconds, 1);
  const again = after.publish(idOf(after));
  again.line("b1", 1);
  again.line("b2", 2);
  await pass(200);
  t.deepEqual(reader.text(), ["b1", "node n2 disconnected unexpectedly", "b2"]);
});

test("new tasks of a followed service join, and following ends with the service", async (t) => {
  const { brokers, managers, pass } = cluster(t);
  const n1 = node(brokers[0], "n1");
  const n3 = node(brokers[0], "n3");
  const reader = subscribe(brokers[0], { follow: true });
  await pass(200);
  t.is(n3.asked.messages.length, 0);
  const [manager] = managers;
  manager?.seed("node", Node.create({ id: "n3", status: NodeStatus.create({ state: NodeStatus_State.READY }) }));
  manager?.seed("task", Task.create({ id: "t3", serviceId: "s1", nodeId: "n3" }));
  await pass(300);
  t.is(n3.asked.messages.length, 1);
  n3.publish(idOf(n3)).line("c1");
  await pass(100);
  t.deepEqual(reader.text(), ["c1"]);
  reader.leave();
  await pass(100);
  for (const { asked } of [n1, n3]) t.true(asked.messages.at(-1)?.close);
});

test("a manager that has not heard from a home for a while drops its subscriptions, and notifies its nodes", async (t) => {
  const { brokers, bus, pass } = cluster(t);
  const n2 = node(brokers[1], "n2");
  subscribe(brokers[0], { follow: true });
  await pass(100);
  t.is(n2.asked.messages.length, 1);
  bus.loses = () => true;
  const stream = n2.publish(idOf(n2));
  stream.line("x");
  await pass(8_000);
  t.true(n2.asked.messages.at(-1)?.close);
  stream.line("y");
  await pass(1_000);
  t.is(await stream.done, null, "its stream ends");
});

test("HD3: a home that was paused until its subscription was dropped learns that lines are missing", async (t) => {
  const { brokers, bus, managers, pass } = cluster(t);
  node(brokers[0], "n1");
  const n2 = node(brokers[1], "n2");
  const reader = subscribe(brokers[0], { follow: true, tail: -1 });
  await pass(100);
  n2.publish(idOf(n2)).line("b1", 1);
  await pass(100);
  // The home stands still, and time passes for the manager that holds the node.
  bus.loses = () => true;
  await managers[1]?.clock.run({ untilMs: (managers[1]?.clock.now() ?? 0) + 7_000 });
  t.true(n2.asked.messages.at(-1)?.close, "the holder has dropped the subscription");
  bus.loses = () => false;
  await pass(3_000);
  t.is(n2.asked.messages.at(-1)?.options?.since?.seconds, 1, "the node is asked for all lines since the last one");
  const again = n2.publish(idOf(n2));
  again.line("b2", 2);
  again.line("b3", 3);
  await pass(200);
  t.deepEqual(reader.text(), ["b1", "node n2 disconnected unexpectedly", "b2", "b3"]);
});

test("a node publishes only as itself, only requested output, and for one subscription per stream", async (t) => {
  const { brokers, pass } = cluster(t);
  const n1 = node(brokers[0], "n1");
  subscribe(brokers[0], { follow: true });
  await pass(100);
  const forged = n1.publish(idOf(n1));
  forged.line("x", 1, "n2");
  t.deepEqual(await forged.done, { code: Status.PERMISSION_DENIED, message: "log message for a different node" });
  const unknown = n1.publish("nonsense");
  unknown.line("x");
  t.is((await unknown.done)?.code, Status.NOT_FOUND);
});

test("a selector that selects nothing, and a tail that engines reject, are rejected", async (t) => {
  const { brokers } = cluster(t);
  const refused = (fields: Partial<SubscribeLogsRequest>) =>
    refusalOf(() => brokers[0].logs.SubscribeLogs(SubscribeLogsRequest.create(fields), collectedStream(), call()));
  t.deepEqual(await refused({}), { code: Status.INVALID_ARGUMENT, message: "log selector must be provided" });
  t.deepEqual(await refused({ selector: LogSelector.create({}) }), {
    code: Status.INVALID_ARGUMENT,
    message: "log selector must not be empty",
  });
  const selector = LogSelector.create({ taskIds: ["t1"] });
  t.is(
    (await refused({ selector, options: LogSubscriptionOptions.create({ tail: 5 }) }))?.code,
    Status.INVALID_ARGUMENT,
  );
});

test("a stopping broker notifies its followers", async (t) => {
  const { brokers, pass } = cluster(t);
  const reader = subscribe(brokers[0], { follow: true });
  await pass(100);
  brokers[0].stop();
  t.is(reader.sink.ended?.code, Status.UNAVAILABLE);
  t.is(reader.sink.ended?.message, "log broker is stopped");
});
