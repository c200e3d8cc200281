/**
 * Answers a task's DNS query, for a name or for the name of an address: from its networks, in the order of its attachments,
 * else from the upstream name servers.
 *
 * DA1: a task learns nothing about networks that it is not attached to.
 * DA2: no query from an internal network is forwarded: a name could carry any data.
 */
import { addressAt, parseAddress } from "../../lib/ip-address.ts";
import type { NetworkNames } from "./names.ts";

interface Question {
  /** As in the query. */
  readonly name: string;
  /** `A`, `AAAA`, `PTR` … */
  readonly type: string;
}

export type Answer =
  | { readonly kind: "addresses"; readonly ttlS: number; readonly addresses: readonly string[] }
  | { readonly kind: "pointers"; readonly ttlS: number; readonly names: readonly string[] }
  /** The name exists, but has no record of that type. */
  | { readonly kind: "empty" }
  /** The name does not exist. */
  | { readonly kind: "unknown" }
  /** An upstream server may know. */
  | { readonly kind: "elsewhere" };

export interface Asker {
  /** The task's networks, in the order of its attachments. */
  readonly networks: readonly NetworkNames[];
  readonly isInternal: boolean;
}

export function answerTo({ name, type }: Question, { isInternal, networks }: Asker, pointerTtlS: number): Answer {
  const asked = name.toLowerCase().replace(/\.$/, "");
  const reverse = addressOf(asked);
  if (reverse !== null) {
    for (const network of networks) {
      const found = network.at(reverse);
      if (found === undefined) continue;
      if (found === null) return { kind: "unknown" };
      return type === "PTR" || type === "ANY"
        ? { kind: "pointers", ttlS: pointerTtlS, names: [found] }
        : { kind: "empty" };
    }
  } else {
    for (const network of networks) {
      const found = network.find(asked);
      if (found === null) continue;
      const addresses = found.addresses.filter((address) => isOfType(address, type));
      return addresses.length === 0 ? { kind: "empty" } : { kind: "addresses", ttlS: found.ttlS, addresses };
    }
  }
  return { kind: isInternal ? "unknown" : "elsewhere" };
}

function isOfType(address: string, type: string): boolean {
  return type === "ANY" || type === (address.includes(":") ? "AAAA" : "A");
}

/** The address in `4.3.2.1.in-addr.arpa`, or in the 32 digits before `ip6.arpa`; null for other names. */
function addressOf(name: string): string | null {
  const v4 = /^((?:\d{1,3}\.){4})in-addr\.arpa$/.exec(name)?.[1];
  if (v4 !== undefined) {
    const address = v4.split(".").slice(0, 4).reverse().join(".");
    return parseAddress(address) === null ? null : address;
  }
  const v6 = /^((?:[0-9a-f]\.){32})ip6\.arpa$/.exec(name)?.[1];
  if (v6 === undefined) return null;
  const digits = v6.split(".").slice(0, 32).reverse().join("");
  const parsed = parseAddress((digits.match(/.{4}/g) as readonly string[]).join(":"));
  return parsed === null ? null : addressAt({ ...parsed, length: 128 }, 0);
}
