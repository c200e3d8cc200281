// Nodes that reach their manager over NATS alone, and a malicious one among them.
import { join } from "node:path";
import { readFileSync } from "node:fs";
import type { Socket } from "node:net";
import { checkServerIdentity } from "node:tls";
import test, { type ExecutionContext } from "ava";
import { connect, type NatsConnection } from "nats";
import { natsDialer } from "../../processes/nats-dialer.ts";
import { joinerId, nodesNatsName, presentJoiner, presentNode, type Presented } from "../../lib/pki/presented.ts";
import { describeCertificate } from "../../lib/pki/index.ts";
import {
  AgentIdentity,
  CAService,
  ControlService,
  DispatcherService,
  GetRootCACertificateRequest,
  HeartbeatRequest,
  LinkFrame,
  LinkFrame_Kind,
  ListNodesRequest,
  NodeStatus_State,
  UserCertificatesService,
} from "../../proto/gen/messages.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { frameForNode, nodeFrame } from "../../runtime/subjects.ts";
import { SystemClock } from "../../runtime/system/clock.ts";
import { SystemRandom } from "../../runtime/system/random.ts";
import { createService, nodeCalled, runningTasks, sleepers } from "../fixtures/control-client.ts";
import { labMissing, startLab } from "../fixtures/lab.ts";
import {
  MusterProcess,
  runMuster,
  startAgent,
  startManager,
  tempDir,
  type TestAgent,
  type TestManager,
} from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { kill, taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const noMaterial = { rootPem: "", certificatePem: "", keyPem: "" };
const withLab = labMissing() === null ? test.serial : test.serial.skip;

async function isReady(manager: TestManager, hostname: string): Promise<boolean> {
  return (await nodeCalled(manager, hostname)).status?.state === NodeStatus_State.READY;
}

/** The pid of the manager's nats-server for nodes. */
function nodesServerPid({ dataDir }: TestManager): number {
  const owner = JSON.parse(readFileSync(join(dataDir, "nodes/nats/owner.json"), "utf8")) as { server: { pid: number } };
  return owner.server.pid;
}

withLab(
  "a node without a path to the gRPC port runs tasks, and keeps them when NATS, manager or agent are killed",
  async (t) => {
    t.timeout(patient(300_000));
    const lab = startLab(t, 1);
    const [machine] = lab.machines as [(typeof lab.machines)[number]];
    const port = await freePort();
    const manager = await startManager(t, { on: lab.hub, args: ["--listen-nodes-nats", `${lab.hub.address}:${port}`] });
    await manager.patience();
    await machine.run("/usr/sbin/nft", "add table inet only");
    await machine.run("/usr/sbin/nft", "add chain inet only out { type filter hook output priority 0; policy drop; }");
    await machine.run("/usr/sbin/nft", "add rule inet only out oif lo accept");
    await machine.run("/usr/sbin/nft", `add rule inet only out tcp dport ${port} accept`);
    await t.throwsAsync(machine.fetch(`http://${manager.address}/`, 1_000));

    const agent = await startAgent(t, manager, {
      on: machine,
      hostname: "far",
      join: `nats://${lab.hub.address}:${port}`,
    });
    await manager.muster("service", "create", "--name", "web", "--driver", "exec", "sh", "-c", "echo begun; sleep 600");
    await until("a running task", async () => (await runningTasks(manager)).length === 1);
    const [task] = await runningTasks(manager);
    await until("its output", async () => (await manager.muster("service", "logs", "web")).includes("begun"));
    t.is(await manager.muster("task", "exec", task?.id ?? "", "echo", "inside"), "inside");
    const running = taskProcesses(agent.dataDir).map(({ pid }) => pid);
    t.is(running.length, 1);

    const sessions = agent.sessions().length;
    kill(nodesServerPid(manager));
    await until("a session after the death of nats-server", () => agent.sessions().length > sessions);
    await manager.process.end("SIGKILL");
    manager.process.start();
    await manager.ready();
    await until("a session after the death of the manager", () => agent.sessions().length > sessions + 1);
    await until("the node to be READY", () => isReady(manager, "far"));
    t.is(await manager.muster("task", "exec", task?.id ?? "", "echo", "still"), "still");

    await agent.process.end("SIGKILL");
    // Its disk has the certificate and the URLs.
    const again = new MusterProcess(
      agent.dataDir,
      ["agent", "--data-dir", agent.dataDir, "--hostname", "far", "--allow-root", "--task-user", "root"],
      {},
      machine.inside,
    );
    t.teardown(() => again.end());
    await until("a session of the next life", () => again.output.includes("the node established a session"));
    t.is(await manager.muster("task", "exec", task?.id ?? "", "echo", "adopted"), "adopted");
    t.deepEqual(
      taskProcesses(agent.dataDir).map(({ pid }) => pid),
      running,
    );
  },
);

interface Identity {
  readonly nodeId: string;
  readonly rootPem: string;
  readonly certificatePem: string;
  readonly keyPem: string;
}

function identityOf({ dataDir }: TestAgent): Identity {
  const { certificate, key, root } = AgentIdentity.decode(readFileSync(join(dataDir, "state/identity")));
  const [rootPem, certificatePem, keyPem] = [root, certificate, key].map((bytes) => Buffer.from(bytes).toString());
  const material = { rootPem: rootPem ?? "", certificatePem: certificatePem ?? "", keyPem: keyPem ?? "" };
  const facts = describeCertificate(material.certificatePem, material.rootPem);
  return { ...material, nodeId: facts.kind === "certificate" ? facts.nodeId : "" };
}

/** Connects as a client of its own making. `present` gets the server's fingerprint and nonce. */
function dialRaw(
  t: ExecutionContext,
  port: number,
  rootPem: string,
  present: (challenge: { nonce: string; server: string }) => object,
): Promise<NatsConnection> {
  let server = "";
  const tls = {
    ca: rootPem,
    servername: nodesNatsName,
    maxVersion: "TLSv1.2",
    checkServerIdentity: (name: string, certificate: Parameters<typeof checkServerIdentity>[1]) => {
      server = certificate.fingerprint256;
      return checkServerIdentity(name, certificate);
    },
  };
  return connect({
    port,
    tls: tls as object,
    reconnect: false,
    timeout: 10_000,
    authenticator: (nonce) => present({ nonce: nonce ?? "", server }) as never,
  }).then((connection) => {
    t.teardown(() => connection.close());
    return connection;
  });
}

const fields = ({ signature, token }: Presented) => ({ auth_token: token, sig: signature });

/** An entry of a connection's `status()`. */
interface Refusal {
  readonly permissionContext?: { readonly operation: string; readonly subject: string };
}

/** Of the library, which does not show it. */
function socketOf(connection: NatsConnection): Socket {
  return (connection as unknown as { readonly protocol: { readonly transport: { readonly socket: Socket } } }).protocol
    .transport.socket;
}

/** The messages that the connection hears on the subject, and why the server refuses it. */
function listen(connection: NatsConnection, subject: string) {
  const heard = { refusal: "", subjects: [] as string[] };
  connection.subscribe(subject, {
    callback: (error, message) => {
      if (error === null) heard.subjects.push(message.subject);
      else heard.refusal = error.message;
    },
  });
  return heard;
}

test.serial(
  "a malicious node hears nothing of others, speaks for nobody else, and loses its connection when it floods or is removed",
  async (t) => {
    t.timeout(patient(300_000));
    const port = await freePort();
    const url = `nats://127.0.0.1:${port}`;
    const manager = await startManager(t, { args: ["--listen-nodes-nats", `127.0.0.1:${port}`] });
    await manager.patience();
    const victim = await startAgent(t, manager, { hostname: "victim", join: url });
    const accomplice = await startAgent(t, manager, { hostname: "evil", join: url });
    await createService(manager, sleepers("web", 2));
    await until("two running tasks", async () => (await runningTasks(manager)).length === 2);
    const [good, evil] = [identityOf(victim), identityOf(accomplice)];
    await accomplice.process.end("SIGKILL");
    const sessions = victim.sessions().length;
    const managerId = readFileSync(join(manager.dataDir, "node-id"), "utf8").trim();
    const asEvil = (present: (challenge: { nonce: string; server: string }) => object) =>
      dialRaw(t, port, good.rootPem, present);

    // Whose credentials are not accepted.
    const recorded = presentNode(evil, { nonce: "recorded", server: "at another server" });
    const token = await manager.muster("token", "worker");
    const refused: Record<string, (challenge: { nonce: string; server: string }) => object> = {
      nobody: () => ({}),
      "a user with a password": () => ({ user: "manager", pass: "x" }),
      "another's certificate": (challenge) => {
        const { signature } = presentNode(evil, challenge);
        return fields({ token: presentNode(good, challenge).token, signature });
      },
      "another's certificate, where OpenSSL sees only its own": (challenge) =>
        fields(presentNode({ ...evil, certificatePem: ` ${good.certificatePem}${evil.certificatePem}` }, challenge)),
      "a recorded signature": () => fields(recorded),
      "a signature for another server": ({ nonce }) => fields(presentNode(evil, { nonce, server: "another" })),
      "a wrong token": (challenge) => fields(presentJoiner(joinerId("x"), `${token}x`, challenge)),
      "the id of a node as a joiner's": (challenge) => fields(presentJoiner(good.nodeId, token, challenge)),
    };
    for (const [who, present] of Object.entries(refused))
      await t.throwsAsync(asEvil(present), { message: /Authorization Violation/i }, who);

    const connection = await asEvil((challenge) => fields(presentNode(evil, challenge)));
    const deniedTo: string[] = [];
    void (async () => {
      for await (const { permissionContext } of connection.status() as AsyncIterable<Refusal>)
        if (permissionContext?.operation === "publish") deniedTo.push(permissionContext.subject);
    })();
    const heard = [
      "_INBOX.>",
      ">",
      "$SYS.>",
      "muster.v1.>",
      `muster.v1.node.${good.nodeId}.>`,
      "muster.v1.node.*.down.*",
    ].map((subject) => listen(connection, subject));
    const bytes = new Uint8Array([1]);
    const forbidden = [
      frameForNode(good.nodeId, "x"),
      nodeFrame(good.nodeId, managerId, "x"),
      frameForNode(evil.nodeId, "x"),
      // Ids with wildcards.
      `muster.v1.node.*.up.${managerId}.x`,
      "muster.v1.node.>",
      `muster.v1.node.${evil.nodeId}.>`,
      "$SYS.REQ.USER.AUTH",
      "$SYS.REQ.SERVER.PING.CONNZ",
    ];
    for (const subject of forbidden) connection.publish(subject, bytes);
    await until("their refusals", () => deniedTo.length === forbidden.length);
    t.deepEqual(deniedTo.toSorted(), forbidden.toSorted());

    // An opening whose reply subject is another node's: the answer comes to the sender alone.
    const asVictim = () => dialRaw(t, port, good.rootPem, (challenge) => fields(presentNode(good, challenge)));
    const ears = await asVictim();
    const [stolen, own] = [frameForNode(good.nodeId, "stolen"), frameForNode(evil.nodeId, "replied")];
    const [atVictim, atSender] = [listen(ears, stolen), listen(connection, own)];
    await Promise.all([ears.flush(), connection.flush()]);
    const hello = LinkFrame.encode(LinkFrame.create({ kind: LinkFrame_Kind.HELLO, number: 1 }));
    connection.publish(nodeFrame(evil.nodeId, managerId, "replied"), hello, { reply: stolen });
    await until("the answer", () => atSender.subjects.length > 0);
    await ears.flush();
    t.deepEqual(atVictim, { refusal: "", subjects: [] });
    await ears.close();

    // A message larger than the server permits, from a client that does not check it.
    const large = await asEvil((challenge) => fields(presentNode(evil, challenge)));
    const permitted = large.info?.max_payload ?? 0;
    t.is(permitted, 128 * 1024);
    Object.assign(large.info ?? {}, { max_payload: 10 * permitted });
    large.publish(nodeFrame(evil.nodeId, managerId, "large"), new Uint8Array(2 * permitted));
    t.regex((await large.closed())?.message ?? "", /maximum payload/i);

    // One of the victim's connections reads nothing while much is sent to it: the server closes that one.
    const slow = await asVictim();
    slow.subscribe(`muster.v1.node.${good.nodeId}.down.*`, { callback: () => undefined });
    await slow.flush();
    socketOf(slow).pause();
    const victimsTask = (await runningTasks(manager)).find(({ nodeId }) => nodeId === good.nodeId)?.id ?? "";
    const host = `unix://${join(manager.dataDir, "control.sock")}`;
    const writing = runMuster(["--host", host, "task", "exec", "-i", victimsTask, "wc", "-c"], {
      wrap: ["sh", "-c", 'head -c 20000000 /dev/zero | "$@"', "sh"],
      timeoutMs: 120_000,
    });
    const isCut = until("the slow connection to be closed", () =>
      /Slow Consumer/.test(readFileSync(join(manager.dataDir, "nodes-nats.log"), "utf8")),
    );

    await t.throwsAsync(natsAs({ ...evil, keyPem: good.keyPem }));
    await manager.muster("task", "exec", victimsTask, "true");
    await connection.flush();
    for (const { refusal, subjects } of heard) {
      t.regex(refusal, /Permissions Violation/);
      t.deepEqual(subjects, []);
    }

    /** The calls that somebody with these credentials makes. */
    function natsAs(material: typeof noMaterial, credentials: "node" | "bootstrap" = "node") {
      const [clock, random] = [new SystemClock(), new SystemRandom()];
      return natsDialer({ clock, random, urls: [url], token }).dial("", credentials, material);
    }
    // A token holder joins, and does nothing else.
    const joining = await natsAs({ ...noMaterial, rootPem: good.rootPem }, "bootstrap");
    const limit = { timeoutMs: 30_000 };
    const root = await joining.unary(
      CAService.methods.GetRootCACertificate,
      GetRootCACertificateRequest.create(),
      limit,
    );
    t.is(Buffer.from(root.certificate).toString(), good.rootPem);
    const heartbeat = DispatcherService.methods.Heartbeat;
    await t.throwsAsync(
      joining.unary(heartbeat, HeartbeatRequest.create({ sessionId: victim.sessions()[0] ?? "" }), limit),
      {
        message: /permission denied/i,
      },
    );
    // A node does what nodes do.
    const asNode = await natsAs(evil);
    for (const channel of [joining, asNode]) {
      const { Login } = UserCertificatesService.methods;
      await t.throwsAsync(channel.unary(Login, Login.request.create(), limit), { message: /unknown method/ });
      const { ListNodes } = ControlService.methods;
      const error = await t.throwsAsync(channel.unary(ListNodes, ListNodesRequest.create(), limit));
      t.is((error as { code?: Status } | undefined)?.code, Status.UNIMPLEMENTED);
    }
    await t.throwsAsync(
      asNode.unary(heartbeat, HeartbeatRequest.create({ sessionId: victim.sessions()[0] ?? "" }), limit),
    );
    joining.close();
    t.is((await writing).stdout.trim(), "20000000", "the victim's own connection has passed everything");
    await isCut;
    socketOf(slow).resume();
    await slow.closed();

    // A flood of garbage, of frames of no link and of openings.
    let sent = 0;
    const flooded = connection.closed().then(() => "closed");
    while (!connection.isClosed() && sent < 2_000_000) {
      for (let each = 0; each < 1_000; each += 1)
        connection.publish(nodeFrame(evil.nodeId, managerId, `x${sent + each}`), bytes);
      sent += 1_000;
      await Promise.race([connection.flush().catch(() => undefined), flooded]);
    }
    t.is(await flooded, "closed");
    t.log(`closed after ${sent} messages`);
    // Not as credentials are refused: it may connect later.
    await t.throwsAsync(
      asEvil((challenge) => fields(presentNode(evil, challenge))),
      { message: /^(?!.*Authorization)/ },
    );
    t.is(victim.sessions().length, sessions, "the other node kept its session");
    await until("the other node to be READY", () => isReady(manager, "victim"));

    // A node that is removed loses its connection.
    const removed = await dialRaw(t, port, good.rootPem, (challenge) => fields(presentNode(good, challenge)));
    await manager.muster("node", "rm", "--force", "victim");
    const removedAt = performance.now();
    await removed.closed();
    t.log(`closed ${Math.round(performance.now() - removedAt)} ms after the command`);
    t.true(performance.now() - removedAt < patient(2_000));
    await t.throwsAsync(
      asEvil((challenge) => fields(presentNode(good, challenge))),
      { message: /Authorization Violation/i },
    );
  },
);

test.serial(
  "a rotation of the root ends with nodes over NATS and WebSockets that trust the new one, and have kept their sessions",
  async (t) => {
    t.timeout(patient(120_000));
    const { manager, urls } = await startWithWebSockets(t);
    const agents = await Promise.all(
      urls.map((join_, at) => startAgent(t, manager, { hostname: `far-${at}`, join: join_ })),
    );
    await createService(manager, sleepers("web", 2));
    await until("two running tasks", async () => (await runningTasks(manager)).length === 2);
    for (const { id } of await runningTasks(manager))
      t.is(
        (await manager.muster("task", "exec", id, "sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x")).length,
        200_000,
      );
    const before = await manager.muster("ca");
    await manager.muster("swarm", "ca", "--rotate", "--detach");
    for (const [at, agent] of agents.entries()) {
      const root = async (): Promise<string> => {
        const trusted = (await nodeCalled(manager, `far-${at}`)).description?.tlsInfo?.trustRoot ?? new Uint8Array();
        return Buffer.from(trusted).toString().trim();
      };
      await until("the new root on the node", async () => (await root()) !== before, 30_000);
      t.is(await root(), await manager.muster("ca"));
      t.true(await isReady(manager, `far-${at}`));
      t.is(new Set(agent.sessions()).size, 1);
    }
  },
);

/** A manager that serves nodes over NATS, and over NATS in WebSockets. */
async function startWithWebSockets(t: ExecutionContext) {
  const [port, wssPort] = [await freePort(), await freePort()];
  const listen = ["--listen-nodes-nats", `127.0.0.1:${port}`, "--listen-nodes-wss", `127.0.0.1:${wssPort}`];
  const manager = await startManager(t, { args: listen });
  return { manager, urls: [`nats://127.0.0.1:${port}`, `wss://127.0.0.1:${wssPort}`] };
}

test.serial("an agent whose token is wrong ends at once, and says so", async (t) => {
  t.timeout(patient(120_000));
  const { manager, urls } = await startWithWebSockets(t);
  const token = await manager.muster("token", "worker");
  const wrong = `${token.slice(0, -1)}${token.endsWith("a") ? "b" : "a"}`;
  for (const url of urls) {
    const at = ["--join", url, "--token", wrong];
    const { code, ms, stderr } = await runMuster(["agent", "--data-dir", tempDir(t, "agent"), ...at]);
    t.is(code, 1);
    t.regex(stderr, /A valid join token is necessary to join this cluster/);
    t.log(`ended after ${Math.round(ms)} ms over ${url}`);
    // Less than its five attempts, two seconds apart.
    t.true(ms < patient(8_000));
  }
});
