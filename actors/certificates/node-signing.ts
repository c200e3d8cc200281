/** Signs one node's certificate: by the external CA if one is set, else with the cluster's own key. */
import { issuerOf } from "../../machines/certificates/issuer.ts";
import { validitySecondsOf } from "../../machines/certificates/issuance.ts";
import type { Cluster } from "../../proto/gen/messages.ts";
import type { CertificateAuthority } from "./ca-port.ts";
import type { NodeRoleName } from "../../lib/pki/index.ts";
import type { ExternalCa } from "../../runtime/ports/external-ca.ts";

interface SignRequest {
  readonly csr: Uint8Array;
  readonly nodeId: string;
  readonly role: NodeRoleName;
  readonly nowMs: number;
}

/** The PEM chain for the node. Rejects with an Error whose message is a sentence; the request itself was checked before. */
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
    // An external CA may sign anything; a node would fail on a certificate that it cannot use.
    if (read.kind === "malformed") throw new Error(`the external CA returned an invalid certificate: ${read.reason}`);
    if (read.nodeId !== nodeId || read.role !== role || read.organization !== organization)
      throw new Error("the external CA signed a certificate with names other than requested");
    if (!read.verify(issuer.trustedPem, nowMs))
      throw new Error("the external CA's certificate does not chain to the cluster's root");
    return chain;
  }
  if (keyPem === "")
    throw new Error("an external CA holds the root's key, but no external CA is configured for this root");
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
