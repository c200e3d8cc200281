/**
 * Invariants of keys, in addition to `invariants.ts`.
 *
 * S24: an unlock key that the operator received opens a locked manager, and no other key does (workload-locks.ts).
 * S25: every record in the log and every snapshot is sealed.
 * S26: when records start to be written under a new key, every living manager has it.
 * S27: at rest each manager's key file is locked as the cluster specifies, all managers have the log's current key, and that
 *      key was created for the current unlock key.
 * S133: at rest each manager's disk matches its memory: its key file is locked if it says so; otherwise it is open and
 *       contains all its data keys.
 */
import { unlockKeyOf } from "../../machines/keys/unlock-key.ts";
import { KeyFile, LogRecord, SnapshotPart, type Cluster } from "../../proto/gen/messages.ts";
import { splitFirst } from "../../runtime/store/record.ts";
import { fingerprint } from "../../runtime/store/seal.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";
import type { RunningManager } from "../managers/manager.ts";

function clusterOf(store: Store): Cluster | undefined {
  for (const cluster of store.all("cluster")) return cluster;
  return undefined;
}

/** S25 */
export function checkSealed(records: readonly Uint8Array[], snapshots: readonly Uint8Array[]): string | null {
  for (const bytes of records) {
    const { sealed, transaction } = LogRecord.decode(bytes);
    if (sealed === null || transaction.length > 0) return "S25: a record of the log is not sealed";
  }
  for (const bytes of snapshots) {
    const first = splitFirst(bytes)?.first;
    if (first === undefined || SnapshotPart.decode(first).sealed === null) return "S25: a snapshot is not sealed";
  }
  return null;
}

/**
 * S26, for a record and the one before it. A manager that listed itself in one of these two may have done so while the other
 * was being written.
 */
export function checkHeld(record: Uint8Array, before: Uint8Array, commit: Commit, store: Store): string | null {
  const keyId = LogRecord.decode(record).sealed?.keyId ?? "";
  if (keyId === LogRecord.decode(before).sealed?.keyId) return null;
  for (const { id, alive, heldKeys, meta } of store.all("manager")) {
    const isSettled = alive && (meta?.version?.index ?? 0) < commit.version - 1;
    if (isSettled && !heldKeys.some((held) => held.id === keyId))
      return `S26: record ${commit.version} is under the new key ${keyId}, which manager ${id} does not have`;
  }
  return null;
}

/** S27: why keys are not at rest, or null. */
export function findUnlockedOtherwise(managers: readonly (RunningManager | null)[]): string | null {
  for (const running of managers) {
    if (running === null) return "S27: a manager is locked";
    const { keyring, store } = running;
    const wanted = fingerprint(unlockKeyOf(clusterOf(store)) ?? new Uint8Array());
    if (running.lock() !== wanted) return `S27: a key file is locked by '${running.lock()}', not by '${wanted}'`;
    const current = keyring.current;
    if (current === null) return "S27: a manager has no data key";
    if (running.isLeading() && wanted !== "" && current.lock !== wanted)
      return `S27: the log is under a key made for '${current.lock}', not for '${wanted}'`;
    for (const other of managers) {
      if (other !== null && running.isLeading() && other.keyring.find(current.id) === undefined)
        return `S27: a manager lacks the data key ${current.id}`;
    }
  }
  return null;
}

/** S133, for the key file of a running manager. */
export function checkKeyFile(bytes: Uint8Array | null, { keyring, lock }: RunningManager): string | null {
  if (bytes === null) return "S133: there is no key file";
  const { locked, open } = KeyFile.decode(bytes);
  if (lock() !== "") return locked === null ? "S133: the key file is open on the disk, and should be locked" : null;
  if (open === null) return "S133: the key file is locked on the disk, and should be open";
  const lacking = keyring.keys.find(({ id }) => !open.dataKeys.some((key) => key.id === id));
  return lacking === undefined ? null : `S133: the data key ${lacking.id} is in memory only`;
}
