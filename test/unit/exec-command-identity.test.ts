// Commands of the exec driver that differ from their task, as real processes: in isolated tasks and in plain ones.
import { chmodSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import type { DriverConfig } from "../../drivers/exec/fields.ts";
import { execLab, ranAs, sh } from "../fixtures/exec-lab.ts";

const asRoot = process.getuid?.() === 0 ? test : test.skip;
const sleeping = sh("sleep 60");
const drivers: readonly Partial<DriverConfig>[] = [{ isolation: "full" }, { isolation: "none" }];

asRoot("a command has the user, the variables and the directory that it asks for", async (t) => {
  for (const driver of drivers) {
    const { folder, home, plugin, request, start } = execLab(t, driver);
    for (const path of [folder, join(folder, "alloc")]) chmodSync(path, 0o755);
    const asked = request({});
    const first = await start(sleeping, { user: "nobody", env: { KEPT: "task", GONE: "task" } });
    const report = ["sh", "-c", 'echo "$(id -u):$(id -g) $(pwd) $HOME $KEPT ${GONE-unset} $NEW"'];
    const identity = { user: "daemon", directory: "local", env: ["NEW=a b", "KEPT=own", "GONE", "odd.name=x"] };
    const expected = { exitCode: 0, text: `1:1 ${home}/local /usr/sbin own unset a b\n` };
    t.deepEqual(await ranAs(first, identity, report), expected);
    const found = plugin().recover(asked, JSON.parse(JSON.stringify(first.state)));
    t.deepEqual(await ranAs(found, identity, report), expected, "by a later process of the driver");
    t.regex((await ranAs(first, identity, ["env"])).text, /^odd\.name=x$/m);
    const own = await ranAs(first, { env: ["NEW=x"] }, ["sh", "-c", 'echo "$(id -u) $(pwd) $NEW"']);
    t.deepEqual(own, { exitCode: 0, text: `65534 ${home} x\n` });
    const root = await ranAs(first, { user: "root" }, ["sh", "-c", "id -u; echo $HOME"]);
    t.deepEqual(root, { exitCode: 0, text: "0\n/root\n" });
    t.throws(() => ranAsNow(first, { privileged: true }), { message: /no command with more privileges/ });
    t.throws(() => ranAsNow(first, { user: "no-such-user" }), { message: /there is no user no-such-user/ });
    t.throws(() => ranAsNow(first, { env: ["=x"] }), { message: /invalid environment variable "=x"/ });
    const old = plugin().recover(asked, { ...JSON.parse(JSON.stringify(first.state)), frame: undefined });
    t.throws(() => ranAsNow(old, { env: ["A=b"] }), { message: /an earlier version of the driver started it/ });
  }
});

type Identity = Parameters<typeof ranAs>[1];

/** Only starts it. */
function ranAsNow(run: Parameters<typeof ranAs>[0], identity: Identity): void {
  const all = { user: "", env: [], directory: "", privileged: false, ...identity };
  run.execAs({ command: ["true"], terminal: null, output: () => true, onDrain: () => {} }, all);
}

asRoot("CI2: another user does not inherit the capabilities of the task's user", async (t) => {
  const { start } = execLab(t);
  const root = await start(sleeping, { user: "root" });
  const effective = ["sh", "-c", "grep -E '^Cap(Eff|Amb)' /proc/self/status | cut -f2"];
  const none = { exitCode: 0, text: "0000000000000000\n0000000000000000\n" };
  t.deepEqual(await ranAs(root, { user: "nobody" }, effective), none);
  t.not((await ranAs(root, { env: ["A=b"] }, effective)).text, none.text);
  const bound = await start({ ...sleeping, cap_add: ["net_bind_service"] }, { user: "nobody" });
  t.deepEqual(await ranAs(bound, { user: "daemon" }, effective), none);
  t.is((await ranAs(bound, { user: "nobody" }, effective)).text, "0000000000000400\n0000000000000400\n");
  t.is((await ranAs(bound, { user: "root" }, ["grep", "-c", "NoNewPrivs:.*1", "/proc/self/status"])).text, "1\n");
});

asRoot("CI3: a command enters no directory that its user may not enter", async (t) => {
  for (const driver of drivers) {
    const { folder, start } = execLab(t, driver);
    mkdirSync(join(folder, "closed", "open"), { recursive: true });
    chmodSync(join(folder, "closed"), 0o700);
    const run = await start(sleeping, { user: "root" });
    const directory = join(folder, "closed", "open");
    t.is((await ranAs(run, { directory }, ["pwd"])).text, `${directory}\n`);
    const refused = await ranAs(run, { directory, user: "nobody" }, ["pwd"]);
    t.not(refused.exitCode, 0);
    t.notRegex(refused.text, /^\//);
  }
});

asRoot("CI1: a command of another user is in the task's own files", async (t) => {
  const { folder, start } = execLab(t);
  const run = await start({ ...sleeping, filesystem: "private" }, { user: "nobody" });
  t.is(
    (await ranAs(run, { user: "daemon", env: ["A=b"] }, ["sh", "-c", `ls ${folder}/state || echo hidden`])).exitCode,
    0,
  );
  t.regex((await ranAs(run, { user: "root" }, ["sh", "-c", `ls ${folder}/state || echo hidden`])).text, /hidden/);
});

asRoot("a command in a chroot has no other directory", async (t) => {
  const { start } = execLab(t, { isolation: "none" });
  const run = await start({ ...sleeping, chroot: "/" });
  t.throws(() => ranAsNow(run, { directory: "/tmp" }), { message: /a chroot starts in its root/ });
  t.is((await ranAs(run, { user: "nobody" }, ["id", "-u"])).text, "65534\n");
});
