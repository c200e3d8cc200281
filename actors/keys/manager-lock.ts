/**
 * Hosts the manager lock (machines/keys/manager-lock.machine.ts): opens the key file, with the unlock key if it needs one, and keeps it
 * locked as the cluster requires. Starts before all other parts of a manager; the store is added later.
 */
import { managerLockMachine } from "../../machines/keys/manager-lock.machine.ts";
import { lockState, parseUnlockKey, unlockKeyOf, type LockState } from "../../machines/keys/unlock-key.ts";
import { GetLockResponse, UnlockResponse, type Cluster, type LockService } from "../../proto/gen/messages.ts";
import type { Host } from "../../runtime/host.ts";
import type { Random, Telemetry } from "../../runtime/ports/index.ts";
import { RpcError, Status, type ServiceHandlers } from "../../runtime/ports/rpc.ts";
import { fingerprint } from "../../runtime/store/seal.ts";
import type { Store } from "../../runtime/store/store.ts";
import { openVault, type KeyFileDisk, type LockedVault, type Vault } from "../../runtime/store/vault.ts";
import type { Running } from "../environment.ts";

/** The error of every call except `Unlock` on a locked manager. */
export const lockedSentence =
  "this manager is locked: its keys are encrypted, and it needs the unlock key to start. Run 'muster swarm unlock' on its machine";

export interface ManagerLock extends Running {
  readonly handlers: ServiceHandlers<typeof LockService>;
  isLocked(): boolean;
  /** Null until the keys are in memory. */
  vault(): Vault | null;
  /** Resolves when the keys are in memory. Rejects with an Error of one sentence when the file is damaged. */
  opened(): Promise<Vault>;
  /** Keeps the file locked as that cluster object requires from now on. The vault must be open. */
  follow(store: Store): void;
}

interface ManagerLockParts {
  readonly host: Host;
  readonly random: Random;
  readonly telemetry: Telemetry;
  readonly disk: KeyFileDisk;
  /** Opened by an earlier life of this process. */
  readonly opened?: Vault | null;
}

export function startManagerLock({
  host,
  random,
  telemetry,
  disk,
  opened: before = null,
}: ManagerLockParts): ManagerLock {
  let locked: LockedVault | null = null;
  let vault: Vault | null = null;
  /** Passed from `Unlock` to the chart's effect here, and never in an event. */
  let tried: Uint8Array = new Uint8Array();
  let verdict: "open" | "wrong key" | "broken" | null = null;
  let store: Store | null = null;
  let watching: { unsubscribe(): void } | null = null;
  let resolveOpen: (vault: Vault) => void;
  let rejectOpen: (error: Error) => void;
  const whenOpen = new Promise<Vault>((resolve, reject) => {
    resolveOpen = resolve;
    rejectOpen = reject;
  });
  // Prevents an unhandled rejection when nobody awaits it.
  whenOpen.catch(() => {});

  const clusterOf = (): Cluster | undefined => {
    for (const cluster of store?.all("cluster") ?? []) return cluster;
    return undefined;
  };

  /** Null while there is no cluster object. */
  const stateOf = (): LockState | null => {
    const cluster = clusterOf();
    if (cluster === undefined || vault === null) return null;
    const handed = [...(store?.all("manager") ?? [])].map(({ handedLock }) => handedLock);
    return lockState(vault.lock, fingerprint(unlockKeyOf(cluster) ?? new Uint8Array()), handed);
  };

  const hosted = host.start(managerLockMachine, "manager-lock", undefined, {
    effects: {
      openFile: (_, self) => {
        const opened = before === null ? openVault(disk, random) : { kind: "open" as const, vault: before };
        if (opened.kind === "broken") {
          self.send({ type: "file.broken", reason: opened.reason });
          return;
        }
        if (opened.kind === "locked") locked = opened.vault;
        else vault = opened.vault;
        self.send({ type: opened.kind === "locked" ? "file.locked" : "file.opened" });
      },
      tryKey: (_, self) => {
        const outcome = locked?.unlock(tried) ?? { kind: "wrong key" as const };
        tried = new Uint8Array();
        verdict = outcome.kind;
        if (outcome.kind === "open") {
          vault = outcome.vault;
          self.send({ type: "file.opened" });
        } else if (outcome.kind === "wrong key") self.send({ type: "unlock.refused" });
        else self.send({ type: "file.broken", reason: "the unlock key is correct, but the contents are damaged" });
      },
      relock: (_, self) => {
        try {
          vault?.relock(unlockKeyOf(clusterOf()));
          telemetry.log.info({ locked: vault?.lock !== "" }, "rewrote the manager's key file for autolock");
          self.send({ type: "relock.done" });
        } catch (error) {
          telemetry.log.error({ error: String(error) }, "cannot write the manager's key file; it is unchanged");
          self.send({ type: "relock.failed", reason: String(error) });
        }
      },
      look: (_, self) => {
        const state = stateOf();
        if (state !== null) self.send({ type: "lock.read", state });
      },
      announceOpen: () => {
        if (vault !== null) resolveOpen(vault);
      },
      announceLocked: () => {
        if (verdict === null) telemetry.log.warn({}, lockedSentence);
        else telemetry.log.warn({}, "received a wrong unlock key");
      },
      announceBroken: ({ reason }) => rejectOpen(new Error(`cannot use the manager's key file: ${reason}`)),
    },
  });

  const look = (): void => {
    const state = stateOf();
    if (state !== null) hosted.send({ type: "lock.read", state });
  };

  return {
    isLocked: () => hosted.snapshot.value === "locked",
    vault: () => vault,
    opened: () => whenOpen,
    follow: (followed) => {
      store = followed;
      watching = followed.watch(({ changes }) => {
        if (changes.some(({ table }) => table === "cluster" || table === "manager")) look();
      });
      look();
    },
    handlers: {
      GetLock: () => GetLockResponse.create({ locked: hosted.snapshot.value === "locked" }),
      Unlock({ unlockKey }) {
        if (hosted.snapshot.value !== "locked")
          throw new RpcError(Status.FAILED_PRECONDITION, "this manager is not locked");
        const key = parseUnlockKey(unlockKey);
        if (key === null)
          throw new RpcError(Status.INVALID_ARGUMENT, "invalid unlock key: expected the prefix SWMKEY-1-");
        tried = key;
        hosted.send({ type: "unlock.requested" });
        if (verdict === "wrong key")
          throw new RpcError(Status.PERMISSION_DENIED, "swarm could not be unlocked: invalid key provided");
        if (verdict === "broken")
          throw new RpcError(
            Status.DATA_LOSS,
            "the unlock key is correct, but the contents of the key file are damaged",
          );
        return UnlockResponse.create({});
      },
    },
    stop: () => {
      watching?.unsubscribe();
      hosted.stop();
    },
  };
}
