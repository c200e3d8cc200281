/** The JSON API of a manager process: its actors, the port's certificate and the port. */
import { clusterOf } from "../actors/manager/bootstrap.ts";
import { startJsonApi } from "../actors/json/api.ts";
import type { JsonCertificate } from "../actors/json/certificate.ts";
import { createJsonWatchers } from "../actors/json/watcher.ts";
import type { Logins } from "../actors/json/logins.ts";
import type { Manager } from "../actors/manager/manager.ts";
import { createUsers, setPassword } from "../actors/json/users.ts";
import type { Admission } from "../edges/grpc/admission/admission.ts";
import { Registry } from "../edges/juju/dispatch.ts";
import { createFacades } from "../edges/juju/facades/index.ts";
import { Feed } from "../edges/juju/feed/feed.ts";
import { listenJson, type JsonListener } from "../edges/juju/listener.ts";
import { loginNameOf } from "../edges/juju/login-name.ts";
import type { Passwords } from "../runtime/ports/passwords.ts";
import type { ProcessTelemetry } from "../runtime/telemetry/telemetry.ts";
import { advertisedHost, formatHostPort, type HostPort } from "./addresses.ts";
import type { WebCertificate } from "./web-certificate.ts";

export interface JsonOptions {
  readonly listen: HostPort;
  /** Address for agents with their node's certificate; null: none. */
  readonly agents: HostPort | null;
  /** Origins of pages that may connect, in addition to its own. */
  readonly origins: readonly string[];
  /** Address that logins are redirected to; null: none. */
  readonly redirect: HostPort | null;
}

/** Time for clients to receive the close notice, in milliseconds. */
const closeGraceMs = 2_000;

/**
 * Resolves when the port is open, or will open later, when it has a certificate. `onStop` receives each part's shutdown, in
 * start order.
 */
export async function serveJson(
  { environment: env, services }: Manager,
  { logins, passwords }: { readonly logins: Logins; readonly passwords: Passwords },
  {
    listen,
    agents,
    origins,
    redirect,
    certificate,
    telemetry,
    admission,
  }: JsonOptions & {
    readonly certificate: WebCertificate;
    readonly telemetry: ProcessTelemetry;
    readonly admission: Admission;
  },
  onStop: (end: () => Promise<void> | void) => void,
): Promise<void> {
  const api = startJsonApi(env, logins);
  onStop(() => api.stop());
  let listener: JsonListener | null = null;
  let current: JsonCertificate | null = null;
  const feed = new Feed({ store: env.store, clock: env.clock });
  feed.start();
  onStop(() => feed.stop());
  const facades = createFacades({
    store: env.store,
    clock: env.clock,
    log: env.telemetry.log,
    control: services.control,
    operator: services.operator,
    taskAccess: services.taskAccess,
    logs: services.logs,
    feed,
    watchers: createJsonWatchers(env),
    users: createUsers(env, passwords).handlers,
    setPassword: (name, password, rpc) => setPassword(env, passwords, name, password, rpc),
  });
  let isStopped = false;
  onStop(async () => {
    isStopped = true;
    await listener?.close(closeGraceMs);
  });
  const here = { host: advertisedHost(listen.host), port: listen.port };
  async function open(first: JsonCertificate): Promise<void> {
    if (isStopped) return;
    const latest = (): JsonCertificate => current ?? first;
    const opened = await listenJson({
      ...listen,
      agents,
      origins,
      credentials: latest(),
      telemetry,
      admission,
      parts: {
        api,
        registry: new Registry(facades),
        clock: env.clock,
        clusterId: () => clusterOf(env)?.id ?? "",
        rootPem: () => latest().rootPem,
        servers: () => [here],
        redirect: redirect === null ? null : { servers: [redirect], rootPem: () => latest().rootPem },
        loginName: (tag) => loginNameOf(env.store, tag),
      },
    });
    if (isStopped) return opened.close(0);
    listener = opened;
    opened.setCredentials(latest());
    telemetry.log.info({ listen: formatHostPort(listen) }, "serving the JSON API");
  }
  const opened = Promise.withResolvers<void>();
  // Nobody waits for a certificate that comes later.
  opened.promise.catch((error: unknown) => telemetry.log.error({ err: error }, "cannot serve the JSON API"));
  let isOpening = false;
  certificate.follow((latest) => {
    current = latest;
    listener?.setCredentials(latest);
    if (!isOpening) open(latest).then(opened.resolve, opened.reject);
    isOpening = true;
  });
  if ((await certificate.tried) !== null) await opened.promise;
}
