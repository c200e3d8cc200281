// Real leaf nodes of sites at the nats-servers for nodes of real managers, and sites' servers that want credentials. Labels are those of
// runtime/nats/nodes-access.ts.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, ftruncateSync, openSync, writeFileSync, writeSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import {
  createAccount,
  createOperator,
  encodeAccount,
  encodeOperator,
  encodeUser,
  fmtCreds,
  type KeyPair,
} from "@nats-io/jwt";
import test, { type ExecutionContext } from "ava";
import * as pki from "../../lib/pki/index.ts";
import { nodesNatsName } from "../../lib/pki/presented.ts";
import { linkSilentMsMax } from "../../runtime/calls/link.ts";
import type { LinkStream } from "../../runtime/calls/link-stream.ts";
import { findManager, openSiteLink } from "../../runtime/calls/site-link.ts";
import { serveSiteLinks } from "../../runtime/calls/site-links.ts";
import { NatsBus } from "../../runtime/nats/bus.ts";
import { openNodesLink } from "../../runtime/nats/connection.ts";
import { NatsProblem } from "../../runtime/nats/errors.ts";
import { connectSite, managerAt } from "../../runtime/nats/node-connection.ts";
import { createUser, NodesAccess, type Admitted } from "../../runtime/nats/nodes-access.ts";
import { startNodesServer } from "../../runtime/nats/server.ts";
import { createSigningAccount } from "../../runtime/nats/signing-key.ts";
import { siteFrame } from "../../runtime/subjects.ts";
import { SystemClock } from "../../runtime/system/clock.ts";
import { SystemRandom } from "../../runtime/system/random.ts";
import { freePort } from "../fixtures/ports.ts";
import { currentNats, signal, temporaryFolder, testTelemetry, until } from "../fixtures/nats-server.ts";

const host = "127.0.0.1";
const [clock, random] = [new SystemClock(), new SystemRandom()];
const rootOf = async () => await pki.createRoot();
type Root = Awaited<ReturnType<typeof rootOf>>;

async function identityOf({ certificatePem, keyPem }: Root): Promise<string> {
  const issued = await pki.createServerIdentity({
    rootCertificatePem: certificatePem,
    rootKeyPem: keyPem,
    names: [nodesNatsName],
    addresses: [host],
    nowMs: Date.now(),
    validityMs: 3_600_000,
  });
  return issued.certificatePem + issued.keyPem;
}

/** A nats-server that is not a manager's. Ends with the test. */
async function serve(t: ExecutionContext, lines: readonly string[]): Promise<string> {
  const [port, config] = [await freePort(), join(await temporaryFolder(t), "nats.conf")];
  writeFileSync(config, [`listen: "${host}:${port}"`, ...lines, ""].join("\n"));
  const child = spawn(currentNats, ["-c", config], { stdio: "ignore" });
  t.teardown(async () => {
    if (child.exitCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  });
  return `${host}:${port}`;
}

/** One that reaches those managers as that site. */
async function leafNode(
  t: ExecutionContext,
  { managers, root, site }: { readonly site: string; readonly root: Root; readonly managers: readonly Manager[] },
): Promise<string> {
  const ca = join(await temporaryFolder(t), "ca.pem");
  writeFileSync(ca, root.certificatePem);
  const remotes = managers.map(
    ({ leafPort }) => `{ urls: ["tls://${site}:right@${host}:${leafPort}"], tls { ca_file: ${JSON.stringify(ca)} } }`,
  );
  return serve(t, [`server_name: ${site}-1`, `leafnodes { reconnect: "1s", remotes: [${remotes.join(", ")}] }`]);
}

type Manager = Awaited<ReturnType<typeof startManager>>;

/** The part of a manager that serves sites, for all of them. */
async function startManager(
  t: ExecutionContext,
  managerId: string,
  root: Root,
  ports: { readonly leafNodes?: number; readonly webSockets?: number } = {},
) {
  const folder = await temporaryFolder(t);
  const telemetry = await testTelemetry();
  const file = openSync(join(folder, "tls.pem"), "w+", 0o600);
  t.teardown(() => closeSync(file));
  const show = (pem: string): void => {
    ftruncateSync(file);
    writeSync(file, pem, 0);
  };
  show(await identityOf(root));
  const [issuer, systemUser, nodesUser] = [createSigningAccount(), createUser(), createUser()];
  const leafPort = ports.leafNodes ?? (await freePort());
  const server = await startNodesServer({
    dataDir: join(folder, "nodes"),
    host,
    port: await freePort(),
    binary: currentNats,
    inherited: [file],
    logFile: join(folder, "nodes.log"),
    telemetry,
    accounts: {
      managerId,
      issuer: issuer.getPublicKey(),
      systemUser: systemUser.getPublicKey(),
      nodesUser: nodesUser.getPublicKey(),
      tlsFile: "/proc/self/fd/3",
      leafNodes: `${host}:${leafPort}`,
      webSockets: ports.webSockets === undefined ? null : `${host}:${ports.webSockets}`,
    },
  });
  t.teardown(async () => {
    signal(server.pid, "SIGCONT");
    await server.stop();
  });
  const open = async (user: KeyPair, name: string) => {
    const link = await openNodesLink({
      server: server.url,
      seed: user.getSeed(),
      tls: { ca: root.certificatePem, serverName: nodesNatsName },
      name,
      nodesLink: name,
      telemetry,
      random,
    });
    t.teardown(() => link.close());
    return link;
  };
  const system = await open(systemUser, "access");
  const nodes = await open(nodesUser, "nodes");
  const served: { readonly stream: LinkStream; readonly site: string }[] = [];
  const sites = serveSiteLinks({
    clock,
    random,
    bus: new NatsBus(nodes),
    managerId,
    payloadBytesMax: nodes.maxPayload,
    onStream: (stream, site) => {
      served.push({ stream, site });
      stream.pipe(stream);
    },
    onFlood: () => undefined,
  });
  t.teardown(() => sites.close());
  const [admitted, gone]: [number[], number[]] = [[], []];
  const access = new NodesAccess({
    log: telemetry.log,
    link: system,
    issuer,
    ownUser: nodesUser.getPublicKey(),
    admit: ({ connection, password, user }): Admitted => {
      if (password !== "right") return { kind: "refused", reason: "no" };
      admitted.push(connection);
      sites.begin(user);
      return { kind: "admitted", as: { kind: "site", site: user }, untilMs: null };
    },
    onGone: (connection) => gone.push(connection),
  });
  t.teardown(() => access.stop());
  return { access, admitted, gone, leafPort, managerId, served, server, show, system };
}

/** A node at that server. */
async function nodeAt(t: ExecutionContext, address: string, site: string) {
  const found: Awaited<ReturnType<typeof connectSite>>[] = [];
  await until("the site's server", async () => {
    const url = `nats://${address}`;
    await connectSite({ url, ca: null, credentials: null, name: "node" }).then(
      (connection) => found.push(connection),
      () => undefined,
    );
    return found.length > 0;
  });
  const connection = found[0] as (typeof found)[number];
  t.teardown(() => connection.close());
  const at = { clock, random, bus: connection.bus, site };
  const open = async (managerId: string): Promise<LinkStream> =>
    await openSiteLink({ ...at, managerId, payloadBytesMax: connection.maxPayload });
  /** Within a second: a message that came too early is lost. */
  const echoes = async (managerId: string): Promise<boolean> => {
    const opening = open(managerId);
    const echoed = opening.then(async (stream) => {
      stream.end("hello");
      return (await stream.setEncoding("utf8").toArray()).join("") === "hello";
    });
    const late = new Promise<boolean>((resolve) => void setTimeout(() => resolve(false), 1_000));
    return await Promise.race([echoed.catch(() => false), late]);
  };
  return { at, connection, echoes, open };
}

test("NA2: a leaf node's connection outlives a renewal, ends when it is closed, and after its manager's own was away", async (t) => {
  const [root, next] = [await rootOf(), await rootOf()];
  const manager = await startManager(t, "m1", root);
  const { access, admitted, gone, server, show, system } = manager;
  const node = await nodeAt(t, await leafNode(t, { site: "lab", root, managers: [manager] }), "lab");
  const answers = () => until("an answer", () => node.echoes("m1"));
  await answers();
  t.deepEqual([admitted.length, gone], [1, []]);

  show(await identityOf(next));
  server.reload();
  const other = await nodeAt(t, await leafNode(t, { site: "dock", root: next, managers: [manager] }), "dock");
  await until("a leaf node that trusts the next root alone", () => other.echoes("m1"));
  t.true(await node.echoes("m1"));
  t.deepEqual([admitted.length, gone], [2, []]);

  show(await identityOf(root));
  server.reload();
  access.close(admitted[0] ?? 0);
  await until("its end", () => gone.length === 1);
  await until("its return", () => admitted.length === 3);
  await answers();

  signal(server.pid, "SIGSTOP");
  await until("the end of the manager's own connection", () => !system.isConnected());
  signal(server.pid, "SIGCONT");
  await until("all to be closed", () => admitted.slice(0, 3).every((each) => gone.includes(each)));
  await until("the leaf node to return", () => admitted.length > 3);
  await answers();
});

test("a node finds each of the managers that its leaf node reaches, and opens links to any of them", async (t) => {
  const root = await rootOf();
  const managers = [await startManager(t, "m1", root), await startManager(t, "m2", root)];
  const { at, connection, echoes, open } = await nodeAt(t, await leafNode(t, { site: "lab", root, managers }), "lab");
  for (const { managerId } of managers) await until(managerId, () => echoes(managerId));
  for (const wanted of ["m1", "m2"]) t.is(await findManager(at, wanted), wanted);
  t.true(["m1", "m2"].includes(await findManager(at, "")));
  await t.throwsAsync(findManager(at, "m3"), { message: /^the NATS of site lab reaches manager m[12], but not m3$/ });
  t.true(managers.every(({ served }) => served.every(({ site }) => site === "lab")));

  const stream = await open("m2");
  const ended = new Promise<void>((resolve) => managers[1]?.served.at(-1)?.stream.once("close", resolve));
  const before = performance.now();
  stream.once("close", () => connection.close());
  stream.destroy();
  await ended;
  t.true(
    performance.now() - before < linkSilentMsMax / 2,
    "the manager learns of it, rather than wait for signs of life",
  );
});

test("NA1: a leaf node sends and hears nothing of another site", async (t) => {
  const root = await rootOf();
  const manager = await startManager(t, "m1", root);
  const addresses = [
    await leafNode(t, { site: "lab", root, managers: [manager] }),
    await leafNode(t, { site: "dock", root, managers: [manager] }),
  ] as const;
  const [lab, dock] = [await nodeAt(t, addresses[0], "lab"), await nodeAt(t, addresses[1], "dock")];
  await until("both sites", async () => (await lab.echoes("m1")) && (await dock.echoes("m1")));
  const heard: string[] = [];
  const [evil, asDock] = [await nodeAt(t, addresses[0], "lab"), await nodeAt(t, addresses[0], "dock")];
  evil.connection.bus.subscribe("muster.>", ({ subject }) => heard.push(subject));
  evil.connection.bus.publish(siteFrame("dock", "m1", "x"), new TextEncoder().encode("y"));
  t.false(await asDock.echoes("m1"));
  t.true(await dock.echoes("m1"));
  t.true(await lab.echoes("m1"));
  t.true(heard.some((subject) => subject.startsWith("muster.v1.site.lab.down.")));
  t.deepEqual(
    heard.filter(
      (subject) => !subject.startsWith("muster.v1.site.lab.") && !subject.startsWith("muster.v1.site.dock.up."),
    ),
    [],
    "but for what its own clients send in vain",
  );
  t.is(manager.served.filter(({ site }) => site === "dock").length, 2);
});

test("a site's server is verified by its CA, and gets the credentials that it wants", async (t) => {
  const [root, folder] = [await rootOf(), await temporaryFolder(t)];
  const pem = join(folder, "server.pem");
  writeFileSync(pem, await identityOf(root));
  const tls = `tls { cert_file: ${JSON.stringify(pem)}, key_file: ${JSON.stringify(pem)} }`;
  const [user, account, operator] = [createUser(), createAccount(), createOperator()];
  const accountJwt = await encodeAccount(
    "lab",
    account,
    { limits: { conn: -1, subs: -1, data: -1, payload: -1 } },
    { signer: operator },
  );
  const text = new TextDecoder();
  const credentials = text.decode(fmtCreds(await encodeUser("node", user, account), user));
  const seed = text.decode(user.getSeed());
  const wss = async (lines: readonly string[] = []) => {
    const port = await freePort();
    await serve(t, [`websocket { listen: "${host}:${port}", ${tls} }`, ...lines]);
    return `${host}:${port}`;
  };
  const [overWebSocket, withKeysOverWebSocket] = [
    await wss(),
    await wss([`authorization { users: [{ nkey: ${user.getPublicKey()} }] }`]),
  ];
  const [secured, withKeys, withAccounts, withPasswords] = [
    await serve(t, [tls]),
    await serve(t, [tls, `authorization { users: [{ nkey: ${user.getPublicKey()} }] }`]),
    await serve(t, [
      `operator: ${await encodeOperator("site", operator)}`,
      "resolver: MEMORY",
      `resolver_preload: { ${account.getPublicKey()}: ${accountJwt} }`,
    ]),
    await serve(t, ["authorization { user: node, password: secret }"]),
  ];
  const [ca, none] = [root.certificatePem, null];
  const dial = async (url: string, given: { readonly ca: string | null; readonly credentials: string | null }) => {
    const connection = await connectSite({ url, name: "node", ...given });
    t.teardown(() => connection.close());
    return connection;
  };
  const refuses = async (url: string, given: Parameters<typeof dial>[1], message: RegExp) =>
    await t.throwsAsync(dial(url, given), { instanceOf: NatsProblem, message }, url);
  await until("the servers", async () => {
    const greeted = await Promise.all(
      [
        ...[secured, withKeys, withAccounts, withPasswords].map((at) => `nats://${at}`),
        ...[overWebSocket, withKeysOverWebSocket].map((at) => `wss://${at}`),
      ].map((url) => managerAt(url)),
    );
    return greeted.every((name) => name !== null);
  });

  for (const url of [
    `tls://${secured}`,
    `nats://${secured}`,
    `wss://${overWebSocket}`,
    `wss://${overWebSocket}/a/path`,
  ]) {
    const connection = await dial(url, { ca, credentials: none });
    const heard = new Promise<string>((resolve) => {
      connection.bus.subscribe("a", ({ data }) => resolve(text.decode(data)));
    });
    connection.bus.publish("a", new TextEncoder().encode("hello"));
    t.is(await heard, "hello");
    const ended = new Promise<string>((resolve) => connection.onClosed(resolve));
    connection.close();
    t.regex(await ended, /^the connection to NATS has ended/);
    await refuses(url, { ca: none, credentials: none }, /signed by an unknown CA/);
    await refuses(url, { ca: (await rootOf()).certificatePem, credentials: none }, /certificate/);
  }
  await refuses(`tls://${withPasswords}`, { ca, credentials: none }, /does not support TLS/);
  for (const url of [`tls://${withKeys}`, `wss://${withKeysOverWebSocket}`]) {
    await dial(url, { ca, credentials: `${seed}\n` });
    await refuses(url, { ca, credentials: text.decode(createUser().getSeed()) }, /rejected the credentials/);
    await refuses(url, { ca, credentials: none }, /rejected the credentials/);
  }
  // A server without WebSockets there, and a frozen one.
  await refuses(`wss://${secured}`, { ca, credentials: none }, /^no nats-server answers at/);
  const silent = createServer().listen(0, host);
  await once(silent, "listening");
  t.teardown(() => silent.close());
  await refuses(
    `wss://${host}:${(silent.address() as AddressInfo).port}`,
    { ca, credentials: none },
    /^no nats-server answers/,
  );
  for (const each of [credentials, credentials.trim()])
    await dial(`nats://${withAccounts}`, { ca: none, credentials: each });
  await refuses(`nats://${withAccounts}`, { ca: none, credentials: seed }, /rejected the credentials/);
  await refuses(
    `nats://${withAccounts}`,
    { ca: none, credentials: credentials.replace(/(BEGIN USER NKEY SEED-+\n).*/, "$1") },
    /^expected a \.creds file/,
  );
  await dial(`nats://node:secret@${withPasswords}`, { ca: none, credentials: none });
  await refuses(`nats://node:wrong@${withPasswords}`, { ca: none, credentials: none }, /rejected the credentials/);
});

for (const listener of ["leafNodes", "webSockets"] as const)
  test(`a port for ${listener} that another process has is named`, async (t) => {
    const root = await rootOf();
    const taken = createServer().listen(0, host);
    await once(taken, "listening");
    t.teardown(() => taken.close());
    const { port } = taken.address() as AddressInfo;
    await t.throwsAsync(startManager(t, "m1", root, { [listener]: port }), {
      message: new RegExp(`^port ${port} is in use`),
    });
  });
