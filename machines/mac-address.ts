import { sha256 } from "./policy/digest.ts";

/** A hardware address that its owner gives (the second bit of the first byte), and always the same for the same text. */
export function macOf(text: string): string {
  const bytes = [2, ...sha256(`mac ${text}`).subarray(0, 5)];
  return bytes.map((byte) => byte.toString(16).padStart(2, "0")).join(":");
}
