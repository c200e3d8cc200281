/**
 * The cluster's unlock key: when there is one, and how people see it: `SWMKEY-1-` and the key's 32 bytes in base64 without
 * padding, as SwarmKit writes it.
 */
import { EncryptionKey, type Cluster, type ClusterSpec } from "../../proto/gen/messages.ts";

/** Of a key that managers' key files are encrypted with: AES-256. */
export const unlockKeyBytes = 32;
const prefix = "SWMKEY-1-";

export function formatUnlockKey(key: Uint8Array): string {
  return prefix + btoa(String.fromCharCode(...key)).replaceAll("=", "");
}

/** Null for anything that no cluster gave out. */
export function parseUnlockKey(text: string): Uint8Array | null {
  const trimmed = text.trim();
  if (!trimmed.startsWith(prefix)) return null;
  let key: Uint8Array;
  try {
    key = Uint8Array.from(atob(trimmed.slice(prefix.length)), (character) => character.charCodeAt(0));
  } catch {
    return null;
  }
  // Only the one spelling of a key is taken: spare bits are zero and nothing is padded.
  return key.length === unlockKeyBytes && formatUnlockKey(key) === trimmed ? key : null;
}

/** Whose key it is among the cluster's (SwarmKit's name of the role). */
const unlockSubsystem = "swarm-manager";

/** How a manager's key file stands to the cluster's unlock key. */
export type LockState =
  | "right"
  /** It is locked by another one, or not at all. */
  | "wrong"
  /** The same, and nobody has been given the cluster's key yet: locked by it, nobody could open the file again. */
  | "unread";

/** Fingerprints; empty stands for no key. `handed`: of the keys that managers have given to somebody. */
export function lockState(own: string, wanted: string, handed: Iterable<string>): LockState {
  if (own === wanted) return "right";
  return wanted === "" || [...handed].includes(wanted) ? "wrong" : "unread";
}

/** Null while autolock is off. */
export function unlockKeyOf(cluster: Cluster | undefined): Uint8Array | null {
  return cluster?.unlockKeys.find(({ subsystem }) => subsystem === unlockSubsystem)?.key ?? null;
}

/**
 * The cluster's keys after an update: autolock has one, made when it is switched on and anew when that is asked for; without
 * autolock there is none, and a rotation asked for is passed over, as SwarmKit does.
 */
export function unlockKeysAfter(
  { unlockKeys }: Cluster,
  spec: ClusterSpec,
  { rotates, draw }: { readonly rotates: boolean; readonly draw: () => Uint8Array },
): readonly EncryptionKey[] {
  const others = unlockKeys.filter(({ subsystem }) => subsystem !== unlockSubsystem);
  if (spec.encryptionConfig?.autoLockManagers !== true) return others;
  const present = unlockKeys.find(({ subsystem }) => subsystem === unlockSubsystem);
  if (present !== undefined && !rotates) return unlockKeys;
  return [...others, EncryptionKey.create({ subsystem: unlockSubsystem, key: draw() })];
}
