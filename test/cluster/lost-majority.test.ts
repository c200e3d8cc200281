// Two of three machines are lost for good: the survivor's state founds the cluster again (docs/managers.md).
import { join } from "node:path";
import { writeFileSync } from "node:fs";
import test, { type ExecutionContext } from "ava";
import { createService, runningTasks, serviceNames, sleepers, status } from "../fixtures/control-client.ts";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { MusterProcess, runMuster, startAgent, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { endProcessesOf, taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const missing = labMissing();
const real = missing === null ? test.serial : test.serial.skip;

const hasCopies = async (manager: TestManager): Promise<boolean> => {
  const { leaderId, logCopies } = await status(manager);
  return leaderId !== "" && logCopies?.wanted === 3 && logCopies.current === 3;
};

const lose = (manager: TestManager): Promise<unknown> =>
  Promise.all([manager.process.end("SIGKILL"), endProcessesOf(manager.dataDir)]);

const factsOf = async (manager: TestManager) => ({
  tokens: await Promise.all([manager.muster("token", "manager"), manager.muster("token", "worker")]),
  root: await manager.muster("ca"),
  services: await serviceNames(manager),
  tasks: (await runningTasks(manager)).map(({ id }) => id).toSorted(),
});

/** Three managers and an agent with three tasks; two machines are spare. */
async function cluster(t: ExecutionContext) {
  const { machines } = startLab(t, 6);
  const [one, two, three, four, five, six] = machines as [Machine, Machine, Machine, Machine, Machine, Machine];
  const first = await startManager(t, { on: one, port: 2377 });
  const agent = await startAgent(t, first, { on: six });
  const second = await startManager(t, { on: two, port: 2377, join: first });
  const third = await startManager(t, { on: three, port: 2377, join: first });
  // The others start again when their servers have the log, and would not without a majority.
  for (const manager of [first, second, third])
    await until("three copies", () => hasCopies(manager).catch(() => false), 240_000);
  await createService(first, sleepers("web", 3));
  await until("three running tasks", async () => (await runningTasks(first)).length === 3);
  return { first, second, third, agent, two, four, five };
}

real("a survivor's backup founds the cluster again when two of three machines are lost for good", async (t) => {
  t.timeout(patient(900_000));
  const { agent, first, five, four, second, third, two } = await cluster(t);
  const before = await factsOf(first);
  const processes = taskProcesses(agent.dataDir).map(({ pid }) => pid);

  // That of the first leader among them.
  await lose(first);
  await lose(third);
  await t.throwsAsync(createService(second, sleepers("never", 0), 5_000), undefined, "there is no majority");
  const folder = tempDir(t, "majority");
  const passphrase = join(folder, "passphrase");
  const file = join(folder, "cluster.backup");
  writeFileSync(passphrase, "correct horse\n");
  await second.muster("backup", "-o", file, "--passphrase-file", passphrase);
  await second.process.end();
  await endProcessesOf(second.dataDir);

  const dataDir = join(folder, "manager");
  const restored = await runMuster(["restore", file, "--data-dir", dataDir, "--passphrase-file", passphrase]);
  t.is(restored.code, 0, restored.stderr);
  const again = await startManager(t, { on: two, port: 2377, dataDir });
  await until("the tasks", async () => (await runningTasks(again)).length === 3, 120_000);
  t.deepEqual(await factsOf(again), before);
  await createService(again, sleepers("after", 0));

  const others = [
    await startManager(t, { on: four, port: 2377, join: again }),
    await startManager(t, { on: five, port: 2377, join: again }),
  ];
  for (const manager of [again, ...others])
    await until("three copies", () => hasCopies(manager).catch(() => false), 240_000);
  t.deepEqual(await serviceNames(others[1] as TestManager), ["after", "web"]);
  t.deepEqual(
    taskProcesses(agent.dataDir).map(({ pid }) => pid),
    processes,
    "no task was restarted",
  );
});

real("a survivor continues alone with --force-new-cluster, and others join it", async (t) => {
  t.timeout(patient(900_000));
  const { agent, first, five, four, second, third, two } = await cluster(t);
  const before = await factsOf(first);
  const { managerId } = await status(second);
  const processes = taskProcesses(agent.dataDir).map(({ pid }) => pid);
  const forced = [...second.process.args.slice(0, second.process.args.indexOf("--join")), "--force-new-cluster"];

  // Nothing happens while the others live, or one of them.
  await second.process.end();
  const refused = new MusterProcess(second.dataDir, forced, {}, two.inside);
  t.teardown(() => refused.end("SIGKILL"));
  await until("its refusal", () => !refused.isRunning, 60_000);
  t.regex(refused.output, /the log has its majority: start without --force-new-cluster/);
  await lose(third);
  refused.start();
  await until("its second refusal", () => !refused.isRunning, 90_000);
  t.regex(
    refused.output,
    /the (log has its majority: start without|manager at 10\.231\.0\.11:2377 answers: stop it for good)/,
  );
  second.process.start();
  await second.ready();
  await until("two copies", async () => (await status(second)).logCopies?.current === 2, 120_000);

  // Lost at the same moment, by a loss of power.
  await Promise.all([lose(first), lose(second)]);
  const again = await startManager(t, { on: two, port: 2377, dataDir: second.dataDir, args: ["--force-new-cluster"] });
  t.regex(again.process.output, /this manager continues alone from its copy of the log/);
  await until("the tasks", async () => (await runningTasks(again)).length === 3, 120_000);
  t.deepEqual(await factsOf(again), before);
  t.is((await status(again)).managerId, managerId, "it is the same manager");
  await createService(again, sleepers("after", 0));
  t.regex(await again.muster("history", "service", "web"), /create/i, "the history is there");
  const managers = (await again.json<{ Hostname: string; ManagerStatus: string }>("node", "ls")).filter(
    ({ ManagerStatus }) => ManagerStatus !== "",
  );
  t.is(managers.length, 1);

  // The flag has no further effect, also when there are three again.
  const others = [
    await startManager(t, { on: four, port: 2377, join: again }),
    await startManager(t, { on: five, port: 2377, join: again }),
  ];
  for (const manager of [again, ...others])
    await until("three copies", () => hasCopies(manager).catch(() => false), 240_000);
  await lose(again);
  again.process.start();
  await again.ready();
  t.regex(again.process.output, /already continued alone: remove --force-new-cluster/);
  await until("three copies", () => hasCopies(again).catch(() => false), 240_000);
  t.deepEqual(await serviceNames(others[1] as TestManager), ["after", "web"]);
  t.deepEqual(
    taskProcesses(agent.dataDir).map(({ pid }) => pid),
    processes,
    "no task was restarted",
  );
});
