/**
 * A node's sealed connections to managers: TLS to a manager's gRPC port, as over TCP, whose bytes pass through the NATS of the node's
 * site. So whoever operates that NATS, or uses it, can neither read nor forge what the node and its managers say.
 */
import { readFile } from "node:fs/promises";
import type { Dialer } from "../actors/agent/ports.ts";
import { connectTlsOver } from "../edges/grpc/client.ts";
import { findManager, openSiteLink } from "../runtime/calls/site-link.ts";
import { NatsProblem } from "../runtime/nats/errors.ts";
import { connectSite, type NodeConnection } from "../runtime/nats/node-connection.ts";
import type { Clock, Random } from "../runtime/ports/index.ts";
import { RpcError, Status } from "../runtime/ports/rpc.ts";

/** For the handshake through the site's NATS, in milliseconds. */
const handshakeMs = 10_000;

/** How a node reaches its managers through the NATS of its site. */
export interface Seal {
  readonly site: string;
  /** Absolute path of a PEM file with the CAs of that NATS; null: the system's. */
  readonly caFile: string | null;
  /** Absolute path of a `.creds` file or of the seed of an nkey; null: none, or a password in the URL. */
  readonly credentialsFile: string | null;
}

interface SealedDialerOptions extends Seal {
  readonly clock: Clock;
  readonly random: Random;
  /** Servers of the site's NATS, any of which will do. */
  readonly urls: readonly string[];
}

export function sealedDialer({ caFile, clock, credentialsFile, random, site, urls }: SealedDialerOptions): Dialer {
  return {
    async dial(_address, credentials, { certificatePem, keyPem, rootPem }, managerId = "") {
      const connection = await connectAny();
      try {
        const at = { clock, random, bus: connection.bus, site };
        const manager = await findManager(at, managerId);
        const { maxPayload: payloadBytesMax } = connection;
        const stream = await openSiteLink({ ...at, managerId: manager, payloadBytesMax });
        connection.onClosed((reason) => stream.close(reason));
        stream.once("close", () => connection.close());
        return await connectTlsOver(stream, `manager ${manager} through the NATS of site ${site}`, {
          serverName: credentials === "node" ? "swarm-manager" : "swarm-ca",
          timeoutMs: handshakeMs,
          ...(credentials === "bootstrap-unverified" ? {} : { rootPem }),
          ...(credentials === "node" ? { certificatePem, keyPem } : {}),
        });
      } catch (error) {
        connection.close();
        throw error;
      }
    },
  };

  /** Rejects with RpcError UNAVAILABLE. */
  async function connectAny(): Promise<NodeConnection> {
    const first = random.below(urls.length);
    let problem: unknown = null;
    for (const url of [...urls.slice(first), ...urls.slice(0, first)])
      try {
        return await connectSite({
          url,
          name: "muster-agent",
          ca: await read(caFile),
          credentials: await read(credentialsFile),
        });
      } catch (error) {
        if (!(error instanceof NatsProblem)) throw error;
        problem = error;
      }
    throw new RpcError(Status.UNAVAILABLE, (problem as NatsProblem).message, { cause: problem as NatsProblem });
  }
}

/** Anew for each connection, so that renewed files take effect. Rejects with RpcError UNAVAILABLE. */
async function read(file: string | null): Promise<string | null> {
  if (file === null) return null;
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    throw new RpcError(Status.UNAVAILABLE, `cannot read ${file}: ${(error as Error).message}`, { cause: error });
  }
}
