/** Parsing of addresses, and the address at which others reach this machine. */
import { lookup } from "node:dns/promises";
import { isIP, isIPv4 } from "node:net";
import { networkInterfaces } from "node:os";
import { UserError } from "../lib/user-error.ts";

export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/** Parses `ADDR:PORT`, `[V6]:PORT`, or `ADDR` with the default port. Throws UserError. */
export function parseHostPort(text: string, defaultPort?: number): HostPort {
  const match = /^(?:\[([^\]]+)\]|([^:]*))(?::(\d+))?$/.exec(text);
  const host = match?.[1] ?? match?.[2] ?? "";
  const port = match?.[3] === undefined ? defaultPort : Number(match[3]);
  if (match === null || host === "" || port === undefined || port < 1 || port > 65_535) {
    throw new UserError(`invalid address "${text}": expected ADDR:PORT, such as 192.0.2.1:2377`);
  }
  return { host, port };
}

export function formatHostPort({ host, port }: HostPort): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

/**
 * The address to advertise when listening on `listen`: the same one, or for a wildcard the machine's first external IPv4
 * address (loopback if it has none).
 */
export function advertisedHost(listen: string): string {
  if (listen !== "0.0.0.0" && listen !== "::") return listen;
  for (const addresses of Object.values(networkInterfaces())) {
    for (const { address, internal } of addresses ?? []) if (!internal && isIPv4(address)) return address;
  }
  return "127.0.0.1";
}

/** The addresses of a host name, in order; empty for an address, and when it cannot be resolved. */
export async function addressesOf(host: string): Promise<readonly string[]> {
  if (isIP(host) !== 0) return [];
  try {
    return [...new Set((await lookup(host, { all: true })).map(({ address }) => address))].toSorted();
  } catch {
    return [];
  }
}
