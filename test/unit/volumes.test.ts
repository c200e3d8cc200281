// The leader's handling of cluster volumes, against a storage plugin in memory.
import test, { type ExecutionContext } from "ava";
import { startVolumes } from "../../actors/volumes/volumes.ts";
import {
  Secret,
  SecretSpec,
  TaskState,
  Volume,
  VolumeAccessMode_Scope,
  VolumeAttachment,
  VolumeInfo,
  VolumePublishStatus,
  VolumePublishStatus_State as PublishState,
  VolumeSecret,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { pluginName, PluginLink, socketsOf, storageNode, volume } from "../support/csi.ts";
import { testManager } from "../support/manager.ts";
import { inState, pendingTask } from "../support/scheduling.ts";
import { Storage, type StorageOptions } from "../../simulation/nodes/storage-model.ts";

const { PENDING_PUBLISH, PUBLISHED, PENDING_NODE_UNPUBLISH, PENDING_UNPUBLISH } = PublishState;

function world(t: ExecutionContext, options: StorageOptions = {}) {
  const manager = testManager();
  const { clock, env, seed, store } = manager;
  const storage = new Storage(options);
  const sockets = socketsOf(() => new PluginLink(clock, storage, null));
  const term = { isCurrent: true };
  const start = () => {
    const volumes = startVolumes(env, sockets, () => term.isCurrent);
    t.teardown(() => volumes.stop());
    return volumes;
  };
  const settle = async (ms = 500) => {
    await clock.run({ untilMs: clock.now() + ms });
  };
  const stored = (id: string): Volume => store.get("volume", id) as Volume;
  const states = (id: string): Record<string, PublishState> =>
    Object.fromEntries(stored(id).publishStatus.map(({ nodeId, state }) => [nodeId, state]));
  /** As the scheduler or an agent would. */
  const publish = (id: string, wanted: Readonly<Record<string, PublishState>>) => {
    const publishStatus = Object.entries(wanted).map(([nodeId, state]) =>
      VolumePublishStatus.patch(
        stored(id).publishStatus.find((status) => status.nodeId === nodeId) ?? VolumePublishStatus.create({ nodeId }),
        { state },
      ),
    );
    seed("volume", Volume.patch(stored(id), { publishStatus }));
  };
  return { ...manager, clock, env, seed, store, storage, sockets, term, start, settle, stored, states, publish };
}

const made = VolumeInfo.create({ volumeId: "vol-data" });

test("a volume is created at its plugin and the store gets its id", async (t) => {
  const { seed, start, settle, stored, storage } = world(t);
  seed("volume", volume("data"));
  start();
  await settle();
  t.is(stored("data").volumeInfo?.volumeId, "vol-data");
  t.deepEqual(stored("data").volumeInfo?.volumeContext, { made: "by storage" });
  t.is(storage.done.get("CreateVolume"), 1);
  await settle(60_000);
  t.is(storage.done.get("CreateVolume"), 1);
});

test("a leader whose term is over, and who has not noticed, asks nothing of a plugin", async (t) => {
  const { publish, seed, start, settle, states, storage, term } = world(t);
  seed("volume", volume("data"));
  seed("node", storageNode("n1"));
  start();
  await settle();
  term.isCurrent = false;
  seed("volume", volume("more"));
  publish("data", { n1: PENDING_PUBLISH });
  await settle(60_000);
  t.is(storage.done.get("CreateVolume"), 1);
  t.is(storage.done.get("ControllerPublishVolume"), undefined);
  term.isCurrent = true;
  await settle(60_000);
  t.is(storage.done.get("CreateVolume"), 2);
  t.deepEqual(states("data"), { n1: PUBLISHED });
});

test("a later volume is created too", async (t) => {
  const { seed, start, settle, stored } = world(t);
  start();
  await settle();
  seed("volume", volume("data"));
  await settle();
  t.is(stored("data").volumeInfo?.volumeId, "vol-data");
});

test("the store records the request before the plugin gets it", async (t) => {
  const { seed, start, settle, store, storage } = world(t);
  const seen: (string | undefined)[] = [];
  storage.weather = {
    before: () => void seen.push(store.get("volume", "data")?.volumeInfo?.volumeId),
    after: () => undefined,
  };
  seed("volume", volume("data"));
  start();
  await settle();
  t.deepEqual(seen, [""]);
});

test("a lost answer, and a call that hangs, are followed by the same call again", async (t) => {
  const { clock, seed, start, settle, stored, storage } = world(t);
  let calls = 0;
  storage.weather = {
    before: () => (calls === 1 ? new Promise<void>((resolve) => void clock.setTimeout(resolve, 40_000)) : undefined),
    after: () => {
      calls += 1;
      if (calls === 1) throw new RpcError(Status.UNAVAILABLE, "the answer was lost");
    },
  };
  seed("volume", volume("data"));
  start();
  await settle(10_000);
  t.is(stored("data").volumeInfo?.volumeId, "");
  await settle(40_000);
  t.is(stored("data").volumeInfo?.volumeId, "vol-data");
  t.is(storage.volumes.size, 1);
});

test("a plugin that rejects permanently is retried more slowly, and why shows its answer", async (t) => {
  const { seed, start, settle, storage, stored } = world(t, { bytesMax: -1 });
  seed("volume", volume("data"));
  const volumes = start();
  await settle(4_000);
  t.is(storage.done.get("CreateVolume"), undefined);
  const [reason] = volumes.explain("data");
  t.is(reason?.waitingFor, "the next call to storage plugin fast");
  t.deepEqual(reason?.tried, ["storage plugin fast: OUT_OF_RANGE: there is no room for 0 bytes"]);
  t.is(stored("data").volumeInfo?.volumeId, "");
});

test("a volume whose plugin has no socket here waits for it, and why says so", async (t) => {
  const { seed, start, settle, sockets, stored } = world(t);
  sockets.list();
  seed("volume", volume("data"));
  const volumes = start();
  await settle(30_000);
  t.regex(volumes.explain("data")[0]?.tried[0] ?? "", /storage plugin fast has no socket on this machine/);
  sockets.list(pluginName);
  await settle();
  t.is(stored("data").volumeInfo?.volumeId, "vol-data");
});

test("a plugin that disappears and returns is redialled, and waits are cut short", async (t) => {
  const { seed, start, settle, sockets, stored } = world(t);
  start();
  await settle();
  sockets.isDown = true;
  sockets.links.at(-1)?.break();
  seed("volume", volume("data"));
  await settle(100_000);
  t.is(stored("data").volumeInfo?.volumeId, "");
  sockets.isDown = false;
  await settle(60_000);
  t.is(stored("data").volumeInfo?.volumeId, "vol-data");
});

test("a plugin that is not ready is not used", async (t) => {
  const { seed, start, settle, storage, stored } = world(t);
  storage.isReady = false;
  seed("volume", volume("data"));
  const volumes = start();
  await settle(5_000);
  t.is(storage.volumes.size, 0);
  t.regex(volumes.explain("data")[0]?.tried[0] ?? "", /the plugin reports that it is not ready/);
  storage.isReady = true;
  await settle(60_000);
  t.is(stored("data").volumeInfo?.volumeId, "vol-data");
});

test("a volume is attached to a node and detached: each step is done at the plugin before it is in the store", async (t) => {
  const { seed, start, settle, states, stored, publish, storage } = world(t);
  seed("node", storageNode("n1"));
  seed("volume", volume("data"));
  start();
  await settle();
  publish("data", { n1: PENDING_PUBLISH });
  await settle();
  t.deepEqual(states("data"), { n1: PUBLISHED });
  t.deepEqual(stored("data").publishStatus[0]?.publishContext, { device: "/dev/vol-data" });
  t.deepEqual([...(storage.byName("data")?.attached ?? [])], ["at-n1"]);
  publish("data", { n1: PENDING_NODE_UNPUBLISH });
  await settle(60_000);
  t.deepEqual(states("data"), { n1: PENDING_NODE_UNPUBLISH });
  t.deepEqual([...(storage.byName("data")?.attached ?? [])], ["at-n1"]);
  publish("data", { n1: PENDING_UNPUBLISH });
  await settle();
  t.deepEqual(states("data"), {});
  t.is(storage.byName("data")?.attached.size, 0);
});

test("a volume for one node is attached to a second one only after the first has released it", async (t) => {
  const { seed, start, settle, states, publish, storage } = world(t);
  seed("node", storageNode("n1"));
  seed("node", storageNode("n2"));
  seed("volume", volume("data"));
  const volumes = start();
  await settle();
  publish("data", { n1: PENDING_PUBLISH });
  await settle();
  publish("data", { n1: PENDING_NODE_UNPUBLISH, n2: PENDING_PUBLISH });
  await settle(60_000);
  t.deepEqual(states("data"), { n1: PENDING_NODE_UNPUBLISH, n2: PENDING_PUBLISH });
  t.true(
    volumes
      .explain("data")
      .some(({ waitingFor }) => waitingFor === "node host-n1, to unmount it: only one node can use it at a time"),
  );
  publish("data", { n1: PENDING_UNPUBLISH, n2: PENDING_PUBLISH });
  await settle();
  t.deepEqual(states("data"), { n2: PUBLISHED });
  t.deepEqual(storage.flaws, []);
});

test("a volume for many nodes is attached to them at the same time", async (t) => {
  const { seed, start, settle, states, publish } = world(t);
  for (const id of ["n1", "n2", "n3"]) seed("node", storageNode(id));
  seed("volume", volume("data", { scope: VolumeAccessMode_Scope.MULTI_NODE }));
  start();
  await settle();
  publish("data", { n1: PENDING_PUBLISH, n2: PENDING_PUBLISH, n3: PENDING_PUBLISH });
  await settle();
  t.deepEqual(states("data"), { n1: PUBLISHED, n2: PUBLISHED, n3: PUBLISHED });
});

test("a node that cannot get the volume delays no other, and its entry says why", async (t) => {
  const { clock, seed, start, settle, states, stored, publish, storage } = world(t);
  for (const id of ["n1", "n2"]) seed("node", storageNode(id));
  seed("volume", volume("data", { scope: VolumeAccessMode_Scope.MULTI_NODE }));
  start();
  await settle();
  storage.weather = {
    before: (_, request) =>
      (request as { nodeId?: string }).nodeId === "at-n1"
        ? new Promise(
            (_resolve, reject) => void clock.setTimeout(() => reject(new RpcError(Status.INTERNAL, "stuck")), 10_000),
          )
        : undefined,
    after: () => undefined,
  };
  publish("data", { n1: PENDING_PUBLISH, n2: PENDING_PUBLISH });
  await settle();
  t.deepEqual(states("data"), { n1: PENDING_PUBLISH, n2: PUBLISHED });
  await settle(12_000);
  t.is(stored("data").publishStatus[0]?.message, "storage plugin fast: INTERNAL: stuck");
});

test("a volume no longer wanted while it is being attached is detached again", async (t) => {
  const { clock, seed, start, settle, states, publish, storage } = world(t);
  seed("node", storageNode("n1"));
  seed("volume", volume("data"));
  start();
  await settle();
  storage.weather = {
    before: () => new Promise<void>((resolve) => void clock.setTimeout(resolve, 5_000)),
    after: () => undefined,
  };
  publish("data", { n1: PENDING_PUBLISH });
  await settle(1_000);
  publish("data", { n1: PENDING_UNPUBLISH });
  await settle(30_000);
  t.deepEqual(states("data"), {});
  t.is(storage.byName("data")?.attached.size, 0);
});

test("a removed node cannot release a volume, so it is detached from the node", async (t) => {
  const { drop, seed, start, settle, states, publish, storage } = world(t);
  seed("node", storageNode("n1"));
  seed("volume", volume("data"));
  start();
  await settle();
  publish("data", { n1: PENDING_PUBLISH });
  await settle();
  publish("data", { n1: PENDING_NODE_UNPUBLISH });
  await settle();
  drop("node", "n1");
  await settle();
  t.deepEqual(states("data"), {});
  t.is(storage.byName("data")?.attached.size, 0);
});

test("a new leader that never knew the removed node has the volume detached from every node, once no other has it", async (t) => {
  const { seed, start, settle, states, publish, stored, storage } = world(t);
  seed("node", storageNode("n2"));
  seed("volume", volume("data", { scope: VolumeAccessMode_Scope.MULTI_NODE }));
  const first = start();
  await settle();
  storage.byName("data")?.attached.add("at-n1");
  storage.byName("data")?.attached.add("at-n2");
  first.stop();
  seed(
    "volume",
    Volume.patch(stored("data"), {
      publishStatus: [
        VolumePublishStatus.create({ nodeId: "n1", state: PENDING_NODE_UNPUBLISH }),
        VolumePublishStatus.create({ nodeId: "n2", state: PUBLISHED }),
      ],
    }),
  );
  const second = start();
  await settle(5_000);
  t.deepEqual(states("data"), { n1: PENDING_UNPUBLISH, n2: PUBLISHED });
  t.true(second.explain("data").some(({ tried }) => /waiting until no other node has the volume/.test(tried[0] ?? "")));
  t.deepEqual([...(storage.byName("data")?.attached ?? [])], ["at-n1", "at-n2"]);
  publish("data", { n1: PENDING_UNPUBLISH, n2: PENDING_UNPUBLISH });
  await settle(60_000);
  t.deepEqual(states("data"), {});
  t.is(storage.byName("data")?.attached.size, 0);
});

test("an unused volume is deleted at its plugin, and then the object is removed", async (t) => {
  const { seed, start, settle, stored, storage, store } = world(t);
  seed("volume", volume("data"));
  start();
  await settle();
  storage.weather = {
    before: () => undefined,
    after: () => {
      if (storage.done.get("DeleteVolume") === 1) throw new RpcError(Status.UNAVAILABLE, "the answer was lost");
    },
  };
  seed("volume", Volume.patch(stored("data"), { pendingDelete: true }));
  await settle(2_000);
  t.is(storage.volumes.size, 0);
  t.is(store.get("volume", "data"), undefined);
});

test("a volume that was never requested is removed without its plugin", async (t) => {
  const { seed, start, settle, sockets, store } = world(t);
  sockets.list();
  seed("volume", volume("data", { pendingDelete: true }));
  start();
  await settle();
  t.is(store.get("volume", "data"), undefined);
});

test("a volume that may have been created is found by its name and deleted", async (t) => {
  const { seed, start, settle, storage, store } = world(t);
  seed("volume", volume("data", { pendingDelete: true, volumeInfo: VolumeInfo.create() }));
  start();
  await settle();
  t.is(storage.done.get("DeleteVolume"), 1);
  t.is(store.get("volume", "data"), undefined);
});

test("a volume that its plugin refuses to create can be removed", async (t) => {
  const { seed, start, settle, store, stored } = world(t, { bytesMax: -1 });
  seed("volume", volume("data"));
  start();
  await settle();
  seed("volume", Volume.patch(stored("data"), { pendingDelete: true }));
  await settle(1_000);
  t.is(store.get("volume", "data"), undefined);
});

test("a volume to be removed stays while a task has it", async (t) => {
  const { seed, start, settle, store, storage } = world(t);
  const given = { nodeId: "n1", volumes: [VolumeAttachment.create({ id: "data", source: "data", target: "/data" })] };
  const task = pendingTask("a", given);
  seed("node", storageNode("n1"));
  seed("task", inState(task, TaskState.ASSIGNED));
  seed("volume", volume("data", { volumeInfo: made, pendingDelete: true }));
  const volumes = start();
  await settle(30_000);
  t.is(storage.done.get("DeleteVolume"), undefined);
  t.regex(volumes.explain("data")[0]?.waitingFor ?? "", /the tasks and nodes that use it/);
  seed("task", inState(task, TaskState.COMPLETE));
  await settle();
  t.is(store.get("volume", "data"), undefined);
});

test("a volume removed by force is left to its plugin", async (t) => {
  const { clock, drop, seed, start, settle, storage, env } = world(t);
  seed("volume", volume("data"));
  start();
  storage.weather = {
    before: () => new Promise<void>((resolve) => void clock.setTimeout(resolve, 3_000)),
    after: () => undefined,
  };
  await settle();
  drop("volume", "data");
  await settle(60_000);
  t.is(storage.volumes.size, 1);
  t.is(env.store.count("volume"), 0);
});

test("a plugin gets the volume's secrets, and its errors are redacted of them", async (t) => {
  const key = "pass-6c1f";
  const { seed, start, settle, stored } = world(t, { secrets: { key } });
  const wrong = Secret.create({ id: "s1", spec: SecretSpec.create({ data: new TextEncoder().encode("wrong-9d2a") }) });
  seed("secret", wrong);
  seed("volume", volume("data", { secrets: [VolumeSecret.create({ key: "key", secret: "s1" })] }));
  const volumes = start();
  await settle();
  t.deepEqual(volumes.explain("data")[0]?.tried, ["storage plugin fast: UNAUTHENTICATED: wrong key: ***"]);
  seed("secret", Secret.patch(wrong, { spec: SecretSpec.create({ data: new TextEncoder().encode(key) }) }));
  await settle(20_000);
  t.is(stored("data").volumeInfo?.volumeId, "vol-data");
});

test("a task that waits for its volume gives the volume's reason", async (t) => {
  const { seed, start, settle, sockets, publish, stored } = world(t);
  sockets.list();
  seed("node", storageNode("n1"));
  seed("volume", volume("data"));
  const volumes = start();
  await settle();
  const given = { nodeId: "n1", volumes: [VolumeAttachment.create({ id: "data", source: "data", target: "/data" })] };
  const task = inState(pendingTask("a", given), TaskState.PREPARING);
  seed("volume", Volume.patch(stored("data"), { volumeInfo: made }));
  publish("data", { n1: PENDING_PUBLISH });
  await settle();
  t.is(
    volumes.explainTask(task)[0]?.waitingFor,
    "cluster volume data: the next call to storage plugin fast, to attach it to node host-n1",
  );
});
