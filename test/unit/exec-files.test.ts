// Secrets and configs of process tasks: real files of real processes, in memory, present before the start and removed at the
// end.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statfsSync, statSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import type { Content, DriverTask } from "../../actors/agent/ports.ts";
import { filesOf } from "../../linux/task-home/contents.ts";
import { taskContext } from "../../lib/template/task-context.ts";
import { expand } from "../../lib/template/expand.ts";
import { TaskHomeDirectories } from "../../linux/task-home/homes.ts";
import { ConfigReference, DriverSpec, FileTarget, SecretReference } from "../../proto/gen/messages.ts";
import { SystemClock } from "../../runtime/system/clock.ts";

const isRoot = process.getuid?.() === 0;
const shm = "/dev/shm";
const hasMemory = existsSync(shm) && statfsSync(shm).type === 0x01021994;

interface Place {
  readonly directory: string;
  /** In memory, for this test only. */
  readonly root: string;
  readonly warnings: string[];
  /** Another life of the agent with the same directory. */
  readonly homes: (roots?: readonly string[]) => TaskHomeDirectories;
}

function place(t: ExecutionContext): Place {
  const directory = mkdtempSync(join(tmpdir(), "muster-files-"));
  const root = join(shm, `muster-test-${process.pid}-${directory.slice(-6)}`);
  const warnings: string[] = [];
  t.teardown(() => {
    rmSync(directory, { recursive: true, force: true });
    rmSync(root, { recursive: true, force: true });
  });
  return {
    directory,
    root,
    warnings,
    homes: (memoryRoots = [root]) =>
      new TaskHomeDirectories({
        directory,
        outputSocket: join(directory, "unused.sock"),
        clock: new SystemClock(),
        log: {
          debug: () => {},
          info: () => {},
          warn: (_, text) => void warnings.push(text),
          error: (_, text) => void warnings.push(text),
        },
        environment: { PATH: process.env["PATH"] },
        users: { fallback: "", allowsRoot: true },
        memoryRoots,
      }),
  };
}

const wants = { name: "web", isolation: "none", hasOutput: false, isBare: false } as const;

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
  readonly spec?: Partial<DriverSpec>;
  readonly secrets?: Readonly<Record<string, Content>>;
  readonly configs?: Readonly<Record<string, Content>>;
}

function byId(contents: Readonly<Record<string, Content>> = {}): ReadonlyMap<string, Content> {
  return new Map(Object.entries(contents).map(([name, each]) => [`id-${name}`, each]));
}

/** By default, references each given object under its own name. */
function spec({ configs = {}, secrets = {}, spec: more = {} }: Given): DriverSpec {
  return DriverSpec.create({
    secrets: Object.keys(secrets).map((name) => secret(name)),
    configs: Object.keys(configs).map((name) => config(name)),
    ...more,
  });
}

function task(id: string, given: Given): DriverTask {
  return {
    id,
    name: `web.2.${id}`,
    slot: 2,
    serviceId: "svc",
    serviceName: "web",
    serviceLabels: { tier: "front", "a.b": "dotted" },
    nodeId: "node1",
    nodeHostname: "host1",
    nodePlatform: { architecture: "x86_64", os: "linux" },
    payload: null,
    secrets: byId(given.secrets),
    configs: byId(given.configs),
    traceparent: "",
  };
}

/** The task's variables, once all files exist. */
async function prepared(
  homes: TaskHomeDirectories,
  id: string,
  given: Given,
): Promise<Readonly<Record<string, string>>> {
  const outcome = await homes.prepare(task(id, given), spec(given), wants);
  if (outcome.kind === "refused") throw new Error(outcome.reason);
  return outcome.home.env;
}

/** Output of a shell with these variables. */
function shell(env: Readonly<Record<string, string>>, script: string, as: { uid?: number; gid?: number } = {}): string {
  const { stdout } = spawnSync("/bin/sh", ["-c", script], { env, encoding: "utf8", ...as });
  return stdout;
}

/** The content of each file as it would be written, or the reason why it is not. */
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
    const { homes, root } = place(t);
    const agent = homes();
    const given = {
      secrets: { password: content("canary") },
      configs: { "app.conf": content("slot {{.Task.Slot}} of {{.Service.Name}}\n", "golang") },
    };
    const env = await prepared(agent, "t1", given);
    t.is(shell(env, 'cat "$MUSTER_SECRETS/password"; echo; cat "$MUSTER_CONFIGS/app.conf"'), "canary\nslot 2 of web\n");
    t.true(shell(env, 'readlink "$MUSTER_SECRETS"').startsWith(`${root}/`));
    await agent.end("t1");
    t.deepEqual(readdirSync(root), [], "not even an empty directory");
  },
);

inMemory("the files have the requested mode, in directories that only the task's user can enter", async (t) => {
  const { homes, root } = place(t);
  const agent = homes();
  const given = {
    secrets: { a: content("1"), b: content("2") },
    spec: { secrets: [secret("a", { mode: 0o400 }), secret("b", { name: "deep/er/b", mode: 0o4440 })] },
  };
  await prepared(agent, "t1", given);
  const [tag = ""] = readdirSync(root);
  const home = join(root, tag, "t1");
  const modeOf = (path: string): number => statSync(join(home, path)).mode & 0o7777;
  t.deepEqual(["", "secrets", "secrets/deep", "secrets/deep/er"].map(modeOf), [0o700, 0o700, 0o700, 0o700]);
  t.deepEqual(["secrets/a", "secrets/deep/er/b"].map(modeOf), [0o400, 0o440]);
  t.is(statSync(join(root, tag)).mode & 0o777, 0o711);
});

(hasMemory && isRoot ? test : test.skip)("files and directories belong to the users that the task names", async (t) => {
  const { homes } = place(t);
  const given = {
    secrets: { mine: content("to nobody"), roots: content("hidden") },
    spec: {
      user: "65534",
      secrets: [secret("mine", { uid: "65534", gid: "65534", mode: 0o400 }), secret("roots", { mode: 0o400 })],
    },
  };
  const env = await prepared(homes(), "t1", given);
  const script = 'cd "$(readlink -f "$MUSTER_SECRETS")"; cat mine; cat roots 2>&1 >/dev/null';
  const path = shell(env, 'readlink -f "$MUSTER_SECRETS"').trim();
  const printed = shell({ ...env, MUSTER_SECRETS: path }, script, { uid: 65_534, gid: 65_534 });
  t.regex(printed, /^to nobody.*denied/s);
  t.is(env["HOME"], undefined, "whose home the agent does not know");
});

test("a user that the node does not have is rejected before anything is created", async (t) => {
  const { directory, homes } = place(t);
  const outcome = await homes().prepare(task("t1", {}), DriverSpec.create({ user: "nobody-of-that-name" }), wants);
  t.regex(outcome.kind === "refused" ? outcome.reason : "", /^there is no user nobody-of-that-name/);
  t.deepEqual(readdirSync(directory), []);
});

inMemory("files left by a killed agent stay while the task lives, and are removed when it has ended", async (t) => {
  const { directory, homes, root } = place(t);
  const first = homes();
  const given = { secrets: { s: content("still here") } };
  const env = await prepared(first, "t1", given);
  await prepared(first, "t2", given);
  await prepared(first, "t3", given);
  // As if the third task's directory was removed when the agent was killed, or the data directory was wiped.
  rmSync(join(directory, "t3"), { recursive: true });
  const second = homes();
  await second.remove("t2");
  const [tag = ""] = readdirSync(root);
  t.deepEqual(readdirSync(join(root, tag)), ["t1"]);
  t.is(shell(env, 'cat "$MUSTER_SECRETS/s"'), "still here");
  await second.end("t1");
  t.deepEqual(readdirSync(root), []);
});

inMemory("a directory that another user has created in shared memory is not used", async (t) => {
  const { directory, homes, root, warnings } = place(t);
  const trap = join(directory, "trap");
  mkdirSync(trap);
  symlinkSync(trap, root);
  const agent = homes();
  await prepared(agent, "t1", { secrets: { s: content("x") } });
  t.deepEqual(readdirSync(trap), []);
  t.is(warnings.length, 1, "without memory it warns");
  await agent.remove("t1");
  t.false(existsSync(join(directory, ".files")));
});

test("without a file system in memory the files are on the disk, with a warning, and are removed all the same", async (t) => {
  const { directory, homes, warnings } = place(t);
  const agent = homes([]);
  const env = await prepared(agent, "t1", { secrets: { s: content("x") } });
  t.is(shell(env, 'cat "$MUSTER_SECRETS/s"'), "x");
  await agent.end("t1");
  t.deepEqual(warnings, ["no in-memory file system: secrets of tasks are written to this node's disk"]);
  t.false(existsSync(join(directory, ".files")));
});

test("a payload's template has access to the service, the node, the task, its environment and its other files", (t) => {
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

test("content without a template is passed on byte for byte", (t) => {
  const data = Uint8Array.from([0, 255, 254, 0x7b, 0x7b, 10, 0]);
  const given = { secrets: { s: content(data) } };
  const outcome = filesOf(task("t1", given), spec(given), {});
  t.deepEqual(outcome.kind === "files" ? outcome.files[0]?.data : null, data);
});

const refusals: readonly (readonly [string, Given, RegExp])[] = [
  [
    "a secret that was not sent",
    { spec: { secrets: [secret("gone")] } },
    /^the secret gone was not sent to this node$/,
  ],
  [
    "a config that was not sent",
    { spec: { configs: [config("gone")] } },
    /^the config gone was not sent to this node$/,
  ],
  [
    "a template that does not parse",
    { configs: { c: content("first\n{{if}}", "golang") } },
    /^the template of the config c cannot be expanded: template:2:\d+: ./,
  ],
  [
    "a template that refers to a missing object",
    { secrets: { s: content("{{.Task.Colour}}", "golang") } },
    /^the template of the secret s cannot be expanded: .*Colour/,
  ],
  [
    "a template that includes a secret which the task did not request",
    { configs: { c: content('{{secret "other"}}', "golang") } },
    /config c cannot be expanded: .*the task has no secret with the target 'other'/,
  ],
  [
    "a template in an unknown language",
    { configs: { c: content("x", "jinja") } },
    /^the config c uses the template driver 'jinja', but this node supports only golang$/,
  ],
  [
    "a template that is not UTF-8",
    { configs: { c: content(Uint8Array.from([0xff, 0xfe]), "golang") } },
    /^the content of the config c is not UTF-8 text, which templates require$/,
  ],
  [
    "a template that includes non-UTF-8 content",
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
    /^the expanded template of the config c exceeds 1024000 bytes$/,
  ],
  [
    "a file above its directory",
    { secrets: { s: content("x") }, spec: { secrets: [secret("s", { name: "a/../../b" })] } },
    /^invalid file name 'a\/..\/..\/b' of the secret s$/,
  ],
  [
    "a file without a name",
    { secrets: { s: content("x") }, spec: { secrets: [secret("s", { name: "/" })] } },
    /invalid file name '\/'/,
  ],
  [
    "an owner that is not a number",
    { secrets: { s: content("x") }, spec: { secrets: [secret("s", { uid: "root" })] } },
    /^invalid owner 'root:0' of the secret s: expected two numbers$/,
  ],
];
for (const [what, given, reason] of refusals) {
  test(`${what} is rejected with a sentence that reveals no content`, async (t) => {
    const outcome = made(given);
    t.regex(typeof outcome === "string" ? outcome : "", reason);
    const { directory, homes, root } = place(t);
    const refused = await homes().prepare(task("t1", given), spec(given), wants);
    t.regex(refused.kind === "refused" ? refused.reason : "", reason);
    t.false(existsSync(root) && readdirSync(root).length > 0);
    t.deepEqual(readdirSync(directory), []);
  });
}

test("an absolute name keeps its path below the task's directory", (t) => {
  const given = { configs: { c: content("x") }, spec: { configs: [config("c", { name: "/etc/app.conf" })] } };
  t.deepEqual(made(given), { "configs/etc/app.conf": "x" });
});
