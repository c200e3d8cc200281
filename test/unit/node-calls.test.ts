// Which calls nodes may make over another transport, and for how long: labels are those of edges/grpc/node-calls.ts.
import test from "ava";
import { accessByPath, type Membership } from "../../edges/grpc/roles.ts";
import { isForNodes, NodeCalls } from "../../edges/grpc/node-calls.ts";
import {
  createKeyAndCsr,
  createRoot,
  createServerIdentity,
  issue,
  issueUserCertificate,
  type NodeRoleName,
} from "../../lib/pki/index.ts";
import { ControlService, DispatcherService, NodeCAService } from "../../proto/gen/messages.ts";
import { SimClock } from "../../runtime/sim/clock.ts";

const { Heartbeat } = DispatcherService.methods;
const { IssueNodeCertificate } = NodeCAService.methods;
const hourMs = 3_600_000;

async function world() {
  const clock = new SimClock();
  const nowMs = clock.now();
  const [root, other] = [await createRoot({ nowMs }), await createRoot({ nowMs })];
  const removed = new Set<string>();
  const listeners = new Set<(ids: readonly string[]) => void>();
  const membership: Membership = {
    organization: () => "c1",
    isRemoved: (id) => removed.has(id),
    isDemoted: () => false,
    onChange: (listener) => {
      listeners.add(listener);
      return { unsubscribe: () => listeners.delete(listener) };
    },
  };
  const calls = new NodeCalls({
    clock,
    membership,
    rootPem: root.certificatePem,
    services: [],
    inTurn: (_peer, _path, start) => {
      start();
      return true;
    },
  });
  const certificate = async (
    nodeId: string,
    { organization = "c1", role = "swarm-worker" as NodeRoleName, by = root } = {},
  ): Promise<string> =>
    issue({
      csrPem: (await createKeyAndCsr()).csrPem,
      rootCertificatePem: by.certificatePem,
      rootKeyPem: by.keyPem,
      nodeId,
      role,
      organization,
      nowMs,
      validitySeconds: 3_600,
    });
  const identified = (chainPem: string | null) => {
    const found = calls.identify(chainPem, "192.0.2.1");
    if (typeof found === "string") throw new Error(found);
    return found;
  };
  const remove = (id: string): void => {
    removed.add(id);
    for (const listener of listeners) listener([id]);
  };
  return { calls, certificate, clock, identified, nowMs, other, remove, root };
}

test("NC1: nodes reach their own methods and those by which they join", (t) => {
  const reached = [...accessByPath.keys()].filter(isForNodes);
  for (const path of reached)
    t.true(accessByPath.get(path) === "worker-or-manager" || /NodeCertificate|RootCA/.test(path), path);
  t.false(isForNodes(ControlService.methods.ListNodes.path));
  t.false(reached.some((path) => path.endsWith("/Login")));
});

test("NC2: a node calls as itself, and one that joins only joins", async (t) => {
  const { calls, certificate, identified, nowMs } = await world();
  const { notAfterMs, peer } = identified(await certificate("n1"));
  t.like(peer, { identity: { nodeId: "n1", role: "swarm-worker" }, local: false, address: "192.0.2.1" });
  t.true(notAfterMs !== null && Math.abs(notAfterMs - nowMs - hourMs) < 2_000);
  t.is(calls.gate.admit(peer, Heartbeat.path), peer);
  t.regex(calls.gate.admit(peer, ControlService.methods.ListNodes.path) as string, /not available to nodes/);
  const joiner = identified(null).peer;
  t.is(joiner.identity, null);
  t.is(calls.gate.admit(joiner, IssueNodeCertificate.path), joiner);
  t.regex(calls.gate.admit(joiner, Heartbeat.path) as string, /permission denied/i);
  // A peer that was identified by nobody.
  t.regex(calls.gate.admit({ ...peer }, Heartbeat.path) as string, /permission denied/i);
});

test("NC2: certificates of others are refused", async (t) => {
  const { calls, certificate, nowMs, other, root } = await world();
  const signer = { rootCertificatePem: root.certificatePem, rootKeyPem: root.keyPem, nowMs };
  const user = issueUserCertificate({
    ...signer,
    csrPem: (await createKeyAndCsr()).csrPem,
    name: "ada",
    mark: "m",
    organization: "c1",
    validitySeconds: 3_600,
    intermediatesPem: "",
  });
  const server = await createServerIdentity({
    ...signer,
    names: ["muster-nodes-nats"],
    addresses: [],
    validityMs: hourMs,
  });
  const refusals = {
    "of another root": await certificate("n1", { by: other }),
    "of another cluster": await certificate("n1", { organization: "c2" }),
    "of a user": user,
    "of a server": server.certificatePem,
    garbage: "garbage",
    nothing: "",
  };
  t.regex(calls.identify((await certificate("n1")).repeat(9), "") as string, /too long/);
  for (const [which, pem] of Object.entries(refusals)) t.is(typeof calls.identify(pem, ""), "string", which);
});

test("NC2: a connection ends when its node is removed, its certificate expires or its root is dropped", async (t) => {
  const { calls, certificate, clock, identified, other, remove } = await world();
  const ended: string[] = [];
  const peers = new Map<string, ReturnType<typeof identified>["peer"]>();
  for (const id of ["removed", "kept"]) {
    const { peer } = identified(await certificate(id));
    peers.set(id, peer);
    calls.gate.opened(peer, () => ended.push(id));
  }
  remove("removed");
  t.deepEqual(ended, ["removed"]);
  t.is(typeof calls.identify(await certificate("removed"), ""), "string");
  await clock.run({ untilMs: clock.now() + hourMs + 5_000 });
  t.deepEqual(ended, ["removed", "kept"]);
  t.regex(calls.gate.admit(peers.get("kept") as never, Heartbeat.path) as string, /EXPIRED/);
  calls.setRoots(other.certificatePem);
  t.is(typeof calls.identify(await certificate("kept"), ""), "string");
});

test("K4: after its close nothing waits for the expiry of a certificate", async (t) => {
  const { calls, certificate, clock, identified } = await world();
  const { peer } = identified(await certificate("n1"));
  const ended: string[] = [];
  calls.gate.opened(peer, () => ended.push("before"));
  calls.close();
  // A handshake that was in progress.
  calls.gate.opened(peer, () => ended.push("during")).closed();
  calls.gate.opened(peer, () => ended.push("after"));
  t.false(clock.step(), "no timer is left, which would keep the process alive");
  t.deepEqual(ended, []);
});
