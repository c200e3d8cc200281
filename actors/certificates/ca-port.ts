/**
 * The certificate authority as actors see it. `lib/pki/index.ts` implements it (`import * as pki`); a simulation uses
 * another, whose certificates are plain text and whose bytes all come from the seed.
 */
import type { CertificateOutcome, CsrOutcome, IssueRequest, IssuerName, RootOutcome } from "../../lib/pki/index.ts";
import type { ExternalCrossRequest } from "../../runtime/ports/external-ca.ts";

export interface CertificateAuthority {
  createRoot(options: {
    readonly nowMs: number;
  }): Promise<{ readonly certificatePem: string; readonly keyPem: string }>;
  createKeyAndCsr(): Promise<{ readonly keyPem: string; readonly csrPem: string }>;
  /** Never throws. */
  readCsr(pem: Uint8Array | string): CsrOutcome;
  /** The PEM chain for the node. Rejects when the request is invalid, or root and key do not match. */
  issue(request: IssueRequest): Promise<string>;
  describeCertificate(pem: string, rootPem?: string): CertificateOutcome;
  /** Checks whether certificates can be a cluster's root, together with the key if there is one. Never throws. */
  checkRoot(certificatePem: string, keyPem: string | null, nowMs: number): RootOutcome;
  /** The first root, signed by the second. Throws when the second's certificate and key do not match. */
  crossSign(newRootPem: string, oldRootPem: string, oldKeyPem: string): string;
  /** The equivalent request to an external CA. Throws when certificate and key do not match. */
  crossSignRequest(newRootPem: string, newKeyPem: string): ExternalCrossRequest;
  /** Issuer name of the first certificate; null when there is none. Never throws. */
  issuerName(rootPem: string): IssuerName | null;
  /** The certificates after the first of a chain, each as its own PEM text. Never throws. */
  intermediatesOf(chainPem: string): readonly string[];
  /** The certificates of a PEM text in normalized form; empty when there are none. Never throws. */
  normalizePem(pem: string): string;
  /** When to renew, in milliseconds since the epoch. `fraction` is uniform in [0, 1). */
  renewalInstant(validity: { readonly notBeforeMs: number; readonly notAfterMs: number }, fraction: number): number;
  makeJoinToken(rootPem: Uint8Array, secret: Uint8Array): string;
  parseJoinToken(text: string): { readonly kind: "token"; readonly digestHex: string } | { readonly kind: "invalid" };
  /** Compares in constant time. */
  isSameToken(left: string, right: string): boolean;
  /** Length of a join token's secret in bytes. */
  readonly joinSecretBytes: number;
}
