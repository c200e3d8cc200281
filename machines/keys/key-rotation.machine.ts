/**
 * Rotates the keys with which engines encrypt the traffic between nodes: once per rotation period, by the leader.
 *
 *   beginning ──▶ resting ──▶ rotating ──▶ resting
 *        └────────────────────▶ │ ▲
 *                               ▼ │
 *                            retrying
 *
 * K1: each subsystem always has exactly `keyringSize` keys; otherwise engines ignore the keys, or crash.
 * K2: a new key's lamport time is greater than that of every older key. Engines encrypt with the middle one of three, so each
 *     key is known everywhere for a whole period before it is used, and for another one after.
 */
import { assign } from "xstate";
import { Cluster, EncryptionKey, EncryptionKey_Algorithm } from "../../proto/gen/messages.ts";
import { chart, effect } from "../chart.ts";

/** SwarmKit's: the newest key, the previous one for traffic in transit, and the next one, distributed in advance. */
export const keyringSize = 3;
export const keySubsystems = ["networking:gossip", "networking:ipsec"] as const;
/** AES-128. */
export const networkKeyBytes = 16;
export const keyRotationTimes = { periodMs: 12 * 3_600_000, retryMs: 10_000 } as const;

/** The engines' condition for accepting the keys (worker protocol §5.7). */
export function areKeysWhole({ networkBootstrapKeys: keys }: Cluster): boolean {
  return keySubsystems.every((name) => keys.filter(({ subsystem }) => subsystem === name).length === keyringSize);
}

/**
 * The cluster with a new key in each subsystem instead of the oldest; missing keys are added. `key` generates one key per
 * call.
 */
export function withRotatedKeys(cluster: Cluster, key: () => Uint8Array): Cluster {
  // Lamport times are unique across subsystems: engines recognise new keys by their times alone.
  let lamportTime = cluster.encryptionKeyLamportClock;
  const keys: EncryptionKey[] = [];
  for (const subsystem of keySubsystems) {
    const newest = cluster.networkBootstrapKeys
      .filter((old) => old.subsystem === subsystem)
      .toSorted((a, b) => b.lamportTime - a.lamportTime)
      .slice(0, keyringSize - 1)
      .toReversed();
    const algorithm = EncryptionKey_Algorithm.AES_128_GCM;
    keys.push(...newest);
    for (let size = newest.length; size < keyringSize; size += 1) {
      lamportTime += 1;
      keys.push(EncryptionKey.create({ subsystem, algorithm, key: key(), lamportTime }));
    }
  }
  return Cluster.patch(cluster, { networkBootstrapKeys: keys, encryptionKeyLamportClock: lamportTime });
}

type KeyRotationEvent =
  | { readonly type: "keys.rotated" }
  | { readonly type: "rotation.failed"; readonly reason: string };

export const keyRotationMachine = chart({
  types: {
    context: {} as { readonly reason: string; readonly isWhole: boolean },
    events: {} as KeyRotationEvent,
    /** `isWhole`: whether the cluster has all its keys. */
    input: {} as { readonly isWhole: boolean },
  },
  effects: {
    /** Answered by `keys.rotated` or `rotation.failed`. */
    rotateKeys: effect(),
  },
  actions: {
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
  },
  guards: { isWhole: ({ context }) => context.isWhole },
  delays: { rotationPeriod: keyRotationTimes.periodMs, retryDelay: keyRotationTimes.retryMs },
  shows: { context: ["isWhole"] },
}).createMachine({
  id: "keyRotation",
  context: ({ input }) => ({ reason: "", isWhole: input.isWhole }),
  initial: "beginning",
  states: {
    beginning: {
      description: "Starting with a new leader; missing keys are created at once. K1",
      always: [{ guard: "isWhole", target: "resting" }, { target: "rotating" }],
    },
    resting: {
      description: "The keys are within their maximum age.",
      meta: {
        waitingFor: "the maximum age of the keys",
        wokenBy: { rotationPeriod: "the end of the rotation period" },
      },
      after: { rotationPeriod: "rotating" },
    },
    rotating: {
      description: "Writing new keys to the cluster object. K1, K2",
      meta: {
        waitingFor: "the log, to record new keys",
        wokenBy: { "keys.rotated": "the ledger's answer", "rotation.failed": "a failed write" },
      },
      entry: "rotateKeys",
      on: {
        "keys.rotated": { target: "resting", actions: { type: "rememberReason", params: { reason: "" } } },
        "rotation.failed": {
          target: "retrying",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
      },
    },
    retrying: {
      description: "The log write failed.",
      meta: { waitingFor: "the next attempt to write new keys", wokenBy: { retryDelay: "the end of the delay" } },
      after: { retryDelay: "rotating" },
    },
  },
});
