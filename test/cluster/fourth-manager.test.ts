// A fourth manager: it is allowed, and its operator learns what it means.
import test from "ava";
import { createService, createWhenAccepted, serviceNames, sleepers, status } from "../fixtures/control-client.ts";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { MusterProcess, startManager, type TestManager } from "../fixtures/muster.ts";
import { endProcessesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const real = labMissing() === null ? test.serial : test.serial.skip;

const hasCopies = async (manager: TestManager): Promise<boolean> => {
  const { leaderId, logCopies } = await status(manager);
  return leaderId !== "" && logCopies?.wanted === 3 && logCopies.current === 3;
};

const lose = (manager: TestManager): Promise<unknown> =>
  Promise.all([manager.process.end("SIGKILL"), endProcessesOf(manager.dataDir)]);

real("a fourth manager leads and serves, but keeps no copy, which it says", async (t) => {
  t.timeout(patient(900_000));
  const { machines } = startLab(t, 4);
  const [one, two, three, four] = machines as [Machine, Machine, Machine, Machine];
  const first = await startManager(t, { on: one, port: 2377 });
  const second = await startManager(t, { on: two, port: 2377, join: first });
  const third = await startManager(t, { on: three, port: 2377, join: first });
  await until("three copies", () => hasCopies(first).catch(() => false), 240_000);
  const fourth = await startManager(t, { on: four, port: 2377, join: first });
  await until("three copies", () => hasCopies(fourth).catch(() => false), 120_000);
  const { managerId, warnings } = await status(fourth);
  t.true(
    warnings.includes(
      "Three other managers keep the log's copies, and this one keeps none: it leads and serves nodes like them, but the cluster still needs two of those three.",
    ),
    warnings.join("\n"),
  );
  t.false((await status(first)).warnings.some((warning) => warning.includes("keeps none")));
  const managers = (await first.json<{ ManagerStatus: string }>("node", "ls")).filter(
    ({ ManagerStatus }) => ManagerStatus !== "",
  );
  t.is(managers.length, 4);

  // One of three may be lost, as with three managers; this one leads when it is the only one left to.
  await createService(fourth, sleepers("four", 0));
  await lose(third);
  await createWhenAccepted(fourth, sleepers("three", 0));
  for (const { process } of [first, second]) process.child.kill("SIGSTOP");
  await until("its term", async () => (await status(fourth)).leaderId === managerId, 120_000);
  await createWhenAccepted(fourth, sleepers("led-by-the-fourth", 0));
  for (const { process } of [first, second]) process.child.kill("SIGCONT");
  await until("the services everywhere", async () => (await serviceNames(second).catch(() => [])).length === 3);

  // Not two of them, although two of four managers are left.
  await lose(first);
  await t.throwsAsync(createService(fourth, sleepers("never", 0), 5_000));
  await fourth.process.end();
  const kept = fourth.process.args.slice(0, fourth.process.args.indexOf("--join"));
  const forced = new MusterProcess(fourth.dataDir, [...kept, "--force-new-cluster"], {}, four.inside);
  t.teardown(() => forced.end("SIGKILL"));
  await until("its refusal", () => !forced.isRunning, 60_000);
  t.regex(
    forced.output,
    /this manager has no copy of the log: use --force-new-cluster on one of the managers that have/,
  );
});
