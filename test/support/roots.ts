// A cluster with a real root, for tests of its rotation.
import type { ExecutionContext } from "ava";
import { bootstrapCluster } from "../../actors/manager/bootstrap.ts";
import { createControl } from "../../actors/control.ts";
import {
  obtainManagerCertificate,
  type ManagerCertificate,
  type ManagerIdentity,
} from "../../actors/certificates/manager-certificate.ts";
import type { ManagerFacts } from "../../actors/manager/node.ts";
import type { CertificateAuthority } from "../../actors/certificates/ca-port.ts";
import type { Environment } from "../../actors/environment.ts";
import { startRootRotation } from "../../actors/certificates/root-rotation.ts";
import { createExternalCa } from "../../edges/cfssl/client.ts";
import {
  CAConfig,
  Certificate,
  ClusterSpec,
  ExternalCA,
  ExternalCA_CAProtocol,
  IssuanceStatus,
  IssuanceStatus_State,
  Node,
  NodeDescription,
  NodeSpec,
  NodeSpec_Membership,
  NodeTLSInfo,
  UpdateClusterRequest,
  type Cluster,
  type IssuanceStatus_State as IssuanceState,
} from "../../proto/gen/messages.ts";
import * as pki from "../../lib/pki/index.ts";
import { settle } from "../../runtime/sim/clock.ts";
import { call, testManager } from "./manager.ts";

export const bytes = new TextEncoder();
export const text = new TextDecoder();
export const facts = { hostname: "m", advertise: "192.0.2.1:2377", version: "0", architecture: "x86_64", os: "linux" };
type Root = { readonly certificatePem: string; readonly keyPem: string };

/** A manager's certificate, used and reported. */
export async function ensureManagerCertificate(
  env: Environment,
  authority: CertificateAuthority,
  identity: ManagerIdentity | null,
  of: ManagerFacts,
): Promise<ManagerCertificate> {
  const { certificate, tell } = await obtainManagerCertificate(env, authority, identity, of);
  await tell();
  return certificate;
}

export async function rootWorld(t: ExecutionContext) {
  const manager = testManager();
  const { clock, env, store } = manager;
  // Certificates of external CAs use real time.
  clock.advance(Date.now() - clock.now());
  await bootstrapCluster(env, pki, { advertise: facts.advertise });
  const own = await ensureManagerCertificate(env, pki, null, facts);
  let held: { certificatePem: string; keyPem: string } = own;
  const external = createExternalCa(() => held);
  const control = createControl(env, { leaderId: () => "manager1", authority: pki, externalCa: external }).handlers;
  const cluster = (): Cluster => [...store.all("cluster")][0] as Cluster;
  const update = async (fields: Partial<CAConfig>): Promise<Cluster> => {
    const { id, meta, spec } = cluster();
    const caConfig = CAConfig.patch(spec?.caConfig ?? CAConfig.create(), fields);
    await control.UpdateCluster(
      UpdateClusterRequest.create({
        clusterId: id,
        clusterVersion: meta?.version ?? null,
        spec: ClusterSpec.patch(spec ?? ClusterSpec.create(), { caConfig }),
      }),
      call(),
    );
    return cluster();
  };
  /** Lets background work run for this many milliseconds, including signing. */
  const run = async (until: () => boolean, steps = 400): Promise<void> => {
    for (let step = 0; step < steps && !until(); step += 1) {
      clock.advance(0);
      await settle();
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  const rotation = () => {
    const running = startRootRotation(env, pki);
    t.teardown(() => running.stop());
    return running;
  };
  return {
    ...manager,
    own,
    held: () => held,
    hold: (next: Root) => (held = next),
    external,
    control,
    cluster,
    update,
    run,
    rotation,
  };
}

export const wanted = ({ certificatePem, keyPem }: Root): Partial<CAConfig> => ({
  signingCaCert: bytes.encode(certificatePem),
  signingCaKey: bytes.encode(keyPem),
});

export function cfssl(url: string, rootPem = ""): ExternalCA {
  return ExternalCA.create({ protocol: ExternalCA_CAProtocol.CFSSL, url, caCert: bytes.encode(rootPem) });
}

/** A worker that reports its certificate's issuer. */
export function worker(id: string, rootPem: string, state: IssuanceState = IssuanceStatus_State.ISSUED): Node {
  const issuer = pki.issuerName(rootPem);
  return Node.create({
    id,
    spec: NodeSpec.create({ membership: NodeSpec_Membership.ACCEPTED }),
    certificate: Certificate.create({ status: IssuanceStatus.create({ state }) }),
    description: NodeDescription.create({
      tlsInfo: NodeTLSInfo.create({
        trustRoot: bytes.encode(rootPem),
        certIssuerSubject: issuer?.subjectDer ?? new Uint8Array(),
        certIssuerPublicKey: issuer?.publicKeyDer ?? new Uint8Array(),
      }),
    }),
  });
}
