// A node that dies, one that falls silent for a moment, and one that comes back.
import { spawn } from "node:child_process";
import { availableParallelism } from "node:os";
import test, { type ExecutionContext } from "ava";
import { NodeStatus_State } from "../../proto/gen/messages.ts";
import { createService, nodeCalled, runningTasks, sleepers, tasks } from "../fixtures/control-client.ts";
import { startAgent, startManager, type TestAgent, type TestManager } from "../fixtures/muster.ts";
import { endProcessesOf, taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

interface Cluster {
  readonly manager: TestManager;
  readonly lost: TestAgent;
  readonly kept: TestAgent;
  /** All four tasks run on the surviving node. */
  allMoved(): Promise<boolean>;
  state(hostname: string): Promise<NodeStatus_State | undefined>;
}

/** Four tasks of `web`, two on each of two agents; with `patience`, the grace period is minutes from the start. */
async function cluster(t: ExecutionContext, { patience = false } = {}): Promise<Cluster> {
  const manager = await startManager(t);
  if (patience) await manager.patience();
  const lost = await startAgent(t, manager, { hostname: "lost" });
  const kept = await startAgent(t, manager, { hostname: "kept" });
  await createService(manager, sleepers("web", 4));
  await until("four running tasks", async () => (await runningTasks(manager)).length === 4);
  for (const { dataDir } of [lost, kept]) t.is(taskProcesses(dataDir).length, 2);
  const { id } = await nodeCalled(manager, "kept");
  return {
    manager,
    lost,
    kept,
    allMoved: async () => {
      const running = await runningTasks(manager);
      return running.length === 4 && running.every(({ nodeId }) => nodeId === id);
    },
    state: async (hostname) => (await nodeCalled(manager, hostname)).status?.state,
  };
}

test.serial("a node that dies with its tasks becomes DOWN and they run elsewhere, with default settings", async (t) => {
  t.timeout(patient(300_000));
  const { manager, lost, kept, allMoved, state } = await cluster(t);
  const startedAt = performance.now();
  const seconds = (): number => Math.round(performance.now() - startedAt) / 1_000;
  await lost.process.end("SIGKILL");
  await endProcessesOf(lost.dataDir);
  await until("DOWN", async () => (await state("lost")) === NodeStatus_State.DOWN);
  t.log(`DOWN ${seconds()} s after the kill`);
  await until("its tasks to run on the other node", allMoved);
  t.log(`its tasks run elsewhere ${seconds()} s after the kill (wanted: 8)`);
  t.is(taskProcesses(kept.dataDir).length, 4);
  t.is(await state("kept"), NodeStatus_State.READY);
  t.is((await tasks(manager)).length, 6, "two were replaced, the others left alone");
});

test.serial("an agent that is stopped for 3 s loses nothing", async (t) => {
  t.timeout(patient(300_000));
  const { manager, lost, kept, state } = await cluster(t);
  const processes = taskProcesses(lost.dataDir, kept.dataDir);
  lost.process.child.kill("SIGSTOP");
  // Not a wait: the pause itself is under test.
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  lost.process.child.kill("SIGCONT");
  // Both agents serve another service afterwards, so any effect of the pause would have shown by then.
  await createService(manager, sleepers("after", 2));
  await until("six running tasks", async () => (await runningTasks(manager)).length === 6);
  t.is((await tasks(manager)).length, 6);
  t.deepEqual(
    taskProcesses(lost.dataDir, kept.dataDir).filter(({ slot }) => slot.startsWith("web.")),
    processes,
  );
  for (const hostname of ["lost", "kept"]) t.is(await state(hostname), NodeStatus_State.READY);
  for (const agent of [lost, kept]) t.is(agent.sessions().length, 1);
});

test.serial("an agent that comes back after its tasks were replaced stops them and gets others", async (t) => {
  t.timeout(patient(300_000));
  const { manager, lost, kept, allMoved, state } = await cluster(t);
  await lost.process.end("SIGKILL");
  await until("its tasks to run on the other node", allMoved);
  t.is(taskProcesses(lost.dataDir).length, 2, "nobody has stopped them yet");

  lost.process.start();
  await until("READY", async () => (await state("lost")) === NodeStatus_State.READY);
  await until("the replaced tasks to exit", () => taskProcesses(lost.dataDir).length === 0);
  t.true(await allMoved());
  t.is(taskProcesses(kept.dataDir).length, 4);

  await createService(manager, sleepers("after", 2));
  await until("a task on the node that came back", () => taskProcesses(lost.dataDir).length === 1);
});

/** Processes that use all the CPU time that they can get, until the test ends. */
function starve(t: ExecutionContext): void {
  const busy = Array.from({ length: 4 * availableParallelism() }, () =>
    spawn(process.execPath, ["-e", "for (;;);"], { stdio: "ignore" }),
  );
  t.teardown(() => {
    for (const each of busy) each.kill("SIGKILL");
  });
}

test.serial("an agent killed on a starved machine keeps its tasks if it is back within its grace period", async (t) => {
  t.timeout(patient(300_000));
  const { manager, lost, kept, state } = await cluster(t, { patience: true });
  const processes = taskProcesses(lost.dataDir, kept.dataDir);
  starve(t);
  const startedAt = performance.now();
  await lost.process.end("SIGKILL");
  t.deepEqual(taskProcesses(lost.dataDir, kept.dataDir), processes, "they outlive their agent");
  lost.process.start();
  await until("its next life's session", () => lost.sessions().length === 2);
  t.log(`back ${Math.round(performance.now() - startedAt) / 1_000} s after the kill`);
  // Both agents served it, so any effect of the kill would have shown by then.
  await createService(manager, sleepers("after", 2));
  await until("six running tasks", async () => (await runningTasks(manager)).length === 6);
  t.is((await tasks(manager)).length, 6, "no replacement was created");
  t.deepEqual(
    taskProcesses(lost.dataDir, kept.dataDir).filter(({ slot }) => slot.startsWith("web.")),
    processes,
  );
  for (const hostname of ["lost", "kept"]) t.is(await state(hostname), NodeStatus_State.READY);
});
