// Secrets and configs of process tasks: real files of real processes, in memory, there before the start and gone at the end.
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import type { Content, DriverTask } from "../../actors/agent/agent-ports.ts";
import { filesOf } from "../../drivers/exec/contents.ts";
import { ExecDriver } from "../../drivers/exec/driver.ts";
import { taskContext } from "../../drivers/exec/template-context.ts";
import { expand } from "../../drivers/exec/template.ts";
import { Any, ConfigReference, ExecSpec, FileTarget, SecretReference } from "../../proto/gen/messages.ts";
import { SystemClock } from "../../runtime/system/clock.ts";

const isRoot = process.getuid?.() === 0;
const shm = "/dev/shm";
const hasMemory = existsSync(shm) && statfsSync(shm).type === 0x01021994;

interface Place {
  readonly directory: string;
  /** In memory, of this test alone. */
  readonly root: string;
  readonly warnings: string[];
  /** Another life of the driver over the same directory. */
  readonly driver: (roots?: readonly string[]) => ExecDriver;
}

function place(t: ExecutionContext): Place {
  const directory = mkdtempSync(join(tmpdir(), "muster-files-"));
  const root = join(shm, `muster-test-${process.pid}-${directory.slice(-6)}`);
  const warnings: string[] = [];
  const drivers: ExecDriver[] = [];
  t.teardown(async () => {
    for (const id of readdirSync(directory)) await drivers.at(-1)?.stop(id);
    for (const driver of drivers) driver.close();
    rmSync(directory, { recursive: true, force: true });
    rmSync(root, { recursive: true, force: true });
  });
  return {
    directory,
    root,
    warnings,
    driver: (memoryRoots = [root]) => {
      const driver = new ExecDriver({
        directory,
        clock: new SystemClock(),
        log: {
          debug: () => {},
          info: () => {},
          warn: (_, text) => void warnings.push(text),
          error: (_, text) => void warnings.push(text),
        },
        environment: { PATH: process.env["PATH"] },
        memoryRoots,
      });
      drivers.push(driver);
      return driver;
    },
  };
}

type File = Partial<FileTarget>;
const target = (file: File): FileTarget => FileTarget.create({ uid: "0", gid: "0", mode: 0o444, ...file });
const secret = (name: string, file: File = {}): SecretReference =>
  SecretReference.create({ secretId: `id-${name}`, secretName: name, file: target({ name, ...file }) });
const config = (name: string, file: File = {}): ConfigReference =>
  ConfigReference.create({ configId: `id-${name}`, configName: name, file: target({ name, ...file }) });
const content = (text: string | Uint8Array, template: string | null = null): Content => ({
  data: typeof text === "string" ? new TextEncoder().encode(text) : text,
  template,
});

interface Given {
  readonly spec?: Partial<ExecSpec>;
  readonly secrets?: Readonly<Record<string, Content>>;
  readonly configs?: Readonly<Record<string, Content>>;
  readonly slot?: number;
}

function byId(contents: Readonly<Record<string, Content>> = {}): ReadonlyMap<string, Content> {
  return new Map(Object.entries(contents).map(([name, each]) => [`id-${name}`, each]));
}

/** References by default what is given, under its own name. */
function spec({ configs = {}, secrets = {}, spec: more = {} }: Given): ExecSpec {
  return ExecSpec.create({
    command: "/bin/sh",
    secrets: Object.keys(secrets).map((name) => secret(name)),
    configs: Object.keys(configs).map((name) => config(name)),
    ...more,
  });
}

function task(id: string, given: Given): DriverTask {
  return {
    id,
    name: `web.${given.slot ?? 2}.${id}`,
    slot: given.slot ?? 2,
    serviceId: "svc",
    serviceName: "web",
    serviceLabels: { tier: "front", "a.b": "dotted" },
    nodeId: "node1",
    nodeHostname: "host1",
    nodePlatform: { architecture: "x86_64", os: "linux" },
    payload: Any.create({ type_url: "x/muster.v1.ExecSpec", value: ExecSpec.encode(spec(given)) }),
    secrets: byId(given.secrets),
    configs: byId(given.configs),
    traceparent: "",
  };
}

const sh = (script: string): Partial<ExecSpec> => ({ args: ["-c", script] });

async function run(driver: ExecDriver, of: DriverTask): Promise<void> {
  const prepared = await driver.prepare(of);
  if (prepared.kind === "refused") throw new Error(prepared.reason);
  const started = await driver.start(of);
  if (started.kind === "refused") throw new Error(started.reason);
}

/** The content of each file as it would be written, or why it is not. */
function made(given: Given, env: Readonly<Record<string, string>> = {}): Readonly<Record<string, string>> | string {
  const outcome = filesOf(task("t1", given), spec(given), env);
  if (outcome.kind === "refused") return outcome.reason;
  return Object.fromEntries(
    outcome.files.map(({ data, kind, path }) => [`${kind}/${path}`, String(Buffer.from(data))]),
  );
}

const inMemory = hasMemory ? test : test.skip;

inMemory(
  "a task reads its secrets and configs from files in memory, and nothing of them is left when it ends",
  async (t) => {
    const { directory, driver, root } = place(t);
    const exec = driver();
    const given = {
      secrets: { password: content("canary") },
      configs: { "app.conf": content("slot {{.Task.Slot}} of {{.Service.Name}}\n", "golang") },
      spec: sh('cat "$MUSTER_SECRETS/password"; echo; cat "$MUSTER_CONFIGS/app.conf"; echo "$MUSTER_SECRETS" >&2'),
    };
    await run(exec, task("t1", given));
    t.is((await exec.wait("t1")).code, 0);
    t.is(readFileSync(join(directory, "t1", "stdout"), "utf8"), "canary\nslot 2 of web\n");
    t.true(readFileSync(join(directory, "t1", "stderr"), "utf8").startsWith(`${root}/`));
    t.deepEqual(readdirSync(root), [], "not even an empty directory");
  },
);

inMemory("the files have the mode that the task asked for, in directories that only its user can enter", async (t) => {
  const { driver, root } = place(t);
  const exec = driver();
  const given = {
    secrets: { a: content("1"), b: content("2") },
    spec: { secrets: [secret("a", { mode: 0o400 }), secret("b", { name: "deep/er/b", mode: 0o4440 })] },
  };
  t.deepEqual(await exec.prepare(task("t1", given)), { kind: "done" });
  const [tag = ""] = readdirSync(root);
  const home = join(root, tag, "t1");
  const modeOf = (path: string): number => statSync(join(home, path)).mode & 0o7777;
  t.deepEqual(["", "secrets", "secrets/deep", "secrets/deep/er"].map(modeOf), [0o700, 0o700, 0o700, 0o700]);
  t.deepEqual(["secrets/a", "secrets/deep/er/b"].map(modeOf), [0o400, 0o440]);
  t.is(statSync(join(root, tag)).mode & 0o777, 0o711);
  // A task that is stopped before it ever started leaves nothing either.
  t.is(await exec.stop("t1"), null);
  t.deepEqual(readdirSync(root), []);
});

(hasMemory && isRoot ? test : test.skip)("files and directories belong to whom the task says", async (t) => {
  const { directory, driver } = place(t);
  const exec = driver();
  const given = {
    secrets: { mine: content("to nobody"), roots: content("hidden") },
    spec: {
      ...sh('cat "$MUSTER_SECRETS/mine"; cat "$MUSTER_SECRETS/roots"'),
      user: "65534",
      secrets: [secret("mine", { uid: "65534", gid: "65534", mode: 0o400 }), secret("roots", { mode: 0o400 })],
    },
  };
  await run(exec, task("t1", given));
  t.is((await exec.wait("t1")).code, 1);
  t.is(readFileSync(join(directory, "t1", "stdout"), "utf8"), "to nobody");
});

inMemory("what a killed agent left is used on while the task lives, and is gone when it has ended", async (t) => {
  const { directory, driver, root } = place(t);
  const first = driver();
  const script = 'echo up; while [ ! -e go ]; do sleep 0.02; done; cat "$MUSTER_SECRETS/s"';
  const given = { secrets: { s: content("still here") }, spec: sh(script) };
  await run(first, task("t1", given));
  await first.prepare(task("t2", given));
  await first.prepare(task("t3", given));
  first.close();
  // As if the third task's directory had gone and the agent had been killed right then, or the data directory was wiped.
  rmSync(join(directory, "t3"), { recursive: true });
  const second = driver();
  t.is((await second.find("t1")).kind, "running");
  t.is((await second.find("t2")).kind, "absent");
  await second.remove("t2");
  const [tag = ""] = readdirSync(root);
  t.deepEqual(readdirSync(join(root, tag)), ["t1"]);
  writeFileSync(join(directory, "t1", "work", "go"), "");
  t.is((await second.wait("t1")).code, 0);
  t.is(readFileSync(join(directory, "t1", "stdout"), "utf8"), "up\nstill here");
  t.deepEqual(readdirSync(root), []);
});

inMemory("a task that ended while no agent lived has no files once an agent looks for it", async (t) => {
  const { directory, driver, root } = place(t);
  const first = driver();
  await run(first, task("t1", { secrets: { s: content("x") }, spec: sh("sleep 0.2") }));
  first.close();
  for (let at = 0; at < 300 && !readFileSync(join(directory, "t1", "run"), "latin1").includes("exit"); at += 1)
    await new Promise((resolve) => setTimeout(resolve, 10));
  const found = await driver().find("t1");
  t.is(found.kind, "exited");
  t.deepEqual(readdirSync(root), []);
});

inMemory("a directory that somebody else laid out in shared memory is not used", async (t) => {
  const { directory, driver, root, warnings } = place(t);
  const trap = join(directory, "trap");
  mkdirSync(trap);
  symlinkSync(trap, root);
  const exec = driver();
  t.deepEqual(await exec.prepare(task("t1", { secrets: { s: content("x") } })), { kind: "done" });
  t.deepEqual(readdirSync(trap), []);
  t.is(warnings.length, 1, "without memory it says so");
  await exec.remove("t1");
  t.false(existsSync(join(directory, ".files")));
});

test("without a file system in memory the files are on the disk, with a warning, and go all the same", async (t) => {
  const { directory, driver, warnings } = place(t);
  const exec = driver([]);
  await run(exec, task("t1", { secrets: { s: content("x") }, spec: sh('cat "$MUSTER_SECRETS/s"') }));
  t.is((await exec.wait("t1")).code, 0);
  t.deepEqual(warnings, ["no file system in memory: secrets of tasks are written to the disk of this node"]);
  t.false(existsSync(join(directory, ".files")));
});

test("a payload's template knows the service, the node, the task, its environment and its other files", (t) => {
  const text = [
    '{{.Service.ID}} {{.Service.Name}} {{.Service.Labels.tier}} {{index .Service.Labels "a.b"}}',
    "{{.Node.ID}} {{.Node.Hostname}} {{.Node.Platform.OS}}",
    "{{.Task.ID}} {{.Task.Name}} {{.Task.Slot}}",
    '{{env "A"}}|{{env "NONE"}}|{{secret "s"}}|{{config "plain"}}',
  ].join("\n");
  const given = {
    secrets: { s: content("hidden") },
    configs: { all: content(text, "golang"), plain: content("{{not expanded}}") },
  };
  const files = made(given, { A: "a" });
  t.deepEqual(files, {
    "secrets/s": "hidden",
    "configs/all": "svc web front dotted\nnode1 host1 linux\nt1 web.2.t1 2\na||hidden|{{not expanded}}",
    "configs/plain": "{{not expanded}}",
  });
});

test("a global task's slot is its node, and a label that the service lacks is an error", (t) => {
  const context = taskContext({ ...task("t1", {}), slot: 0 });
  t.deepEqual(expand("{{.Task.Slot}}", context), { kind: "text", text: "node1" });
  t.is(expand("{{.Service.Labels.none}}", context).kind, "failed");
  t.deepEqual(expand('{{index .Service.Labels "none"}}', context), { kind: "text", text: "" });
  t.deepEqual(expand('{{join "-" .Service.Name .Node.ID}} {{.Service.Labels}}', context), {
    kind: "text",
    text: "web-node1 map[a.b:dotted tier:front]",
  });
});

test("content without a template is handed on byte for byte", (t) => {
  const data = Uint8Array.from([0, 255, 254, 0x7b, 0x7b, 10, 0]);
  const given = { secrets: { s: content(data) } };
  const outcome = filesOf(task("t1", given), spec(given), {});
  t.deepEqual(outcome.kind === "files" ? outcome.files[0]?.data : null, data);
});

const refusals: readonly (readonly [string, Given, RegExp])[] = [
  [
    "a secret that was not sent",
    { spec: { secrets: [secret("gone")] } },
    /^exec: the secret gone was not sent to this node$/,
  ],
  [
    "a config that was not sent",
    { spec: { configs: [config("gone")] } },
    /^exec: the config gone was not sent to this node$/,
  ],
  [
    "a template that does not parse",
    { configs: { c: content("first\n{{if}}", "golang") } },
    /^exec: the template of the config c cannot be expanded: template:2:\d+: ./,
  ],
  [
    "a template that names what there is not",
    { secrets: { s: content("{{.Task.Colour}}", "golang") } },
    /^exec: the template of the secret s cannot be expanded: .*Colour/,
  ],
  [
    "a template that takes in a secret which the task did not ask for",
    { configs: { c: content('{{secret "other"}}', "golang") } },
    /config c cannot be expanded: .*the task has no secret with the target 'other'/,
  ],
  [
    "a template in an unknown language",
    { configs: { c: content("x", "jinja") } },
    /^exec: the config c is a template of 'jinja', and this node knows golang alone$/,
  ],
  [
    "a template that is not UTF-8",
    { configs: { c: content(Uint8Array.from([0xff, 0xfe]), "golang") } },
    /^exec: the content of the config c is not UTF-8 text, as a template's must be$/,
  ],
  [
    "a template that takes in what is not UTF-8",
    {
      configs: { c: content('{{config "raw"}}', "golang"), raw: content(Uint8Array.from([0xc3])) },
    },
    /the content of the config raw is not UTF-8 text/,
  ],
  [
    "a template that grows beyond the limit",
    {
      secrets: { s: content("x".repeat(500_000)) },
      configs: { c: content('{{secret "s"}}{{secret "s"}}{{secret "s"}}', "golang") },
    },
    /^exec: the config c has grown to more than 1024000 bytes by its template$/,
  ],
  [
    "a file above its directory",
    { secrets: { s: content("x") }, spec: { secrets: [secret("s", { name: "a/../../b" })] } },
    /^exec: the secret s cannot be a file named 'a\/..\/..\/b'$/,
  ],
  [
    "a file without a name",
    { secrets: { s: content("x") }, spec: { secrets: [secret("s", { name: "/" })] } },
    /cannot be a file named '\/'$/,
  ],
  [
    "an owner that is not a number",
    { secrets: { s: content("x") }, spec: { secrets: [secret("s", { uid: "root" })] } },
    /^exec: the owner 'root:0' of the secret s is not two numbers$/,
  ],
];
for (const [what, given, reason] of refusals) {
  test(`${what} is refused with a sentence, which holds no content`, async (t) => {
    const outcome = made(given);
    t.regex(typeof outcome === "string" ? outcome : "", reason);
    const { directory, driver, root } = place(t);
    const prepared = await driver().prepare(task("t1", given));
    t.regex(prepared.kind === "refused" ? prepared.reason : "", reason);
    t.false(existsSync(root) && readdirSync(root).length > 0);
    t.true(existsSync(directory));
  });
}

test("an absolute name keeps its path below the task's directory", (t) => {
  const given = { configs: { c: content("x") }, spec: { configs: [config("c", { name: "/etc/app.conf" })] } };
  t.deepEqual(made(given), { "configs/etc/app.conf": "x" });
});
