// h2spec against a real manager: every section, on the port that strangers reach and on the control socket.
import { readdirSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import anyTest, { type ExecutionContext } from "ava";
import { createService, nodeCalled, runningTasks, sleepers } from "../fixtures/control-client.ts";
import { h2spec, portTo, type Conformance } from "../fixtures/h2spec.ts";
import { startAgent, startManager, type TestManager } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";
import { peersMissing } from "./go/peers.ts";

const test = peersMissing("h2spec") === null ? anyTest.serial : anyTest.serial.skip;

/** Number of cases of h2spec 2.2.1, including its strict ones. */
const caseCount = 146;

/** Cases that may fail, as `http2/5.1.2 TITLE`, with the clause that permits the server's behaviour. None today. */
const permitted: ReadonlyMap<string, string> = new Map();

function check(t: ExecutionContext, where: string, { cases, exceptions }: Conformance): void {
  t.is(cases, caseCount, `${where}: every case ran`);
  const told = [...exceptions].map(([name, outcome]) => `${name}: ${outcome}`).join("\n");
  t.deepEqual([...exceptions.keys()].toSorted(), [...permitted.keys()].toSorted(), `${where}:\n${told}`);
}

/** Open sockets of the manager's process. */
function sockets(manager: TestManager): number {
  const folder = `/proc/${manager.process.child.pid}/fd`;
  return readdirSync(folder).filter((name) => {
    try {
      return readlinkSync(join(folder, name)).startsWith("socket:");
    } catch {
      return false; // closed meanwhile
    }
  }).length;
}

test("a manager's HTTP/2 passes every case of h2spec, for strangers and on the control socket, and leaks nothing", async (t) => {
  t.timeout(patient(900_000));
  const metrics = `127.0.0.1:${await freePort()}`;
  const manager = await startManager(t, { args: ["--metrics", metrics] });
  await manager.patience();
  const agent = await startAgent(t, manager, { hostname: "worker" });
  const figure = async (name: string): Promise<number> => {
    const text = await (await fetch(`http://${metrics}/metrics`, { headers: { connection: "close" } })).text();
    const line = text.split("\n").find((each) => each.startsWith(`${name} `));
    if (line === undefined) throw new Error(`no ${name} in the metrics`);
    return Number(line.slice(name.length + 1));
  };
  const anonymous = 'muster_grpc_connections{kind="anonymous"}';
  // The agent's own connection for joining has closed.
  await until("all connections of strangers to close", async () => (await figure(anonymous)) === 0);
  const known = await figure('muster_grpc_connections{kind="known"}');
  const before = sockets(manager);

  check(t, "port", await h2spec(t, manager.port, "--tls", "--insecure"));
  check(t, "control socket", await h2spec(t, await portTo(t, join(manager.dataDir, "control.sock"))));

  await until("all connections of h2spec to close", async () => (await figure(anonymous)) === 0);
  await until("the number of sockets to return to the initial one", () => sockets(manager) <= before);
  t.is(await figure('muster_grpc_connections{kind="known"}'), known);
  t.is((await fetch(`http://${metrics}/healthz`)).status, 200);
  t.true(manager.process.isRunning);
  t.is(agent.sessions().length, 1, "the agent kept its session");
  await createService(manager, sleepers("after", 1));
  await until("a running task", async () => (await runningTasks(manager)).length === 1);
  t.is((await runningTasks(manager))[0]?.nodeId, (await nodeCalled(manager, "worker")).id);
});
