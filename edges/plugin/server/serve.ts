/**
 * Turns a driver into an executable: completes the handshake with the host that started it, and serves until Shutdown.
 *
 * V1: standard output carries the handshake line and nothing else, ever.
 * V2: a host's death does not affect the plugin: broken pipes are ignored, and tasks and socket remain for the next host.
 * V3: after Shutdown the process exits well within the two seconds after which a host would kill it; its tasks continue.
 * V4: a process without a connection or anything to preserve exits by itself: a host that dies while it starts a plugin has
 *     recorded the plugin nowhere, and each such start would leave one more process.
 */
import { randomBytes } from "node:crypto";
import { chmodSync, chownSync, readFileSync, rmSync } from "node:fs";
import { createServer as createPlainServer, type AddressInfo, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createServer as createTlsServer } from "node:tls";
import {
  BasePluginService,
  DriverService,
  GRPCBrokerService,
  GRPCControllerService,
  GRPCStdioService,
  HealthCheckResponse,
  HealthCheckResponse_ServingStatus,
  HealthService,
  TaskCommandsService,
  Empty,
} from "../../../proto/gen/nomad.ts";
import { createLocalIdentity, type LocalIdentity } from "../../../lib/pki/localhost.ts";
import type { Logger } from "../../../runtime/ports/index.ts";
import { RpcError, Status } from "../../../runtime/ports/rpc.ts";
import { Variable, appVersion, formatHandshake, magicCookie, portRange } from "../handshake.ts";
import { baseHandlers } from "./base-service.ts";
import { PluginConnections } from "./connections.ts";
import { DriverServer } from "./driver-service.ts";
import type { Driver } from "./driver.ts";
import type { Fields } from "./fields.ts";
import { pluginLog } from "./log.ts";
import { PluginStdio } from "./stdio.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/** V4. Longer than a restart or upgrade of the host takes; a host that returns later starts another process. */
const aloneMsDefault = 5 * 60_000;
/** Number of checks for a connection within that time. */
const aloneLooks = 5;

/** The service name for the health of a plugin as a whole. */
const healthName = "plugin";
/** Time for the answer to Shutdown to be sent, in milliseconds. */
const farewellMs = 50;

function groupId(group: string): number {
  if (/^\d+$/.test(group)) return Number(group);
  const line = readFileSync("/etc/group", "utf8")
    .split("\n")
    .find((entry) => entry.startsWith(`${group}:`));
  if (line === undefined) throw new Error(`unknown group "${group}"`);
  return Number(line.split(":")[2]);
}

/** Listens as the host wants: on a Unix socket, or on a port in the host's range if those are unavailable. */
async function listen(server: Server, env: Environment): Promise<{ network: "unix" | "tcp"; address: string }> {
  const folder = env[Variable.socketDir] ?? tmpdir();
  const path = join(folder, `plugin${randomBytes(5).readUIntBE(0, 5)}`);
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen({ path }, resolve);
  });
  const group = env[Variable.socketGroup] ?? "";
  if (group === "") chmodSync(path, 0o600);
  else {
    chownSync(path, process.getuid?.() ?? 0, groupId(group));
    chmodSync(path, 0o660);
  }
  return { network: "unix", address: path };
}

async function listenTcp(server: Server, env: Environment): Promise<{ network: "tcp"; address: string }> {
  const first = Number(env[Variable.minPort] ?? portRange.min);
  const last = Number(env[Variable.maxPort] ?? portRange.max);
  for (let port = first; port <= last; port += 1) {
    const isBound = await new Promise<boolean>((resolve) => {
      server.removeAllListeners("error").removeAllListeners("listening");
      server.once("error", () => resolve(false));
      server.listen({ host: "127.0.0.1", port }, () => resolve(true));
    });
    if (isBound) return { network: "tcp", address: `127.0.0.1:${(server.address() as AddressInfo).port}` };
  }
  throw new Error(`no free port between ${first} and ${last}`);
}

/** A TLS server that accepts only its host, or a plain server if the host passed no certificate. */
function createServer(connections: PluginConnections, identity: LocalIdentity | null, hostPem: string): Server {
  if (identity === null) return createPlainServer({ noDelay: true }, (socket) => connections.serve(socket));
  return createTlsServer(
    {
      cert: identity.certificatePem,
      key: identity.keyPem,
      ca: hostPem,
      requestCert: true,
      rejectUnauthorized: true,
      minVersion: "TLSv1.2",
      ALPNProtocols: ["h2"],
    },
    (socket) => connections.serve(socket),
  );
}

/** Exits with an explanation for a person who started a plugin by hand. */
function refuseToRun(name: string): never {
  process.stderr.write(
    `This is ${name}, a task driver.\nDo not run it by hand: Muster's or Nomad's agent starts it.\n` +
      "Put it into the agent's plugin directory.\n",
  );
  process.exit(1);
}

/** `tcp` is for platforms without Unix sockets. */
export type Transport = "unix" | "tcp";

/**
 * Serves a driver. Resolves once it can be called; the process exits when its host requests it, or when it has had no host
 * for `aloneMs` and runs nothing (V4).
 */
export function serveDriver<Config extends Fields, Task extends Fields>(
  definition: Driver<Config, Task>,
  transport: Transport = "unix",
  aloneMs: number = aloneMsDefault,
): Promise<void> {
  // The definition was checked against its fields above; from here on their types do not matter.
  const driver = definition as unknown as Driver;
  const log = pluginLog(driver.name);
  const server = new DriverServer(driver, log);
  const add = (connections: PluginConnections): void => {
    connections.add(BasePluginService, baseHandlers(driver));
    connections.add(DriverService, server.handlers());
    connections.add(TaskCommandsService, server.commandHandlers());
  };
  return servePlugin(driver.name, log, transport, add, { isSpare: () => server.isSpare, aloneMs });
}

/** When a plugin without a host exits: after `aloneMs`, if it was spare all that time. */
interface Solitude {
  readonly aloneMs: number;
  isSpare(): boolean;
}

/** V4 */
function endAlone(connections: PluginConnections, { aloneMs, isSpare }: Solitude, end: () => void): void {
  let looks = 0;
  setInterval(() => {
    looks = connections.count === 0 && isSpare() ? looks + 1 : 0;
    if (looks === aloneLooks) end();
  }, aloneMs / aloneLooks);
}

/** Serves the services that `add` adds, besides those of every plugin. Without `solitude` it runs until its host stops it. */
export async function servePlugin(
  name: string,
  log: Logger,
  transport: Transport,
  add: (connections: PluginConnections) => void,
  solitude: Solitude | null = null,
): Promise<void> {
  const env: Environment = process.env;
  if (env[magicCookie.name] !== magicCookie.value) refuseToRun(name);
  const versions = (env[Variable.versions] ?? "").split(",").filter((version) => version !== "");
  if (versions.length > 0 && !versions.includes(String(appVersion)))
    log.warn({ versions }, `the host does not speak version ${appVersion} of the driver protocol`);

  // V2: the pipes of a host that has died fail.
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  // Ctrl-C on the host's terminal reaches its plugins too; the host calls Shutdown on those that it wants to stop.
  process.on("SIGINT", () => {});
  const die = (error: unknown): void => {
    log.error({ error }, "driver failed");
    process.exit(1);
  };
  process.on("uncaughtException", die);
  process.on("unhandledRejection", die);

  const connections = new PluginConnections(log);
  const stdio = new PluginStdio();
  let socketPath: string | null = null;
  const end = (): void => {
    connections.close();
    if (socketPath !== null) rmSync(socketPath, { force: true });
    // V3
    setTimeout(() => process.exit(0), farewellMs);
  };
  process.on("SIGTERM", end);
  add(connections);
  connections.add(HealthService, {
    Check: ({ service }) => HealthCheckResponse.create({ status: statusOf(service) }),
    Watch: ({ service }, sink) =>
      sink.write(
        HealthCheckResponse.create({
          status: service === healthName ? statusOf(service) : HealthCheckResponse_ServingStatus.SERVICE_UNKNOWN,
        }),
      ),
  });
  connections.add(GRPCControllerService, {
    Shutdown: () => {
      setImmediate(end);
      return Empty.create();
    },
  });
  connections.add(GRPCStdioService, { StreamStdio: (_request, sink, call) => stdio.stream(sink, call) });
  // Held open and never answered: a driver needs no further connections, but a Go host always opens this stream.
  connections.add(GRPCBrokerService, {
    StartStream: async (requests) => {
      for await (const _offer of requests);
    },
  });

  const hostPem = env[Variable.clientCertificate] ?? "";
  const identity = hostPem === "" ? null : await createLocalIdentity(Date.now());
  const server = createServer(connections, identity, hostPem);
  const { network, address } = transport === "unix" ? await listen(server, env) : await listenTcp(server, env);
  if (network === "unix") socketPath = address;
  process.stdout.write(formatHandshake(network, address, identity?.certificateDer ?? null));
  stdio.capture();
  log.debug({ address }, "serving");
  if (solitude !== null) endAlone(connections, solitude, end);
}

function statusOf(service: string): HealthCheckResponse_ServingStatus {
  if (service === healthName || service === "") return HealthCheckResponse_ServingStatus.SERVING;
  throw new RpcError(Status.NOT_FOUND, "unknown service");
}
