import test, { type ExecutionContext } from "ava";
import { createDispatcher } from "../../actors/dispatcher/dispatcher.ts";
import {
  bySeniority,
  eldest,
  gossipLimits,
  introducingManagerWeight,
  seedsFor,
} from "../../machines/dispatcher/gossip.machine.ts";
import { managerWeight } from "../../machines/dispatcher/session-message.ts";
import {
  EngineDescription,
  HeartbeatRequest,
  Meta,
  Node,
  NodeDescription,
  NodeSpec,
  NodeStatus,
  NodeStatus_State,
  PluginDescription,
  SessionRequest,
  Timestamp,
  type SessionMessage,
} from "../../proto/gen/messages.ts";
import { call, collectedStream, testManager } from "../support/manager.ts";

const engine = NodeDescription.create({
  engine: EngineDescription.create({ plugins: [PluginDescription.create({ type: "Network", name: "overlay" })] }),
});
const nodeMade = (id: string, seconds: number, addr: string, fields: Partial<Node> = {}): Node =>
  Node.create({
    id,
    meta: Meta.create({ createdAt: Timestamp.create({ seconds }) }),
    spec: NodeSpec.create({}),
    description: engine,
    status: NodeStatus.create({ state: NodeStatus_State.READY, addr }),
    ...fields,
  });
const addresses = (node: Node, elders: readonly Node[], known: readonly string[] = []): string[] =>
  seedsFor(node, elders, new Set(known)).map(({ peer }) => peer?.addr ?? "");

test("an engine is introduced to two of the oldest engines that are up, never to itself or to a host it knows", (t) => {
  const nodes = [
    nodeMade("d", 40, "192.0.2.4"),
    nodeMade("a", 10, "192.0.2.1"),
    nodeMade("c", 30, "fd00::3"),
    nodeMade("b", 20, "192.0.2.2"),
    nodeMade("down", 1, "192.0.2.8", {
      status: NodeStatus.create({ state: NodeStatus_State.DOWN, addr: "192.0.2.8" }),
    }),
    nodeMade("agent", 2, "192.0.2.9", { description: NodeDescription.create({}) }),
  ];
  const elders = eldest(nodes);
  t.deepEqual(
    elders.map(({ id }) => id),
    ["a", "b", "c"],
  );
  const [d, a, , b] = nodes as [Node, Node, Node, Node];
  t.deepEqual(addresses(d, elders), ["192.0.2.1:1", "192.0.2.2:1"]);
  t.deepEqual(addresses(a, elders), ["192.0.2.2:1", "[fd00::3]:1"]);
  t.deepEqual(addresses(b, elders, ["192.0.2.1"]), ["[fd00::3]:1"]);
  t.deepEqual(addresses(nodeMade("twin", 50, "192.0.2.1"), elders), ["192.0.2.2:1", "[fd00::3]:1"]);
});

test("any two engines are connected by a chain of introductions", (t) => {
  const nodes = Array.from({ length: 9 }, (_, at) => nodeMade(`n${at}`, 100 - at, `192.0.2.${at}`));
  const elders = eldest(nodes);
  const reached = new Set<string>([elders[0]?.status?.addr ?? ""]);
  for (let round = 0; round < nodes.length; round += 1) {
    for (const node of nodes) {
      const own = node.status?.addr ?? "";
      const hosts = addresses(node, elders).map((addr) => addr.replace(/:1$/, ""));
      if (reached.has(own) || hosts.some((host) => reached.has(host)))
        for (const host of [own, ...hosts]) reached.add(host);
    }
  }
  t.is(reached.size, nodes.length);
  t.true(bySeniority(nodeMade("x", 5, ""), nodeMade("y", 5, "")) < 0);
});

function setUp(t: ExecutionContext) {
  const manager = testManager("m1");
  for (const [at, id] of ["n1", "n2", "n3"].entries()) {
    const meta = Meta.create({ createdAt: Timestamp.create({ seconds: at + 1 }) });
    manager.seed("node", Node.create({ id, meta, spec: NodeSpec.create({}) }));
  }
  const dispatcher = createDispatcher(manager.env, {
    addr: "192.0.2.99:2377",
    settled: () => true,
    nodesWaitMs: () => 0,
  });
  t.teardown(() => dispatcher.stop());
  const from = (id: string) =>
    call({
      identity: { nodeId: id, role: "swarm-worker", organization: "c" },
      local: false,
      address: `198.51.100.${id.slice(1)}`,
    });
  return {
    run: (ms: number) => manager.clock.run({ untilMs: manager.clock.now() + ms }),
    open(id: string, description: NodeDescription = engine, sessionId = "") {
      const stream = collectedStream<SessionMessage>();
      dispatcher.handlers.Session(SessionRequest.create({ description, sessionId }), stream, from(id));
      const listed = () =>
        stream.messages.at(-1)?.managers.map(({ peer, weight }) => `${peer?.addr ?? ""} ${weight}`) ?? [];
      return { stream, listed, sessionId: () => stream.messages.at(-1)?.sessionId ?? "" };
    },
    beat: (id: string, sessionId: string) =>
      dispatcher.handlers.Heartbeat(HeartbeatRequest.create({ sessionId }), from(id)),
  };
}

const alone = [`192.0.2.99:2377 ${managerWeight}`];

test("when two engines register at the same time one is introduced to the other, and later neither is", async (t) => {
  const { open, run, beat } = setUp(t);
  const [first, second] = [open("n1"), open("n2")];
  await run(50);
  const named = [...first.listed(), ...second.listed()].filter((line) => line.startsWith("198.51.100."));
  t.true(named.length >= 1);
  t.true(named.every((line) => line.endsWith(":1 -10")));
  t.true(second.listed().includes(`192.0.2.99:2377 ${introducingManagerWeight}`) || second.listed().length === 1);
  for (let waited = 0; waited < 2 * gossipLimits.introductionMs + 100; waited += 4_000) {
    await Promise.all([beat("n1", first.sessionId()), beat("n2", second.sessionId())]);
    await run(4_000);
  }
  t.deepEqual([first.listed(), second.listed()], [alone, alone]);
});

test("a node without gossip is introduced only to managers, and so is the first one with it", async (t) => {
  const { open, run } = setUp(t);
  const first = open("n1");
  await run(50);
  const agent = open("n3", NodeDescription.create({ hostname: "n3" }));
  await run(50);
  t.deepEqual(agent.listed(), alone);
  const count = agent.stream.messages.length;
  await run(50);
  t.is(agent.stream.messages.length, count);
  const second = open("n2");
  await run(50);
  t.deepEqual(second.listed(), [`192.0.2.99:2377 ${introducingManagerWeight}`, "198.51.100.1:1 -10"]);
  t.deepEqual(first.listed(), alone);
});
