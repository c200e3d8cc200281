// Managers of a cluster of three nats-servers that are lost, demoted and replaced, by commands and joining alone.
import test, { type ExecutionContext } from "ava";
import {
  createService,
  createWhenAccepted,
  runningTasks,
  serviceNames,
  sleepers,
  status,
  writeSteadily,
} from "../fixtures/control-client.ts";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { runMuster, startAgent, startManager, type TestManager } from "../fixtures/muster.ts";
import { endProcessesOf, taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { Trouble_Kind } from "../../proto/gen/messages.ts";
import { patient } from "../support/slowness.ts";

const missing = labMissing();
const real = missing === null ? test.serial : test.serial.skip;

/** Text about missing copies at that manager; empty if it has a leader and no copy is missing. */
async function copiesMissing(manager: TestManager): Promise<string> {
  const { leaderId, troubles, warnings } = await status(manager);
  if (leaderId === "" || warnings.some((warning) => warning.includes("one replica"))) return "no cluster of three yet";
  return troubles.find(({ kind }) => kind === Trouble_Kind.COPIES_MISSING)?.sentence ?? "";
}

async function untilWhole(managers: readonly TestManager[]): Promise<void> {
  for (const manager of managers) {
    const isWhole = async (): Promise<boolean> => (await copiesMissing(manager).catch(() => "no answer")) === "";
    await until("all copies", async () => !manager.process.isRunning || isWhole(), 240_000);
    if (!manager.process.isRunning) throw new Error(`the manager has exited: ${manager.process.output}`);
  }
}

async function three(t: ExecutionContext) {
  const { machines } = startLab(t, 5);
  const [one, two, three_, four, five] = machines as [Machine, Machine, Machine, Machine, Machine];
  const first = await startManager(t, { on: one, port: 2377 });
  const agent = await startAgent(t, first, { on: five });
  await createService(first, sleepers("web", 3));
  await until("three running tasks", async () => (await runningTasks(first)).length === 3);
  const second = await startManager(t, { on: two, port: 2377, join: first });
  const third = await startManager(t, { on: three_, port: 2377, join: first });
  await untilWhole([first, second, third]);
  return { agent, first, second, third, four };
}

const lose = (manager: TestManager): Promise<unknown> =>
  Promise.all([manager.process.end("SIGKILL"), endProcessesOf(manager.dataDir)]);

async function hasAll(t: ExecutionContext, managers: readonly TestManager[], written: readonly string[]) {
  for (const manager of managers) {
    const lacking = async (): Promise<readonly string[]> => {
      const names = new Set(await serviceNames(manager));
      return written.filter((name) => !names.has(name));
    };
    await until("every write", async () => (await lacking()).length === 0, 30_000).catch(() => undefined);
    t.deepEqual(await lacking(), []);
  }
}

real("a lost manager is replaced by joining another one, and the cluster then tolerates the next loss", async (t) => {
  t.timeout(patient(900_000));
  const { agent, first, four, second, third } = await three(t);
  const before = taskProcesses(agent.dataDir).map(({ pid }) => pid);
  const { managerId: lostId } = await status(third);
  const writes = writeSteadily(t, first, "w");

  await lose(third);
  await until("a report of the missing copy", async () =>
    (await copiesMissing(first)).startsWith("the log has 2 of 3"),
  );
  t.regex(await copiesMissing(first), new RegExp(`the nats-server of manager ${lostId} is away`));
  t.regex(await first.muster("info"), /^Log: .*, 2 of 3 copies current$/m);
  const listed = await runMuster(["--host", `unix://${first.dataDir}/control.sock`, "node", "ls"]);
  t.regex(listed.stderr, /^The log has 2 of 3 current copies: see 'muster info'$/m);
  await first.muster("node", "demote", lostId);
  await until("its removal", async () =>
    first.muster("node", "rm", "--force", lostId).then(
      () => true,
      () => false,
    ),
  );
  await until("a request for another", async () => (await copiesMissing(first)).includes("join another"));

  const fourth = await startManager(t, { on: four, port: 2377, join: first });
  const startedAt = performance.now();
  const managers = [first, second, fourth];
  await untilWhole(managers);
  t.log(`three copies ${Math.round(performance.now() - startedAt)} ms after the fourth manager served`);
  const written = [...(await writes.stop())];

  // It returns with its old data dir: it is refused, and the others go on as before.
  third.process.start();
  await until("its refusal", () => !third.process.isRunning, 120_000);
  await untilWhole(managers);

  await lose(first);
  const ms = await createWhenAccepted(fourth, sleepers("after", 0));
  t.log(`next write ${(ms / 1_000).toFixed(2)} s after another machine was lost; ${written.length} writes before`);
  await hasAll(t, [second, fourth], [...written, "after"]);
  t.deepEqual(
    taskProcesses(agent.dataDir).map(({ pid }) => pid),
    before,
    "no task was restarted",
  );
});

real("a demoted manager keeps its copy until another manager has one, and then its nats-server ends", async (t) => {
  t.timeout(patient(900_000));
  const { first, four, second, third } = await three(t);
  const { managerId } = await status(second);
  const written: string[] = [];
  const write = async (manager: TestManager, name: string): Promise<void> => {
    await createWhenAccepted(manager, sleepers(name, 0));
    written.push(name);
  };
  await write(second, "before");
  await first.muster("node", "demote", managerId);
  await until("its end of service", () => second.process.output.includes("its nats-server keeps running"));
  await until("a request for another", async () => (await copiesMissing(first)).includes("join another"));
  // Two of three, with that of the demoted manager.
  await lose(third);
  await write(first, "with-its-copy");
  third.process.start();
  await third.ready();
  t.true(second.process.isRunning);

  const fourth = await startManager(t, { on: four, port: 2377, join: first });
  await untilWhole([first, third, fourth]);
  await until("the end of the demoted manager's process", () => !second.process.isRunning, 120_000);
  t.regex(second.process.output, /was demoted/);
  await lose(third);
  await write(fourth, "after");
  await hasAll(t, [first, fourth], written);
});
