// A hostname that several nodes have is shown with the id wherever it denotes a node.
import test from "ava";
import { nodeNames } from "../../machines/node-names.ts";
import { NodeSet } from "../../machines/scheduling/node-set.ts";
import { WhatIf } from "../../machines/scheduling/what-if.ts";
import { explainVolume, storedCsiView } from "../../machines/volumes/csi/explain.ts";
import {
  Cluster,
  Endpoint,
  Node,
  NodeRole,
  Placement,
  ResourceRequirements,
  Resources,
  RootCA,
  RootRotation,
  Service,
  TaskSpec,
  TaskState,
  Timestamp,
  TaskStatus,
  Volume,
  VolumeInfo,
  VolumePublishStatus,
  VolumePublishStatus_State,
} from "../../proto/gen/messages.ts";
import { readyNode, served, taskOf } from "../support/served.ts";
import { pendingTask, readyNode as roomyNode } from "../support/scheduling.ts";

const twins = (): readonly Node[] => [readyNode("n1", "alpha"), readyNode("n2", "alpha")];

test("a hostname that several nodes have is followed by the id, and a node without one is shown by its id", (t) => {
  const nameOf = nodeNames([
    readyNode("n1", "alpha"),
    readyNode("n2", "beta"),
    readyNode("n3", "alpha"),
    readyNode("n4", ""),
  ]);
  t.deepEqual(["n1", "n2", "n3", "n4", "n5"].map(nameOf), ["alpha (n1)", "beta", "alpha (n3)", "n4", "n5"]);
});

test("a manager and an agent on one machine share its hostname, except where nodes of both roles are listed", (t) => {
  const nodes = [Node.patch(readyNode("m1", "alpha"), { role: NodeRole.MANAGER }), readyNode("n1", "alpha")];
  t.deepEqual(["m1", "n1"].map(nodeNames(nodes)), ["alpha", "alpha"]);
  t.deepEqual(["m1", "n1"].map(nodeNames(nodes, "all")), ["alpha (m1)", "alpha (n1)"]);
});

test("task ls distinguishes two nodes of one hostname, and the hostname alone is rejected", async (t) => {
  const { muster, manager } = await served(t);
  manager.seed("node", readyNode("n1", "alpha"), readyNode("n2", "alpha"));
  const service = Service.create({ id: "web" });
  manager.seed("task", taskOf(service, 1, "n2", TaskState.RUNNING));
  const listed = await muster("task", "ls", "--no-trunc");
  const { lines } = listed;
  t.deepEqual(listed.remarks, []);
  t.regex(lines.join("\n"), /alpha \(n2\)/);
  t.notRegex(lines.join("\n"), /alpha \(n1\)/);
  const refused = await muster("node", "inspect", "alpha");
  t.deepEqual(refused.remarks, ["muster: node alpha is ambiguous (2 matches found)"]);
});

test("each node's answer to a waiting task distinguishes nodes of one hostname", (t) => {
  const set = new NodeSet();
  for (const node of twins()) set.put(node);
  const waiting = (spec: TaskSpec, nodeId = "") => {
    const placed = new WhatIf(set, 1_000).place([pendingTask("t", { spec, nodeId })]).get("t");
    return placed?.kind === "waits" ? placed.nodes : [];
  };
  const zoned = TaskSpec.create({ placement: Placement.create({ constraints: ["node.labels.zone==eu"] }) });
  t.deepEqual(waiting(zoned), [
    "node alpha (n1): does not meet node.labels.zone==eu",
    "node alpha (n2): does not meet node.labels.zone==eu",
  ]);
  // A hostname that is unique again is shown alone again.
  set.remove("n1");
  t.deepEqual(waiting(zoned), ["node alpha: does not meet node.labels.zone==eu"]);
  set.put(readyNode("n3", "beta"));
  set.put(readyNode("n3", "alpha"));
  t.deepEqual(waiting(zoned, "n3"), ["node alpha (n3): does not meet node.labels.zone==eu"]);
});

test("a waiting task's requested memory and nodes' memory are shown in units", (t) => {
  const set = new NodeSet();
  set.put(roomyNode("n1"));
  const wanting = (memoryBytes: number): readonly string[] => {
    const resources = ResourceRequirements.create({ reservations: Resources.create({ memoryBytes }) });
    const placed = new WhatIf(set, 1_000).place([pendingTask("t", { spec: TaskSpec.create({ resources }) })]).get("t");
    return placed?.kind === "waits" ? placed.nodes : [];
  };
  t.regex(wanting(900 * 1_024 ** 3)[0] ?? "", /: 900GiB of memory requested, [\d.]+[KMGT]?i?B free$/);
});

test("service plan and service rebalance distinguish nodes of one hostname", async (t) => {
  const { muster, manager } = await served(t);
  manager.seed("node", ...twins());
  const made = await muster("service", "create", "-d", "--name", "web", "--replicas", "4", "nginx");
  t.deepEqual(made.remarks, []);
  const service = manager.store.byName("service", "web") as Service;
  const seconds = Math.floor(manager.env.clock.now() / 1_000) - 3_600;
  const endpoint = Endpoint.create({ spec: service.spec?.endpoint ?? null });
  const status = TaskStatus.create({ state: TaskState.RUNNING, appliedAt: Timestamp.create({ seconds }) });
  manager.seed(
    "task",
    ...[1, 2, 3, 4].map((slot) => taskOf(service, slot, "n1", TaskState.RUNNING, { status, endpoint })),
  );
  const plan = (await muster("service", "plan", "scale", "web=5")).lines.join("\n");
  t.regex(plan, /^at once +create +web\.5 +alpha \(n2\) +.*; alpha \(n2\): had 0 of its tasks/m);
  t.regex(plan, /^alpha \(n2\) +0 +1$/m);
  const moves = (await muster("service", "rebalance", "--dry-run")).lines.join("\n");
  t.regex(
    moves,
    /web\.4 +alpha \(n1\) +alpha \(n2\) .*node alpha \(n1\) has 4 tasks of the service, node alpha \(n2\) has 0/,
  );
});

test("policy status and a rotation of the root distinguish nodes of one hostname", async (t) => {
  const { muster, manager } = await served(t);
  manager.seed("node", ...twins());
  const status = (await muster("policy", "status")).lines;
  for (const id of ["n1", "n2"])
    t.true(
      status.some((line) => line.startsWith(`alpha (${id}) `)),
      id,
    );
  const [cluster] = manager.store.all("cluster");
  if (cluster === undefined) throw new Error("no cluster");
  const rootCa = RootCA.patch(cluster.rootCa ?? RootCA.create(), { rootRotation: RootRotation.create({}) });
  manager.seed("cluster", Cluster.patch(cluster, { rootCa }));
  const { lines } = await muster("cluster", "inspect", "--pretty", cluster.id);
  t.regex(lines.join("\n"), /waiting for .*alpha \(n1\), alpha \(n2\)/);
});

test("explain rejects an ambiguous hostname", async (t) => {
  const { muster, manager } = await served(t);
  manager.seed("node", ...twins());
  const { remarks } = await muster("policy", "explain", "alpha", "192.0.2.9", "tcp/80");
  t.deepEqual(remarks, ["muster: node alpha is ambiguous (2 matches found)"]);
});

test("a waiting volume distinguishes nodes of one hostname", (t) => {
  const nodes = twins();
  const volume = Volume.create({
    id: "v1",
    volumeInfo: VolumeInfo.create({ volumeId: "at-plugin" }),
    publishStatus: [VolumePublishStatus.create({ nodeId: "n2", state: VolumePublishStatus_State.PENDING_PUBLISH })],
  });
  const view = storedCsiView({
    volumes: () => [volume],
    volume: () => volume,
    node: (id) => nodes.find((node) => node.id === id),
    nodes: () => nodes,
  });
  t.true(explainVolume(volume, view).some(({ waitingFor }) => waitingFor.endsWith("to attach it to node alpha (n2)")));
});
