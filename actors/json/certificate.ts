/**
 * The certificate of the ports of the JSON API and the web interface. Clients verify it against the cluster's root and one fixed name, or the address that
 * they dialled; nodes' certificates have neither. Renewed in time and when the root changes.
 */
import { issuerOf } from "../../machines/certificates/issuer.ts";
import {
  managerCertificateMachine,
  type ManagerCertificateEvent,
} from "../../machines/certificates/manager-certificate.machine.ts";
import type { Environment, Running } from "../environment.ts";
import { clusterOf } from "../manager/bootstrap.ts";
import { sentence } from "../sentence.ts";

/** Server name that Juju's clients expect in every controller's certificate. */
export const serverName = "juju-apiserver";
/** The validity of a node's certificate. */
const validityMs = 90 * 24 * 3_600_000;

export interface JsonCertificate {
  /** Leaf, cross-certificates to an older root, and the root: clients extract the root from the chain. */
  readonly certificatePem: string;
  readonly keyPem: string;
  /** Roots whose client certificates are accepted. */
  readonly acceptedPem: string;
  /** Root that clients should trust. */
  readonly rootPem: string;
}

interface ServerAuthority {
  createServerIdentity(request: {
    readonly rootCertificatePem: string;
    readonly rootKeyPem: string;
    readonly names: readonly [string, ...string[]];
    readonly addresses: readonly string[];
    readonly nowMs: number;
    readonly validityMs: number;
  }): Promise<{ readonly certificatePem: string; readonly keyPem: string; readonly notAfterMs: number }>;
  renewalInstant(validity: { readonly notBeforeMs: number; readonly notAfterMs: number }, fraction: number): number;
  normalizePem(pem: string): string;
}

interface JsonCertificateParts {
  /** Names and addresses that clients dial, besides the fixed ones. */
  readonly hosts: readonly string[];
  onCertificate(certificate: JsonCertificate): void;
  /** Calls the listener after this machine's wall clock was set: the certificate may have expired, or not be valid yet. */
  onClockJump(listener: () => void): void;
  /** Called when no certificate could be issued; it is retried. */
  onFailed?(): void;
}

const isAddress = /^[\d.]+$|:/;

/** Calls `onCertificate` with the first certificate and each later one until stopped. */
export function startJsonCertificate(
  env: Environment,
  authority: ServerAuthority,
  parts: JsonCertificateParts,
): Running {
  const random = env.random.fork("json-certificate");
  let stopped = false;
  let judgedBy = "";

  const actor = env.host.start(managerCertificateMachine, "json-certificate", undefined, {
    effects: { obtainCertificate: () => env.clock.soon(() => void obtain()) },
  });
  const send = (event: ManagerCertificateEvent): void => {
    if (!stopped) actor.send(event);
  };

  const issuer = (): ReturnType<typeof issuerOf> => {
    const cluster = clusterOf(env);
    return cluster === undefined ? null : issuerOf(cluster, authority.normalizePem);
  };
  const basis = (): string => {
    const now = issuer();
    return now === null ? "" : [now.rootPem, now.trustedPem, now.intermediatesPem].join("\n");
  };

  async function obtain(): Promise<void> {
    const signer = issuer();
    judgedBy = basis();
    try {
      if (signer === null) throw new Error("the cluster has no root certificate");
      if (signer.keyPem === "") {
        throw new Error(
          "only an external CA has the key of the cluster's root, and it signs for nodes, not for this port",
        );
      }
      const nowMs = env.clock.now();
      const { certificatePem, keyPem, notAfterMs } = await authority.createServerIdentity({
        rootCertificatePem: signer.rootPem,
        rootKeyPem: signer.keyPem,
        names: [serverName, "localhost", ...parts.hosts.filter((host) => !isAddress.test(host))],
        addresses: [...new Set(["127.0.0.1", "::1", ...parts.hosts.filter((host) => isAddress.test(host))])],
        nowMs,
        validityMs,
      });
      if (stopped) return;
      const { intermediatesPem, rootPem, trustedPem } = signer;
      parts.onCertificate({
        certificatePem: [certificatePem, intermediatesPem, trustedPem].filter((pem) => pem !== "").join(""),
        keyPem,
        acceptedPem: rootPem === trustedPem ? trustedPem : trustedPem + rootPem,
        rootPem: trustedPem,
      });
      const renewAtMs = authority.renewalInstant({ notBeforeMs: nowMs, notAfterMs }, random.next());
      send({ type: "certificate.obtained", renewInMs: renewAtMs - nowMs });
    } catch (error) {
      if (stopped) return;
      env.telemetry.log.warn(
        { error: sentence(error) },
        "cannot obtain a certificate for the ports of JSON clients and browsers yet",
      );
      parts.onFailed?.();
      send({ type: "certificate.failed", reason: sentence(error) });
    }
  }

  const watching = env.store.watch(({ changes }) => {
    const isDoubtful = changes.some(
      (change) => change.table === "cluster" && change.object.rootCa !== change.old?.rootCa && basis() !== judgedBy,
    );
    if (isDoubtful) send({ type: "certificate.doubted" });
  });
  parts.onClockJump(() => send({ type: "certificate.doubted" }));

  return {
    stop() {
      if (stopped) return;
      stopped = true;
      watching.unsubscribe();
      actor.stop();
    },
  };
}
