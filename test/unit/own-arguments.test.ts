import test from "ava";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { withoutSecrets } from "../../cli/own-arguments.ts";
import { sharedNatsOf } from "../../cli/serve/nats-flags.ts";
import { tokenOf } from "../../cli/serve/token-flags.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import { until } from "../fixtures/until.ts";

const token = "SWMTKN-1-2c0abc-tellnobody";
const muster = new URL("../../bin/muster", import.meta.url).pathname;

test("secrets in arguments are found in each notation, and nothing else is changed", (t) => {
  const of = (...args: readonly string[]) => withoutSecrets(args)?.join(" ") ?? null;
  t.is(of("agent", "--token", token, "--data-dir", "/d"), "agent --token *** --data-dir /d");
  t.is(of("agent", `--token=${token}`), "agent --token=***");
  t.is(of("agent", "--token", "mistyped"), "agent --token ***");
  t.is(of("agent", "--driver-config", "docker=password"), "agent --driver-config ***");
  t.is(of("manager", "--nats", "nats://u:p@h:1,nats://u:p@i:1"), "manager --nats ***");
  t.is(of("agent", "--driver-config", `docker={"auth": {"password": "p"}}`), "agent --driver-config ***");
  t.is(of("agent", "--driver-config", "docker=@/etc/docker.json"), null);
  t.is(of("manager", "--nats", "nats://h:1", "--token-file", "/t"), null);
  t.is(of("service", "create", "--name", token), null);
});

test("nobody can read a token in the arguments of a running process", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "own-arguments-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  // A manager at this address never answers: the agent keeps trying.
  const args = ["agent", "--join", "127.0.0.1:9", "--token", token, "--data-dir", folder, "--log-level", "info"];
  const child = spawn(muster, args, { stdio: ["ignore", "ignore", "pipe"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  t.teardown(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  let output = "";
  child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()));
  await until("the agent to start trying", () => output !== "");
  const shown = readFileSync(`/proc/${child.pid}/cmdline`, "utf8");
  t.false(shown.includes("tellnobody"), shown);
  t.true(shown.startsWith(`muster agent --join 127.0.0.1:9 --token *** --data-dir ${folder}`), shown);
});

test("tokens and passwords come from files", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "own-arguments-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const [full, empty] = [join(folder, "full"), join(folder, "empty")];
  writeFileSync(full, `p@ss/word \nmore\n`);
  writeFileSync(empty, "\n");
  t.is(tokenOf({ "token-file": full }), "p@ss/word");
  t.is(tokenOf({ token }), token);
  t.is(tokenOf({}), undefined);
  t.throws(() => tokenOf({ token, "token-file": full }), { instanceOf: UsageError, message: /mutually exclusive/ });
  t.throws(() => tokenOf({ "token-file": empty }), { instanceOf: UserError, message: /is empty/ });
  t.throws(() => tokenOf({ "token-file": join(folder, "none") }), { instanceOf: UserError, message: /no such file/ });

  const servers = (nats: string) => sharedNatsOf({ nats: [nats], "nats-password-file": full })?.servers;
  t.deepEqual(servers("nats://ada@127.0.0.1:4222,tls://ada@[::1]"), [
    "nats://ada:p%40ss%2Fword@127.0.0.1:4222",
    "tls://ada:p%40ss%2Fword@[::1]",
  ]);
  for (const bad of ["nats://127.0.0.1", "nats://ada:x@127.0.0.1"])
    t.throws(() => servers(bad), { instanceOf: UsageError, message: /a user and no password/ });
  t.throws(() => sharedNatsOf({ "nats-password-file": full }), { instanceOf: UsageError, message: /requires --nats/ });
});
