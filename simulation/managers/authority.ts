/**
 * A certificate authority with certificates in plain text: their content is trusted, since simulations contain no forgery, and
 * every byte comes from the seed. Tokens, renewal times and the checks of names and validity are real.
 */
import type { CertificateMaker } from "../../actors/agent/ports.ts";
import type { CertificateAuthority } from "../../actors/certificates/ca-port.ts";
import type { NodeRoleName } from "../../lib/pki/index.ts";
import * as pki from "../../lib/pki/index.ts";
import type { Random } from "../../runtime/ports/index.ts";

/** SwarmKit backdates certificates by an hour, for clocks that are behind. */
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
const crossLabel = "SIMULATED CROSS ";
const rootLabel = "SIMULATED ROOT ";
const lifeMs = 20 * 365 * 86_400_000;

/** A certificate with which one root cross-signs another; both as in their PEM. */
interface Cross {
  readonly root: string;
  readonly by: string;
}

function linesOf(pem: string, prefix: string): readonly string[] {
  return pem.split("\n").filter((line) => line.startsWith(prefix));
}

/** Whether a certificate of `root` leads to one of `roots`, directly or through cross-signed ones. */
function leads(root: string, chain: string, roots: string): boolean {
  const trusted = linesOf(roots, rootLabel);
  const reached = [root.trimEnd()];
  const crosses = linesOf(chain, crossLabel).map((line) => JSON.parse(line.slice(crossLabel.length)) as Cross);
  for (const at of reached) {
    if (trusted.includes(at)) return true;
    for (const { by, root: vouchedFor } of crosses) if (vouchedFor === at && !reached.includes(by)) reached.push(by);
  }
  return false;
}
const text = new TextEncoder();

/** `random`: the process's own, so that keys differ between processes. */
export function simulatedAuthority(random: Random): CertificateAuthority & CertificateMaker {
  const serial = () => Buffer.from(random.bytes(8)).toString("hex");
  const describe = (pem: string) => {
    const [line = ""] = pem.split("\n");
    if (!line.startsWith(label)) return { kind: "malformed", reason: "not a certificate of this simulation" } as const;
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
        leads(claims.root, pem, rootPem) && nowMs >= claims.notBeforeMs && nowMs <= claims.notAfterMs,
    } as const;
  };
  return {
    createRoot: async () => ({ certificatePem: `${rootLabel}${serial()}\n`, keyPem: `SIMULATED KEY ${serial()}\n` }),
    createKeyAndCsr: async () => ({ keyPem: `SIMULATED KEY ${serial()}\n`, csrPem: `SIMULATED REQUEST ${serial()}\n` }),
    readCsr: (pem) => {
      const request = typeof pem === "string" ? pem : new TextDecoder().decode(pem);
      return request.startsWith("SIMULATED REQUEST ")
        ? { kind: "csr", publicKeyDer: new TextEncoder().encode(request) }
        : { kind: "refused", reason: "not a certificate request" };
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
      return `${label}${JSON.stringify(claims)}\n${request.intermediatesPem ?? ""}`;
    },
    checkRoot: (pem, _keyPem, nowMs) => {
      const roots = linesOf(pem, rootLabel);
      return roots.length === 0
        ? { kind: "refused", reason: "no valid root CA certificates found" }
        : { kind: "root", certificatePem: `${roots.join("\n")}\n`, count: roots.length, notAfterMs: nowMs + lifeMs };
    },
    crossSign: (newRootPem, oldRootPem) => {
      const cross: Cross = { root: newRootPem.trimEnd(), by: oldRootPem.trimEnd() };
      return `${crossLabel}${JSON.stringify(cross)}\n`;
    },
    crossSignRequest: () => {
      throw new Error("simulations have no external CA");
    },
    issuerName: (rootPem) =>
      rootPem === "" ? null : { subjectDer: text.encode("swarm-ca"), publicKeyDer: text.encode(rootPem) },
    intermediatesOf: (pem) => linesOf(pem, crossLabel).map((line) => `${line}\n`),
    normalizePem: (pem) => pem,
    describeCertificate: describe,
    describe,
    renewalInstant: pki.renewalInstant,
    makeJoinToken: pki.makeJoinToken,
    parseJoinToken: pki.parseJoinToken,
    isSameToken: pki.isSameToken,
    joinSecretBytes: pki.joinSecretBytes,
  };
}

/** The identity in a simulated TLS handshake with this certificate; null without one, or if the peer would reject it. */
export function identityOf(
  certificatePem: string,
  nowMs: number,
): {
  readonly nodeId: string;
  readonly role: NodeRoleName;
  readonly organization: string;
  readonly notAfterMs: number;
} | null {
  const [line = ""] = certificatePem.split("\n");
  if (!line.startsWith(label)) return null;
  const { nodeId, role, organization, notAfterMs } = JSON.parse(line.slice(label.length)) as Claims;
  return nowMs > notAfterMs ? null : { nodeId, role, organization, notAfterMs };
}

/** Whether all roots of the first text are among those of the second. */
export function hasRoots(wantedPem: string, rootsPem: string): boolean {
  const roots = linesOf(rootsPem, rootLabel);
  return linesOf(wantedPem, rootLabel).every((root) => roots.includes(root));
}

/** Whether a peer that trusts these roots accepts the certificate as one of the cluster. */
export function isTrusted(certificatePem: string, rootsPem: string): boolean {
  const [line = ""] = certificatePem.split("\n");
  if (!line.startsWith(label)) return false;
  return leads((JSON.parse(line.slice(label.length)) as Claims).root, certificatePem, rootsPem);
}
