// Backups of a running cluster, and its new life from one: a stock Docker Engine and an agent keep the containers and processes that
// they had when all managers and NATS were destroyed.
import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { NodeStatus_State } from "../../proto/gen/messages.ts";
import { engineMissing, startEngine, type DockerEngine } from "../fixtures/docker-engine.ts";
import {
  createService,
  createWhenAccepted,
  nodes,
  runningTasks,
  serviceNames,
  sleepers,
  status,
  writeSteadily,
} from "../fixtures/control-client.ts";
import { runMuster, startAgent, startManager, tempDir, type Ran, type TestManager } from "../fixtures/muster.ts";
import { endProcessesOf, taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

function passphraseFile(t: ExecutionContext, text = "correct horse battery staple"): string {
  const path = join(tempDir(t, "passphrase"), "passphrase");
  writeFileSync(path, `${text}\n`);
  return path;
}

/** Nothing of it is left: no process, no disk. */
async function destroy(manager: TestManager): Promise<void> {
  await manager.process.end("SIGKILL");
  await endProcessesOf(manager.dataDir);
  for (const name of readdirSync(manager.dataDir)) rmSync(join(manager.dataDir, name), { recursive: true });
}

function backUp({ dataDir }: TestManager, ...args: readonly string[]): Promise<Ran> {
  return runMuster(["--host", `unix://${dataDir}/control.sock`, "backup", ...args]);
}

/** Ids and start times of the engine's containers. */
async function containersOf(engine: DockerEngine): Promise<readonly string[]> {
  const ids = (await engine.docker("ps", "-q", "--no-trunc")).split("\n").filter((id) => id !== "");
  const found = await engine.docker("inspect", "--format", "{{.Id}} {{.State.Pid}} {{.State.StartedAt}}", ...ids);
  return found.split("\n").toSorted();
}

/** Connections to the port are passed on to the other one, as by an address that a machine has as well. */
async function alsoOn(t: ExecutionContext, port: number, to: number): Promise<{ close(): void }> {
  const sockets = new Set<{ destroy(): void }>();
  const server = createServer((incoming) => {
    const outgoing = connect(to, "127.0.0.1");
    for (const socket of [incoming, outgoing]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        incoming.destroy();
        outgoing.destroy();
      });
    }
    incoming.pipe(outgoing).pipe(incoming);
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  const close = (): void => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
  t.teardown(close);
  return { close };
}

async function readyWorkers(manager: TestManager): Promise<number> {
  return (await nodes(manager)).filter(({ role, status: at }) => role === 0 && at?.state === NodeStatus_State.READY)
    .length;
}

const missing = engineMissing();
(missing === null ? test.serial : test.serial.skip)(
  "a cluster is founded again from a backup at its address and at another one, and its tasks go on",
  async (t) => {
    t.timeout(patient(600_000));
    const passphrase = passphraseFile(t);
    const first = await startManager(t);
    const engine = await startEngine(t);
    const agent = await startAgent(t, first, { hostname: "agent" });
    await engine.join(await first.muster("token", "worker"), first.address);
    const sleeper = ["--constraint", "node.hostname!=agent", "--stop-signal", "SIGKILL", "bb:1", "sleep", "1000"];
    await first.muster("service", "create", "-d", "--name", "boxes", "--replicas", "2", ...sleeper);
    await createService(first, sleepers("processes", 3));
    const password = join(tempDir(t, "secret"), "secret");
    writeFileSync(password, "hidden");
    await first.muster("secret", "create", "password", password);
    await until("five running tasks", async () => (await runningTasks(first)).length === 5);
    const [containers, processes] = [await containersOf(engine), taskProcesses(agent.dataDir)];
    t.deepEqual([containers.length, processes.length], [2, 3]);
    const ids = (await runningTasks(first)).map(({ id }) => id).toSorted();
    const tokens = [await first.muster("token", "worker"), await first.muster("ca")];

    // Under load.
    const file = join(tempDir(t, "backups"), "cluster.backup");
    const writing = writeSteadily(t, first, "load-");
    await until("load", async () => (await serviceNames(first)).length > 10);
    const before = await serviceNames(first);
    const taken = await backUp(first, "-o", file, "--passphrase-file", passphrase);
    t.is(taken.code, 0, taken.stderr);
    const acknowledged = await writing.stop();
    t.true(acknowledged.length > before.length, "writes went on");
    t.is(statSync(file).mode & 0o777, 0o600);
    t.false(readFileSync(file).includes("hidden"), "secrets are encrypted");
    const { applied } = await status(first);
    await destroy(first);

    const verified = await runMuster(["backup", "--verify", file, "--passphrase-file", passphrase]);
    t.regex(verified.stdout, /^cluster \S+ at version \d+, .+\nsigned by manager \S+ \(root sha256:.{64}\)\n/);
    t.regex(verified.stdout, /\b1 secret\b.*\nwithout history\n/);

    const dataDir = join(tempDir(t, "restored"), "manager");
    const restored = await runMuster(["restore", file, "--data-dir", dataDir, "--passphrase-file", passphrase]);
    t.is(restored.code, 0, restored.stderr);
    const second = await startManager(t, { dataDir, port: first.port });
    const [gone] = (await nodes(second)).filter(
      ({ role, status: at }) => role === 0 && at?.state === NodeStatus_State.DOWN,
    );
    t.truthy(gone, "the former manager is down");
    await until("both nodes", async () => (await readyWorkers(second)) === 2);
    await second.muster("node", "rm", gone?.id ?? "");
    await until("five running tasks", async () => (await runningTasks(second)).length === 5);
    t.deepEqual((await runningTasks(second)).map(({ id }) => id).toSorted(), ids, "no task was replaced");
    t.deepEqual(await containersOf(engine), containers);
    t.deepEqual(taskProcesses(agent.dataDir), processes);
    t.deepEqual([await second.muster("token", "worker"), await second.muster("ca")], tokens);
    const names = await serviceNames(second);
    t.deepEqual(
      before.filter((name) => !names.includes(name)),
      [],
      "everything that was acknowledged before the backup is there",
    );
    t.true((await status(second)).applied > applied, "no version is used again");
    // The cluster works: on the nodes that it has, and with one that joins by the old token.
    await createWhenAccepted(second, sleepers("next", 1));
    await until("six running tasks", async () => (await runningTasks(second)).length === 6);
    await startAgent(t, second, { hostname: "new" });
    const [row] = await second.json<{ ID: string }>("secret", "ls");
    t.truthy(row?.ID);

    // Another address, from a backup with history, for an age recipient.
    const identity = join(tempDir(t, "age"), "key.txt");
    const { generateIdentity, identityToRecipient } = await import("age-encryption");
    const secretKey = await generateIdentity();
    writeFileSync(identity, `# a comment\n${secretKey}\n`);
    const other = join(tempDir(t, "backups"), "history.backup");
    const recipient = await identityToRecipient(secretKey);
    const again = await backUp(second, "-o", other, "--recipient", recipient, "--history");
    t.is(again.code, 0, again.stderr);
    const kept = (await runningTasks(second)).map(({ id }) => id).toSorted();
    const keptProcesses = taskProcesses(agent.dataDir);
    await destroy(second);
    const thirdDir = join(tempDir(t, "restored"), "manager");
    const moved = await runMuster(["restore", other, "--data-dir", thirdDir, "--identity", identity]);
    t.is(moved.code, 0, moved.stderr);
    t.regex(moved.stdout, /\nwith history since version \d+: [\d,]+ records?\n/);
    const third = await startManager(t, { dataDir: thirdDir });
    t.not(third.port, second.port);
    const old = await alsoOn(t, second.port, third.port);
    await until("all nodes", async () => (await readyWorkers(third)) === 3);
    // A session's first message has the address, and a node is Ready from its registration, a moment earlier.
    await until("the engine to know the new address", async () =>
      (await engine.swarm()).RemoteManagers?.some(({ Addr }) => Addr === third.address),
    );
    old.close();
    await until("six running tasks", async () => (await runningTasks(third)).length === 6);
    t.deepEqual((await runningTasks(third)).map(({ id }) => id).toSorted(), kept, "no task was replaced");
    t.deepEqual(await containersOf(engine), containers);
    t.deepEqual(taskProcesses(agent.dataDir), keptProcesses);
    t.regex(await third.muster("history", "service", "next"), /created/i);
    await third.muster("service", "scale", "-d", "boxes=3");
    await until("seven running tasks", async () => (await runningTasks(third)).length === 7);
  },
);

test.serial(
  "a manager backs up by itself, and a backup that cannot be used or written says why in one sentence",
  async (t) => {
    t.timeout(patient(300_000));
    const passphrase = passphraseFile(t);
    const folder = join(tempDir(t, "scheduled"), "backups");
    const schedule = ["--backup-dir", folder, "--backup-passphrase-file", passphrase, "--backup-history"];
    const manager = await startManager(t, { args: schedule });
    const [name = ""] = await until("a backup", () => {
      const names = readdirSync(folder).filter((each) => each.endsWith(".backup"));
      return names.length > 0 && names;
    });
    const file = join(folder, name);
    const keys = ["--passphrase-file", passphrase];
    const verified = await runMuster(["backup", "--verify", file, ...keys]);
    t.regex(verified.stdout, /^cluster \S+ at version \d+, .+\nsigned by manager /, verified.stderr);

    const sentenceOf = async (...args: readonly string[]): Promise<string> => {
      const ran = await runMuster(args);
      t.is(ran.code, 1, ran.stdout + ran.stderr);
      t.regex(ran.stderr, /^muster: [^\n]+\n$/);
      return ran.stderr.slice("muster: ".length).trimEnd();
    };
    const dataDir = join(tempDir(t, "restored"), "manager");
    const restore = (path: string, ...flags: readonly string[]) =>
      sentenceOf("restore", path, "--data-dir", dataDir, ...flags);
    t.regex(await restore(join(folder, "none"), ...keys), /^cannot open .*\/none: no such file$/);
    t.regex(await restore(passphrase, ...keys), /: it is not a backup of Muster \('muster backup' makes one\)$/);
    t.regex(await restore(file), /: it is encrypted under a passphrase: set --passphrase-file$/);
    t.regex(
      await restore(file, "--passphrase-file", passphraseFile(t, "another one altogether")),
      /: wrong passphrase: it is/,
    );
    const half = join(folder, "half");
    writeFileSync(half, readFileSync(file).subarray(0, statSync(file).size / 2));
    t.regex(await restore(half, ...keys), /: it is truncated, or was changed after it was made$/);
    t.deepEqual(readdirSync(join(dataDir, "..")), [], "nothing is left behind");
    t.regex(
      await sentenceOf("restore", file, "--data-dir", manager.dataDir, ...keys),
      /^the data dir .+ has a manager's state: restore into another one$/,
    );
    t.regex(
      await sentenceOf("restore", file, "--data-dir", folder, ...keys),
      /^the data dir .+ is not empty: restore into a new one$/,
    );

    // A disk that fills meanwhile.
    const large = join(tempDir(t, "large"), "config");
    writeFileSync(large, randomBytes(400_000));
    await manager.muster("config", "create", "large", large);
    const small = tempDir(t, "small");
    const mounted = `mount -t tmpfs -o size=128k none ${small} && "$@"; code=$?; ls -A ${small}; exit $code`;
    const full = await runMuster(
      ["--host", `unix://${manager.dataDir}/control.sock`, "backup", "-o", join(small, "b"), ...keys],
      { wrap: ["unshare", "-m", "sh", "-c", mounted, "sh"] },
    );
    t.regex(
      full.stderr,
      /^muster: cannot write .+\/b: the disk is full: \d\.\d MiB are free; choose another file with -o\n$/,
    );
    t.deepEqual([full.code, full.stdout], [1, ""], "nothing is left behind");
  },
);
