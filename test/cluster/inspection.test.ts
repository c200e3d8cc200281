// The live feed of the actors of real processes: two managers on one NATS, and an agent at one of them.
import test from "ava";
import { createService, nodeCalled, runningTasks, sleepers, status } from "../fixtures/control-client.ts";
import { watchActors } from "../fixtures/actor-feed.ts";
import { startAgent, startManager } from "../fixtures/muster.ts";
import { natsServer } from "../fixtures/nats-server.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

test.serial("a listener at one manager follows all managers and agents, through kills of each", async (t) => {
  t.timeout(patient(300_000));
  const { server } = await natsServer(t);
  const nats = server.url.replace("//", `//${server.user}:${server.pass}@`);
  const leader = await startManager(t, { nats });
  const follower = await startManager(t, { nats, join: leader });
  const agent = await startAgent(t, follower, { hostname: "far" });
  await leader.patience();
  const { managerId: home } = await status(leader);
  const { managerId: other } = await status(follower);
  const { id: node } = await nodeCalled(leader, "far");
  const [homeProcess, otherProcess, nodeProcess] = [`manager-${home}`, `manager-${other}`, `node-${node}`];
  await createService(leader, sleepers("web", 1));
  await until("a running task", async () => (await runningTasks(leader)).length === 1);
  const [task] = await runningTasks(leader);

  const feed = await watchActors(t, leader);
  const taskState = (): string => feed.state(nodeProcess, `agent-task/${task?.id}`);
  const sessionState = (): string => feed.state(otherProcess, `session/${node}`);
  await until("all three processes", () => feed.view.size === 3 && taskState() !== "" && sessionState() !== "");
  t.regex(taskState(), /running/);
  t.regex(sessionState(), /serving/);
  t.not(feed.state(homeProcess, "ledger"), "");
  const hostnames = new Set(feed.messages.map(({ hostname }) => hostname));
  t.true(hostnames.has("far"));

  const chosen = await watchActors(t, follower, { processes: [nodeProcess], actors: ["agent-task/"] });
  await until("the task alone", () => chosen.view.get(nodeProcess) instanceof Map);
  const alone = chosen.view.get(nodeProcess);
  t.deepEqual(alone instanceof Map ? [...alone] : alone, [[`agent-task/${task?.id}`, taskState()]]);
  t.is(chosen.view.size, 1);

  // The session sees it, and so does whoever watches.
  await agent.process.end("SIGKILL");
  await until("the session without its node", () => !sessionState().includes("serving.connected"));
  await until("the agent's loss", () => feed.lost(nodeProcess) !== "" && chosen.lost(nodeProcess) !== "");
  agent.process.start();
  await until("the agent's return", () => /running/.test(taskState()));
  // A returning agent may register at either manager.
  const isServed = (process: string): boolean => feed.state(process, `session/${node}`).includes("serving");
  await until("its session", () => isServed(otherProcess) || isServed(homeProcess));

  await follower.process.end("SIGKILL");
  await until("the manager's loss", () => feed.lost(otherProcess) !== "");
  t.regex(feed.lost(otherProcess), /no process of the manager is on the bus|did not answer/);
  await until("the agent's feed by way of the other manager", () => {
    return isServed(homeProcess) && /running/.test(taskState());
  });
  follower.process.start();
  await follower.ready();
  await until("the manager's return", () => feed.view.get(otherProcess) instanceof Map);
  t.is(feed.lost(homeProcess), "");
});
