/**
 * `--force-new-cluster`: a manager whose nats-server had one of three copies of the log continues alone, after the majority of the
 * copies is lost for good. Its log goes on with all its history; root, tokens, node ids and services stay as they were.
 *
 * FC1: the cluster's copy is not changed, and is kept: its folder is renamed at the end.
 * FC2: until the new log is complete and on disk, the manager belongs to the old cluster; a start that is interrupted before begins
 *      again.
 * FC3: once in a data dir: the flag may stay set, and a later cluster of three is not broken up by a restart.
 * FC4: not while another manager answers, or the log has its majority.
 */
import { renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { UserError } from "../lib/user-error.ts";
import type { FetchKeys } from "../actors/keys/data-keys.ts";
import { changesOfRestore } from "../machines/manager/restored.ts";
import { NatsCluster_Stage as Stage, type NatsCluster } from "../proto/gen/messages.ts";
import { newId } from "../runtime/ids.ts";
import { adoptMessages } from "../runtime/nats/adopt-messages.ts";
import { beginLeases } from "../runtime/nats/begin.ts";
import type { NatsLink } from "../runtime/nats/connection.ts";
import { isCommitted } from "../runtime/nats/move.ts";
import { forgetAccess } from "../runtime/nats/server-files.ts";
import { RpcError, Status } from "../runtime/ports/rpc.ts";
import { Keyring } from "../runtime/store/keyring.ts";
import { checkLog } from "../runtime/store/log-check.ts";
import type { Replica } from "../runtime/store/replica.ts";
import { SealedBlobs } from "../runtime/store/sealed-blobs.ts";
import { SealedLog } from "../runtime/store/sealed-log.ts";
import { snapshotName } from "../runtime/store/snapshots.ts";
import { SystemClock } from "../runtime/system/clock.ts";
import { SystemRandom } from "../runtime/system/random.ts";
import { syncFolder } from "../runtime/system/whole-file.ts";
import type { DataDir } from "./data-dir.ts";
import { acceptLoss, recordOfFounding, syncTree, withNats } from "./founding.ts";
import { ownNatsFolder, setOwnNatsAside } from "./move-own-nats.ts";
import { memberFolder, ownMemberAccess, startMember, type ClusterParts } from "./nats-cluster.ts";
import { openNatsIdentity } from "./nats-identity.ts";

/** In the data dir: the id of the NATS cluster that was left behind. FC3 */
const doneFile = "forced-new-cluster";
/**
 * How long other managers and servers may take to answer, in milliseconds: three servers that start together have elected a leader by
 * then. FC4
 */
const answerMsMax = 20_000;
const askMs = 1_000;

interface Forcing extends Omit<ClusterParts, "identity"> {
  readonly fetchKeys: FetchKeys;
}

/** Rejects with UserError, NatsProblem and NatsServerProblem. */
export async function forceNewCluster(dataDir: DataDir, parts: Forcing): Promise<void> {
  const { telemetry, vault } = parts;
  if (dataDir.read(doneFile) !== null) {
    telemetry.log.warn(
      {},
      `this manager has already continued alone: remove --force-new-cluster; to do it once more, remove ${join(dataDir.path, doneFile)} first`,
    );
    return;
  }
  const cluster = vault.fields.natsCluster;
  if (cluster?.stage !== Stage.MOVED) throw new UserError(withoutCopy(vault.fields.natsServers.length > 0));
  await refuseLiving(cluster, parts);

  const making = join(dataDir.path, "forcing");
  rmSync(making, { recursive: true, force: true });
  const { last } = await makeLog(making, memberFolder(dataDir.path, cluster.id), parts);
  // FC2
  await forgetAccess(ownNatsFolder(making));
  await syncTree(making);
  setOwnNatsAside(dataDir.path);
  renameSync(ownNatsFolder(making), ownNatsFolder(dataDir.path));
  await syncFolder(dataDir.path);
  await acceptLoss(dataDir.path, last);
  vault.update({ natsCluster: null, natsServers: [], peers: [] });
  dataDir.write(doneFile, `${cluster.id}\n`);
  // FC1
  renameSync(memberFolder(dataDir.path, cluster.id), join(dataDir.path, `nats-lost-${cluster.id}`));
  rmSync(making, { recursive: true, force: true });
  telemetry.log.warn(
    { version: last.version },
    "this manager continues alone from its copy of the log: join two others, and remove --force-new-cluster",
  );
}

function withoutCopy(usesOthers: boolean): string {
  return usesOthers
    ? "this manager has no copy of the log: use --force-new-cluster on one of the managers that have, or restore a backup"
    : "this manager's nats-server is not one of three: start without --force-new-cluster";
}

/** FC4 */
async function refuseLiving(cluster: NatsCluster, parts: Forcing): Promise<void> {
  const { advertisedHost, dataDir, fetchKeys, telemetry, vault } = parts;
  const identity = await openNatsIdentity(dataDir, vault, { telemetry, host: advertisedHost });
  try {
    const member = { ...parts, identity };
    const server = await startMember(member, cluster);
    const startedAt = performance.now();
    try {
      const answering = firstAnswering(vault.fields.peers, fetchKeys);
      while (performance.now() - startedAt < answerMsMax) {
        if (await isCommitted(ownMemberAccess(member, cluster)).catch(() => false))
          throw new UserError("the log has its majority: start without --force-new-cluster");
        await Promise.race([answering, new Promise((resolve) => setTimeout(resolve, askMs))]);
      }
      const address = await Promise.race([answering, Promise.resolve(null)]);
      if (address !== null)
        throw new UserError(
          `the manager at ${address} answers: stop it for good before you use --force-new-cluster, or the nodes would have two clusters`,
        );
    } finally {
      await server.stop();
    }
  } finally {
    identity.stop();
  }
}

/** Never resolves without an answer. */
async function firstAnswering(addresses: readonly string[], fetchKeys: FetchKeys): Promise<string> {
  const asked = addresses.map(async (address) => {
    await fetchKeys(address, "").catch((error: unknown) => {
      // It answers, but not to a manager that it does not know.
      if (!(error instanceof RpcError && error.code === Status.PERMISSION_DENIED)) throw error;
    });
    return address;
  });
  return Promise.any(asked).catch(() => new Promise<never>(() => {}));
}

/** In the folder: a nats-server's storage with the copy's log, and one record more. Resolves with the state after it. */
async function makeLog(folder: string, copy: string, parts: Forcing): Promise<{ readonly last: Replica }> {
  const { managerId, telemetry, vault } = parts;
  const random = new SystemRandom();
  const clock = new SystemClock();
  const keyring = new Keyring(vault, random);
  const sealed = ({ blobs, log }: NatsLink) => ({
    log: new SealedLog(log, keyring, random, clock),
    blobs: new SealedBlobs(blobs, keyring, { random, clock }),
    clock,
  });
  // Sets up the streams.
  await withNats(folder, vault, telemetry, async () => undefined);
  await adoptMessages(copy, ownNatsFolder(folder));
  const replica = await withNats(folder, vault, telemetry, async (link, access) => {
    const { blobs, ...log } = sealed(link);
    const { replica: found, report } = await checkLog({ ...log, blobs });
    if (found === null || report.broken !== null)
      throw new UserError(
        `this manager's copy of the log cannot be read (record ${report.broken?.sequence ?? report.last}${report.broken === null ? "" : `: ${report.broken.what}`}): restore a backup`,
      );
    // They contain records that this copy lacks.
    for (const { sequence } of report.badSnapshots) await blobs.remove(snapshotName(sequence));
    await beginLeases(access, found.epoch);
    return found;
  });
  return withNats(folder, vault, telemetry, async (link) => {
    const { log } = sealed(link);
    const changes = changesOfRestore(replica, managerId);
    const record = recordOfFounding(replica, { nowMs: clock.now(), id: newId(random), changes });
    const outcome = await log.append(record, replica.version);
    if (outcome.kind !== "appended")
      throw new UserError(
        `cannot write to the copy of the log: ${outcome.kind === "conflict" ? "it has further records" : outcome.reason}`,
      );
    replica.apply(outcome.sequence, record);
    return { last: replica };
  });
}
