/** PEM (RFC 7468) to DER and back. */

/** The DER blocks with this label, in order; empty if there are none or their base64 is invalid. */
export function pemBlocks(pem: string, label: string): readonly Buffer[] {
  const pattern = new RegExp(`-----BEGIN ${label}-----([A-Za-z0-9+/=\\s]*)-----END ${label}-----`, "g");
  const blocks: Buffer[] = [];
  for (const match of pem.matchAll(pattern)) {
    const der = Buffer.from(match[1] as string, "base64");
    if (der.length > 0) blocks.push(der);
  }
  return blocks;
}

/** One PEM block with lines of 64 characters and a final newline. */
export function toPem(der: Uint8Array, label: string): string {
  const lines =
    Buffer.from(der.buffer, der.byteOffset, der.length)
      .toString("base64")
      .match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join("\n")}\n-----END ${label}-----\n`;
}
