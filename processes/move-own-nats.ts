/** A manager's own nats-server; and `--nats-move`, which moves its data to a shared one, once, at a start. */
import { existsSync, renameSync } from "node:fs";
import { join } from "node:path";
import type { NatsOptions } from "../runtime/nats/connection.ts";
import { moveStreams } from "../runtime/nats/move.ts";
import { startNatsServer, type NatsServer } from "../runtime/nats/server.ts";
import type { Telemetry } from "../runtime/ports/index.ts";
import type { Vault } from "../runtime/store/vault.ts";
import { openNatsIdentity, type NatsIdentity } from "./nats-identity.ts";
import { natsAccess, replicasOn, type SharedNats } from "./shared-nats.ts";

/** Folder of the manager's own NATS in a data dir. */
export function ownNatsFolder(dataDir: string): string {
  return join(dataDir, "nats");
}

interface OwnNats {
  readonly server: NatsServer;
  readonly identity: NatsIdentity;
  /** Options of a connection to it. */
  readonly access: Pick<NatsOptions, "servers" | "tls">;
  /** Ends when its process has exited. */
  stop(): Promise<void>;
}

/** Starts a manager's own nats-server, with mutual TLS by a CA in its vault. Throws NatsServerProblem. */
export async function startOwnNats(
  dataDir: string,
  vault: Vault,
  options: Parameters<typeof openNatsIdentity>[2],
  place: ServerPlace = {},
): Promise<OwnNats> {
  const identity = await openNatsIdentity(dataDir, vault, options);
  try {
    const server = await startStandalone(dataDir, identity, options.telemetry, place);
    return {
      server,
      identity,
      access: { servers: [server.url], tls: identity.clientTls },
      stop: () => {
        identity.stop();
        return server.stop();
      },
    };
  } catch (error) {
    identity.stop();
    throw error;
  }
}

type ServerPlace = Pick<
  Parameters<typeof startNatsServer>[0],
  "host" | "firstPort" | "ownPort" | "keepsPort" | "isHidden"
>;

/** The server that has the log of a cluster with one copy. Throws NatsServerProblem. */
export async function startStandalone(
  dataDir: string,
  identity: NatsIdentity,
  telemetry: Telemetry,
  place: ServerPlace,
): Promise<NatsServer> {
  const server = await startNatsServer({ ...place, ...ownNatsServer(dataDir, identity, telemetry) });
  identity.onRenewed(({ isNarrower }) => (isNarrower ? server.renew("a CA of NATS was replaced") : server.reload()));
  return server;
}

function ownNatsServer(
  dataDir: string,
  identity: NatsIdentity,
  telemetry: Telemetry,
): Parameters<typeof startNatsServer>[0] {
  const folder = ownNatsFolder(dataDir);
  const binary = process.env["MUSTER_NATS_SERVER"];
  const tls = identity.serverTls;
  return { dataDir: folder, logFile: join(folder, "nats.log"), telemetry, tls, ...(binary ? { binary } : {}) };
}

/**
 * Does nothing when there is no NATS of its own any more, so that the flag may stay set. The moved folder is renamed: a start
 * without `--nats` would otherwise continue with it, apart from the cluster. Throws NatsProblem and NatsServerProblem; then
 * nothing has changed.
 */
export async function moveOwnNats(
  dataDir: string,
  vault: Vault,
  nats: SharedNats,
  telemetry: Telemetry,
): Promise<void> {
  const folder = ownNatsFolder(dataDir);
  if (!existsSync(folder)) return;
  const own = await startOwnNats(dataDir, vault, { telemetry });
  const common = { name: "muster-manager-move", telemetry };
  try {
    const moved = await moveStreams(
      { ...common, ...own.access },
      { ...common, servers: nats.servers, replicas: replicasOn(nats), ...natsAccess(nats) },
    );
    if (moved.kind === "nothing") return;
    telemetry.log.info(moved, "moved the log of this manager's own NATS to the shared one");
  } finally {
    await own.stop();
  }
  setOwnNatsAside(dataDir);
}

/** Keeps the data of an own server that has been moved. Does nothing without one. */
export function setOwnNatsAside(dataDir: string): void {
  const folder = ownNatsFolder(dataDir);
  if (!existsSync(folder)) return;
  let aside = `${folder}-moved`;
  for (let n = 2; existsSync(aside); n += 1) aside = `${folder}-moved-${n}`;
  renameSync(folder, aside);
}
