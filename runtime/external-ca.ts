/**
 * Certificate authorities outside of the cluster, as actors see them (a port): asked over HTTPS with this manager's certificate.
 * `edges/cfssl/client.ts` is the real one.
 */
export interface ExternalNodeRequest {
  readonly csrPem: string;
  readonly nodeId: string;
  readonly role: "swarm-worker" | "swarm-manager";
  /** The cluster's id. */
  readonly organization: string;
}

export interface ExternalCrossRequest {
  readonly csrPem: string;
  readonly commonName: string;
  readonly basicConstraints: { readonly isCritical: boolean; readonly value: Uint8Array } | null;
}

export type ExternalRequest =
  | { readonly kind: "node"; readonly node: ExternalNodeRequest }
  | { readonly kind: "cross"; readonly root: ExternalCrossRequest };

export interface ExternalCa {
  /** Why nobody can be asked at the address, whose server certificate must lead to `rootPem`; null when somebody can. Never rejects. */
  probe(url: string, rootPem: string): Promise<string | null>;
  /**
   * The PEM certificate from the first of the addresses that gives one. Rejects with an Error that has each one's reason:
   * whoever asks may ask again.
   */
  sign(urls: readonly string[], rootPem: string, request: ExternalRequest): Promise<string>;
}

/** For those without a way out, as simulations. */
export const noExternalCa: ExternalCa = {
  probe: async () => "external CAs cannot be reached from here",
  sign: async () => {
    throw new Error("external CAs cannot be reached from here");
  },
};
