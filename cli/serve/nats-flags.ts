/** Flags of the NATS that the managers of a cluster share. */
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { createSecureContext } from "node:tls";
import { parseAddress, showAddress } from "../../runtime/nats/address.ts";
import { NatsProblem } from "../../runtime/nats/errors.ts";
import { durationMs } from "../../proto/time.ts";
import { parsePositiveDuration } from "../values.ts";
import { secretFrom } from "../secret-file.ts";
import type { SharedNats } from "../../processes/shared-nats.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";

export const natsFlags = {
  nats: {
    type: "string",
    multiple: true,
    value: "URL",
    help: "Servers of a NATS cluster shared by all managers; repeat the flag or separate with commas. With three or more the log has three replicas",
  },
  "nats-ca": {
    type: "string",
    value: "FILE",
    help: "CA certificates for verifying these servers (default: the system's)",
    completes: "file",
  },
  "nats-cert": {
    type: "string",
    value: "FILE",
    help: "Client certificate for these servers",
    completes: "file",
  },
  "nats-key": {
    type: "string",
    value: "FILE",
    help: "Private key of the client certificate",
    completes: "file",
    credential: { name: "nats-key", for: "nats-cert" },
  },
  "nats-insecure": {
    type: "boolean",
    help: "Accept servers beyond loopback without TLS or authentication",
  },
  "nats-password-file": {
    type: "string",
    value: "FILE",
    help: "File whose first line is the password for the user named in --nats; - reads standard input",
    completes: "file",
    credential: { name: "nats-password", for: "nats" },
  },
  "lease-ttl": {
    type: "string",
    value: "DURATION",
    help: "Leader lease, for all managers on these servers: how long a silent leader is waited for before it is replaced (3s to 60s; at least four round trips of a write; default: as set before, or 3s)",
  },
  "nats-move": { type: "boolean", help: "Move the data of this manager's own NATS to these servers first" },
} as const;

/** Null without `--nats`. Throws UsageError, and UserError for unusable files. */
export function sharedNatsOf(values: {
  readonly nats?: readonly string[] | undefined;
  readonly "nats-ca"?: string | undefined;
  readonly "nats-cert"?: string | undefined;
  readonly "nats-key"?: string | undefined;
  readonly "nats-insecure"?: boolean | undefined;
  readonly "nats-password-file"?: string | undefined;
  readonly "nats-move"?: boolean | undefined;
  readonly "lease-ttl"?: string | undefined;
}): SharedNats | null {
  const { "nats-ca": ca, "nats-cert": cert, "nats-key": key } = values;
  const { "nats-insecure": insecure = false, "nats-move": moves = false, "nats-password-file": passwordFile } = values;
  if (values.nats === undefined) {
    const others = {
      "nats-ca": ca,
      "nats-cert": cert,
      "nats-key": key,
      "nats-insecure": insecure,
      "nats-password-file": passwordFile,
      "nats-move": moves,
      "lease-ttl": values["lease-ttl"],
    };
    const flag = Object.entries(others).find(([, given]) => given);
    if (flag !== undefined) throw new UsageError(`--${flag[0]} requires --nats: it applies to those servers`);
    return null;
  }
  if ((cert === undefined) !== (key === undefined))
    throw new UsageError("--nats-cert and --nats-key must be set together: a certificate and its private key");
  const named = new Map(values.nats.flatMap((list) => list.split(",")).map((url) => [addressOf(url), url.trim()]));
  const servers =
    passwordFile === undefined
      ? [...named.values()]
      : withPassword([...named.values()], secretFrom(passwordFile, "password"));
  const leaseTtlMs = leaseTtlOf(values["lease-ttl"]);
  if (ca === undefined && cert === undefined) return { servers, moves, insecure, leaseTtlMs, tls: null };
  check(ca, cert, key);
  return {
    servers,
    moves,
    insecure,
    leaseTtlMs,
    tls: {
      ...(ca === undefined ? {} : { caFile: resolve(ca) }),
      ...(cert === undefined || key === undefined ? {} : { certFile: resolve(cert), keyFile: resolve(key) }),
    },
  };
}

const leaseTtlMsMin = 3_000;
/** A longer lease would delay the replacement of a dead leader for longer than its nodes' tasks may wait. */
const leaseTtlMsMax = 60_000;

/** Throws UsageError. */
function leaseTtlOf(text: string | undefined): number | null {
  if (text === undefined) return null;
  const ms = durationMs(parsePositiveDuration(text, "lease-ttl"), 0);
  if (ms < leaseTtlMsMin || ms > leaseTtlMsMax)
    throw new UsageError(`invalid argument "${text}" for "--lease-ttl" flag: expected a duration from 3s to 60s`);
  return ms;
}

/** Every address must have a user and no password, to avoid two passwords. Throws UsageError. */
function withPassword(servers: readonly string[], password: string): readonly string[] {
  return servers.map((server) => {
    const url = new URL(server.includes("://") ? server : `nats://${server}`);
    if (url.username === "" || url.password !== "")
      throw new UsageError(
        `--nats-password-file requires addresses with a user and no password, such as nats://USER@${url.host}`,
      );
    // Not with the setter, which ignores schemes that browsers do not know.
    const user = url.username;
    return `${url.protocol}//${user}:${encodeURIComponent(password)}@${url.host}`;
  });
}

/** Normalizes an address, to find duplicates. */
function addressOf(url: string): string {
  try {
    return showAddress(parseAddress(url.trim()));
  } catch (error) {
    if (error instanceof NatsProblem) throw new UsageError(`--nats: ${error.message}`);
    throw error;
  }
}

/** Checks the files at start, when errors are noticed. */
function check(ca: string | undefined, cert: string | undefined, key: string | undefined): void {
  if (ca !== undefined) usable(`--nats-ca ${ca}`, () => void new X509Certificate(readFileSync(ca)));
  if (cert === undefined || key === undefined) return;
  usable(`--nats-cert ${cert}`, () => void new X509Certificate(readFileSync(cert)));
  usable(`--nats-key ${key}`, () => void createSecureContext({ cert: readFileSync(cert), key: readFileSync(key) }));
}

function usable(flag: string, use: () => void): void {
  try {
    use();
  } catch (error) {
    throw new UserError(`${flag} is unusable: ${(error as Error).message}`, { cause: error });
  }
}
