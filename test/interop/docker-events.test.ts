// Docker's client at a manager: containers of tasks, wherever they run, and the events that it follows and resumes.
import { execFile, spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import anyTest, { type ExecutionContext } from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { startManager } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";

const test = engineMissing() === null ? anyTest.serial : anyTest.serial.skip;
const run = promisify(execFile);

interface Cluster {
  docker(...words: readonly string[]): Promise<string>;
  /** Lines of both outputs of a command that runs until the test ends. */
  follow(...words: readonly string[]): string[];
}

async function cluster(t: ExecutionContext): Promise<Cluster> {
  const [worker, manager] = await Promise.all([startEngine(t), startManager(t)]);
  await manager.ready();
  await worker.join(await manager.muster("token", "worker"), manager.address);
  const host = `unix://${join(manager.dataDir, "docker.sock")}`;
  const docker = async (...words: readonly string[]): Promise<string> => {
    const { stderr, stdout } = await run("docker", ["-H", host, ...words], { timeout: 60_000 });
    return (stdout + stderr).trim();
  };
  const follow = (...words: readonly string[]): string[] => {
    const lines: string[] = [];
    const child = spawn("docker", ["-H", host, ...words], { stdio: ["ignore", "pipe", "pipe"] });
    t.teardown(() => child.kill());
    // The client writes a line in parts.
    for (const input of [child.stdout, child.stderr])
      createInterface({ input }).on("line", (line) => void (line !== "" && lines.push(line)));
    return lines;
  };
  await until(
    "the worker to be ready",
    async () => (await docker("node", "ls", "-q", "--filter", "role=worker")) !== "",
  );
  return { docker, follow };
}

test("containers, output and events of a service are shown, and events resume by time", async (t) => {
  const { docker, follow } = await cluster(t);
  const started = Math.floor(Date.now() / 1_000) - 1;
  const format = "{{.Type}} {{.Action}} {{.Actor.Attributes.name}}";
  // From then on, since the command may connect after the service is created.
  const live = follow("events", "--since", String(started), "--format", format, "--filter", "type=service");
  const script = "echo out; echo err >&2; sleep 1000";
  await docker("service", "create", "--name", "web", "--no-resolve-image", "bb:1", "sh", "-c", script);
  await docker("service", "scale", "web=2");
  t.regex(
    await docker("ps", "--format", "{{.Image}} {{.State}} {{.Names}}"),
    /^bb:1 running web\.\d\.\w+\nbb:1 running web\.\d\.\w+$/,
  );
  const [id = ""] = (await docker("ps", "-q", "--no-trunc", "--filter", "name=web.1")).split("\n");
  t.regex(id, /^[0-9a-f]{64}$/);
  t.is(
    await docker("inspect", "--type", "container", "--format", "{{.State.Status}} {{.Config.Cmd}}", id),
    `running [sh -c ${script}]`,
  );
  await until("the output", async () => /out/.test(await docker("logs", id)) && /err/.test(await docker("logs", id)));
  t.regex(
    await docker("service", "logs", "--raw", "--timestamps", "--tail", "1", "web"),
    /^\d{4}-\d\d-\d\dT[\d:.]{18}Z (?:out|err)/m,
  );
  t.regex(await docker("service", "logs", "--raw", "--details", "web"), /com\.docker\.swarm\.service\.id=/);
  const output = follow("service", "logs", "--follow", "--raw", "--tail", "0", "web");
  t.deepEqual(output, []);
  await until("the live events", () => {
    const isShown = live.includes("service create web") && live.includes("service update web");
    // It may be an error of the client.
    if (!isShown) throw new Error(`only ${live.join("; ")}`);
    return true;
  });
  await docker("service", "rm", "web");
  await until("the last event", () => live.includes("service remove web"));
  const past = await docker("events", "--since", String(started), "--until", "0s", "--format", format);
  const lines = past.split("\n");
  t.deepEqual(
    lines.filter((line) => line.startsWith("service")),
    live,
  );
  t.true(lines.some((line) => line.startsWith("container start web.1.")));
  const nodes = await docker(
    "events",
    "--since",
    String(started),
    "--until",
    "0s",
    "--filter",
    "type=node",
    "--format",
    format,
  );
  t.false(nodes.includes("service"));
});
