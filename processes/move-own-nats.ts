/** `--nats-move`: moves a manager's own NATS to a shared one, once, at a start. */
import { existsSync, renameSync } from "node:fs";
import { join } from "node:path";
import { moveStreams } from "../runtime/nats/move.ts";
import { startNatsServer } from "../runtime/nats/server.ts";
import type { Telemetry } from "../runtime/ports/index.ts";
import { natsAccess, replicasOn, type SharedNats } from "./shared-nats.ts";

/** Folder of the manager's own NATS in a data dir. */
export function ownNatsFolder(dataDir: string): string {
  return join(dataDir, "nats");
}

/** Options of a manager's own nats-server. */
export function ownNatsServer(dataDir: string, telemetry: Telemetry): Parameters<typeof startNatsServer>[0] {
  const folder = ownNatsFolder(dataDir);
  const binary = process.env["MUSTER_NATS_SERVER"];
  return { dataDir: folder, logFile: join(folder, "nats.log"), telemetry, ...(binary ? { binary } : {}) };
}

/**
 * Does nothing when there is no NATS of its own any more, so that the flag may stay set. The moved folder is renamed: a start
 * without `--nats` would otherwise continue with it, apart from the cluster. Throws NatsProblem and NatsServerProblem; then
 * nothing has changed.
 */
export async function moveOwnNats(dataDir: string, nats: SharedNats, telemetry: Telemetry): Promise<void> {
  const folder = ownNatsFolder(dataDir);
  if (!existsSync(folder)) return;
  const server = await startNatsServer(ownNatsServer(dataDir, telemetry));
  const common = { name: "muster-manager-move", telemetry };
  try {
    const { url, user, pass } = server;
    const moved = await moveStreams(
      { ...common, servers: [url], user, pass },
      { ...common, servers: nats.servers, replicas: replicasOn(nats), ...natsAccess(nats) },
    );
    if (moved.kind === "nothing") return;
    telemetry.log.info(moved, "moved the log of this manager's own NATS to the shared one");
  } finally {
    await server.stop();
  }
  let aside = `${folder}-moved`;
  for (let n = 2; existsSync(aside); n += 1) aside = `${folder}-moved-${n}`;
  renameSync(folder, aside);
}
