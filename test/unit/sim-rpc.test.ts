import test from "ava";
import {
  AssignmentsMessage,
  AssignmentsRequest,
  DispatcherService,
  HeartbeatRequest,
  HeartbeatResponse,
  LogBrokerService,
  PublishLogsMessage,
  PublishLogsResponse,
} from "../../proto/gen/messages.ts";
import { RpcError, Status, type CallContext, type Peer, type Sink } from "../../runtime/ports/rpc.ts";
import { Simulation } from "../../runtime/sim/simulation.ts";

const identity = { nodeId: "n1", role: "swarm-worker", organization: "c1" } as const;
const { Heartbeat, Assignments } = DispatcherService.methods;

function world(seed: number) {
  const simulation = new Simulation({ seed });
  const sinks: Sink<AssignmentsMessage>[] = [];
  const aborted: string[] = [];
  const published: string[] = [];
  const server = simulation.process("server", (ports) => {
    ports.rpc.serve("server:2377", [
      {
        service: DispatcherService,
        handlers: {
          Heartbeat: (request: HeartbeatRequest, call: CallContext) => {
            if (request.sessionId === "bad")
              throw new RpcError(Status.NOT_FOUND, `no session for ${call.peer.identity?.nodeId}`);
            if (request.sessionId === "slow") return new Promise(() => {});
            return HeartbeatResponse.create();
          },
          Assignments: (_request: AssignmentsRequest, sink: Sink<AssignmentsMessage>, call: CallContext) => {
            sinks.push(sink);
            call.signal.addEventListener("abort", () => aborted.push("assignments"));
            sink.write(AssignmentsMessage.create({ resultsIn: "1" }));
          },
        },
      },
      {
        service: LogBrokerService,
        handlers: {
          PublishLogs: async (requests: AsyncIterable<PublishLogsMessage>) => {
            for await (const request of requests) published.push(request.subscriptionId);
            return PublishLogsResponse.create();
          },
        },
      },
    ]);
  });
  server.start();
  const client = simulation.ports("client");
  return {
    simulation,
    server,
    client,
    channel: client.rpc.dial("server:2377", identity),
    sinks,
    aborted,
    published,
    clock: simulation.clock,
  };
}

test("a call returns its answer, its handler's error or its deadline", async (t) => {
  const { channel, clock } = world(1);
  const call = (sessionId: string) =>
    channel.unary(Heartbeat, HeartbeatRequest.create({ sessionId }), { timeoutMs: 1_000 });
  const asked = Promise.allSettled([call("good"), call("bad"), call("slow")]);
  await clock.run({ untilMs: clock.now() + 2_000 });
  const [good, bad, slow] = await asked;
  t.is(good.status, "fulfilled");
  t.like(bad, { reason: { code: Status.NOT_FOUND, message: "no session for n1" } });
  t.like(slow, { reason: { code: Status.DEADLINE_EXCEEDED } });
});

test("a unary call takes one packet each way, and a handler that asks late learns that its caller is gone", async (t) => {
  const simulation = new Simulation({ seed: 8 });
  const { clock } = simulation;
  const gone: boolean[] = [];
  const sent: string[] = [];
  const server = simulation.process("server", ({ clock: own, rpc }) => {
    const Heartbeat = async ({ sessionId }: HeartbeatRequest, call: CallContext) => {
      if (sessionId === "slow") await new Promise<void>((resolve) => own.after(2_000, resolve));
      gone.push(call.signal.aborted);
      return HeartbeatResponse.create();
    };
    const gate = {
      admit: (peer: Peer) => peer,
      opened: () => ({ closed: () => {} }),
      sends: () => sent.push("answer"),
    };
    rpc.serve("server:2377", [{ service: DispatcherService, handlers: { Heartbeat } }], undefined, gate);
  });
  server.start();
  const channel = await Promise.all([
    simulation.ports("client").rpc.connect("server:2377", identity),
    clock.run({ untilMs: clock.now() + 100 }),
  ]).then(([connected]) => connected);
  await clock.run({ untilMs: clock.now() + 10_000 });
  const before = clock.steps;
  const good = channel.unary(Heartbeat, HeartbeatRequest.create({ sessionId: "good" }), { timeoutMs: 1_000 });
  await clock.run({ untilMs: clock.now() + 3_000 });
  await good;
  t.is(clock.steps - before, 2, "the call arrives, and its answer; both timers were cleared");
  const slow = channel.unary(Heartbeat, HeartbeatRequest.create({ sessionId: "slow" }), { timeoutMs: 1_000 });
  await Promise.all([t.throwsAsync(slow), clock.run({ untilMs: clock.now() + 3_000 })]);
  t.deepEqual([gone, sent], [[false, true], ["answer"]], "nothing is sent to a caller that is gone");
});

test("a stream carries messages until it ends, and none after it was cancelled", async (t) => {
  const { channel, sinks, aborted, clock } = world(2);
  const seen: string[] = [];
  const receiver = {
    onMessage: (message: AssignmentsMessage) => seen.push(message.resultsIn),
    onEnd: () => seen.push("end"),
  };
  channel.serverStream(Assignments, AssignmentsRequest.create(), receiver);
  const second = channel.serverStream(Assignments, AssignmentsRequest.create(), {
    ...receiver,
    onEnd: () => seen.push("never"),
  });
  await clock.run({ untilMs: clock.now() + 100 });
  t.deepEqual(seen, ["1", "1"]);
  second.cancel();
  sinks[0]?.write(AssignmentsMessage.create({ resultsIn: "2" }));
  sinks[0]?.end();
  await clock.run({ untilMs: clock.now() + 100 });
  t.deepEqual(seen, ["1", "1", "2", "end"]);
  t.deepEqual(aborted, ["assignments"]);
});

test("a client's stream is read to its end", async (t) => {
  const { channel, published, clock } = world(3);
  const stream = channel.clientStream(LogBrokerService.methods.PublishLogs);
  stream.write(PublishLogsMessage.create({ subscriptionId: "a" }));
  stream.write(PublishLogsMessage.create({ subscriptionId: "b" }));
  const finished = stream.finish();
  await clock.run({ untilMs: clock.now() + 100 });
  await finished;
  t.deepEqual(published, ["a", "b"]);
});

test("a crashed server breaks its connections, and accepts no new ones until it is back", async (t) => {
  const { server, client, channel, clock } = world(4);
  const seen: (Status | null)[] = [];
  let closed = 0;
  channel.onClosed(() => (closed += 1));
  channel.serverStream(Assignments, AssignmentsRequest.create(), {
    onMessage: () => {},
    onEnd: (error) => seen.push(error?.code ?? null),
  });
  await clock.run({ untilMs: clock.now() + 100 });
  server.crash();
  await clock.run({ untilMs: clock.now() + 100 });
  t.deepEqual([seen, closed], [[Status.UNAVAILABLE], 1]);
  const heartbeat = () =>
    client.rpc
      .dial("server:2377", identity)
      .unary(Heartbeat, HeartbeatRequest.create())
      .then(
        () => "served",
        (error: RpcError) => error.code,
      );
  const refused = heartbeat();
  await clock.run({ untilMs: clock.now() + 100 });
  t.is(await refused, Status.UNAVAILABLE);
  server.start();
  const served = heartbeat();
  await clock.run({ untilMs: clock.now() + 100 });
  t.is(await served, "served");
});

test("with the direction to the client cut, the server's messages wait until it heals", async (t) => {
  const { simulation, channel, sinks, clock } = world(5);
  const seen: string[] = [];
  channel.serverStream(Assignments, AssignmentsRequest.create(), {
    onMessage: (message) => seen.push(message.resultsIn),
    onEnd: () => {},
  });
  await clock.run({ untilMs: clock.now() + 100 });
  simulation.network.cut("server", "client");
  sinks[0]?.write(AssignmentsMessage.create({ resultsIn: "2" }));
  sinks[0]?.write(AssignmentsMessage.create({ resultsIn: "3" }));
  await clock.run({ untilMs: clock.now() + 1_000 });
  t.deepEqual(seen, ["1"]);
  t.true((sinks[0]?.bufferedBytes() ?? 0) > 0);
  simulation.network.healAll();
  await clock.run({ untilMs: clock.now() + 100 });
  t.deepEqual(seen, ["1", "2", "3"]);
});

test("a silent peer ends the connection once the keepalive has passed", async (t) => {
  const { simulation, channel, aborted, clock } = world(6);
  const ends: (Status | null)[] = [];
  channel.serverStream(Assignments, AssignmentsRequest.create(), {
    onMessage: () => {},
    onEnd: (error) => ends.push(error?.code ?? null),
  });
  await clock.run({ untilMs: clock.now() + 100 });
  simulation.network.cut("client", "server");
  await clock.run({ untilMs: clock.now() + 15_000 });
  t.deepEqual([ends, aborted], [[Status.UNAVAILABLE], ["assignments"]]);
});
