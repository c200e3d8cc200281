// Root rotation under a stock Docker Engine and one of our agents, whose tasks keep running.
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { join as joinPath } from "node:path";
import anyTest from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { startAgent, startManager, type TestManager } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const missing = engineMissing();
const test = missing === null ? anyTest.serial : anyTest.serial.skip;

interface NodeRow {
  readonly id: string;
  readonly status?: { readonly state?: string };
  readonly description?: { readonly tlsInfo?: { readonly trustRoot?: string; readonly certIssuerPublicKey?: string } };
}
interface TaskRow {
  readonly id: string;
  readonly nodeId?: string;
  readonly desiredState?: string;
  readonly status?: { readonly state?: string };
}

async function nodes(manager: TestManager): Promise<NodeRow[]> {
  return manager.json<NodeRow>("node", "ls");
}

async function running(manager: TestManager, service: string): Promise<TaskRow[]> {
  return (await manager.json<TaskRow>("service", "ps", service)).filter(
    (task) => task.status?.state === "RUNNING" && task.desiredState === "RUNNING",
  );
}

/** Base64 of the roots that every node reports as trusted; several while they disagree. */
async function trusted(manager: TestManager): Promise<Set<string>> {
  return new Set((await nodes(manager)).map(({ description }) => description?.tlsInfo?.trustRoot ?? ""));
}

const base64 = (pem: string): string => Buffer.from(`${pem.trim()}\n`).toString("base64");

test("the root is rotated while an engine and an agent stay READY and their tasks keep running", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  const engine = await startEngine(t);
  const oldToken = await manager.muster("swarm", "join-token", "-q", "worker");
  const oldManagerToken = await manager.muster("swarm", "join-token", "-q", "manager");
  const oldRoot = await manager.muster("swarm", "ca");
  await engine.join(oldToken, manager.address);
  await startAgent(t, manager);
  const { NodeID: engineId } = await engine.swarm();
  await until(
    "three nodes to be READY",
    async () => (await nodes(manager)).filter(({ status }) => status?.state === "READY").length === 3,
  );
  const service = "service create --detach --name web --replicas 2 --stop-grace-period 1s bb:1 sleep 1000";
  await manager.muster(...service.split(" "));
  await until("two tasks on the engine", async () => (await running(manager, "web")).length === 2);
  const before = (await running(manager, "web")).map(({ id }) => id).toSorted();
  const containers = (await engine.containers()).toSorted();

  // States of all nodes during the rotation.
  const states = new Set<string>();
  let isDone = false;
  const watching = (async () => {
    while (!isDone) for (const { status } of await nodes(manager)) states.add(status?.state ?? "UNKNOWN");
  })();
  const newRoot = (await manager.muster("swarm", "ca", "--rotate")).trim();
  isDone = true;
  await watching;
  t.deepEqual([...states], ["READY"]);

  t.not(newRoot, oldRoot);
  t.is(newRoot, await manager.muster("swarm", "ca"));
  t.deepEqual([...(await trusted(manager))], [base64(newRoot)]);
  const onEngine = readFileSync(joinPath(engine.dir, "data", "swarm", "certificates", "swarm-root-ca.crt"), "utf8");
  t.is(onEngine.trim(), newRoot);
  const issued = new X509Certificate(
    readFileSync(joinPath(engine.dir, "data", "swarm", "certificates", "swarm-node.crt"), "utf8"),
  );
  t.true(issued.verify(new X509Certificate(newRoot).publicKey));
  t.is((await engine.swarm()).LocalNodeState, "active");
  t.deepEqual((await running(manager, "web")).map(({ id }) => id).toSorted(), before);
  t.deepEqual((await engine.containers()).toSorted(), containers);

  const newToken = await manager.muster("swarm", "join-token", "-q", "worker");
  t.not(newToken.split("-")[2], oldToken.split("-")[2]);
  t.not((await manager.muster("swarm", "join-token", "-q", "manager")).split("-")[2], oldManagerToken.split("-")[2]);

  // After a restart of the manager with only the new root, the engine returns and accepts work.
  await manager.process.end("SIGKILL");
  manager.process.start();
  await manager.ready();
  await manager.muster("service", "scale", "--detach", "web=3");
  await until("a third task", async () => (await running(manager, "web")).length === 3, 40_000);
  t.is((await nodes(manager)).find(({ id }) => id === engineId)?.status?.state, "READY");

  const late = await startEngine(t);
  await t.throwsAsync(late.join(oldToken, manager.address), { message: /does not match fingerprint/ });
  await late.docker("swarm", "leave", "--force").catch(() => {});
  await late.join(newToken, manager.address);
});

test("an engine with the manager's token gets an error that says what to do instead", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  const engine = await startEngine(t);
  const token = await manager.muster("swarm", "join-token", "-q", "manager");
  const error = await t.throwsAsync(engine.join(token, manager.address));
  t.regex(error.message, /a Docker Engine cannot be a manager of this cluster: join it with the worker's token/);
});
