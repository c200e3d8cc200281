// Managers that become workers, and workers that become managers again.
import test, { type ExecutionContext } from "ava";
import { startDemotions } from "../../actors/manager/demotions.ts";
import { startMembership } from "../../actors/manager/membership.ts";
import { demotionMachine, demotionTimes } from "../../machines/manager/demotion.machine.ts";
import { processLabel } from "../../machines/manager/role.ts";
import { explainCertificate } from "../../machines/explain/certificate.ts";
import {
  Certificate,
  EngineDescription,
  IssuanceStatus,
  IssuanceStatus_State,
  Manager,
  Node,
  NodeDescription,
  NodeRole,
  NodeSpec,
  NodeSpec_Membership,
  NodeStatus,
  NodeStatus_State,
  NodeTLSInfo,
  UpdateNodeRequest,
} from "../../proto/gen/messages.ts";
import { settle } from "../../runtime/sim/clock.ts";
import { authorize, type Caller } from "../../edges/grpc/roles.ts";
import { ChartRun } from "../support/chart-run.ts";
import { call, refusalOf } from "../support/manager.ts";
import { world as controlWorld } from "../support/control.ts";

function managerNode(id: string): Node {
  return Node.create({
    id,
    role: NodeRole.MANAGER,
    spec: NodeSpec.create({ desiredRole: NodeRole.MANAGER }),
    status: NodeStatus.create({ state: NodeStatus_State.READY, addr: "10.0.0.1" }),
    description: NodeDescription.create({
      engine: EngineDescription.create({ labels: { [processLabel]: "manager" } }),
    }),
  });
}

function world(t: ExecutionContext) {
  const all = controlWorld();
  const { clock, control, env, seed, store } = all;
  const managers = ["m1", "m2"];
  seed("node", ...managers.map(managerNode));
  seed("manager", ...managers.map((id) => Manager.create({ id, alive: true, addr: `${id}:2377` })));
  let terms = 0;
  const lead = (managerId = env.managerId) => {
    const running = startDemotions({ ...env, managerId }, () => (terms += 1));
    t.teardown(() => running.stop());
    return running;
  };
  const change = (id: string, desiredRole: NodeRole) => {
    const node = store.get("node", id) as Node;
    const spec = NodeSpec.patch(node.spec as NodeSpec, { desiredRole });
    const request = UpdateNodeRequest.create({ nodeId: id, nodeVersion: node.meta?.version ?? null, spec });
    return Promise.resolve(control.UpdateNode(request, call()));
  };
  const turn = async (ms = 0): Promise<void> => {
    clock.advance(ms);
    for (let step = 0; step < 5; step += 1) {
      await settle();
      clock.advance(0);
    }
  };
  return { ...all, lead, change, turn, terms: () => terms, role: (id: string) => store.get("node", id)?.role };
}

test("a demoted manager stays a manager until its process has exited, and is a worker then", async (t) => {
  const { change, lead, role, seed, store, turn } = world(t);
  lead();
  await change("m1", NodeRole.WORKER);
  await turn(1_000);
  t.is(role("m1"), NodeRole.MANAGER);
  t.truthy(store.get("manager", "m1"));
  // Its beats have stopped.
  seed("manager", Manager.create({ id: "m1", alive: false }));
  await turn();
  t.is(role("m1"), NodeRole.WORKER);
  t.is(store.get("manager", "m1"), undefined);
  const { status } = store.get("node", "m1") as Node;
  t.like(status, {
    state: NodeStatus_State.DOWN,
    addr: "10.0.0.1",
    message: "its manager process was demoted and has exited",
  });
});

test("one that does not exit is a worker after the grace period, also with another leader and after a failed write", async (t) => {
  const { change, lead, manager, role, turn } = world(t);
  await change("m1", NodeRole.WORKER);
  const first = lead();
  await turn(demotionTimes.graceMs / 2);
  first.stop();
  lead();
  await turn(demotionTimes.graceMs - 1);
  t.is(role("m1"), NodeRole.MANAGER);
  manager.leaderless = true;
  await turn(1);
  t.is(role("m1"), NodeRole.MANAGER);
  manager.leaderless = false;
  await turn(demotionTimes.retryMs);
  t.is(role("m1"), NodeRole.WORKER);
});

test("one promoted again in time stays a manager, and a demoted one becomes one at once", async (t) => {
  const { change, lead, role, seed, store, turn } = world(t);
  lead();
  await change("m1", NodeRole.WORKER);
  await turn(1_000);
  await change("m1", NodeRole.MANAGER);
  seed("manager", Manager.create({ id: "m1", alive: false }));
  await turn(demotionTimes.graceMs);
  t.is(role("m1"), NodeRole.MANAGER);
  t.truthy(store.get("manager", "m1"));
  await change("m1", NodeRole.WORKER);
  await turn();
  t.is(role("m1"), NodeRole.WORKER);
  t.is(store.get("manager", "m1"), undefined);
  await change("m1", NodeRole.MANAGER);
  t.is(role("m1"), NodeRole.MANAGER);
});

test("one manager always remains, whether they are demoted one after the other or at the same time", async (t) => {
  const { change, lead, role, store, turn } = world(t);
  lead();
  // Both are requested before either is decided.
  const [one, other] = [refusalOf(() => change("m1", NodeRole.WORKER)), refusalOf(() => change("m2", NodeRole.WORKER))];
  t.deepEqual([(await one)?.message, (await other)?.message], [undefined, "update out of sequence"]);
  // It still is one of them, but has been told to leave.
  t.is(
    (await refusalOf(() => change("m2", NodeRole.WORKER)))?.message,
    "attempting to demote the last manager of the swarm",
  );
  await turn(demotionTimes.graceMs);
  t.is(role("m1"), NodeRole.WORKER);
  t.is(store.get("node", "m2")?.spec?.desiredRole, NodeRole.MANAGER);
});

test("a manager that was presumed dead and runs again meanwhile is not made a worker at once", async (t) => {
  const { change, lead, role, seed, store, turn } = world(t);
  lead();
  seed("manager", Manager.create({ id: "m1", alive: false }));
  const demotion = change("m1", NodeRole.WORKER);
  // A fact that the queried one does not have yet.
  seed("manager", Manager.create({ id: "m1", alive: true }));
  await demotion;
  await turn();
  t.is(role("m1"), NodeRole.MANAGER);
  t.true(store.get("manager", "m1")?.alive);
});

test("a leader never makes itself a worker, whatever its record says: it steps down, and the next one does", async (t) => {
  const { change, lead, role, seed, terms, turn } = world(t);
  seed("manager", Manager.create({ id: "m1", alive: false }));
  const first = lead("m1");
  await change("m1", NodeRole.WORKER);
  await turn(demotionTimes.graceMs - 1);
  t.is(terms(), 0, "it has its time to exit");
  await turn(1);
  t.is(terms(), 1);
  first.stop();
  t.is(role("m1"), NodeRole.MANAGER);
  lead("m2");
  await turn();
  t.is(role("m1"), NodeRole.WORKER);
});

test("no manager is made a worker while there is no leader", async (t) => {
  const { change, lead, role, seed, turn } = world(t);
  seed("manager", Manager.create({ id: "m1", alive: false }));
  await change("m1", NodeRole.WORKER);
  await turn(demotionTimes.graceMs);
  t.is(role("m1"), NodeRole.MANAGER);
  lead();
  await turn();
  t.is(role("m1"), NodeRole.WORKER);
});

test("a demoted manager does not list itself again while it exits", async (t) => {
  const { drop, env, seed, store, turn } = world(t);
  const node = managerNode("manager1");
  seed("node", Node.patch(node, { spec: NodeSpec.create({ desiredRole: NodeRole.WORKER }) }));
  drop("manager", "manager1");
  const membership = startMembership(env, { addr: "192.0.2.1:2377" });
  t.teardown(() => membership.stop());
  await turn(5_000);
  t.is(store.get("manager", "manager1"), undefined);
});

test("the certificate of a demoted manager grants a worker's access, and nothing more", (t) => {
  const peer = {
    identity: { nodeId: "m1", role: "swarm-manager", organization: "o" },
    local: false,
    address: "",
  } as const;
  const anonymous = { ...peer, identity: null };
  const caller: Caller = { peer, anonymous, rejection: null, isCertified: true, notAfterMs: null };
  const membership = {
    organization: () => "o",
    isRemoved: () => false,
    isDemoted: (id: string) => id === "m1",
    onChange: () => ({ unsubscribe: () => {} }),
  };
  const refused = authorize("manager", caller, membership);
  t.regex(typeof refused === "string" ? refused : "", /not part of OUs: \[swarm-manager\]/);
  t.is(authorize("worker-or-manager", caller, membership), peer);
  t.is(authorize("manager", caller, { ...membership, isDemoted: () => false }), peer);
});

test("the chart of a demotion starts at the end for a manager that is already gone", (t) => {
  t.is(new ChartRun(demotionMachine, { nodeId: "m1", isGone: true }).state, "recording");
});

test("a node says what its certificate and its role wait for", (t) => {
  const root = { subjectDer: Uint8Array.of(1), publicKeyDer: Uint8Array.of(2) };
  const worker = (state: IssuanceStatus_State, fields: Partial<Node> = {}): Node =>
    Node.create({
      spec: NodeSpec.create({ membership: NodeSpec_Membership.ACCEPTED }),
      certificate: Certificate.create({ status: IssuanceStatus.create({ state }) }),
      ...fields,
    });
  const said = (node: Node, nextIssuer: typeof root | null, manager?: Manager): string =>
    explainCertificate(node, { manager, nextIssuer })
      .map(({ waitingFor }) => waitingFor)
      .join("; ");
  t.is(said(worker(IssuanceStatus_State.ISSUED), null), "");
  t.regex(said(worker(IssuanceStatus_State.PENDING), null), /^the leader, or an external CA, to sign/);
  t.regex(said(worker(IssuanceStatus_State.ROTATE), null), /^the node to renew its certificate as requested$/);
  t.regex(said(worker(IssuanceStatus_State.ISSUED), root), /^its turn to renew/);
  t.regex(said(worker(IssuanceStatus_State.ROTATE), root), /the root is being rotated$/);
  const down = NodeStatus.create({ state: NodeStatus_State.DOWN });
  t.regex(said(worker(IssuanceStatus_State.ROTATE, { status: down }), root), /to return or to be removed/);
  const tlsInfo = NodeTLSInfo.create({ certIssuerSubject: root.subjectDer, certIssuerPublicKey: root.publicKeyDer });
  const renewed = worker(IssuanceStatus_State.ISSUED, { description: NodeDescription.create({ tlsInfo }) });
  t.is(said(renewed, root), "");
  const ending = worker(IssuanceStatus_State.ISSUED, { role: NodeRole.MANAGER });
  t.regex(said(ending, null), /its manager process to exit/);
});
