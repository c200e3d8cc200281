/** UpdateCluster's part for the root certificate: decides, calls external CAs, and creates the start of a rotation. */
import { decideRoot, type ExternalNeed } from "../../machines/validation/root-ca.ts";
import { RootCA, RootRotation, type CAConfig } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { CertificateAuthority } from "../certificates/ca-port.ts";
import type { Environment } from "../environment.ts";
import type { ExternalCa } from "../../runtime/ports/external-ca.ts";
import { sentence } from "../sentence.ts";
import { rejection } from "./answer.ts";

const text = new TextDecoder();
const bytes = new TextEncoder();

type RootChanges = (present: RootCA, wanted: CAConfig) => Promise<RootCA>;

/** The root that the settings require. Rejects with RpcError, with SwarmKit's code and text. */
export function rootChanges(
  env: Pick<Environment, "clock" | "telemetry">,
  authority: CertificateAuthority,
  external: ExternalCa,
): RootChanges {
  const { log } = env.telemetry;

  async function demandReachable({ rootPem, urls, refusal }: ExternalNeed): Promise<void> {
    for (const url of urls) {
      const problem = await external.probe(url, rootPem);
      if (problem === null) return;
      log.warn({ url, problem }, "external CA is unreachable or invalid");
    }
    throw rejection(refusal);
  }

  /** The cross-certificate of the new root, signed by the current root and not by that of an unfinished rotation. */
  async function crossSigned(
    present: RootCA,
    root: { readonly certificatePem: string; readonly keyPem: string },
    urls: readonly string[],
  ): Promise<string> {
    const presentPem = text.decode(present.caCert);
    try {
      if (present.caKey.length > 0)
        return authority.crossSign(root.certificatePem, presentPem, text.decode(present.caKey));
      const request = authority.crossSignRequest(root.certificatePem, root.keyPem);
      return authority.normalizePem(await external.sign(urls, presentPem, { kind: "cross", root: request }));
    } catch (error) {
      log.error({ error: sentence(error) }, "unable to generate a cross-signed certificate for root rotation");
      throw new RpcError(Status.INTERNAL, "unable to generate a cross-signed certificate for root rotation");
    }
  }

  return async (present, wanted) => {
    const nowMs = env.clock.now();
    const { needs, outcome } = decideRoot(present, wanted, {
      normalize: authority.normalizePem,
      check: (certificatePem, keyPem) => authority.checkRoot(certificatePem, keyPem, nowMs),
      nowMs,
    });
    for (const need of needs) await demandReachable(need);
    switch (outcome.kind) {
      case "refused":
        throw rejection(outcome.refusal);
      case "settled":
        return outcome.rootCa;
      case "rotation": {
        const root = outcome.root ?? (await authority.createRoot({ nowMs }));
        const crossSignedPem = await crossSigned(present, root, needs[0]?.urls ?? []);
        log.info({ forced: outcome.root === null }, "rotating the root certificate");
        return RootCA.patch(present, {
          lastForcedRotation: wanted.forceRotate,
          rootRotation: RootRotation.create({
            caCert: bytes.encode(root.certificatePem),
            caKey: bytes.encode(root.keyPem),
            crossSignedCaCert: bytes.encode(crossSignedPem),
          }),
        });
      }
    }
  };
}
