import test, { type ExecutionContext } from "ava";
import type { FacadeSources, Identity } from "../../edges/juju/facade.ts";
import { keptBytesMax } from "../../edges/juju/facades/followed-output.ts";
import { followedMax } from "../../edges/juju/facades/logs.ts";
import {
  LogContext,
  LogMessage,
  LogStream,
  SubscribeLogsMessage,
  type SubscribeLogsRequest,
} from "../../proto/gen/messages.ts";
import type { LogLines } from "../../proto/log-lines.ts";
import { RpcError, Status, type Sink, type CallSignal } from "../../runtime/ports/rpc.ts";
import { createdService, spec } from "../support/control.ts";
import { failureOf, jsonWorld, type Reply } from "../support/json-world.ts";

const reader: Identity = { kind: "user", name: "r", role: "read-only" };

interface Subscription {
  readonly request: SubscribeLogsRequest;
  readonly signal: CallSignal;
  readonly sink: Sink<LogLines>;
  say(...texts: readonly string[]): void;
  notice(text: string): void;
}

/** A service `web`, and the subscriptions to its output: the test plays the nodes. */
async function logWorld(t: ExecutionContext) {
  const subscriptions: Subscription[] = [];
  const logs: FacadeSources["logs"] = {
    SubscribeLogs(request, sink, { signal }) {
      const write = (taskId: string, texts: readonly string[]): void => {
        const messages = texts.map((text) =>
          LogMessage.create({
            context: LogContext.create({ taskId, nodeId: "n1" }),
            stream: LogStream.LOG_STREAM_STDOUT,
            data: new TextEncoder().encode(text),
          }),
        );
        sink.write(Uint8Array.from(SubscribeLogsMessage.encode(SubscribeLogsMessage.create({ messages }))));
      };
      subscriptions.push({
        request,
        signal,
        sink,
        say: (...texts) => write("t1", texts),
        notice: (text) => write("", [text]),
      });
    },
  };
  const made = await jsonWorld(t, { logs });
  const { id } = await createdService(made.control, spec("web", 1));
  const { ask, resources } = made.connect("V1", reader);
  const watch = async (params: object = { applications: ["web"] }) => {
    const reply = await ask({ type: "Muster", version: 1, request: "WatchLogs", params });
    const watcher = String(reply["watcher-id"]);
    const of = (request: string) => ask({ type: "LogsWatcher", version: 1, id: watcher, request });
    return {
      id: watcher,
      next: () => of("Next"),
      stop: () => of("Stop"),
      source: subscriptions.at(-1) as Subscription,
    };
  };
  return { ...made, serviceId: id, resources, subscriptions, watch, ask };
}

const textsOf = (reply: Reply): readonly string[] =>
  (reply["lines"] as readonly { readonly text: string }[]).map(({ text }) => text);

test("a watcher follows output: pending lines are one answer, and Next waits for later ones", async (t) => {
  const { watch, serviceId } = await logWorld(t);
  const { next, source } = await watch({ applications: ["web"], tail: 3 });
  t.like(source.request, { selector: { serviceIds: [serviceId] }, options: { follow: true, tail: -4 } });
  source.say("one", "two");
  source.say("three");
  const first = await next();
  t.deepEqual((first["lines"] as unknown[])[0], {
    unit: "",
    "task-id": "t1",
    "instance-id": "n1",
    time: null,
    stream: "stdout",
    text: "one",
  });
  t.deepEqual(textsOf(first), ["one", "two", "three"]);
  t.deepEqual(first["warnings"], []);
  const later = next();
  source.say("four");
  t.deepEqual(textsOf(await later), ["four"]);
  source.notice("node n2 does not answer\n");
  t.like(await next(), { lines: [], warnings: ["node n2 does not answer"] });
});

test("FO1: without a Next the amount retained is limited; the sender is paused, and resumed after a read", async (t) => {
  const { watch } = await logWorld(t);
  const { next, source } = await watch();
  const line = "x".repeat(60 * 1024);
  let sent = 0;
  while (source.sink.bufferedBytes() === 0) {
    source.say(line);
    sent += 1;
  }
  t.true(sent * line.length < keptBytesMax + 2 * line.length);
  t.true(source.sink.bufferedBytes() > 2 ** 40, "whatever its own limit, the sender's is reached");
  t.is(textsOf(await next()).length, sent);
  t.is(source.sink.bufferedBytes(), 0);
});

test("FO2: output that does not fit into one answer comes in the next, at once, in order", async (t) => {
  const { watch } = await logWorld(t);
  const { next, source } = await watch();
  const texts = Array.from({ length: 40 }, (_, at) => `${at} ${"\u0001".repeat(10_000)}`);
  const [first, second] = [next(), next()];
  source.say(...texts);
  const [one, two, three] = [textsOf(await first), textsOf(await second), textsOf(await next())];
  t.true(one.length > 0 && one.length < texts.length, "a character that takes six in JSON counts as six");
  t.deepEqual([...one, ...two, ...three], texts);
});

test("at the end of the output the rest is sent, then the end to every Next, with the reason if it ended early", async (t) => {
  const { watch, resources } = await logWorld(t);
  const { next, source, stop } = await watch();
  source.say("last words");
  source.sink.end();
  t.deepEqual(textsOf(await next()), ["last words"]);
  for (const each of [next, next])
    t.deepEqual(await failureOf(each), { message: "watcher has been stopped: the output has ended", code: "stopped" });
  await stop();
  t.is((await failureOf(next))?.code, "not found");
  const other = await watch();
  const waiting = failureOf(other.next);
  other.source.sink.end(new RpcError(Status.RESOURCE_EXHAUSTED, "the follower reads too slowly"));
  t.deepEqual(await waiting, { message: "watcher has been stopped: the follower reads too slowly", code: "stopped" });
  resources.stopAll();
});

test("Stop ends the subscription and the waiting Next; so does the end of the connection", async (t) => {
  const { watch, resources, env } = await logWorld(t);
  const [one, two] = [await watch(), await watch()];
  const waiting = failureOf(one.next);
  await one.stop();
  t.deepEqual(await waiting, { message: "watcher has been stopped", code: "stopped" });
  t.true(one.source.signal.aborted);
  t.false(two.source.signal.aborted);
  two.source.say("nobody asks for it");
  resources.stopAll();
  t.true(two.source.signal.aborted);
  two.source.say("too late");
  t.is(two.source.sink.bufferedBytes(), 0);
  t.is(resources.count, 0);
  t.deepEqual(
    [...env.host.ids()].filter((id) => id.startsWith("json-watcher/")),
    [],
  );
});

test("the number of followers per connection is limited; unknown targets and agents are rejected", async (t) => {
  const { watch, connect, subscriptions } = await logWorld(t);
  const code = async (params: object) => (await failureOf(() => watch(params)))?.code;
  t.is(await code({}), "bad request");
  t.is(await code({ applications: ["nope"] }), "not found");
  t.is(await code({ applications: ["web"], tail: -1 }), "not valid");
  t.is(await code({ applications: "web" }), "bad request");
  t.is(subscriptions.length, 0);
  const all = [];
  for (let count = 0; count < followedMax; count += 1) all.push(await watch());
  t.is(await code({ applications: ["web"] }), "quota limit exceeded");
  await all[0]?.stop();
  await watch();
  const agent = connect("V1", { kind: "machine", nodeId: "n1" });
  const asked = { type: "LogsWatcher", version: 1, request: "Next", id: "1" };
  t.is((await failureOf(() => agent.ask(asked)))?.code, "unauthorized access");
  const other = connect("V1", reader);
  t.deepEqual(await failureOf(() => other.ask(asked)), { message: "unknown watcher id", code: "not found" });
});

test("the older shape follows with its own words", async (t) => {
  const { connect, subscriptions } = await logWorld(t);
  const { ask } = connect("V0", reader);
  const params = { Applications: ["web"] };
  const reply = await ask({ type: "Muster", version: 1, request: "WatchLogs", params });
  const next = ask({ type: "LogsWatcher", request: "Next", id: String(reply["LogsWatcherId"]) });
  subscriptions[0]?.say("hello");
  t.like(await next, { Lines: [{ TaskId: "t1", Text: "hello" }], Warnings: [] });
});
