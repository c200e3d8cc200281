// docker-py, unmodified: the same walk through its swarm calls at a stock manager and at ours; each result must be equal.
import { execFile, execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import anyTest from "ava";
import { engineMissing } from "../fixtures/docker-engine.ts";
import { labMissing } from "../fixtures/lab.ts";
import { walkBoth } from "../fixtures/stock-beside.ts";

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

test("docker-py's calls have a stock manager's results", async (t) => {
  const { ours, stock } = await walkBoth(t, async (socket, node) => {
    const { stdout } = await run("python3", [script, socket, node], { timeout: 240_000 });
    return stdout.trim().split("\n");
  });
  t.true(stock.length >= 40, stock.join("\n"));
  t.deepEqual(ours, stock);
});
