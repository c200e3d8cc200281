// Secrets at rest: no secret of a cluster is readable where it is stored, sent or reported, and a manager killed during a
// change of its lock opens again with one of its keys.
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { unlockKeyOf, parseUnlockKey } from "../../machines/keys/unlock-key.ts";
import type { Cluster } from "../../proto/gen/messages.ts";
import { SystemClock } from "../../runtime/system/clock.ts";
import { SystemRandom } from "../../runtime/system/random.ts";
import { Keyring } from "../../runtime/store/keyring.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { SealedLog } from "../../runtime/store/sealed-log.ts";
import { openVault, type Vault } from "../../runtime/store/vault.ts";
import { runMuster, startManager, tempDir, type Ran, type TestManager } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { natsServer, type TestServer } from "../fixtures/nats-server.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const secretCanary = "canary-of-a-secret-6f1d0c9b2a";
const configCanary = "canary-of-a-config-77ab31e0c4";
const random = new SystemRandom();

const hostOf = (manager: TestManager): string[] => ["--host", `unix://${join(manager.dataDir, "control.sock")}`];

/** Runs `muster swarm unlock` with the key on its standard input. */
function unlock(manager: TestManager, key: string): Promise<Ran> {
  return runMuster([], {
    wrap: ["sh", "-c", 'printf "%s\\n" "$KEY" | "$0" "$@" swarm unlock --host "$SOCKET"'],
    env: { KEY: key, SOCKET: `unix://${join(manager.dataDir, "control.sock")}` },
  });
}

/** Opens a manager's key file as the manager does. */
function vaultOf(manager: TestManager, unlockKeys: readonly string[]): Vault | null {
  const bytes = new Uint8Array(Buffer.from(readFileSync(join(manager.dataDir, "keys"), "utf8"), "base64"));
  const found = openVault({ read: () => bytes, write: () => undefined }, random);
  if (found.kind === "open") return found.vault;
  if (found.kind === "broken") return null;
  for (const key of unlockKeys) {
    const opened = found.vault.unlock(parseUnlockKey(key) ?? new Uint8Array());
    if (opened.kind === "open") return opened.vault;
  }
  return null;
}

/** The cluster's state from its log, for a holder of the keys. */
async function clusterIn(server: TestServer, vault: Vault): Promise<Cluster> {
  const link = await server.connect();
  const replica = new Replica();
  const log = new SealedLog(link.log, new Keyring(vault, random), random, new SystemClock());
  const { last } = (await log.bounds(5_000)) ?? { last: 0 };
  const reading = log.read(1, {
    onRecord: (sequence, data) => void replica.apply(sequence, data),
    onCaughtUp: () => {},
    onGap: () => {},
  });
  await until("the log's end", () => replica.version >= last);
  reading.unsubscribe();
  return [...replica.all("cluster")][0] as Cluster;
}

interface Told {
  readonly where: string;
  readonly bytes: Buffer;
}

function filesUnder(folder: string): Told[] {
  const found: Told[] = [];
  for (const name of readdirSync(folder, { recursive: true }) as string[]) {
    const path = join(folder, name);
    // NATS creates and removes files meanwhile.
    if (statSync(path, { throwIfNoEntry: false })?.isFile() === true)
      found.push({ where: path, bytes: readFileSync(path) });
  }
  return found;
}

/** A secret's possible encodings: verbatim, base64, hex. */
function formsOf(secret: Uint8Array | string): Buffer[] {
  const bytes = Buffer.from(secret as string);
  // Base64 of a substring shows its middle part at any offset.
  const base64 = bytes.toString("base64").replace(/=+$/, "").slice(0, -2);
  return [bytes, Buffer.from(base64), Buffer.from(bytes.toString("hex"))];
}

function assertNowhere(t: ExecutionContext, secrets: ReadonlyMap<string, Uint8Array | string>, told: readonly Told[]) {
  for (const [name, secret] of secrets) {
    t.true(secret.length >= 16, name);
    const places = told.filter(({ bytes }) => formsOf(secret).some((form) => bytes.includes(form)));
    t.deepEqual(
      places.map(({ where }) => where),
      [],
      `${name} is readable`,
    );
  }
}

/** Accepts spans as a collector does, and stores them unchanged. */
async function rawCollector(t: ExecutionContext): Promise<{ readonly endpoint: string; readonly bodies: Buffer[] }> {
  const bodies: Buffer[] = [];
  const server = createServer((request, response) => {
    request.on("data", (chunk: Buffer) => bodies.push(chunk));
    request.on("end", () => response.writeHead(200, { "content-type": "application/json" }).end("{}"));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return { endpoint: `http://127.0.0.1:${(server.address() as { port: number }).port}`, bodies };
}

/** The middle of a PEM's base64: unique to the key. */
function pemBody(pem: Uint8Array): string {
  const lines = new TextDecoder().decode(pem).trim().split("\n").slice(1, -1);
  return lines.join("").slice(20, 70);
}

test.serial(
  "no secret is readable in NATS, on its wire, in key files, logs, spans, errors or on metrics",
  async (t) => {
    t.timeout(patient(300_000));
    const collector = await rawCollector(t);
    process.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.endpoint;
    t.teardown(() => void delete process.env["OTEL_EXPORTER_OTLP_ENDPOINT"]);
    const server = await natsServer(t);
    const { url, user, pass } = server.server;
    const nats = url.replace("//", `//${user}:${pass}@`);
    const wire: Told[] = [];
    const listener = await server.connect();
    listener.bus.subscribe(">", ({ subject, data }) => wire.push({ where: `on ${subject}`, bytes: Buffer.from(data) }));

    const metrics = `127.0.0.1:${await freePort()}`;
    const leader = await startManager(t, { nats, args: ["--log-level", "debug", "--metrics", metrics] });
    const stranger = [
      "manager",
      "--data-dir",
      tempDir(t, "stranger"),
      "--listen",
      `127.0.0.1:${await freePort()}`,
      "--nats",
      nats,
    ];
    const turnedAway = await runMuster(stranger);
    t.is(turnedAway.code, 1);
    t.regex(turnedAway.stderr, /whose keys this manager lacks: join its cluster with --join/);
    const other = await startManager(t, { nats, join: leader, args: ["--log-level", "debug"] });
    const errors: Told[] = [];
    const refused = async (...args: string[]): Promise<void> => {
      const ran = await runMuster([...args, ...hostOf(other)]);
      t.not(ran.code, 0, args.join(" "));
      errors.push({ where: args.join(" "), bytes: Buffer.from(ran.stdout + ran.stderr) });
    };
    const folder = tempDir(t, "canary");
    const [secretFile, configFile] = [join(folder, "secret"), join(folder, "config")];
    writeFileSync(secretFile, secretCanary);
    writeFileSync(configFile, configCanary);
    // Through the follower, so that the call crosses the bus.
    await other.muster("secret", "create", "one", secretFile);
    await other.muster("config", "create", "two", configFile);
    await refused("secret", "create", "one", secretFile);
    await refused("secret", "create", "bad name", secretFile);
    const largeFile = join(folder, "large");
    writeFileSync(largeFile, secretCanary.repeat(20_000));
    await refused("secret", "create", "three", largeFile);
    await other.muster("swarm", "update", "--autolock");
    const unlockKeys = [await other.muster("swarm", "unlock-key", "-q")];
    await other.muster("swarm", "unlock-key", "--rotate", "-q");
    unlockKeys.unshift(await other.muster("swarm", "unlock-key", "-q"));
    const tokens = [await leader.muster("token", "worker"), await leader.muster("token", "manager", "--rotate")];
    await refused("swarm", "unlock-key", "--nonsense");
    await until("both key files locked", () => [leader, other].every((each) => vaultOf(each, []) === null));

    const vault = await until("the newest key", () => vaultOf(other, unlockKeys.slice(0, 1)));
    const cluster = await clusterIn(server, vault);
    t.deepEqual(Buffer.from(unlockKeyOf(cluster) ?? []), Buffer.from(parseUnlockKey(unlockKeys[0] as string) ?? []));
    const secrets = new Map<string, Uint8Array | string>([
      ["the secret", secretCanary],
      ["the config", configCanary],
      ["the root's key", pemBody(cluster.rootCa?.caKey ?? new Uint8Array())],
      ["a manager's key", pemBody(new TextEncoder().encode(vault.fields.nodeKey))],
      ...tokens.map((token, at) => [`token ${at}`, token.split("-").at(-1) ?? ""] as const),
      ...unlockKeys.flatMap((key, at) => [
        [`unlock key ${at} as text`, key] as const,
        [`unlock key ${at}`, parseUnlockKey(key) ?? ""] as const,
      ]),
      ...vault.dataKeys.map(({ key }, at) => [`data key ${at}`, key] as const),
      ...cluster.networkBootstrapKeys.map(({ key }, at) => [`network key ${at}`, key] as const),
    ]);
    t.true(secrets.size >= 16);

    // The second manager is locked: only its errors are readable.
    await other.process.end("SIGKILL");
    other.process.start();
    await until("a locked manager", async () => {
      const ran = await runMuster(["service", "ls", ...hostOf(other)]);
      return ran.stderr.includes("locked");
    });
    await refused("secret", "inspect", "one");
    const wrong = await unlock(other, `${(unlockKeys[0] as string).slice(0, -2)}AA`);
    errors.push({ where: "a wrong unlock key", bytes: Buffer.from(wrong.stdout + wrong.stderr) });
    t.not(wrong.code, 0);
    t.is((await unlock(other, unlockKeys[0] as string)).stderr, "");
    t.true((await other.muster("secret", "ls")).includes("one"));

    await until("spans", () => collector.bodies.length > 0);
    const scraped = Buffer.from(await (await fetch(`http://${metrics}/metrics`)).arrayBuffer());
    t.true(scraped.includes("muster_leading"));
    const told: Told[] = [
      ...filesUnder(server.dataDir),
      ...filesUnder(leader.dataDir),
      ...filesUnder(other.dataDir),
      ...wire,
      ...errors,
      { where: "the leader's log", bytes: Buffer.from(leader.process.output) },
      { where: "the other's log", bytes: Buffer.from(other.process.output) },
      { where: "spans", bytes: Buffer.concat(collector.bodies) },
      { where: "metrics", bytes: scraped },
    ];
    t.true(
      told.some(({ where }) => where.includes("jetstream")),
      "the log's files are among them",
    );
    t.true(wire.length > 0);
    assertNowhere(t, secrets, told);
  },
);

test.serial(
  "a manager killed while its lock changes or its key rotates opens with the old or the new key",
  async (t) => {
    t.timeout(patient(240_000));
    const manager = await startManager(t);
    await manager.muster("secret", "create", "kept", secretFileIn(t));
    await manager.muster("swarm", "update", "--autolock");
    const keys = [await manager.muster("swarm", "unlock-key", "-q")];
    const ways = { open: 0, newest: 0, older: 0 };
    const changes = [
      ["swarm", "unlock-key", "--rotate", "-q"],
      ["swarm", "update", "--autolock=false"],
      ["swarm", "update", "--autolock"],
    ];
    const file = (): string => readFileSync(join(manager.dataDir, "keys"), "utf8");
    for (const [at, change] of changes.entries()) {
      const before = file();
      const changing = runMuster([...change, ...hostOf(manager)]);
      // At the first write of the key file, and each time some milliseconds later, until the next key's first use.
      const deadline = Date.now() + 20_000;
      while (file() === before && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 1));
      await new Promise((resolve) => setTimeout(resolve, at * 3));
      await manager.process.end("SIGKILL");
      const { stdout } = await changing;
      const printed = /SWMKEY-1-\S+/.exec(stdout)?.[0];
      if (printed !== undefined && !keys.includes(printed)) keys.unshift(printed);
      manager.process.start();
      await until("its control socket", async () => {
        if (!manager.process.isRunning) throw new Error(manager.process.output);
        const { code, stderr } = await runMuster(["secret", "ls", ...hostOf(manager)]);
        return code === 0 || stderr.includes("locked");
      });
      if ((await runMuster(["secret", "ls", ...hostOf(manager)])).code !== 0) {
        const outcomes: string[] = [];
        for (const key of keys) {
          const ran = await unlock(manager, key);
          outcomes.push(ran.stderr);
          if (ran.code !== 0) continue;
          ways[key === keys[0] ? "newest" : "older"] += 1;
          break;
        }
        t.not(outcomes.length, 0);
      } else ways.open += 1;
      t.true((await manager.muster("secret", "ls")).includes("kept"), "no write is lost");
      const { code, stdout: now } = await runMuster(["swarm", "unlock-key", "-q", ...hostOf(manager)]);
      if (code === 0 && !keys.includes(now.trim())) keys.unshift(now.trim());
    }
    t.log(ways);
  },
);

function secretFileIn(t: ExecutionContext): string {
  const path = join(tempDir(t, "secret"), "one");
  writeFileSync(path, secretCanary);
  return path;
}
