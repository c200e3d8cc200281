/**
 * B3: a leader knows earlier moves from the tasks that they created. Once these are gone, the next leader may use the window's budget
 * again, and the present one may not (ADR 10).
 */
import test from "ava";
import { movedFrom } from "../../machines/orchestration/rebalancing/moves.ts";
import { rebalanceLabels } from "../../machines/orchestration/rebalancing/settings.ts";
import {
  Annotations,
  ClusterSpec,
  ControlService,
  NodeSpec,
  NodeSpec_Availability,
  RemoveServiceRequest,
  UpdateClusterRequest,
  UpdateNodeRequest,
} from "../../proto/gen/messages.ts";
import { simService } from "../../simulation/workloads/services.ts";
import { ScriptedWorld, steadyTasks } from "./scripted.ts";

const movesMax = 4;
const replicas = 2 * movesMax;
/** Longer than the whole scenario, in milliseconds. */
const windowMs = 600_000;
/** Moves of a round, and their monitor period: enough for all moves of the budget, in milliseconds. */
const movingMs = 60_000;
const timeoutMs = 10_000;

const labels = {
  [rebalanceLabels.mode]: "on",
  [rebalanceLabels.settle]: "1000ms",
  [rebalanceLabels.quiet]: "2000ms",
  [rebalanceLabels.round]: "2",
  [rebalanceLabels.moves]: String(movesMax),
  [rebalanceLabels.window]: `${windowMs}ms`,
};

async function rebalancing() {
  const moves = new Set<string>();
  const world = new ScriptedWorld({
    seed: 5,
    managers: 3,
    tasks: steadyTasks,
    onReplica: (replica) =>
      void replica.watch(({ changes }) => {
        for (const { action, object, table } of changes)
          if (table === "task" && action === "create" && movedFrom(object) !== "") moves.add(object.id);
      }),
  });
  await world.found();
  const { methods } = ControlService;
  const leaderStore = () => world.leader?.running?.store;
  const availability = async (name: string, wanted: NodeSpec_Availability): Promise<void> => {
    const node = leaderStore()?.byName("node", name);
    const spec = NodeSpec.patch(node?.spec ?? NodeSpec.create(), { availability: wanted });
    const request = UpdateNodeRequest.create({
      nodeId: node?.id ?? "",
      nodeVersion: node?.meta?.version ?? null,
      spec,
    });
    await world.answered("the node", world.dial().unary(methods.UpdateNode, request, { timeoutMs }));
  };
  const [cluster] = leaderStore()?.all("cluster") ?? [];
  const before = cluster?.spec ?? ClusterSpec.create();
  const spec = ClusterSpec.patch(before, {
    annotations: Annotations.patch(before.annotations ?? Annotations.create(), { labels }),
  });
  const update = { clusterId: cluster?.id ?? "", clusterVersion: cluster?.meta?.version ?? null, spec };
  await world.answered(
    "the settings",
    world.dial().unary(methods.UpdateCluster, UpdateClusterRequest.create(update), { timeoutMs }),
  );
  // A service that fills the first node, and a second node for half of its tasks.
  const one = await world.create(simService({ name: "one", replicas }));
  await world.pass(5_000);
  world.addAgent("a2");
  await world.until("all moves of the budget", () => moves.size === movesMax);
  await world.pass(10_000);
  const removal = RemoveServiceRequest.create({ serviceId: one });
  await world.answered("the removal", world.dial().unary(methods.RemoveService, removal, { timeoutMs }));
  await world.until("the end of the moved tasks", () => [...(leaderStore()?.all("task") ?? [])].length === 0);
  await availability("a2", NodeSpec_Availability.PAUSE);
  await world.create(simService({ name: "two", replicas }));
  await world.pass(5_000);
  return { world, moves, resume: () => availability("a2", NodeSpec_Availability.ACTIVE) };
}

test("a leader counts moves whose tasks are gone", async (t) => {
  const { moves, resume, world } = await rebalancing();
  await resume();
  await world.pass(movingMs);
  t.is(moves.size, movesMax);
});

test("the next leader uses at most its own budget again", async (t) => {
  const { moves, resume, world } = await rebalancing();
  const { process } = world.leader ?? {};
  process?.crash();
  await world.until("another leader", () => world.leader !== undefined);
  process?.start();
  await resume();
  await world.pass(2 * movingMs);
  t.is(moves.size, 2 * movesMax, "more than the window's budget, and no more than twice");
});
