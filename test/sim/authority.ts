/**
 * A certificate authority whose certificates are plain text: what it says is believed, since nobody forges in a
 * simulation, and every byte comes from the seed. Tokens, renewal times and the checks of names and validity are real.
 */
import type { CertificateMaker } from "../../actors/agent-ports.ts";
import type { CertificateAuthority, NodeRoleName } from "../../actors/ca-port.ts";
import * as pki from "../../runtime/pki/index.ts";
import type { Random } from "../../runtime/ports.ts";

/** SwarmKit dates certificates back by an hour, for clocks that are behind. */
const backdatedMs = 3_600_000;

interface Claims {
  readonly nodeId: string;
  readonly role: NodeRoleName;
  readonly organization: string;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  readonly root: string;
}

const label = "SIMULATED CERTIFICATE ";
const text = new TextEncoder();

/** `random` is the process's own: keys differ from process to process. */
export function simulatedAuthority(random: Random): CertificateAuthority & CertificateMaker {
  const serial = () => Buffer.from(random.bytes(8)).toString("hex");
  const describe = (pem: string) => {
    const [line = ""] = pem.split("\n");
    if (!line.startsWith(label))
      return { kind: "malformed", reason: "it is no certificate of this simulation" } as const;
    const claims = JSON.parse(line.slice(label.length)) as Claims;
    return {
      kind: "certificate",
      nodeId: claims.nodeId,
      role: claims.role,
      organization: claims.organization,
      notBeforeMs: claims.notBeforeMs,
      notAfterMs: claims.notAfterMs,
      issuerSubjectDer: text.encode("swarm-ca"),
      issuerPublicKeyDer: text.encode(claims.root),
      verify: (rootPem: string, nowMs: number) =>
        claims.root === rootPem && nowMs >= claims.notBeforeMs && nowMs <= claims.notAfterMs,
    } as const;
  };
  return {
    createRoot: async () => ({ certificatePem: `SIMULATED ROOT ${serial()}\n`, keyPem: `SIMULATED KEY ${serial()}\n` }),
    createKeyAndCsr: async () => ({ keyPem: `SIMULATED KEY ${serial()}\n`, csrPem: `SIMULATED REQUEST ${serial()}\n` }),
    readCsr: (pem) => {
      const request = typeof pem === "string" ? pem : new TextDecoder().decode(pem);
      return request.startsWith("SIMULATED REQUEST ")
        ? { kind: "csr" }
        : { kind: "refused", reason: "it is no request" };
    },
    issue: async (request) => {
      const claims: Claims = {
        nodeId: request.nodeId,
        role: request.role,
        organization: request.organization,
        notBeforeMs: request.nowMs - backdatedMs,
        notAfterMs: request.nowMs + request.validitySeconds * 1_000,
        root: request.rootCertificatePem,
      };
      return `${label}${JSON.stringify(claims)}\n`;
    },
    describeCertificate: describe,
    describe,
    renewalInstant: pki.renewalInstant,
    makeJoinToken: pki.makeJoinToken,
    parseJoinToken: pki.parseJoinToken,
    isSameToken: pki.isSameToken,
    joinSecretBytes: pki.joinSecretBytes,
  };
}

/** Who a simulated TLS handshake with this certificate shows; null without one, or with one that the peer would refuse. */
export function identityOf(
  certificatePem: string,
  nowMs: number,
): { readonly nodeId: string; readonly role: NodeRoleName; readonly organization: string } | null {
  const [line = ""] = certificatePem.split("\n");
  if (!line.startsWith(label)) return null;
  const { nodeId, role, organization, notAfterMs } = JSON.parse(line.slice(label.length)) as Claims;
  return nowMs > notAfterMs ? null : { nodeId, role, organization };
}
