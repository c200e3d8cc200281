// Nodes that a lost part of the log has forgotten: which ones come back by themselves, and which do not.
import test, { type ExecutionContext } from "ava";
import { readmission } from "../../machines/dispatcher/readmission.ts";
import {
  AssignmentsRequest,
  BlacklistedCertificate,
  Cluster,
  IssuanceStatus_State,
  Manager,
  NodeDescription,
  NodeRole,
  NodeSpec_Availability,
  NodeSpec_Membership,
  NodeStatus_State,
  SessionRequest,
  type AssignmentsMessage,
  type SessionMessage,
} from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import { Status, type CallContext } from "../../runtime/ports/rpc.ts";
import { call, collectedStream, refusalOf } from "../support/manager.ts";
import { from, setUp } from "../support/dispatcher-world.ts";

const acceptedMs = 1_000_000;

function accepting(t: ExecutionContext) {
  const world = setUp(t);
  world.seed("manager", Manager.create({ id: "m1", alive: true, lossAccepted: timestampOf(acceptedMs) }));
  return world;
}

function holder(certifiedFromMs: number, role: "swarm-worker" | "swarm-manager" = "swarm-worker"): CallContext {
  const identity = { nodeId: "lost", role, organization: "c" };
  return {
    ...call({ identity, local: false, address: "198.51.100.9", certifiedFromMs }),
    method: "/docker.swarmkit.v1.Dispatcher/Session",
  };
}

function session(world: ReturnType<typeof setUp>, context: CallContext) {
  const stream = collectedStream<SessionMessage>();
  const description = NodeDescription.create({ hostname: "lost" });
  world.dispatcher.handlers.Session(SessionRequest.create({ description }), stream, context);
  return stream;
}

test("a node forgotten by an accepted loss is created again, registers, and gets no tasks", async (t) => {
  for (const role of ["swarm-worker", "swarm-manager"] as const) {
    const world = accepting(t);
    const stream = session(world, holder(acceptedMs, role));
    await world.run(50);
    const node = world.store.get("node", "lost");
    t.is(node?.status?.state, NodeStatus_State.READY);
    t.is(node?.description?.hostname, "lost");
    t.deepEqual(
      [node?.role, node?.spec?.desiredRole, node?.spec?.membership, node?.spec?.availability],
      [NodeRole.WORKER, NodeRole.WORKER, NodeSpec_Membership.ACCEPTED, NodeSpec_Availability.ACTIVE],
      "never as a manager",
    );
    t.is(node?.certificate?.status?.state, IssuanceStatus_State.ROTATE, "so that the log has its certificate again");
    t.is(stream.ended, undefined);
    const sessionId = stream.messages.at(-1)?.sessionId ?? "";
    t.not(sessionId, "");
    const creation = world.proposals.find(({ operations }) => operations[0]?.create?.node !== undefined);
    t.is(creation?.caller?.nodeId, "lost", "history shows its identity");
    const tasks = collectedStream<AssignmentsMessage>();
    world.dispatcher.handlers.Assignments(AssignmentsRequest.create({ sessionId }), tasks, from("lost"));
    await world.run(500);
    t.deepEqual(tasks.messages[0]?.changes, [], "a complete set without tasks: everything that it runs must stop");
  }
});

test("two concurrent streams of a forgotten node create it once, and the newest is served", async (t) => {
  const world = accepting(t);
  const first = session(world, holder(acceptedMs));
  const second = session(world, holder(acceptedMs));
  await world.run(50);
  t.is(second.ended, undefined);
  t.is(second.messages.length, 1);
  t.is(first.ended?.message, "session invalid");
});

test("no other node is created: without an accepted loss, with a younger certificate or one of unknown age, or after removal", async (t) => {
  const unknown = { code: Status.UNKNOWN, message: "node not found" };
  const untouched = setUp(t);
  t.deepEqual(await refusalOf(() => session(untouched, holder(0))), unknown);
  const world = accepting(t);
  t.deepEqual(await refusalOf(() => session(world, holder(acceptedMs + 1))), unknown);
  t.deepEqual(await refusalOf(() => session(world, from("lost"))), unknown);
  const [cluster] = [...world.store.all("cluster")];
  const refused = { lost: BlacklistedCertificate.create({}) };
  world.seed("cluster", Cluster.patch(cluster as Cluster, { blacklistedCertificates: refused }));
  t.deepEqual(await refusalOf(() => session(world, holder(acceptedMs))), unknown);
  world.seed("cluster", Cluster.patch(cluster as Cluster, { blacklistedCertificates: {} }));
  world.seed("manager", Manager.create({ id: "lost", alive: false }));
  t.deepEqual(await refusalOf(() => session(world, holder(acceptedMs))), unknown, "a manager is not a worker");
});

test("the decision rests on the cluster's state at the time: a node removed meanwhile stays away", async (t) => {
  const world = accepting(t);
  const [cluster] = [...world.store.all("cluster")];
  const node = { id: "lost", certifiedFromMs: acceptedMs };
  const decided = readmission(node, cluster as Cluster, world.store.all("manager"));
  const refused = { lost: BlacklistedCertificate.create({}) };
  world.seed("cluster", Cluster.patch(cluster as Cluster, { blacklistedCertificates: refused }));
  t.truthy(decided);
  if (decided === null) return;
  const { env } = world.manager;
  const outcome = await env.proposer.propose({ operations: [decided], mode: 0, timeoutMs: 1_000 });
  t.is(outcome.kind, "refused");
  t.is(world.store.get("node", "lost"), undefined);
});
