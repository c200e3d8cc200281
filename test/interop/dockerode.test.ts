// dockerode, unmodified: the same walk through its swarm calls at a stock manager and at ours; each result must be equal.
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import anyTest from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { walkDockerode } from "../fixtures/dockerode-walk.ts";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { startManager } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const run = promisify(execFile);
const test = engineMissing() === null && labMissing() === null ? anyTest.serial : anyTest.serial.skip;

test("dockerode's calls have a stock manager's results", async (t) => {
  t.timeout(patient(300_000));
  // Engines in networks of their own: in one, both would create the VXLAN interface of the first network number.
  const lab = startLab(t, 2);
  const [first, second] = lab.machines as readonly [Machine, Machine];
  const [engine, worker, manager] = await Promise.all([
    startEngine(t, first),
    startEngine(t, second),
    startManager(t, { on: lab.hub }),
  ]);
  await engine.docker("swarm", "init", "--listen-addr", `${engine.host}:2399`, "--advertise-addr", engine.host);
  await manager.ready();
  await worker.join(await manager.muster("token", "worker"), manager.address);
  const walk = async (socket: string, role: string): Promise<readonly string[]> => {
    const nodes = ["-H", `unix://${socket}`, "node", "ls", "-q", "--filter", `role=${role}`];
    let node = "";
    await until("a node that runs tasks", async () => (node = (await run("docker", nodes)).stdout.trim()) !== "");
    // Ids differ between the two clusters.
    return (await walkDockerode(socket, node)).map((line) => line.replaceAll(/\b[0-9a-z]{25}\b/g, "ID"));
  };
  const expected = await walk(join(engine.dir, "docker.sock"), "manager");
  t.true(expected.length >= 40, expected.join("\n"));
  t.deepEqual(await walk(join(manager.dataDir, "docker.sock"), "worker"), expected);
});
