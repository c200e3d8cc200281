// Calls of nodes over a real nats-server that lets each node use its own subjects alone.
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { connect as connectNats } from "nats";
import { DispatcherService, HeartbeatRequest, HeartbeatResponse, SessionMessage } from "../../proto/gen/messages.ts";
import { openNodeLink } from "../../runtime/calls/node-link.ts";
import { serveNodeLinks } from "../../runtime/calls/node-links.ts";
import type { Bus } from "../../runtime/ports/index.ts";
import type { CallContext, Sink } from "../../runtime/ports/rpc.ts";
import { frameForNode, nodeFrame } from "../../runtime/subjects.ts";
import { SystemClock } from "../../runtime/system/clock.ts";
import { SystemRandom } from "../../runtime/system/random.ts";
import { freePort } from "../fixtures/ports.ts";
import { currentNats, temporaryFolder, testTelemetry, until } from "../fixtures/nats-server.ts";

/** The default of nats-server. */
const payloadBytesMax = 1024 * 1024;
const { Heartbeat, Session } = DispatcherService.methods;

/** A nats-server whose users are `manager`, `n1` and `n2`. */
async function nodesServer(t: ExecutionContext) {
  const folder = await temporaryFolder(t);
  const port = await freePort();
  const nodes = ["n1", "n2"].map(
    (id) =>
      `{ user: ${id}, password: x, permissions: { publish: "muster.v1.node.${id}.>", subscribe: "muster.v1.node.${id}.>" } }`,
  );
  const config = `listen: "127.0.0.1:${port}"
authorization: { users: [ { user: manager, password: x }, ${nodes.join(", ")} ] }
`;
  const file = join(folder, "nats.conf");
  writeFileSync(file, config);
  const server = spawn(currentNats, ["-c", file], { stdio: "ignore" });
  t.teardown(() => server.kill("SIGKILL"));
  return async (user: string): Promise<Pick<Bus, "publish" | "subscribe">> => {
    const connection = await connectNats({ port, user, pass: "x", waitOnFirstConnect: true });
    t.teardown(() => connection.close());
    return {
      publish: (subject, data) => connection.publish(subject, data),
      subscribe: (pattern, handler) =>
        connection.subscribe(pattern, {
          callback: (error, { data, subject }) => {
            if (error === null) handler({ subject, data, headers: {}, respond: () => {} });
          },
        }),
    };
  };
}

test("calls work over a real nats-server, and a node can neither call as another nor read its answers", async (t) => {
  const connect = await nodesServer(t);
  const [clock, random] = [new SystemClock(), new SystemRandom()];
  const manager = await connect("manager");
  const callers: string[] = [];
  const served = serveNodeLinks({
    clock,
    log: (await testTelemetry()).log,
    random,
    bus: manager,
    managerId: "m1",
    services: [
      {
        service: DispatcherService,
        handlers: {
          Heartbeat: (_request: HeartbeatRequest, { peer }: CallContext) => {
            callers.push(peer.identity?.nodeId ?? "");
            return HeartbeatResponse.create();
          },
          Session: (_request: unknown, sink: Sink<SessionMessage>) => {
            for (let part = 1; part <= 8; part += 1)
              sink.write(SessionMessage.create({ sessionId: `s${part}`, RootCA: new Uint8Array(300_000).fill(part) }));
            sink.end();
          },
        },
      },
    ],
    gate: null,
    peerOf: (nodeId) => ({
      identity: { nodeId, role: "swarm-worker", organization: "c1" },
      local: false,
      address: "",
    }),
    payloadBytesMax,
    requestBytesMax: () => 64 * 1024,
  });
  t.teardown(() => served.close());
  const n1 = await connect("n1");
  const link = await openNodeLink({ clock, random, bus: n1, nodeId: "n1", managerId: "m1", payloadBytesMax });
  t.teardown(() => link.close());
  await link.unary(Heartbeat, HeartbeatRequest.create({ sessionId: "s" }), { timeoutMs: 30_000 });
  t.deepEqual(callers, ["n1"]);

  // A malicious node listens to the other's answers, and calls in its name.
  const n2 = await connect("n2");
  const overheard: string[] = [];
  n2.subscribe("muster.v1.node.n1.>", ({ subject }) => overheard.push(subject));
  n2.subscribe("muster.v1.>", ({ subject }) => overheard.push(subject));
  let isDone = false;
  const received: SessionMessage[] = [];
  link.serverStream(Session, Session.request.create(), {
    onMessage: (message) => received.push(message),
    onEnd: (error) => {
      t.is(error, null);
      isDone = true;
    },
  });
  const forged = openNodeLink({ clock, random, bus: n2, nodeId: "n1", managerId: "m1", payloadBytesMax });
  n2.publish(nodeFrame("n1", "m1", "forged"), new Uint8Array([1]));
  n2.publish(frameForNode("n1", "forged"), new Uint8Array([1]));
  await t.throwsAsync(forged, { message: /does not answer/ });
  await until("the end of the stream", () => isDone);
  t.deepEqual(
    received.map(({ sessionId, RootCA }) => [sessionId, RootCA.length, RootCA[0], RootCA.at(-1)]),
    Array.from({ length: 8 }, (_, at) => [`s${at + 1}`, 300_000, at + 1, at + 1]),
  );
  t.deepEqual(overheard, []);
  t.deepEqual(callers, ["n1"]);
});
