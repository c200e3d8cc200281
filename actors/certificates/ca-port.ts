/**
 * The certificate authority as actors see it. `runtime/pki/index.ts` as a whole is one (`import * as pki`); a simulation
 * hands in another, whose certificates are plain text and whose every byte comes from the seed.
 */
import type { ExternalCrossRequest } from "../../runtime/external-ca.ts";

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
  /** Cross-certificates to deliver after the leaf while a root is being rotated; none when absent. */
  readonly intermediatesPem?: string;
}

/** Who signs: DER of its name and of its public key, which together tell issuers apart. */
export interface IssuerNameRead {
  readonly subjectDer: Uint8Array;
  readonly publicKeyDer: Uint8Array;
}

export type RootCheck =
  | {
      readonly kind: "root";
      /** In the one form in which certificates are compared and told to nodes. */
      readonly certificatePem: string;
      readonly count: number;
      readonly notAfterMs: number;
    }
  | { readonly kind: "refused"; readonly reason: string };

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
  /** Whether certificates can be a cluster's root, with the key where there is one. Never throws. */
  checkRoot(certificatePem: string, keyPem: string | null, nowMs: number): RootCheck;
  /** The first root, with the second one's signature. Throws when the latter's certificate and key do not fit. */
  crossSign(newRootPem: string, oldRootPem: string, oldKeyPem: string): string;
  /** What an external CA is asked for instead. Throws when certificate and key do not fit. */
  crossSignRequest(newRootPem: string, newKeyPem: string): ExternalCrossRequest;
  /** Of the first certificate; null when there is none. Never throws. */
  issuerName(rootPem: string): IssuerNameRead | null;
  /** What follows the first certificate of a chain, each certificate as a text of its own. Never throws. */
  intermediatesOf(chainPem: string): readonly string[];
  /** The certificates of a PEM text in one form; empty when there are none. Never throws. */
  normalizePem(pem: string): string;
  /** When to renew, in milliseconds since the epoch. `fraction` is uniform in [0, 1). */
  renewalInstant(validity: { readonly notBeforeMs: number; readonly notAfterMs: number }, fraction: number): number;
  makeJoinToken(rootPem: Uint8Array, secret: Uint8Array): string;
  parseJoinToken(text: string): { readonly kind: "token"; readonly digestHex: string } | { readonly kind: "invalid" };
  /** In a time that does not depend on where the two differ. */
  isSameToken(left: string, right: string): boolean;
  /** Bytes of a join token's secret. */
  readonly joinSecretBytes: number;
}
