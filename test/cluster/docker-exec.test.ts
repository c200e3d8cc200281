// Commands in tasks through Docker's Engine API: over TLS, by role, through another manager, and with clients that misbehave.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import anyTest, { type ExecutionContext } from "ava";
import { engineMissing } from "../fixtures/docker-engine.ts";
import { ask } from "../fixtures/engine-api.ts";
import { startAgent, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { mockDriver } from "../fixtures/plugin-launch.ts";
import { freePort } from "../fixtures/ports.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const test = anyTest.serial;
const execDriver = join(mockDriver, "../muster-driver-exec");

/** A manager with an agent that runs the task `says.1` as a process; its container's id. */
async function world(t: ExecutionContext, args: readonly string[] = [], tasksAs?: "default") {
  const manager = await startManager(t, { args });
  await manager.ready();
  await startAgent(t, manager, {
    hostname: "one",
    args: ["--driver", `exec=${execDriver}`],
    ...(tasksAs === undefined ? {} : { tasksAs }),
  });
  const config = JSON.stringify({ command: "sleep", args: ["1000"] });
  await manager.muster("service", "create", "-d", "--name", "says", "--driver", "exec", "--driver-config", config);
  const socket = join(manager.dataDir, "docker.sock");
  let id = "";
  await until("the task to run", async () => {
    const { text } = await ask(socket, { method: "GET", path: "/v1.41/containers/json" });
    id = (JSON.parse(text) as readonly { readonly Id: string }[])[0]?.Id ?? "";
    return id !== "";
  });
  return { manager, socket, id };
}

interface Ran {
  readonly status: number | null;
  readonly output: string;
}

async function docker(flags: readonly string[], words: readonly string[], input = ""): Promise<Ran> {
  const child = spawn("docker", [...flags, ...words], { stdio: "pipe" });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data: Buffer) => (output += data.toString()));
  child.stdin.on("error", () => undefined).end(input);
  const timer = setTimeout(() => child.kill("SIGKILL"), patient(30_000));
  const [status] = (await once(child, "close")) as [number | null];
  clearTimeout(timer);
  return { status, output };
}

async function flagsOf(manager: TestManager, dir: string, name: string, role: string): Promise<readonly string[]> {
  const [password, out] = [join(dir, "password"), join(dir, name)];
  writeFileSync(password, "correct horse battery staple\n");
  await manager.muster("user", "add", "--role", role, "--password-file", password, name);
  await manager.muster("user", "certificate", name, "-o", out, "--lifetime", "1h");
  const pem = join(out, "credentials.pem");
  return ["--tlsverify", "--tlscacert", join(out, "ca.pem"), "--tlscert", pem, "--tlskey", pem];
}

(engineMissing() === null ? test : test.skip)(
  "over TLS, a role decides who runs commands in tasks, and their input ends",
  async (t) => {
    const port = await freePort();
    const { id, manager } = await world(t, ["--docker-listen", `127.0.0.1:${port}`]);
    const dir = tempDir(t, "docker-exec");
    const host = ["-H", `tcp://127.0.0.1:${port}`];
    const reader = [...host, ...(await flagsOf(manager, dir, "reader", "read-only"))];
    const operator = [...host, ...(await flagsOf(manager, dir, "operator", "operator"))];
    t.deepEqual(await docker(operator, ["exec", "-i", id, "cat"], "over TLS"), { status: 0, output: "over TLS" });
    const refused = await docker(reader, ["exec", id, "true"]);
    t.is(refused.status, 1, "refused before it is created: a new command may displace those of others");
    t.regex(refused.output, /needs the role operator, and user reader has the role read-only/);
    t.is((await docker(reader, ["stats", "--no-stream", id])).status, 0);
    t.regex((await docker(reader, ["top", id])).output, /needs the role operator/);
    t.regex((await docker(operator, ["top", id])).output, /sleep 1000/);
  },
);

const asRoot = engineMissing() === null && process.getuid?.() === 0 ? test : test.skip;

asRoot("a command in a process has its own user, variables and folder, within the rules of its node", async (t) => {
  const { id, manager, socket } = await world(t, [], "default");
  const exec = (flags: readonly string[], ...words: readonly string[]) =>
    docker(["-H", `unix://${socket}`], ["exec", ...flags, id, ...words]);
  const report = ["sh", "-c", "echo $(id -un) $(pwd) $A"];
  t.deepEqual(await exec(["-u", "daemon", "-w", "/usr", "-e", "A=b c"], ...report), {
    status: 0,
    output: "daemon /usr b c\n",
  });
  const isRoot = await exec(["-u", "root"], "true");
  t.is(isRoot.status, 126);
  t.regex(isRoot.output, /this node runs no task as root/);
  const isPrivileged = await exec(["--privileged"], "true");
  t.is(isPrivileged.status, 126);
  t.regex(isPrivileged.output, /no command with more privileges/);
  const own = await manager.muster("task", "exec", "-u", "daemon", "-w", "/usr", "-e", "A=b", "says.1", ...report);
  t.is(own, "daemon /usr b");
});

interface RawExec {
  readonly socket: Socket;
  received(): string;
  readonly closed: Promise<unknown>;
}

/** A command whose client writes and reads as it likes. */
async function rawExec(path: string, container: string, command: readonly string[], body = "{}"): Promise<RawExec> {
  const wanted = { Cmd: command, AttachStdin: true, AttachStdout: true, AttachStderr: true };
  const { text } = await ask(path, {
    method: "POST",
    path: `/v1.41/containers/${container}/exec`,
    body: JSON.stringify(wanted),
  });
  const { Id: id } = JSON.parse(text) as { readonly Id: string };
  const socket = connect({ path, allowHalfOpen: true });
  let received = "";
  socket.on("data", (data: Buffer) => (received += data.toString("latin1"))).on("error", () => undefined);
  socket.write(
    `POST /v1.41/exec/${id}/start HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`,
  );
  // Apart from the headers, as a slow client sends it.
  await new Promise((resolve) => setTimeout(resolve, 100));
  socket.write(body);
  return { socket, received: () => received, closed: once(socket, "close") };
}

function residentBytes(pid: number): number {
  const [, kilobytes = "0"] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) * 1_024;
}

test("a client that does not read stops its command and costs no memory, and one that leaves ends it", async (t) => {
  const { id, manager, socket } = await world(t);
  const pid = manager.process.child.pid ?? 0;
  const marked = `mark-${Math.floor(performance.now())}`;
  const script = `: ${marked}; while :; do echo ${"0123456789".repeat(100)}; done`;
  const lines = await rawExec(socket, id, ["sh", "-c", script]);
  await until("the first output", async () => lines.received().includes("0123456789"));
  t.regex(lines.received(), /^HTTP\/1\.1 101 UPGRADED\r\n/);
  lines.socket.pause();
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  const before = residentBytes(pid);
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  t.true(residentBytes(pid) - before < 20 * 1_024 * 1_024, "output that nobody reads is not kept");
  const runs = async (): Promise<boolean> =>
    (await ask(socket, { method: "GET", path: `/v1.41/containers/${id}/top` })).text.includes(marked);
  t.true(await runs());
  lines.socket.destroy();
  await until("the command of a client that left to end", async () => !(await runs()));

  // A body that never arrives whole, and one whose client goes away.
  const partial = await rawExec(socket, id, ["true"], "{");
  partial.socket.end();
  await partial.closed;
  t.regex(partial.received(), /^HTTP\/1\.1 400 /);

  // Requests that want to become something else are answered like others.
  const other = connect({ path: socket });
  let answer = "";
  other.on("data", (data: Buffer) => (answer += data.toString()));
  other.write("GET /_ping HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
  await once(other, "close");
  t.regex(answer, /^HTTP\/1\.1 200 OK\r\n/);
  t.regex(answer, /\r\nOK\r\n/);
});

test("a command runs once, and its outcome can be read until others displace it", async (t) => {
  const { id, socket } = await world(t);
  const post = async (path: string, body: unknown) =>
    ask(socket, { method: "POST", path: `/v1.41${path}`, body: JSON.stringify(body) });
  const created = await post(`/containers/${id}/exec`, { Cmd: ["sh", "-c", "exit 9"], AttachStdout: true });
  const { Id: exec } = JSON.parse(created.text) as { readonly Id: string };
  const inspect = async () => ask(socket, { method: "GET", path: `/v1.41/exec/${exec}/json` });
  t.like(JSON.parse((await inspect()).text), { Running: false, ExitCode: null, ProcessConfig: { entrypoint: "sh" } });
  t.is((await post(`/exec/${exec}/start`, {})).status, 200);
  t.like(JSON.parse((await inspect()).text), { Running: false, ExitCode: 9 });
  t.deepEqual(
    [(await post(`/exec/${exec}/start`, {})).status, (await post(`/exec/${exec}/resize?h=1&w=1`, {})).status],
    [409, 409],
  );
  for (let at = 0; at < 1_000; at += 1) await post(`/containers/${id}/exec`, { Cmd: ["true"] });
  t.is((await inspect()).status, 404);
});
