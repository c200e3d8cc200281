// The simulation's invariants of rollouts and roots can fail: seeds rarely reach the states in which they do.
import test from "ava";
import {
  Cluster,
  GenericRuntimeSpec,
  JoinTokens,
  Meta,
  Node,
  NodeDescription,
  NodeTLSInfo,
  RootCA,
  Service,
  ServiceSpec,
  Annotations,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  UpdateStatus,
  UpdateStatus_UpdateState,
  Version,
} from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import { makeJoinToken } from "../../lib/pki/index.ts";
import type { Commit, ObjectChange } from "../../runtime/store/store.ts";
import { RootChecks } from "../../simulation/invariants/certificates.ts";
import { RolloutEnds } from "../../simulation/invariants/rollout-ends.ts";
import { RolloutChecks } from "../../simulation/invariants/rollout.ts";
import { testManager } from "../support/manager.ts";

const { COMPLETED, ROLLBACK_COMPLETED, ROLLBACK_STARTED, UPDATING } = UpdateStatus_UpdateState;
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

function commit(version: number, ...changes: ObjectChange[]): Commit {
  return { version, time: 0, changes, causes: [] };
}

function spec(name: string): ServiceSpec {
  return ServiceSpec.create({ annotations: Annotations.create({ name }) });
}

function service(name: string, state: UpdateStatus_UpdateState, previous: string | null): Service {
  return Service.create({
    id: "s",
    spec: spec(name),
    previousSpec: previous === null ? null : spec(previous),
    updateStatus: UpdateStatus.create({ state }),
  });
}

/** R6's finding for a service that goes through these. */
function told(...lives: readonly Service[]): string | null {
  const { store } = testManager();
  const checks = new RolloutChecks();
  let claim: string | null = null;
  for (const [at, object] of lives.entries()) {
    if (at === 0) continue;
    claim ??= checks.check(
      commit(at, { table: "service", action: "update", object, old: lives[at - 1] as Service }),
      store,
    );
  }
  return claim;
}

test("R6: a service rolls back by itself only during an update", (t) => {
  const [asked, over] = [service("b", UPDATING, "a"), service("b", COMPLETED, "a")];
  const back = service("a", ROLLBACK_STARTED, null);
  t.is(told(service("a", COMPLETED, null), asked, back), null);
  t.regex(told(asked, over, service("b", UPDATING, "a"), back) ?? "", /^R6/);
  t.is(told(asked, over, service("a", ROLLBACK_STARTED, "b")), null, "somebody requested it");
  t.is(told(asked, over, service("c", UPDATING, "b"), service("b", ROLLBACK_STARTED, null)), null, "another update");
});

/** R8's finding when a rollout of `service` ends, one of whose slots has tasks of these specs, the last running for 213 ms. */
function watched(...tasks: readonly { readonly kind: string; readonly version: number }[]): string | null {
  const { store, seed } = testManager();
  const [newest] = tasks.slice(-1);
  const specOf = (kind: string): TaskSpec => TaskSpec.create({ generic: GenericRuntimeSpec.create({ kind }) });
  const stored = (state: UpdateStatus_UpdateState): Service =>
    Service.create({
      id: "s",
      spec: ServiceSpec.create({ task: specOf(newest?.kind ?? "") }),
      specVersion: Version.create({ index: newest?.version ?? 0 }),
      updateStatus: UpdateStatus.create({ state }),
      meta: Meta.create({ updatedAt: timestampOf(100_213) }),
    });
  for (const [at, { kind, version }] of tasks.entries()) {
    const isNewest = at === tasks.length - 1;
    const state = isNewest ? TaskState.RUNNING : TaskState.FAILED;
    const told = { state, timestamp: timestampOf(100_000), appliedAt: timestampOf(100_000) };
    const fields = { id: `t${at}`, serviceId: "s", slot: 1, spec: specOf(kind), status: TaskStatus.create(told) };
    const desiredState = isNewest ? TaskState.RUNNING : TaskState.SHUTDOWN;
    seed("task", Task.create({ ...fields, desiredState, specVersion: Version.create({ index: version }) }));
  }
  seed("service", stored(ROLLBACK_COMPLETED));
  const [old, object] = [stored(ROLLBACK_STARTED), stored(ROLLBACK_COMPLETED)];
  return new RolloutEnds(true).check(commit(100, { table: "service", action: "update", object, old }), 1, store);
}

test("R8: tasks started by a rollout are monitored; restarts in a slot that has always had its spec are not", (t) => {
  t.regex(watched({ kind: "b", version: 2 }, { kind: "a", version: 3 }) ?? "", /^R8.* had run for 213 ms of 5000/);
  t.is(watched({ kind: "a", version: 1 }, { kind: "a", version: 3 }), null);
  const between = watched({ kind: "a", version: 1 }, { kind: "b", version: 2 }, { kind: "a", version: 3 });
  t.regex(between ?? "", /^R8/);
});

function node(issuer: string): Node {
  const tlsInfo = NodeTLSInfo.create({ certIssuerSubject: bytes("swarm-ca"), certIssuerPublicKey: bytes(issuer) });
  return Node.create({ id: "n", description: NodeDescription.create({ tlsInfo }) });
}

function cluster(root: string): Cluster {
  const token = makeJoinToken(bytes(root), new Uint8Array(16));
  const joinTokens = JoinTokens.create({ worker: token, manager: token });
  return Cluster.create({ id: "c", rootCa: RootCA.create({ caCert: bytes(root), joinTokens }) });
}

test("S20: the root is switched when each node has reported a certificate of the new one, whatever it reported later", (t) => {
  const { store, seed } = testManager();
  const switched = (version: number): Commit =>
    commit(version, { table: "cluster", action: "update", object: cluster("new"), old: cluster("old") });
  const says = (version: number, issuer: string): Commit => {
    seed("node", node(issuer));
    return commit(version, { table: "node", action: "update", object: node(issuer), old: node(issuer) });
  };
  const checks = new RootChecks();
  const mark = (): void => {};
  t.is(checks.check(says(1, "old"), store, mark), null);
  t.regex(checks.check(switched(2), store, mark) ?? "", /^S20/);
  t.is(checks.check(says(3, "new"), store, mark), null);
  t.is(checks.check(switched(4), store, mark), null);
  t.is(checks.check(says(5, "old"), store, mark), null);
  t.is(checks.check(switched(6), store, mark), null);
  t.regex(new RootChecks().check(switched(6), store, mark) ?? "", /^S20/);
});
