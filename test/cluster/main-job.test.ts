// `npm start`: the whole cluster on one machine, with nothing left behind.
import { existsSync, readFileSync, renameSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { MusterProcess, runMuster, tempDir, type Ran } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { commandOf, endProcessesOf, processesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

interface Machine {
  readonly dataDir: string;
  readonly env: Readonly<Record<string, string>>;
  /** Processes that run in the data dir, and the locks that they hold. */
  leftBehind(): string[];
}

function machine(t: ExecutionContext): Machine {
  const dataDir = tempDir(t, "start");
  t.teardown(() => endProcessesOf(dataDir));
  return {
    dataDir,
    // Prevents this cluster from becoming the default of this machine's commands.
    env: { XDG_STATE_HOME: tempDir(t, "state") },
    leftBehind: () => [
      ...processesOf(dataDir).map(commandOf),
      ...["manager/owner", "agent/owner"].filter((name) => existsSync(join(dataDir, name))),
    ],
  };
}

async function startOnce(t: ExecutionContext, on: Machine, ...args: readonly string[]): Promise<Ran> {
  const listen = `127.0.0.1:${await freePort()}`;
  const ran = await runMuster(["start", "--once", "--data-dir", on.dataDir, "--listen", listen, ...args], on);
  t.log(`start --once ${args.join(" ")}: status ${ran.code} after ${(ran.ms / 1_000).toFixed(1)} s`);
  return ran;
}

test.serial("start --once shows nodes, tasks, URL and join line, cleans up, and works again", async (t) => {
  t.timeout(patient(300_000));
  const on = machine(t);
  const first = await startOnce(t, on);
  t.is(first.code, 0, first.stderr);
  t.regex(first.stdout, /^NODE +HOSTNAME +ROLE +ADDRESS$/m);
  t.regex(first.stdout, /^\S{25} +\S+ +manager +127\.0\.0\.1$/m);
  t.regex(first.stdout, /^\S{25} +\S+ +worker +127\.0\.0\.1$/m);
  for (const slot of [1, 2, 3]) t.regex(first.stdout, new RegExp(`^\\S{25} +hello\\.${slot} +\\S+ +Running$`, "m"));
  t.regex(first.stdout, /^Service hello: http:\/\/127\.0\.0\.1:\d+\/$/m);
  t.regex(first.stdout, /^ {2}docker swarm join --token SWMTKN-1-\w{50}-\w{25} 127\.0\.0\.1:\d+$/m);
  t.deepEqual(on.leftBehind(), []);

  const second = await startOnce(t, on);
  t.is(second.code, 0, second.stderr);
  t.deepEqual(on.leftBehind(), []);
  const nodeIds = (text: string): string[] =>
    [...text.matchAll(/^(\S{25}) .* (?:manager|worker) /gm)].map(([, id]) => id as string);
  t.is(nodeIds(first.stdout).length, 2);
  t.deepEqual(nodeIds(second.stdout), nodeIds(first.stdout), "the same cluster with the same nodes");
  t.true(first.stderr.startsWith(`State: ${on.dataDir} (new)\n`), first.stderr);
  t.regex(
    second.stderr,
    /^State: .*, found: continuing the cluster that last ran .* ago \(--fresh starts a new one\)\n/,
  );

  const third = await startOnce(t, on, "--fresh");
  t.is(third.code, 0, third.stderr);
  t.is(nodeIds(third.stdout).length, 2);
  t.false(
    nodeIds(third.stdout).some((id) => nodeIds(first.stdout).includes(id)),
    "another cluster",
  );
  const [, aside = ""] = /^The earlier cluster's state was moved to (.*): remove it/m.exec(third.stderr) ?? [];
  t.teardown(() => rmSync(aside, { recursive: true, force: true }));
  t.true(existsSync(join(aside, "manager")), third.stderr);
  t.deepEqual(on.leftBehind(), []);
});

test.serial("start --once with a port in use reports it in one sentence and leaves nothing behind", async (t) => {
  t.timeout(patient(300_000));
  const server = createServer().listen(0, "127.0.0.1");
  t.teardown(() => server.close());
  await until("the port", () => server.listening);
  const { port } = server.address() as { port: number };
  const on = machine(t);
  const ran = await startOnce(t, on, "--port", String(port));
  t.is(ran.code, 1);
  t.true(ran.ms < 60_000);
  t.is(ran.stderr, `State: ${on.dataDir} (new)\nmuster: port ${port} is in use: choose another with --port\n`);
  t.deepEqual(on.leftBehind(), []);
});

test.serial("start runs until it is interrupted, and then ends everything that it started", async (t) => {
  t.timeout(patient(300_000));
  const on = machine(t);
  const listen = `127.0.0.1:${await freePort()}`;
  const start = new MusterProcess(on.dataDir, ["start", "--data-dir", on.dataDir, "--listen", listen], on.env);
  t.teardown(async () => void (await start.end("SIGKILL")));
  const [, url = ""] = await until("the service's URL", () => /^Service hello: (\S+)$/m.exec(start.output), 40_000);
  t.regex(await (await fetch(url)).text(), /^hello from hello\.[123]\./);
  // Done the way log rotation does it.
  const log = join(on.dataDir, "muster.log");
  renameSync(log, `${log}.1`);
  start.child.kill("SIGHUP");
  await until("the log under its own name", () => existsSync(log));
  t.is(await start.end("SIGINT"), 0, start.output);
  t.regex(readFileSync(log, "utf8"), /"msg":"stopping"/);
  t.deepEqual(on.leftBehind(), []);
  await t.throwsAsync(fetch(url), undefined, "the tasks are gone");
});

test.serial("start --once interrupted during startup ends what it had started", async (t) => {
  t.timeout(patient(300_000));
  const on = machine(t);
  const listen = `127.0.0.1:${await freePort()}`;
  const start = new MusterProcess(
    on.dataDir,
    ["start", "--once", "--data-dir", on.dataDir, "--listen", listen],
    on.env,
  );
  t.teardown(async () => void (await start.end("SIGKILL")));
  await until("its manager", () => existsSync(join(on.dataDir, "manager", "control.sock")));
  t.is(await start.end("SIGINT"), 1);
  t.regex(start.output, /^muster: interrupted before [^\n]+\n$/m);
  t.notRegex(start.output, /^ {4}at /m, "no stack trace");
  t.deepEqual(on.leftBehind(), [], readFileSync(join(on.dataDir, "muster.log"), "utf8").slice(-2_000));
});
