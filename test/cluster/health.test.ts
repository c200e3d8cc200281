// Health checks of processes by command, HTTP and TCP, through kill -9 of the agent, and their effect on a rollout.
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { startAgent, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { commandOf, isAlive, processesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";

interface Row {
  readonly ID: string;
  readonly CurrentState: string;
  readonly Error: string;
}

/** Allows for a server that starts slowly on a busy machine. */
const patient = ["--health-start-period", "1h", "--health-start-interval", "200ms"];

/** The server's pid on this machine; in its task's namespace it has another. */
function serverIn(folder: string): number {
  const [pid = 0] = processesOf(folder).filter((each) => commandOf(each).startsWith(`${process.execPath} -e `));
  return pid;
}

/** Checks often, with a timeout that a busy machine does not reach. */
const often = ["--health-interval", "200ms", "--health-timeout", "20s", "--restart-delay", "0s", "--detach"];

async function world(t: ExecutionContext) {
  const manager = await startManager(t);
  await manager.patience();
  const agent = await startAgent(t, manager, { hostname: "one" });
  const folder = tempDir(t, "health");
  return { manager, agent, folder, well: join(folder, "well") };
}

const tasksOf = (manager: TestManager, service: string): Promise<readonly Row[]> =>
  manager.json<Row>("service", "ps", service, "--no-trunc");

async function untilState(manager: TestManager, service: string, state: string): Promise<Row> {
  return until(`${service} to be ${state}`, async () =>
    (await tasksOf(manager, service)).find(({ CurrentState }) => CurrentState.startsWith(state)),
  );
}

/** Serves on the port, healthy while the file exists. */
function server(port: number, well: string): readonly string[] {
  const script = `
    require("http").createServer((_, answer) => {
      const isWell = require("fs").existsSync(${JSON.stringify(well)});
      answer.writeHead(isWell ? 200 : 503).end("not\\nyet");
    }).listen(${port}, "127.0.0.1");`;
  return ["--driver", "exec", "--", process.execPath, "-e", script];
}

test.serial(
  "a task is STARTING until its check passes, continues through kill -9 of the agent, and fails",
  async (t) => {
    const { agent, folder, manager, well } = await world(t);
    const port = await freePort();
    const check = ["--health-http", `http://shop.example:${port}/ready`, "--health-retries", "2", ...patient];
    const create = ["service", "create", "--name", "web", ...often, ...check];
    await manager.muster(...create, ...server(port, well));
    const why = (): Promise<string> => manager.muster("why", "web.1");
    await until("the check's output", async () => /answered 503: not yet/.test(await why()));
    t.regex(await why(), new RegExp(`its health check must pass: GET shop.example:${port}/ready`));
    const waiting = await untilState(manager, "web", "Starting");
    t.regex(await manager.muster("service", "inspect", "--pretty", "web"), /Test = GET shop\.example:\d+\/ready/);

    await agent.process.end("SIGKILL");
    agent.process.start();
    await until("the agent's next session", () => agent.sessions().length > 1);
    t.is((await untilState(manager, "web", "Starting")).ID, waiting.ID, "its check has still to pass");
    writeFileSync(well, "");
    t.is((await untilState(manager, "web", "Running")).ID, waiting.ID);
    const before = serverIn(folder);
    t.true(before > 0);

    await agent.process.end("SIGKILL");
    agent.process.start();
    await until("the agent's next session", () => agent.sessions().length > 2);
    t.is((await untilState(manager, "web", "Running")).ID, waiting.ID);
    t.true(isAlive(before), "the process is the same");
    rmSync(well);
    const failed = await untilState(manager, "web", "Failed");
    t.is(failed.ID, waiting.ID);
    t.regex(
      failed.Error,
      /unhealthy: 2 checks failed in a row, the last: GET http:\/\/127\.0\.0\.1:\d+\/ready: answered 503/,
    );
    t.false(isAlive(before), "it was stopped before it failed");
    const successor = await untilState(manager, "web", "Starting");
    t.not(successor.ID, waiting.ID);
  },
);

test.serial("command and TCP checks work, and an unhealthy version is rolled back", async (t) => {
  const { manager, well } = await world(t);
  const port = await freePort();
  writeFileSync(well, "");
  const tcp = ["service", "create", "--name", "tcp", ...often, ...patient, "--health-tcp", `:${port}`];
  await manager.muster(...tcp, ...server(port, well));
  const command = ["--health-cmd", 'test "$NOMAD_JOB_NAME" = command', "--health-retries", "1"];
  const rollout = ["--update-failure-action", "rollback", "--update-monitor", "1s", "--rollback-monitor", "1s"];
  const create = ["service", "create", "--name", "command", ...often, ...command, ...rollout, "--driver", "exec"];
  await manager.muster(...create, "--driver-config", JSON.stringify({ command: "sleep", args: ["1000"] }));
  await untilState(manager, "tcp", "Running");
  await untilState(manager, "command", "Running");
  await manager.muster("service", "update", "--detach", "--health-cmd", "echo broken; exit 9", "command");
  await until("the rollback", async () =>
    /rollback_completed/.test(await manager.muster("service", "inspect", "--pretty", "command")),
  );
  const tasks = await tasksOf(manager, "command");
  t.true(
    tasks.some(({ Error }) => /its check failed: the command exited with 9: broken/.test(Error)),
    JSON.stringify(tasks),
  );
  await untilState(manager, "command", "Running");
  t.regex(
    await manager.muster("service", "inspect", "--pretty", "command"),
    /Test = test "\$NOMAD_JOB_NAME" = command/,
  );
});
