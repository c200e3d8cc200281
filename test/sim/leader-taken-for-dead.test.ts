// A manager that was declared dead leads before the log records that it is alive, and is demoted at that moment.
import test from "ava";
import { ControlService, NodeRole, NodeSpec, UpdateNodeRequest } from "../../proto/gen/messages.ts";
import { checkRoles } from "../../simulation/invariants/roles.ts";
import type { SimManager } from "../../simulation/managers/managers.ts";
import { ScriptedWorld } from "./scripted.ts";

test("a leader that is dead in the log becomes a worker only after it has stopped leading", async (t) => {
  t.timeout(60_000);
  const world = new ScriptedWorld({
    seed: 3,
    managers: 2,
    // S33
    onReplica: (replica, demand) => void replica.watch((commit) => demand(checkRoles(commit, replica))),
  });
  await world.found();
  const first = world.leader as SimManager;
  const second = world.managers.all.find((each) => each !== first) as SimManager;
  const knownTo = ({ running }: SimManager) => {
    const node = running?.store.byName("node", second.process.name);
    return { node, record: running?.store.get("manager", node?.id ?? "") };
  };
  second.process.pause(8_000);
  await world.until("the silent manager to be declared dead", () => knownTo(first).record?.alive === false);
  first.process.crash();
  await world.until("it to lead", () => second.running?.isLeading() === true);
  t.false(knownTo(second).record?.alive, "its own record follows the first record of its term");

  const { node } = knownTo(second);
  const organization = world.managers.organization();
  const { rpc } = world.scene.simulation.ports("client");
  const channel = rpc.dial(second.address, { nodeId: "client", role: "swarm-manager", organization });
  const spec = NodeSpec.patch(node?.spec ?? NodeSpec.create(), { desiredRole: NodeRole.WORKER });
  const request = UpdateNodeRequest.create({ nodeId: node?.id ?? "", nodeVersion: node?.meta?.version ?? null, spec });
  let answered: NodeRole | undefined;
  void channel.unary(ControlService.methods.UpdateNode, request).then((answer) => (answered = answer.node?.role));
  await world.until("the demoted manager to exit", () => second.isRetired);
  t.is(answered, NodeRole.MANAGER);

  first.process.start();
  await world.until("the next leader to record it", () => knownTo(first).node?.role === NodeRole.WORKER);
  t.is(knownTo(first).record, undefined);
});
