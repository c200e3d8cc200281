// Managers that join with a token alone: no NATS to install, configure or certify.
import { join } from "node:path";
import { readFileSync, rmSync } from "node:fs";
import test from "ava";
import {
  createService,
  runningTasks,
  serviceNames,
  sleepers,
  status,
  writeSteadily,
} from "../fixtures/control-client.ts";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { MusterProcess, runMuster, startAgent, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { endProcessesOf, taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const missing = labMissing();
const real = missing === null ? test.serial : test.serial.skip;

const nodesOf = async (manager: TestManager): Promise<readonly string[]> =>
  (await manager.muster("node", "ls", "--quiet")).split("\n");

function joining(dataDir: string, { address }: Machine, at: string, token: string): readonly string[] {
  const own = ["--data-dir", dataDir, "--listen", `${address}:2377`, "--advertise", address];
  return ["manager", ...own, "--join", at, "--token", token];
}

const knowsLeader = async (manager: TestManager): Promise<boolean> => (await status(manager)).leaderId !== "";

real("a second manager joins with a token alone, and both survive kills at any moment", async (t) => {
  t.timeout(patient(600_000));
  const { machines } = startLab(t, 3);
  const [here, there, third] = machines as [Machine, Machine, Machine];
  const first = await startManager(t, { on: here, port: 2377 });
  const agent = await startAgent(t, first, { on: third });
  await createService(first, sleepers("web", 3));
  await until("three running tasks", async () => (await runningTasks(first)).length === 3);
  const before = taskProcesses(agent.dataDir);
  const tokens = await Promise.all([first.muster("token", "manager"), first.muster("token", "worker")]);

  const second = await startManager(t, { on: there, port: 2377, join: first });
  await until("a leader", () => knowsLeader(second));
  t.deepEqual(await nodesOf(second), await nodesOf(first));
  t.is((await nodesOf(second)).length, 3);
  t.deepEqual(await Promise.all([second.muster("token", "manager"), second.muster("token", "worker")]), tokens);
  t.deepEqual(
    taskProcesses(agent.dataDir).map(({ pid }) => pid),
    before.map(({ pid }) => pid),
  );
  // The same machine's other users cannot open NATS, and nobody from outside can without a certificate.
  const config = readFileSync(join(first.dataDir, "nats", "nats", "server.conf"), "utf8");
  t.regex(config, /listen: "10\.231\.0\.11:2378"/);
  t.regex(config, /verify: true/);

  const written: string[] = [];
  for (const [victim, other, prefix] of [
    [second, first, "a"],
    [first, second, "b"],
    [second, first, "c"],
  ] as const) {
    const through = writeSteadily(t, other, prefix);
    await until(`writes of ${prefix}`, async () => (await serviceNames(other)).some((name) => name.startsWith(prefix)));
    await victim.process.end("SIGKILL");
    victim.process.start();
    await victim.ready();
    await until("a leader", () => knowsLeader(victim));
    const before_ = (await serviceNames(other)).length;
    await until("more writes", async () => (await serviceNames(other)).length > before_);
    written.push(...(await through.stop()));
  }
  for (const manager of [first, second]) {
    const names = new Set(await serviceNames(manager));
    t.deepEqual(
      written.filter((name) => !names.has(name)),
      [],
    );
  }
  t.deepEqual(
    taskProcesses(agent.dataDir).map(({ pid }) => pid),
    before.map(({ pid }) => pid),
    "no task was restarted",
  );
});

real("a manager that is killed while it joins joins when it is started again", async (t) => {
  t.timeout(patient(600_000));
  const { machines } = startLab(t, 2);
  const [here, there] = machines as [Machine, Machine];
  const first = await startManager(t, { on: here, port: 2377 });
  const dataDir = tempDir(t, "joining");
  const args = joining(dataDir, there, first.address, await first.muster("token", "manager"));
  // From before its first request until after it serves.
  for (let ms = 300; ms <= 2_100; ms += 300) {
    const killed = new MusterProcess(dataDir, args, {}, there.inside);
    t.teardown(() => killed.end("SIGKILL"));
    await new Promise((resolve) => setTimeout(resolve, patient(ms)));
    t.true(killed.isRunning, killed.output);
    await killed.end("SIGKILL");
  }
  const second = await startManager(t, { on: there, port: 2377, join: first, dataDir });
  await until("a leader", () => knowsLeader(second));
  const { managerId } = await status(second);
  const managers = (await first.json<{ ID: string; ManagerStatus: string }>("node", "ls")).filter(
    ({ ManagerStatus }) => ManagerStatus !== "",
  );
  t.true(managers.some(({ ID }) => ID.startsWith(managerId.slice(0, 12))));
  await createService(second, sleepers("after", 0));
  // As after a kill between its two files.
  await second.process.end("SIGKILL");
  rmSync(join(dataDir, "node-id"));
  second.process.start();
  await second.ready();
  t.is((await status(second)).managerId, managerId);
  t.deepEqual(await serviceNames(first), ["after"]);
});

real("a manager waits for a NATS that is away, and goes on when it is back", async (t) => {
  t.timeout(patient(300_000));
  const { machines } = startLab(t, 2);
  const [here, there] = machines as [Machine, Machine];
  const first = await startManager(t, { on: here, port: 2377 });
  const second = await startManager(t, { on: there, port: 2377, join: first });
  await first.process.end("SIGKILL");
  await endProcessesOf(first.dataDir);
  await second.process.end("SIGKILL");
  second.process.start();
  await until("its second attempt", () => (second.process.output.match(/NATS is away/g) ?? []).length === 2, 60_000);
  t.true(second.process.isRunning, second.process.output);
  t.regex(
    second.process.output,
    /no nats-server answers at 10\.231\.0\.11:2378 .*check that the manager there is running/,
  );
  first.process.start();
  await second.ready();
  await createService(second, sleepers("after", 0), 60_000);
  // A signal ends the wait.
  await first.process.end("SIGKILL");
  await endProcessesOf(first.dataDir);
  await second.process.end("SIGKILL");
  second.process.start();
  const seen = second.process.output.length;
  await until("an attempt", () => second.process.output.slice(seen).includes("NATS is away"), 60_000);
  t.is(await second.process.end("SIGTERM"), 0, second.process.output);
});

/** Its clock is ahead by these milliseconds. */
function ahead(ms: number): Readonly<Record<string, string>> {
  const script = `const now = Date.now; Date.now = () => now() + ${ms};`;
  return { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(script)}` };
}

real("a manager that cannot join says why in one sentence, and leaves no node", async (t) => {
  t.timeout(patient(600_000));
  const { machines } = startLab(t, 4);
  const [here, there, third, fourth] = machines as [Machine, Machine, Machine, Machine];
  const first = await startManager(t, { on: here, port: 2377 });
  const second = await startManager(t, { on: there, port: 2377, join: first });
  const other = await startManager(t, { on: fourth, port: 2377 });
  const worker = await first.muster("token", "worker");
  const expired = await first.muster("token", "manager");
  await first.muster("swarm", "join-token", "--rotate", "manager");
  const token = await first.muster("token", "manager");
  const before = await nodesOf(first);
  const hour = 3_600_000;
  const blocked = async (port: number, work: () => Promise<void>): Promise<void> => {
    const rule = ["OUTPUT", "-p", "tcp", "--dport", String(port), "-j", "DROP"];
    await third.run("iptables", "-A", ...rule);
    await work();
    await third.run("iptables", "-D", ...rule);
  };
  interface Attempt {
    readonly at?: string;
    readonly token?: string;
    readonly address?: string;
    readonly dataDir?: string;
    readonly env?: Readonly<Record<string, string>>;
    readonly on?: Machine;
  }
  const refused = async (name: string, sentence: RegExp, attempt: Attempt): Promise<void> => {
    const on = attempt.on ?? third;
    const args = joining(attempt.dataDir ?? tempDir(t, "bad"), on, attempt.at ?? first.address, attempt.token ?? token);
    const advertised = attempt.address === undefined ? [] : ["--advertise", attempt.address];
    const ran = await runMuster([...args, ...advertised], {
      wrap: on.inside,
      timeoutMs: 120_000,
      ...(attempt.env === undefined ? {} : { env: attempt.env }),
    });
    const said = ran.stderr.split("\n").findLast((line) => line.startsWith("muster: ")) ?? ran.stderr;
    t.log(`${name}: ${said}`);
    t.is(ran.code, 1, name);
    t.regex(said, sentence, name);
    t.deepEqual(await nodesOf(first), before, name);
  };
  await refused("a worker's token", /with a worker's token: .*prints the managers' token/, { token: worker });
  await refused("an expired token", /cannot join at .*token/, { token: expired });
  await refused("a wrong token", /invalid join token/, { token: "SWMTKN-1-x" });
  await refused("another cluster's token", /a cluster other than/, { token: await other.muster("token", "manager") });
  await refused("a clock an hour ahead", /clock is 60 minutes ahead of/, { env: ahead(hour) });
  await refused("a clock an hour behind", /clock is 60 minutes behind/, { env: ahead(-hour) });
  await refused("the address of another", /is running at the address 10\.231\.0\.12:2377/, { address: there.address });
  await refused("its own address", /this manager's own address/, { at: `${third.address}:2377` });
  await other.process.end();
  await refused("a data dir of another cluster", /belongs to a cluster other than the one at .*another --data-dir/, {
    dataDir: other.dataDir,
    on: fourth,
  });
  await blocked(2378, () =>
    refused("a closed port", /nats-server answers at 10\.231\.0\.11:2378 .*managers reach each other at this port/, {}),
  );
  t.true(await knowsLeader(second));
});
