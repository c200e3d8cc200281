// A global service over real processes: one command on each node, through faults of nodes and manager.
import test from "ava";
import { nodeCalled, runningTasks } from "../fixtures/control-client.ts";
import { startAgent, startManager } from "../fixtures/muster.ts";
import { endProcessesOf, taskProcesses, watchForDoubles } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

test.serial("one command runs on each matching node, never twice", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  const one = await startAgent(t, manager, { hostname: "one" });
  const two = await startAgent(t, manager, { hostname: "two" });
  const slot = ["--env", "TASK_ID={{.Task.ID}}", "--env", "SERVICE={{.Service.Name}}", "--env", "SLOT={{.Task.Slot}}"];
  const what = ["--driver", "exec", "--constraint", "node.labels.zone!=far", ...slot, "sleep", "600"];
  await manager.muster("service", "create", "--mode", "global", "--name", "web", ...what);
  const doubles = watchForDoubles(t, one.dataDir, two.dataDir);
  const runs = (...agents: readonly (typeof one)[]): Promise<true> =>
    until(`a command on ${agents.length} nodes`, async () => {
      const counts = [one, two].map((agent) => taskProcesses(agent.dataDir).length === Number(agents.includes(agent)));
      return counts.every(Boolean) && (await runningTasks(manager)).length === agents.length;
    });
  await runs(one, two);
  t.regex(await manager.muster("service", "ls"), /web +global +2\/2/);

  const { id } = await nodeCalled(manager, "two");
  await manager.muster("node", "update", "--availability", "drain", id);
  await runs(one);
  t.regex(await manager.muster("why", "web"), /1 of 1 nodes run a task/);
  await manager.muster("node", "update", "--availability", "active", id);
  await runs(one, two);

  await manager.muster("node", "update", "--label-add", "zone=far", id);
  await runs(one);
  t.regex(await manager.muster("why", "web"), /node two: does not meet node\.labels\.zone!=far/);
  await manager.muster("node", "update", "--label-rm", "zone", id);
  await runs(one, two);

  // The whole cluster at once, as in a power failure.
  for (const each of [manager, one, two]) await each.process.end("SIGKILL");
  for (const { dataDir } of [one, two, manager]) await endProcessesOf(dataDir);
  for (const each of [manager, one, two]) each.process.start();
  await manager.ready();
  await runs(one, two);
  t.deepEqual(doubles(), []);
});
