/** Docker's Engine API of a manager process. */
import { join } from "node:path";
import type { Manager } from "../actors/manager/manager.ts";
import { createDockerServer } from "../edges/docker/server.ts";
import type { GrpcServer } from "../edges/grpc/server.ts";
import type { ProcessTelemetry } from "../runtime/telemetry/telemetry.ts";

export interface DockerOptions {
  /** A numeric group whose members may use the socket as admins; null: only its owner may. */
  readonly group: number | null;
}

/** Resolves when the socket is open. `onStop` receives its shutdown. Rejects with ListenError. */
export async function serveDocker(
  { environment: env }: Manager,
  managerId: string,
  {
    server,
    telemetry,
    dataDir,
  }: { readonly server: GrpcServer; readonly telemetry: ProcessTelemetry; readonly dataDir: string },
  { group }: DockerOptions,
  onStop: (end: () => Promise<void> | void) => void,
): Promise<void> {
  const docker = createDockerServer({
    store: env.store,
    clock: env.clock,
    log: telemetry.log,
    nodeId: managerId,
    callsOf: (_socket, signal) => server.ownCalls(null, signal),
  });
  onStop(() => docker.close());
  await docker.listenUnix(join(dataDir, "docker.sock"), group);
}
