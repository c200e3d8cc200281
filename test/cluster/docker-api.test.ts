// Docker's Engine API of a real manager: who may use it, and what abuse gets.
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { request } from "node:https";
import { connect } from "node:net";
import { join } from "node:path";
import anyTest from "ava";
import { newestVersion, oldestVersion } from "../../edges/docker/api-version.ts";
import { ask } from "../fixtures/engine-api.ts";
import { startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { until } from "../fixtures/until.ts";

// One manager at a time: each uses a port that was free before.
const test = anyTest.serial;

interface TlsAnswer {
  readonly status: number;
  readonly text: string;
}

interface Credentials {
  readonly ca: Buffer;
  readonly cert?: Buffer;
  readonly key?: Buffer;
}

function askTls(port: number, credentials: Credentials, method: string, path: string, body = ""): Promise<TlsAnswer> {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json" };
    const sent = request(
      { host: "127.0.0.1", port, method, path, headers, agent: false, ...credentials },
      (response) => {
        let text = "";
        response.on("data", (chunk: Buffer) => (text += chunk.toString()));
        response.on("end", () => resolve({ status: response.statusCode ?? 0, text }));
      },
    );
    sent.on("error", reject);
    sent.end(body);
  });
}

async function userOf(manager: TestManager, dir: string, name: string, role: string): Promise<Credentials> {
  const [password, out] = [join(dir, "password"), join(dir, name)];
  writeFileSync(password, "correct horse battery staple\n");
  await manager.muster("user", "add", "--role", role, "--password-file", password, name);
  await manager.muster("user", "certificate", name, "-o", out, "--lifetime", "1h");
  const pem = readFileSync(join(out, "credentials.pem"));
  return { ca: readFileSync(join(out, "ca.pem")), cert: pem, key: pem };
}

const secret = (name: string): string => JSON.stringify({ Name: name, Data: "YQ==" });

test("over TCP a user's certificate and role decide", async (t) => {
  const port = await freePort();
  const manager = await startManager(t, { args: ["--docker-listen", `127.0.0.1:${port}`] });
  await manager.ready();
  const dir = tempDir(t, "docker-users");
  const reader = await userOf(manager, dir, "reader", "read-only");
  const operator = await userOf(manager, dir, "operator", "operator");
  const admin = await userOf(manager, dir, "admin", "admin");

  const { ca } = reader;
  t.is((await askTls(port, { ca }, "GET", "/v1.41/nodes")).status, 401);
  t.is((await askTls(port, { ca }, "GET", "/_ping")).status, 401);

  t.is((await askTls(port, reader, "GET", "/v1.41/nodes")).status, 200);
  const refused = await askTls(port, reader, "POST", "/v1.41/secrets/create", secret("a"));
  t.is(refused.status, 403);
  t.regex(refused.text, /needs the role operator, and user reader has the role read-only/);
  t.is((await askTls(port, operator, "POST", "/v1.41/secrets/create", secret("a"))).status, 201);
  t.is((await askTls(port, operator, "POST", "/v1.41/swarm/update?version=1", "{}")).status, 403);
  // A reader cannot make a manager connect to anything.
  t.is((await askTls(port, reader, "GET", "/v1.41/distribution/127.0.0.1:1/app/json")).status, 403);
  t.is((await askTls(port, reader, "POST", "/v1.41/auth", '{"serveraddress":"127.0.0.1:1"}')).status, 403);
  t.is((await askTls(port, operator, "GET", "/v1.41/distribution/127.0.0.1:1/app/json")).status, 500);

  const tokensOf = async (user: Credentials): Promise<string> => (await askTls(port, user, "GET", "/v1.41/swarm")).text;
  t.false((await tokensOf(operator)).includes("SWMTKN"));
  t.true((await tokensOf(admin)).includes("SWMTKN"));

  // A stream ends with its user.
  const ended = new Promise<void>((resolve, reject) => {
    const sent = request({ host: "127.0.0.1", port, path: "/events", agent: false, ...operator }, (response) => {
      response.resume().on("close", resolve);
      void manager.muster("user", "disable", "operator").catch(reject);
    });
    sent.on("error", () => resolve());
    sent.end();
  });
  await ended;
  t.is((await askTls(port, operator, "GET", "/v1.41/nodes")).status, 401);
});

test("only the owner may open the socket, and the members of a chosen group", async (t) => {
  const alone = await startManager(t);
  await alone.ready();
  t.is(statSync(join(alone.dataDir, "docker.sock")).mode & 0o777, 0o600);
  if (process.getuid?.() !== 0) return;
  const shared = await startManager(t, { args: ["--docker-group", "65534"] });
  await shared.ready();
  const { gid, mode } = statSync(join(shared.dataDir, "docker.sock"));
  t.is(mode & 0o777, 0o660);
  t.is(gid, 65_534);
});

/** The bytes that a raw client of the socket receives, until the connection closes. */
function rawAnswer(path: string, write: (send: (bytes: string) => void) => void): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ path });
    let text = "";
    socket.on("data", (chunk) => (text += chunk.toString()));
    socket.on("error", () => undefined);
    socket.on("close", () => resolve(text));
    write((bytes) => void (socket.writable && socket.write(bytes)));
  });
}

function residentBytes(pid: number): number {
  const [, kilobytes = "0"] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) * 1_024;
}

test("each version from the oldest to the newest is served by its prefix", async (t) => {
  const manager = await startManager(t);
  await manager.ready();
  const socket = join(manager.dataDir, "docker.sock");
  const get = (path: string): ReturnType<typeof ask> => ask(socket, { method: "GET", path });
  const nouns = ["info", "version", "swarm", "nodes", "services", "tasks", "networks", "secrets", "configs", "volumes"];
  const minorOf = (version: string): number => Number(version.split(".")[1]);
  const [oldest, newest] = [minorOf(oldestVersion), minorOf(newestVersion)];
  const wrong = `/services?filters=${encodeURIComponent('{"colour":["red"]}')}`;
  for (let minor = oldest; minor <= newest; minor += 1) {
    for (const noun of [...nouns, "containers/json", "images/json", "system/df"]) {
      const { status, text } = await get(`/v1.${minor}/${noun}`);
      t.is(status, 200, `1.${minor} ${noun}: ${text}`);
      t.notThrows(() => JSON.parse(text) as unknown, `1.${minor} ${noun}`);
    }
    // The answers are those of the version: its words for a mistake, and its fields.
    const words = minor < 42 ? "Invalid filter 'colour'" : "invalid filter 'colour'";
    t.deepEqual(JSON.parse((await get(`/v1.${minor}${wrong}`)).text), { message: words }, `1.${minor}`);
    const networks = JSON.parse((await get(`/v1.${minor}/networks`)).text) as readonly Record<string, unknown>[];
    t.deepEqual(
      networks.map((network) => network["EnableIPv4"]),
      [minor < 48 ? undefined : true],
      `1.${minor}`,
    );
  }
  for (const older of [`1.${oldest - 1}`, "1.9", "0.99"])
    t.like(await get(`/v${older}/info`), {
      status: 400,
      text: `client version ${older} is too old. Minimum supported API version is ${oldestVersion}, please upgrade your client to a newer version\n`,
    });
  for (const newer of [`1.${newest + 1}`, "1.100", "2.0"]) {
    const { status, text } = await get(`/v${newer}/info`);
    t.is(status, 400, newer);
    const message = `client version ${newer} is too new. Maximum supported API version is ${newestVersion}`;
    t.deepEqual(JSON.parse(text), { message });
  }
  t.is((await get("/info")).status, 200);
});

test("abuse is answered and leaves nothing behind", async (t) => {
  const manager = await startManager(t);
  await manager.ready();
  const socket = join(manager.dataDir, "docker.sock");
  const pid = manager.process.child.pid ?? 0;
  const create = { method: "POST", path: "/v1.41/services/create" };
  const before = residentBytes(pid);

  const huge = "x".repeat(100 * 1_024 * 1_024);
  for (let round = 0; round < 3; round += 1) {
    const answer = await ask(socket, { ...create, body: huge }).catch((error: unknown) => error);
    // The answer may be lost when the connection closes under a client that is still sending.
    if (!(answer instanceof Error)) t.is((answer as { status: number }).status, 413);
  }
  t.true(residentBytes(pid) - before < 100 * 1_024 * 1_024, "the bodies were not kept");

  t.is((await ask(socket, { ...create, body: '{"Name":"a"', contentType: "application/json" })).status, 400);
  t.is(
    (await ask(socket, { ...create, path: "/v1.41/networks/create", body: "{}", contentType: "text/plain" })).status,
    400,
  );

  const flood = "x-a: b\r\n".repeat(5_000);
  t.regex(await rawAnswer(socket, (send) => send(`GET /info HTTP/1.1\r\nHost: d\r\n${flood}\r\n`)), /^HTTP\/1\.1 431 /);
  t.regex(await rawAnswer(socket, (send) => send("nonsense\r\n\r\n")), /^HTTP\/1\.1 400 /);
  t.regex(await rawAnswer(socket, (send) => send("GET /info HTTP/1.1\r\nHost: d\r\n")), /^HTTP\/1\.1 408 /);

  // Clients that follow events and go away: as many as the kernel queues for a socket that is busy.
  const followers = Array.from({ length: 500 }, () => connect({ path: socket }));
  for (const each of followers) each.on("error", () => undefined).write("GET /events HTTP/1.1\r\nHost: d\r\n\r\n");
  await until("the last follower's answer", async () => followers.every((each) => each.bytesRead > 0));
  for (const each of followers) each.destroy();
  t.is((await ask(socket, { method: "GET", path: "/_ping" })).text, "OK");
  t.true(manager.process.isRunning);
});
