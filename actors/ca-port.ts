/**
 * The certificate authority as actors see it. `runtime/pki/index.ts` as a whole is one (`import * as pki`); a simulation
 * hands in another, whose certificates are plain text and whose every byte comes from the seed.
 */
export type NodeRoleName = "swarm-worker" | "swarm-manager";

export type CsrOutcome = { readonly kind: "csr" } | { readonly kind: "refused"; readonly reason: string };

export interface CertificateFactsRead {
  readonly kind: "certificate";
  readonly nodeId: string;
  readonly role: NodeRoleName | null;
  readonly organization: string;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  /** DER of the issuer's name. */
  readonly issuerSubjectDer: Uint8Array;
  /** DER of the issuer's public key; null when neither chain nor root hold the issuer. */
  readonly issuerPublicKeyDer: Uint8Array | null;
  /** True when the chain leads to the root and all of it is valid at `nowMs`. */
  verify(rootPem: string, nowMs: number): boolean;
}

export interface IssueRequest {
  readonly csrPem: Uint8Array | string;
  readonly rootCertificatePem: string;
  readonly rootKeyPem: string;
  readonly nodeId: string;
  readonly role: NodeRoleName;
  /** The cluster's id. */
  readonly organization: string;
  readonly validitySeconds: number;
  readonly nowMs: number;
}

export interface CertificateAuthority {
  createRoot(options: {
    readonly nowMs: number;
  }): Promise<{ readonly certificatePem: string; readonly keyPem: string }>;
  createKeyAndCsr(): Promise<{ readonly keyPem: string; readonly csrPem: string }>;
  /** Never throws. */
  readCsr(pem: Uint8Array | string): CsrOutcome;
  /** The PEM chain for the node. Rejects when the request is none, or root and key do not fit. */
  issue(request: IssueRequest): Promise<string>;
  describeCertificate(
    pem: string,
    rootPem?: string,
  ): CertificateFactsRead | { readonly kind: "malformed"; readonly reason: string };
  /** When to renew, in milliseconds since the epoch. `fraction` is uniform in [0, 1). */
  renewalInstant(validity: { readonly notBeforeMs: number; readonly notAfterMs: number }, fraction: number): number;
  makeJoinToken(rootPem: Uint8Array, secret: Uint8Array): string;
  parseJoinToken(text: string): { readonly kind: "token"; readonly digestHex: string } | { readonly kind: "invalid" };
  /** In a time that does not depend on where the two differ. */
  isSameToken(left: string, right: string): boolean;
  /** Bytes of a join token's secret. */
  readonly joinSecretBytes: number;
}
