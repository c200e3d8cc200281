/**
 * The certificate of a manager's NATS for nodes, and the file in memory from which nats-server reads it.
 *
 * NI1: it follows the manager's own certificate: issued anew with each one, by the same root, valid as long, and with the
 *      cross-certificates by which nodes that trust an older root accept it (M4 of actors/certificates/manager-certificate.ts).
 * NI2: nats-server is told to read a new one before the manager's node reports the manager's own: a rotation of the root waits for
 *      that (M5).
 */
import { X509Certificate } from "node:crypto";
import { closeSync, existsSync, ftruncateSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { olderIntermediates, type ManagerCertificate } from "../actors/certificates/manager-certificate.ts";
import { clusterOf } from "../actors/manager/bootstrap.ts";
import type { Manager } from "../actors/manager/manager.ts";
import * as pki from "../lib/pki/index.ts";
import { parseAddress } from "../lib/ip-address.ts";
import { nodesNatsName } from "../lib/pki/presented.ts";
import { UserError } from "../lib/user-error.ts";
import { issuerOf } from "../machines/certificates/issuer.ts";
import type { KeptCertificate } from "./manager-server.ts";

interface NodesNatsIdentity {
  /** Descriptor of the file with the certificate and its key. */
  readonly file: number;
  /** The root that nodes trust. */
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

/** Keeps a certificate for the server in the file until `stop`. `names`: others that leaf nodes verify. Throws UserError. */
export async function openNodesNatsIdentity(
  env: Manager["environment"],
  certificate: KeptCertificate,
  names: readonly string[],
): Promise<NodesNatsIdentity> {
  const file = openTlsFile();
  let rootPem = "";
  /** The manager's certificate with which the present one was issued. */
  let followedPem = "";
  let fingerprints: readonly string[] = [];
  let isStopped = false;
  const listeners: (() => void)[] = [];
  const follow = async (own: ManagerCertificate): Promise<void> => {
    if (own.certificatePem !== followedPem) {
      const issued = await issueWith(env, own, names);
      // Its file may be another one's by now.
      if (isStopped) return;
      ftruncateSync(file);
      writeSync(file, issued.chainPem + issued.keyPem, 0);
      followedPem = own.certificatePem;
      fingerprints = [new X509Certificate(issued.chainPem).fingerprint256, ...fingerprints].slice(0, 2);
      for (const listener of listeners) listener();
    }
    rootPem = own.rootPem;
  };
  const stop = (): void => {
    isStopped = true;
    closeSync(file);
  };
  let following: Promise<void> = Promise.resolve();
  try {
    // Each call ends as its own renewal does.
    await certificate.follow((own) => (following = following.catch(() => undefined).then(() => follow(own))));
  } catch (error) {
    stop();
    throw error;
  }
  return {
    file,
    rootPem: () => rootPem,
    fingerprints: () => fingerprints,
    onRenewed: (listener) => void listeners.push(listener),
    stop,
  };
}

/** NI1 */
async function issueWith(
  env: Manager["environment"],
  own: ManagerCertificate,
  names: readonly string[],
): Promise<{ readonly chainPem: string; readonly keyPem: string }> {
  const cluster = clusterOf(env);
  const issuer = cluster === undefined ? null : issuerOf(cluster, pki.normalizePem);
  if (issuer === null || issuer.keyPem === "")
    throw new UserError(
      "cannot serve nodes over NATS: only an external CA has the key of the cluster's root. Start this manager without --listen-nodes-nats",
    );
  const facts = pki.describeCertificate(own.certificatePem);
  if (facts.kind === "malformed") throw new Error(`cannot read the manager's certificate: ${facts.reason}`);
  const nowMs = env.clock.now();
  const { certificatePem, keyPem } = await pki.createServerIdentity({
    rootCertificatePem: issuer.rootPem,
    rootKeyPem: issuer.keyPem,
    names: [nodesNatsName, ...names.filter((name) => parseAddress(name) === null)],
    addresses: names.filter((name) => parseAddress(name) !== null),
    nowMs,
    validityMs: facts.notAfterMs - nowMs,
  });
  const older = olderIntermediates(env, pki, issuer, own);
  return { chainPem: [certificatePem, issuer.intermediatesPem, ...older].join(""), keyPem };
}
