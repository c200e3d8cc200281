// Twenty of SwarmKit's own agents as nodes of ours: they join, run tasks, survive their manager's death, and one is removed.
import anyTest from "ava";
import { NodeStatus_State, TaskState } from "../../proto/gen/messages.ts";
import { nodes, runningTasks, tasks } from "../fixtures/control-client.ts";
import { startManager, tempDir } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { SwarmKitAgents } from "../fixtures/swarmkit-agents.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";
import { peersMissing } from "./go/peers.ts";

const test = peersMissing("swarmkit-agents") === null ? anyTest.serial : anyTest.serial.skip;

const agentCount = 20;
const taskCount = 100;

test("SwarmKit's own agents join, run 100 tasks through their manager's death, and one is removed permanently", async (t) => {
  t.timeout(patient(600_000));
  const metrics = `127.0.0.1:${await freePort()}`;
  const manager = await startManager(t, { args: ["--metrics", metrics] });
  await manager.patience();
  const agents = new SwarmKitAgents({
    address: manager.address,
    token: await manager.muster("token", "worker"),
    count: agentCount,
    stateDir: tempDir(t, "swarmkit-agents"),
    events: true,
  });
  t.teardown(() => agents.end());
  // Except the manager's own.
  const readyIds = async (): Promise<string[]> =>
    (await nodes(manager))
      .filter(({ description }) => description?.hostname.startsWith("agent-"))
      .filter(({ status }) => status?.state === NodeStatus_State.READY)
      .map(({ id }) => id)
      .toSorted();
  const runningIds = async (): Promise<string[]> => (await runningTasks(manager)).map(({ id }) => id).toSorted();
  const hosted = (): number => agents.started.length - agents.ended.length;

  await until("every agent's registration", () => agents.allReady, 180_000);
  await until("a heartbeat of every agent", () => agents.sessions.size === agentCount);
  t.deepEqual(await readyIds(), [...agents.sessions.keys()].toSorted());

  const create = "service create --detach --stop-grace-period 1s --name web --replicas".split(" ");
  await manager.muster(...create, String(taskCount), "bench:1");
  await until("all tasks RUNNING", async () => (await runningTasks(manager)).length === taskCount, 180_000);
  const before = await runningIds();
  t.deepEqual(agents.started.toSorted(), before, "each task started once");
  const byNode = Map.groupBy(await runningTasks(manager), ({ nodeId }) => nodeId);
  t.deepEqual([...byNode.keys()].toSorted(), await readyIds());
  t.true([...byNode.values()].every(({ length }) => length === taskCount / agentCount));

  const firstSessions = new Map(agents.sessions);
  agents.sessions.clear();
  await manager.process.end("SIGKILL");
  manager.process.start();
  await manager.ready();
  await until("a heartbeat of every agent after the restart", () => agents.sessions.size === agentCount, 180_000);
  await until("every node READY again", async () => (await readyIds()).length === agentCount);
  t.deepEqual([...agents.sessions.keys()].toSorted(), [...firstSessions.keys()].toSorted());
  t.deepEqual(await runningIds(), before);
  t.deepEqual((await tasks(manager)).map(({ id }) => id).toSorted(), before, "no task was replaced");
  t.is(agents.started.length, taskCount, "no agent started a task again");
  t.deepEqual(agents.ended, []);

  const [removed = ""] = await readyIds();
  const moved = new Set((byNode.get(removed) ?? []).map(({ id }) => id));
  await manager.muster("node", "update", "--availability", "drain", removed);
  await until("the drained node's tasks to run elsewhere", async () => {
    const running = await runningTasks(manager);
    return running.length === taskCount && running.every(({ nodeId }) => nodeId !== removed);
  });
  await until("the drained node's tasks to end", () => agents.ended.length === moved.size);
  t.deepEqual(agents.ended.toSorted(), [...moved].toSorted(), "no other task was ended");
  const endedAs = (await tasks(manager)).filter(({ id }) => moved.has(id)).map(({ status }) => status?.state);
  t.true(endedAs.every((state) => state === TaskState.SHUTDOWN));
  await manager.muster("node", "rm", "--force", removed);
  const refusals = async (): Promise<number> => {
    const text = await (await fetch(`http://${metrics}/metrics`)).text();
    const line = text.split("\n").find((each) => /^muster_grpc_calls_total\{.*Session",code="7"\}/.test(each));
    return Number(line?.split(" ").at(-1) ?? 0);
  };
  await until("the removed agent to be rejected repeatedly", async () => (await refusals()) >= 3);
  t.false((await nodes(manager)).some(({ id }) => id === removed));
  t.is((await readyIds()).length, agentCount - 1);
  t.is((await runningTasks(manager)).length, taskCount);
  t.is(hosted(), taskCount);
  t.true(agents.isRunning);
});
