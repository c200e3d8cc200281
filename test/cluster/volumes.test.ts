// Cluster volumes with real processes: a storage plugin on a Unix socket, a manager and agents, each of which may die.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { directoryStorage, servePlugin } from "../fixtures/csi-plugin.ts";
import { startAgent, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";

async function world(t: ExecutionContext) {
  const disk = tempDir(t, "storage");
  const storage = directoryStorage(join(disk, "data"));
  const socket = join(disk, "fast.sock");
  const plugin = await servePlugin(t, storage, socket, "one");
  const manager = await startManager(t, { args: ["--csi-plugin", `fast=unix://${socket}`] });
  await manager.patience();
  const agent = await startAgent(t, manager, { hostname: "one", args: ["--csi-plugin", `fast=${socket}`] });
  await until("the node to have the plugin", async () =>
    /CSI|csi/.test(await manager.muster("node", "inspect", "one")),
  );
  return {
    disk,
    storage,
    plugin,
    manager,
    agent,
    contents: () => readFileSync(join(disk, "data/vol-data/words"), "utf8"),
  };
}

const writer = 'echo "$(hostname)" >> "$MUSTER_VOLUMES/data/words"; while :; do sleep 0.2; done';

async function create(manager: TestManager, ...flags: string[]): Promise<string> {
  return manager.muster("volume", "create", "--driver", "fast", "--type", "mount", ...flags);
}

async function run(manager: TestManager, ...flags: string[]): Promise<void> {
  const mount = ["--mount", "type=cluster,source=data,target=/data"];
  const args = ["service", "create", "-d", "--name", "web", "--driver", "exec", ...mount, ...flags];
  await manager.muster(...args, "--stop-grace-period", "100ms", "sh", "-c", writer);
}

test.serial("a volume is created, mounted for a task, released after it, and deleted", async (t) => {
  const { contents, manager, storage } = await world(t);
  await create(manager, "data");
  await until("the volume to be created", async () => /created/.test(await manager.muster("volume", "ls")));
  await run(manager);
  await until("the task to write", () => contents() !== "");
  t.deepEqual([...(storage.byName("data")?.attached ?? [])], ["one"]);
  t.regex(await manager.muster("volume", "ls"), /in use \(1 node\)/);
  await t.throwsAsync(manager.muster("volume", "rm", "data"), { message: /volume is still in use/ });
  await manager.muster("service", "rm", "web");
  await until("the volume to be detached", () => storage.byName("data")?.attached.size === 0);
  t.is(storage.byName("data")?.mounted.size, 0);
  await until("the volume to be free", async () => /created/.test(await manager.muster("volume", "ls")));
  await manager.muster("volume", "rm", "data");
  await until("the volume to be deleted", () => storage.volumes.size === 0);
  await until("the object to be removed", async () => !/data/.test(await manager.muster("volume", "ls")));
  t.deepEqual(storage.flaws, []);
});

test.serial("a manager killed during a call continues it, and creates nothing twice", async (t) => {
  const { manager, storage } = await world(t);
  let isStuck = true;
  const arrived = Promise.withResolvers<void>();
  storage.weather = {
    before: () => undefined,
    after: async (method) => {
      if (method !== "CreateVolume" || !isStuck) return;
      arrived.resolve();
      await new Promise(() => {});
    },
  };
  await create(manager, "data");
  await arrived.promise;
  await manager.process.end("SIGKILL");
  isStuck = false;
  manager.process.start();
  await manager.ready();
  await until("the volume to be created", async () => /created/.test(await manager.muster("volume", "ls")));
  t.is(storage.volumes.size, 1);
  t.is(storage.done.get("CreateVolume"), 2);
});

test.serial("a plugin that fails, is killed and comes back delays only its own volumes, and why says so", async (t) => {
  const { contents, manager, plugin, storage } = await world(t);
  let failures = 3;
  storage.weather = {
    before: (method) => {
      if (method !== "ControllerPublishVolume" || failures === 0) return;
      failures -= 1;
      throw new RpcError(Status.INTERNAL, "the fabric is down");
    },
    after: () => undefined,
  };
  await create(manager, "data");
  await until("the volume to be created", async () => /created/.test(await manager.muster("volume", "ls")));
  plugin.kill();
  await run(manager);
  await until("why to name the plugin", async () => {
    const why = await manager.muster("why", "web.1");
    return /cluster volume data: the next call to storage plugin fast, to attach it to node one/.test(why);
  });
  await plugin.start();
  await until("the task to write", () => contents() !== "");
  t.is(failures, 0);
});

test.serial("an agent killed while a task uses a volume recovers both, and releases the volume later", async (t) => {
  const { agent, contents, manager, storage } = await world(t);
  await create(manager, "data");
  await run(manager);
  await until("the task to write", () => contents() !== "");
  await agent.process.end("SIGKILL");
  agent.process.start();
  await until("the agent's second session", () => agent.sessions().length > 1);
  await manager.muster("service", "rm", "web");
  await until("the volume to be detached", () => storage.byName("data")?.attached.size === 0);
  t.is(contents().trim().split("\n").length, 1);
  t.deepEqual(storage.flaws, []);
});
