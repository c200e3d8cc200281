/**
 * Makes an executable of a driver: shakes hands with the host that started it, serves until the host says Shutdown.
 *
 * V1: standard output carries the handshake line and nothing else, ever.
 * V2: a host that dies takes nothing down: lost pipes are no errors, and tasks and socket stay for the next host.
 * V3: on Shutdown the process is gone well within the two seconds after which a host would kill it; its tasks go on.
 * V4: a process that nobody is connected to, and that nobody would miss, ends by itself: a host that dies as it starts a
 *     plugin has told nobody where that is, and each of its lives would leave one more.
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
  Empty,
} from "../../../proto/gen/nomad.ts";
import { createLocalIdentity, type LocalIdentity } from "../../../runtime/pki/localhost.ts";
import type { Logger } from "../../../runtime/ports.ts";
import { RpcError, Status } from "../../../runtime/rpc.ts";
import { Variable, appVersion, formatHandshake, magicCookie, portRange } from "../handshake.ts";
import { baseHandlers } from "./base-service.ts";
import { PluginConnections } from "./connections.ts";
import { DriverServer } from "./driver-service.ts";
import type { Driver } from "./driver.ts";
import type { Fields } from "./fields.ts";
import { pluginLog } from "./log.ts";
import { PluginStdio } from "./stdio.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/** V4. Longer than a host that is started anew, or replaced by a newer one, is away; who comes later starts another process. */
const aloneMsDefault = 5 * 60_000;
/** So often it is looked whether anybody is connected. */
const aloneLooks = 5;

/** The name under which a plugin as a whole is asked for its health. */
const healthName = "plugin";
/** After the answer to Shutdown: for it to leave. */
const farewellMs = 50;

function groupId(group: string): number {
  if (/^\d+$/.test(group)) return Number(group);
  const line = readFileSync("/etc/group", "utf8")
    .split("\n")
    .find((entry) => entry.startsWith(`${group}:`));
  if (line === undefined) throw new Error(`there is no group ${group}`);
  return Number(line.split(":")[2]);
}

/** Listens where the host wants it: a Unix socket, or, where those cannot be had, a port of the host's range. */
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
  throw new Error(`no free port from ${first} to ${last}`);
}

/** A TLS server that admits its host alone, or a plain one where the host has shown no certificate. */
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

/** Ends the process with what a person has to know who started a plugin by hand. */
function refuseToRun(name: string): never {
  process.stderr.write(
    `This is ${name}, a task driver.\nIt is not run by hand: an agent starts it, Muster's or Nomad's.\n` +
      "Put it into the agent's plugin directory.\n",
  );
  process.exit(1);
}

/** `tcp` is for where Unix sockets cannot be had. */
export type Transport = "unix" | "tcp";

/**
 * Serves a driver. Resolves when it can be called; the process ends when its host says so, or when it has had no host for
 * `aloneMs` and runs nothing (V4).
 */
export function serveDriver<Config extends Fields, Task extends Fields>(
  definition: Driver<Config, Task>,
  transport: Transport = "unix",
  aloneMs: number = aloneMsDefault,
): Promise<void> {
  // The definition was checked against its fields above; inside, their types do not matter.
  const driver = definition as unknown as Driver;
  const log = pluginLog(driver.name);
  const server = new DriverServer(driver, log);
  const add = (connections: PluginConnections): void => {
    connections.add(BasePluginService, baseHandlers(driver));
    connections.add(DriverService, server.handlers());
  };
  return servePlugin(driver.name, log, transport, add, { isSpare: () => server.isSpare, aloneMs });
}

/** When a plugin without a host ends by itself: after `aloneMs`, in none of which it was other than spare. */
export interface Solitude {
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

/** Serves the services that `add` adds, beside those that every plugin has. Without `solitude` only a host ends it. */
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

  // V2: what happens to the pipes of a host that is gone.
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  // Ctrl-C on the host's terminal reaches its plugins too; the host says Shutdown to those that it wants gone.
  process.on("SIGINT", () => {});
  const die = (error: unknown): void => {
    log.error({ error }, "the driver failed");
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
  // Held open and never answered: a driver needs no further connections, and a Go host opens this whether it does or not.
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
