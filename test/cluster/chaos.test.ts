// Faults against the cluster of docs/managers.md, each process on a machine of its own: a short `npm run chaos`.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import anyTest from "ava";
import { chaosMissing } from "../chaos/sandbox.ts";
import { patient } from "../support/slowness.ts";

const missing = chaosMissing();
const test = missing === null ? anyTest : anyTest.skip;
const main = fileURLToPath(new URL("../chaos/main.ts", import.meta.url));
const seed = 14;

test("through 40 faults no acknowledged write is lost, each slot runs once, and health reports are true", async (t) => {
  t.timeout(patient(3_600_000));
  const child = spawn(process.execPath, [main, "--faults", "40", "--seed", String(seed)], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const lines: string[] = [];
  const follow = async (stream: NodeJS.ReadableStream): Promise<void> => {
    for await (const line of createInterface({ input: stream })) {
      lines.push(line);
      t.timeout(patient(3_600_000));
    }
  };
  const exited = new Promise<number | null>((resolve) => child.once("exit", resolve));
  t.teardown(() => {
    child.kill("SIGTERM");
    return exited;
  });
  await Promise.all([follow(child.stdout), follow(child.stderr)]);
  const code = await exited;
  t.is(code, 0, lines.join("\n"));
  t.log(lines.join("\n"));
});
