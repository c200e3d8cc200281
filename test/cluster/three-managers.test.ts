// Three managers by joining alone: the log moves by itself to a cluster of their own nats-servers.
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
import { startAgent, startManager, type TestManager } from "../fixtures/muster.ts";
import { endProcessesOf, taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const missing = labMissing();
const real = missing === null ? test.serial : test.serial.skip;

/** Until this manager's nats-servers are a cluster that keeps three copies of the log. */
async function copiesOf(manager: TestManager, ms = 120_000): Promise<void> {
  const has = async (): Promise<boolean> => {
    const { leaderId, warnings } = await status(manager);
    return leaderId !== "" && !warnings.some((warning) => warning.includes("one replica"));
  };
  await until("three copies", async () => !manager.process.isRunning || has().catch(() => false), ms);
  if (!manager.process.isRunning) throw new Error(`the manager has exited: ${manager.process.output}`);
}

async function three(t: ExecutionContext) {
  const { hub, machines } = startLab(t, 4);
  const [one, two, last, four] = machines as [Machine, Machine, Machine, Machine];
  const first = await startManager(t, { on: one, port: 2377 });
  const agent = await startAgent(t, first, { on: four });
  await createService(first, sleepers("web", 3));
  await until("three running tasks", async () => (await runningTasks(first)).length === 3);
  const second = await startManager(t, { on: two, port: 2377, join: first });
  return { hub, machines, agent, first, second, last };
}

real("the log moves to a cluster of three when the third manager joins, and each may be killed", async (t) => {
  t.timeout(patient(900_000));
  const { agent, first, second, last } = await three(t);
  const before = taskProcesses(agent.dataDir).map(({ pid }) => pid);
  const tokens = await Promise.all([first.muster("token", "manager"), first.muster("token", "worker")]);
  const writes = writeSteadily(t, first, "w");
  const third = await startManager(t, { on: last, port: 2377, join: first });
  const managers = [first, second, third];
  const startedAt = performance.now();
  for (const manager of managers) await copiesOf(manager);
  t.log(`three copies ${Math.round(performance.now() - startedAt)} ms after the third manager served`);
  const count = (await serviceNames(second)).length;
  await until("writes in the cluster", async () => (await serviceNames(second)).length > count + 5);
  const written = [...(await writes.stop())];
  t.deepEqual(await Promise.all([first.muster("token", "manager"), first.muster("token", "worker")]), tokens);

  for (const victim of managers) {
    const other = managers.find((each) => each !== victim) as TestManager;
    const more = writeSteadily(t, other, `k${victim.port}${managers.indexOf(victim)}`);
    await until("a write", async () => (await serviceNames(other)).some((name) => name.startsWith("k")));
    await victim.process.end("SIGKILL");
    const seen = (await serviceNames(other)).length;
    await until("writes without it", async () => (await serviceNames(other)).length > seen + 3);
    victim.process.start();
    await victim.ready();
    await copiesOf(victim);
    written.push(...(await more.stop()));
  }
  for (const manager of managers) {
    const names = new Set(await serviceNames(manager));
    t.deepEqual(
      written.filter((name) => !names.has(name)),
      [],
    );
  }
  t.log(`${written.length} acknowledged writes`);
  t.deepEqual(
    taskProcesses(agent.dataDir).map(({ pid }) => pid),
    before,
    "no task was restarted",
  );
});

real("managers that are killed at any moment of the move go on with it, and nothing is lost", async (t) => {
  t.timeout(patient(900_000));
  const { agent, first, second, last } = await three(t);
  const before = taskProcesses(agent.dataDir).map(({ pid }) => pid);
  const written = ["a", "b"];
  for (const name of written) await createService(first, sleepers(name, 0));
  const writes = writeSteadily(t, second, "w");
  const third = await startManager(t, { on: last, port: 2377, join: first });
  const says = (manager: TestManager, text: string) =>
    until(text, () => manager.process.output.includes(text), 120_000);
  // While the servers of the cluster start.
  await second.process.end("SIGKILL");
  second.process.start();
  await says(first, "moving the log to a cluster of three nats-servers");
  // The manager whose server has the log is killed from the end of its service until the move is complete.
  for (const ms of [0, 400, 800, 1_600, 3_200]) {
    await new Promise((resolve) => setTimeout(resolve, patient(ms) / 2));
    await first.process.end("SIGKILL");
    first.process.start();
  }
  await third.process.end("SIGKILL");
  third.process.start();
  const managers = [first, second, third];
  for (const manager of managers) {
    await manager.ready();
    await copiesOf(manager, 240_000);
  }
  await createService(third, sleepers("after", 0), 60_000);
  written.push("after", ...(await writes.stop()));
  for (const manager of managers) {
    await until("the last write", async () => (await serviceNames(manager)).includes("after"));
    const names = new Set(await serviceNames(manager));
    t.deepEqual(
      written.filter((name) => !names.has(name)),
      [],
    );
  }
  t.log(`${written.length} acknowledged writes`);
  t.deepEqual(
    taskProcesses(agent.dataDir).map(({ pid }) => pid),
    before,
    "no task was restarted",
  );
});

real(
  "each machine may lose its power or its network, and of two lost ones either brings the cluster back",
  async (t) => {
    t.timeout(patient(900_000));
    const { first, hub, last, machines, second } = await three(t);
    const third = await startManager(t, { on: last, port: 2377, join: first });
    const managers = [first, second, third];
    const whole = async (): Promise<void> => {
      for (const manager of managers) await copiesOf(manager, 240_000);
    };
    await whole();
    const written: string[] = [];
    const write = async (manager: TestManager, name: string): Promise<string> => {
      const ms = await createWhenAccepted(manager, sleepers(name, 0));
      written.push(name);
      return `${(ms / 1_000).toFixed(2)} s`;
    };
    const lose = async (manager: TestManager): Promise<void> => {
      await Promise.all([manager.process.end("SIGKILL"), endProcessesOf(manager.dataDir)]);
    };
    const wake = async (manager: TestManager): Promise<void> => {
      manager.process.start();
      await manager.ready();
    };
    for (const [at, victim] of managers.entries()) {
      const other = managers[(at + 1) % 3] as TestManager;
      const { leaderId, managerId } = await status(victim);
      await lose(victim);
      const took = await write(other, `power${at}`);
      t.log(`next write ${took} after the power of ${leaderId === managerId ? "the leader" : "a follower"} was lost`);
      await wake(victim);
      await whole();
    }
    for (const [at, victim] of managers.entries()) {
      const other = managers[(at + 1) % 3] as TestManager;
      const { port } = machines[at] as Machine;
      await hub.run("ip", "link", "set", port, "down");
      t.log(`next write ${await write(other, `network${at}`)} after a network was lost`);
      await hub.run("ip", "link", "set", port, "up");
      await until("the write at the manager that was cut off", async () =>
        (await serviceNames(victim)).includes(`network${at}`),
      );
      await whole();
    }
    await lose(second);
    await lose(third);
    await t.throwsAsync(createService(first, sleepers("minority", 0), 5_000));
    await wake(third);
    t.log(`next write ${await write(first, "majority")} after the second of three started`);
    await wake(second);
    await whole();
    for (const manager of managers) {
      const names = new Set(await serviceNames(manager));
      t.deepEqual(
        written.filter((name) => !names.has(name)),
        [],
      );
    }
  },
);
