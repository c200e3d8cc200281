/**
 * An operator who turns autolock on and off and rotates the unlock key, keeps every unlock key, and unlocks each manager that
 * waits for one.
 */
import {
  ClusterSpec,
  ControlService,
  EncryptionConfig,
  KeyRotation,
  ListClustersRequest,
  UnlockRequest,
  UpdateClusterRequest,
} from "../../proto/gen/messages.ts";
import type { ManagerLock } from "../../actors/keys/manager-lock.ts";
import { formatUnlockKey, unlockKeyBytes } from "../../machines/keys/unlock-key.ts";
import { RpcError, Status, type CallContext } from "../../runtime/ports/rpc.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import { Operator, type OperatorOptions } from "./operator.ts";

/** Interval between rounds through the managers, in milliseconds. */
const roundMs = 700;

const call: CallContext = {
  peer: { identity: null, local: true, address: "" },
  signal: new AbortController().signal,
  traceparent: "",
};

export class LockWorkload extends Operator {
  constructor(options: OperatorOptions) {
    super(options, "workload.locks", { isFirstAtOnce: false });
  }

  protected async operate(): Promise<void> {
    const list = ListClustersRequest.create();
    const { clusters } = await this.call(ControlService.methods.ListClusters, list, "look at the lock");
    const [cluster] = clusters;
    if (cluster === undefined) return;
    const isOn = cluster.spec?.encryptionConfig?.autoLockManagers === true;
    const what = isOn ? this.random.pick(["rotate", "rotate", "off"] as const) : "on";
    const spec = cluster.spec ?? ClusterSpec.create();
    const request = UpdateClusterRequest.create({
      clusterId: cluster.id,
      clusterVersion: cluster.meta?.version ?? null,
      spec: ClusterSpec.patch(spec, {
        encryptionConfig: EncryptionConfig.create({ autoLockManagers: what !== "off" }),
      }),
      rotation: KeyRotation.create({ managerUnlockKey: what === "rotate" }),
    });
    await this.call(ControlService.methods.UpdateCluster, request, `change the lock (${what})`);
    this.mark(`autolock.${what}`);
  }
}

/** Visits the managers repeatedly, for the whole simulation. */
export function unlockWhatIsLocked(options: {
  /** Calls `work` repeatedly, at intervals of `ms` of true time. */
  readonly every: (ms: number, work: () => void) => void;
  /** The lock of each running manager. */
  readonly locks: () => readonly ManagerLock[];
  /** Newest first. */
  readonly keys: () => readonly Uint8Array[];
  /** Asks the running managers for their current unlock key. */
  readonly ask: () => void;
  readonly random: SimRandom;
  readonly mark: (name: string) => void;
  readonly onWrong: (claim: string) => void;
}): void {
  const { keys, locks, mark, onWrong, random } = options;
  const tryKey = (lock: ManagerLock, key: Uint8Array): number => {
    try {
      void lock.handlers.Unlock(UnlockRequest.create({ unlockKey: formatUnlockKey(key) }), call);
      return Status.OK;
    } catch (error) {
      return error instanceof RpcError ? error.code : Status.UNKNOWN;
    }
  };
  options.every(roundMs, () => {
    if (random.chance(0.5)) options.ask();
    for (const lock of locks()) {
      // The operator arrives after a random delay.
      if (!lock.isLocked() || random.chance(0.5)) continue;
      if (random.chance(0.3)) {
        const code = tryKey(lock, random.bytes(unlockKeyBytes));
        if (code !== Status.PERMISSION_DENIED) onWrong(`S24: a wrong unlock key was answered ${code}`);
        mark("unlock.wrong");
      }
      const opened = keys().findIndex((key) => tryKey(lock, key) === Status.OK);
      if (opened < 0) onWrong("S24: a manager is locked by a key that the operator never received");
      else mark(opened === 0 ? "unlock.newest" : "unlock.older");
    }
  });
}
