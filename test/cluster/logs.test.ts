// Task output read through the command line: two managers, each with an agent, through kills of each.
import { spawn, type ChildProcess } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { nodeCalled, status } from "../fixtures/control-client.ts";
import { runMuster, startAgent, startManager, type TestAgent, type TestManager } from "../fixtures/muster.ts";
import { natsServer } from "../fixtures/nats-server.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const main = fileURLToPath(new URL("../../cli/main.ts", import.meta.url));

interface Pair {
  readonly first: TestManager;
  readonly second: TestManager;
  /** Connected to the first manager. */
  readonly near: TestAgent;
  /** Connected to the second manager. */
  readonly far: TestAgent;
}

async function pair(t: ExecutionContext): Promise<Pair> {
  const { server } = await natsServer(t);
  const nats = server.url.replace("//", `//${server.user}:${server.pass}@`);
  const first = await startManager(t, { nats });
  const second = await startManager(t, { nats, join: first });
  const near = await startAgent(t, first, { hostname: "near" });
  const far = await startAgent(t, second, { hostname: "far" });
  const { managerId } = await status(first);
  await until("a follower to know its leader", async () => (await status(second)).leaderId === managerId);
  return { first, second, near, far };
}

/** Prints its slot's name and a number, `lines` times, then one line on standard error every `pause` seconds. */
function talker(lines: number, pause: number): readonly string[] {
  const script = `i=0; while [ $i -lt ${lines} ]; do i=$((i+1)); echo "line $i"; done; echo done >&2; while :; do sleep ${pause}; i=$((i+1)); echo "line $i"; done`;
  return ["--stop-grace-period", "100ms", "sh", "-c", script];
}

async function talking(manager: TestManager, replicas: number, command: readonly string[]) {
  await manager.muster(
    "service",
    "create",
    "-d",
    "--name",
    "talk",
    "--driver",
    "exec",
    `--replicas=${replicas}`,
    ...command,
  );
  await until("all tasks to have written", async () => {
    // For a task with much output, its last line suffices.
    const last = await manager.muster("service", "logs", "-n1", "--raw", "talk");
    if (/line \d+ x/.test(last)) return last.split("\n").length === replicas;
    const { stderr } = await runMuster(["--host", socketOf(manager), "service", "logs", "--raw", "talk"]);
    return stderr.match(/^done$/gm)?.length === replicas;
  });
}

const socketOf = (manager: TestManager): string => `unix://${join(manager.dataDir, "control.sock")}`;

/** A `logs -f` in a process of its own. */
function follow(t: ExecutionContext, manager: TestManager, ...args: readonly string[]) {
  const child: ChildProcess = spawn(
    process.execPath,
    [main, "--host", socketOf(manager), "service", "logs", "-f", ...args, "talk"],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  t.teardown(() => child.kill("SIGKILL"));
  const seen = { stdout: "", stderr: "", child, code: undefined as number | null | undefined };
  child.stdout?.on("data", (chunk: Buffer) => (seen.stdout += chunk.toString()));
  child.stderr?.on("data", (chunk: Buffer) => (seen.stderr += chunk.toString()));
  child.once("exit", (code) => (seen.code = code));
  return seen;
}

test.serial("either manager reads the output of all nodes: all of it, its tail, and in Docker's format", async (t) => {
  t.timeout(patient(300_000));
  const { first, second } = await pair(t);
  await talking(first, 4, talker(1_000, 1_000));
  for (const manager of [first, second]) {
    const out = await manager.muster("service", "logs", "talk");
    const lines = out.split("\n");
    t.is(lines.length, 4_000, "each line of each task once");
    for (const slot of [1, 2, 3, 4]) {
      const own = lines.filter((line) => line.startsWith(`talk.${slot}.`));
      t.regex(own[0] ?? "", /^talk\.\d\.[a-z0-9]{12}@(near|far) {4}\| line 1$/);
      t.deepEqual(
        own.map((line) => line.replace(/^.*\| /, "")),
        Array.from({ length: 1_000 }, (_, at) => `line ${at + 1}`),
      );
    }
    t.is(new Set(lines.map((line) => /@(\w+)/.exec(line)?.[1])).size, 2);
  }
  const tail = await runMuster(["--host", socketOf(second), "service", "logs", "--tail", "3", "--raw", "talk"]);
  // For each task: the last lines of both streams together.
  t.deepEqual(tail.stdout.trim().split("\n").toSorted(), [
    ...Array<string>(4).fill("line 1000"),
    ...Array<string>(4).fill("line 999"),
  ]);
  t.is(tail.stderr, "done\n".repeat(4));
  t.is(await second.muster("service", "logs", "--tail", "0", "talk"), "");
  t.is(await second.muster("service", "logs", "--since", "2099-01-01", "talk"), "");
  t.is((await second.muster("service", "logs", "--since", "10m", "--raw", "talk")).split("\n").length, 4_000);
  const [stamped = ""] = (await first.muster("service", "logs", "-t", "--no-task-ids", "-n", "2", "talk.1")).split(
    "\n",
  );
  t.regex(stamped, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z talk\.1@(near|far) {4}\| line 1000$/);
  const nobody = await runMuster(["--host", socketOf(first), "service", "logs", "nobody"]);
  t.is(nobody.code, 1);
  t.is(nobody.stderr.trim(), "muster: no such task or service: nobody");
});

test.serial(
  "a log follower gets new lines and the output of new tasks, and is notified when a node dies",
  async (t) => {
    t.timeout(patient(300_000));
    const { first, second, far } = await pair(t);
    await talking(first, 2, talker(5, 0.2));
    const seen = follow(t, second, "--tail", "1");
    const linesOf = (slot: number): number => seen.stdout.split(`talk.${slot}.`).length - 1;
    await until("lines of both tasks as they come", () => linesOf(1) > 3 && linesOf(2) > 3);
    await first.muster("service", "scale", "-d", "talk=4");
    await until(
      "the output of new tasks",
      () => /talk\.3.*line 5\n/.test(seen.stdout) && /talk\.4.*line 5\n/.test(seen.stdout),
    );
    // No line is repeated or missing, of any task, from its first line on.
    for (const slot of [1, 2, 3, 4]) {
      const numbers = [...seen.stdout.matchAll(new RegExp(`^talk\\.${slot}\\..*line (\\d+)$`, "gm"))].map(([, n]) =>
        Number(n),
      );
      t.deepEqual(
        numbers,
        numbers.map((_, at) => (numbers[0] ?? 0) + at),
        `slot ${slot}`,
      );
    }
    await far.process.end("SIGKILL");
    const { id } = await nodeCalled(first, "far");
    await until("the notice of the dead node", () => seen.stderr.includes(`node ${id} disconnected unexpectedly`));
    const near = /talk\.\d\.\w+@near/.exec(seen.stdout)?.[0] ?? "";
    const count = (): number => seen.stdout.split(near).length;
    const before = count();
    await until("the other node's output to continue", () => count() > before + 3);
    t.is(seen.code, undefined);

    // Without -f, the missing part is reported at the end.
    const rest = await runMuster(["--host", socketOf(first), "service", "logs", "-n1", "talk"]);
    t.is(rest.code, 1);
    t.regex(
      rest.stderr,
      new RegExp(
        `warning: incomplete log stream\\. some logs could not be retrieved for the following reasons: .*node ${id} is not available`,
      ),
    );
    t.regex(rest.stdout, /@near {4}\| line \d+\n/);

    // The node returns, recovers its tasks, and its output continues.
    far.process.start();
    const length = seen.stdout.length;
    await until("its output to resume", () => /@far {4}\| line \d+\n/.test(seen.stdout.slice(length)), 30_000);

    // A log follower exits when its target is removed, and repeats what it has missed.
    await first.muster("service", "rm", "talk");
    await until("the log follower to exit", () => seen.code !== undefined);
    t.is(seen.code, 1);
    t.regex(seen.stderr, new RegExp(`warning: incomplete log stream.*: node ${id} disconnected unexpectedly.*\\n$`));
  },
);

test.serial("a log follower survives the leader's death, and one that does not read blocks nobody", async (t) => {
  t.timeout(patient(300_000));
  const { first, second, far } = await pair(t);
  await talking(first, 2, [
    "--stop-grace-period",
    "100ms",
    "sh",
    "-c",
    'echo done >&2; i=0; while :; do i=$((i+1)); echo "line $i xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"; done',
  ]);
  const idle = follow(t, second);
  await until("the idle log follower to start", () => idle.stdout.length > 0);
  idle.child.kill("SIGSTOP");
  const memoryOf = async (manager: TestManager): Promise<number> => {
    const { readFileSync } = await import("node:fs");
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${manager.process.child.pid}/status`, "utf8"))?.[1]);
  };
  const before = await memoryOf(second);
  await new Promise((resolve) => setTimeout(resolve, 4_000));
  const grown = (await memoryOf(second)) - before;
  t.log(`${Math.round(grown / 1024)} MiB more`);
  // Two tasks write several times as much in that time, encoded; measured: 0 to 22 MiB.
  t.true(grown < 64 * 1024, `${grown} KiB`);
  t.is(far.sessions().length, 1, "the node's heartbeats are not delayed");
  const seen = follow(t, second, "--tail", "1");
  await until("another log follower to be served", () => /@far/.test(seen.stdout));
  await first.process.end("SIGKILL");
  const length = seen.stdout.length;
  await until("its output without the leader", () => /@far {4}\| line \d+/.test(seen.stdout.slice(length)));
});
