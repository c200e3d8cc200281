/**
 * What a task is answered that asks for a name, or for whose an address is: what its networks know, in the order in which it is
 * attached to them, and else what the world says.
 *
 * DA1: a task learns of no network that it is not in.
 * DA2: of an internal network nothing goes out, questions included: a name could carry anything.
 */
import { addressAt, parseAddress } from "../../runtime/ip-address.ts";
import type { NetworkNames } from "./names.ts";

export interface Question {
  /** As it was asked. */
  readonly name: string;
  /** `A`, `AAAA`, `PTR` … */
  readonly type: string;
}

export type Answer =
  | { readonly kind: "addresses"; readonly ttlS: number; readonly addresses: readonly string[] }
  | { readonly kind: "pointers"; readonly ttlS: number; readonly names: readonly string[] }
  /** There is such a name, and nothing of what was asked. */
  | { readonly kind: "empty" }
  /** There is no such name. */
  | { readonly kind: "unknown" }
  /** Somebody else may know. */
  | { readonly kind: "elsewhere" };

export interface Asker {
  /** Of its networks, in its order. */
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

/** From `4.3.2.1.in-addr.arpa`, and from the 32 digits before `ip6.arpa`; null for other names. */
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
