// Calls of nodes over subjects, on a wire that loses, repeats and reorders chosen messages.
import test from "ava";
import { InvariantError } from "../../lib/assert.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import { LinkFrame, LinkFrame_Kind } from "../../proto/gen/messages.ts";
import { Inbox, windowBytes } from "../../runtime/calls/flow.ts";
import { aliveMs } from "../../runtime/calls/link.ts";
import { openNodeLink } from "../../runtime/calls/node-link.ts";
import { callsPerLinkMax, linksPerNodeMax, serveNodeLinks, uselessPerNodeMax } from "../../runtime/calls/node-links.ts";
import type { CallGate } from "../../runtime/calls/served.ts";
import type { Bus, BusMessage } from "../../runtime/ports/index.ts";
import { RpcError, Status, type CallContext, type Peer, type Sink } from "../../runtime/ports/rpc.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { matches } from "../../runtime/sim/subject.ts";
import { nodeFrame } from "../../runtime/subjects.ts";

const payloadBytesMax = 64 * 1024;
const latencyMs = 1;

/** Any message type will do; `data` and `text` are used. */
type Message = LinkFrame;
type Method = MethodDescriptor<Message, Message>;
const codecs = { request: LinkFrame, response: LinkFrame };
function method(name: string, requestStream: boolean, responseStream: boolean): Method {
  return { path: `/test.Test/${name}`, ...codecs, requestStream, responseStream } as Method;
}
const Echo = method("Echo", false, false);
const Many = method("Many", false, true);
const Collect = method("Collect", true, false);
const Chat = method("Chat", true, true);
const service = { name: "test.Test", methods: { Echo, Many, Collect, Chat } };

const text = (value: string): Message => LinkFrame.create({ text: value });
const sized = (bytes: number, fill = 7): Message => LinkFrame.create({ data: new Uint8Array(bytes).fill(fill) });

/** The delays of a message's copies, in milliseconds. */
type Fate = (frame: LinkFrame, subject: string) => readonly number[];

function world({ gate = null, requestBytesMax = 4e6 }: { gate?: CallGate | null; requestBytesMax?: number } = {}) {
  const clock = new SimClock();
  const interests = new Set<{ readonly pattern: string; readonly handler: (message: BusMessage) => void }>();
  const state: { fate: Fate; readonly wire: { subject: string; data: Uint8Array; frame: LinkFrame }[] } = {
    fate: () => [0],
    wire: [],
  };
  const deliver = (subject: string, data: Uint8Array, extraMs: number): void => {
    clock.setTimeout(() => {
      for (const { handler, pattern } of interests)
        if (matches(pattern, subject)) handler({ subject, data, headers: {}, respond: () => {} });
    }, latencyMs + extraMs);
  };
  const bus: Pick<Bus, "publish" | "subscribe"> = {
    publish: (subject, data) => {
      const frame = LinkFrame.decode(data);
      state.wire.push({ subject, data, frame });
      for (const extraMs of state.fate(frame, subject)) deliver(subject, data, extraMs);
    },
    subscribe: (pattern, handler) => {
      const interest = { pattern, handler };
      interests.add(interest);
      return { unsubscribe: () => interests.delete(interest) };
    },
  };
  const logged: object[] = [];
  const log = { debug: () => {}, info: () => {}, warn: () => {}, error: (fields: object) => void logged.push(fields) };
  const sinks: { sink: Sink<Message>; call: CallContext }[] = [];
  const echoed: string[] = [];
  const collected: number[] = [];
  let takes: Promise<void> = Promise.resolve();
  const handlers = {
    Echo: (request: Message, call: CallContext) => {
      echoed.push(request.text);
      if (request.text === "refuse")
        throw new RpcError(Status.NOT_FOUND, "no such thing", { details: new Uint8Array([1, 2]) });
      if (request.text === "fail") throw new Error("secret state");
      if (request.text === "break") throw new InvariantError("T1: broken");
      if (request.text === "never") return new Promise(() => {});
      return request.text === "who" ? text(call.peer.identity?.nodeId ?? "nobody") : request;
    },
    Many: (_request: Message, sink: Sink<Message>, call: CallContext) => void sinks.push({ sink, call }),
    Collect: async (requests: AsyncIterable<Message>) => {
      let total = 0;
      for await (const { data } of requests) {
        await takes;
        collected.push(data.length);
        total += data.length;
      }
      return text(String(total));
    },
    Chat: async (requests: AsyncIterable<Message>, sink: Sink<Message>) => {
      for await (const request of requests)
        if (request.text === "fail") throw new Error("secret state");
        else sink.write(text(`you said ${request.text}`));
      sink.write(text("bye"));
    },
  };
  const flooding: string[] = [];
  const random = new SimRandom("node-links");
  const peerOf = (nodeId: string): Peer | null =>
    nodeId === "unknown"
      ? null
      : { identity: { nodeId, role: "swarm-worker", organization: "c1" }, local: false, address: "" };
  const serve = (name: string) =>
    serveNodeLinks({
      clock,
      log,
      random: random.fork(name),
      bus,
      managerId: "m1",
      services: [{ service, handlers }],
      gate,
      peerOf,
      payloadBytesMax,
      requestBytesMax: () => requestBytesMax,
      onFlood: (nodeId) => flooding.push(nodeId),
    });
  let opened = 0;
  const run = async (ms: number): Promise<void> => {
    await clock.run({ untilMs: clock.now() + ms });
  };
  const dial = (nodeId = "n1") =>
    openNodeLink({ clock, random: random.fork(`node.${++opened}`), bus, nodeId, managerId: "m1", payloadBytesMax });
  return {
    bus,
    clock,
    collected,
    deliver,
    dial,
    echoed,
    flooding,
    interests,
    logged,
    run,
    serve,
    sinks,
    state,
    server: serve("server"),
    open: async (nodeId = "n1") => {
      const link = dial(nodeId);
      link.catch(() => {});
      await run(10);
      return link;
    },
    /** The handler of Collect takes nothing until the returned function is called. */
    block: () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      takes = promise;
      return resolve;
    },
  };
}

function receiver() {
  const messages: Message[] = [];
  const ends: (RpcError | null)[] = [];
  return {
    messages,
    ends,
    onMessage: (message: Message) => void messages.push(message),
    onEnd: (error: RpcError | null) => void ends.push(error),
  };
}

test("a unary call takes one message each way, and returns its answer, its handler's error or its deadline", async (t) => {
  const { echoed, open, run, state } = world();
  const link = await open();
  const before = state.wire.length;
  const answered = link.unary(Echo, text("who"), { timeoutMs: 1_000 });
  await run(100);
  t.is((await answered).text, "n1", "the caller is the node in the subject");
  t.is(state.wire.length - before, 2);
  const others = Promise.allSettled([
    link.unary(Echo, text("refuse")),
    link.unary(Echo, text("never"), { timeoutMs: 500 }),
    link.unary(method("Other", false, false), text("")),
  ]);
  await run(1_000);
  const [refused, late, unknown] = await others;
  t.like(refused, { reason: { code: Status.NOT_FOUND, message: "no such thing", details: Buffer.from([1, 2]) } });
  t.like(late, { reason: { code: Status.DEADLINE_EXCEEDED } });
  t.like(unknown, { reason: { code: Status.UNIMPLEMENTED } });
  t.deepEqual(echoed, ["who", "refuse", "never"]);
});

test("streams in each direction, and in both, arrive whole and in order", async (t) => {
  const { open, run, sinks } = world();
  const link = await open();
  const many = receiver();
  link.serverStream(Many, text("go"), many);
  await run(10);
  for (const each of ["a", "b", "c"]) sinks[0]?.sink.write(text(each));
  sinks[0]?.sink.end();
  const collect = link.clientStream(Collect);
  for (const bytes of [1, 2, 3]) collect.write(sized(bytes));
  const total = collect.finish();
  const chat = receiver();
  const talk = link.duplexStream(Chat, chat);
  talk.write(text("x"));
  await run(10);
  talk.finish();
  await run(10);
  t.deepEqual(
    many.messages.map((each) => each.text),
    ["a", "b", "c"],
  );
  t.deepEqual(many.ends, [null]);
  t.is((await total).text, "6");
  t.deepEqual(
    chat.messages.map((each) => each.text),
    ["you said x", "bye"],
  );
  t.deepEqual(chat.ends, [null]);
});

test("a message larger than NATS' payload is sent in parts, none of which is larger", async (t) => {
  const { open, run, state } = world();
  const link = await open();
  const large = LinkFrame.create({ data: Uint8Array.from({ length: 3_000_000 }, (_, at) => at % 251) });
  const answered = link.unary(Echo, large);
  await run(10_000);
  t.true(Buffer.from(large.data).equals((await answered).data));
  t.true(Math.max(...state.wire.map(({ data }) => data.length)) <= payloadBytesMax);
});

test("a request over the method's limit is refused, and nothing of it is kept", async (t) => {
  const { echoed, open, run } = world({ requestBytesMax: 100_000 });
  const link = await open();
  const answered = Promise.allSettled([link.unary(Echo, sized(200_000))]);
  await run(1_000);
  t.like((await answered)[0], { reason: { code: Status.RESOURCE_EXHAUSTED } });
  const after = link.unary(Echo, text("next"));
  await run(10);
  t.is((await after).text, "next");
  t.deepEqual(echoed, ["next"]);
});

test("a slow reader has at most a window under way; the rest waits at the sender, and arrives when it reads", async (t) => {
  const { open, run, sinks, state } = world();
  const link = await open();
  const slow = receiver();
  const call = link.serverStream(Many, text("go"), slow);
  await run(10);
  call.pause();
  const before = state.wire.length;
  const sink = sinks[0]?.sink as Sink<Message>;
  const count = 100;
  for (let at = 0; at < count; at += 1) sink.write(sized(20_000, at));
  await run(60_000);
  const sent = state.wire.slice(before).filter(({ frame }) => frame.kind === LinkFrame_Kind.MESSAGE);
  t.true(sent.reduce((sum, { frame }) => sum + frame.data.length, 0) <= windowBytes);
  t.true(sink.bufferedBytes() > count * 20_000 - windowBytes);
  t.is(slow.messages.length, 0);
  call.resume();
  sink.end();
  await run(1_000);
  t.deepEqual(
    slow.messages.map(({ data }) => data[0]),
    Array.from({ length: count }, (_, at) => at),
  );
  t.deepEqual(slow.ends, [null]);
  t.is(sink.bufferedBytes(), 0);
});

test("a slow handler of a client stream stops the node within a window", async (t) => {
  const { block, collected, open, run } = world();
  const link = await open();
  const go = block();
  const call = link.clientStream(Collect);
  const count = 50;
  for (let at = 0; at < count; at += 1) call.write(sized(20_000));
  await run(5_000);
  t.true(call.bufferedBytes() > count * 20_000 - 2 * windowBytes);
  t.is(collected.length, 0);
  go();
  const total = call.finish();
  await run(1_000);
  t.is((await total).text, String(count * 20_000));
  t.is(call.bufferedBytes(), 0);
});

test("repeated messages have no effect", async (t) => {
  const { echoed, open, run, state } = world();
  state.fate = () => [0, 3];
  const link = await open();
  const many = receiver();
  link.serverStream(Many, text("go"), many);
  const answered = link.unary(Echo, text("once"));
  await run(10_000);
  t.is((await answered).text, "once");
  t.deepEqual(echoed, ["once"]);
  t.deepEqual(many.ends, []);
});

for (const [what, kind, fate] of [
  ["lost frame of the manager", LinkFrame_Kind.MESSAGE, []],
  ["frame of the manager that overtakes another", LinkFrame_Kind.MESSAGE, [20]],
] as const) {
  test(`LK1: a ${what} breaks the link: nothing after the gap is delivered, and both sides end the calls`, async (t) => {
    const { open, run, sinks, state } = world();
    const link = await open();
    let closed = 0;
    link.onClosed(() => (closed += 1));
    const many = receiver();
    link.serverStream(Many, text("go"), many);
    await run(10);
    const { call, sink } = sinks[0] as (typeof sinks)[number];
    let aborted = 0;
    call.signal.addEventListener("abort", () => (aborted += 1));
    let seen = 0;
    state.fate = (frame) => (frame.kind === kind && (seen += 1) === 2 ? fate : [0]);
    for (const each of ["a", "b", "c"]) sink.write(text(each));
    await run(100);
    t.deepEqual(
      many.messages.map((each) => each.text),
      ["a"],
    );
    t.like(many.ends, { length: 1, 0: { code: Status.UNAVAILABLE } });
    t.is(closed, 1);
    t.is(aborted, 1);
    const [after] = await Promise.all([Promise.allSettled([link.unary(Echo, text("late"))]), run(100)]);
    t.like(after[0], { reason: { code: Status.UNAVAILABLE } });
    const next = await open();
    const answered = next.unary(Echo, text("again"));
    await run(10);
    t.is((await answered).text, "again");
  });
}

test("links that were opened at different times send their signs of life together, so that a timer of each wakes nobody", async (t) => {
  const { clock, open, run, state } = world();
  const sentAt: number[] = [];
  state.fate = ({ kind }, subject) => {
    if (kind === LinkFrame_Kind.ALIVE && subject.includes(".down.")) sentAt.push(clock.now());
    return [0];
  };
  for (const node of ["n1", "n2", "n3"]) {
    await open(node);
    await run(337);
  }
  await run(2 * aliveMs);
  t.true(sentAt.length >= 3);
  t.is(new Set(sentAt.slice(0, 3)).size, 1);
});

test("LK2: the loss of the last frame is noticed without another call", async (t) => {
  const { open, run, state } = world();
  const link = await open();
  state.fate = ({ kind }) => (kind === LinkFrame_Kind.CALL ? [] : [0]);
  const answered = Promise.allSettled([link.unary(Echo, text("lost"))]);
  await run(2 * aliveMs + 10);
  t.like((await answered)[0], { reason: { code: Status.UNAVAILABLE } });
});

test("silence breaks a link on both sides; an idle link lives", async (t) => {
  const { open, run, sinks, state } = world();
  const link = await open();
  const many = receiver();
  link.serverStream(Many, text("go"), many);
  await run(60_000);
  t.deepEqual(many.ends, []);
  let aborted = 0;
  sinks[0]?.call.signal.addEventListener("abort", () => (aborted += 1));
  state.fate = () => [];
  await run(5 * aliveMs);
  t.like(many.ends, { length: 1, 0: { code: Status.UNAVAILABLE } });
  t.is(aborted, 1);
});

test("a link with a heartbeat every 5 s has no other frames, and one without has a sign of life every 8 s", async (t) => {
  const { open, run, state } = world();
  const link = await open();
  const before = state.wire.length;
  for (let beat = 0; beat < 12; beat += 1) {
    const answered = link.unary(Echo, text("beat"));
    await run(5_000);
    t.is((await answered).text, "beat");
  }
  t.is(state.wire.length - before, 2 * 12);
  await run(80_000);
  t.is(state.wire.length - before, 2 * 12 + 2 * 10);
  const answered = link.unary(Echo, text("still there"));
  await run(100);
  t.is((await answered).text, "still there");
});

test("a node learns at its next frame that its manager was started again", async (t) => {
  const { interests, open, run, serve } = world();
  const link = await open();
  const many = receiver();
  link.serverStream(Many, text("go"), many);
  await run(10);
  // The old process is gone without a word; a new one serves.
  const [old] = interests;
  if (old !== undefined) interests.delete(old);
  serve("restarted");
  await run(2 * aliveMs);
  t.like(many.ends, { length: 1, 0: { code: Status.UNAVAILABLE } });
});

test("a cancelled call aborts its handler, and a closed link all of them", async (t) => {
  const { open, run, sinks } = world();
  const link = await open();
  const [first, second] = [receiver(), receiver()];
  const call = link.serverStream(Many, text("1"), first);
  link.serverStream(Many, text("2"), second);
  await run(10);
  const aborted: number[] = [];
  for (const [at, { call: served }] of sinks.entries())
    served.signal.addEventListener("abort", () => void aborted.push(at));
  call.cancel();
  await run(10);
  t.deepEqual(aborted, [0]);
  t.deepEqual(first.ends, []);
  link.close();
  await run(10);
  t.deepEqual(aborted, [0, 1]);
  t.like(second.ends, { length: 1, 0: { code: Status.CANCELLED } });
});

test("a manager that stops ends its links, and a node without one gets UNAVAILABLE", async (t) => {
  const { dial, open, run, server } = world();
  const link = await open();
  const many = receiver();
  link.serverStream(Many, text("go"), many);
  await run(10);
  server.close();
  await run(10);
  t.like(many.ends, { length: 1, 0: { code: Status.UNAVAILABLE } });
  const late = Promise.allSettled([dial()]);
  await run(6_000);
  t.like((await late)[0], { reason: { code: Status.UNAVAILABLE } });
});

test("a node that is not admitted opens no link", async (t) => {
  const { dial, run } = world();
  const refused = Promise.allSettled([dial("unknown")]);
  await run(100);
  t.like((await refused)[0], {
    reason: { code: Status.UNAVAILABLE, message: "this node has no certificate of the cluster" },
  });
});

test("the text of an unexpected error stays with the manager, and a broken invariant ends its process", async (t) => {
  const { logged, open, run } = world();
  const link = await open();
  const outcomes = Promise.allSettled([link.unary(Echo, text("fail")), link.unary(Echo, text("break"))]);
  const chat = receiver();
  link.duplexStream(Chat, chat).write(text("fail"));
  await t.throwsAsync(
    async () => {
      await run(10);
    },
    { instanceOf: InvariantError, message: "T1: broken" },
  );
  await run(10);
  const internal = { code: Status.INTERNAL, message: "internal error" };
  for (const outcome of await outcomes) t.like(outcome, { reason: internal });
  t.like(chat.ends, { length: 1, 0: internal });
  t.deepEqual(
    new Set(logged.map((fields) => (fields as { err: Error }).err.message)),
    new Set(["secret state", "T1: broken"]),
  );
  t.is(logged.length, 3);
});

test("a revoked caller's calls end with the reason, and its link closes", async (t) => {
  let end: () => void = () => {};
  let isRemoved = false;
  const gate: CallGate = {
    admit: (peer) => (isRemoved ? "node n1 was removed" : peer),
    opened: (_peer, revoke) => {
      end = revoke;
      return { closed: () => {} };
    },
    sends: () => {},
  };
  const { open, run } = world({ gate });
  const link = await open();
  let closed = 0;
  link.onClosed(() => (closed += 1));
  const many = receiver();
  link.serverStream(Many, text("go"), many);
  await run(10);
  isRemoved = true;
  end();
  await run(10);
  t.like(many.ends, { length: 1, 0: { code: Status.PERMISSION_DENIED, message: "node n1 was removed" } });
  t.is(closed, 1);
});

test("everything that was recorded on a link has no effect when it is sent again, during the link or later", async (t) => {
  const { deliver, echoed, open, run, state } = world();
  const link = await open();
  const answered = link.unary(Echo, text("once"));
  await run(10);
  await answered;
  const recorded = [...state.wire];
  const replay = () => {
    for (const { data, subject } of recorded) deliver(subject, data, 0);
  };
  replay();
  await run(10);
  const second = link.unary(Echo, text("twice"));
  await run(10);
  t.is((await second).text, "twice");
  link.close();
  await run(10);
  // Opens a link, with another life than that of the recorded calls.
  replay();
  await run(20_000);
  t.deepEqual(echoed, ["once", "twice"]);
});

test("NL3: a node that sends frames without effect is reported, once, and one that uses its links is not", async (t) => {
  const { bus, flooding, open, run } = world();
  await open("n1");
  const useful = await open("n2");
  for (let batch = 0; batch < 5; batch += 1) {
    const answers = Array.from({ length: uselessPerNodeMax / 4 }, () => useful.unary(Echo, text("again")));
    await run(100);
    await Promise.all(answers);
  }
  t.deepEqual(flooding, []);
  const frames = [LinkFrame_Kind.HELLO, LinkFrame_Kind.MESSAGE, LinkFrame_Kind.ALIVE].map((kind) =>
    LinkFrame.encode(LinkFrame.create({ kind, life: "no", number: 9 })),
  );
  for (let sent = 0; sent < uselessPerNodeMax + 10; sent += 1)
    bus.publish(nodeFrame("n1", "m1", `x${sent % 7}`), frames[sent % frames.length] as Uint8Array);
  await run(10);
  t.deepEqual(flooding, ["n1"]);
});

test("FL1: a sender that does not wait for its receiver is noticed at the first byte beyond the window", (t) => {
  const heard: string[] = [];
  const inbox = new Inbox({
    messageBytesMax: 4e6,
    onMessage: () => heard.push("message"),
    onTooLarge: () => heard.push("too large"),
    onOverrun: () => heard.push("overrun"),
    onTaken: () => heard.push("taken"),
  });
  inbox.pause();
  const part = LinkFrame.create({ hasData: true, data: new Uint8Array(windowBytes / 8 - 64) });
  for (let sent = 0; sent < 8; sent += 1) inbox.receive(part);
  t.deepEqual(heard, []);
  inbox.receive(LinkFrame.create({ hasData: true }));
  inbox.resume();
  inbox.receive(part);
  t.deepEqual(heard, ["overrun"]);
});

test("NL2: a node's links and calls are limited, and others are served", async (t) => {
  const { dial, open, run, sinks } = world();
  const first = await open();
  let closed = 0;
  first.onClosed(() => (closed += 1));
  const others = Array.from({ length: linksPerNodeMax - 1 }, () => dial());
  await run(10);
  await Promise.all(others);
  t.is(closed, 0);
  const last = await open();
  await run(10);
  t.is(closed, 1);
  const receivers = Array.from({ length: callsPerLinkMax + 1 }, receiver);
  for (const each of receivers) last.serverStream(Many, text("go"), each);
  await run(100);
  t.is(sinks.length, callsPerLinkMax);
  t.like(receivers.at(-1)?.ends, { length: 1, 0: { code: Status.RESOURCE_EXHAUSTED } });
  const other = await open("n2");
  const answered = other.unary(Echo, text("who"));
  await run(10);
  t.is((await answered).text, "n2");
});

test("garbage, frames of no link and frames for calls that do not exist have no effect", async (t) => {
  const { bus, deliver, echoed, open, run, state } = world();
  const link = await open();
  const hello = state.wire[0] as (typeof state.wire)[number];
  deliver(hello.subject, new Uint8Array([255, 255, 255]), 0);
  deliver("muster.v1.node.n1.up.m1", hello.data, 0);
  const forged = { life: "forged", number: 2, call: 1, path: Echo.path, hasData: true };
  for (const kind of Object.values(LinkFrame_Kind)) {
    const frame = LinkFrame.create({ ...forged, kind });
    bus.publish(hello.subject, LinkFrame.encode(frame));
    bus.publish(nodeFrame("n1", "m1", "other"), LinkFrame.encode(frame));
  }
  await run(100);
  t.deepEqual(echoed, []);
  const answered = link.unary(Echo, text("fine"));
  await run(10);
  t.is((await answered).text, "fine");
});

test("a second message of a unary call ends it without running its handler again", async (t) => {
  const { bus, echoed, open, run, state } = world();
  await open();
  const welcome = state.wire.find(({ frame }) => frame.kind === LinkFrame_Kind.WELCOME);
  const life = welcome?.frame.life ?? "";
  const up = (state.wire[0] as (typeof state.wire)[number]).subject;
  const data = LinkFrame.encode(text("never"));
  const call = { life, call: 1, hasData: true, data };
  const { CALL, END, MESSAGE } = LinkFrame_Kind;
  bus.publish(up, LinkFrame.encode(LinkFrame.create({ ...call, number: 2, kind: CALL, path: Echo.path })));
  bus.publish(up, LinkFrame.encode(LinkFrame.create({ ...call, number: 3, kind: MESSAGE })));
  await run(10);
  t.deepEqual(echoed, ["never"]);
  t.like(state.wire.find(({ frame }) => frame.kind === END)?.frame, { call: 1, code: Status.UNIMPLEMENTED });
});
