/** The NATS servers that the managers of a cluster share. */

export interface SharedNats {
  /** Without duplicates. */
  readonly servers: readonly string[];
  /** Whether the data of the manager's own NATS is moved there first. */
  readonly moves: boolean;
  /** TTL of the lease from now on, in milliseconds; null: unchanged. */
  readonly leaseTtlMs: number | null;
  /** Whether to accept servers beyond loopback that lack TLS or authentication. */
  readonly insecure: boolean;
  /** Paths, read again for each connection, so that renewed files take effect; null: TLS only if the servers require it. */
  readonly tls: { readonly caFile?: string; readonly certFile?: string; readonly keyFile?: string } | null;
}

/** The part that connection options need, besides the number of replicas. */
export function natsAccess({ insecure, leaseTtlMs, tls }: SharedNats): {
  readonly insecure: boolean;
  readonly leaseTtlMs?: number;
  readonly tls?: NonNullable<SharedNats["tls"]>;
} {
  return { insecure, ...(leaseTtlMs === null ? {} : { leaseTtlMs }), ...(tls === null ? {} : { tls }) };
}

/** Replicas of streams on these servers: 3 with enough servers, the most that JetStream benefits from. */
export function replicasOn({ servers }: Pick<SharedNats, "servers">): 1 | 3 {
  return servers.length >= 3 ? 3 : 1;
}
