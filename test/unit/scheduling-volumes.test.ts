import test from "ava";
import { demandOf, judge, Verdict } from "../../machines/scheduling/filters.ts";
import { NodeSet } from "../../machines/scheduling/node-set.ts";
import { Backlog } from "../../machines/scheduling/place.ts";
import {
  Annotations,
  ContainerSpec,
  Driver,
  Mount,
  Mount_Type,
  Node,
  NodeCSIInfo,
  NodeDescription,
  Task,
  TaskState,
  TaskStatus,
  Topology,
  Volume,
  VolumeAccessMode,
  VolumeAccessMode_Scope,
  VolumeAccessMode_Sharing,
  VolumeAttachment,
  VolumeInfo,
  VolumePublishStatus,
  VolumePublishStatus_State,
  VolumeSpec,
  VolumeSpec_VolumeAvailability,
} from "../../proto/gen/messages.ts";
import { containerSpec, inState, pendingTask, pendingTasks, readyNode } from "../support/scheduling.ts";

const limits = { operationsMax: 100, replacementsMax: 100, judgementsMax: 1_000 };
const { SINGLE_NODE, MULTI_NODE } = VolumeAccessMode_Scope;
const { NONE, READ_ONLY, ONE_WRITER, ALL } = VolumeAccessMode_Sharing;

interface Traits {
  readonly group?: string;
  readonly scope?: VolumeAccessMode_Scope;
  readonly sharing?: VolumeAccessMode_Sharing;
  readonly availability?: VolumeSpec_VolumeAvailability;
  readonly topology?: Readonly<Record<string, string>>;
  readonly published?: Readonly<Record<string, VolumePublishStatus_State>>;
  readonly isMade?: boolean;
}

/** Named like its id; with many nodes and users unless stated otherwise. */
function volume(id: string, traits: Traits = {}): Volume {
  const { group = "", scope = MULTI_NODE, sharing = ALL, topology, published = {}, isMade = true } = traits;
  return Volume.create({
    id,
    spec: VolumeSpec.create({
      annotations: Annotations.create({ name: id }),
      group,
      driver: Driver.create({ name: "csi" }),
      accessMode: VolumeAccessMode.create({ scope, sharing }),
      availability: traits.availability ?? VolumeSpec_VolumeAvailability.ACTIVE,
    }),
    volumeInfo: VolumeInfo.create({
      volumeId: isMade ? `csi-${id}` : "",
      accessibleTopology: topology === undefined ? [] : [Topology.create({ segments: topology })],
    }),
    publishStatus: Object.entries(published).map(([nodeId, state]) => VolumePublishStatus.create({ nodeId, state })),
  });
}

function storageNode(id: string, zone = "a", maxVolumesPerNode = 0): Node {
  const node = readyNode(id);
  const accessibleTopology = Topology.create({ segments: { zone } });
  const csiInfo = [NodeCSIInfo.create({ pluginName: "csi", nodeId: id, maxVolumesPerNode, accessibleTopology })];
  return Node.patch(node, {
    description: NodeDescription.patch(node.description ?? NodeDescription.create(), { csiInfo }),
  });
}

/** Mounts each source at its own target; `name:ro` read-only. */
function mounting(id: string, sources: readonly string[], fields: Partial<Task> = {}): Task {
  const mounts = sources.map((source, at) =>
    Mount.create({
      type: Mount_Type.CLUSTER,
      source: source.replace(/:ro$/, ""),
      target: `/m${at}`,
      readonly: source.endsWith(":ro"),
    }),
  );
  return pendingTask(id, {
    serviceId: id,
    spec: containerSpec({ container: ContainerSpec.create({ mounts }) }),
    ...fields,
  });
}

function world(nodes: readonly Node[], volumes: readonly Volume[]) {
  const set = new NodeSet();
  for (const each of volumes) set.volumes.put(each);
  for (const node of nodes) set.put(node);
  const backlog = new Backlog(set);
  /** Task id → node and the ids of its volumes. */
  const place = (...tasks: readonly Task[]): Record<string, string> => {
    for (const task of tasks) backlog.follow(task);
    const placed: Record<string, string> = {};
    for (const { task, nodeId, volumes: given } of backlog.round(0, limits).assignments)
      placed[task.id] = [nodeId, ...given.map(({ id }) => id)].join(" ");
    return placed;
  };
  const verdict = (task: Task, nodeId = "n0"): Verdict => {
    const info = set.find(nodeId);
    return info === undefined ? Verdict.notReady : judge(demandOf(task), info);
  };
  return { set, backlog, place, verdict };
}

test("a volume is chosen by its name, or from its group, the least used one first", (t) => {
  const { place } = world(
    [storageNode("n0")],
    [volume("v1"), volume("g1", { group: "fast" }), volume("g2", { group: "fast" })],
  );
  t.deepEqual(place(mounting("a", ["v1"]), mounting("b", ["group:fast"]), mounting("c", ["group:fast"])), {
    a: "n0 v1",
    b: "n0 g1",
    c: "n0 g2",
  });
});

test("all mounts of a task must be satisfied, not any of them", (t) => {
  const { place, backlog } = world([storageNode("n0")], [volume("v1")]);
  t.deepEqual(place(mounting("a", ["v1", "v2"])), {});
  t.is(backlog.size, 1);
  const second = world(
    [storageNode("n0")],
    [volume("g1", { group: "g", sharing: NONE }), volume("g2", { group: "g", sharing: NONE })],
  );
  // The first mount could use the volume that only the second can: both are satisfied all the same.
  t.deepEqual(second.place(mounting("a", ["group:g", "g1"])), { a: "n0 g2 g1" });
  t.deepEqual(second.place(mounting("b", ["group:g"])), {});
});

test("only an ACTIVE volume that its plugin has created is chosen", (t) => {
  for (const bad of [
    volume("v1", { availability: VolumeSpec_VolumeAvailability.PAUSE }),
    volume("v1", { availability: VolumeSpec_VolumeAvailability.DRAIN }),
    volume("v1", { isMade: false }),
    Volume.patch(volume("v1"), { pendingDelete: true }),
  ])
    t.is(world([storageNode("n0")], [bad]).verdict(mounting("t", ["v1"])), Verdict.volumes);
  t.is(world([readyNode("n0")], [volume("v1")]).verdict(mounting("t", ["v1"])), Verdict.volumes, "no plugin there");
});

test("a volume's sharing mode is respected", (t) => {
  const cases: readonly (readonly [sharing: VolumeAccessMode_Sharing, first: string, second: string, fits: boolean])[] =
    [
      [NONE, "v", "v", false],
      [NONE, "v:ro", "v:ro", false],
      [READ_ONLY, "v:ro", "v:ro", true],
      [READ_ONLY, "v:ro", "v", false],
      [ONE_WRITER, "v", "v:ro", true],
      [ONE_WRITER, "v:ro", "v", true],
      [ONE_WRITER, "v", "v", false],
      [ALL, "v", "v", true],
    ];
  for (const [sharing, first, second, fits] of cases) {
    const { place } = world([storageNode("n0")], [volume("v", { sharing })]);
    t.deepEqual(place(mounting("a", [first])), { a: "n0 v" });
    t.is("b" in place(mounting("b", [second])), fits, `${sharing}: ${first}, then ${second}`);
  }
});

test("a volume of one node attracts its users there, and is free for another when they have ended", (t) => {
  const { set, place } = world([storageNode("n0"), storageNode("n1")], [volume("v", { scope: SINGLE_NODE })]);
  t.deepEqual(place(...["a", "b", "c"].map((id) => mounting(id, ["v"]))), { a: "n0 v", b: "n0 v", c: "n0 v" });
  for (const id of ["a", "b", "c"]) set.release(id);
  set.put(Node.patch(storageNode("n0"), { status: null }));
  t.deepEqual(place(mounting("d", ["v"])), { d: "n1 v" });
});

test("a node must be able to reach the volume, and hosts no more volumes than its plugin allows", (t) => {
  const { verdict } = world([storageNode("n0"), storageNode("n1", "b")], [volume("v", { topology: { zone: "b" } })]);
  t.is(verdict(mounting("t", ["v"]), "n0"), Verdict.volumes);
  t.is(verdict(mounting("t", ["v"]), "n1"), Verdict.fits);
  const { place } = world([storageNode("n0", "a", 1)], [volume("v1"), volume("v2")]);
  t.deepEqual(place(mounting("a", ["v1"]), mounting("b", ["v2"]), mounting("c", ["v1"])), { a: "n0 v1", c: "n0 v1" });
});

test("a task that waits for a volume says so, and is placed as soon as the volume can be used", (t) => {
  const { set, backlog } = world([storageNode("n0"), storageNode("n1")], []);
  for (const task of pendingTasks(2, { spec: mounting("x", ["v"]).spec })) backlog.follow(task);
  t.deepEqual(
    backlog.round(0, limits).explanations.map(({ text }) => text),
    Array(2).fill("no suitable node (cannot fulfill requested CSI volume mounts on 2 nodes)"),
  );
  t.false(backlog.isAwake);
  set.volumes.put(volume("v", { sharing: NONE }));
  t.true(backlog.isAwake);
  const [first] = backlog.round(0, limits).assignments;
  t.is(first?.nodeId, "n0");
  set.release(first?.task.id ?? "");
  t.true(backlog.isAwake, "the end of the only user helps the next");
  t.is(backlog.round(0, limits).assignments.length, 1);
});

test("a volume is published where the store says that it is used, and released elsewhere; one being released is left alone", (t) => {
  const { PUBLISHED, PENDING_PUBLISH, PENDING_NODE_UNPUBLISH, PENDING_UNPUBLISH } = VolumePublishStatus_State;
  const { set } = world(
    [storageNode("n0"), storageNode("n1")],
    [volume("v", { published: { n2: PUBLISHED, n3: PENDING_UNPUBLISH, n4: PENDING_PUBLISH } })],
  );
  const republished = () =>
    set.takeRepublished().map((each) => each.publishStatus.map(({ nodeId, state }) => [nodeId, state]));
  const given = [VolumeAttachment.create({ id: "v", source: "v", target: "/m0" })];
  const used = mounting("a", ["v"]);
  set.plan(used, "n1", [], given);
  t.deepEqual(republished(), [
    [
      ["n2", PENDING_NODE_UNPUBLISH],
      ["n3", PENDING_UNPUBLISH],
      // Never notified of it, so it has nothing to release.
      ["n4", PENDING_UNPUBLISH],
    ],
  ]);
  const assigned = Task.patch(used, {
    nodeId: "n1",
    volumes: given,
    status: TaskStatus.create({ state: TaskState.ASSIGNED }),
  });
  set.follow(assigned);
  t.deepEqual(republished().at(0)?.at(-1), ["n1", PENDING_PUBLISH], "a plan is no use yet");
  t.deepEqual(republished(), [], "it is published once");
  set.volumes.put(volume("v", { published: { n1: PUBLISHED } }));
  t.deepEqual(republished(), []);
  set.follow(inState(assigned, TaskState.SHUTDOWN));
  t.deepEqual(republished(), [[["n1", PENDING_NODE_UNPUBLISH]]]);
});
