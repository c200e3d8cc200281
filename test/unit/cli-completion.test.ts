import { execFile, execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { readyNode, served } from "../support/served.ts";

const top = fileURLToPath(new URL("../..", import.meta.url));

async function stage(t: Parameters<typeof served>[0]) {
  const all = await served(t);
  await all.muster("service", "create", "-d", "--name", "web", "bb:1");
  await all.muster("service", "create", "-d", "--name", "worker", "bb:1");
  await all.muster("network", "create", "back");
  all.manager.seed("node", readyNode("n1", "alpha"));
  /** The last word is the one being typed. */
  const complete = async (...words: string[]) => (await all.muster("completion", "words", "--", ...words)).lines;
  return { ...all, complete };
}

test("verbs, flags and words of flags are completed", async (t) => {
  const { complete } = await stage(t);
  t.deepEqual(await complete("ser"), ["service"]);
  t.deepEqual(await complete("service", "sc"), ["scale"]);
  t.deepEqual(await complete("service", "plan", "sc"), ["scale"]);
  t.deepEqual(await complete("help", "service", "sc"), ["scale"]);
  t.deepEqual(await complete("service", "ls", "--fo"), ["--format"]);
  t.deepEqual(await complete("service", "create", "--mode", "glo"), ["global", "global-job"]);
  t.deepEqual(await complete("service", "create", "--mode=glo"), ["--mode=global", "--mode=global-job"]);
  t.deepEqual(await complete("token", "w"), ["worker"]);
  t.deepEqual(await complete("watch", "se"), ["secret", "service"]);
  t.deepEqual(await complete("network", "ls", "--filter", "l"), ["label="]);
  t.deepEqual(await complete("nothing", "x"), []);
});

test("a flag that is present is not offered again, unless it may be repeated", async (t) => {
  const { complete } = await stage(t);
  t.deepEqual(await complete("node", "update", "--role", "worker", "--ro"), ["--rotate-certificate"]);
  t.deepEqual(await complete("node", "update", "--label-add", "a=b", "--label-a"), ["--label-add"]);
});

test("nodes with the same hostname are completed by their ids, since the hostname would be rejected", async (t) => {
  const { complete, manager } = await stage(t);
  manager.seed("node", readyNode("n2", "beta"), readyNode("n3", "beta"));
  t.deepEqual(await complete("node", "ps", "a"), ["alpha"]);
  t.deepEqual(await complete("node", "ps", "b"), []);
  t.deepEqual(await complete("node", "ps", "n"), ["n2", "n3"]);
});

test("names of objects come from the manager", async (t) => {
  const { complete } = await stage(t);
  t.deepEqual(await complete("service", "inspect", "w"), ["web", "worker"]);
  t.deepEqual(await complete("service", "inspect", "web", "wo"), ["worker"]);
  t.deepEqual(await complete("node", "ps", "a"), ["alpha"]);
  t.deepEqual(await complete("node", "ps", "s"), ["self"]);
  t.deepEqual(await complete("network", "rm", ""), ["back", "ingress"]);
  t.deepEqual(await complete("service", "create", "--network", "b"), ["back"]);
  t.deepEqual(await complete("service", "logs", "--tail", "5", "we"), ["web"]);
  t.deepEqual(await complete("network", "create", ""), [], "a new name cannot be completed");
});

test("files are left to the shell", async (t) => {
  const { complete } = await stage(t);
  t.deepEqual(await complete("stack", "deploy", "-c", ""), [":files"]);
  t.deepEqual(await complete("service", "create", "-dp", "80:80", "-te", "A=1", "--network", "b"), ["back"]);
  t.deepEqual(await complete("service", "create", "-dp80:80", "-eA=p", "--network", "b"), ["back"]);
  t.deepEqual(await complete("secret", "create", "key", ""), [":files"]);
  t.deepEqual(await complete("service", "create", "bb:1", "sh", ""), [":files"], "another program's command line");
});

test("without a manager there are no names and no error", (t) => {
  const args = ["completion", "words", "--", "--host", "/nowhere/control.sock", "service", "inspect", ""];
  const ran = spawnSync(`${top}bin/muster`, args, { encoding: "utf8" });
  t.deepEqual([ran.status, ran.stdout, ran.stderr], [0, "", ""]);
});

test("completion prints a script for each supported shell", async (t) => {
  const { muster } = await stage(t);
  for (const shell of ["bash", "zsh", "fish"]) t.regex((await muster("completion", shell)).lines[0] ?? "", /^#/);
  t.is((await muster("completion", "tcsh")).status, 125);
});

/** Whether a shell of that name is installed. */
function has(shell: string): boolean {
  return spawnSync(shell, ["-c", "exit 0"]).status === 0;
}

const inBash = has("bash") ? test : test.skip;
const inFish = has("fish") ? test : test.skip;

/** A shell's output for the script. Not execFileSync: the manager under test runs in this process. */
async function printed(shell: string, args: readonly string[], script: string, socket: string): Promise<string[]> {
  const env = { ...process.env, PATH: `${top}bin:${process.env["PATH"]}`, MUSTER_HOST: `unix://${socket}` };
  const { stdout } = await promisify(execFile)(shell, [...args, "-c", script], { env, encoding: "utf8" });
  return stdout.trim().split("\n");
}

inBash("a real bash completes with it", async (t) => {
  const { socket } = await stage(t);
  const script = `
    source <(muster completion bash)
    complete -p muster
    COMP_WORDS=(muster service inspect w) COMP_CWORD=3
    _muster
    printf '%s\\n' "\${COMPREPLY[@]}"`;
  t.deepEqual(await printed("bash", ["--norc"], script, socket), ["complete -F _muster muster", "web", "worker"]);
});

inFish("a real fish completes with it", async (t) => {
  const { socket } = await stage(t);
  const script = `muster completion fish | source; complete -C "muster service inspect w"`;
  t.deepEqual(await printed("fish", ["--no-config"], script, socket), ["web", "worker"]);
});

for (const shell of ["bash", "zsh", "fish"]) {
  (has(shell) ? test : test.skip)(`${shell} reads its script without an error`, (t) => {
    const dir = mkdtempSync(join(tmpdir(), "muster-completion-"));
    t.teardown(() => rmSync(dir, { recursive: true }));
    const file = join(dir, "script");
    writeFileSync(file, execFileSync(`${top}bin/muster`, ["completion", shell]));
    const ran = spawnSync(shell, ["-n", file], { encoding: "utf8" });
    t.deepEqual([ran.status, ran.stderr], [0, ""]);
  });
}
