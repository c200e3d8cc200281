/** Checks at a manager's start that its NATS has the log of its cluster: not an empty log, nor another cluster's. */
import { existsSync } from "node:fs";
import type { Manager } from "../actors/manager/manager.ts";
import type { Log } from "../runtime/ports/index.ts";
import { RpcError, Status } from "../runtime/ports/rpc.ts";
import type { Vault } from "../runtime/store/vault.ts";
import { UserError } from "../lib/user-error.ts";
import type { DataDir } from "./data-dir.ts";
import { keyFetcher, type ManagerInvitation } from "./manager-join.ts";
import { ownNatsFolder } from "./move-own-nats.ts";

/** Timeout and interval of requests for the log's bounds, in milliseconds. */
const boundsTimeoutMs = 5_000;
const boundsRetryMs = 250;
/**
 * Time for the log to have a leader, in milliseconds. A stream whose leader was killed has another within 10 s; three servers that
 * start at once take longer, as after the move of a log to three managers, and much longer on a busy machine.
 */
const boundsMsMax = 60_000;

/**
 * For a manager that has joined, or joins, a cluster: rejects with the sentence when the log has never had a record. The leader
 * of an empty log would create a new cluster under the addresses of the existing one's managers.
 */
export async function refuseEmptyLog(log: Log, sentence: string): Promise<void> {
  const deadline = performance.now() + boundsMsMax;
  for (;;) {
    const bounds = await log.bounds(boundsTimeoutMs);
    if (bounds !== null && bounds.last > 0) return;
    if (bounds !== null) throw new UserError(sentence);
    if (performance.now() >= deadline)
      throw new UserError("cannot read the log's bounds from NATS: does JetStream have a leader for it?");
    await new Promise((resolve) => setTimeout(resolve, boundsRetryMs));
  }
}

export function emptyLogSentence(dataDir: DataDir, isShared: boolean, invitation: ManagerInvitation | null): string {
  if (invitation !== null)
    return `this NATS has no cluster: set --nats to the NATS of the cluster at ${invitation.address}`;
  // Its own NATS exists if its folder does.
  const ownNats = ownNatsFolder(dataDir.path);
  const remedy = !isShared
    ? `restore ${ownNats} from a copy`
    : existsSync(ownNats)
      ? "set --nats to the NATS of its cluster, or move its own NATS's data there with --nats-move"
      : "set --nats to the NATS of its cluster, or restore that NATS's storage";
  return `this manager has joined a cluster, but this NATS has none: ${remedy}; to create a new cluster, use another --data-dir`;
}

/**
 * Rejects when the log is sealed under keys that this manager can never get: it has no certificate to request them with, or the
 * cluster that it joins by `invitation` lacks them, because the log belongs to another cluster.
 */
export function lacksKeysForGood(
  { keyring }: Manager,
  vault: Vault,
  invitation: ManagerInvitation | null,
): Promise<never> {
  const fetchKeys = keyFetcher(vault);
  const asked = new Set<string>();
  return new Promise((_, reject) => {
    const ask = async ({ address }: ManagerInvitation, keyId: string): Promise<void> => {
      asked.add(keyId);
      try {
        await fetchKeys(address, keyId);
      } catch (error) {
        if (error instanceof RpcError && error.code === Status.NOT_FOUND) reject(foreignLog(address));
        // The key fetcher retries.
        else asked.delete(keyId);
      }
    };
    const check = (): void => {
      const [keyId] = keyring.missing;
      if (keyId === undefined) return;
      if (vault.fields.nodeCertificate !== "") {
        if (invitation !== null && !asked.has(keyId)) void ask(invitation, keyId);
        return;
      }
      const how =
        "join its cluster with --join ADDR:PORT --token-file FILE (run 'muster token manager' on a manager to get the token)";
      reject(new UserError(`this NATS has a cluster whose keys this manager lacks: ${how}`));
    };
    keyring.onChange(check);
    check();
  });
}

function foreignLog(address: string): UserError {
  return new UserError(
    `this NATS has the log of a cluster other than the one at ${address}, whose managers lack its keys: ` +
      "set --nats to the NATS of that cluster",
  );
}
