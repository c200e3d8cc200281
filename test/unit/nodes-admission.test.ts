// The admission of clients to a manager's NATS for nodes: labels are those of processes/nodes-admission.ts.
import test from "ava";
import type { NodeCalls } from "../../edges/grpc/node-calls.ts";
import { createKeyAndCsr, createRoot, issue } from "../../lib/pki/index.ts";
import { joinerId, presentJoiner, presentNode, type Presented } from "../../lib/pki/presented.ts";
import { connectionsPerNodeMax, floodPauseMs, joinersMax, NodesAdmission } from "../../processes/nodes-admission.ts";
import type { Logger } from "../../runtime/ports/index.ts";
import type { Peer } from "../../runtime/ports/rpc.ts";
import { SimClock } from "../../runtime/sim/clock.ts";

const quiet: Logger = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
const nonce = "n";
const server = "AA:BB";

interface Watched {
  readonly peer: Peer;
  readonly end: () => void;
}

/** `standing`: the watched connections. Every certificate is that of `n1`. */
async function world() {
  const clock = new SimClock();
  const root = await createRoot();
  const { csrPem, keyPem } = await createKeyAndCsr();
  const certificatePem = await issue({
    csrPem,
    rootCertificatePem: root.certificatePem,
    rootKeyPem: root.keyPem,
    nodeId: "n1",
    role: "swarm-worker",
    organization: "c1",
    nowMs: Date.now(),
    validitySeconds: 3_600,
  });
  const standing = new Set<Watched>();
  const [closed, left, refusals]: [number[], string[], string[]] = [[], [], []];
  const calls: Pick<NodeCalls, "gate" | "identify"> = {
    identify: (chainPem, address) => ({
      peer: {
        identity: chainPem === null ? null : { nodeId: "n1", role: "swarm-worker", organization: "c1" },
        local: false,
        address,
      },
      notAfterMs: chainPem === null ? null : 7,
    }),
    gate: {
      admit: (peer) => peer,
      opened: (peer, end) => {
        const watched = { peer, end };
        standing.add(watched);
        return { closed: () => standing.delete(watched) };
      },
      sends: () => undefined,
    },
  };
  const admission = new NodesAdmission({
    calls,
    clock,
    log: quiet,
    refusals: { count: (_port, reason) => void refusals.push(reason) },
    tokens: () => ["token", ""],
    fingerprints: () => [server],
    disconnect: (connection) => void closed.push(connection),
    onLeft: (id) => void left.push(id),
  });
  let last = 0;
  const connect = ({ signature, token }: Presented, address = "192.0.2.1") => {
    last += 1;
    return { connection: last, ...admission.admit({ connection: last, address, token, signature, nonce }) };
  };
  const node = (): Presented => presentNode({ certificatePem, keyPem }, { nonce, server });
  const joiner = (id: string, token = "token"): Presented => presentJoiner(joinerId(id), token, { nonce });
  const later = (ms: number): Promise<unknown> => clock.run({ untilMs: clock.now() + ms });
  return { admission, closed, connect, joiner, later, left, node, refusals, standing };
}

test("AD1: a node is admitted by its certificate's key, and one that joins by a token", async (t) => {
  const { admission, connect, joiner, node, refusals } = await world();
  t.like(connect(node()), { kind: "admitted", id: "n1", untilMs: 7 });
  t.is(admission.peerOf("n1")?.address, "192.0.2.1");
  t.like(connect(joiner("a")), { kind: "admitted", id: joinerId("a"), untilMs: null });
  t.deepEqual(refusals, []);
  for (const shown of [
    { token: "", signature: "" },
    joiner("a", "another"),
    joiner("a", ""),
    { ...node(), signature: joiner("a").signature },
  ])
    t.is(connect(shown).kind, "refused");
  t.deepEqual(refusals, Array(4).fill("credentials"));
});

test("AD2: one connection more than a node may have ends its oldest, and only the last one's end counts", async (t) => {
  const { admission, closed, connect, later, left, node, standing } = await world();
  const opened = Array.from({ length: connectionsPerNodeMax + 1 }, () => connect(node()).connection);
  await later(1_000);
  t.deepEqual(closed, [opened[0]]);
  t.is(standing.size, connectionsPerNodeMax);
  t.deepEqual(left, []);
  for (const each of opened) admission.gone(each);
  t.deepEqual(left, ["n1"]);
  t.is(standing.size, 0);
  t.is(admission.peerOf("n1"), null);
});

test("AD2: one node more than may join at a time ends the oldest of them, and no node's connection", async (t) => {
  const { closed, connect, joiner, later, left, node } = await world();
  connect(node());
  const opened = Array.from({ length: joinersMax + 1 }, (_, at) => connect(joiner(`a${at}`)).connection);
  await later(1_000);
  t.deepEqual(closed, [opened[0]]);
  t.deepEqual(left, [joinerId("a0")]);
});

test("AD3: a change of its standing closes a node's connections after its links have ended by themselves", async (t) => {
  const { closed, connect, later, left, node, standing } = await world();
  const { connection } = connect(node());
  for (const { end } of standing) end();
  t.deepEqual([closed, left], [[], []]);
  await later(1_000);
  t.deepEqual([closed, left], [[connection], []]);
});

test("AD3: a node that floods is disconnected and waits; one that joins is known by its address", async (t) => {
  const { admission, closed, connect, joiner, later, node, refusals } = await world();
  const connections = [connect(node()).connection, connect(node()).connection];
  connect(joiner("a"), "192.0.2.9");
  admission.flooded("n1");
  admission.flooded(joinerId("a"));
  await later(1_000);
  t.deepEqual(closed, [...connections, 3]);
  t.deepEqual(refusals, Array(3).fill("useless-messages"));
  t.is(connect(node()).kind, "postponed");
  t.is(connect(joiner("b"), "192.0.2.9").kind, "postponed");
  t.is(connect(joiner("b"), "192.0.2.8").kind, "admitted");
  await later(floodPauseMs);
  t.is(connect(node()).kind, "admitted");
});
