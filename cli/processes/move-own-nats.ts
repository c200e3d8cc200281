/** From a manager's own NATS to one that managers share: `--nats-move`, at a start, once. */
import { existsSync, renameSync } from "node:fs";
import { join } from "node:path";
import { moveStreams } from "../../runtime/nats/move.ts";
import { startNatsServer } from "../../runtime/nats/server.ts";
import type { Telemetry } from "../../runtime/ports.ts";
import { natsAccess, replicasOn, type SharedNats } from "./nats-flags.ts";

/** Where a manager of that data dir has its own NATS. */
export function ownNatsFolder(dataDir: string): string {
  return join(dataDir, "nats");
}

/** As a manager's own is started. */
export function ownNatsServer(dataDir: string, telemetry: Telemetry): Parameters<typeof startNatsServer>[0] {
  const folder = ownNatsFolder(dataDir);
  const binary = process.env["MUSTER_NATS_SERVER"];
  return { dataDir: folder, logFile: join(folder, "nats.log"), telemetry, ...(binary ? { binary } : {}) };
}

/**
 * Nothing happens where there is none of its own any more, so that the flag may stay where it is. What was moved is put aside:
 * a start without `--nats` would go on with it, beside the cluster. Throws NatsProblem and NatsServerProblem; then
 * everything is where it was.
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
    telemetry.log.info(moved, "the log of this manager's own NATS is at the shared one");
  } finally {
    await server.stop();
  }
  let aside = `${folder}-moved`;
  for (let n = 2; existsSync(aside); n += 1) aside = `${folder}-moved-${n}`;
  renameSync(folder, aside);
}
