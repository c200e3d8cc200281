/** TLS of a connection to NATS. */
import type { PeerCertificate } from "node:tls";
import type { TlsOptions } from "nats";
import type { NatsAddress } from "./address.ts";

export type NatsTls = TlsOptions & {
  /** The name that the server's certificate must have; default: the host of its address. */
  readonly serverName?: string;
  /** The same, for addresses with a host name, which the library would have in the certificate. */
  readonly servername?: string;
  /** Of Node's TLS. */
  readonly rejectUnauthorized?: boolean;
  readonly checkServerIdentity?: (name: string, certificate: PeerCertificate) => Error | undefined;
};

/**
 * The library does not pass Node the name that the certificate must have, and Node would then use `localhost`. TLS is limited to
 * 1.2: in 1.3 a server rejects a missing or wrong client certificate after the handshake, at a moment when nothing listens to
 * the library's socket, so the rejection would end the process.
 */
export function identifying({ serverName, ...tls }: NatsTls, { host }: NatsAddress): NatsTls {
  return { ...tls, host: serverName ?? host, maxVersion: "TLSv1.2" } as NatsTls;
}
