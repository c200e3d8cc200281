/**
 * A manager's certificate for its own NATS, in `nats-tls` in its data dir. The CA is in the manager's key file and not in the
 * log, which can be read only through NATS (docs/adr/0051-managers-own-nats.md).
 *
 * Each start issues a new certificate, and so does a running manager at half of its validity: no certificate can have expired
 * while the manager was off.
 */
import { mkdirSync } from "node:fs";
import { isIP } from "node:net";
import { join } from "node:path";
import { createNatsAuthority, issueNatsIdentity, natsName, type NatsAuthority } from "../lib/pki/index.ts";
import type { NatsTls } from "../runtime/nats/nats-tls.ts";
import type { ServerTls } from "../runtime/nats/server.ts";
import type { Telemetry } from "../runtime/ports/index.ts";
import type { Vault } from "../runtime/store/vault.ts";
import { replaceFileSync } from "../runtime/system/whole-file.ts";

/** SwarmKit's default validity of node certificates. */
const validityMsDefault = 90 * 24 * 3_600_000;
/** Compared with the wall clock, which may be set: a timer for weeks would not notice. */
const checkMsDefault = 60_000;

export interface NatsIdentity {
  /** For connections to a server of the same CA. */
  readonly clientTls: NatsTls;
  readonly serverTls: ServerTls;
  /** Called after the files have changed. */
  onRenewed(listener: () => void): void;
  stop(): void;
}

interface IdentityOptions {
  readonly telemetry: Telemetry;
  readonly validityMs?: number;
  readonly checkMs?: number;
  /** Address or name at which other managers' servers reach this one. */
  readonly host?: string;
}

/** Creates the CA if the vault has none. Throws the disk's errors. */
export async function openNatsIdentity(dataDir: string, vault: Vault, options: IdentityOptions): Promise<NatsIdentity> {
  const { host, telemetry, validityMs = validityMsDefault, checkMs = checkMsDefault } = options;
  const authority = await authorityOf(vault);
  const folder = join(dataDir, "nats-tls");
  const caFile = join(folder, "ca.crt");
  // Certificate and key in one file, so that nobody reads one of them without the other.
  const certFile = join(folder, "manager.pem");
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const issue = async (nowMs: number): Promise<number> => {
    const issued = await issueNatsIdentity(authority, {
      nowMs,
      validityMs,
      names: host === undefined || isIP(host) !== 0 ? [] : [host],
      addresses: [...new Set(["127.0.0.1", "::1", ...(host === undefined || isIP(host) === 0 ? [] : [host])])],
    });
    replaceFileSync(caFile, authority.certificatePem);
    replaceFileSync(certFile, issued.certificatePem + issued.keyPem);
    return issued.notAfterMs;
  };
  let notAfterMs = await issue(Date.now());
  let isStopped = false;
  const listeners: (() => void)[] = [];
  const check = async (): Promise<void> => {
    const nowMs = Date.now();
    if (isDue({ nowMs, notAfterMs, validityMs })) {
      try {
        notAfterMs = await issue(nowMs);
        if (!isStopped) for (const listener of listeners) listener();
      } catch (error) {
        telemetry.log.warn({ error: String(error) }, "cannot renew the certificate for NATS yet");
      }
    }
    if (!isStopped) timer = setTimeout(() => void check(), checkMs);
  };
  let timer = setTimeout(() => void check(), checkMs);
  return {
    clientTls: { caFile, certFile, keyFile: certFile, serverName: natsName },
    serverTls: { caFile, certFile, keyFile: certFile },
    onRenewed: (listener) => listeners.push(listener),
    stop: () => {
      isStopped = true;
      clearTimeout(timer);
    },
  };
}

/** Whether half of the validity has passed, also after the clock was set. */
function isDue({ nowMs, notAfterMs, validityMs }: Readonly<Record<"nowMs" | "notAfterMs" | "validityMs", number>>) {
  return nowMs > notAfterMs - validityMs / 2;
}

async function authorityOf(vault: Vault): Promise<NatsAuthority> {
  const { natsCaCertificate, natsCaKey } = vault.fields;
  if (natsCaCertificate !== "" && natsCaKey !== "") return { certificatePem: natsCaCertificate, keyPem: natsCaKey };
  const created = await createNatsAuthority();
  vault.update({ natsCaCertificate: created.certificatePem, natsCaKey: created.keyPem });
  return created;
}
