/**
 * Certificates by which managers and their own nats-servers authenticate each other. They come from a CA that serves nothing
 * else, so a node's certificate opens nothing in NATS, and theirs opens nothing elsewhere.
 */
import { createRoot } from "./authority.ts";
import { createServerIdentity } from "./server.ts";

/** The name that every such certificate has: managers have no fixed addresses, and trust each other equally. */
export const natsName = "muster-nats";

/**
 * Validities start before any clock that a machine may boot with: without NATS a manager knows nothing, so a clock that is
 * behind must not keep it from its log.
 */
const notBeforeMs = Date.UTC(1990, 0);
/** RFC 5280 §4.1.2.5: no expiration. */
const neverMs = Date.UTC(9999, 11, 31, 23, 59, 59);

/** A CA, PEM. */
export interface NatsAuthority {
  readonly certificatePem: string;
  readonly keyPem: string;
}

export function createNatsAuthority(): Promise<NatsAuthority> {
  return createRoot({ name: "muster-nats-ca", validity: { notBeforeMs, notAfterMs: neverMs } });
}

/**
 * Creates a key and a certificate for both ends of a connection. `addresses`, `names`: where other servers, and other clients
 * than managers, reach the server; they check that.
 */
export function issueNatsIdentity(
  authority: NatsAuthority,
  options: {
    readonly nowMs: number;
    readonly validityMs: number;
    readonly addresses: readonly string[];
    readonly names?: readonly string[];
  },
): ReturnType<typeof createServerIdentity> {
  return createServerIdentity({
    ...options,
    rootCertificatePem: authority.certificatePem,
    rootKeyPem: authority.keyPem,
    names: [natsName, ...(options.names ?? [])],
    notBeforeMs,
    isClient: true,
  });
}
