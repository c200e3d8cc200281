import test from "ava";
import fc from "fast-check";
import { calculateNode, clusterFacts } from "../../machines/policy/calculate.ts";
import {
  applyUpdate,
  difference,
  emptyState,
  FollowedState,
  isEmptyUpdate,
  type NodeState,
} from "../../machines/policy/node-state.ts";
import type { NodeView } from "../../machines/policy/node-view.ts";
import { DataplaneUpdate, NetworkPolicy, PolicyPeer, PolicyRule, TaskState } from "../../proto/gen/messages.ts";
import {
  chosen,
  emptyCluster,
  nodeOf,
  resourceOf,
  serviceOf,
  steps,
  taskOf,
  type Cluster,
} from "../support/policies.ts";
import { fedGraph } from "../support/policy-feed.ts";

function expectedOf(cluster: Cluster, nodeId: string): NodeState {
  const facts = clusterFacts({
    tasks: cluster.task.values(),
    services: cluster.service.values(),
    nodes: cluster.node.values(),
    resources: cluster.resource.values(),
    managers: [],
  });
  return calculateNode(facts, nodeId);
}

/** Everything in an order that does not depend on arrival. */
function plain(state: NodeState): unknown {
  const sorted = <Of>(map: ReadonlyMap<string, Of>, show: (of: Of) => unknown) =>
    [...map].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([key, of]) => [key, show(of)]);
  const shown = (of: unknown): unknown => JSON.parse(JSON.stringify(of));
  return {
    config: shown(state.config),
    sets: sorted(state.sets, ({ type, members }) => [type, [...members].toSorted()]),
    profiles: sorted(state.profiles, shown),
    policies: sorted(state.policies, shown),
    endpoints: sorted(state.endpoints, shown),
    hostEndpoints: sorted(state.hostEndpoints, shown),
    hosts: sorted(state.hosts, shown),
  };
}

/** Objects as a driver would: used objects must exist, and deltas must be exact. */
function follow(state: NodeState, update: DataplaneUpdate): string[] {
  const objections: string[] = [];
  for (const { id, added, removed } of update.setDeltas) {
    const members = state.sets.get(id)?.members;
    if (members === undefined) objections.push(`delta of unknown set ${id}`);
    else if (added.some((each) => members.has(each)) || removed.some((each) => !members.has(each)))
      objections.push(`inexact delta of ${id}`);
  }
  applyUpdate(state, update);
  for (const policy of [...state.policies.values(), ...state.profiles.values()])
    for (const rule of [...policy.ingress, ...policy.egress])
      for (const peer of [rule.source, rule.destination])
        for (const id of [...(peer?.sets ?? []), ...(peer?.notSets ?? []), ...(peer?.portSets ?? [])])
          if (!state.sets.has(id)) objections.push(`a rule names the unknown set ${id}`);
  for (const endpoint of state.endpoints.values())
    for (const tier of endpoint.tiers)
      for (const name of [...tier.ingress, ...tier.egress])
        if (!state.policies.has(`${tier.name} ${name}`)) objections.push(`${endpoint.id} names unknown ${name}`);
  return objections;
}

test("G1: incremental updates equal the state computed from scratch, in any order of changes", (t) => {
  fc.assert(
    fc.property(fc.array(fc.tuple(steps, fc.boolean()), { maxLength: 60 }), fc.nat(40), (history, followsAt) => {
      const cluster = emptyCluster();
      const { graph, step } = fedGraph(cluster);
      const followers: { readonly view: NodeView; readonly state: NodeState }[] = [];
      const follower = (nodeId: string) =>
        followers.push({ view: graph.follow(nodeId, () => undefined), state: emptyState() });
      const read = (): void => {
        for (const { view, state } of followers) {
          const update = view.take(1);
          if (update === null) continue;
          t.deepEqual(follow(state, update), []);
        }
      };
      const check = (): void => {
        read();
        for (const { view, state } of followers)
          t.deepEqual(plain(state), plain(expectedOf(cluster, view.nodeId)), view.nodeId);
      };
      follower("n1");
      for (const [at, [each, isRead]] of history.entries()) {
        if (at === followsAt) {
          follower("n2");
          follower("n1");
        }
        step(each);
        if (isRead) read();
        if (at % 20 === 0) check();
      }
      check();
      // Removing the last user removes the used object.
      for (const { view } of followers) graph.unfollow(view);
      t.is(graph.sets.size, 0);
    }),
    { numRuns: 250 },
  );
});

test("D1: the difference of two states leads from one to the other", (t) => {
  fc.assert(
    fc.property(fc.array(steps, { maxLength: 25 }), fc.array(steps, { maxLength: 10 }), (first, second) => {
      const cluster = emptyCluster();
      const { step } = fedGraph(cluster);
      first.forEach(step);
      const before = expectedOf(cluster, "n1");
      second.forEach(step);
      const after = expectedOf(cluster, "n1");
      const update = difference(before, after);
      applyUpdate(before, update);
      t.deepEqual(plain(before), plain(after));
      t.true(isEmptyUpdate(difference(before, after)));
    }),
    { numRuns: 100 },
  );
});

function small() {
  const cluster = emptyCluster();
  const fed = fedGraph(cluster);
  fed.step({ table: "node", id: "n1", object: nodeOf("n1") });
  fed.step({ table: "node", id: "n2", object: nodeOf("n2") });
  fed.step({ table: "service", id: "svc-web", object: serviceOf("web") });
  fed.step({ table: "service", id: "svc-db", object: serviceOf("db", {}, [["sql", 5_432]], "10.0.9.9") });
  fed.step({ table: "task", id: "d1", object: taskOf("d1", "db", "n1", ["10.0.0.1/24"]) });
  fed.step({ table: "task", id: "w1", object: taskOf("w1", "web", "n2", ["10.0.0.2/24"]) });
  return { cluster, ...fed };
}

const fromWeb = NetworkPolicy.create({
  name: "db",
  selector: "service == 'db'",
  appliesIngress: true,
  ingress: [
    PolicyRule.create({
      action: "allow",
      protocol: "tcp",
      source: PolicyPeer.create({ selector: chosen("service == 'web'") }),
      destination: PolicyPeer.create({ namedPorts: ["sql"] }),
    }),
  ],
});

test("V2: a node gets only what its own endpoints use", (t) => {
  const { graph, step } = small();
  const db = graph.follow("n1", () => undefined);
  const web = graph.follow("n2", () => undefined);
  db.take(1);
  web.take(1);
  step({ table: "resource", id: "p", object: resourceOf({ kind: "NetworkPolicy", object: fromWeb }) });
  t.is(web.take(2), null);
  const update = db.take(2);
  t.deepEqual(
    update?.sets.map(({ members }) => members),
    [["10.0.0.2"], ["10.0.0.1,tcp:5432"]],
  );
  t.is(update?.policies.length, 1);
  t.deepEqual(update?.endpoints[0]?.tiers[0]?.ingress, ["db"]);
  // The service's last task is removed: with it the policy and its sets.
  step({ table: "task", id: "d1", object: taskOf("d1", "db", "n1", ["10.0.0.1/24"], TaskState.FAILED) });
  const gone = db.take(3);
  t.is(gone?.removedSets.length, 2);
  t.is(gone?.removedPolicies.length, 1);
  t.is(gone?.removedEndpoints.length, 1);
});

test("a follower that does not read gets the sum: nothing where members came and went", (t) => {
  const { graph, step } = small();
  step({ table: "resource", id: "p", object: resourceOf({ kind: "NetworkPolicy", object: fromWeb }) });
  let calls = 0;
  const view = graph.follow("n1", () => (calls += 1));
  view.take(1);
  for (let round = 0; round < 500; round++) {
    step({ table: "task", id: "w2", object: taskOf("w2", "web", "n2", ["10.0.0.9/24"]) });
    step({ table: "task", id: "w2", object: null });
  }
  t.is(calls, 1);
  t.is(view.take(2), null);
  step({ table: "task", id: "w2", object: taskOf("w2", "web", "n2", ["10.0.0.9/24"]) });
  t.deepEqual(
    view.take(3)?.setDeltas.map(({ added, removed }) => [added, removed]),
    [[["10.0.0.9"], []]],
  );
});

test("an address that one task hands to the next never leaves the set", (t) => {
  const { graph, step } = small();
  step({ table: "resource", id: "p", object: resourceOf({ kind: "NetworkPolicy", object: fromWeb }) });
  const view = graph.follow("n1", () => undefined);
  view.take(1);
  step({ table: "task", id: "w2", object: taskOf("w2", "web", "n1", ["10.0.0.2/24"]) });
  step({ table: "task", id: "w1", object: null });
  t.deepEqual(view.take(2)?.setDeltas, []);
});

test("changes of a task's state cost nothing", (t) => {
  const { graph, step } = small();
  step({ table: "resource", id: "p", object: resourceOf({ kind: "NetworkPolicy", object: fromWeb }) });
  let calls = 0;
  const view = graph.follow("n1", () => (calls += 1));
  view.take(1);
  const asked = graph.asked;
  step({ table: "task", id: "w1", object: taskOf("w1", "web", "n2", ["10.0.0.2/24"], TaskState.STARTING) });
  t.is(calls, 0);
  t.is(graph.asked, asked);
});

test("D2: a follower keeps the state in force until a fresh one is complete, and then sends the difference", (t) => {
  const { graph, step } = small();
  step({ table: "resource", id: "p", object: resourceOf({ kind: "NetworkPolicy", object: fromWeb }) });
  const followed = new FollowedState();
  t.is(followed.take(DataplaneUpdate.create({ inSync: true })), null);
  const first = followed.take(graph.follow("n1", () => undefined).take(1) as DataplaneUpdate);
  t.true(first?.fresh);
  step({ table: "task", id: "w2", object: taskOf("w2", "web", "n2", ["10.0.0.9/24"]) });
  const again = graph.follow("n1", () => undefined).take(2) as DataplaneUpdate;
  t.is(followed.take(DataplaneUpdate.patch(again, { inSync: false })), null);
  t.is(followed.state.policies.size, 1);
  followed.interrupted();
  const change = followed.take(again);
  t.false(change?.fresh);
  t.deepEqual(change?.sets, []);
  t.deepEqual(
    change?.setDeltas.map(({ added }) => added),
    [["10.0.0.9"]],
  );
  t.deepEqual(change?.policies, []);
});
