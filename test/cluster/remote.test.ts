// Users drive a manager remotely: real processes, whose contexts are in folders of their own.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { createService, sleepers } from "../fixtures/control-client.ts";
import { startAgent, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";
import { ControlService } from "../../proto/gen/messages.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { connectPage, cookieIn, fetched } from "../support/page-client.ts";
import { patient } from "../support/slowness.ts";

const main = fileURLToPath(new URL("../../cli/main.ts", import.meta.url));
const password = "correct horse battery";

/** A user on another machine: a home folder with a context for a manager. */
function person(t: ExecutionContext, name: string) {
  const home = tempDir(t, `remote-${name}`);
  const { MUSTER_CONTEXT: _context, MUSTER_HOST: _host, ...outer } = process.env;
  const env = { ...outer, HOME: home, XDG_CONFIG_HOME: join(home, "config"), XDG_STATE_HOME: join(home, "state") };
  const secret = join(home, "password");
  writeFileSync(secret, `${password}\n`, { mode: 0o600 });
  const started = (...args: readonly string[]) => {
    const child = spawn(process.execPath, [main, ...args], { env, stdio: ["ignore", "pipe", "pipe"] });
    t.teardown(() => child.kill("SIGKILL"));
    const output = { out: "", err: "" };
    child.stdout.on("data", (data: Buffer) => (output.out += data.toString()));
    child.stderr.on("data", (data: Buffer) => (output.err += data.toString()));
    const ended = once(child, "close").then(([status]) => ({ status: status as number, ...output }));
    return { output, ended };
  };
  const muster = (...args: readonly string[]) => started(...args).ended;
  return { home, secret, muster, started, files: join(home, "config", "muster", "contexts", "prod") };
}

type Person = ReturnType<typeof person>;

async function succeeds(t: ExecutionContext, who: Person, ...args: readonly string[]): Promise<string> {
  const ran = await who.muster(...args);
  t.is(ran.status, 0, `muster ${args.join(" ")}: ${ran.err}`);
  return ran.out;
}

async function refused(t: ExecutionContext, who: Person, sentence: RegExp, ...args: readonly string[]): Promise<void> {
  const ran = await who.muster(...args);
  t.is(ran.status, 1, `muster ${args.join(" ")}: ${ran.out}`);
  t.regex(ran.err, sentence, `muster ${args.join(" ")}`);
  t.false(ran.err.includes("    at "), ran.err);
}

/** Adds the user and logs in as it, verifying with the root from a file. */
async function loggedIn(t: ExecutionContext, manager: TestManager, name: string, role: string): Promise<Person> {
  const who = person(t, name);
  await manager.muster("user", "add", "--role", role, "--password-file", who.secret, name);
  const ca = join(who.home, "ca.pem");
  writeFileSync(ca, `${await manager.muster("ca")}\n`);
  await succeeds(t, who, "context", "create", "prod", "--host", `tcp://${manager.address}`, "--ca", ca, "--user", name);
  await succeeds(t, who, "context", "use", "prod");
  t.regex(await succeeds(t, who, "login", "--password-file", who.secret), new RegExp(`^Logged in as ${name} until `));
  return who;
}

test.serial("a viewer, an operator and an admin work remotely, each within their role", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  await Promise.all([startAgent(t, manager), createService(manager, sleepers("web", 1))]);
  const [viewer, operator, admin] = await Promise.all([
    loggedIn(t, manager, "vera", "read-only"),
    loggedIn(t, manager, "olga", "operator"),
    loggedIn(t, manager, "ada", "admin"),
  ]);
  // Only the owner may read the key.
  t.is(statSync(join(viewer.files, "credentials.pem")).mode & 0o777, 0o600);
  t.is(statSync(viewer.files).mode & 0o777, 0o700);
  t.false(readFileSync(join(viewer.files, "..", "..", "contexts.json"), "utf8").includes(password));

  t.is((await succeeds(t, viewer, "service", "ls", "--format", "{{.Name}}")).trim(), "web");
  t.true((await succeeds(t, viewer, "info")).length > 0);
  await refused(
    t,
    viewer,
    /this needs the role operator, and user vera has the role read-only/,
    "service",
    "scale",
    "-d",
    "web=2",
  );
  await refused(t, viewer, /this needs the role operator/, "service", "rm", "web");
  await succeeds(t, operator, "service", "scale", "-d", "web=2");
  await refused(t, operator, /this needs the role admin, and user olga has the role operator/, "user", "ls");
  const withoutTokens = await operator.muster("token", "manager");
  t.false(`${withoutTokens.out}${withoutTokens.err}`.includes("SWMTKN-"));
  t.regex(await succeeds(t, admin, "user", "ls"), /olga/);
  t.regex(await succeeds(t, admin, "token", "manager"), /SWMTKN-1-/);
  const history = await succeeds(t, viewer, "history", "service", "web");
  t.true(history.includes("olga"), history);

  // Open streams end when the right to them ends.
  await until("web runs", async () => (await manager.muster("service", "ps", "web")).includes("Running"));
  const events = viewer.started("events");
  const logs = operator.started("service", "logs", "--follow", "web");
  await until("the viewer to receive events", async () => {
    await manager.muster("service", "update", "-d", "--label-add", `at=${Date.now()}`, "web");
    return events.output.out !== "";
  });
  await Promise.all([manager.muster("user", "disable", "vera"), manager.muster("user", "grant", "olga", "read-only")]);
  const [ended, cut] = await Promise.all([events.ended, logs.ended]);
  t.not(ended.status, 0);
  t.regex(ended.err, /certificate of user vera is no longer valid/);
  t.not(cut.status, 0);
  await refused(t, viewer, /no longer valid.*log in again|no longer valid.*Log in again/, "service", "ls");
  await refused(
    t,
    operator,
    /this needs the role operator, and user olga has the role read-only/,
    "service",
    "rm",
    "web",
  );
  await succeeds(t, operator, "service", "ls");
  await refused(
    t,
    viewer,
    /login of vera failed: wrong user name or password/,
    "login",
    "--password-file",
    viewer.secret,
  );

  // A new password voids the existing certificate.
  await succeeds(t, admin, "user", "passwd", "--password-file", admin.secret, "ada");
  await refused(t, admin, /no longer valid/, "service", "ls");
  await succeeds(t, admin, "login", "--password-file", admin.secret);
  await succeeds(t, admin, "service", "ls");
  await succeeds(t, admin, "logout");
  t.false(existsSync(join(admin.files, "credentials.pem")));
  await refused(t, admin, /not logged in to context "prod": run 'muster login prod'/, "service", "ls");
  await succeeds(t, admin, "context", "rm", "--force", "prod");
  t.false(existsSync(admin.files));
});

test.serial("a context recognises its cluster, and reports what is wrong with its certificate", async (t) => {
  t.timeout(patient(300_000));
  const [manager, stranger] = await Promise.all([startManager(t), startManager(t)]);
  const who = person(t, "eve");
  await manager.muster("user", "add", "--role", "admin", "--password-file", who.secret, "eve");
  const create = (name: string, ...flags: readonly string[]) =>
    ["context", "create", name, "--host", `tcp://${manager.address}`, "--user", "eve", ...flags] as const;
  const digest = (await manager.muster("ca", "--digest")).trim();
  const other = (await stranger.muster("ca", "--digest")).trim();
  t.regex(digest, /^sha256:[0-9a-f]{64}$/);
  await refused(t, who, /has the digest sha256:[0-9a-f]+, not sha256:/, ...create("wrong", "--ca-digest", other));
  await succeeds(t, who, ...create("prod", "--ca-digest", digest));
  await succeeds(t, who, "context", "use", "prod");
  await succeeds(t, who, "login", "--password-file", who.secret);
  await succeeds(t, who, "node", "ls");

  // The same context, with another server at the address.
  const contexts = join(who.home, "config", "muster", "contexts.json");
  const text = readFileSync(contexts, "utf8");
  writeFileSync(contexts, text.replace(manager.address, stranger.address));
  for (const args of [
    ["node", "ls"],
    ["login", "--password-file", who.secret],
  ] as const)
    await refused(t, who, /has a certificate of a root other than the context's/, ...args);
  writeFileSync(contexts, text);

  const credentials = join(who.files, "credentials.pem");
  const own = readFileSync(credentials, "utf8");
  // Files that others may read are not used.
  chmodSync(credentials, 0o644);
  await refused(t, who, /is readable by other users/, "node", "ls");
  chmodSync(credentials, 0o600);

  // A certificate issued by an admin needs no password.
  const given = join(who.home, "given");
  await manager.muster("user", "certificate", "eve", "-o", given, "--lifetime", "1h");
  t.is(statSync(join(given, "credentials.pem")).mode & 0o777, 0o600);
  await succeeds(
    t,
    who,
    ...create("given", "--ca", join(given, "ca.pem"), "--credentials", join(given, "credentials.pem")),
  );
  await succeeds(t, who, "--context", "given", "node", "ls");

  // From another cluster, whatever its name.
  await stranger.muster("user", "add", "--role", "admin", "--password-file", who.secret, "eve");
  const forged = join(who.home, "forged");
  await stranger.muster("user", "certificate", "eve", "-o", forged);
  writeFileSync(credentials, readFileSync(join(forged, "credentials.pem")));
  await refused(t, who, /the manager rejects the certificate/, "node", "ls");
  writeFileSync(credentials, own);
  await succeeds(t, who, "node", "ls");

  await manager.process.end();
  await refused(t, who, /cannot reach the manager at tcp:\/\//, "node", "ls");
});

test.serial("muster ui of a remote user shows the cluster with that user's rights, until they end", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  const who = await loggedIn(t, manager, "vera", "read-only");
  const { output } = who.started("ui");
  await until("the printed address", () => output.err.includes("Ctrl-C"));
  const address = /http:\S+/.exec(output.out)?.[0] ?? "";
  const base = address.replace(/\?.*/, "");
  const cookie = cookieIn(await fetched(address));
  const page = await connectPage(base, { cookie });
  t.like(await page.hello, { role: "read-only", user: "vera", cluster: "prod", canLogOut: false });
  const { ListNodes, RemoveNode } = ControlService.methods;
  page.send({ call: 1, method: ListNodes.path });
  t.true((await page.until(({ call }) => call === 1)).hasMessage);
  page.send({ call: 2, method: RemoveNode.path });
  t.like(await page.until(({ call }) => call === 2), {
    status: Status.PERMISSION_DENIED,
    error: "permission denied: this needs the role admin, and user vera has the role read-only",
  });
  await manager.muster("user", "grant", "vera", "operator");
  t.is((await page.closed).code, 1012);
  const again = await connectPage(base, { cookie });
  t.is((await again.hello).role, "operator");
  await manager.muster("user", "disable", "vera");
  t.is((await again.closed).code, 1012);
  t.regex(
    (await (await connectPage(base, { cookie })).closed).reason,
    /^permission denied: the certificate of user vera/,
  );
  t.true((await who.muster("ui")).err.includes("permission denied"));
});
