import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import test from "ava";
import { identify } from "../../runtime/nats/process-identity.ts";
import pinned from "../../runtime/nats/pinned-server.json" with { type: "json" };
import { cachedBinary, findBinary } from "../../runtime/nats/server-binary.ts";
import { NatsServerProblem, startNatsServer } from "../../runtime/nats/server.ts";
import { natsBinaries, natsServer, signal, temporaryFolder, testTelemetry, until } from "../fixtures/nats-server.ts";

(process.env["MUSTER_CI"] === undefined ? test.skip : test)(
  "tests run on Debian's nats-server and on the pinned one",
  async (t) => {
    const versions = await Promise.all(natsBinaries.map(async (binary) => (await findBinary(binary)).version));
    t.true(
      versions.some((version) => version.startsWith("2.9.")),
      versions.join(),
    );
    t.true(versions.includes(pinned.version), versions.join());
  },
);

test.serial("the first current nats-server wins: PATH's, else the cache's, else any other", async (t) => {
  const folder = await temporaryFolder(t);
  const [cache, path] = [process.env["XDG_CACHE_HOME"], process.env["PATH"]];
  t.teardown(() => {
    if (cache === undefined) delete process.env["XDG_CACHE_HOME"];
    else process.env["XDG_CACHE_HOME"] = cache;
    process.env["PATH"] = path;
  });
  process.env["XDG_CACHE_HOME"] = folder;
  process.env["PATH"] = `${folder}:/usr/bin:/bin`;
  const put = async (at: string, version: string, mode = 0o755): Promise<void> => {
    await mkdir(dirname(at), { recursive: true });
    await writeFile(at, `#!/bin/sh\necho nats-server: v${version}\n`);
    await chmod(at, mode);
  };
  await put(join(folder, "nats-server"), "2.10.1");
  t.is((await findBinary(undefined)).version, "2.10.1");
  await put(cachedBinary(), pinned.version, 0o777);
  t.is((await findBinary(undefined)).version, "2.10.1", "a binary that others may write to is never run");
  await chmod(cachedBinary(), 0o755);
  t.deepEqual(await findBinary(undefined), { binary: cachedBinary(), version: pinned.version });
  await put(join(folder, "nats-server"), "2.11.4");
  t.is((await findBinary(undefined)).version, "2.11.4");
});

for (const binary of natsBinaries) {
  test(`our server reports the guarantees that it lacks, and only its user can read its password (${binary})`, async (t) => {
    const { server, dataDir, connect } = await natsServer(t, binary);
    const { abilities, serverVersion } = await connect();
    t.is(serverVersion, server.version);
    t.is(
      abilities.some((sentence) => sentence.includes("is outdated: it can stop answering")),
      serverVersion.startsWith("2.9."),
    );
    t.is(
      abilities.some((sentence) => sentence.includes("sync_interval")),
      !server.flushesEveryWrite,
    );
    t.is(server.flushesEveryWrite, !serverVersion.startsWith("2.9."));
    for (const file of ["server.conf", "access.json"])
      t.is((await stat(join(dataDir, "nats", file))).mode & 0o777, 0o600);
    const config = await readFile(join(dataDir, "nats", "server.conf"), "utf8");
    t.is(config.includes("sync_interval: always"), server.flushesEveryWrite);
    t.false(config.includes("no_auth_user"));
  });

  test(`our server restarts on the same port when it dies, and stop ends it (${binary})`, async (t) => {
    const { server, connect } = await natsServer(t, binary);
    const link = await connect();
    const exits: unknown[] = [];
    server.onExit(({ signal: by }) => exits.push(by));
    const [pid, url] = [server.pid, server.url];
    signal(pid, "SIGKILL");
    await until("a new process", () => server.pid !== pid);
    await until("the link to come back", () => exits.length === 1 && link.bus.isUp());
    t.deepEqual([exits, server.url], [["SIGKILL"], url]);
    const last = server.pid;
    await server.stop();
    t.is(await identify(last), null);
  });
}

test("a restarted manager keeps its port, password and data", async (t) => {
  const dataDir = await temporaryFolder(t);
  const options = { dataDir, logFile: join(dataDir, "nats.log"), telemetry: await testTelemetry() };
  const limits = async (): Promise<unknown> =>
    /max_file_store: \d+\n.*max_memory_store: \d+/.exec(
      await readFile(join(dataDir, "nats", "server.conf"), "utf8"),
    )?.[0];
  const first = await startNatsServer(options);
  const limitsBefore = await limits();
  await first.stop();
  const second = await startNatsServer(options);
  t.teardown(() => second.stop());
  t.truthy(limitsBefore);
  t.is(await limits(), limitsBefore, "JetStream's limits do not shrink from start to start");
  t.deepEqual([second.url, second.user, second.pass], [first.url, first.user, first.pass]);
  const problem = await t.throwsAsync(startNatsServer(options), { instanceOf: NatsServerProblem });
  t.is(problem?.kind, "in-use");
});

test("the server listens on another port if its own is taken while it starts, unless others know the port", async (t) => {
  const dataDir = await temporaryFolder(t);
  const real = (await findBinary(undefined)).binary;
  const binary = join(dataDir, "taken-once");
  // As if another process had listened between the choice of the port and the server's start.
  const script = `[ "$1" = -c ] && [ ! -e ${dataDir}/taken ] || exec ${real} "$@"
    touch ${dataDir}/taken; echo 'listen tcp 127.0.0.1: bind: address already in use'; exit 1`;
  await writeFile(binary, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  const options = { dataDir, logFile: join(dataDir, "nats.log"), telemetry: await testTelemetry(), binary };
  const server = await startNatsServer(options);
  t.teardown(() => server.stop());
  t.truthy(await stat(join(dataDir, "taken")));
  t.true(server.isRunning);
  const { port } = server;
  await server.stop();

  const holder = createServer().listen(port, "127.0.0.1");
  await once(holder, "listening");
  t.teardown(() => void holder.close());
  const problem = await t.throwsAsync(startNatsServer({ ...options, port }), { instanceOf: NatsServerProblem });
  t.is(problem?.kind, "in-use");
});

test("the server that a killed manager left behind is ended before a new one starts on its data", async (t) => {
  const dataDir = await temporaryFolder(t);
  const root = new URL("../../", import.meta.url).href;
  // A separate process, so that its death is a manager's death.
  const program = `
    const { startNatsServer } = await import("${root}runtime/nats/server.ts");
    const { createTelemetry } = await import("${root}runtime/telemetry/telemetry.ts");
    const telemetry = await createTelemetry({ service: "test", level: "silent", otlpEndpoint: undefined });
    const server = await startNatsServer({ dataDir: process.argv[1], logFile: process.argv[1] + "/nats.log", telemetry });
    console.log(server.pid);`;
  const manager = spawn(process.execPath, ["--input-type=module-typescript", "-e", program, dataDir], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [printed] = (await once(manager.stdout, "data")) as [Buffer];
  const orphan = Number(printed.toString());
  t.teardown(() => signal(orphan, "SIGKILL"));
  const options = { dataDir, logFile: join(dataDir, "nats.log"), telemetry: await testTelemetry() };
  const refused = await t.throwsAsync(startNatsServer(options), { instanceOf: NatsServerProblem });
  t.is(refused?.kind, "in-use");
  manager.kill("SIGKILL");
  await once(manager, "exit");
  t.not(await identify(orphan), null);
  const server = await startNatsServer(options);
  t.teardown(() => server.stop());
  t.is(await identify(orphan), null);
  t.not(server.pid, orphan);
});

test("a missing binary, a port in use and an unwritable data dir are reported in sentences that say what to do", async (t) => {
  const dataDir = await temporaryFolder(t);
  const options = { dataDir, logFile: join(dataDir, "nats.log"), telemetry: await testTelemetry() };
  const kindOf = async (attempt: Promise<unknown>): Promise<string | undefined> => {
    const problem = await t.throwsAsync(attempt, { instanceOf: NatsServerProblem });
    t.regex(problem?.message ?? "", /^[^\n]*[^.\n]$/);
    return problem?.kind;
  };
  t.is(await kindOf(startNatsServer({ ...options, binary: "/nowhere/nats-server" })), "missing");
  t.is(await kindOf(startNatsServer({ ...options, binary: "/bin/true" })), "missing");

  const squatter = createServer();
  t.teardown(() => void squatter.close());
  await new Promise<void>((resolve) => squatter.listen(0, "127.0.0.1", resolve));
  const address = squatter.address();
  t.is(
    await kindOf(startNatsServer({ ...options, port: typeof address === "object" ? (address?.port ?? 0) : 0 })),
    "in-use",
  );

  await writeFile(join(dataDir, "file"), "");
  t.is(await kindOf(startNatsServer({ ...options, dataDir: join(dataDir, "file") })), "unwritable");
  const closed = join(dataDir, "closed");
  await mkdir(closed);
  await chmod(closed, 0o500);
  // Root can write everywhere.
  if (process.getuid?.() !== 0) t.is(await kindOf(startNatsServer({ ...options, dataDir: closed })), "unwritable");
});
