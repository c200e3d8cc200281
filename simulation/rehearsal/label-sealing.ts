/**
 * Sealing for rehearsals, which are about time and placement, not about secrecy: the data stays readable, and a label in place of GCM's tag
 * says under which key and for which place it was sealed. So what belongs elsewhere, or is sealed under another key, is refused as by real
 * managers (E1), at a tenth of the cost. Only simulations can be given it (test/unit/label-sealing.test.ts).
 */
import { equalBytes } from "../../runtime/store/record.ts";
import { sealNonceBytes, sealTagBytes, type SealedFor, type Sealing } from "../../runtime/store/seal.ts";

const nonce = new Uint8Array(sealNonceBytes);

export const labelSealing: Sealing = {
  sealer: (key, _random, sealedFor) => {
    const label = labelOf(key, sealedFor);
    return { nonce, add: (data) => data, end: () => label };
  },
  opener: (key, _nonce, tag, sealedFor) => {
    const label = labelOf(key, sealedFor);
    return { add: (data) => data, end: () => equalBytes(label, tag) };
  },
};

/** FNV-1a, whose offset basis and prime these are. */
const basis = 0x811c9dc5;
const prime = 0x01000193;

function labelOf(key: Uint8Array, { place, purpose }: SealedFor): Uint8Array {
  let hash = basis;
  for (let at = 0; at < purpose.length; at += 1) hash = Math.imul(hash ^ purpose.charCodeAt(at), prime);
  for (let at = 0; at < place.length; at += 1) hash = Math.imul(hash ^ place.charCodeAt(at), prime);
  const label = new Uint8Array(sealTagBytes);
  for (let byte = 0; byte < 4; byte += 1) label[byte] = hash >>> (8 * byte);
  label.set(key.subarray(0, sealTagBytes - 4), 4);
  return label;
}
