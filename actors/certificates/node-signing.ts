/** Signs for one node, with whoever signs in this cluster now: an external CA where one is set, else the cluster's own key. */
import { issuerOf } from "../../machines/certificates/issuer.ts";
import { validitySecondsOf } from "../../machines/certificates/issuance.ts";
import type { Cluster } from "../../proto/gen/messages.ts";
import type { CertificateAuthority, NodeRoleName } from "./ca-port.ts";
import type { ExternalCa } from "../../runtime/external-ca.ts";

export interface SignRequest {
  readonly csr: Uint8Array;
  readonly nodeId: string;
  readonly role: NodeRoleName;
  readonly nowMs: number;
}

/**
 * The chain (PEM) for the node. Rejects with an Error, whose message is a sentence, when nobody could sign; the request
 * itself was checked before.
 */
export async function signNode(
  cluster: Cluster,
  { csr, nodeId, role, nowMs }: SignRequest,
  authority: CertificateAuthority,
  external: ExternalCa,
): Promise<string> {
  const issuer = issuerOf(cluster, authority.normalizePem);
  if (issuer === null) throw new Error("the cluster has no root certificate");
  const organization = cluster.id;
  const { externalUrls, intermediatesPem, keyPem, rootPem } = issuer;
  if (externalUrls.length > 0) {
    const node = { csrPem: new TextDecoder().decode(csr), nodeId, role, organization };
    const leaf = await external.sign(externalUrls, rootPem, { kind: "node", node });
    const chain = authority.normalizePem(leaf) + intermediatesPem;
    const read = authority.describeCertificate(chain, issuer.trustedPem);
    // A CA outside may be set up to sign whatever it likes; a node would fail over what it cannot use.
    if (read.kind === "malformed") throw new Error(`the external CA's answer is no certificate: ${read.reason}`);
    if (read.nodeId !== nodeId || read.role !== role || read.organization !== organization)
      throw new Error("the external CA signed a certificate with other names than were asked for");
    if (!read.verify(issuer.trustedPem, nowMs))
      throw new Error("the external CA's certificate does not lead to the cluster's root");
    return chain;
  }
  if (keyPem === "") throw new Error("the root's key is with an external CA, and none is set that signs for this root");
  return authority.issue({
    csrPem: csr,
    rootCertificatePem: rootPem,
    rootKeyPem: keyPem,
    intermediatesPem,
    nodeId,
    role,
    organization,
    validitySeconds: validitySecondsOf(cluster),
    nowMs,
  });
}
