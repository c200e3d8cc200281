/**
 * Connections that arrive over something other than TCP, such as a site's NATS.
 *
 * CC1: whatever TLS reports of a handshake, it reports in the asynchronous context in which the handshake began. Node offers no other
 *      way from a TLS socket to the stream under it.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import type { Duplex } from "node:stream";

/** Where such a connection comes from. */
export interface Carrier {
  /** IP address from which its bytes come. */
  readonly address: string;
  /** The site whose nodes they come from. */
  readonly site: string;
}

interface Carried {
  readonly stream: Duplex;
  readonly carrier: Carrier;
}

const handshakes = new AsyncLocalStorage<Carried | null>();

/** Whose limits the connection counts for. */
export function sourceOfCarried({ site }: Carrier): string {
  return `site ${site}`;
}

/** Begins a handshake. `carried`: null for a TCP connection. */
export function beginHandshake(carried: Carried | null, begin: () => void): void {
  handshakes.run(carried, begin);
}

/** The connection whose handshake is being reported; null for a TCP connection. */
export function carriedNow(): Carried | null {
  return handshakes.getStore() ?? null;
}
