// The admission of clients to a manager's NATS for nodes: labels are those of processes/nodes-admission.ts.
import test from "ava";
import type { NodeCalls } from "../../edges/grpc/node-calls.ts";
import { createKeyAndCsr, createRoot, issue } from "../../lib/pki/index.ts";
import { sitePassword } from "../../lib/pki/site-password.ts";
import { joinerId, presentJoiner, presentNode, type Presented } from "../../lib/pki/presented.ts";
import {
  connectionsPerNodeMax,
  connectionsPerSiteMax,
  floodPauseMs,
  joinersMax,
  NodesAdmission,
} from "../../processes/nodes-admission.ts";
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
  const [closed, left, refusals, sites]: [number[], string[], string[], string[]] = [[], [], [], []];
  const tokens = { worker: "token", manager: "" };
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
    tokens: () => tokens,
    fingerprints: () => [server],
    disconnect: (connection) => void closed.push(connection),
    onLeft: (id) => void left.push(id),
    onSite: (site) => void sites.push(`+${site}`),
    onSiteLeft: (site) => void sites.push(`-${site}`),
  });
  let last = 0;
  const connect = ({ signature, token }: Presented, address = "192.0.2.1") => {
    last += 1;
    const client = { connection: last, address, user: "", password: "" };
    return { connection: last, ...admission.admit({ ...client, token, signature, nonce }) };
  };
  /** A leaf node, which shows a user and a password. */
  const leaf = (user: string, password: string) => {
    last += 1;
    const client = { connection: last, address: "192.0.2.9", token: "", signature: "", nonce: "" };
    return { connection: last, ...admission.admit({ ...client, user, password }) };
  };
  const node = (): Presented => presentNode({ certificatePem, keyPem }, { nonce, server });
  const joiner = (id: string, token = "token"): Presented => presentJoiner(joinerId(id), token, { nonce });
  const later = (ms: number): Promise<unknown> => clock.run({ untilMs: clock.now() + ms });
  return { admission, closed, connect, joiner, later, leaf, left, node, refusals, sites, standing, tokens };
}

test("AD1: a node is admitted by its certificate's key, and one that joins by a token", async (t) => {
  const { admission, connect, joiner, node, refusals } = await world();
  t.like(connect(node()), { kind: "admitted", as: { kind: "node", id: "n1" }, untilMs: 7 });
  t.is(admission.peerOf("n1")?.address, "192.0.2.1");
  t.like(connect(joiner("a")), { kind: "admitted", as: { kind: "node", id: joinerId("a") }, untilMs: null });
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

test("AD1: a site is admitted by its own password, for its own subjects alone", async (t) => {
  const { admission, leaf, refusals, sites } = await world();
  t.like(leaf("lab", sitePassword("token", "lab")), {
    kind: "admitted",
    as: { kind: "site", site: "lab" },
    untilMs: null,
  });
  t.deepEqual(sites, ["+lab"]);
  t.is(admission.addressOf("lab"), "192.0.2.9");
  t.is(admission.addressOf("attic"), "");
  for (const [user, password] of [
    ["attic", sitePassword("token", "lab")],
    ["lab", sitePassword("another", "lab")],
    ["lab", "token"],
    ["lab", ""],
    // No subject can have it, and a wildcard would be everybody's.
    ["*", sitePassword("token", "*")],
    ["lab.>", sitePassword("token", "lab.>")],
  ] as const)
    t.is(leaf(user, password).kind, "refused", user);
  t.deepEqual(refusals, Array(6).fill("credentials"));
  t.deepEqual(sites, ["+lab"]);
});

test("AD2: a site without leaf nodes has a connection for each of its nodes, and one more than it may have ends its oldest", async (t) => {
  const { closed, later, leaf, sites } = await world();
  const password = sitePassword("token", "lab");
  const opened = Array.from({ length: connectionsPerSiteMax }, () => leaf("lab", password));
  t.true(opened.every(({ kind }) => kind === "admitted"));
  await later(1_000);
  t.deepEqual(closed, []);
  leaf("attic", sitePassword("token", "attic"));
  leaf("lab", password);
  await later(1_000);
  t.deepEqual(closed, [opened[0]?.connection]);
  t.false(sites.includes("-lab"));
});

test("AD1: without a join token, no password admits a site", async (t) => {
  const { leaf, tokens } = await world();
  tokens.worker = "";
  t.is(leaf("lab", sitePassword("", "lab")).kind, "refused");
});

test("AD3: a site's connections end when the join token is replaced, and are counted by their last one", async (t) => {
  const { admission, closed, later, leaf, left, sites, tokens } = await world();
  const [first, second] = [leaf("lab", sitePassword("token", "lab")), leaf("lab", sitePassword("token", "lab"))];
  admission.gone(first.connection);
  t.deepEqual(sites, ["+lab", "+lab"]);
  admission.tokensChanged();
  await later(200);
  t.deepEqual(closed, []);
  tokens.worker = "next";
  admission.tokensChanged();
  await later(200);
  t.deepEqual(closed, [second.connection]);
  t.deepEqual(sites, ["+lab", "+lab", "-lab"]);
  t.deepEqual(left, []);
  t.is(leaf("lab", sitePassword("token", "lab")).kind, "refused");
  t.is(leaf("lab", sitePassword("next", "lab")).kind, "admitted");
});
