// How the ledger applies operations, and how it batches them.
import test from "ava";
import { assemble, type BatchLimits } from "../../machines/ledger/batch.ts";
import { decide, type Decision } from "../../machines/ledger/proposals.ts";
import {
  Annotations,
  Basis,
  Change,
  Kind,
  NodePatch,
  NodeSpec,
  NodeSpec_Availability,
  NodeStatus,
  NodeStatus_State,
  Operation,
  ProposeRequest,
  ProposeRequest_Mode,
  Removal,
  Resource,
  Session,
  StoreObject,
  TaskPatch,
  TaskState,
  Transaction,
} from "../../proto/gen/messages.ts";
import { changeFramingBytes } from "../../runtime/store/record.ts";
import { Staging } from "../../runtime/store/staging.ts";
import {
  create,
  meta,
  network,
  node,
  patchOperation,
  put,
  replicaOf,
  service,
  status,
  task,
  update,
  Writer,
} from "./store-kit.ts";

/** A staging over a state made of these changes, whose version is 1. */
function stateOf(...changes: Change[]): Staging {
  const writer = new Writer();
  writer.write(changes);
  return new Staging(replicaOf(writer));
}

const pending = (fields: Parameters<typeof task>[1] = {}) =>
  put({ task: task("t1", { status: status(TaskState.PENDING), ...fields }) });
const ready = put({ node: node("n1") });
const outcome = (decision: Decision) => (decision.kind === "refused" ? decision.code : decision.kind);

const decides = test.macro((t, expected: ReturnType<typeof outcome>, state: Change[], operation: Operation) => {
  t.is(outcome(decide(stateOf(...state), operation)), expected);
});

const web = put({ service: service("s1", "Web") });
test(
  "an object with a new id and name is created",
  decides,
  "change",
  [web],
  create({ service: service("s2", "api") }),
);
test("an id is created once", decides, "exists", [web], create({ service: service("s1", "api") }));
test("a name is in use whatever its case", decides, "nameTaken", [web], create({ service: service("s2", "wEb") }));
test(
  "a name in use in one table is free in another",
  decides,
  "change",
  [web],
  create({ network: network("w1", "web") }),
);
test(
  "tasks may share a name",
  decides,
  "change",
  [put({ task: task("t1", { annotations: Annotations.create({ name: "a" }) }) })],
  create({ task: task("t2", { annotations: Annotations.create({ name: "a" }) }) }),
);
test(
  "a resource's name is unique too",
  decides,
  "nameTaken",
  [put({ resource: Resource.create({ id: "r1", annotations: Annotations.create({ name: "r" }) }) })],
  create({ resource: Resource.create({ id: "r2", annotations: Annotations.create({ name: "R" }) }) }),
);
test("an object without an id is malformed", decides, "malformed", [], create({ service: service("", "x") }));
test("an operation without content is malformed", decides, "malformed", [], Operation.create({}));
test("a create without an object is malformed", decides, "malformed", [], create({}));

test(
  "an update of the stored version is accepted",
  decides,
  "change",
  [web],
  update({ service: service("s1", "Web", 1) }),
);
test(
  "an update of another version is out of sequence",
  decides,
  "outOfSequence",
  [web],
  update({ service: service("s1", "Web", 2) }),
);
const rename = (...basis: readonly Basis[]) => Operation.patch(update({ service: service("s1", "Api", 1) }), { basis });
const readyAt = (version: number) => Basis.create({ kind: Kind.KIND_NODE, id: "n1", version });
test("P8: an update is accepted while its preconditions hold", decides, "change", [web, ready], rename(readyAt(1)));
test(
  "P8: an update is rejected once a precondition has another version",
  decides,
  "outOfSequence",
  [web, ready],
  rename(readyAt(2)),
);
test("P8: or is removed", decides, "outOfSequence", [web], rename(readyAt(1)));
test(
  "an update of a missing object is rejected",
  decides,
  "notFound",
  [],
  update({ service: service("s1", "Web", 1) }),
);
test(
  "a rename to a name in use is rejected",
  decides,
  "nameTaken",
  [web, put({ service: service("s2", "api") })],
  update({ service: service("s2", "WEB", 1) }),
);
test(
  "an update that lowers a task's state is malformed",
  decides,
  "malformed",
  [pending()],
  update({ task: task("t1", { meta: meta(1) }) }),
);

const removal = (kind: Kind, id: string, fields: Partial<Operation> = {}) =>
  Operation.create({ remove: Removal.create({ kind, id }), ...fields });
test("an existing object is removed", decides, "change", [web], removal(Kind.KIND_SERVICE, "s1"));
test("a missing object is not removed", decides, "notFound", [web], removal(Kind.KIND_SERVICE, "s2"));
test(
  "a removal with another version is out of sequence",
  decides,
  "outOfSequence",
  [web],
  removal(Kind.KIND_SERVICE, "s1", { version: 7 }),
);
test(
  "a removal with the stored version is accepted",
  decides,
  "change",
  [web],
  removal(Kind.KIND_SERVICE, "s1", { version: 1 }),
);
test("a removal of an unknown kind is malformed", decides, "malformed", [web], removal(99 as Kind, "s1"));

const session = put({ session: Session.create({ id: "n1", sessionId: "x", managerId: "m1" }) });
const nodePatch = (fields: Partial<NodePatch>, sessionId = "") =>
  Operation.create({ node: NodePatch.create({ id: "n1", ...fields }), sessionId });
const down = { status: NodeStatus.create({ state: NodeStatus_State.DOWN }) };
test("a node is patched by its current session", decides, "change", [ready, session], nodePatch(down, "x"));
test("a node is not patched by an older session", decides, "sessionChanged", [ready, session], nodePatch(down, "w"));
test("a node without a session is not patched by one", decides, "sessionChanged", [ready], nodePatch(down, "x"));
test(
  "a node patch without a change is skipped",
  decides,
  "skipped",
  [ready],
  nodePatch({ status: NodeStatus.create({ state: NodeStatus_State.READY }) }),
);
test("a patch of a removed node is skipped", decides, "skipped", [], nodePatch(down));
test(
  "a session is removed only by itself",
  decides,
  "sessionChanged",
  [session],
  removal(Kind.KIND_SESSION, "n1", { sessionId: "w" }),
);
test(
  "a session's own removal is accepted",
  decides,
  "change",
  [session],
  removal(Kind.KIND_SESSION, "n1", { sessionId: "x" }),
);
test(
  "a put replaces any stored object",
  decides,
  "change",
  [session],
  Operation.create({ put: StoreObject.create({ session: Session.create({ id: "n1", sessionId: "y" }) }) }),
);

const assign = (fields: Partial<TaskPatch> = {}) =>
  patchOperation({ id: "t1", nodeId: "n1", status: status(TaskState.ASSIGNED), ...fields });
test("a pending task is assigned to a ready node", decides, "change", [pending(), ready], assign());
test(
  "a task is not assigned twice",
  decides,
  "skipped",
  [pending({ nodeId: "n0", status: status(TaskState.ASSIGNED) }), ready],
  assign(),
);
test("an unallocated task is not assigned", decides, "skipped", [put({ task: task("t1") }), ready], assign());
test(
  "a task with desired state SHUTDOWN is not assigned",
  decides,
  "skipped",
  [pending({ desiredState: TaskState.SHUTDOWN }), ready],
  assign(),
);
test(
  "a task with desired state COMPLETE is assigned",
  decides,
  "change",
  [pending({ desiredState: TaskState.COMPLETE }), ready],
  assign(),
);
test("nothing is assigned to a removed node", decides, "skipped", [pending()], assign());
test(
  "nothing is assigned to a node that is not ready",
  decides,
  "skipped",
  [pending(), put({ node: node("n1", down) })],
  assign(),
);
test(
  "nothing is assigned to a drained node",
  decides,
  "skipped",
  [pending(), put({ node: node("n1", { spec: NodeSpec.create({ availability: NodeSpec_Availability.DRAIN }) }) })],
  assign(),
);
test(
  "a task created for its node is assigned to it while it is paused",
  decides,
  "change",
  [
    pending({ nodeId: "n1" }),
    put({ node: node("n1", { spec: NodeSpec.create({ availability: NodeSpec_Availability.PAUSE }) }) }),
  ],
  assign(),
);
test(
  "a task created for one node does not go to another",
  decides,
  "skipped",
  [pending({ nodeId: "n0" }), ready],
  assign(),
);

const running = put({ task: task("t1", { nodeId: "n1", status: status(TaskState.RUNNING, "started") }) });
test(
  "a report of a later state is accepted",
  decides,
  "change",
  [running],
  patchOperation({ id: "t1", status: status(TaskState.FAILED) }, "n1"),
);
test(
  "a report of an earlier state is skipped",
  decides,
  "skipped",
  [running],
  patchOperation({ id: "t1", status: status(TaskState.STARTING) }, "n1"),
);
test(
  "a report of the same state with changes is accepted",
  decides,
  "change",
  [running],
  patchOperation({ id: "t1", status: status(TaskState.RUNNING, "healthy") }, "n1"),
);
test(
  "a repeated report is skipped",
  decides,
  "skipped",
  [running],
  patchOperation({ id: "t1", status: status(TaskState.RUNNING, "started") }, "n1"),
);
test(
  "a report by another node is rejected",
  decides,
  "foreignTask",
  [running],
  patchOperation({ id: "t1", status: status(TaskState.FAILED) }, "n2"),
);
test(
  "a report for a removed task is skipped",
  decides,
  "skipped",
  [],
  patchOperation({ id: "t1", status: status(TaskState.FAILED) }, "n2"),
);
test(
  "a desired state only increases",
  decides,
  "skipped",
  [running],
  patchOperation({ id: "t1", desiredState: TaskState.READY }),
);

test("only the permitted part of a patch is written", (t) => {
  const decision = decide(
    stateOf(running),
    patchOperation({ id: "t1", status: status(TaskState.STARTING), desiredState: TaskState.SHUTDOWN }),
  );
  t.is(decision.kind, "change");
  if (decision.kind !== "change") return;
  t.is(decision.change.task?.status, null);
  t.is(decision.change.task?.desiredState, TaskState.SHUTDOWN);
});

test("errors about names in use have SwarmKit's texts", (t) => {
  const taken = decide(stateOf(web), create({ service: service("s2", "web") }));
  t.like(taken, { message: "name conflicts with an existing object: service web already exists" });
});

// Batches.

const limits: BatchLimits = { bytesMax: 100_000, changesMax: 100, changeFramingBytes };
const request = (id: string, operations: Operation[], mode: ProposeRequest_Mode = ProposeRequest_Mode.ATOMIC) => ({
  request: ProposeRequest.create({ id, operations, mode }),
  from: 0,
  skipped: 0,
});

test("operations of one batch see each other", (t) => {
  const batch = assemble(
    stateOf(),
    [
      request("p1", [create({ service: service("s1", "web") })]),
      request("p2", [create({ service: service("s2", "WEB") })]),
      request("p3", [create({ service: service("s1", "x") })]),
    ],
    limits,
  );
  t.deepEqual(
    batch.settlements.map((settlement) => (settlement.kind === "refused" ? settlement.code : settlement.kind)),
    ["done", "nameTaken", "exists"],
  );
  t.is(batch.changes.length, 1);
  t.deepEqual(
    batch.receipts.map(({ proposalId }) => proposalId),
    ["p1"],
  );
});

test("a failed atomic proposal leaves nothing, including its names", (t) => {
  const batch = assemble(
    stateOf(web),
    [
      request("p1", [create({ service: service("s2", "api") }), create({ service: service("s3", "web") })]),
      request("p2", [create({ service: service("s4", "api") })]),
    ],
    limits,
  );
  t.is(batch.settlements[0]?.kind, "refused");
  t.deepEqual(batch.settlements[1], { kind: "done", skipped: 0 });
  t.is(batch.changes.length, 1);
});

test("a proposal of mode EACH does what it can and counts the rest", (t) => {
  const operations = [
    patchOperation({ id: "t1", status: status(TaskState.FAILED) }, "n9"),
    patchOperation({ id: "gone", status: status(TaskState.FAILED) }),
    patchOperation({ id: "t1", status: status(TaskState.FAILED) }, "n1"),
  ];
  const batch = assemble(stateOf(running), [request("p1", operations, ProposeRequest_Mode.EACH)], limits);
  t.deepEqual(batch.settlements, [{ kind: "done", skipped: 2 }]);
  t.is(batch.changes.length, 1);
});

test("states only increase within one batch too", (t) => {
  const report = (state: TaskState) => patchOperation({ id: "t1", status: status(state) }, "n1");
  const batch = assemble(
    stateOf(running),
    [request("p1", [report(TaskState.FAILED), report(TaskState.COMPLETE)])],
    limits,
  );
  t.deepEqual(batch.settlements, [{ kind: "done", skipped: 1 }]);
});

test("a name freed by a removal in the same batch may be used", (t) => {
  const batch = assemble(
    stateOf(web),
    [request("p1", [removal(Kind.KIND_SERVICE, "s1"), create({ service: service("s2", "web") })])],
    limits,
  );
  t.deepEqual(batch.settlements, [{ kind: "done", skipped: 0 }]);
});

test("a rejected proposal's changes to a task do not undo those of an earlier one", (t) => {
  const stop = patchOperation({ id: "t1", desiredState: TaskState.SHUTDOWN });
  const batch = assemble(
    stateOf(running),
    [
      request("p1", [stop]),
      request("p2", [removal(Kind.KIND_TASK, "t1"), removal(Kind.KIND_TASK, "gone")]),
      request("p3", [patchOperation({ id: "t1", desiredState: TaskState.REMOVE }), removal(Kind.KIND_TASK, "gone")]),
      request("p4", [stop]),
    ],
    limits,
  );
  t.deepEqual(
    batch.settlements.map((settlement) => (settlement.kind === "done" ? settlement.skipped : settlement.kind)),
    [0, "refused", "refused", 1],
  );
});

test("tasks created together carry their spec once, whether it is one object or many equal ones", (t) => {
  const copies = ["a", "b", "c"].map((id) => Operation.decode(Operation.encode(create({ task: task(id) }))));
  const batch = assemble(
    stateOf(),
    [request("p1", [create({ task: task("d") }), ...copies, create({ task: task("e") })])],
    limits,
  );
  t.is(batch.specs.length, 1);
  const { changes } = Transaction.decode(batch.changes.encoded());
  t.deepEqual(
    changes.map((change) => change.spec),
    [1, 1, 1, 1, 1],
  );
  t.true(changes.every((change) => change.put?.task?.spec === null));
  const writer = new Writer();
  writer.write(changes, { specs: batch.specs } as Partial<Transaction>);
  t.is(replicaOf(writer).get("task", "c")?.spec?.container?.image, "nginx");
});

test("a spec that came with a rejected proposal is carried again for the next", (t) => {
  const batch = assemble(
    stateOf(web),
    [
      request("p1", [create({ task: task("a") }), create({ service: service("s1", "x") })]),
      request("p2", [create({ task: task("b") })]),
    ],
    limits,
  );
  t.is(batch.specs.length, 1);
  t.deepEqual(
    Transaction.decode(batch.changes.encoded()).changes.map((change) => change.spec),
    [1],
  );
});

test("proposals that do not fit wait for the next batch, in order", (t) => {
  const big = (id: string) => request(id, [create({ service: service(id, id.repeat(300)) })]);
  const batch = assemble(stateOf(), [big("a"), big("b"), big("c")], { ...limits, bytesMax: 800 });
  t.is(batch.settlements.length, 2);
  t.deepEqual(
    batch.receipts.map(({ proposalId }) => proposalId),
    ["a", "b"],
  );
});

test("a batch stays within its bytes, whatever its proposals are", (t) => {
  const waiting = Array.from({ length: 50 }, (_, at) =>
    request(
      `p${at}`,
      Array.from({ length: 1 + (at % 7) }, (_unused, n) => create({ task: task(`t${at}.${n}`) })),
      at % 2 === 0 ? ProposeRequest_Mode.EACH : ProposeRequest_Mode.ATOMIC,
    ),
  );
  const writer = new Writer();
  const { changes, specs, receipts } = assemble(stateOf(), waiting, { ...limits, bytesMax: 2_000 });
  const record = writer.write(Transaction.decode(changes.encoded()).changes, { specs, receipts });
  t.true(record.length < 2_000 + 160, `${record.length}`);
  t.true(record.length > 1_500, `${record.length}`);
});

test("a long proposal of mode EACH continues where the last batch ended", (t) => {
  const operations = Array.from({ length: 7 }, (_, at) => create({ task: task(`t${at}`) }));
  let progress = request("p1", operations, ProposeRequest_Mode.EACH);
  const sizes: number[] = [];
  for (;;) {
    const batch = assemble(stateOf(), [progress], { ...limits, changesMax: 3 });
    sizes.push(batch.changes.length);
    const settlement = batch.settlements[0];
    t.is(batch.receipts.length, settlement?.kind === "done" ? 1 : 0);
    if (settlement?.kind !== "partial") break;
    progress = { ...progress, from: settlement.from, skipped: settlement.skipped };
  }
  t.deepEqual(sizes, [3, 3, 1]);
});

test("an atomic proposal too large for any transaction is rejected, and one operation of mode EACH skipped", (t) => {
  const operation = create({ service: service("s1", "x".repeat(5_000)) });
  const small = { ...limits, bytesMax: 1_000 };
  const atomic = assemble(stateOf(), [request("p1", [operation])], small);
  t.like(atomic.settlements[0], { kind: "refused", code: "tooLarge" });
  const each = assemble(stateOf(), [request("p1", [operation], ProposeRequest_Mode.EACH)], small);
  t.deepEqual(each.settlements, [{ kind: "done", skipped: 1 }]);
});

test("an atomic proposal alone in its transaction may use the space reserved for others' causes", (t) => {
  const large = create({ service: service("s1", "x".repeat(1_000)) });
  const few = { ...limits, bytesMax: 1_000, aloneBytesMax: 1_500 };
  const small = request("p0", [create({ service: service("s0", "") })]);
  const alone = assemble(stateOf(), [request("p1", [large]), small], few);
  t.deepEqual(alone.settlements, [{ kind: "done", skipped: 0 }], "and others wait");
  const behind = assemble(stateOf(), [small, request("p1", [large])], few);
  t.is(behind.settlements.length, 1, "it waits for a transaction of its own");
  const larger = create({ service: service("s1", "x".repeat(1_500)) });
  t.like(assemble(stateOf(), [request("p1", [larger])], few).settlements[0], { kind: "refused", code: "tooLarge" });
});

test("the tasks of a service include those stored and those of the same append, each in its final state", (t) => {
  const staging = stateOf(put({ task: task("t1") }), put({ task: task("t2") }));
  const found = () => [...staging.tasksOf("web")].map(({ desiredState, id }) => `${id} ${desiredState}`);
  staging.stage(put({ task: task("t3") }));
  staging.stage(put({ task: task("t4", { serviceId: "other" }) }));
  staging.stage(Change.create({ task: TaskPatch.create({ id: "t1", desiredState: TaskState.SHUTDOWN }) }));
  staging.stage(Change.create({ remove: Removal.create({ kind: Kind.KIND_TASK, id: "t2" }) }));
  t.deepEqual(found(), [`t1 ${TaskState.SHUTDOWN}`, `t3 ${TaskState.RUNNING}`]);
});
