/**
 * A gRPC server with every method of the permission table, each of which answers only when told to, and callers of every kind.
 * A caller's role can change during its calls.
 */
import type { ExecutionContext } from "ava";
import { createAdmission, type AdmissionLimits } from "../../edges/grpc/admission/admission.ts";
import { connectTls, connectUnix } from "../../edges/grpc/client.ts";
import { accessByPath, type Access } from "../../edges/grpc/roles.ts";
import { createGrpcServer } from "../../edges/grpc/server.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import * as messages from "../../proto/gen/messages.ts";
import type { Role } from "../../runtime/user-roles.ts";
import { createRoot } from "../../lib/pki/index.ts";
import type { Clock, TimerHandle } from "../../runtime/ports/index.ts";
import type { CallContext, Peer, RpcChannel, RpcError, ServiceHandlers, Sink } from "../../runtime/ports/rpc.ts";
import { identityOf, organization, telemetry, temporaryFolder } from "./grpc-world.ts";

type AnyMethod = MethodDescriptor<unknown, unknown>;
type AnyService = { readonly name: string; readonly methods: Readonly<Record<string, AnyMethod>> };

/** Every service with a method in the access table of `roles.ts`. */
const services: readonly AnyService[] = Object.entries(messages)
  .filter(([name]) => name.endsWith("Service"))
  .map(([, service]) => service as unknown as AnyService)
  .filter((service) => Object.values(service.methods ?? {}).some(({ path }) => accessByPath.has(path)));

export const methods: readonly (AnyMethod & { readonly access: Access })[] = services.flatMap((service) =>
  Object.values(service.methods).map((method) => ({ ...method, access: accessByPath.get(method.path) as Access })),
);

/** The machine's time, advanced by the test: everything due by then is called. */
class SteppedClock implements Clock {
  #aheadMs = 0;
  #elapsedMs = 0;
  readonly #timers = new Map<object, { readonly atMs: number; readonly callback: () => void }>();

  now(): number {
    return Date.now() + this.#aheadMs;
  }

  monotonic(): number {
    return performance.now() + this.#aheadMs;
  }

  setTimeout(callback: () => void, ms: number): TimerHandle {
    const handle = {} as TimerHandle;
    this.#timers.set(handle, { atMs: this.#elapsedMs + ms, callback });
    return handle;
  }

  clearTimeout(timer: TimerHandle): void {
    this.#timers.delete(timer);
  }

  soon(callback: () => void): void {
    setImmediate(callback);
  }

  /** Advances time. */
  pass(ms: number): void {
    this.#elapsedMs += ms;
    this.#aheadMs += ms;
    for (const [handle, { atMs, callback }] of this.#timers) {
      if (atMs > this.#elapsedMs) continue;
      this.#timers.delete(handle);
      callback();
    }
  }

  /** Steps the clock by this much. */
  set(ms: number): void {
    this.#aheadMs += ms;
  }

  get waiting(): number {
    return this.#timers.size;
  }
}

/** How long a call that must end may take, in milliseconds. */
const endedMsMax = 60_000;

/** A call's outcome as its caller sees it; `open` while it is in progress. */
export interface Call {
  readonly path: string;
  readonly access: Access;
  readonly ended: Promise<RpcError | null>;
  outcome: RpcError | null | "open";
  /** Messages received on a stream. */
  received: number;
}

/** Empty, or the request that needs the lowest role where the role depends on the request. */
function requestOf({ path, request }: AnyMethod): unknown {
  const isTaskCall = path === messages.TaskAccessService.methods.Call.path;
  return request.create(isTaskCall ? { stats: messages.TaskStatsWish.create({ intervalMs: 1_000 }) } : {});
}

/** `fields`: of a unary request. */
export function start(
  channel: RpcChannel,
  method: AnyMethod & { readonly access: Access },
  fields: Readonly<Record<string, unknown>> = {},
): Call {
  const { promise, resolve, reject } = Promise.withResolvers<RpcError | null>();
  const call: Call = { path: method.path, access: method.access, ended: promise, outcome: "open", received: 0 };
  // A call that must end but continues fails its test, even if nobody awaits it.
  promise.catch(() => {});
  const patience = setTimeout(() => reject(new Error(`${method.path} did not end`)), endedMsMax);
  patience.unref();
  const end = (error: RpcError | null): void => {
    clearTimeout(patience);
    call.outcome = error;
    resolve(error);
  };
  if (method.responseStream) {
    channel.serverStream(method, requestOf(method), { onMessage: () => (call.received += 1), onEnd: end });
  } else if (method.requestStream) {
    const sending = channel.clientStream(method);
    sending.write(method.request.create({}));
    sending.finish().then(() => end(null), end);
  } else {
    channel.unary(method, method.request.create(fields)).then(() => end(null), end);
  }
  return call;
}

export async function accessWorld(t: ExecutionContext, limits: Partial<AdmissionLimits> = {}) {
  const root = await createRoot();
  const { ports } = telemetry();
  const clock = new SteppedClock();
  const server = createGrpcServer({ telemetry: ports, admission: createAdmission(ports, limits) });
  /** Calls whose handler runs, by path; and how many of them were notified that their caller disconnected. */
  const begun: string[] = [];
  const peers: Peer[] = [];
  const sinks = new Map<string, Sink<unknown>[]>();
  const answers: (() => void)[] = [];
  let aborted = 0;
  for (const service of services) {
    const handlers = Object.entries(service.methods).map(([name, method]) => [
      name,
      (_request: unknown, second: unknown, third: unknown) => {
        const call = (method.responseStream ? third : second) as CallContext;
        begun.push(method.path);
        peers.push(call.peer);
        call.signal.addEventListener("abort", () => (aborted += 1));
        if (!method.responseStream)
          return new Promise((resolve) => answers.push(() => resolve(method.response.create({}))));
        const sink = second as Sink<unknown>;
        sinks.set(method.path, [...(sinks.get(method.path) ?? []), sink]);
        sink.write(method.response.create({}));
        return undefined;
      },
    ]);
    server.add(service, Object.fromEntries(handlers) as ServiceHandlers<AnyService>);
  }
  const removed = new Set<string>();
  const workers = new Set<string>();
  const made = new Set<string>();
  const users = new Map<string, { readonly role: Role; readonly mark: string }>();
  const listeners = new Set<(ids: readonly string[]) => void>();
  const credentials = {
    ...(await identityOf({ root, nodeId: "own", role: "swarm-manager" })),
    rootPem: root.certificatePem,
  };
  const { port } = await server.listenTls({
    host: "127.0.0.1",
    port: 0,
    credentials,
    clock,
    organization: () => organization,
    isRemoved: (id) => removed.has(id),
    isDemoted: (id) => workers.has(id),
    userRole: (name, mark) => {
      const user = users.get(name);
      return user?.mark === mark ? user.role : null;
    },
    onChange: (listener) => {
      listeners.add(listener);
      return { unsubscribe: () => listeners.delete(listener) };
    },
  });
  const path = `${temporaryFolder(t)}/control.sock`;
  await server.listenUnix(path);
  t.teardown(() => server.close(0));
  const tell = (id: string): void => {
    for (const listener of listeners) listener([id]);
  };
  const opened = (channel: RpcChannel): RpcChannel => {
    t.teardown(() => channel.close());
    return channel;
  };
  return {
    root,
    server,
    clock,
    begun,
    /** The callers that handlers saw, in the same order. */
    peers,
    sinks,
    /** Answers every unary call whose handler runs. */
    answer: () => {
      for (const answer of answers.splice(0)) answer();
    },
    credentials,
    aborted: () => aborted,
    remove: (id: string) => {
      removed.add(id);
      tell(id);
    },
    demote: (id: string) => {
      workers.add(id);
      tell(id);
    },
    promote: (id: string) => {
      workers.delete(id);
      tell(id);
    },
    /** Whether such a user ever existed. */
    isMade: (name: string) => made.has(name),
    /** Creates or changes a user; null removes it. */
    user: (name: string, user: { readonly role: Role; readonly mark: string } | null) => {
      made.add(name);
      if (user === null) users.delete(name);
      else users.set(name, user);
      tell(`user-${name}`);
    },
    local: async () => opened(await connectUnix(path, { uid: 0, pid: 1, user: "" })),
    channel: async (identity: { readonly certificatePem: string; readonly keyPem: string } | null) =>
      opened(
        await connectTls({
          host: "127.0.0.1",
          port,
          rootPem: root.certificatePem,
          serverName: "swarm-manager",
          timeoutMs: 60_000,
          ...identity,
        }),
      ),
  };
}
