// Which manager a command calls: --host, --context, the environment, the context in use, or the one started last here.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { served } from "../support/served.ts";

const main = fileURLToPath(new URL("../../cli/main.ts", import.meta.url));

interface Ran {
  readonly status: number;
  readonly out: string;
  readonly err: string;
}

/** A user with a home folder, and their command. */
function user(t: ExecutionContext) {
  const home = mkdtempSync(join(tmpdir(), "muster-context-"));
  t.teardown(() => rmSync(home, { recursive: true, force: true }));
  const own = { HOME: home, XDG_CONFIG_HOME: join(home, "config"), XDG_STATE_HOME: join(home, "state") };
  const { MUSTER_CONTEXT: _context, MUSTER_HOST: _host, ...outer } = process.env;
  const muster = async (args: string, env: Readonly<Record<string, string>> = {}): Promise<Ran> => {
    const child = spawn(process.execPath, [main, ...args.split(" ")], { env: { ...outer, ...own, ...env } });
    t.teardown(() => child.kill("SIGKILL"));
    let [out, err] = ["", ""];
    child.stdout.on("data", (data: Buffer) => (out += data.toString()));
    child.stderr.on("data", (data: Buffer) => (err += data.toString()));
    const [status] = (await once(child, "close")) as [number];
    return { status, out, err };
  };
  const started = (...hosts: readonly string[]): void => {
    mkdirSync(join(home, "state", "muster"), { recursive: true });
    writeFileSync(join(home, "state", "muster", "host"), hosts.map((host) => `${host}\n`).join(""));
  };
  return { home, muster, started };
}

/** A cluster recognisable by the name of its service. */
async function cluster(t: ExecutionContext, name: string): Promise<string> {
  const { muster, socket } = await served(t);
  await muster("service", "create", "-d", "--name", name, "bb:1");
  return `unix://${socket}`;
}

const list = "service ls --format {{.Name}}";

test("with several clusters here the last started one answers, and a note says so", async (t) => {
  const { muster, started } = user(t);
  t.like(await muster(list), { status: 1, out: "" }, "none was started");
  const [first, second] = [await cluster(t, "first"), await cluster(t, "second")];
  started(first);
  t.deepEqual(await muster(list), { status: 0, out: "first\n", err: "" });
  started(second, first, "unix:///gone/control.sock");
  const several = await muster(list);
  t.is(several.out, "second\n");
  t.is(
    several.err,
    `note: 2 clusters run on this machine; using the one started last, ${second}. Choose with --host ${first}, or with 'muster context use'\n`,
  );
  // A named one is called without a note, and another never takes its place.
  t.deepEqual(await muster(`${list} --host ${first}`), { status: 0, out: "first\n", err: "" });
  started("unix:///gone/control.sock", first);
  const gone = await muster(list);
  t.is(gone.status, 1);
  t.true(gone.err.includes(`Another cluster is running on this machine. Choose with --host ${first}`), gone.err);
});

test("contexts are created, listed, used and removed", async (t) => {
  const { home, muster, started } = user(t);
  const [first, second] = [await cluster(t, "first"), await cluster(t, "second")];
  started(first);
  t.deepEqual(await muster(`context create prod --host ${second} --description Production`), {
    status: 0,
    out: "prod\n",
    err: "",
  });
  t.is((await muster(list)).out, "first\n", "creating one does not use it");
  t.is((await muster(`${list} --context prod`)).out, "second\n");
  t.is((await muster(`--context prod ${list}`)).out, "second\n");
  t.is((await muster(`--context=prod ${list} --context default`)).out, "first\n");
  t.is((await muster("context use prod")).out, "prod\n");
  t.deepEqual(await muster(list), { status: 0, out: "second\n", err: "" });
  t.is((await muster("context show")).out, "prod\n");
  t.is((await muster(list, { MUSTER_CONTEXT: "default" })).out, "first\n");
  t.is((await muster(list, { MUSTER_HOST: first })).out, "first\n");
  t.is((await muster(`${list} --context prod`, { MUSTER_HOST: first })).out, "second\n");
  t.regex(
    (await muster("context ls")).out,
    /^NAME +DESCRIPTION +MANAGER +USER\ndefault +The cluster started last on this machine +unix:.*\nprod \* +Production +unix:/,
  );
  t.is((await muster("context ls --format {{.Name}}|{{.Current}}")).out, "default|false\nprod|true\n");
  t.regex(
    (await muster("context use default", { MUSTER_CONTEXT: "prod" })).err,
    /^note: MUSTER_HOST or MUSTER_CONTEXT is set/,
  );
  await muster("context use prod");

  const refused: readonly (readonly [args: string, err: RegExp, status?: number])[] = [
    ["context create prod --host unix:///x", /context "prod" already exists/],
    ["context create default --host unix:///x", /context "default" already exists/],
    ["context create x/y --host unix:///x", /invalid context name "x\/y"/, 125],
    ["context create other", /--host is required/, 125],
    [
      "context create other --host tcp://h:1",
      /--user is required: a manager on another machine serves users only/,
      125,
    ],
    ["context create other --host tcp://h:1 --user ada", /--ca or --ca-digest is required/, 125],
    ["context create other --host tcp://h:1 --user ada --ca a --ca-digest b", /--ca or --ca-digest is required/, 125],
    ["context create other --host tcp://h:1 --user ada --ca-digest b", /invalid --ca-digest b: expected sha256:/, 125],
    ["context create other --host unix:///x --user ada", /--user requires a --host on another machine/, 125],
    ["login", /context "prod" is a control socket on this machine and needs no login/],
    ["login nothing", /context "nothing" not found/],
    ["context use nothing", /context "nothing" not found: see 'muster context ls'/],
    ["context rm nothing", /context "nothing" not found/],
    ["context rm default", /cannot remove the context "default"/],
    ["context rm prod", /context "prod" is in use: switch to another one first, or set --force/],
    [`${list} --context nothing`, /context "nothing" not found/],
    [`${list} --context prod --host ${first}`, /--host and --context are mutually exclusive/, 125],
  ];
  for (const [args, err, status = 1] of refused) {
    const ran = await muster(args);
    t.regex(ran.err, err, args);
    t.is(ran.status, status, args);
  }
  t.is((await muster("context rm --force prod")).out, "prod\n");
  t.is((await muster(list)).out, "first\n");
  writeFileSync(join(home, "config", "muster", "contexts.json"), "{");
  t.regex((await muster(list)).err, /^muster: invalid contexts file .*: fix or remove it/);
});
