/** The certificate of a manager's NATS for nodes, and the file in memory from which nats-server reads it. */
import { X509Certificate } from "node:crypto";
import { closeSync, existsSync, ftruncateSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { clusterOf } from "../actors/manager/bootstrap.ts";
import type { Manager } from "../actors/manager/manager.ts";
import { createServerIdentity } from "../lib/pki/index.ts";
import { nodesNatsName } from "../lib/pki/presented.ts";
import { UserError } from "../lib/user-error.ts";

/** SwarmKit's default validity of node certificates. */
const validityMs = 90 * 24 * 3_600_000;
/** Compared with the wall clock, which may be set. */
const checkMs = 60_000;

interface NodesNatsIdentity {
  /** Descriptor of the file with the certificate and its key. */
  readonly file: number;
  rootPem(): string;
  /** SHA-256 of the current certificate and the one before, which the server may still show. */
  fingerprints(): readonly string[];
  /** Calls the listener after each renewal. */
  onRenewed(listener: () => void): void;
  stop(): void;
}

/**
 * A file in memory without a name, for the server's certificate and key. The key authenticates this manager to nodes: on a disk it
 * would undo autolock.
 */
function openTlsFile(): number {
  const memory = "/dev/shm";
  const folder = mkdtempSync(join(existsSync(memory) ? memory : tmpdir(), "muster-"));
  const path = join(folder, "tls.pem");
  const file = openSync(path, "wx+", 0o600);
  rmSync(folder, { recursive: true });
  return file;
}

/** Keeps a certificate of the root that nodes trust in the file. Throws UserError. */
export async function openNodesNatsIdentity(env: Manager["environment"]): Promise<NodesNatsIdentity> {
  const file = openTlsFile();
  let rootPem = "";
  let notAfterMs = 0;
  let fingerprints: readonly string[] = [];
  let isStopped = false;
  const listeners: (() => void)[] = [];
  const renew = async (): Promise<void> => {
    const rootCa = clusterOf(env)?.rootCa ?? null;
    const trustedPem = Buffer.from(rootCa?.caCert ?? []).toString();
    const nowMs = env.clock.now();
    if (trustedPem === rootPem && nowMs < notAfterMs - validityMs / 2) return;
    const rootKeyPem = Buffer.from(rootCa?.caKey ?? []).toString();
    if (rootKeyPem === "")
      throw new UserError(
        "cannot serve nodes over NATS: only an external CA has the key of the cluster's root. Start this manager without --listen-nodes-nats",
      );
    const issued = await createServerIdentity({
      rootCertificatePem: trustedPem,
      rootKeyPem,
      names: [nodesNatsName],
      addresses: [],
      nowMs,
      validityMs,
    });
    ftruncateSync(file);
    writeSync(file, issued.certificatePem + issued.keyPem, 0);
    ({ notAfterMs } = issued);
    rootPem = trustedPem;
    fingerprints = [new X509Certificate(issued.certificatePem).fingerprint256, ...fingerprints].slice(0, 2);
    for (const listener of listeners) listener();
  };
  await renew().catch((error: unknown) => {
    closeSync(file);
    throw error;
  });
  const check = async (): Promise<void> => {
    await renew().catch((error: unknown) =>
      env.telemetry.log.error({ error: String(error) }, "cannot renew the certificate of the NATS for nodes"),
    );
    if (!isStopped) timer = setTimeout(() => void check(), checkMs);
  };
  let timer = setTimeout(() => void check(), checkMs);
  return {
    file,
    rootPem: () => rootPem,
    fingerprints: () => fingerprints,
    onRenewed: (listener) => void listeners.push(listener),
    stop: () => {
      isStopped = true;
      clearTimeout(timer);
      closeSync(file);
    },
  };
}
