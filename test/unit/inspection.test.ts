// The live feed at a manager: its own, other managers' and those of agents, with everything that can go wrong in between.
import test from "ava";
import { listenersMax as agentListenersMax } from "../../actors/agent/inspection.ts";
import { listenersMax } from "../../actors/inspection/inspection.ts";
import { leasesMax } from "../../actors/inspection/leases.ts";
import { leaseTimes } from "../../machines/inspection/lease.machine.ts";
import { selectionNamesMax } from "../../machines/inspection/selection.ts";
import {
  ActorSelection,
  FeedLease,
  FeedLeaseReply,
  InspectionAnswer,
  Node,
  NodeQuestion,
  WatchActorsRequest,
} from "../../proto/gen/messages.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import * as subjects from "../../runtime/subjects.ts";
import { answersTo, inspectionWorld as world } from "../support/inspection-world.ts";
import { refusalOf } from "../support/manager.ts";

test("a listener sees its manager, the other managers, and an agent at another manager: a snapshot, then steps", async (t) => {
  const { agentFeed, connect, one, run, two, watch } = world();
  connect(two);
  const { stream, view } = watch(one);
  await run();
  t.deepEqual(view(), {
    "manager-m1": { "ledger/m1": "following" },
    "manager-m2": { "ledger/m2": "following" },
    "node-n1": { "task/t1": "running" },
  });
  one.feed.move("ledger/m1", "leading");
  two.feed.move("session/n1", "serving");
  agentFeed.move("task/t1", "complete");
  await run();
  t.deepEqual(view(), {
    "manager-m1": { "ledger/m1": "leading" },
    "manager-m2": { "ledger/m2": "following", "session/n1": "serving" },
    "node-n1": { "task/t1": "complete" },
  });
  for (const process of ["manager-m1", "manager-m2", "node-n1"]) {
    const numbers = stream.messages.filter((each) => each.process === process).map(({ sequence }) => sequence);
    t.deepEqual(
      numbers,
      numbers.map((_, at) => at + 1),
      "no gap",
    );
  }
});

test("a selection restricts the processes, and a stock engine's node is lost with a reason only when it is chosen", async (t) => {
  const { connect, one, run, two, watch } = world();
  connect(two);
  const managersOnly = watch(one, { managersOnly: true });
  const chosen = watch(one, { processes: ["node-n1", "node-stock"], actors: ["task/"] });
  await run(10_000);
  t.deepEqual(Object.keys(managersOnly.view()), ["manager-m1", "manager-m2"]);
  t.deepEqual(chosen.view()["node-n1"], { "task/t1": "running" });
  t.regex(chosen.lost("node-stock"), /is not an agent of Muster/);
  t.is(Object.keys(chosen.view()).length, 2);
});

test("a selection that can match nothing is INVALID_ARGUMENT, in words", async (t) => {
  const { one, watch } = world();
  for (const [selection, words] of [
    [{ processes: ["m1"] }, /'m1' is not the name of a process/],
    [{ processes: ["node-nobody"] }, /the cluster has no node 'nobody'/],
    [{ actors: [""] }, /is empty/],
    [{ actors: ["a b"] }, /is not the id of an actor/],
    [{ actors: ["x".repeat(300)] }, /longer than 256/],
    [{ actors: Array.from({ length: selectionNamesMax + 1 }, (_, at) => `a/${at}`) }, /too many names/],
  ] as const) {
    const refusal = await refusalOf(() => watch(one, selection));
    t.is(refusal?.code, Status.INVALID_ARGUMENT);
    t.regex(refusal?.message ?? "", words);
  }
});

test("FL3: a listener that leaves costs nothing at once, and one that vanishes nothing after its lease", async (t) => {
  const { agentFeed, bus, connect, one, run, two, watch } = world();
  connect(two);
  const { leave } = watch(one);
  await run();
  t.deepEqual([one.feed.listeners, two.feed.listeners, agentFeed.listeners], [1, 1, 1]);
  leave();
  await run();
  t.deepEqual([one.feed.listeners, two.feed.listeners, agentFeed.listeners], [0, 0, 0]);

  watch(one);
  await run();
  t.is(two.feed.listeners, 1);
  bus.loses = (subject) => subject === subjects.feedLeased("m2");
  await run(leaseTimes.lastsMs - 3_000);
  t.is(two.feed.listeners, 1, "one renewal may be lost");
  await run(5_000);
  t.deepEqual([two.feed.listeners, agentFeed.listeners], [0, 0]);
});

test("FL3: a lease lasts no longer than a limit, whatever its message says", async (t) => {
  const { bus, run, two } = world();
  const request = FeedLease.create({ listener: "l", home: "m1", lastsMs: 2 ** 31, selection: ActorSelection.create() });
  await bus.request(subjects.feedLeased("m2"), FeedLease.encode(request), { timeoutMs: 1_000 });
  t.is(two.feed.listeners, 1);
  await run(4 * leaseTimes.lastsMs + 2_000);
  t.is(two.feed.listeners, 0);
});

test("FP1: lost messages are noticed, and answered with a snapshot; nothing builds on what is missing", async (t) => {
  const { agentFeed, bus, connect, one, run, two, watch } = world();
  connect(two);
  const { view } = watch(one);
  await run();
  bus.loses = (subject) => subject.startsWith("muster.v1.inspect.");
  two.feed.move("ledger/m2", "leading");
  agentFeed.move("task/t1", "failed");
  await run();
  bus.loses = () => false;
  two.feed.move("session/n1", "serving");
  agentFeed.move("task/t2", "running");
  await run();
  t.deepEqual(view()["manager-m2"], { "ledger/m2": "leading", "session/n1": "serving" });
  t.deepEqual(view()["node-n1"], { "task/t1": "failed", "task/t2": "running" });
});

test("FP1: lost messages at the end of a feed are noticed by the next renewals", async (t) => {
  const { agentFeed, bus, connect, one, run, two, watch } = world();
  connect(two);
  const { view } = watch(one);
  await run();
  bus.loses = (subject) => subject.startsWith("muster.v1.inspect.");
  two.feed.move("ledger/m2", "leading");
  agentFeed.move("task/t1", "failed");
  await run();
  bus.loses = () => false;
  await run(3 * leaseTimes.renewalMs);
  t.deepEqual(view()["manager-m2"], { "ledger/m2": "leading" });
  t.deepEqual(view()["node-n1"], { "task/t1": "failed" });
});

test("FP1: the loss of more than a window is made up for, and the feed goes on", async (t) => {
  const { agentFeed, bus, connect, one, run, two, watch } = world();
  connect(two);
  const { view } = watch(one);
  await run();
  bus.loses = (subject) => subject.startsWith("muster.v1.inspect.");
  for (let round = 0; round < 40; round += 1) {
    two.feed.move("actor/busy", `${round}`, "x".repeat(64 * 1024));
    await run(10);
  }
  t.true(two.feed.dropped > 10, "the window is shut");
  bus.loses = () => false;
  await run(3 * leaseTimes.renewalMs);
  two.feed.move("ledger/m2", "leading");
  agentFeed.move("task/t1", "complete");
  await run();
  t.deepEqual(view()["manager-m2"], { "actor/busy": "39", "ledger/m2": "leading" });
  t.deepEqual(view()["node-n1"], { "task/t1": "complete" });
});

test("a gap is answered with one question, however long the snapshot takes", async (t) => {
  const { bus, one, run, two, watch } = world();
  watch(one);
  // Between two renewals.
  await run(2.5 * leaseTimes.renewalMs);
  let leases = 0;
  bus.loses = (subject) => {
    if (subject === subjects.feedLeased("m2")) leases += 1;
    return subject.startsWith("muster.v1.inspect.");
  };
  two.feed.move("ledger/m2", "leading");
  await run();
  bus.loses = (subject) => {
    if (subject === subjects.feedLeased("m2")) leases += 1;
    return leases > 0 && subject.startsWith("muster.v1.inspect.");
  };
  two.feed.move("ledger/m2", "following");
  await run(1_000);
  t.is(leases, 1);
});

test("WC1: a client that does not read makes its sources drop steps, here, at other managers and at agents", async (t) => {
  const { agentFeed, connect, one, run, two, watch } = world();
  const { questions } = connect(two);
  const { stream, view } = watch(one);
  await run();
  stream.buffered = 1e9;
  const context = "x".repeat(64 * 1024);
  const before = stream.messages.length;
  for (let round = 0; round < 100; round += 1) {
    for (const feed of [one.feed, two.feed, agentFeed]) feed.move("actor/busy", `${round}`, context);
    await run(20);
  }
  const bytes = stream.messages.slice(before).reduce((sum, { steps }) => sum + (steps[0]?.context.length ?? 0), 0);
  t.true(bytes < 3 * 1024 * 1024, `${bytes} bytes of 19 MB arrived: a window, and a message or two`);
  for (const feed of [one.feed, two.feed, agentFeed])
    t.true(feed.dropped > 70, `${feed.process} left out ${feed.dropped}`);
  t.true(
    questions.some(({ pace }) => pace === 1),
    "the agent is told to wait",
  );
  stream.buffered = 0;
  await run(3_000);
  for (const feed of [one.feed, two.feed, agentFeed]) feed.move("actor/busy", "last");
  await run();
  for (const process of ["manager-m1", "manager-m2", "node-n1"])
    t.is((view()[process] as Record<string, string>)["actor/busy"], "last", process);
});

test("a fast client gets more than a window of another manager's feed", async (t) => {
  const { one, run, two, watch } = world();
  const { stream } = watch(one);
  await run();
  for (let round = 0; round < 100; round += 1) {
    two.feed.move("actor/busy", `${round}`, "x".repeat(64 * 1024));
    await run(10);
  }
  t.is(two.feed.dropped, 0);
  t.is(stream.messages.filter(({ steps }) => steps.length > 0).length, 100);
});

test("FL1: a manager that dies is lost, with its agents; the feed resumes with a snapshot when it is back", async (t) => {
  const { agentFeed, bus, connect, one, run, two, watch } = world();
  const agent = connect(two);
  const { lost, stream, view } = watch(one);
  await run();
  two.service.stop();
  bus.loses = (subject) => subject.startsWith("muster.v1.inspect.");
  await run(leaseTimes.renewalMs + 100);
  t.regex(lost("manager-m2"), /no process of the manager is on the bus/);
  t.regex(lost("node-n1"), /manager m2, which the node was connected to/);
  t.is(stream.messages.filter(({ lost }) => lost !== "").length, 2, "told once");
  bus.loses = () => false;
  agent.cut();
  connect(one);
  await run();
  t.deepEqual(view()["node-n1"], { "task/t1": "running" });
  t.is(agentFeed.listeners, 1);
  await run(10_000);
  t.is(stream.messages.filter(({ lost }) => lost !== "").length, 2, "told once");
});

test("a manager that does not answer is lost after seconds, and one that begins anew starts with a snapshot", async (t) => {
  const { bus, one, run, two, watch } = world();
  const { lost, view } = watch(one);
  await run();
  bus.loses = (subject) => subject === subjects.feedLeased("m2") || subject.startsWith("muster.v1.inspect.");
  await run(leaseTimes.renewalMs + leaseTimes.missedMax * leaseTimes.askTimeoutMs + leaseTimes.lastsMs);
  t.regex(lost("manager-m2"), /did not answer for 4 s/);
  two.feed.states.set("ledger/m2", "leading");
  bus.loses = () => false;
  await run(2 * leaseTimes.renewalMs);
  t.deepEqual(view()["manager-m2"], { "ledger/m2": "leading" });
});

test("NF2: an agent that comes back is followed, although the messages of its loss and return were lost", async (t) => {
  const { agentFeed, bus, connect, one, run, two, watch } = world();
  const agent = connect(two);
  const { view } = watch(one);
  await run();
  for (let step = 0; step < 20; step += 1) agentFeed.move("task/t1", `${step}`);
  await run();
  bus.loses = (subject) => subject.startsWith("muster.v1.inspect.");
  agent.cut();
  agentFeed.states.set("task/t1", "shutdown");
  connect(two);
  await run();
  bus.loses = () => false;
  await run(3 * leaseTimes.renewalMs);
  t.deepEqual(view()["node-n1"], { "task/t1": "shutdown" });
});

test("a manager that restarts faster than its loss is noticed begins anew, and what it no longer feeds is lost", async (t) => {
  const { connect, one, run, two, watch } = world();
  const agent = connect(two);
  const { lost, view } = watch(one);
  await run();
  two.service.stop();
  agent.cut();
  two.feed.states.set("ledger/m2", "recovering");
  two.start("second life");
  await run(2 * leaseTimes.renewalMs);
  t.deepEqual(view()["manager-m2"], { "ledger/m2": "recovering" });
  t.regex(lost("node-n1"), /manager m2, which the node was connected to: the manager began its feed anew/);
});

test("AI2: an agent whose stream the manager refuses feeds it no longer, and asked again begins with a snapshot", async (t) => {
  const { agentFeed, connect, one, run } = world();
  connect(one);
  const question = NodeQuestion.create({ callId: "c1", inspect: WatchActorsRequest.create() });
  let answers: InspectionAnswer[] = [];
  let isWanted = true;
  const inspection = async (answer: InspectionAnswer) => answers.push(answer) > 0 && isWanted;
  t.true(one.nodes.ask("n1", question, { inspection }));
  await run();
  t.is(agentFeed.listeners, 1);
  isWanted = false;
  agentFeed.move("task/t1", "failed");
  await run();
  t.is(agentFeed.listeners, 0, "it has stopped");
  answers = [];
  await run(5_000);
  t.deepEqual(answers, [], "not even to say that it is there");
  isWanted = true;
  agentFeed.move("task/t1", "shutdown");
  t.true(one.nodes.ask("n1", question, { inspection }));
  await run();
  t.is(agentFeed.listeners, 1);
  t.like(answers[0]?.feed, { sequence: 1, snapshot: { begins: true } });
});

test("an agent that moves to another manager, or comes back to the same, is followed there", async (t) => {
  const { agentFeed, connect, one, run, two, watch } = world();
  const first = connect(two);
  const { stream, view } = watch(one);
  await run();
  first.cut();
  await run();
  t.is(view()["node-n1"], "the node's agent has lost its connection");
  agentFeed.states.set("task/t1", "shutdown");
  const second = connect(two);
  await run();
  t.deepEqual(view()["node-n1"], { "task/t1": "shutdown" });
  // The manager that it left does not know yet.
  agentFeed.states.set("task/t2", "running");
  connect(one);
  await run(2_000);
  t.is(agentFeed.listeners, 1, "FO1");
  second.cut();
  await run(10_000);
  t.deepEqual(view()["node-n1"], { "task/t1": "shutdown", "task/t2": "running" });
  t.is(stream.messages.filter(({ lost }) => lost !== "").length, 1);
});

test("an agent that does not know the question is lost with a reason; so is one without a feed", async (t) => {
  const { connect, one, run, two, watch } = world();
  connect(two, { hears: false });
  for (const each of [one, two]) each.seed("node", Node.create({ id: "n2" }));
  connect(one, { nodeId: "n2", feed: null });
  const { lost, stream, view } = watch(one);
  await run(40_000);
  t.regex(lost("node-n1"), /its version may not have a feed/);
  t.is(view()["node-n2"], "the node's agent has no feed yet");
  t.is(stream.messages.filter(({ lost }) => lost !== "").length, 2, "told once");
});

test("NF: an agent that falls silent is lost, and asked again", async (t) => {
  const { agentFeed, connect, one, run, two, watch } = world();
  const peer = { identity: { nodeId: "n1", role: "swarm-worker", organization: "c" }, local: false } as const;
  const silent = connect(two, { hears: false });
  const { lost, view } = watch(one);
  await run();
  const { callId = "" } = silent.questions[0] ?? {};
  const answers = answersTo(two.nodes, peer.identity.nodeId);
  agentFeed.listen(ActorSelection.create(), {
    ready: () => true,
    onFeed: (feed) => answers.write(InspectionAnswer.create({ callId, feed })),
  });
  await run();
  t.deepEqual(view()["node-n1"], { "task/t1": "running" }, "NF1: it names another process");
  await run(8_000);
  t.regex(lost("node-n1"), /has been silent for 7 s/);
  await run(10_000);
  t.is(silent.questions.filter(({ inspect }) => inspect !== null).length, 2);
});

test("NF3: an agent that does not wait is lost, and asked again once there is room", async (t) => {
  const { agentFeed, connect, run, two, watch } = world();
  const { questions } = connect(two, { hears: false });
  const { lost, stream } = watch(two, { processes: ["node-n1"] });
  await run();
  const { callId = "" } = questions[0] ?? {};
  const answers = answersTo(two.nodes, "n1");
  agentFeed.listen(ActorSelection.create(), {
    ready: () => true,
    onFeed: (feed) => answers.write(InspectionAnswer.create({ callId, feed })),
  });
  await run();
  stream.buffered = 1e9;
  for (let round = 0; round < 100; round += 1) {
    agentFeed.move("actor/busy", `${round}`, "x".repeat(64 * 1024));
    await run(10);
  }
  t.regex(lost("node-n1"), /does not wait/);
  const bytes = stream.messages.reduce((sum, { steps }) => sum + (steps[0]?.context.length ?? 0), 0);
  t.true(bytes < 4.2 * 1024 * 1024, `${bytes} bytes of 6.5 MB arrived`);
  const asked = () => questions.filter(({ inspect }) => inspect !== null).length;
  await run(25_000);
  t.is(asked(), 1, "there is no room");
  stream.buffered = 0;
  await run(10_000);
  t.is(asked(), 2);
});

test("a call that is cancelled is over, although the agent never answered", async (t) => {
  const { connect, one, run, two, watch } = world();
  const { questions } = connect(two, { hears: false });
  const { leave } = watch(one);
  await run();
  const { callId = "" } = questions[0] ?? {};
  t.true(two.nodes.isInProgress("n1", callId));
  leave();
  await run();
  t.true(questions.some((each) => each.cancel && each.callId === callId));
  t.false(two.nodes.isInProgress("n1", callId));
});

test("NC1: a stream whose answers change the call is refused, and only its own call ends", async (t) => {
  const { connect, two } = world();
  connect(two, { hears: false });
  const heard: string[] = [];
  for (const callId of ["c1", "c2"]) {
    const inspection = async (answer: InspectionAnswer) => heard.push(answer.callId) > 0;
    two.nodes.ask("n1", NodeQuestion.create({ callId }), { inspection });
  }
  const answers = answersTo(two.nodes, "n1");
  for (const callId of ["c1", "c2"]) answers.write(InspectionAnswer.create({ callId }));
  const refusal = await refusalOf(async () => answers.finish());
  t.is(refusal?.code, Status.INVALID_ARGUMENT);
  t.deepEqual(heard, ["c1"]);
  t.deepEqual([two.nodes.isInProgress("n1", "c1"), two.nodes.isInProgress("n1", "c2")], [false, true]);
});

test("listeners beyond a limit are refused, each with a reason", async (t) => {
  const { agentFeed, bus, connect, one, run, two, watch } = world();
  for (let number = 0; number < listenersMax; number += 1) watch(one, { processes: ["manager-m1"] });
  const refusal = await refusalOf(() => watch(one));
  t.is(refusal?.code, Status.RESOURCE_EXHAUSTED);
  t.regex(refusal?.message ?? "", /already feeds 64 listeners/);

  const lease = async (listener: string) => {
    const request = FeedLease.create({ listener, home: "m1", lastsMs: 60_000, selection: ActorSelection.create() });
    const outcome = await bus.request(subjects.feedLeased("m2"), FeedLease.encode(request), { timeoutMs: 1_000 });
    return outcome.kind === "reply" ? FeedLeaseReply.decode(outcome.data) : null;
  };
  for (let number = 0; number < leasesMax; number += 1) t.is((await lease(`l${number}`))?.refused, "");
  t.regex((await lease("one more"))?.refused ?? "", /already feeds 256 listeners/);
  const { view } = watch(two, { processes: ["manager-m2"] });
  await run();
  t.deepEqual(Object.keys(view()), ["manager-m2"], "its own listeners have their own limit");

  const agent = connect(two);
  await run(1_000);
  t.is(agent.questions.filter(({ inspect }) => inspect !== null).length, leasesMax);
  t.is(agentFeed.listeners, agentListenersMax);
});

test("a manager that stops ends its listeners' streams", async (t) => {
  const { one, run, watch } = world();
  const { stream } = watch(one);
  await run();
  one.service.stop();
  t.is(stream.ended?.code, Status.UNAVAILABLE);
  t.is(one.feed.listeners, 0);
});
