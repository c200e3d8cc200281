/** Docker's Engine API of a manager process. */
import { join } from "node:path";
import type { JsonCertificate } from "../actors/json/certificate.ts";
import type { Manager } from "../actors/manager/manager.ts";
import { createDockerServer } from "../edges/docker/server.ts";
import { listenDockerTls, type DockerTlsListener } from "../edges/docker/tls-listener.ts";
import type { Admission } from "../edges/grpc/admission/admission.ts";
import type { GrpcServer } from "../edges/grpc/server.ts";
import type { ProcessTelemetry } from "../runtime/telemetry/telemetry.ts";
import { formatHostPort, type HostPort } from "./addresses.ts";
import { keepWebCertificate } from "./web-certificate.ts";

export interface DockerOptions {
  /** A numeric group whose members may use the socket as admins; null: only its owner may. */
  readonly group: number | null;
  /** Address for clients with a user's certificate; null: none. */
  readonly listen: HostPort | null;
}

interface DockerParts {
  readonly server: GrpcServer;
  readonly admission: Admission;
  readonly telemetry: ProcessTelemetry;
  readonly dataDir: string;
}

/**
 * Resolves when the socket is open, and the port, if there is one, or when that waits for its certificate. `onStop` receives each
 * part's shutdown, in start order. Rejects with ListenError.
 */
export async function serveDocker(
  manager: Manager,
  managerId: string,
  { admission, server, telemetry, dataDir }: DockerParts,
  { group, listen }: DockerOptions,
  onStop: (end: () => Promise<void> | void) => void,
): Promise<void> {
  const { environment: env, standings } = manager;
  let tls: DockerTlsListener | null = null;
  const docker = createDockerServer({
    store: env.store,
    clock: env.clock,
    log: telemetry.log,
    nodeId: managerId,
    callsOf: (caller, signal) => server.ownCalls(caller, signal),
  });
  onStop(() => docker.close());
  await docker.listenUnix(join(dataDir, "docker.sock"), group);
  if (listen === null) return;
  const certificate = keepWebCertificate(manager, [listen], onStop);
  const opened = Promise.withResolvers<void>();
  // Nobody waits for a certificate that comes later.
  opened.promise.catch((error: unknown) => telemetry.log.error({ err: error }, "cannot serve Docker's Engine API"));
  let state: "waiting" | "opening" | "stopped" = "waiting";
  onStop(() => {
    state = "stopped";
    tls?.close();
  });
  async function open(address: HostPort, credentials: JsonCertificate): Promise<void> {
    const opening = await listenDockerTls({
      ...address,
      credentials,
      clock: env.clock,
      membership: standings,
      admission,
      answer: docker.answer,
      answerUpgrade: docker.answerUpgrade,
    });
    if (state === "stopped") return opening.close();
    tls = opening;
    telemetry.log.info({ listen: formatHostPort(address) }, "serving Docker's Engine API");
  }
  certificate.follow((current) => {
    if (state === "waiting") {
      state = "opening";
      open(listen, current).then(opened.resolve, opened.reject);
    } else tls?.setCredentials(current);
  });
  if ((await certificate.tried) !== null) await opened.promise;
}
