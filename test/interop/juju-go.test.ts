// Juju's own Go client packages, and its command where built, against a real manager.
import { execFile, spawn } from "node:child_process";
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
import { patient } from "../support/slowness.ts";
import { peerPath, peersMissing } from "./go/peers.ts";

const missing = peersMissing("juju-client");
const test = missing === null ? anyTest.serial : anyTest.serial.skip;
/** Built only when named: `npm run peers -- juju`. */
const withCommand = existsSync(peerPath("juju")) ? anyTest.serial : anyTest.serial.skip;

/** Two units that print one line each and keep running. */
function talkers(): ServiceSpec {
  const exec = ExecSpec.create({ command: "/bin/sh", args: ["-c", "echo ready; exec sleep 600"] });
  const payload = Any.create({ type_url: "type.muster.dev/muster.v1.ExecSpec", value: ExecSpec.encode(exec) });
  return ServiceSpec.create({
    annotations: Annotations.create({ name: "web" }),
    task: TaskSpec.create({ generic: GenericRuntimeSpec.create({ kind: "exec", payload }) }),
    replicated: ReplicatedService.create({ replicas: 2 }),
  });
}

/** A cluster of one agent with two running units, and an admin `ada`. */
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
  await until("two running units", async () => {
    const status = { "request-id": (id += 1), type: "Client", version: 6, request: "FullStatus" };
    return JSON.stringify(await client.ask(status)).split('"active"').length > 2;
  });
  client.socket.terminate();
  const uuid = (tag: string): string => tag.replace(/^[a-z]+-/, "");
  const [model, controller] = [uuid(response["model-tag"]), uuid(response["controller-tag"])];
  return { manager, port, dir, ca, root, model, controller };
}

/** Output of Juju's command, with its own folder under `dir`; its prompts read from `answers`. */
function commandIn(dir: string, name: string) {
  const data = join(dir, name);
  mkdirSync(data);
  return (args: readonly string[], ...answers: readonly string[]): Promise<{ stdout: string; stderr: string }> => {
    const env = { ...process.env, JUJU_DATA: data, HOME: dir };
    const run = promisify(execFile)(peerPath("juju"), args, { env, timeout: 60_000 });
    // No terminal, and no further answers: one prompt too many makes the command fail.
    run.child.stdin?.end(answers.map((answer) => `${answer}\n`).join(""));
    return run;
  };
}

/** A command that knows the cluster and is logged in as `ada`. */
async function adminsCommand({ port, dir, root, model, controller }: Awaited<ReturnType<typeof cluster>>) {
  const run = commandIn(dir, "data");
  const indented = root.replaceAll(/^/gm, "      ");
  writeFileSync(
    join(dir, "data", "controllers.yaml"),
    `controllers:\n  muster:\n    uuid: ${controller}\n    api-endpoints: ['127.0.0.1:${port}']\n    ca-cert: |\n${indented}\n` +
      `    cloud: muster\n    agent-version: 3.6.11\ncurrent-controller: muster\n`,
  );
  writeFileSync(
    join(dir, "data", "models.yaml"),
    `controllers:\n  muster:\n    models:\n      admin/default:\n        uuid: ${model}\n        type: iaas\n    current-model: admin/default\n`,
  );
  // It has no password, so it prompts.
  await run(["login", "-u", "ada", "--no-prompt"], password);
  return run;
}

test("Juju's Go client reads status, runs a command, adds and removes a unit, configures, grants, registers a user and reads logs", async (t) => {
  t.timeout(patient(300_000));
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

withCommand("the juju command logs in, shows status, runs commands and shows their results", async (t) => {
  t.timeout(patient(300_000));
  const run = await adminsCommand(await cluster(t));
  const juju = async (...args: readonly string[]): Promise<string> => (await run(args)).stdout;
  t.regex(await juju("status"), /web\/1 +active +idle/);
  t.is((await juju("exec", "--unit", "web/0", "--", "echo hello")).trim(), "hello");
  t.regex(await juju("show-operation", "1"), /stdout: \|\n +hello/);
  t.regex(await juju("debug-log", "--no-tail", "--replay"), /^unit-web-0: .* INFO stdout ready$/m);
  t.regex(await juju("add-unit", "web"), /^$/);
  await t.notThrowsAsync(juju("remove-unit", "web/2", "--no-prompt"));
});

/** The secret key in the string for `juju register`: DER with one octet string of 32 bytes. */
function keyIn(registration: string): Buffer {
  const bytes = Buffer.from(registration, "base64url");
  const at = bytes.indexOf(Buffer.of(0x04, 32)) + 2;
  return bytes.subarray(at, at + 32);
}

withCommand("the juju command adds a user, who registers with the string and is not prompted again", async (t) => {
  t.timeout(patient(300_000));
  const world = await cluster(t);
  const juju = await adminsCommand(world);
  /** Some commands print it on standard error. */
  const stringIn = ({ stdout, stderr }: { readonly stdout: string; readonly stderr: string }): string =>
    /juju register (\S+)/.exec(stdout + stderr)?.[1] ?? "";
  const added = stringIn(await juju(["add-user", "ben", "Ben B."]));
  t.is(keyIn(added).length, 32);

  // The user's own client does not know this cluster.
  const his = commandIn(world.dir, "his");
  const chosen = "a password of his own";
  const { stderr } = await his(["register", added], chosen, chosen, "ours");
  t.regex(stderr, /Initial password successfully set for ben\.[^]*Welcome, ben\. You are now logged into "ours"\./);
  t.notRegex(stderr, /please enter password/);
  t.regex((await his(["whoami"])).stdout, /^Controller: +ours\nModel: +(\S+)\nUser: +ben$/m);
  // It prompts for the password if the cookie's two minutes are over.
  t.regex((await his(["status"], chosen)).stdout, /web\/1 +active +idle/);

  // The string works once.
  const elsewhere = commandIn(world.dir, "elsewhere");
  await t.throwsAsync(elsewhere(["register", added], "another password", "another password", "ours"), {
    message: /registration token may have expired/,
  });
  await juju(["disable-user", "ben"]);
  t.regex((await juju(["users", "--all"])).stdout, /ben +Ben B\. .*disabled/);
  await juju(["enable-user", "ben"]);
  const reset = stringIn(await juju(["change-user-password", "ben", "--reset"]));
  t.is(keyIn(reset).length, 32);
  t.not(reset, added);
  const again = await elsewhere(["register", reset], "another password", "another password", "ours");
  t.regex(again.stderr, /Welcome, ben\./);
  for (const each of [added, reset])
    for (const form of ["hex", "base64", "base64url", "latin1"] as const)
      t.false(world.manager.process.output.includes(keyIn(each).toString(form)), "a key is in the manager's log");
});
