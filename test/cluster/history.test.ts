// A cluster's past, over real processes and a real log: output recorded before a change matches the output of --at later, also
// after the manager was killed.
import test from "ava";
import { createService, sleepers, status, tasks } from "../fixtures/control-client.ts";
import { runMuster, startAgent, startManager } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const reads: readonly (readonly string[])[] = [
  ["service", "ls"],
  ["service", "inspect", "web"],
  ["node", "ls"],
  ["task", "ls"],
  ["secret", "inspect", "key"],
];

/** Ages depend on now or on the requested moment, and column widths on them, so both are normalised. */
function ageless(text: string): string {
  return text.replaceAll(/\b(?:Less than a second|About an? \w+|\d+ \w+) ago\b/gi, "AGE").replaceAll(/ +/g, " ");
}

test.serial(
  "output from before a change and a kill -9 is reproduced with --at, and history shows the change",
  async (t) => {
    t.timeout(patient(300_000));
    const manager = await startManager(t);
    await startAgent(t, manager, { hostname: "one" });
    await createService(manager, sleepers("web", 2));
    await manager.muster("secret", "create", "key", import.meta.filename);
    const areRunning = async (count: number) =>
      (await tasks(manager)).filter(({ status: each, desiredState }) => each?.state === 512 && desiredState === 512)
        .length === count;
    await until("two running tasks", () => areRunning(2));
    const show = async (...more: readonly string[]): Promise<readonly string[]> => {
      const outputs: string[] = [];
      for (const read of reads) outputs.push(ageless(await manager.muster(...read, ...more)));
      return outputs;
    };
    // Until no write happens between the first and the last read.
    let before: readonly string[] = [];
    let version = 0;
    await until("a quiet moment", async () => {
      version = (await status(manager)).applied;
      before = await show();
      return (await status(manager)).applied === version;
    });
    const then = new Date().toISOString();

    await manager.muster("service", "scale", "-d", "web=3");
    await until("three running tasks", () => areRunning(3));
    await manager.muster("node", "update", "--label-add", "disk=fast", "one");
    await manager.muster("secret", "rm", "key");
    const after = (await status(manager)).applied;
    t.notDeepEqual(await show().catch(() => []), before);
    t.deepEqual(await show("--at", String(version)), before);

    await manager.process.end("SIGKILL");
    manager.process.start();
    await manager.ready();
    t.deepEqual(await show("--at", String(version)), before, "by version");
    t.deepEqual(await show("--at", then), before, "by time");
    t.regex(await manager.muster("service", "ls", "--at", String(after)), /web +replicated +3\/3/);

    await manager.muster("service", "rm", "web");
    const told = await manager.muster("history", "service", "web");
    t.log(told);
    t.regex(told, /service web created by .*Control\.CreateService, written by manager /);
    t.regex(
      told,
      new RegExp(`service web changed by .*uid ${process.getuid?.()}, pid \\d+\\) with Control\\.UpdateService`),
    );
    t.regex(told, /^ {4}replicas 2 → 3$/m);
    t.regex(told, /1 task created \(the orchestrator of replicated services\)/);
    t.regex(told, /2 tasks placed: one ×2 \(the scheduler\)/);
    t.regex(told, /2 tasks running: one ×2$/m);
    t.regex(told, /service web removed by .*Control\.RemoveService/);
    t.regex(await manager.muster("history", "node", "one"), /label disk added: fast/);
    t.regex(await manager.muster("history", "secret", "key"), /removed by .*Control\.RemoveSecret/);

    const future = await runMuster([
      "--host",
      `unix://${manager.dataDir}/control.sock`,
      "node",
      "ls",
      "--at",
      "1000000",
    ]);
    t.is(future.code, 1);
    t.regex(future.stderr, /^muster: version 1000000 does not exist yet \(newest: \d+\)\n$/);
  },
);
