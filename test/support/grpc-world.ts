/** A gRPC server with scripted handlers, and clients of it with certificates of any kind. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { trace } from "@opentelemetry/api";
import type { ExecutionContext } from "ava";
import { createAdmission, type AdmissionLimits } from "../../edges/grpc/admission/admission.ts";
import { connectTls } from "../../edges/grpc/client.ts";
import { createGrpcServer, type Credentials } from "../../edges/grpc/server.ts";
import {
  AssignmentsMessage,
  CAService,
  ControlService,
  DispatcherService,
  GetRootCACertificateResponse,
  GetUnlockKeyResponse,
  HeartbeatResponse,
  ListNodesResponse,
  LogBrokerService,
  PublishLogsResponse,
  SessionMessage,
  UpdateTaskStatusResponse,
  UpdateVolumeStatusResponse,
} from "../../proto/gen/messages.ts";
import { createKeyAndCsr, createRoot, issue, issueUserCertificate, type NodeRoleName } from "../../lib/pki/index.ts";
import { currentCause } from "../../runtime/observation/cause.ts";
import type { Telemetry } from "../../runtime/ports/index.ts";
import {
  RpcError,
  Status,
  type CallContext,
  type RpcChannel,
  type ServiceHandlers,
  type Sink,
} from "../../runtime/ports/rpc.ts";
import { SystemClock } from "../../runtime/system/clock.ts";

export const { Heartbeat, Session, Assignments, Tasks, UpdateTaskStatus } = DispatcherService.methods;
export const { GetRootCACertificate, GetUnlockKey } = CAService.methods;
export const { ListNodes } = ControlService.methods;
export const { PublishLogs } = LogBrokerService.methods;
export const organization = "org1";

type Root = Awaited<ReturnType<typeof createRoot>>;

interface IdentityOptions {
  readonly root: Root;
  readonly nodeId?: string;
  readonly role?: NodeRoleName;
  readonly organization?: string;
  readonly nowMs?: number;
}

export async function identityOf(options: IdentityOptions) {
  const { keyPem, csrPem } = await createKeyAndCsr();
  const certificatePem = await issue({
    csrPem,
    rootCertificatePem: options.root.certificatePem,
    rootKeyPem: options.root.keyPem,
    nodeId: options.nodeId ?? "w1",
    role: options.role ?? "swarm-worker",
    organization: options.organization ?? organization,
    validitySeconds: 3_600,
    nowMs: options.nowMs ?? Date.now(),
  });
  return { certificatePem, keyPem };
}

interface UserIdentityOptions {
  readonly root: Root;
  readonly name: string;
  readonly mark: string;
  readonly organization?: string;
  readonly nowMs?: number;
  readonly validitySeconds?: number;
}

/** A user's certificate and its key. */
export async function userIdentityOf(options: UserIdentityOptions) {
  const { keyPem, csrPem } = await createKeyAndCsr();
  const certificatePem = issueUserCertificate({
    csrPem,
    rootCertificatePem: options.root.certificatePem,
    rootKeyPem: options.root.keyPem,
    name: options.name,
    mark: options.mark,
    organization: options.organization ?? organization,
    validitySeconds: options.validitySeconds ?? 3_600,
    nowMs: options.nowMs ?? Date.now(),
    intermediatesPem: "",
  });
  return { certificatePem, keyPem };
}

export function telemetry() {
  const counts = new Map<string, number>();
  const errors: object[] = [];
  const ignore = () => {};
  const ports: Telemetry = {
    tracer: trace.getTracer("test"),
    metrics: {
      counter: (name) => ({
        add: (value = 1, labels = {}) => {
          const key = [name, ...Object.values(labels)].join(" ");
          counts.set(key, (counts.get(key) ?? 0) + value);
        },
      }),
      gauge: () => ({ set: ignore }),
      histogram: () => ({ observe: ignore }),
    },
    log: { debug: ignore, info: ignore, warn: ignore, error: (fields) => void errors.push(fields) },
  };
  return { ports, counts, errors };
}

/** Handlers whose behaviour the session id, or the number of messages, selects, and which record their calls. */
function servants() {
  const calls: CallContext[] = [];
  const sinks: Sink<unknown>[] = [];
  const aborted: string[] = [];
  const seen: string[] = [];
  /** The causes that handlers find when they continue after a wait. */
  const causes: string[] = [];
  const release: (() => void)[] = [];
  function remember(call: CallContext, name: string): void {
    calls.push(call);
    call.signal.addEventListener("abort", () => aborted.push(name));
  }
  const dispatcher: ServiceHandlers<typeof DispatcherService> = {
    Heartbeat: async (request, call) => {
      remember(call, "heartbeat");
      switch (request.sessionId) {
        case "refuse":
          throw new RpcError(Status.INVALID_ARGUMENT, "session invalid: 100% of Grün");
        case "break":
          throw new Error("secret detail");
        case "wait":
          await new Promise<void>((resolve) => release.push(resolve));
          causes.push(currentCause().call);
      }
      return HeartbeatResponse.create();
    },
    UpdateTaskStatus: (_request, call) => {
      calls.push(call);
      return UpdateTaskStatusResponse.create();
    },
    UpdateVolumeStatus: () => UpdateVolumeStatusResponse.create(),
    Session: (request, sink, call) => {
      if (request.sessionId === "refuse") throw new RpcError(Status.UNKNOWN, "node not found");
      remember(call, "session");
      sinks.push(sink as Sink<unknown>);
      sink.write(SessionMessage.create({ sessionId: "s1" }));
      if (request.sessionId === "short") sink.end();
      if (request.sessionId === "abort") sink.end(new RpcError(Status.ABORTED, "node must disconnect"));
    },
    Assignments: (request, sink, call) => {
      remember(call, "assignments");
      sinks.push(sink as Sink<unknown>);
      for (let at = 0; at < Number(request.sessionId); at += 1)
        sink.write(AssignmentsMessage.create({ resultsIn: String(at).repeat(100) }));
    },
    Tasks: () => {},
  };
  const ca: ServiceHandlers<typeof CAService> = {
    GetRootCACertificate: (_request, call) => {
      calls.push(call);
      return GetRootCACertificateResponse.create({ certificate: Buffer.from("root") });
    },
    GetUnlockKey: () => GetUnlockKeyResponse.create(),
  };
  const logBroker: ServiceHandlers<typeof LogBrokerService> = {
    ListenSubscriptions: () => {},
    PublishLogs: async (messages, call) => {
      remember(call, "logs");
      for await (const message of messages) {
        seen.push(message.subscriptionId);
        if (message.subscriptionId === "stop") break;
        if (message.subscriptionId !== "wait") continue;
        await new Promise<void>((resolve) => release.push(resolve));
        causes.push(currentCause().call);
      }
      return PublishLogsResponse.create();
    },
  };
  return { calls, causes, sinks, aborted, seen, release, dispatcher, ca, logBroker };
}

interface WorldOptions {
  readonly removed?: ReadonlySet<string>;
  readonly messageBytesMax?: number;
  /** Overrides limits on its peers. */
  readonly limits?: Partial<AdmissionLimits>;
}

export async function world(t: ExecutionContext, options: WorldOptions = {}) {
  const root = await createRoot();
  const { ports, counts, errors } = telemetry();
  const handlers = servants();
  const server = createGrpcServer({
    telemetry: ports,
    admission: createAdmission(ports, options.limits),
    ...(options.messageBytesMax === undefined ? {} : { messageBytesMax: options.messageBytesMax }),
  });
  server.add(DispatcherService, handlers.dispatcher);
  server.add(CAService, handlers.ca);
  server.add(LogBrokerService, handlers.logBroker);
  // Only one method of Control matters here.
  const control = Object.fromEntries(
    Object.keys(ControlService.methods).map((name) => [name, () => ListNodesResponse.create()]),
  );
  server.add(ControlService, control as unknown as ServiceHandlers<typeof ControlService>);
  const manager = await identityOf({ root, nodeId: "m1", role: "swarm-manager" });
  const credentials: Credentials = { ...manager, rootPem: root.certificatePem };
  const { port } = await server.listenTls({
    host: "127.0.0.1",
    port: 0,
    credentials,
    organization: () => organization,
    isRemoved: (nodeId) => options.removed?.has(nodeId) ?? false,
    onChange: () => ({ unsubscribe: () => {} }),
    clock: new SystemClock(),
  });
  t.teardown(() => server.close(0));
  async function channel(
    identity: { certificatePem: string; keyPem: string } | null,
    rootPem = root.certificatePem,
  ): Promise<RpcChannel> {
    const opened = await connectTls({
      host: "127.0.0.1",
      port,
      rootPem,
      serverName: "swarm-manager",
      timeoutMs: 5_000,
      ...identity,
    });
    t.teardown(() => opened.close());
    return opened;
  }
  return {
    root,
    manager,
    server,
    port,
    counts,
    errors,
    handlers,
    channel,
    worker: async () => channel(await identityOf({ root })),
  };
}

export function temporaryFolder(t: ExecutionContext): string {
  const path = mkdtempSync(join(tmpdir(), "muster-grpc-"));
  t.teardown(() => rmSync(path, { recursive: true }));
  return path;
}

export async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 60_000;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error("the condition never held");
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

export async function refused(
  t: ExecutionContext,
  call: Promise<unknown>,
  code: Status,
  message?: string | RegExp,
): Promise<void> {
  await t.throwsAsync(call, { instanceOf: RpcError, code, ...(message === undefined ? {} : { message }) } as never);
}

/** A server stream's messages, and its outcome once it has ended. */
export function collect<Message>() {
  const messages: Message[] = [];
  let finish: (error: RpcError | null) => void;
  const ended = new Promise<RpcError | null>((resolve) => (finish = resolve));
  return {
    messages,
    ended,
    receiver: {
      onMessage: (message: Message) => void messages.push(message),
      onEnd: (error: RpcError | null) => finish(error),
    },
  };
}

export const denied = "Permission denied: unauthorized peer role: rpc error: code = PermissionDenied desc = ";
