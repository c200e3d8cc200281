/**
 * The cluster's unlock key: when it exists, and its text form: `SWMKEY-1-` and the key's 32 bytes in base64 without padding,
 * as in SwarmKit.
 */
import { EncryptionKey, type Cluster, type ClusterSpec } from "../../proto/gen/messages.ts";

/** Length of a key that encrypts managers' key files: AES-256. */
export const unlockKeyBytes = 32;
const prefix = "SWMKEY-1-";

export function formatUnlockKey(key: Uint8Array): string {
  return prefix + btoa(String.fromCharCode(...key)).replaceAll("=", "");
}

/** Null if the text is not a well-formed key. */
export function parseUnlockKey(text: string): Uint8Array | null {
  const trimmed = text.trim();
  if (!trimmed.startsWith(prefix)) return null;
  let key: Uint8Array;
  try {
    key = Uint8Array.from(atob(trimmed.slice(prefix.length)), (character) => character.charCodeAt(0));
  } catch {
    return null;
  }
  // Only the canonical spelling is accepted: spare bits are zero, and there is no padding.
  return key.length === unlockKeyBytes && formatUnlockKey(key) === trimmed ? key : null;
}

/** The subsystem of the unlock key among the cluster's keys (SwarmKit's name). */
const unlockSubsystem = "swarm-manager";

/** The state of a manager's key file relative to the cluster's unlock key. */
export type LockState =
  | "right"
  /** Locked with another key, or not locked. */
  | "wrong"
  /** The same, but the cluster's key was not handed out yet: a file locked with it could not be opened by anyone. */
  | "unread";

/** Fingerprints; empty means no key. `handed`: of the keys that managers have handed out. */
export function lockState(own: string, wanted: string, handed: Iterable<string>): LockState {
  if (own === wanted) return "right";
  return wanted === "" || [...handed].includes(wanted) ? "wrong" : "unread";
}

/** Null while autolock is off. */
export function unlockKeyOf(cluster: Cluster | undefined): Uint8Array | null {
  return cluster?.unlockKeys.find(({ subsystem }) => subsystem === unlockSubsystem)?.key ?? null;
}

/**
 * The cluster's keys after an update: with autolock there is one, created when autolock is enabled and replaced when a
 * rotation is requested; without autolock there is none, and a rotation request is ignored, as in SwarmKit.
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
