// Nodes that requested a certificate and never registered.
import test from "ava";
import { startUnclaimedRemoval } from "../../actors/certificates/unclaimed-nodes.ts";
import { unclaimedBatchMax, unclaimedTimes } from "../../machines/certificates/unclaimed.ts";
import { Manager, Node, NodeDescription } from "../../proto/gen/messages.ts";
import { settle } from "../../runtime/sim/clock.ts";
import { testManager } from "../support/manager.ts";

const { keptMsMax, lookMs } = unclaimedTimes;

function world() {
  const manager = testManager();
  const pass = async (ms: number): Promise<void> => {
    for (let at = 0; at < ms; at += lookMs) {
      manager.clock.advance(Math.min(lookMs, ms - at));
      await settle();
    }
  };
  const ids = () => [...manager.store.all("node")].map(({ id }) => id).sort();
  return { manager, pass, ids };
}

test("a node that never registered is removed after its time; one that registered or is a manager never is", async (t) => {
  const { ids, manager, pass } = world();
  const { env, seed } = manager;
  const description = NodeDescription.create({});
  seed("manager", Manager.create({ id: "m2" }));
  seed("node", Node.create({ id: "dead" }), Node.create({ id: "slow" }), Node.create({ id: "m2" }));
  seed("node", Node.create({ id: "well", description }));
  const removing = startUnclaimedRemoval(env);
  t.teardown(() => removing.stop());
  await pass(keptMsMax - lookMs);
  t.deepEqual(ids(), ["dead", "m2", "slow", "well"]);
  seed("node", Node.create({ id: "slow", description }), Node.create({ id: "late" }));
  await pass(3 * lookMs);
  t.deepEqual(ids(), ["late", "m2", "slow", "well"]);
  await pass(keptMsMax);
  t.deepEqual(ids(), ["m2", "slow", "well"]);
});

test("more nodes than fit into one transaction are removed in several rounds, and a log that accepts nothing delays it", async (t) => {
  const { ids, manager, pass } = world();
  manager.seed("node", ...Array.from({ length: unclaimedBatchMax + 1 }, (_, at) => Node.create({ id: `dead${at}` })));
  const removing = startUnclaimedRemoval(manager.env);
  t.teardown(() => removing.stop());
  manager.leaderless = true;
  await pass(keptMsMax + 2 * lookMs);
  t.is(ids().length, unclaimedBatchMax + 1);
  manager.leaderless = false;
  await pass(lookMs);
  t.is(ids().length, 1);
  await pass(lookMs);
  t.is(ids().length, 0);
});
