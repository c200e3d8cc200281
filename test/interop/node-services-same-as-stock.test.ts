// Calls of nodes to a manager's TLS port and their answers: the same requests with the same certificates to a stock swarmd and
// to ours.
import anyTest, { type ExecutionContext } from "ava";
import { connectTls, connectUnix } from "../../edges/grpc/client.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import {
  CAService,
  ControlService,
  DispatcherService,
  HealthService,
  IssuanceStatus_State,
  IssueNodeCertificateRequest,
  ListClustersRequest,
  LogBrokerService,
  LogsService,
  NodeCAService,
  NodeCertificateStatusRequest,
  ResourceAllocatorService,
  WatchService,
} from "../../proto/gen/messages.ts";
import { createKeyAndCsr } from "../../lib/pki/index.ts";
import { RpcError, Status, type RpcChannel } from "../../runtime/ports/rpc.ts";
import { startManager } from "../fixtures/muster.ts";
import { startSwarmd, swarmkitMissing } from "../fixtures/swarmkit.ts";

const test = swarmkitMissing() === null ? anyTest.serial : anyTest.serial.skip;

type Json = Readonly<Record<string, unknown>>;
type AnyMethod = MethodDescriptor<unknown, unknown>;

const timeoutMs = 20_000;

/** One manager and its callers: one without a certificate, and a worker that joined. */
interface Side {
  readonly tokens: { readonly worker: string; readonly manager: string };
  readonly nodeId: string;
  readonly callers: { readonly anonymous: RpcChannel; readonly worker: RpcChannel };
}

async function sideAt(t: ExecutionContext, port: number, socket: string): Promise<Side> {
  const local = await connectUnix(socket);
  const { clusters } = await local.unary(ControlService.methods.ListClusters, ListClustersRequest.create({}), {
    timeoutMs,
  });
  local.close();
  const tokens = clusters[0]?.rootCa?.joinTokens;
  if (tokens == null) throw new Error("the cluster has no tokens");
  const open = async (identity: object = {}): Promise<RpcChannel> => {
    const channel = await connectTls({ host: "127.0.0.1", port, serverName: "swarm-manager", timeoutMs, ...identity });
    t.teardown(() => channel.close());
    return channel;
  };
  const anonymous = await open();
  const { csrPem, keyPem } = await createKeyAndCsr();
  const { nodeId } = await anonymous.unary(
    NodeCAService.methods.IssueNodeCertificate,
    IssueNodeCertificateRequest.create({ csr: new TextEncoder().encode(csrPem), token: tokens.worker }),
    { timeoutMs },
  );
  const { status, certificate } = await anonymous.unary(
    NodeCAService.methods.NodeCertificateStatus,
    NodeCertificateStatusRequest.create({ nodeId }),
    { timeoutMs },
  );
  t.is(status?.state, IssuanceStatus_State.ISSUED);
  const certificatePem = new TextDecoder().decode(certificate?.certificate);
  return { tokens, nodeId, callers: { anonymous, worker: await open({ certificatePem, keyPem }) } };
}

/** `OK`, or the status and its text, with the node's own id replaced by a name. */
async function ask(side: Side, who: keyof Side["callers"], method: AnyMethod, json: Json): Promise<string> {
  const said = (error: RpcError): string => {
    const code = Object.entries(Status).find(([, value]) => value === error.code)?.[0] ?? String(error.code);
    return `${code} ${error.message.replaceAll(side.nodeId, "<node>").replaceAll(/organization: \w+/g, "organization: <ours>")}`;
  };
  const channel = side.callers[who];
  const request = method.request.fromJson(json);
  if (method.responseStream) {
    return new Promise((resolve) => {
      const stream = channel.serverStream(method, request, {
        onMessage: () => {
          resolve("OK");
          stream.cancel();
        },
        onEnd: (error) => resolve(error === null ? "OK" : said(error)),
      });
    });
  }
  try {
    await channel.unary(method, request, { timeoutMs });
    return "OK";
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    return said(error);
  }
}

interface Step {
  readonly who: keyof Side["callers"];
  readonly service: { readonly methods: object };
  readonly method: string;
  readonly request: (side: Side) => Json;
  readonly differs?: { readonly stock: RegExp; readonly ours: RegExp };
}

const csr = Buffer.from("no certificate request").toString("base64");
const session = { sessionId: "not-a-session" };

const steps: readonly Step[] = [
  { who: "anonymous", service: CAService, method: "GetRootCACertificate", request: () => ({}) },
  { who: "anonymous", service: CAService, method: "GetUnlockKey", request: () => ({}) },
  { who: "worker", service: CAService, method: "GetUnlockKey", request: () => ({}) },
  { who: "anonymous", service: NodeCAService, method: "IssueNodeCertificate", request: () => ({}) },
  {
    who: "anonymous",
    service: NodeCAService,
    method: "IssueNodeCertificate",
    request: () => ({ csr, token: "SWMTKN-1-x-y" }),
  },
  { who: "anonymous", service: NodeCAService, method: "IssueNodeCertificate", request: () => ({ csr }) },
  { who: "anonymous", service: NodeCAService, method: "NodeCertificateStatus", request: () => ({}) },
  { who: "anonymous", service: NodeCAService, method: "NodeCertificateStatus", request: () => ({ nodeId: "nobody" }) },
  ...(["Heartbeat", "UpdateTaskStatus", "Session", "Assignments", "Tasks", "UpdateVolumeStatus"] as const).map(
    (method): Step => ({ who: "anonymous", service: DispatcherService, method, request: () => ({}) }),
  ),
  ...(["Heartbeat", "UpdateTaskStatus", "Assignments", "Tasks", "UpdateVolumeStatus"] as const).map((method): Step => ({
    who: "worker",
    service: DispatcherService,
    method,
    request: () => session,
  })),
  { who: "anonymous", service: ResourceAllocatorService, method: "AttachNetwork", request: () => ({}) },
  {
    who: "worker",
    service: ResourceAllocatorService,
    method: "AttachNetwork",
    request: () => ({ config: { target: "nothing" }, containerId: "c" }),
  },
  { who: "worker", service: ResourceAllocatorService, method: "DetachNetwork", request: () => ({}) },
  {
    who: "worker",
    service: ResourceAllocatorService,
    method: "DetachNetwork",
    request: () => ({ attachmentId: "nothing" }),
  },
  { who: "anonymous", service: LogBrokerService, method: "ListenSubscriptions", request: () => ({}) },
  { who: "anonymous", service: HealthService, method: "Check", request: () => ({ service: "Raft" }) },
  { who: "worker", service: HealthService, method: "Check", request: () => ({ service: "Raft" }) },
];

test("an anonymous caller and a worker get a stock manager's answers", async (t) => {
  const [manager, swarmd] = await Promise.all([startManager(t), startSwarmd(t)]);
  const ours = await sideAt(t, manager.port, `${manager.dataDir}/control.sock`);
  const stock = await sideAt(t, swarmd.port, swarmd.plainSocket);
  const different: string[] = [];
  for (const { who, service, method: name, request, differs } of steps) {
    const method = (service.methods as Readonly<Record<string, AnyMethod>>)[name] as AnyMethod;
    const expected = await ask(stock, who, method, request(stock));
    const answer = await ask(ours, who, method, request(ours));
    const isAsMeant =
      differs === undefined ? answer === expected : differs.stock.test(expected) && differs.ours.test(answer);
    if (!isAsMeant)
      different.push(`${who}: ${name} ${JSON.stringify(request(ours))}`, `  stock: ${expected}`, `  ours:  ${answer}`);
  }
  t.deepEqual(different, []);
});

test("Control, Watch and Logs reject callers other than managers in a stock manager's words", async (t) => {
  const [manager, swarmd] = await Promise.all([startManager(t), startSwarmd(t)]);
  const ours = await sideAt(t, manager.port, `${manager.dataDir}/control.sock`);
  const stock = await sideAt(t, swarmd.port, swarmd.plainSocket);
  const every = [ControlService, WatchService, LogsService].flatMap(
    ({ methods }) => Object.values(methods) as unknown as readonly AnyMethod[],
  );
  t.true(every.length > 40);
  for (const method of every) {
    for (const who of ["anonymous", "worker"] as const) {
      const answer = await ask(ours, who, method, {});
      t.regex(answer, /^PERMISSION_DENIED /, `${method.path} of ${who}`);
      t.is(answer, await ask(stock, who, method, {}), `${method.path} of ${who}`);
    }
  }
});
