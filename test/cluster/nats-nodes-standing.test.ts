// A node that reaches its managers over NATS alone renews its certificate, and each of these managers is demoted in its turn.
import { connect } from "node:net";
import test, { type ExecutionContext } from "ava";
import { createService, nodeCalled, runningTasks, sleepers } from "../fixtures/control-client.ts";
import { startAgent, startManager, type TestManager } from "../fixtures/muster.ts";
import { natsServer } from "../fixtures/nats-server.ts";
import { freePort } from "../fixtures/ports.ts";
import { taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { IssuanceStatus_State, NodeStatus_State } from "../../proto/gen/messages.ts";
import { patient } from "../support/slowness.ts";

interface Member {
  readonly manager: TestManager;
  readonly nodesPort: number;
}

async function members(t: ExecutionContext): Promise<readonly [Member, Member]> {
  const { server } = await natsServer(t);
  const nats = server.url.replace("//", `//${server.user}:${server.pass}@`);
  const started = async (join?: TestManager): Promise<Member> => {
    const nodesPort = await freePort();
    const args = ["--listen-nodes-nats", `127.0.0.1:${nodesPort}`];
    return { nodesPort, manager: await startManager(t, { nats, args, ...(join === undefined ? {} : { join }) }) };
  };
  const first = await started();
  return [first, await started(first.manager)];
}

/** Whether anything listens there. */
const listens = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("error", () => resolve(false));
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
  });

test("a node over NATS renews its certificate, and keeps its task when each of its managers is demoted", async (t) => {
  t.timeout(patient(300_000));
  const both = await members(t);
  const [first, second] = both;
  const join = both.map(({ nodesPort }) => `nats://127.0.0.1:${nodesPort}`).join(",");
  const agent = await startAgent(t, first.manager, { hostname: "far", join });
  await createService(first.manager, sleepers("web", 1));
  await until("a running task", async () => (await runningTasks(first.manager)).length === 1);
  const tasks = taskProcesses(agent.dataDir).map(({ pid }) => pid);

  const far = (manager: TestManager) => nodeCalled(manager, "far");
  const certificate = async (): Promise<string> => {
    const { certificate: found } = await far(first.manager);
    return found?.status?.state === IssuanceStatus_State.ISSUED ? Buffer.from(found.certificate).toString() : "";
  };
  const before = await until("its certificate", async () => (await certificate()) || null);
  await first.manager.muster("node", "update", "--rotate-certificate", "far");
  await until("another certificate", async () => {
    const now = await certificate();
    return now !== "" && now !== before;
  });
  t.is(agent.sessions().length, 1, "the session goes on");

  for (const [leaving, staying] of [
    [first, second],
    [second, first],
  ] as const) {
    const id = await until("its node", () => idOf(staying.manager, leaving.manager));
    await staying.manager.muster("node", "demote", id);
    await until("it to exit", () => !leaving.manager.process.isRunning, 30_000);
    t.false(await listens(leaving.nodesPort));
    await until(
      "the node at the other manager",
      async () => (await far(staying.manager)).status?.state === NodeStatus_State.READY,
      60_000,
    );
    t.deepEqual(
      taskProcesses(agent.dataDir).map(({ pid }) => pid),
      tasks,
    );
    const [task] = await runningTasks(staying.manager);
    t.is(await staying.manager.muster("task", "exec", task?.id ?? "", "echo", "here"), "here");
    await staying.manager.muster("node", "promote", id);
    leaving.manager.process.start();
    await leaving.manager.ready();
  }
});

async function idOf(asked: TestManager, { address }: TestManager): Promise<string | null> {
  const rows = await asked.json<{ readonly id: string; readonly managerStatus?: { readonly addr?: string } }>(
    "node",
    "ls",
  );
  return rows.find(({ managerStatus }) => managerStatus?.addr === address)?.id ?? null;
}
