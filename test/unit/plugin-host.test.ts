// The host of driver plugins over real processes: what well-behaved ones do, and how others are handled.
import { once } from "node:events";
import { readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import test from "ava";
import { parseHandshake, Variable } from "../../edges/plugin/handshake.ts";
import { parseLogLine } from "../../edges/plugin/host/log-line.ts";
import { sweepSockets } from "../../edges/plugin/host/stale-sockets.ts";
import { SetConfigRequest, TaskHandle, type TaskStats } from "../../proto/gen/nomad.ts";
import { isPluginGone, isUnknownTask, type PluginAddress, type RunningPlugin } from "../../runtime/ports/plugins.ts";
import { isRecoverable } from "../../runtime/recoverable.ts";
import { Status, type RpcError } from "../../runtime/ports/rpc.ts";
import { packed, pluginLab, rogue, taskConfig } from "../fixtures/plugin-launch.ts";
import { isAlive, processesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";

async function configured(plugin: RunningPlugin, config: Record<string, string> = {}): Promise<void> {
  const msgpackConfig = packed(await plugin.driver.configSchema(), config);
  await plugin.driver.setConfig(SetConfigRequest.create({ msgpackConfig, pluginApiVersion: "v0.1.0" }));
}

async function mockTask(plugin: RunningPlugin, id: string, config: Record<string, string | number | boolean>) {
  return taskConfig(id, packed(await plugin.driver.taskConfigSchema(), config));
}

test("a handshake line is parsed, and an invalid one is rejected with the reason", (t) => {
  const good = parseHandshake("1|2|unix|/tmp/plugin2975624763|grpc|");
  t.like(good, {
    kind: "handshake",
    network: "unix",
    endpoint: { path: "/tmp/plugin2975624763" },
    certificateDer: null,
  });
  t.like(parseHandshake("1|2|tcp|127.0.0.1:10000|grpc"), { endpoint: { host: "127.0.0.1", port: 10_000 } });
  // A seventh field, and a certificate that is too short to be one.
  t.like(parseHandshake("1|2|unix|/s|grpc|short|true"), { kind: "handshake", certificateDer: null });
  const refused: readonly (readonly [string, RegExp])[] = [
    ["hello world", /printed "hello world"/],
    ["", /printed ""/],
    ["2|2|unix|/s|grpc|", /handshake has version "2"/],
    ["1|1|unix|/s|grpc|", /version "1" of the driver protocol/],
    ["1|2|unix|/s", /speaks "netrpc"/],
    ["1|2|pipe|/s|grpc|", /listens on "pipe"/],
    ["1|2|unix|relative|grpc|", /address "relative"/],
    ["1|2|tcp|nowhere|grpc|", /address "nowhere"/],
    [`1|2|unix|/s|grpc|${"A".repeat(60)}==`, /base64/],
  ];
  for (const [line, reason] of refused) {
    const outcome = parseHandshake(line);
    t.is(outcome.kind, "refused", line);
    if (outcome.kind === "refused") t.regex(outcome.reason, reason);
  }
});

test("a plugin's log lines keep their level and fields, and any other output is a line too", (t) => {
  const json = '{"@level":"WARN","@message":"low","@module":"m","@timestamp":"x","free":3,"level":"sneaky"}';
  t.deepEqual(parseLogLine(json), {
    level: "warn",
    message: "low",
    fields: { module: "m", free: 3, level_: "sneaky" },
    isPanic: false,
  });
  t.like(parseLogLine('{"@level":"trace","@message":7}'), { level: "debug", message: "7" });
  t.like(parseLogLine('{"@level":4,"@message":"x"}'), { level: "debug", message: '{"@level":4,"@message":"x"}' });
  t.like(parseLogLine("[ERROR] broke"), { level: "error", message: "broke" });
  t.like(parseLogLine("panic: nil map"), { level: "error", isPanic: true });
  t.like(parseLogLine("[1,2]"), { level: "debug", message: "[1,2]" });
  t.true(parseLogLine("x".repeat(100_000)).message.length < 5_000);
});

for (const autoMtls of [false, true]) {
  test(`a plugin is started, used and ended${autoMtls ? " over TLS that only the two of them can speak" : ""}`, async (t) => {
    const lab = pluginLab(t);
    const plugin = await lab.running({ autoMtls });
    const { driver } = plugin;
    t.is(plugin.address === null, autoMtls);
    t.like(await driver.pluginInfo(), { name: "mock", pluginApiVersions: ["v0.1.0"] });
    await configured(plugin);
    await driver.init();
    const fingerprint = await new Promise((resolve, reject) => {
      const call = driver.fingerprint({
        onMessage: (message) => {
          call.cancel();
          resolve(message);
        },
        onEnd: reject,
      });
    });
    t.like(fingerprint, { healthDescription: "configured as healthy" });
    const task = await mockTask(plugin, "a1/web/1", { run_for: "50ms", exit_signal: 9, oom_killed: true });
    const { handle } = await driver.startTask(task);
    t.is(TaskHandle.decode(handle).config?.id, "a1/web/1");
    t.like((await driver.waitTask("a1/web/1")).result, { exitCode: 137, signal: 9, oomKilled: true });
    await driver.destroyTask("a1/web/1", false);
    t.true(isUnknownTask(await t.throwsAsync(driver.waitTask("a1/web/1"))));
    const how = new Promise<string>((resolve) => plugin.onExit(resolve));
    await plugin.stop(2_000);
    t.is(await how, "exit code 0");
    t.false(isAlive(plugin.pid));
    t.deepEqual(readdirSync(join(lab.folder, "s")), []);
    t.true(lab.lines.some(({ message, fields }) => message === "serving" && fields["module"] === "mock"));
  });
}

test("plugins that listen on TCP get a port each, also over TLS, and are found again", async (t) => {
  const lab = pluginLab(t);
  const plugins = [
    await lab.running({ args: ["--tcp"] }),
    await lab.running({ args: ["--tcp"] }),
    await lab.running({ args: ["--tcp"], autoMtls: true }),
  ];
  for (const { driver } of plugins) t.like(await driver.pluginInfo(), { name: "mock" });
  const { address } = plugins[0] as RunningPlugin;
  t.is(address?.network, "tcp");
  t.not(address?.address, plugins[1]?.address?.address);
  plugins[0]?.release();
  const again = await lab.launcher.reattach("mock", address as PluginAddress);
  t.is(again.kind, "running");
  if (again.kind === "running") await again.plugin.stop(2_000);
  t.false(isAlive(address?.pid ?? 0));
});

const bad: Readonly<Record<string, readonly [string, RegExp]>> = {
  "exits at once": [
    "echo went wrong >&2; exit 3",
    /exited before its handshake \(exit code 3\); its output: went wrong/,
  ],
  "prints garbage": ["printf '\\373\\000\\377garbage\\n'; exec sleep 60", /printed .*garbage/],
  "prints garbage with bars": ["printf '\\373!|\\000|x||y\\n'; exec sleep 60", /printed .* instead of a handshake/],
  "prints garbage without an end": ["head -c 2000000 /dev/zero; sleep 60", /printed 65536 bytes without a handshake/],
  "prints nothing": ["exec sleep 60", /no handshake within 700 ms/],
  "speaks another version": ["echo '1|7|unix|/nowhere|grpc|'; exec sleep 60", /speaks version "7"/],
  "listens nowhere": ["echo '1|2|unix|/nowhere/at/all|grpc|'; exec sleep 60", /cannot connect to it/],
  "exits after its handshake": ["echo '1|2|unix|/nowhere/at/all|grpc|'", /cannot connect to it/],
};

for (const [what, [script, reason]] of Object.entries(bad)) {
  test(`a plugin that ${what} is rejected, and nothing of it is left`, async (t) => {
    const lab = pluginLab(t, { startTimeoutMs: what === "prints nothing" ? 700 : 60_000 });
    const outcome = await lab.launch({ name: "bad", path: lab.script(script) });
    t.is(outcome.kind, "failed");
    if (outcome.kind === "failed") t.regex(outcome.reason, reason);
    await until("its processes to exit", () => processesOf(lab.folder).length === 0);
    t.deepEqual(readdirSync(join(lab.folder, "s")), []);
  });
}

test("the error of a plugin that does not start comes first in its reason, whatever else it prints", async (t) => {
  const lab = pluginLab(t);
  const reasonOf = async (path: string): Promise<string> => {
    const outcome = await lab.launch({ name: "bad", path });
    return outcome.kind === "failed" ? outcome.reason : "it runs";
  };
  const program = (name: string, text: string): string => {
    const path = join(lab.folder, name);
    writeFileSync(path, `#!${process.execPath}\n${text}`, { mode: 0o755 });
    return path;
  };
  // The output that an author sees when copying a driver out of this tree.
  const missing = await reasonOf(program("missing.mjs", 'import "../../edges/plugin/server/index.ts";'));
  t.regex(
    missing,
    /\(exit code 1\); its output: Error \[ERR_MODULE_NOT_FOUND\]: Cannot find module .*index\.ts.* \| .*ERR_MODULE_NOT_FOUND/,
  );
  t.notRegex(missing, /Node\.js v/);
  const typescript = await reasonOf(program("enum.ts", "enum Colour { red }"));
  t.regex(typescript, /its output: SyntaxError \[ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX\]: .* \| enum Colour \{ red \} \| /);
  const goroutines = Array.from({ length: 200 }, (_, at) => `goroutine ${at} [running]:`).join("\n");
  const go = await reasonOf(lab.script(`cat >&2 <<'END'\npanic: nil map\n${goroutines}\nEND\nexit 2`));
  t.regex(go, /its output: panic: nil map \| .*goroutine 199 \[running\]:$/);
  t.true(go.length < 2_200, `${go.length} characters`);
  const json = await reasonOf(
    lab.script(`echo '{"@level":"error","@message":"no licence"}' >&2; echo bye >&2; exit 1`),
  );
  t.regex(json, /its output: no licence \| bye$/);
});

test("a file that is not executable is rejected", async (t) => {
  const lab = pluginLab(t);
  t.like(await lab.launch({ path: "/etc/hostname" }), { kind: "failed" });
  t.like(await lab.launch({ path: "/nowhere" }), { kind: "failed" });
});

test("a plugin that presents no certificate when one was requested is rejected", async (t) => {
  const outcome = await pluginLab(t).launch({ ...rogue("no-tls"), autoMtls: true });
  t.is(outcome.kind, "failed");
  if (outcome.kind === "failed") t.regex(outcome.reason, /TLS was requested, but it shows no certificate/);
});

test("a plugin that dies during StartTask fails the call as gone, and its exit is reported", async (t) => {
  const lab = pluginLab(t);
  const plugin = await lab.running({});
  await configured(plugin);
  const how = new Promise<string>((resolve) => plugin.onExit(resolve));
  const task = await mockTask(plugin, "a1/web/1", { crash_at: "start" });
  const waiting = plugin.driver.startTask(task);
  t.true(isPluginGone(await t.throwsAsync(waiting)));
  t.is(await how, "signal SIGKILL");
  t.false(plugin.isConnected);
});

test("whether a start may be retried is read from the status's details, and from the old result too", async (t) => {
  const lab = pluginLab(t);
  const plugin = await lab.running({});
  await configured(plugin);
  const start = async (config: Record<string, string | boolean>): Promise<RpcError> =>
    t.throwsAsync<RpcError>(plugin.driver.startTask(await mockTask(plugin, "a1/web/1", config)));
  const again = await start({ start_error: "no image", start_error_retryable: true });
  t.like(again, { message: "no image", code: Status.FAILED_PRECONDITION });
  t.true(isRecoverable(again));
  t.false(isRecoverable(await start({ start_error: "no such user" })));

  for (const [mode, recoverable] of [
    ["retry", true],
    ["fatal", false],
    ["no-handle", false],
  ] as const) {
    const rogueOne = await lab.running(rogue(mode));
    const error = await t.throwsAsync<RpcError>(rogueOne.driver.startTask(taskConfig("a1/web/1", new Uint8Array(0))));
    if (mode !== "fatal" && mode !== "retry") t.regex(error.message, mode === "no-handle" ? /returned no handle/ : /./);
    t.is(isRecoverable(error), recoverable, mode);
  }
});

test("an event of 64 MB ends only its stream, and is not read", async (t) => {
  const plugin = await pluginLab(t).running(rogue("event"));
  const before = process.memoryUsage().rss;
  const error = await new Promise<RpcError | null>((resolve) => {
    plugin.driver.taskEvents({ onMessage: () => t.fail("it was read"), onEnd: resolve });
  });
  t.is(error?.code, Status.RESOURCE_EXHAUSTED);
  t.true(process.memoryUsage().rss - before < 48 * 1024 * 1024);
  t.like(await plugin.driver.pluginInfo(), { name: "rogue" });
});

test("statistics that come faster than requested wait in the plugin", async (t) => {
  const plugin = await pluginLab(t).running(rogue("flood"));
  const heard: TaskStats[] = [];
  const before = process.memoryUsage().rss;
  const call = plugin.driver.taskStats("a1/web/1", 400, { onMessage: (sample) => heard.push(sample), onEnd: () => {} });
  await until("some samples", () => heard.length >= 5);
  call.cancel();
  const span = Number(heard.at(-1)?.timestamp?.seconds) - Number(heard[0]?.timestamp?.seconds);
  t.true(heard.length <= 8 + span * 10, `${heard.length} samples`);
  t.true(process.memoryUsage().rss - before < 64 * 1024 * 1024);
  t.like(await plugin.driver.pluginInfo(), { name: "rogue" });
});

test("a plugin that floods its log is logged in part, and serves", async (t) => {
  const lab = pluginLab(t);
  const plugin = await lab.running(rogue("chatty"));
  await until("some of its log", () => lab.lines.length > 0);
  await until("a report of skipped lines", () => lab.lines.some(({ message }) => message.startsWith("skipped")));
  t.true(lab.lines.length < 10_000);
  t.like(await plugin.driver.pluginInfo(), { name: "rogue" });
});

test("a released plugin is found again with its tasks, and not under another process's pid", async (t) => {
  const lab = pluginLab(t);
  const first = await lab.running({});
  await configured(first);
  await first.driver.startTask(await mockTask(first, "a1/web/1", { run_for: "1h" }));
  const { address } = first;
  t.not(address, null);
  if (address === null) return;
  first.release();
  t.true(isAlive(address.pid));

  t.like(await lab.launcher.reattach("mock", { ...address, startTicks: "1" }), { kind: "failed" });
  t.true(isAlive(address.pid));

  const again = await lab.launcher.reattach("mock", address);
  t.is(again.kind, "running");
  if (again.kind !== "running") return;
  const waiting = again.plugin.driver.waitTask("a1/web/1");
  await again.plugin.driver.stopTask("a1/web/1", 1_000, "SIGTERM");
  t.is((await waiting).result?.signal, 15);
  await again.plugin.stop(2_000);
  t.false(isAlive(address.pid));
  t.deepEqual(readdirSync(join(lab.folder, "s")), []);
});

test("a plugin that hangs is killed after its grace period", async (t) => {
  const lab = pluginLab(t);
  const plugin = await lab.running({});
  const how = new Promise<string>((resolve) => plugin.onExit(resolve));
  const path = plugin.address?.address ?? "";
  t.true(path.startsWith(lab.folder));
  process.kill(plugin.pid, "SIGSTOP");
  t.false(await plugin.isAnswering(300));
  await plugin.stop(300);
  t.is(await how, "signal SIGKILL");
});

test("sockets of a plugin's children outlive the plugin, and are removed once nobody listens", async (t) => {
  const lab = pluginLab(t);
  const plugin = await lab.running({});
  const variable = readFileSync(`/proc/${plugin.pid}/environ`, "utf8")
    .split("\0")
    .find((each) => each.startsWith(`${Variable.socketDir}=`));
  const folder = variable?.slice(Variable.socketDir.length + 1) ?? "";
  // As an executor of Nomad's does, which inherits the variable and serves the task.
  const path = join(folder, "plugin42");
  const executor = createServer().listen({ path });
  t.teardown(() => executor.close());
  await once(executor, "listening");
  process.kill(plugin.pid, "SIGKILL");
  await new Promise<void>((resolve) => plugin.onExit(() => resolve()));
  t.deepEqual(readdirSync(folder), ["plugin42"]);
  await sweepSockets(folder);
  t.deepEqual(readdirSync(folder), ["plugin42"], "somebody listens");
  // A killed process leaves its socket: so does one whose path was moved.
  renameSync(path, join(folder, "plugin43"));
  await new Promise((resolve) => executor.close(resolve));
  t.deepEqual(readdirSync(folder), ["plugin43"]);
  await sweepSockets(folder);
  t.deepEqual(readdirSync(folder), []);
});
