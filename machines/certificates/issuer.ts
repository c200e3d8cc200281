/** The current issuer of node certificates: the cluster's root, or during a rotation its successor. */
import { ExternalCA_CAProtocol, type Cluster, type NodeTLSInfo, type RootCA } from "../../proto/gen/messages.ts";
import { isSameBytes } from "../same-message.ts";

const text = new TextDecoder();

export interface Issuer {
  /** PEM. */
  readonly rootPem: string;
  /** PEM; empty if only an external CA has it. */
  readonly keyPem: string;
  /** Appended to each node certificate while nodes trust an older root: PEM, empty outside a rotation. */
  readonly intermediatesPem: string;
  /** The root that nodes trust until the rotation is over: PEM. Equals `rootPem` outside a rotation. */
  readonly trustedPem: string;
  /** HTTPS URLs of external CAs that sign for this root, in order; they are tried before the own key. */
  readonly externalUrls: readonly string[];
}

/** Null while the cluster has no root. `normalize` returns the canonical form of a PEM certificate. */
export function issuerOf(cluster: Cluster, normalize: (pem: string) => string): Issuer | null {
  const { rootCa } = cluster;
  if (rootCa === null) return null;
  const rotation = rootCa.rootRotation;
  const rootPem = text.decode(rotation === null ? rootCa.caCert : rotation.caCert);
  return {
    rootPem,
    keyPem: text.decode(rotation === null ? rootCa.caKey : rotation.caKey),
    intermediatesPem: rotation === null ? "" : text.decode(rotation.crossSignedCaCert),
    trustedPem: text.decode(rootCa.caCert),
    externalUrls: externalUrls(cluster, rootCa, rootPem, normalize),
  };
}

function externalUrls(
  { spec }: Cluster,
  rootCa: RootCA,
  wantedPem: string,
  normalize: (pem: string) => string,
): readonly string[] {
  const wanted = normalize(wantedPem);
  return (spec?.caConfig?.externalCas ?? [])
    .filter(({ protocol, caCert }) => {
      // An external CA without a root certificate signs for the current root (as in SwarmKit).
      const signsFor = caCert.length === 0 ? rootCa.caCert : caCert;
      return protocol === ExternalCA_CAProtocol.CFSSL && normalize(text.decode(signsFor)) === wanted;
    })
    .map(({ url }) => url);
}

/** Whether a node reports a certificate from the issuer with this name and key (both DER). */
export function isIssuedBy(
  tlsInfo: NodeTLSInfo | null,
  issuer: { readonly subjectDer: Uint8Array; readonly publicKeyDer: Uint8Array },
): boolean {
  return (
    tlsInfo !== null &&
    isSameBytes(tlsInfo.certIssuerSubject, issuer.subjectDer) &&
    isSameBytes(tlsInfo.certIssuerPublicKey, issuer.publicKeyDer)
  );
}
