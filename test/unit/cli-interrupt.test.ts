// An interrupt of a waiting command ends only the waiting.
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { tempDir } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";
import { TaskState } from "../../proto/gen/messages.ts";
import { served, taskOf } from "../support/served.ts";

const main = fileURLToPath(new URL("../../cli/main.ts", import.meta.url));

/** Runs the command as a process, interrupts it once it has printed the awaited text, and returns its outcome. */
async function interrupted(t: ExecutionContext, args: readonly string[], isWaiting: (output: string) => boolean) {
  const child = spawn(process.execPath, [main, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  t.teardown(() => child.kill("SIGKILL"));
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8");
    stream.on("data", (text: string) => (output += text));
  }
  const closed = new Promise<{ status: number | null; signal: string | null }>((resolve) =>
    child.once("close", (status, signal) => resolve({ status, signal })),
  );
  await until(`a command that waits (${args.join(" ")})`, () => isWaiting(output));
  child.kill("SIGINT");
  return { ...(await closed), lines: output.trimEnd().split("\n") };
}

test("an interrupt leaves the service's update in progress, and says how to check it", async (t) => {
  const { manager, socket } = await served(t);
  const { lines, ...ended } = await interrupted(
    t,
    ["--host", socket, "service", "create", "--name", "web", "--replicas", "2", "bb:1"],
    (output) => output.includes("overall progress"),
  );
  t.deepEqual(ended, { status: 0, signal: null });
  t.deepEqual(lines.slice(-2), [
    "Operation continuing in background.",
    "Use 'muster service ps web' to check progress.",
  ]);
  t.is(manager.store.byName("service", "web")?.spec?.replicated?.replicas, 2);
});

test("an interrupt of a stack's deployment leaves the updates of all its services in progress", async (t) => {
  const { manager, socket } = await served(t);
  const file = join(tempDir(t, "interrupt"), "compose.yml");
  const monitored = "{image: 'bb:1', deploy: {update_config: {monitor: 10ms}}}";
  writeFileSync(file, `services:\n  one: ${monitored}\n  two: {image: 'bb:1'}\n`);
  // While it waits it reports only what has happened so far: one of the two has converged.
  const watching = manager.store.watch(() => {
    const one = manager.store.byName("service", "shop_one");
    if (one === undefined) return;
    watching.unsubscribe();
    queueMicrotask(() => manager.seed("task", taskOf(one, 1, "n1", TaskState.RUNNING)));
  });
  const { lines, ...ended } = await interrupted(
    t,
    ["--host", socket, "stack", "deploy", "-c", file, "shop"],
    (output) => output.includes("shop_one: converged"),
  );
  t.deepEqual(ended, { status: 0, signal: null });
  t.deepEqual(lines.slice(-2), [
    "Operation continuing in background.",
    "Use 'muster stack ps shop' to check progress.",
  ]);
  for (const name of ["shop_one", "shop_two"]) t.truthy(manager.store.byName("service", name), name);
});
