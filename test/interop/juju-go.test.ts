// Juju's own client packages in Go, and its command where that is built, against a real manager.
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import anyTest, { type ExecutionContext } from "ava";
import { WebSocket } from "ws";
import { createService } from "../fixtures/control-client.ts";
import { startAgent, startManager, tempDir } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { until } from "../fixtures/until.ts";
import {
  Annotations,
  Any,
  ExecSpec,
  GenericRuntimeSpec,
  ReplicatedService,
  ServiceSpec,
  TaskSpec,
} from "../../proto/gen/messages.ts";
import { password, TestClient } from "../support/json-api.ts";
import { peerPath, peersMissing } from "./go/peers.ts";

const missing = peersMissing("juju-client");
const test = missing === null ? anyTest.serial : anyTest.serial.skip;
/** Built when it is asked for by name alone: `npm run peers -- juju`. */
const withCommand = existsSync(peerPath("juju")) ? anyTest.serial : anyTest.serial.skip;

/** Two units that print a line each and go on. */
function talkers(): ServiceSpec {
  const exec = ExecSpec.create({ command: "/bin/sh", args: ["-c", "echo ready; exec sleep 600"] });
  const payload = Any.create({ type_url: "type.muster.dev/muster.v1.ExecSpec", value: ExecSpec.encode(exec) });
  return ServiceSpec.create({
    annotations: Annotations.create({ name: "web" }),
    task: TaskSpec.create({ generic: GenericRuntimeSpec.create({ kind: "exec", payload }) }),
    replicated: ReplicatedService.create({ replicas: 2 }),
  });
}

/** A cluster of one agent whose two units run, and an admin `ada`. */
async function cluster(t: ExecutionContext) {
  const port = await freePort();
  const manager = await startManager(t, { args: ["--json-listen", `127.0.0.1:${port}`] });
  const dir = tempDir(t, "juju");
  const [ca, secret] = [join(dir, "ca.pem"), join(dir, "password")];
  writeFileSync(secret, `${password}\n`);
  const [root] = await Promise.all([
    manager.muster("ca"),
    manager.muster("user", "add", "--role", "admin", "--password-file", secret, "ada"),
    startAgent(t, manager, { hostname: "one" }),
    createService(manager, talkers()),
  ]);
  writeFileSync(ca, `${root}\n`);
  const client = new TestClient(new WebSocket(`wss://127.0.0.1:${port}/`, { ca: root }));
  await once(client.socket, "open");
  const { response } = (await client.login()) as { response: Record<"model-tag" | "controller-tag", string> };
  let id = 1;
  await until("two units that run", async () => {
    const status = { "request-id": (id += 1), type: "Client", version: 6, request: "FullStatus" };
    return JSON.stringify(await client.ask(status)).split('"active"').length > 2;
  });
  client.socket.terminate();
  const uuid = (tag: string): string => tag.replace(/^[a-z]+-/, "");
  return { port, dir, ca, root, model: uuid(response["model-tag"]), controller: uuid(response["controller-tag"]) };
}

test("Juju's Go client looks, runs a command, adds and removes a unit, configures, grants, registers a user and reads logs", async (t) => {
  t.timeout(300_000);
  const { port, ca, model } = await cluster(t);
  const child = spawn(peerPath("juju-client"), [`127.0.0.1:${port}`, ca, model, "ada"]);
  t.teardown(() => void child.kill());
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => void (stdout += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => void (stderr += chunk.toString()));
  child.stdin.end(`${password}\n`);
  await once(child, "close");
  t.is(child.exitCode, 0, stderr);
  const told = JSON.parse(stdout) as Record<string, unknown>;
  t.like(told, {
    access: "superuser",
    action: {
      status: "failed",
      operation: "failed",
      output: { "return-code": 3, stdout: "hello\n", stderr: "oops\n" },
    },
    config: { "logging-config": "<root>=DEBUG", constraints: "" },
    model: { applications: 1, error: null },
    registration: {
      status: 200,
      sameController: true,
      replayed: 401,
      oldPassword: false,
      reset: 200,
      newPassword: true,
    },
    units: ["web/2"],
    storage: { error: 'facade "Storage" is not supported by this controller (not supported)' },
  });
  const hardware = told["status"] as string[];
  t.true(hardware.length > 0 && hardware.every((text) => !/x86_64|aarch64/.test(text)), hardware.join());
  const line = { severity: "INFO", module: "stdout", message: "ready", hasTime: true };
  const logs = (told["logs"] as { entity: string }[]).toSorted((left, right) => (left.entity < right.entity ? -1 : 1));
  t.deepEqual(logs, [
    { entity: "unit-web-0", ...line },
    { entity: "unit-web-1", ...line },
  ] as object[] as typeof logs);
});

withCommand("the juju command logs in, looks, runs commands and shows what came of them", async (t) => {
  t.timeout(300_000);
  const { port, dir, root, model, controller } = await cluster(t);
  const data = join(dir, "data");
  mkdirSync(data);
  const indented = root.replaceAll(/^/gm, "      ");
  writeFileSync(
    join(data, "controllers.yaml"),
    `controllers:\n  muster:\n    uuid: ${controller}\n    api-endpoints: ['127.0.0.1:${port}']\n    ca-cert: |\n${indented}\n` +
      `    cloud: muster\n    agent-version: 3.6.11\ncurrent-controller: muster\n`,
  );
  writeFileSync(
    join(data, "models.yaml"),
    `controllers:\n  muster:\n    models:\n      admin/default:\n        uuid: ${model}\n        type: iaas\n    current-model: admin/default\n`,
  );
  const juju = (...args: string[]): Promise<string> & { child: ChildProcess } => {
    const env = { ...process.env, JUJU_DATA: data, HOME: dir };
    const run = promisify(execFile)(peerPath("juju"), args, { env, timeout: 60_000 });
    return Object.assign(
      run.then(({ stdout }) => stdout),
      { child: run.child },
    );
  };
  // It has no password, and asks.
  const login = juju("login", "-u", "ada", "--no-prompt");
  login.child.stdin?.end(`${password}\n`);
  await login;
  t.regex(await juju("status"), /web\/1 +active +idle/);
  t.is((await juju("exec", "--unit", "web/0", "--", "echo hello")).trim(), "hello");
  t.regex(await juju("show-operation", "1"), /stdout: \|\n +hello/);
  t.regex(await juju("debug-log", "--no-tail", "--replay"), /^unit-web-0: .* INFO stdout ready$/m);
  t.regex(await juju("add-unit", "web"), /^$/);
  await t.notThrowsAsync(juju("remove-unit", "web/2", "--no-prompt"));
});
