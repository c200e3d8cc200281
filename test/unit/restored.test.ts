// A cluster that was founded again from a backup: its first record about nodes and managers of the past, and the time that nodes have
// to return.
import test from "ava";
import { startNodeWatch } from "../../actors/dispatcher/node-watch.ts";
import { changesOfRestore } from "../../machines/manager/restored.ts";
import { nodeWatchTimes, unknownGraceMs } from "../../machines/dispatcher/node-watch.machine.ts";
import {
  EngineDescription,
  Manager,
  Node,
  NodeDescription,
  NodeRole,
  NodeSpec,
  NodeStatus,
  NodeStatus_State,
  Session,
  Transaction,
} from "../../proto/gen/messages.ts";
import { encodeRecord } from "../../runtime/store/record.ts";
import { testManager } from "../support/manager.ts";

const { DOWN, READY, UNKNOWN } = NodeStatus_State;

function node(id: string, state: NodeStatus_State, isManager = false): Node {
  const engine = EngineDescription.create({ labels: isManager ? { "muster.process": "manager" } : {} });
  const role = isManager ? NodeRole.MANAGER : NodeRole.WORKER;
  return Node.create({
    id,
    role,
    spec: NodeSpec.create({ desiredRole: role }),
    description: NodeDescription.create({ engine }),
    status: NodeStatus.create({ state, addr: "192.0.2.7" }),
  });
}

function restoredWorld() {
  const manager = testManager("new");
  manager.seed("node", node("worker", READY), node("down", DOWN), node("old", READY, true));
  manager.seed("manager", Manager.create({ id: "old", addr: "192.0.2.7:2377", alive: true }));
  manager.seed("session", Session.create({ id: "worker", sessionId: "s1", managerId: "old" }));
  const { store } = manager;
  const changes = changesOfRestore(store);
  store.apply(store.version + 1, encodeRecord(Transaction.create({ epoch: 1, previous: store.checksum, changes })));
  return manager;
}

test("RD1, RD2: after a restore, nodes are unknown until they register, and managers of the past are workers that are down", (t) => {
  const { store } = restoredWorld();
  const stateOf = (id: string) => store.get("node", id)?.status?.state;
  t.deepEqual([stateOf("worker"), stateOf("down"), stateOf("old")], [UNKNOWN, DOWN, DOWN]);
  t.is(store.get("node", "worker")?.status?.addr, "192.0.2.7");
  t.like(store.get("node", "old"), { role: NodeRole.WORKER, spec: { desiredRole: NodeRole.WORKER } });
  t.deepEqual([store.count("manager"), store.count("session")], [0, 0]);
});

test("W3: a node has ten minutes to find a restored cluster, and six heartbeat periods to find another manager", async (t) => {
  t.deepEqual([unknownGraceMs(5_000, true), unknownGraceMs(5_000, false)], [30_000, 600_000]);
  t.is(unknownGraceMs(300_000, false), 1_800_000, "a longer heartbeat counts");
  const { clock, env, store } = restoredWorld();
  const asked: number[] = [];
  const watch = startNodeWatch(env, {
    verdict: () => {
      asked.push(clock.now());
      return { kind: "granted" };
    },
  });
  const begun = clock.now();
  await clock.run({ untilMs: begun + nodeWatchTimes.restoredGraceMs - 1 });
  t.deepEqual(asked, []);
  t.is(store.get("node", "worker")?.status?.state, UNKNOWN);
  await clock.run({ untilMs: begun + nodeWatchTimes.restoredGraceMs + 1_000 });
  t.is(asked.length, 1);
  t.is(store.get("node", "worker")?.status?.state, DOWN);
  watch.stop();
});

test("RD2: a manager that continues from its own copy stays a manager, the others become workers", (t) => {
  const { seed, store } = testManager("own");
  seed("node", node("own", READY, true), node("other", READY, true), node("worker", READY));
  seed("manager", ...["own", "other"].map((id) => Manager.create({ id, addr: `${id}:2377`, alive: true })));
  seed("session", Session.create({ id: "worker", sessionId: "s1", managerId: "own" }));
  const changes = changesOfRestore(store, "own");
  store.apply(store.version + 1, encodeRecord(Transaction.create({ epoch: 1, previous: store.checksum, changes })));
  t.deepEqual(
    ["own", "other", "worker"].map((id) => store.get("node", id)?.status?.state),
    [READY, DOWN, UNKNOWN],
  );
  t.like(store.get("node", "own"), { role: NodeRole.MANAGER, spec: { desiredRole: NodeRole.MANAGER } });
  t.regex(store.get("node", "other")?.status?.message ?? "", /was continued from one manager's copy$/);
  t.deepEqual(
    [...store.all("manager")].map(({ id }) => id),
    ["own"],
  );
  t.is(store.count("session"), 0);
});
