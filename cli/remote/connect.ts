/** Connections to managers on other machines: the server is verified before anything is sent. */
import { createHash } from "node:crypto";
import { connectTls } from "../../edges/grpc/client.ts";
import { CAService, GetRootCACertificateRequest } from "../../proto/gen/messages.ts";
import { validUntilMs } from "../../lib/pki/index.ts";
import { RpcError, type RpcChannel } from "../../runtime/ports/rpc.ts";
import type { Context } from "../contexts.ts";
import { parseHostPort, type HostPort } from "../../processes/addresses.ts";
import { UserError } from "../../lib/user-error.ts";
import { credentialsOf, rootsOf, type UserCredentials } from "./credentials.ts";

/** Timeout of connecting and the handshake together, in milliseconds: a round trip may take seconds over a bad line. */
const connectTimeoutMs = 15_000;
/** Port of an address without one: SwarmKit's. */
const defaultPort = 2377;

/** Parses `tcp://ADDR[:PORT]`. Throws UserError. */
export function remoteAddress(host: string): HostPort {
  return parseHostPort(host.replace(/^tcp:\/\//, ""), defaultPort);
}

/** As `muster ca --digest` prints it. */
export function rootDigest(rootPem: Uint8Array): string {
  return `sha256:${createHash("sha256").update(rootPem).digest("hex")}`;
}

async function dial(host: string, rootPem: string | null, credentials: UserCredentials | null): Promise<RpcChannel> {
  try {
    return await connectTls({
      ...remoteAddress(host),
      ...(rootPem === null ? {} : { rootPem }),
      ...credentials,
      serverName: "swarm-manager",
      timeoutMs: connectTimeoutMs,
    });
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    const why = error.message.includes("its certificate is not trusted")
      ? `the manager at ${host} has a certificate of a root other than the context's: it belongs to another cluster, the root was ` +
        "replaced since the last login, or the connection is intercepted. If you trust it, create the context again with its --ca"
      : `cannot reach the manager at ${host}: ${error.message.replace(/^cannot connect to [^ ]+: /, "")}. ` +
        "Check that it is running and that its port is open to this machine";
    throw new UserError(why, { cause: error });
  }
}

/** Fetches a manager's root, if it has that digest. Sends nothing secret. Throws UserError. */
export async function fetchRoot(host: string, digest: string): Promise<string> {
  const channel = await dial(host, null, null);
  try {
    const { certificate } = await channel.unary(
      CAService.methods.GetRootCACertificate,
      GetRootCACertificateRequest.create({}),
      { timeoutMs: connectTimeoutMs },
    );
    if (rootDigest(certificate) !== digest.toLowerCase())
      throw new UserError(
        `the root certificate of the manager at ${host} has the digest ${rootDigest(certificate)}, not ${digest}`,
      );
    return new TextDecoder().decode(certificate);
  } finally {
    channel.close();
  }
}

/** Connects without a certificate, to log in. Throws UserError. */
export function connectToLogIn(name: string, { host }: Context): Promise<RpcChannel> {
  return dial(host, rootsOf(name), null);
}

/** Connects as the context's user. Throws UserError. */
export function connectRemote(name: string, { host, user = "" }: Context, nowMs: number): Promise<RpcChannel> {
  const credentials = credentialsOf(name);
  if (credentials === null) throw new UserError(`not logged in to context "${name}": run 'muster login ${name}'`);
  const untilMs = validUntilMs(credentials.certificatePem);
  if (untilMs === null)
    throw new UserError(`cannot read the certificate of context "${name}": run 'muster login ${name}'`);
  if (untilMs < nowMs) {
    const when = new Date(untilMs).toISOString();
    throw new UserError(`the certificate of user ${user} expired at ${when}: log in again with 'muster login ${name}'`);
  }
  return dial(host, rootsOf(name), credentials);
}
