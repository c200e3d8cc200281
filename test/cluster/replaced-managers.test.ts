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

/** Three managers, an agent, and `spares` further machines. */
async function three(t: ExecutionContext, spares: number) {
  const { machines } = startLab(t, 4 + spares);
  const [one, two, three_, four, ...spare] = machines as [Machine, Machine, Machine, Machine, ...Machine[]];
  const first = await startManager(t, { on: one, port: 2377 });
  const agent = await startAgent(t, first, { on: four });
  await createService(first, sleepers("web", 3));
  await until("three running tasks", async () => (await runningTasks(first)).length === 3);
  const second = await startManager(t, { on: two, port: 2377, join: first });
  const third = await startManager(t, { on: three_, port: 2377, join: first });
  await untilWhole([first, second, third]);
  return { agent, first, second, third, spare };
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

real(
  "each of three managers is lost under load and replaced by joining another one, and nothing is lost",
  async (t) => {
    t.timeout(patient(900_000));
    const { agent, first, second, spare, third } = await three(t, 3);
    const before = taskProcesses(agent.dataDir).map(({ pid }) => pid);
    const written: string[] = [];
    let managers: readonly TestManager[] = [first, second, third];
    for (const [at, victim] of [third, second, first].entries()) {
      const [other] = (managers = managers.filter((each) => each !== victim)) as [TestManager];
      const { leaderId, managerId: lostId } = await status(victim);
      const writes = writeSteadily(t, other, `turn${at}-`);
      await until("a write", async () => (await serviceNames(other)).some((name) => name.startsWith(`turn${at}-`)));

      await lose(victim);
      await until("a report of the missing copy", async () =>
        (await copiesMissing(other)).startsWith("the log has 2 of 3"),
      );
      if (at === 0) await reportsOf(t, other, lostId);
      await other.muster("node", "demote", lostId);
      await until("its removal", async () =>
        other.muster("node", "rm", "--force", lostId).then(
          () => true,
          () => false,
        ),
      );
      await until("a request for another", async () => (await copiesMissing(other)).includes("join another"));

      const next = await startManager(t, { on: spare[at] as Machine, port: 2377, join: other });
      const startedAt = performance.now();
      managers = [...managers, next];
      await untilWhole(managers);
      const took = Math.round(performance.now() - startedAt);
      t.log(`three copies ${took} ms after the replacement of a ${leaderId === lostId ? "leader" : "follower"} served`);
      written.push(...(await writes.stop()));
      if (at > 0) continue;
      // It returns with its old data dir: it is refused, and the others go on as before.
      victim.process.start();
      await until("its refusal", () => !victim.process.isRunning, 120_000);
      await untilWhole(managers);
    }

    const [lost, ...left] = managers as [TestManager, TestManager, TestManager];
    await lose(lost);
    const ms = await createWhenAccepted(left[0] as TestManager, sleepers("after", 0));
    t.log(`next write ${(ms / 1_000).toFixed(2)} s after another machine was lost; ${written.length} writes before`);
    await hasAll(t, left, [...written, "after"]);
    t.deepEqual(
      taskProcesses(agent.dataDir).map(({ pid }) => pid),
      before,
      "no task was restarted",
    );
  },
);

/** Checks the sentences by which operators learn of the missing copy. */
async function reportsOf(t: ExecutionContext, manager: TestManager, lostId: string): Promise<void> {
  t.regex(await copiesMissing(manager), new RegExp(`the nats-server of manager ${lostId} is away`));
  t.regex(await manager.muster("info"), /^Log: .*, 2 of 3 copies current$/m);
  const listed = await runMuster(["--host", `unix://${manager.dataDir}/control.sock`, "node", "ls"]);
  t.regex(listed.stderr, /^The log has 2 of 3 current copies: see 'muster info'$/m);
}

real("a demoted manager keeps its copy until another manager has one, and then its nats-server ends", async (t) => {
  t.timeout(patient(900_000));
  const { first, second, spare, third } = await three(t, 1);
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

  const fourth = await startManager(t, { on: spare[0] as Machine, port: 2377, join: first });
  await untilWhole([first, third, fourth]);
  await until("the end of the demoted manager's process", () => !second.process.isRunning, 120_000);
  t.regex(second.process.output, /was demoted/);
  await lose(third);
  await write(fourth, "after");
  await hasAll(t, [first, fourth], written);
});
