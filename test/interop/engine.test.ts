// A stock Docker Engine as a node of ours: every operator step, against the real thing.
import { join } from "node:path";
import anyTest from "ava";
import { engineMissing, startEngine, type DockerEngine } from "../fixtures/docker-engine.ts";
import { ask } from "../fixtures/engine-api.ts";
import { startManager, type TestManager } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const missing = engineMissing();
const test = missing === null ? anyTest.serial : anyTest.serial.skip;

interface NodeRow {
  readonly id: string;
  readonly status?: { readonly state?: string };
}
interface TaskRow {
  readonly id: string;
  readonly nodeId?: string;
  readonly desiredState?: string;
  readonly status?: { readonly state?: string; readonly err?: string };
}

async function node(manager: TestManager, id: string): Promise<NodeRow | undefined> {
  return (await manager.json<NodeRow>("node", "ls")).find((row) => row.id === id);
}

async function tasks(manager: TestManager, service: string): Promise<TaskRow[]> {
  return manager.json<TaskRow>("service", "ps", service);
}

async function running(manager: TestManager, service: string): Promise<TaskRow[]> {
  return (await tasks(manager, service)).filter(
    (task) => task.status?.state === "RUNNING" && task.desiredState === "RUNNING",
  );
}

async function joined(manager: TestManager, engine: DockerEngine): Promise<string> {
  await engine.join(await manager.muster("token", "worker"), manager.address);
  const { NodeID } = await engine.swarm();
  await until("the node to be READY", async () => (await node(manager, NodeID))?.status?.state === "READY");
  return NodeID;
}

test("a stock engine joins, runs and scales a service, restarts, and leaves", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  const engine = await startEngine(t);

  const nodeId = await joined(manager, engine);
  const swarm = await engine.swarm();
  t.is(swarm.LocalNodeState, "active");
  t.false(swarm.ControlAvailable);
  t.is(swarm.Error, "");
  t.true(swarm.RemoteManagers?.some(({ Addr }) => Addr === manager.address));

  await manager.muster(
    "service",
    "create",
    "--detach",
    "--stop-grace-period",
    "1s",
    "--name",
    "web",
    "--replicas",
    "3",
    "bb:1",
    "sleep",
    "1000",
  );
  await until("3 running tasks", async () => (await running(manager, "web")).length === 3);
  t.is((await engine.containers()).length, 3);
  t.true((await engine.containers()).every((name) => /^web\.[123]\.[a-z0-9]{25}$/.test(name)));

  // Swarm's protocol has no calls into tasks: clients learn what to use instead.
  const socket = join(manager.dataDir, "docker.sock");
  const request = async (method: string, path: string, body?: unknown) =>
    ask(socket, { method, path: `/v1.41${path}`, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
  const [container] = JSON.parse((await request("GET", "/containers/json")).text) as readonly { readonly Id: string }[];
  const id = container?.Id ?? "";
  const instead = /is a stock engine, and Swarm's protocol has no calls into tasks: use the engine itself/;
  const top = await request("GET", `/containers/${id}/top`);
  t.is(top.status, 501);
  t.regex(top.text, instead);
  const wanted = { Cmd: ["true"], AttachStdout: true, AttachStderr: true };
  const { Id: exec } = JSON.parse((await request("POST", `/containers/${id}/exec`, wanted)).text) as { Id: string };
  t.regex((await request("POST", `/exec/${exec}/start`, {})).text, instead);
  t.regex((await request("GET", `/exec/${exec}/json`)).text, /"ExitCode":126/);

  await manager.muster("service", "scale", "--detach", "web=5");
  await until("5 running tasks", async () => (await running(manager, "web")).length === 5);
  await manager.muster("service", "scale", "--detach", "web=2");
  await until("2 containers", async () => (await engine.containers()).length === 2);

  // A clean stop removes the containers; after the start the engine reports that, and the slots are refilled.
  await engine.stop();
  await engine.start();
  t.is((await engine.swarm()).NodeID, nodeId);
  await until(
    "2 running tasks after the engine's restart",
    async () => (await engine.containers()).length === 2 && (await running(manager, "web")).length === 2,
    40_000,
  );

  await manager.muster("service", "rm", "web");
  await until("no containers", async () => (await engine.containers()).length === 0);

  await engine.docker("swarm", "leave");
  t.is((await engine.swarm()).LocalNodeState, "inactive");
  await until(
    "the node that left to be DOWN",
    async () => (await node(manager, nodeId))?.status?.state === "DOWN",
    30_000,
  );
  await manager.muster("node", "rm", nodeId);
  t.is(await node(manager, nodeId), undefined);
});

test("a killed engine's tasks run on another engine, and not twice", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  const [first, second] = [await startEngine(t), await startEngine(t)];
  const firstId = await joined(manager, first);
  const secondId = await joined(manager, second);
  await manager.muster(
    "service",
    "create",
    "--detach",
    "--stop-grace-period",
    "1s",
    "--name",
    "web",
    "--replicas",
    "4",
    "bb:1",
    "sleep",
    "1000",
  );
  await until(
    "tasks on both engines",
    async () => (await first.containers()).length === 2 && (await second.containers()).length === 2,
  );

  await first.kill();
  await until(
    "the killed engine to be DOWN",
    async () => (await node(manager, firstId))?.status?.state === "DOWN",
    30_000,
  );
  await until("all tasks on the other engine", async () => {
    const alive = await running(manager, "web");
    return alive.length === 4 && alive.every((task) => task.nodeId === secondId);
  });
  t.is((await second.containers()).length, 4);

  // It returns: its remaining tasks are superseded, and it is told to stop them.
  await first.start();
  await until(
    "the engine to be READY again",
    async () => (await node(manager, firstId))?.status?.state === "READY",
    30_000,
  );
  await until("all superseded containers to be removed", async () => (await first.containers()).length === 0, 30_000);
  t.is((await running(manager, "web")).length, 4);
});

test("an engine renews its certificate on request, and then reconnects without ALPN", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  const engine = await startEngine(t);
  const nodeId = await joined(manager, engine);
  const certificate = async (): Promise<string> => {
    const [row] = await manager.json<{ certificate?: { certificate?: string } }>("node", "inspect", nodeId);
    return row?.certificate?.certificate ?? "";
  };
  const before = await certificate();
  await manager.muster("node", "update", "--rotate-certificate", nodeId);
  await until("a new certificate", async () => (await certificate()) !== before, 30_000);

  // The manager's death breaks every connection; the engine reconnects without ALPN in its hello.
  await manager.process.end("SIGKILL");
  manager.process.start();
  await manager.ready();
  await manager.muster(
    "service",
    "create",
    "--detach",
    "--stop-grace-period",
    "1s",
    "--name",
    "after",
    "bb:1",
    "sleep",
    "1000",
  );
  await until("a task on the reconnected engine", async () => (await running(manager, "after")).length === 1, 40_000);
  t.is((await node(manager, nodeId))?.status?.state, "READY");
});

test("a wrong token is rejected with the manager's sentence", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  const engine = await startEngine(t);
  const token = await manager.muster("token", "worker");
  const wrong = `${token.slice(0, -1)}${token.endsWith("a") ? "b" : "a"}`;
  const error = await t.throwsAsync(engine.join(wrong, manager.address));
  t.regex(error.message, /A valid join token is necessary to join this cluster/);
});
