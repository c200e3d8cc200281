// Agents of earlier versions at the present manager, and what remains of their tasks when they are upgraded.
import test from "ava";
import { createService, runningTasks, sleepers } from "../fixtures/control-client.ts";
import { earlierAgents, earlierProgram } from "../fixtures/earlier-version.ts";
import { presentProgram, startAgent, startManager } from "../fixtures/muster.ts";
import { taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

for (const commit of earlierAgents) {
  const real = process.getuid?.() === 0 ? test.serial : test.serial.skip;
  real(`an agent of ${commit.slice(0, 8)} is served, and its tasks outlast its upgrade`, async (t) => {
    t.timeout(patient(180_000));
    const manager = await startManager(t);
    const agent = await startAgent(t, manager, { program: earlierProgram(t, commit) });
    const running = (count: number): Promise<unknown> =>
      until(`${count} running tasks`, async () => (await runningTasks(manager)).length === count, 60_000);
    const processes = () => taskProcesses(agent.dataDir).map(({ pid }) => pid);
    await createService(manager, sleepers("web", 2));
    await running(2);
    const first = processes();
    t.is(first.length, 2);

    // It reconnects, and takes further tasks.
    const sessions = agent.sessions().length;
    await agent.process.end();
    agent.process.start();
    await until("another session", () => agent.sessions().length > sessions, 60_000);
    await createService(manager, sleepers("more", 1));
    await running(3);
    const all = processes();
    t.deepEqual(
      first.filter((pid) => !all.includes(pid)),
      [],
    );

    agent.process.program = presentProgram;
    const before = agent.sessions().length;
    await agent.process.end();
    agent.process.start();
    await until("a session of the present version", () => agent.sessions().length > before, 60_000);
    await createService(manager, sleepers("last", 1));
    await running(4);
    t.deepEqual(
      all.filter((pid) => !processes().includes(pid)),
      [],
    );
  });
}
