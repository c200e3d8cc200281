// kill -9 of each part of a small cluster: acknowledged writes survive, and running tasks keep running.
import test, { type ExecutionContext } from "ava";
import { NodeStatus_State } from "../../proto/gen/messages.ts";
import {
  createService,
  createWhenAccepted,
  nodeCalled,
  runningTasks,
  serviceNames,
  sleepers,
  status,
  tasks,
  writeSteadily,
} from "../fixtures/control-client.ts";
import { startAgent, startManager, type TestAgent, type TestManager } from "../fixtures/muster.ts";
import { commandOf, isAlive, kill, processesOf, taskProcesses, watchForDoubles } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

interface Cluster {
  readonly manager: TestManager;
  readonly agent: TestAgent;
  natsPid(): number;
  /** All tasks are unchanged, in the same processes as at the start, and never ran twice; new ones can start. */
  expectAsBefore(): Promise<void>;
}

/** Three tasks of `web` on one agent, under a manager with its own nats-server. */
async function cluster(t: ExecutionContext): Promise<Cluster> {
  const manager = await startManager(t);
  await manager.patience();
  const agent = await startAgent(t, manager, { hostname: "only" });
  await createService(manager, sleepers("web", 3));
  await until("three running tasks", async () => (await runningTasks(manager)).length === 3);
  const ids = async (): Promise<string[]> => (await tasks(manager)).map(({ id }) => id).toSorted();
  const taskIds = await ids();
  const processes = taskProcesses(agent.dataDir);
  t.is(processes.length, 3);
  const doubles = watchForDoubles(t, agent.dataDir);
  return {
    manager,
    agent,
    natsPid: () => {
      const pid = processesOf(manager.dataDir).find((each) => /^\S*nats-server /.test(commandOf(each)));
      if (pid === undefined) throw new Error("no nats-server is running");
      return pid;
    },
    expectAsBefore: async () => {
      await until("the node's session", async () => (await status(manager)).sessions === 1);
      await until("READY", async () => (await nodeCalled(manager, "only")).status?.state === NodeStatus_State.READY);
      await createService(manager, sleepers("after", 1));
      await until("a further task", async () => (await runningTasks(manager)).length === 4);
      const now = taskProcesses(agent.dataDir);
      t.deepEqual(
        now.filter(({ slot }) => slot.startsWith("web.")),
        processes,
        "the same tasks in the same processes",
      );
      t.is(now.length, 4);
      const all = await ids();
      t.is(all.length, 4, "no task was replaced");
      t.true(taskIds.every((id) => all.includes(id)));
      t.deepEqual(doubles(), []);
    },
  };
}

/** Kills during writes, restarts, and checks for all acknowledged writes. */
async function killWhileWriting(
  t: ExecutionContext,
  manager: TestManager,
  killAndBringBack: () => Promise<void>,
): Promise<void> {
  const writer = writeSteadily(t, manager, "written");
  await until("some writes", async () => (await serviceNames(manager)).length > 10);
  await killAndBringBack();
  const acknowledged = await writer.stop();
  t.log(`${acknowledged.length} writes acknowledged`);
  const names = new Set(await serviceNames(manager));
  t.true(names.has("web"));
  t.deepEqual(
    acknowledged.filter((name) => !names.has(name)),
    [],
    "no acknowledged write is missing",
  );
}

test.serial(
  "a killed manager restarts with every acknowledged write, and tasks continue in their processes",
  async (t) => {
    t.timeout(patient(300_000));
    const { manager, agent, natsPid, expectAsBefore } = await cluster(t);
    const nats = natsPid();
    await killWhileWriting(t, manager, async () => {
      await manager.process.end("SIGKILL");
      t.true(isAlive(nats));
      manager.process.start();
      await manager.ready();
    });
    t.false(isAlive(nats), "its next life runs its own nats-server");
    await expectAsBefore();
    t.true(agent.process.isRunning);
  },
);

test.serial("a manager restarts its killed nats-server and continues", async (t) => {
  t.timeout(patient(300_000));
  const { manager, agent, natsPid, expectAsBefore } = await cluster(t);
  const nats = natsPid();
  await killWhileWriting(t, manager, async () => {
    kill(nats);
    const ms = await createWhenAccepted(manager, sleepers("next", 0));
    t.log(`next write ${(ms / 1_000).toFixed(2)} s after the kill of nats-server`);
  });
  t.not(natsPid(), nats);
  t.true(manager.process.isRunning);
  await expectAsBefore();
  t.is(agent.sessions().length, 1, "it caused no registration");
});

test.serial("a killed agent's processes survive, and its next life finds them", async (t) => {
  t.timeout(patient(300_000));
  const { manager, agent, expectAsBefore } = await cluster(t);
  const processes = taskProcesses(agent.dataDir);
  await agent.process.end("SIGKILL");
  t.deepEqual(taskProcesses(agent.dataDir), processes);
  agent.process.start();
  await until("its next life's session", () => agent.sessions().length === 2);
  await expectAsBefore();
  t.true(manager.process.isRunning);

  // Recovered tasks are supervised too: the exit of one is noticed, and its slot is refilled.
  const [first] = processes as [(typeof processes)[0]];
  kill(first.pid);
  await until("the slot's next process", () =>
    taskProcesses(agent.dataDir).some(({ slot, taskId }) => slot === first.slot && taskId !== first.taskId),
  );
  await until("its task running", async () => (await runningTasks(manager)).length === 4);
});

test.serial("after manager, nats-server and agent are killed at once, everything recovers", async (t) => {
  t.timeout(patient(300_000));
  const { manager, agent, natsPid, expectAsBefore } = await cluster(t);
  await killWhileWriting(t, manager, async () => {
    kill(natsPid());
    await Promise.all([manager.process.end("SIGKILL"), agent.process.end("SIGKILL")]);
    agent.process.start();
    manager.process.start();
    await manager.ready();
  });
  await expectAsBefore();
});
