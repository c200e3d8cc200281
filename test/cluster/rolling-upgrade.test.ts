// Three managers are upgraded one by one under load from the last release, whose log has no levels, and one of them goes back meanwhile.
import test, { type ExecutionContext } from "ava";
import { knownLevel } from "../../proto/format-level.ts";
import {
  createService,
  runningTasks,
  serviceNames,
  sleepers,
  status,
  writeSteadily,
} from "../fixtures/control-client.ts";
import { earlierProgram, lastRelease } from "../fixtures/earlier-version.ts";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { presentProgram, startAgent, startManager, type TestManager } from "../fixtures/muster.ts";
import { currentNats } from "../fixtures/nats-server.ts";
import { taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const real = labMissing() === null ? test.serial : test.serial.skip;

const levelAt = async (manager: TestManager): Promise<number> => (await status(manager)).level;

const hasCopies = async (manager: TestManager): Promise<boolean> => {
  const { leaderId, logCopies } = await status(manager);
  return leaderId !== "" && logCopies?.wanted === 3 && logCopies.current === 3;
};

/** Stops the manager and starts that version, while another manager accepts writes. Returns those that were acknowledged. */
async function replaceVersion(
  t: ExecutionContext,
  manager: TestManager,
  program: string,
  other: TestManager,
  prefix: string,
) {
  const writing = writeSteadily(t, other, prefix);
  await until("a write", async () => (await serviceNames(other)).some((name) => name.startsWith(prefix)));
  manager.process.program = program;
  await manager.process.end();
  manager.process.start();
  await manager.ready();
  const before = (await serviceNames(other)).length;
  await until("more writes", async () => (await serviceNames(other)).length > before);
  await until("three copies", () => hasCopies(manager).catch(() => false), 120_000);
  return writing.stop();
}

real(
  `three managers of ${lastRelease.version} are upgraded one by one under load, and the level is raised with the last`,
  async (t) => {
    t.timeout(patient(900_000));
    const earlier = earlierProgram(t, lastRelease.commit);
    const { machines } = startLab(t, 4);
    const [one, two, three, four] = machines as [Machine, Machine, Machine, Machine];
    const asEarlier = { port: 2377, program: earlier, env: { MUSTER_NATS_SERVER: currentNats } };
    const first = await startManager(t, { ...asEarlier, on: one });
    const agent = await startAgent(t, first, { on: four });
    const second = await startManager(t, { ...asEarlier, on: two, join: first });
    const third = await startManager(t, { ...asEarlier, on: three, join: first });
    const all = [first, second, third];
    await until("three copies", () => hasCopies(first).catch(() => false), 240_000);
    await createService(first, sleepers("web", 3));
    await until("three running tasks", async () => (await runningTasks(first)).length === 3);
    const processes = taskProcesses(agent.dataDir).map(({ pid }) => pid);

    const written: string[] = [];
    written.push(...(await replaceVersion(t, first, presentProgram, third, "a")));
    t.is(await levelAt(first), 1);
    written.push(...(await replaceVersion(t, second, presentProgram, third, "b")));
    t.is(await levelAt(second), 1);
    t.regex((await status(second)).warnings.join("\n"), /stays at level 1 until every manager .*: upgrade /);
    written.push(...(await replaceVersion(t, second, earlier, first, "c")));
    written.push(...(await replaceVersion(t, second, presentProgram, first, "d")));
    t.is(await levelAt(first), 1, "one manager is still of the earlier version");
    written.push(...(await replaceVersion(t, third, presentProgram, first, "e")));
    for (const manager of all)
      await until("the level", async () => (await levelAt(manager).catch(() => 0)) === knownLevel, 60_000);
    t.deepEqual(
      (await status(first)).warnings.filter((warning) => warning.includes("level")),
      [],
    );

    // The way back is closed: the earlier version stops before it reads on, and says which version is needed.
    second.process.program = earlier;
    await second.process.end();
    const seen = second.process.output.length;
    second.process.start();
    await until("its exit", () => !second.process.isRunning, 120_000);
    t.is(second.process.child.exitCode, 1);
    t.regex(
      second.process.output.slice(seen),
      /record \d+: it contains a change of a kind that this version of Muster does not support; written by manager .*; upgrade this manager/,
    );
    written.push(...(await replaceVersion(t, second, presentProgram, first, "f")));
    for (const manager of all) {
      const names = new Set(await serviceNames(manager));
      t.deepEqual(
        written.filter((name) => !names.has(name)),
        [],
        "no acknowledged write is lost",
      );
    }
    t.deepEqual(
      taskProcesses(agent.dataDir).map(({ pid }) => pid),
      processes,
      "no task was restarted",
    );
  },
);
