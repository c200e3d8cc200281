/** An unlock key as people see it: `SWMKEY-1-` and the key's 32 bytes in base64 without padding, as SwarmKit writes it. */

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
