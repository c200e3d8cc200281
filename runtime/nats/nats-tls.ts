/** TLS of a connection to NATS. */
import type { TlsOptions } from "nats";

export type NatsTls = TlsOptions & {
  /** The name that the server's certificate must have; default: the host of its address. */
  readonly serverName?: string;
};
