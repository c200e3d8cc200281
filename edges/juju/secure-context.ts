/** TLS options of the ports for JSON clients and browsers. */
import { constants } from "node:crypto";
import type { SecureContextOptions } from "node:tls";
import { keyExchangeGroups } from "../grpc/tls-options.ts";

/** All in PEM. */
export interface JsonCredentials {
  /** Leaf, followed by the authority. */
  readonly certificatePem: string;
  readonly keyPem: string;
  /** Roots that client certificates may come from. */
  readonly acceptedPem: string;
}

export function secureContext({ certificatePem, keyPem, acceptedPem }: JsonCredentials): SecureContextOptions {
  return {
    cert: certificatePem,
    key: keyPem,
    ca: acceptedPem,
    minVersion: "TLSv1.2",
    ecdhCurve: keyExchangeGroups,
    // A resumed session would skip the check of the client certificate.
    secureOptions: constants.SSL_OP_NO_TICKET,
    sessionTimeout: 1,
  };
}
