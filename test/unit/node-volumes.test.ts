// Cluster volumes on a node, against a storage plugin in memory.
import test, { type ExecutionContext } from "ava";
import { TaskActor, type TaskOptions } from "../../actors/agent/task.ts";
import { NodeVolumes } from "../../actors/agent/node-volumes.ts";
import type { AgentPorts } from "../../actors/agent/ports.ts";
import { csiInfoOf } from "../../machines/volumes/csi/node-requests.ts";
import {
  CsiControllerPublishVolumeRequest,
  CsiCreateVolumeRequest,
  Driver,
  type Task,
  TaskState,
  VolumeAccessMode,
  VolumeAssignment,
  VolumeAttachment,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { pluginName, PluginLink, socketsOf } from "../support/csi.ts";
import { call, testManager } from "../support/manager.ts";
import { inState, pendingTask } from "../support/scheduling.ts";
import { Storage } from "../../simulation/nodes/storage-model.ts";

function world(t: ExecutionContext) {
  const { clock, env } = testManager();
  const storage = new Storage();
  const controller = storage.controller();
  const sockets = socketsOf(() => new PluginLink(clock, storage, "here", { zone: "a" }));
  const described: number[] = [];
  const places = {
    make: (id: string) => Promise.resolve({ staging: `/${id}/staged`, target: `/${id}/published` }),
    remove: () => Promise.resolve(),
  };
  const start = (): NodeVolumes => {
    const ports = { ...env, csi: { sockets, places } } as unknown as AgentPorts;
    const volumes = new NodeVolumes(ports, { secrets: new Map(), onPlugins: () => void described.push(clock.now()) });
    t.teardown(() => volumes.stop());
    return volumes;
  };
  const settle = async (ms = 500) => void (await clock.run({ untilMs: clock.now() + ms }));
  const make = async (name: string): Promise<VolumeAssignment> => {
    await controller.CreateVolume(CsiCreateVolumeRequest.create({ name }), call());
    await controller.ControllerPublishVolume(
      CsiControllerPublishVolumeRequest.create({ volumeId: `vol-${name}`, nodeId: "here" }),
      call(),
    );
    return VolumeAssignment.create({
      id: name,
      volumeId: `vol-${name}`,
      driver: Driver.create({ name: pluginName }),
      publishContext: { device: `/dev/vol-${name}` },
      accessMode: VolumeAccessMode.create(),
    });
  };
  const mounted = (name: string) => [...(storage.byName(name)?.mounted.get("here")?.paths ?? [])];
  return { clock, described, env, make, mounted, settle, sockets, start, storage };
}

function user(id: string, ...names: readonly string[]): Task {
  const volumes = names.map((name) => VolumeAttachment.create({ id: name, source: name, target: `/${name}` }));
  return inState(pendingTask(id, { nodeId: "here", volumes }), TaskState.ASSIGNED);
}

test("a task gets its volumes and their paths once all are mounted", async (t) => {
  const { make, settle, start } = world(t);
  const volumes = start();
  const [one, two] = [await make("one"), await make("two")];
  let given: unknown = null;
  void volumes.whenReady(user("a", "one", "two")).then((ready) => (given = ready));
  volumes.assign(one);
  await settle();
  t.is(given, null);
  volumes.assign(two);
  await settle();
  t.deepEqual(given, [
    { source: "one", target: "/one", path: "/one/published" },
    { source: "two", target: "/two", path: "/two/published" },
  ]);
});

test("a task without volumes waits for nothing", async (t) => {
  t.deepEqual(await world(t).start().whenReady(user("a")), []);
});

test("a volume in use is released only after its task, and then the manager is notified", async (t) => {
  const { make, mounted, settle, start, storage } = world(t);
  const volumes = start();
  const told: string[] = [];
  volumes.attach((id) => Promise.resolve(told.push(id)));
  const one = await make("one");
  volumes.assign(one);
  void volumes.whenReady(user("a", "one"));
  await settle();
  volumes.remove(one);
  await settle(60_000);
  t.deepEqual(mounted("one"), ["/one/published"]);
  t.deepEqual(told, []);
  volumes.release("a");
  await settle();
  t.deepEqual(mounted("one"), []);
  t.is(storage.byName("one")?.mounted.size, 0);
  t.deepEqual(told, ["one"]);
});

test("a task that still waits for a volume does not keep the node from releasing it", async (t) => {
  const { make, settle, sockets, start } = world(t);
  sockets.isDown = true;
  const volumes = start();
  const told: string[] = [];
  volumes.attach((id) => Promise.resolve(told.push(id)));
  const one = await make("one");
  volumes.assign(one);
  void volumes.whenReady(user("a", "one"));
  await settle(5_000);
  volumes.remove(one);
  sockets.isDown = false;
  await settle(60_000);
  t.deepEqual(told, ["one"]);
});

test("a task that ends before it is recorded keeps no volume", async (t) => {
  const { env, make, settle, start } = world(t);
  const volumes = start();
  const told: string[] = [];
  volumes.attach((id) => Promise.resolve(told.push(id)));
  const one = await make("one");
  volumes.assign(one);
  await settle();
  const written = Promise.withResolvers<void>();
  const disk = { save: () => written.promise, remove: () => Promise.resolve() };
  const driver = {
    find: () => Promise.resolve({ kind: "absent" }),
    prepare: () => Promise.resolve({ kind: "done" }),
    stop: () => Promise.resolve(null),
  };
  const options = {
    reports: { report: () => {}, forget: () => {} },
    drivers: { of: () => driver, pluginOf: () => null, settled: () => Promise.resolve() },
    volumes,
  };
  const task = new TaskActor(
    { ...env, disk } as unknown as AgentPorts,
    options as unknown as TaskOptions,
    user("a", "one"),
  );
  t.teardown(() => task.stop());
  await settle();
  task.raiseDesired(TaskState.SHUTDOWN);
  await settle();
  t.is(task.state, TaskState.SHUTDOWN);
  written.resolve();
  await settle();
  volumes.remove(one);
  await settle(60_000);
  t.deepEqual(told, ["one"]);
});

test("volumes that an earlier life of the agent may have mounted are released when the manager says so", async (t) => {
  const { make, mounted, settle, start } = world(t);
  const one = await make("one");
  const first = start();
  first.assign(one);
  await settle();
  t.deepEqual(mounted("one"), ["/one/published"]);
  first.stop();
  const second = start();
  const told: string[] = [];
  second.attach((id) => Promise.resolve(told.push(id)));
  second.remove(one);
  await settle();
  t.deepEqual(mounted("one"), []);
  t.deepEqual(told, ["one"]);
});

test("the release is reported until the manager has answered, also in another session", async (t) => {
  const { make, settle, start } = world(t);
  const volumes = start();
  const one = await make("one");
  volumes.assign(one);
  await settle();
  volumes.remove(one);
  await settle(5_000);
  let calls = 0;
  volumes.attach(() => Promise.reject(new RpcError(Status.UNAVAILABLE, `gone ${(calls += 1)}`)));
  await settle(5_000);
  t.true(calls > 0);
  const told: string[] = [];
  volumes.detach();
  volumes.attach((id) => Promise.resolve(told.push(id)));
  await settle();
  t.deepEqual(told, ["one"]);
  await settle(60_000);
  t.deepEqual(told, ["one"]);
});

test("the node's description has its plugins' answers, also while they are unreachable, until they are no longer listed", async (t) => {
  const { described, settle, sockets, start } = world(t);
  const volumes = start();
  t.deepEqual(csiInfoOf(volumes.plugins.facts()), []);
  await settle();
  const info = () => csiInfoOf(volumes.plugins.facts()).map(({ nodeId, pluginName: name }) => [name, nodeId]);
  t.deepEqual(info(), [[pluginName, "here"]]);
  t.is(described.length, 1);
  sockets.isDown = true;
  sockets.links.at(-1)?.break();
  await settle(30_000);
  t.deepEqual(info(), [[pluginName, "here"]]);
  sockets.list();
  t.deepEqual(info(), []);
  t.is(described.length, 2);
});
