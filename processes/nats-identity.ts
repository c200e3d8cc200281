/**
 * A manager's certificate for its own NATS, in `nats-tls` in its data dir. The CAs are in the manager's key file and not in the
 * log, which can be read only through NATS (docs/adr/0051-managers-own-nats.md).
 *
 * Each start issues a new certificate, and so does a running manager at half of its validity: no certificate can have expired
 * while the manager was off. A newer list of CAs takes effect at once.
 */
import { createHash } from "node:crypto";
import { mkdirSync } from "node:fs";
import { isIP } from "node:net";
import { join } from "node:path";
import { isNewerList } from "../actors/keys/nats-authority.ts";
import { createNatsAuthority, issueNatsIdentity, natsName } from "../lib/pki/index.ts";
import { NatsAuthorities, NatsAuthority, type KeyFileContents } from "../proto/gen/messages.ts";
import type { NatsTls } from "../runtime/nats/nats-tls.ts";
import type { ServerTls } from "../runtime/nats/server.ts";
import type { Telemetry } from "../runtime/ports/index.ts";
import type { Vault } from "../runtime/store/vault.ts";
import { replaceFileSync } from "../runtime/system/whole-file.ts";

/** SwarmKit's default validity of node certificates. */
const validityMsDefault = 90 * 24 * 3_600_000;
/** Compared with the wall clock, which may be set: a timer for weeks would not notice. */
const checkMsDefault = 60_000;
/** 64 bits: the ids of a cluster's CAs are compared with each other only. */
const idDigits = 16;

/** After a change of the files. */
interface NatsTlsChange {
  /** A CA is not trusted any more: connections that its certificates have opened must end. */
  readonly isNarrower: boolean;
}

export interface NatsIdentity {
  /** For connections to a server of the same CA. */
  readonly clientTls: NatsTls;
  readonly serverTls: ServerTls;
  /** Called after the files have changed, in the order of the calls; `use` waits for what it returns. */
  onRenewed(listener: (change: NatsTlsChange) => Promise<void> | void): void;
  readonly authorities: NatsAuthorities;
  /** Saves a newer list of CAs; resolves once everything uses it. Rejects with the disk's errors. */
  use(list: NatsAuthorities): Promise<void>;
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
  if (vault.fields.natsCaKey === "") vault.update(fieldsOf(await firstList()));
  let authorities = authoritiesIn(vault);
  const folder = join(dataDir, "nats-tls");
  const caFile = join(folder, "ca.crt");
  // Certificate and key in one file, so that nobody reads one of them without the other.
  const certFile = join(folder, "manager.pem");
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const issue = async (nowMs: number): Promise<number> => {
    const { certificate: certificatePem, key: keyPem } = issuerOf(authorities);
    const issued = await issueNatsIdentity(
      { certificatePem, keyPem },
      {
        nowMs,
        validityMs,
        names: host === undefined || isIP(host) !== 0 ? [] : [host],
        addresses: [...new Set(["127.0.0.1", "::1", ...(host === undefined || isIP(host) === 0 ? [] : [host])])],
      },
    );
    replaceFileSync(caFile, authorities.authorities.map(({ certificate }) => certificate).join(""));
    replaceFileSync(certFile, issued.certificatePem + issued.keyPem);
    return issued.notAfterMs;
  };
  let notAfterMs = await issue(Date.now());
  let isStopped = false;
  /** One change of the files at a time. */
  let queue: Promise<unknown> = Promise.resolve();
  const inTurn = (work: () => Promise<void>): Promise<void> => {
    const result = queue.then(work);
    queue = result.catch(() => undefined);
    return result;
  };
  const listeners: ((change: NatsTlsChange) => Promise<void> | void)[] = [];
  /** A saved list that the files do not follow yet, because the disk refused them. */
  let owed: NatsTlsChange | null = null;
  const renew = async (nowMs: number, change: NatsTlsChange): Promise<void> => {
    owed = { isNarrower: change.isNarrower || owed?.isNarrower === true };
    notAfterMs = await issue(nowMs);
    for (const listener of listeners) if (!isStopped) await listener(owed);
    owed = null;
  };
  const check = async (): Promise<void> => {
    const nowMs = Date.now();
    if (owed !== null || isDue({ nowMs, notAfterMs, validityMs })) {
      try {
        await inTurn(() => renew(nowMs, { isNarrower: false }));
      } catch (error) {
        telemetry.log.warn({ error: String(error) }, "cannot renew the certificate for NATS yet");
      }
    }
    if (!isStopped) timer = setTimeout(() => void check(), checkMs);
  };
  const use = async (list: NatsAuthorities): Promise<void> => {
    const known = authorities;
    const change = newerAuthorities(vault, list);
    if (change === null) {
      // A leader that hands the list over again takes the answer for a promise that it is used.
      if (owed !== null) await renew(Date.now(), owed);
      return;
    }
    // Saved first: a start after a crash at any moment issues from what is saved.
    vault.update(change);
    authorities = list;
    const trusted = new Set(list.authorities.map(({ id }) => id));
    const isNarrower = known.authorities.some(({ id }) => !trusted.has(id));
    const isSame = !isNarrower && trusted.size === known.authorities.length && list.issuer === known.issuer;
    if (!isSame || owed !== null) await renew(Date.now(), { isNarrower });
  };
  let timer = setTimeout(() => void check(), checkMs);
  return {
    clientTls: { caFile, certFile, keyFile: certFile, serverName: natsName },
    serverTls: { caFile, certFile, keyFile: certFile },
    onRenewed: (listener) => listeners.push(listener),
    get authorities() {
      return authorities;
    },
    use: (list) => inTurn(() => use(list)),
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

export async function makeAuthority(): Promise<NatsAuthority> {
  const { certificatePem, keyPem } = await createNatsAuthority();
  return authorityOf(certificatePem, keyPem);
}

function authorityOf(certificate: string, key: string): NatsAuthority {
  const id = createHash("sha256").update(certificate).digest("hex").slice(0, idDigits);
  return NatsAuthority.create({ id, certificate, key });
}

async function firstList(): Promise<NatsAuthorities> {
  return listOf(await makeAuthority());
}

/** Before the first change by a leader. */
function listOf(authority: NatsAuthority): NatsAuthorities {
  return NatsAuthorities.create({ authorities: [authority], issuer: authority.id });
}

/** The list in a key file that has a CA. */
function authoritiesIn({ fields }: Vault): NatsAuthorities {
  return fields.natsAuthorities ?? listOf(authorityOf(fields.natsCaCertificate, fields.natsCaKey));
}

function issuerOf({ authorities, issuer }: NatsAuthorities): NatsAuthority {
  const found = authorities.find(({ id }) => id === issuer);
  if (found === undefined) throw new Error(`the list of NATS's CAs lacks its issuer ${issuer}`);
  return found;
}

/** The fields of a key file with that list; earlier versions use the issuer alone. */
function fieldsOf(list: NatsAuthorities): Pick<KeyFileContents, "natsAuthorities" | "natsCaCertificate" | "natsCaKey"> {
  const { certificate, key } = issuerOf(list);
  return { natsAuthorities: list, natsCaCertificate: certificate, natsCaKey: key };
}

/** The change of the key file that a list of another manager makes; null if it is not newer. */
export function newerAuthorities(
  vault: Vault,
  list: NatsAuthorities | null,
): Pick<KeyFileContents, "natsAuthorities" | "natsCaCertificate" | "natsCaKey"> | null {
  if (
    list === null ||
    list.revision === 0 ||
    (vault.fields.natsCaKey !== "" && !isNewerList(authoritiesIn(vault), list))
  )
    return null;
  return fieldsOf(list);
}
