// Two managers on one NATS: one leads, both serve nodes, and either may be killed.
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
import { natsServer } from "../fixtures/nats-server.ts";
import { taskProcesses, watchForDoubles } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

interface Pair {
  readonly leader: TestManager;
  readonly follower: TestManager;
  /** Connected to the leader. */
  readonly near: TestAgent;
  /** Connected to the follower. */
  readonly far: TestAgent;
}

/** Six tasks of `web`, three on each agent. */
async function pair(t: ExecutionContext): Promise<Pair> {
  const { server } = await natsServer(t);
  const nats = server.url.replace("//", `//${server.user}:${server.pass}@`);
  const leader = await startManager(t, { nats });
  const follower = await startManager(t, { nats, join: leader });
  const near = await startAgent(t, leader, { hostname: "near" });
  const far = await startAgent(t, follower, { hostname: "far" });
  const { managerId } = await status(leader);
  await until("a follower to know its leader", async () => (await status(follower)).leaderId === managerId);
  await createService(leader, sleepers("web", 6));
  await until("six running tasks", async () => (await runningTasks(follower)).length === 6);
  t.is(taskProcesses(near.dataDir).length, 3);
  t.is(taskProcesses(far.dataDir).length, 3);
  for (const manager of [leader, follower]) t.is((await status(manager)).sessions, 1);
  return { leader, follower, near, far };
}

test.serial("a killed leader's node moves to the other manager, whose own node notices nothing", async (t) => {
  t.timeout(patient(300_000));
  const { leader, follower, near, far } = await pair(t);
  const doubles = watchForDoubles(t, near.dataDir, far.dataDir);
  const before = taskProcesses(near.dataDir, far.dataDir);
  const [farSession] = far.sessions();

  await leader.process.end("SIGKILL");
  const ms = await createWhenAccepted(follower, sleepers("next", 0));
  t.log(`next write ${(ms / 1_000).toFixed(2)} s after the leader's kill`);
  t.is((await status(follower)).leaderId, (await status(follower)).managerId);

  await until("the killed manager's node at the other one", async () => (await status(follower)).sessions === 2);
  await until(
    "its node READY",
    async () => (await nodeCalled(follower, "near")).status?.state === NodeStatus_State.READY,
  );
  await until("its new session in the node's own view", () => near.sessions().length === 2);
  t.deepEqual(far.sessions(), [farSession as string], "the other manager's node did not register again");

  // Any wrong replacement would have shown by now: both nodes serve another service.
  await createService(follower, sleepers("after", 4));
  await until("the tasks of another service", async () => (await runningTasks(follower)).length === 10);
  t.is((await tasks(follower)).length, 10, "no task was replaced");
  const after = taskProcesses(near.dataDir, far.dataDir).map(({ pid }) => pid);
  for (const { pid, slot } of before) t.true(after.includes(pid), `${slot} still runs in process ${pid}`);
  t.deepEqual(doubles(), []);

  // The killed one returns as a follower.
  leader.process.start();
  await leader.ready();
  const { managerId } = await status(follower);
  await until("a follower to know its leader", async () => (await status(leader)).leaderId === managerId);
  t.deepEqual(await serviceNames(leader), ["after", "next", "web"]);
});

test.serial("a killed follower loses no write that went through it, and no write of the leader fails", async (t) => {
  t.timeout(patient(300_000));
  const { leader, follower, near, far } = await pair(t);
  const doubles = watchForDoubles(t, near.dataDir, far.dataDir);
  const [nearSession] = near.sessions();

  const through = writeSteadily(t, follower, "through");
  const direct = writeSteadily(t, leader, "direct");
  await until("writes through both", async () => (await serviceNames(leader)).length > 20);
  await follower.process.end("SIGKILL");
  const acknowledged = [...(await through.stop())];
  await until("the killed manager's node at the leader", async () => (await status(leader)).sessions === 2);
  const direct_ = await direct.stop();
  t.log(`${acknowledged.length} writes acknowledged through the follower, ${direct_.length} by the leader`);
  t.true(acknowledged.length > 0 && direct_.length > 0);
  acknowledged.push(...direct_);

  const names = new Set(await serviceNames(leader));
  t.deepEqual(
    acknowledged.filter((name) => !names.has(name)),
    [],
  );
  t.deepEqual(
    direct_,
    direct_.map((_, n) => `direct${n + 1}`),
    "no write through the leader failed",
  );
  t.deepEqual(near.sessions(), [nearSession as string]);
  t.is((await tasks(leader)).length, 6);
  t.is((await runningTasks(leader)).length, 6);
  t.deepEqual(doubles(), []);
});
