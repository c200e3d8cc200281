/** Groups client addresses into sources, for rate limits on strangers. */
import { isIPv6 } from "node:net";

/** Leading groups of an IPv6 address that name a network; one machine usually has all of its addresses. */
const networkGroups = 4;

/** The IPv4 address in an IPv6 address that stands for it, as sockets for both show it; every other address unchanged. */
export function plainAddress(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/, "");
}

/** The source of an address: an IPv4 address, or the /64 network of an IPv6 address. */
export function sourceOf(address: string): string {
  const plain = plainAddress(address);
  if (!isIPv6(plain)) return plain;
  const [head = "", tail] = plain.split("%")[0]?.split("::") ?? [];
  const groups = head === "" ? [] : head.split(":");
  const rest = tail === undefined || tail === "" ? [] : tail.split(":");
  const zeros = tail === undefined ? 0 : Math.max(0, 8 - groups.length - rest.length);
  return [...groups, ...Array.from({ length: zeros }, () => "0"), ...rest].slice(0, networkGroups).join(":");
}
