/**
 * The port for certificate authorities outside of the cluster, contacted over HTTPS with this manager's certificate.
 * `edges/cfssl/client.ts` implements it.
 */
interface ExternalNodeRequest {
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
  /**
   * Why the CA at the address, whose server certificate must lead to `rootPem`, cannot be reached; null if it can. Never
   * rejects.
   */
  probe(url: string, rootPem: string): Promise<string | null>;
  /**
   * The PEM certificate from the first address that returns one. Rejects with an Error that contains the reason of each
   * address; the call may be retried.
   */
  sign(urls: readonly string[], rootPem: string, request: ExternalRequest): Promise<string>;
}

/** For processes without outside connections, such as simulations. */
export const noExternalCa: ExternalCa = {
  probe: async () => "this process cannot reach external CAs",
  sign: async () => {
    throw new Error("this process cannot reach external CAs");
  },
};
