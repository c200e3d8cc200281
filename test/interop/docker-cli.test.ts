// Docker's unmodified client: the same commands to a stock manager and to ours, in turn; exit status and output must be equal.
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import anyTest, { type ExecutionContext } from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { normalised } from "../fixtures/docker-words.ts";
import { startManager, tempDir } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";
import { commandFiles, dockerCommands } from "../support/docker-commands.ts";

const test = engineMissing() === null ? anyTest.serial : anyTest.serial.skip;

interface Side {
  readonly socket: string;
  /** Id of the node that runs tasks. */
  readonly node: string;
}

interface Ran {
  readonly status: number;
  readonly output: string;
}

function docker(socket: string, words: readonly string[]): Promise<Ran> {
  return new Promise((resolve) => {
    execFile("docker", ["-H", `unix://${socket}`, ...words], { timeout: 60_000 }, (error, stdout, stderr) => {
      const status = error === null ? 0 : typeof error.code === "number" ? error.code : -1;
      resolve({ status, output: stdout + stderr });
    });
  });
}

/** A stock manager that runs tasks, and a manager of ours with a stock engine. */
async function sides(t: ExecutionContext): Promise<{ readonly stock: Side; readonly ours: Side }> {
  const [engine, worker, manager] = await Promise.all([startEngine(t), startEngine(t), startManager(t)]);
  await engine.setClientVersion();
  await engine.docker("swarm", "init", "--listen-addr", `${engine.host}:2399`, "--advertise-addr", engine.host);
  await manager.ready();
  await worker.join(await manager.muster("token", "worker"), manager.address);
  const [stock, ours] = [join(engine.dir, "docker.sock"), join(manager.dataDir, "docker.sock")];
  const nodeOf = async (socket: string, filter: string): Promise<string> =>
    (await docker(socket, ["node", "ls", "-q", "--filter", filter])).output.trim();
  await until("the worker to be ready", async () => (await nodeOf(ours, "role=worker")) !== "");
  return {
    stock: { socket: stock, node: await nodeOf(stock, "role=manager") },
    ours: { socket: ours, node: await nodeOf(ours, "role=worker") },
  };
}

test("every command has a stock manager's exit status and output", async (t) => {
  const { stock, ours } = await sides(t);
  const dir = tempDir(t, "docker-cli");
  for (const [name, text] of Object.entries(commandFiles)) writeFileSync(join(dir, name), text);
  const run = async ({ node, socket }: Side, words: readonly string[]): Promise<Ran> => {
    const given = words.map((word) => word.replaceAll("{node}", node).replaceAll("{dir}", dir));
    const { output, status } = await docker(socket, given);
    const text = normalised(output.replaceAll(dir, "DIR"));
    // The client goes through the parts of a stack in the order of a map of Go.
    const isUnordered = words[0] === "stack" && (words[1] === "deploy" || words[1] === "rm");
    return {
      status,
      output: isUnordered
        ? text
            .replaceAll(/\bID-\d+/g, "ID")
            .split("\n")
            .toSorted()
            .join("\n")
        : text,
    };
  };
  const settled = async ({ socket }: Side, service: string): Promise<void> => {
    const state = ["service", "inspect", service, "--format", "{{with .UpdateStatus}}{{.State}}{{end}}"];
    await until(`the end of the update of ${service}`, async () =>
      /_?completed$/.test((await docker(socket, state)).output.trim()),
    );
  };
  const different: string[] = [];
  for (const { after, differs, words } of dockerCommands) {
    if (after !== undefined) await Promise.all([settled(stock, after), settled(ours, after)]);
    const [expected, found] = [await run(stock, words), await run(ours, words)];
    const isEqual = expected.status === found.status && expected.output === found.output;
    if (isEqual === (differs === undefined)) continue;
    different.push(
      `docker ${words.join(" ")}${differs === undefined ? "" : " (meant to differ)"}`,
      `  stock: ${expected.status} ${expected.output}`,
      `  ours:  ${found.status} ${found.output}`,
    );
  }
  t.deepEqual(different, []);
});
