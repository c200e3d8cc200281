// docker-py, unmodified: the same walk through its swarm calls at a stock manager and at ours; each result must be equal.
import { execFile, execFileSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import anyTest from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { startManager } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";

const script = fileURLToPath(new URL("../fixtures/docker_py_client.py", import.meta.url));
const run = promisify(execFile);

function hasDockerPy(): boolean {
  try {
    execFileSync("python3", ["-c", "import docker"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

const test = engineMissing() === null && labMissing() === null && hasDockerPy() ? anyTest.serial : anyTest.serial.skip;

/** Ids differ between the two clusters. */
function comparable(output: string): readonly string[] {
  return output
    .trim()
    .replaceAll(/\b[0-9a-z]{25}\b/g, "ID")
    .split("\n");
}

test("docker-py's calls have a stock manager's results", async (t) => {
  // Two engines in one network would both create the VXLAN interface of the first network number, and one would fail.
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
    return comparable((await run("python3", [script, socket, node], { timeout: 240_000 })).stdout);
  };
  const expected = await walk(join(engine.dir, "docker.sock"), "manager");
  t.true(expected.length >= 40, expected.join("\n"));
  t.deepEqual(await walk(join(manager.dataDir, "docker.sock"), "worker"), expected);
});
