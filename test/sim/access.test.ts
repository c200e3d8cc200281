// A node that is removed or demoted loses its open calls at every manager, also at one that lags; S90 and S91.
import test from "ava";
import {
  ControlService,
  GetNodeRequest,
  KeyRotation,
  ListClustersRequest,
  NodeRole,
  NodeSpec,
  RemoveNodeRequest,
  UpdateClusterRequest,
  UpdateNodeRequest,
} from "../../proto/gen/messages.ts";
import { RpcError, type RpcChannel } from "../../runtime/ports/rpc.ts";
import type { SimIdentity } from "../../runtime/sim/rpc.ts";
import { Intruder, joinTokensIn } from "../../simulation/faults/intruder.ts";
import type { SimManager } from "../../simulation/managers/managers.ts";
import { ScriptedWorld } from "./scripted.ts";

const { GetNode, ListClusters, RemoveNode, UpdateCluster, UpdateNode } = ControlService.methods;

for (const seed of [1, 2, 3]) {
  test(`removed and demoted nodes lose their open calls and get no join token, seed ${seed}`, async (t) => {
    t.timeout(120_000);
    const tokens = new Set<string>();
    const world = new ScriptedWorld({
      seed,
      managers: 3,
      onReplica: (replica) =>
        void replica.watch((commit) => {
          for (const token of joinTokensIn(commit)) tokens.add(token);
        }),
    });
    await world.found();
    const { simulation } = world.scene;
    const [leader, demoted] = [world.leader as SimManager, world.managers.all.find((each) => each !== world.leader)];
    const lagging = world.managers.all.find((each) => each !== leader && each !== demoted) as SimManager;
    if (demoted === undefined) throw new Error("no other manager");
    const idOf = (name: string): string => leader.running?.store.byName("node", name)?.id ?? "";
    const organization = world.managers.organization();
    const [worker, manager] = [idOf("a1"), idOf(demoted.process.name)];
    const identities: NonNullable<SimIdentity>[] = [
      { nodeId: worker, role: "swarm-worker", organization },
      { nodeId: manager, role: "swarm-manager", organization },
    ];
    const intruder = new Intruder({
      ports: simulation.ports("intruder"),
      trace: simulation.trace,
      addresses: world.managers.all.map(({ address }) => address),
      identities: () => identities,
      tokens: () => [...tokens],
      onWrong: (claim) => world.scene.fail(claim),
    });
    intruder.start();
    await world.until(
      "the intruder to hold all",
      () => intruder.openOf(worker) === 6 && intruder.openOf(manager) === 3,
    );

    const operator = simulation.ports("operator");
    const channel: RpcChannel = operator.rpc.dial(leader.address, {
      nodeId: "client",
      role: "swarm-manager",
      organization,
    });
    // The tokens change continually, so that there is always something to send.
    let rotations = 0;
    const rotate = async (): Promise<void> => {
      const { clusters } = await channel.unary(ListClusters, ListClustersRequest.create());
      const [cluster] = clusters;
      const rotation = KeyRotation.create({ workerJoinToken: true, managerJoinToken: true });
      const version = cluster?.meta?.version ?? null;
      await channel.unary(
        UpdateCluster,
        UpdateClusterRequest.create({
          clusterId: cluster?.id ?? "",
          clusterVersion: version,
          spec: cluster?.spec ?? null,
          rotation,
        }),
      );
      rotations += 1;
    };
    const again = (): void =>
      void rotate()
        .catch((error: unknown) => {
          if (!(error instanceof RpcError)) world.scene.fail(String(error));
        })
        .then(() => operator.clock.after(150, again));
    again();
    const attempt = (call: () => Promise<unknown>): (() => boolean) => {
      let isDone = false;
      const tryIt = (): void =>
        void call().then(
          () => (isDone = true),
          () => operator.clock.after(300, tryIt),
        );
      tryIt();
      return () => isDone;
    };

    const demotion = attempt(async () => {
      const { node } = await channel.unary(GetNode, GetNodeRequest.create({ nodeId: manager }));
      const spec = NodeSpec.patch(node?.spec ?? NodeSpec.create(), { desiredRole: NodeRole.WORKER });
      await channel.unary(
        UpdateNode,
        UpdateNodeRequest.create({ nodeId: manager, nodeVersion: node?.meta?.version ?? null, spec }),
      );
    });
    await world.until("the demotion", demotion);
    const roleAt = ({ running }: SimManager) => running?.store.get("node", manager)?.role;
    await world.until(
      "it to be a worker",
      () => roleAt(leader) === NodeRole.WORKER && roleAt(lagging) === NodeRole.WORKER,
    );
    await world.pass(1_000);
    t.is(intruder.openOf(manager), 0, "its streams for managers are closed");
    t.true((simulation.trace.marks.get("intruder.thrown.out") ?? 0) >= 1);

    // One manager is suspended while the node is removed, and resumes with its old state.
    lagging.process.pause(3_000);
    await world.until(
      "the removals",
      (
        (removed) => () =>
          removed.every((isDone) => isDone())
      )(
        [worker, manager].map((nodeId) =>
          attempt(() => channel.unary(RemoveNode, RemoveNodeRequest.create({ nodeId, force: true }))),
        ),
      ),
    );
    const isKnown = ({ running }: SimManager): boolean => running?.store.get("node", worker) !== undefined;
    await world.until("all to know of it", () => !isKnown(leader) && !isKnown(lagging));
    const before = rotations;
    await world.pass(20_000);
    t.true(rotations > before + 10);
    t.is(intruder.openOf(worker), 0);
    t.is(intruder.openOf(manager), 0);
    t.true((simulation.trace.marks.get("access.ended") ?? 0) >= 4);
    t.true(tokens.size > 20);
  });
}
