// Bad input from a user or a peer: a command reports it in one sentence, a call gets the right status, and nothing changes.
import { writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { connectTls } from "../../edges/grpc/client.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import {
  ControlService,
  CreateServiceRequest,
  DispatcherService,
  HeartbeatRequest,
  IssuanceStatus_State,
  IssueNodeCertificateRequest,
  ListClustersRequest,
  ListNodesRequest,
  ListServicesRequest,
  ListTasksRequest,
  NodeCAService,
  NodeCertificateStatusRequest,
  NodeDescription,
  NodeStatus_State,
  SessionRequest,
  UpdateServiceRequest,
  Version,
  type ServiceSpec,
} from "../../proto/gen/messages.ts";
import { createKeyAndCsr } from "../../lib/pki/index.ts";
import { RpcError, Status, type RpcChannel } from "../../runtime/ports/rpc.ts";
import { ask, createService, nodes, sleepers } from "../fixtures/control-client.ts";
import { MusterProcess, runMuster, startManager, tempDir, type Ran, type TestManager } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { processesOf } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const control = ControlService.methods;
const dispatcher = DispatcherService.methods;
const nodeCa = NodeCAService.methods;
const encoder = new TextEncoder();

/** Exit status 1 and one sentence, preceded at most by a service's log lines, none of them an error. */
function saysInOneSentence(t: ExecutionContext, ran: Ran, sentence: RegExp): void {
  const lines = ran.stderr.trimEnd().split("\n");
  const last = lines.pop() ?? "";
  t.is(ran.code, 1, ran.stderr);
  t.regex(last, /^muster: /);
  t.regex(last, sentence);
  for (const line of lines) t.true((JSON.parse(line) as { level: number }).level < 50, line);
}

test.serial("a failing command says why in one sentence and exits with status 1", async (t) => {
  t.timeout(patient(300_000));
  const folder = tempDir(t, "bad");
  const file = join(folder, "file");
  writeFileSync(file, "");
  const server = createServer().listen(0, "127.0.0.1");
  t.teardown(() => server.close());
  await until("the port", () => server.listening);
  const taken = `127.0.0.1:${(server.address() as { port: number }).port}`;
  const listen = `127.0.0.1:${await freePort()}`;
  const env = { XDG_STATE_HOME: join(folder, "state") };
  const dir = (name: string): string => join(folder, name);

  const run = (args: readonly string[], more: Readonly<Record<string, string>> = {}): Promise<Ran> =>
    runMuster(args, { timeoutMs: 120_000, env: { ...env, ...more } });
  const manager = (name: string, at: string, ...args: readonly string[]): Promise<Ran> =>
    run(["manager", "--data-dir", dir(name), "--listen", at, ...args]);
  const agent = (name: string, at: string): Promise<Ran> =>
    run(["agent", "--data-dir", dir(name), "--join", at, "--token", "x"]);
  const noServer = { PATH: "/nonexistent", MUSTER_NATS_SERVER: "nats-server" };

  const cases: readonly [RegExp, () => Promise<Ran>][] = [
    [/is in use/, () => manager("taken", taken)],
    [/is in use/, () => run(["start", "--once", "--data-dir", dir("start"), "--listen", taken])],
    [/is in use .* with --listen-nodes-nats$/, () => manager("nodes", listen, "--listen-nodes-nats", taken)],
    ...["--listen-nodes-wss", "--listen-leaf-nodes"].map((flag): (typeof cases)[number] => [
      new RegExp(`is in use .* with ${flag}$`),
      async () => manager(flag, listen, "--listen-nodes-nats", `127.0.0.1:${await freePort()}`, flag, taken),
    ]),
    [/not an address of this machine/, () => manager("foreign", "192.0.2.7:2377")],
    [/cannot write the data dir .*file .*--data-dir/, () => manager("file", listen)],
    [/cannot write the data dir .*file .*--data-dir/, () => run(["up", "--data-dir", file, "--listen", listen])],
    [/cannot write the data dir .*file .*--data-dir/, () => run(["start", "--data-dir", file, "--listen", listen])],
    [/cannot write the data dir .*file .*--data-dir/, () => agent("file", listen)],
    [
      /no nats-server at nats-server: correct M/,
      () => run(["up", "--data-dir", dir("up"), "--listen", listen], noServer),
    ],
    [
      /no nats-server answers at nowhere\.invalid:4222/,
      () => manager("nats", listen, "--nats", "nats://nowhere.invalid"),
    ],
    [/cannot connect to the manager at \/nowhere\.sock/, () => run(["--host", "unix:///nowhere.sock", "node", "ls"])],
    [/invalid join token/, () => agent("token", listen)],
    [/invalid address "host:port"/, () => agent("address", "host:port")],
  ];
  // Two at a time: most of them wait for something.
  const rest = cases.values();
  const work = async (): Promise<void> => {
    for (const [sentence, ran] of rest) saysInOneSentence(t, await ran(), sentence);
  };
  await Promise.all([work(), work()]);
  t.deepEqual(processesOf(folder), []);
});

(process.getuid?.() === 0 ? test.serial : test.serial.skip)(
  "without a nats-server on the machine, up explains how to get one",
  async (t) => {
    t.timeout(patient(300_000));
    const empty = tempDir(t, "empty");
    // For this one command, an empty folder hides the places where it may be.
    const cover = `for place in /usr/sbin /usr/local/sbin; do mount --bind ${empty} $place; done; exec "$@"`;
    const ran = await runMuster(["up", "--data-dir", tempDir(t, "up"), "--listen", `127.0.0.1:${await freePort()}`], {
      env: { XDG_CACHE_HOME: empty },
      wrap: ["unshare", "-m", "sh", "-c", cover, "sh", "env", "PATH=/nonexistent"],
    });
    saysInOneSentence(t, ran, /nats-server was not found: run 'npm run setup' where/);
  },
);

test.serial("an invalid command line exits with status 125", async (t) => {
  for (const args of [
    ["nonsense"],
    ["node", "nonsense"],
    ["manager"],
    ["service", "create", "--nonsense"],
    ["start", "--port", "x"],
    ["manager", "--data-dir", "/nowhere", "--join", "192.0.2.1:2377"],
    ["manager", "--data-dir", "/nowhere", "--nats", "http://192.0.2.1"],
    ["swarm", "init"],
  ]) {
    const { code, stderr } = await runMuster(args);
    t.is(code, 125, args.join(" "));
    t.regex(stderr, /^muster: [^\n]+\n$/);
  }
});

interface Worker {
  readonly nodeId: string;
  readonly channel: RpcChannel;
}

async function anonymous(t: ExecutionContext, manager: TestManager): Promise<RpcChannel> {
  const channel = await connectTls({
    host: "127.0.0.1",
    port: manager.port,
    rootPem: await manager.muster("ca"),
    serverName: "swarm-ca",
    timeoutMs: 5_000,
  });
  t.teardown(() => channel.close());
  return channel;
}

/** A node with its certificate and a connection that uses it. */
async function worker(t: ExecutionContext, manager: TestManager): Promise<Worker> {
  const newcomer = await anonymous(t, manager);
  const { keyPem, csrPem } = await createKeyAndCsr();
  const token = await manager.muster("token", "worker");
  const request = IssueNodeCertificateRequest.create({ csr: encoder.encode(csrPem), token });
  const { nodeId } = await newcomer.unary(nodeCa.IssueNodeCertificate, request);
  const { status, certificate } = await newcomer.unary(
    nodeCa.NodeCertificateStatus,
    NodeCertificateStatusRequest.create({ nodeId }),
  );
  t.is(status?.state, IssuanceStatus_State.ISSUED);
  const channel = await connectTls({
    host: "127.0.0.1",
    port: manager.port,
    rootPem: await manager.muster("ca"),
    serverName: "swarm-manager",
    certificatePem: new TextDecoder().decode(certificate?.certificate),
    keyPem,
    timeoutMs: 5_000,
  });
  t.teardown(() => channel.close());
  return { nodeId, channel };
}

/** The same method, with a request of raw bytes. */
function raw<Response>(method: MethodDescriptor<unknown, Response>): MethodDescriptor<Uint8Array, Response> {
  return { ...method, request: { ...method.request, encode: (bytes: Uint8Array) => bytes } } as never;
}

async function refused(
  t: ExecutionContext,
  call: Promise<unknown>,
  code: Status,
  text: RegExp | string,
): Promise<void> {
  const error = await t.throwsAsync(call, { instanceOf: RpcError });
  if (error === undefined) return;
  t.is(error.code, code, error.message);
  if (typeof text === "string") t.is(error.message, text);
  else t.regex(error.message, text);
}

/** A service with -1 replicas as Go sends it: 2^64 - 1, which no double can represent. 2^63 has a varint of the same length. */
function minusOne(): Uint8Array {
  const bytes = CreateServiceRequest.encode(CreateServiceRequest.create({ spec: sleepers("less", 2 ** 63) }));
  const hex = Buffer.from(bytes).toString("hex");
  return Buffer.from(hex.replace(`${"80".repeat(9)}01`, `${"ff".repeat(9)}01`), "hex");
}

/** All objects that Control lists, with their versions. */
async function everything(manager: TestManager): Promise<unknown> {
  return [
    await ask(manager, control.ListServices, ListServicesRequest.create({})),
    await ask(manager, control.ListTasks, ListTasksRequest.create({})),
    await ask(manager, control.ListNodes, ListNodesRequest.create({})),
    await ask(manager, control.ListClusters, ListClustersRequest.create({})),
  ].map((listed) => JSON.stringify(listed));
}

test.serial("calls with bad input get the right status and change nothing", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  const newcomer = await anonymous(t, manager);
  const { channel } = await worker(t, manager);
  const web = await createService(manager, sleepers("web", 0));
  const before = await everything(manager);

  // Certificates.
  const token = await manager.muster("token", "worker");
  const wrong = `${token.slice(0, -1)}${token.endsWith("0") ? "1" : "0"}`;
  const { csrPem } = await createKeyAndCsr();
  const issue = (fields: Partial<IssueNodeCertificateRequest>): Promise<unknown> =>
    newcomer.unary(nodeCa.IssueNodeCertificate, IssueNodeCertificateRequest.create(fields));
  const tokenText = "A valid join token is necessary to join this cluster";
  await refused(t, issue({ csr: encoder.encode(csrPem), token: wrong }), Status.INVALID_ARGUMENT, tokenText);
  await refused(
    t,
    issue({ csr: encoder.encode("no request"), token }),
    Status.INVALID_ARGUMENT,
    /^invalid certificate request: /,
  );
  await refused(t, issue({ token }), Status.INVALID_ARGUMENT, "InvalidArgument");
  const statusOf = (nodeId: string): Promise<unknown> =>
    newcomer.unary(nodeCa.NodeCertificateStatus, NodeCertificateStatusRequest.create({ nodeId }));
  await refused(t, statusOf("unknown"), Status.NOT_FOUND, "NotFound");

  // Permissions: who may call what.
  const create = CreateServiceRequest.create({ spec: sleepers("mine", 1) });
  await refused(
    t,
    channel.unary(control.CreateService, create),
    Status.PERMISSION_DENIED,
    /not part of OUs: \[swarm-manager\]/,
  );
  await refused(
    t,
    newcomer.unary(control.CreateService, create),
    Status.PERMISSION_DENIED,
    /no client certificates in request/,
  );
  const beat = HeartbeatRequest.create({ sessionId: "unknown" });
  await refused(
    t,
    newcomer.unary(dispatcher.Heartbeat, beat),
    Status.PERMISSION_DENIED,
    /no client certificates in request/,
  );
  await refused(t, channel.unary(dispatcher.Heartbeat, beat), Status.NOT_FOUND, "node not registered");

  // Bytes that are not a message, and too many of them; the connection keeps serving.
  const malformed = new Uint8Array([0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]);
  await refused(t, channel.unary(raw(dispatcher.Heartbeat), malformed), Status.INVALID_ARGUMENT, /^malformed request/);
  await refused(t, ask(manager, raw(control.CreateService), malformed), Status.INVALID_ARGUMENT, /^malformed request/);
  const large = new Uint8Array(80 * 1024 * 1024);
  await refused(
    t,
    channel.unary(raw(dispatcher.Heartbeat), large),
    Status.RESOURCE_EXHAUSTED,
    /larger than max|too large|longer than/,
  );
  await refused(
    t,
    ask(manager, raw(control.CreateService), large),
    Status.RESOURCE_EXHAUSTED,
    /larger than max|too large|longer than/,
  );
  await refused(t, channel.unary(dispatcher.Heartbeat, beat), Status.NOT_FOUND, "node not registered");

  // Services.
  const negative = "Number of replicas must be non-negative";
  const creating = (spec: ServiceSpec): Promise<unknown> =>
    ask(manager, control.CreateService, CreateServiceRequest.create({ spec }));
  await refused(
    t,
    creating(sleepers("no name", 1)),
    Status.INVALID_ARGUMENT,
    "name must be valid as a DNS name component",
  );
  await refused(t, creating(sleepers("", 1)), Status.INVALID_ARGUMENT, "meta: name must be provided");
  await refused(t, creating(sleepers("less", 2 ** 63)), Status.INVALID_ARGUMENT, negative);
  await refused(t, ask(manager, raw(control.CreateService), minusOne()), Status.INVALID_ARGUMENT, negative);
  await refused(t, creating(sleepers("web", 1)), Status.ALREADY_EXISTS, /^name conflicts with an existing object/);
  const update = { serviceId: web.id, serviceVersion: Version.create({ index: 1 }), spec: sleepers("web", 1) };
  await refused(
    t,
    ask(manager, control.UpdateService, UpdateServiceRequest.create(update)),
    Status.ABORTED,
    "update out of sequence",
  );
  const unknown = UpdateServiceRequest.create({ ...update, serviceId: "unknown" });
  await refused(t, ask(manager, control.UpdateService, unknown), Status.NOT_FOUND, "service unknown not found");

  t.deepEqual(await everything(manager), before);

  // The same through the command line.
  const host = ["--host", `unix://${manager.dataDir}/control.sock`];
  const run = (...args: readonly string[]): Promise<Ran> => runMuster([...host, ...args]);
  saysInOneSentence(
    t,
    await run("service", "create", "--name", "no name", "bb:1"),
    /name must be valid as a DNS name component/,
  );
  saysInOneSentence(
    t,
    await run("service", "create", "--name", "web", "bb:1"),
    /name conflicts with an existing object/,
  );
  saysInOneSentence(t, await run("service", "scale", "web=-1"), /non-negative|negative|whole number/);
  saysInOneSentence(t, await run("service", "inspect", "nothing"), /no such service: nothing/);
  const second = ["manager", "--data-dir", manager.dataDir, "--listen", `127.0.0.1:${await freePort()}`];
  saysInOneSentence(
    t,
    await runMuster(second),
    new RegExp(`is in use by process ${manager.process.child.pid}: stop that process`),
  );
  const joining = ["agent", "--data-dir", tempDir(t, "agent"), "--join", manager.address, "--token", wrong];
  saysInOneSentence(t, await runMuster(joining), /A valid join token is necessary to join this cluster/);
  t.deepEqual(await everything(manager), before);
});

test.serial("a session that is not the node's current one gets SwarmKit's error", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  const { nodeId, channel } = await worker(t, manager);
  const heartbeat = (sessionId: string): Promise<unknown> =>
    channel.unary(dispatcher.Heartbeat, HeartbeatRequest.create({ sessionId }));
  let sessionId = "";
  const session = channel.serverStream(
    dispatcher.Session,
    SessionRequest.create({ description: NodeDescription.create({ hostname: "scripted" }) }),
    { onMessage: (message) => (sessionId = message.sessionId), onEnd: () => {} },
  );
  await until("a session", () => sessionId !== "");
  await heartbeat(sessionId);
  await refused(t, heartbeat("unknown"), Status.INVALID_ARGUMENT, "session invalid");
  await refused(t, heartbeat(""), Status.INVALID_ARGUMENT, "session invalid");

  // Another node's session id fails too.
  const other = await worker(t, manager);
  const foreign = other.channel.unary(dispatcher.Heartbeat, HeartbeatRequest.create({ sessionId }));
  await refused(t, foreign, Status.NOT_FOUND, "node not registered");

  session.cancel();
  const state = async (): Promise<NodeStatus_State | undefined> =>
    (await nodes(manager)).find(({ id }) => id === nodeId)?.status?.state;
  await until("DOWN", async () => (await state()) === NodeStatus_State.DOWN);
  // DOWN reaches the log a moment before the session that wrote it ends.
  let refusal: unknown = null;
  await until("the session to end", async () => {
    refusal = await heartbeat(sessionId).then(
      () => null,
      (error: unknown) => error,
    );
    return refusal !== null;
  });
  t.like(refusal, { code: Status.NOT_FOUND, message: "node not registered" });
  t.is(await state(), NodeStatus_State.DOWN);
});

test.serial("a manager that waits for its NATS exits at the first signal", async (t) => {
  // It accepts connections and stays silent.
  let isAsked = false;
  const mute = createServer((socket) => {
    isAsked = true;
    socket.on("error", () => {});
  });
  await new Promise<void>((resolve) => mute.listen(0, "127.0.0.1", resolve));
  t.teardown(() => mute.close());
  const { port } = mute.address() as { port: number };
  const dataDir = tempDir(t, "waiting");
  const nats = `nats://127.0.0.1:${port}`;
  const manager = new MusterProcess(dataDir, [
    "manager",
    "--data-dir",
    dataDir,
    "--listen",
    `127.0.0.1:${await freePort()}`,
    "--nats",
    nats,
  ]);
  t.teardown(() => manager.end("SIGKILL"));
  await until("the manager to look for its NATS", () => isAsked);
  t.is(await manager.end("SIGTERM"), 0, manager.output);
  t.regex(manager.output, /stopped before the start completed/);
});
