// A stock engine's containers, read through the command line: the output of `docker service logs` on a Swarm manager.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import anyTest from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { runMuster, startManager } from "../fixtures/muster.ts";
import { joined, running } from "../fixtures/swarm.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const missing = engineMissing();
const test = missing === null ? anyTest.serial : anyTest.serial.skip;
const main = fileURLToPath(new URL("../../cli/main.ts", import.meta.url));

test("a container's lines are followed, --tail and --since select lines, and new tasks join", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  const engine = await startEngine(t);
  const nodeId = await joined(manager, engine);
  const host = `unix://${join(manager.dataDir, "control.sock")}`;
  const script = "echo first; echo wrong >&2; echo second; i=2; while sleep 0.3; do i=$((i+1)); echo line $i; done";
  await manager.muster("service", "create", "-d", "--name=talk", "--stop-signal=SIGKILL", "bb:1", "sh", "-c", script);
  await until("a running task", async () => (await running(manager, "talk")).length === 1);

  // The lines so far, their streams, and Docker's formatting.
  const all = await until("the container's lines", async () => {
    const { stderr, stdout } = await runMuster(["--host", host, "service", "logs", "talk"]);
    return /line 4/.test(stdout) ? { stderr, stdout } : null;
  });
  const [task] = await running(manager, "talk");
  const id = task?.id ?? "";
  const lines = all.stdout.split("\n");
  const hostname = (await engine.docker("info", "--format", "{{.Name}}")).trim();
  t.is(lines[0], `talk.1.${id.slice(0, 12)}@${hostname}    | first`);
  t.is(all.stderr, `talk.1.${id.slice(0, 12)}@${hostname}    | wrong\n`);
  t.is(lines[1], lines[0]?.replace("first", "second"));

  const tail = await manager.muster("service", "logs", "--tail", "2", "--no-trunc", "-t", "talk");
  t.is(tail.split("\n").length, 2);
  t.regex(
    tail,
    new RegExp(`^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{9}Z talk\\.1\\.${id}@${hostname} {4}\\| line \\d+`),
  );
  t.is(await manager.muster("service", "logs", "--tail", "0", "talk"), "");
  const [, stamp = ""] = /^(\S+) talk/.exec(tail) ?? [];
  const since = await manager.muster("service", "logs", "--since", stamp, "--raw", "talk");
  t.is(since.split("\n")[0], tail.split("\n")[0]?.replace(/^.*\| /, ""), "the line of that time comes first");
  const byId = await manager.muster("service", "logs", "--tail", "1", "--no-resolve", "--no-task-ids", id);
  t.regex(byId, new RegExp(`^[a-z0-9]{25}\\.1@${nodeId} {4}\\| line \\d+$`));
  const details = await manager.muster("service", "logs", "--tail", "1", "--raw", "--details", "talk");
  t.true(details.startsWith(`com.docker.swarm.node.id=${nodeId},com.docker.swarm.service.id=`), details);

  const follower = spawn(process.execPath, [main, "--host", host, "service", "logs", "-f", "--tail", "1", "talk"], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  t.teardown(() => follower.kill("SIGKILL"));
  let seen = "";
  let said = "";
  follower.stdout.on("data", (chunk: Buffer) => (seen += chunk.toString()));
  follower.stderr.on("data", (chunk: Buffer) => (said += chunk.toString()));
  const numbers = (slot: number): number[] =>
    [...seen.matchAll(new RegExp(`^talk\\.${slot}\\..*line (\\d+)$`, "gm"))].map(([, number]) => Number(number));
  await until("lines as they are written", () => numbers(1).length > 5);
  await manager.muster("service", "scale", "-d", "talk=2");
  await until("the lines of a new task", () => numbers(2).length > 3);
  for (const slot of [1, 2])
    t.deepEqual(
      numbers(slot),
      numbers(slot).map((_, at) => (numbers(slot)[0] ?? 0) + at),
      "each line once, in order",
    );

  // A crashed engine is reported; after its restart, its containers' output continues.
  await engine.kill();
  await until("the notice of the engine's crash", () => said.includes(`node ${nodeId} disconnected unexpectedly`));
  await engine.start();
  const before = seen.length;
  await until("output after the restart", () => /line \d+\n/.test(seen.slice(before)), 60_000);

  await manager.muster("service", "rm", "talk");
  await until("the log follower to exit", () => follower.exitCode !== null, 30_000);
});
