// Certificates that last an hour, for longer than an hour: S92, and no node is declared DOWN.
import test from "ava";
import {
  CAConfig,
  ClusterSpec,
  ControlService,
  Duration,
  ListClustersRequest,
  NodeStatus_State,
  UpdateClusterRequest,
} from "../../proto/gen/messages.ts";
import { identityOf } from "../../simulation/managers/authority.ts";
import type { SimManager } from "../../simulation/managers/managers.ts";
import { ScriptedWorld } from "./scripted.ts";

const { ListClusters, UpdateCluster } = ControlService.methods;
const minuteMs = 60_000;

test("a connection ends with its certificate, and its node, which has renewed its own, reconnects at once", async (t) => {
  t.timeout(300_000);
  const world = new ScriptedWorld({
    seed: 21,
    managers: 1,
    agents: 2,
    steps: 2_000_000,
    onReplica: (replica, demand) =>
      void replica.watch(({ changes }) => {
        for (const { action, object, table } of changes)
          if (table === "node" && action !== "remove" && object.status?.state === NodeStatus_State.DOWN)
            demand(`S92: node ${object.id} is declared DOWN over its certificate`);
      }),
  });
  await world.found();
  const { simulation } = world.scene;
  const manager = world.leader as SimManager;
  const operator = simulation.ports("operator");
  const organization = world.managers.organization();
  const channel = operator.rpc.dial(manager.address, { nodeId: "client", role: "swarm-manager", organization });
  const cluster = () => [...(manager.running?.store.all("cluster") ?? [])][0];
  let isAsked = false;
  void channel.unary(ListClusters, ListClustersRequest.create()).then(async ({ clusters }) => {
    const [{ id, meta, spec } = { id: "", meta: null, spec: null }] = clusters;
    // Every node gets a short-lived certificate at once.
    const caConfig = CAConfig.create({ nodeCertExpiry: Duration.create({ seconds: 3_600 }), forceRotate: 1 });
    const wanted = ClusterSpec.patch(spec ?? ClusterSpec.create(), { caConfig });
    const request = { clusterId: id, clusterVersion: meta?.version ?? null, spec: wanted };
    await channel.unary(UpdateCluster, UpdateClusterRequest.create(request));
    isAsked = true;
  });
  await world.until("another root", () => isAsked && cluster()?.rootCa?.rootRotation === null);

  const ends = (): readonly number[] =>
    [...(manager.running?.store.all("node") ?? [])].map(
      ({ certificate }) =>
        identityOf(new TextDecoder().decode(certificate?.certificate), operator.clock.now())?.notAfterMs ?? 0,
    );
  const first = Math.max(...ends());
  t.true(first <= operator.clock.now() + 60 * minuteMs);
  const before = simulation.trace.marks.get("access.ended") ?? 0;
  let longestAwayMs = 0;
  for (let minute = 0; minute < 75; minute += 1) {
    await world.pass(minuteMs);
    const begunMs = operator.clock.now();
    await world.until("all nodes to be READY", () => world.areAllReady());
    longestAwayMs = Math.max(longestAwayMs, operator.clock.now() - begunMs);
  }
  t.true(operator.clock.now() > first);
  t.true(Math.min(...ends()) > operator.clock.now(), "all nodes have renewed");
  // Renewing does not end a session: the sessions of the first certificates ended with those.
  t.true((simulation.trace.marks.get("access.ended") ?? 0) >= before + 2);
  t.is(longestAwayMs, 0);
  t.is(world.scene.failure, null);
});
