/** Flags of sealed links: through the NATS of a node's site, which its operator may read. */
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { isLeafSite } from "../../lib/pki/site-password.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import { isNatsUrl } from "../../processes/nats-dialer.ts";
import type { Seal } from "../../processes/sealed-dialer.ts";
import { authenticatorOf } from "../../runtime/nats/credentials.ts";

export const sealFlags = {
  seal: {
    type: "boolean",
    help: "With --join nats://HOST:PORT and --site: reach the managers through that NATS, such as a leaf node's, so that nobody there can read or forge anything",
  },
  "nats-ca": {
    type: "string",
    value: "FILE",
    help: "With --seal: CA certificates for verifying the servers in --join (default: the system's)",
    completes: "file",
  },
  "nats-credentials": {
    type: "string",
    value: "FILE",
    help: "With --seal: credentials (.creds) or nkey seed for the servers in --join (default: none, or user and password in their URLs)",
    completes: "file",
  },
} as const;

interface SealValues {
  readonly seal?: boolean | undefined;
  readonly site?: string | undefined;
  readonly "nats-ca"?: string | undefined;
  readonly "nats-credentials"?: string | undefined;
}

/** Null without `--seal`. `places`: of `--join`. Throws UsageError, and UserError for unusable files. */
export function sealOf(values: SealValues, places: readonly string[]): Seal | null {
  const { "nats-ca": ca, "nats-credentials": credentials, seal = false, site } = values;
  if (!seal) {
    const flag = ca !== undefined ? "nats-ca" : credentials !== undefined ? "nats-credentials" : null;
    if (flag !== null)
      throw new UsageError(`--${flag} requires --seal: other nodes verify and show their cluster's certificates`);
    return null;
  }
  if (site === undefined) throw new UsageError("--seal requires --site: the node uses the subjects of its site");
  if (!isLeafSite(site))
    throw new UsageError(
      `invalid argument "${site}" for "--site" flag: with --seal, expected up to 63 letters, digits, '_' and '-'`,
    );
  if (!places.every(isNatsUrl))
    throw new UsageError(
      "--seal requires --join with URLs of NATS, such as nats://HOST:PORT: to a manager's port, connections are encrypted anyway",
    );
  if (ca !== undefined) usable(`--nats-ca ${ca}`, () => void new X509Certificate(readFileSync(ca, "utf8")));
  if (credentials !== undefined)
    usable(`--nats-credentials ${credentials}`, () => void authenticatorOf(readFileSync(credentials, "utf8")));
  return {
    site,
    caFile: ca === undefined ? null : resolve(ca),
    credentialsFile: credentials === undefined ? null : resolve(credentials),
  };
}

function usable(flag: string, use: () => void): void {
  try {
    use();
  } catch (error) {
    throw new UserError(`${flag} is unusable: ${(error as Error).message}`, { cause: error });
  }
}
