/**
 * The node object of a manager, which the manager writes itself, as it has no agent.
 *
 * It records the issuer of the manager's certificate and the root that it trusts; a rotation of the root depends on both.
 */
import { processLabel } from "../../machines/manager/role.ts";
import {
  Certificate,
  EngineDescription,
  IssuanceStatus,
  IssuanceStatus_State,
  Node,
  NodeDescription,
  NodeRole,
  NodeStatus,
  NodeStatus_State,
  NodeTLSInfo,
  Platform,
} from "../../proto/gen/messages.ts";
import { bareManagerNode, clusterOf, hostOf } from "./bootstrap.ts";
import type { CertificateAuthority } from "../certificates/ca-port.ts";
import { creation, replacement, transact } from "../control/write.ts";
import type { Environment } from "../environment.ts";

const text = new TextEncoder();
const untraced = { traceparent: "" };

export interface ManagerFacts {
  readonly hostname: string;
  /** host:port that workers reach this manager at. */
  readonly advertise: string;
  /** Version of Muster. */
  readonly version: string;
  /** `x86_64` or `aarch64`. */
  readonly architecture: string;
  readonly os: string;
}

/** The certificate fields of a manager's node object. */
interface ManagerCertificateTold {
  readonly certificatePem: string;
  /** The root that the manager trusts. */
  readonly rootPem: string;
  /** The root that issued the certificate. */
  readonly issuerPem: string;
  readonly csr: Uint8Array;
}

/** Creates or updates this manager's node object. Rejects with RpcError when the write failed. */
export async function writeManagerNode(
  env: Environment,
  authority: CertificateAuthority,
  { certificatePem, csr, issuerPem, rootPem }: ManagerCertificateTold,
  facts: ManagerFacts,
): Promise<void> {
  const read = authority.describeCertificate(certificatePem, issuerPem);
  const tlsInfo = NodeTLSInfo.create({
    trustRoot: text.encode(rootPem),
    ...(read.kind === "certificate"
      ? {
          certIssuerSubject: read.issuerSubjectDer,
          certIssuerPublicKey: read.issuerPublicKeyDer ?? new Uint8Array(),
        }
      : {}),
  });
  const fields: Partial<Node> = {
    description: NodeDescription.create({
      hostname: facts.hostname,
      platform: Platform.create({ architecture: facts.architecture, os: facts.os }),
      engine: EngineDescription.create({ engineVersion: facts.version, labels: { [processLabel]: "manager" } }),
      tlsInfo,
    }),
    status: NodeStatus.create({ state: NodeStatus_State.READY, addr: hostOf(facts.advertise) }),
    certificate: Certificate.create({
      role: NodeRole.MANAGER,
      csr,
      cn: env.managerId,
      status: IssuanceStatus.create({ state: IssuanceStatus_State.ISSUED }),
      certificate: text.encode(certificatePem),
    }),
  };
  await transact(env, untraced, () => {
    const before = env.store.get("node", env.managerId);
    return before === undefined
      ? [creation("node", Node.patch(bareManagerNode(env, facts.advertise, clusterOf(env)), fields))]
      : [replacement("node", Node.patch(before, fields))];
  });
}
