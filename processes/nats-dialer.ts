/**
 * A node's connections to managers over NATS: one for each dial, which ends with its channel. A node shows its certificate, one that
 * joins proves that it knows the token, and neither sends a secret before the server has shown a certificate of the cluster.
 */
import { checkServerIdentity, type PeerCertificate } from "node:tls";
import type { Dialer, TlsMaterial } from "../actors/agent/ports.ts";
import { describeCertificate } from "../lib/pki/index.ts";
import { joinerId, nodesNatsName, presentJoiner, presentNode } from "../lib/pki/presented.ts";
import { openNodeLink } from "../runtime/calls/node-link.ts";
import { newId } from "../runtime/ids.ts";
import { NatsProblem } from "../runtime/nats/errors.ts";
import { connectNode, managerAt, type NodeConnection } from "../runtime/nats/node-connection.ts";
import type { Clock, Random } from "../runtime/ports/index.ts";
import { RpcError, Status } from "../runtime/ports/rpc.ts";

interface NatsDialerOptions {
  readonly clock: Clock;
  readonly random: Random;
  /** `nats://HOST:PORT`, `tls://HOST:PORT` or `wss://HOST:PORT`, each of one manager. */
  readonly urls: readonly string[];
  /** Shown while the node has no certificate. */
  readonly token: string;
}

/** Whether a place to join at is a server of NATS. */
export function isNatsUrl(place: string): boolean {
  return /^(nats|tls|wss):\/\//.test(place);
}

export function natsDialer({ clock, random, token, urls }: NatsDialerOptions): Dialer {
  /** The URL of that manager; any if its id is empty, as for one that joins. */
  const urlOf = async (managerId: string): Promise<string> => {
    const first = random.below(urls.length);
    for (const url of [...urls.slice(first), ...urls.slice(0, first)]) {
      const found = await managerAt(url);
      if (found !== null && (managerId === "" || found === managerId)) return url;
    }
    const who = managerId === "" ? "any manager" : `manager ${managerId}`;
    throw new RpcError(Status.UNAVAILABLE, `cannot reach ${who} over NATS at ${urls.join(", ")}`);
  };
  return {
    async dial(_address, credentials, material, managerId = "") {
      const url = await urlOf(managerId);
      const joiner = credentials === "node" ? null : joinerId(newId(random));
      try {
        const connection = await connectNode({
          url,
          name: "muster-agent",
          ...secured(credentials, material, joiner, token),
        });
        return await openChannel(connection, joiner ?? nodeIdOf(material));
      } catch (error) {
        if (!(error instanceof NatsProblem)) throw error;
        if (error.kind !== "unauthorized") throw new RpcError(Status.UNAVAILABLE, error.message, { cause: error });
        // A joining node's is answered as the CA answers it over gRPC, where another attempt cannot help either.
        throw joiner === null
          ? new RpcError(Status.UNAVAILABLE, `the manager at ${url} does not accept this node's certificate`)
          : new RpcError(Status.INVALID_ARGUMENT, "A valid join token is necessary to join this cluster");
      }
    },
  };

  async function openChannel({ bus, close, managerId, maxPayload, onClosed }: NodeConnection, nodeId: string) {
    try {
      const link = await openNodeLink({ clock, random, bus, nodeId, managerId, payloadBytesMax: maxPayload });
      onClosed((reason) => link.lost(reason));
      link.onClosed(close);
      return link;
    } catch (error) {
      close();
      throw error;
    }
  }
}

function secured(
  credentials: Parameters<Dialer["dial"]>[1],
  material: TlsMaterial,
  joiner: string | null,
  token: string,
): Pick<Parameters<typeof connectNode>[0], "tls" | "present"> {
  // Both, since the library dials a name as the certificate's name.
  const named = { ca: material.rootPem, serverName: nodesNatsName, servername: nodesNatsName };
  if (joiner !== null) {
    const present = (nonce: string) => presentJoiner(joiner, token, { nonce });
    // Its root is not known yet: it is compared with the token's digest, and only then trusted.
    return { tls: credentials === "bootstrap-unverified" ? { rejectUnauthorized: false } : named, present };
  }
  let server = "";
  const checking = {
    ...named,
    checkServerIdentity: (name: string, certificate: PeerCertificate) => {
      server = certificate.fingerprint256;
      return checkServerIdentity(name, certificate);
    },
  };
  return { tls: checking, present: (nonce) => presentNode(material, { nonce, server }) };
}

function nodeIdOf({ certificatePem, rootPem }: TlsMaterial): string {
  const facts = describeCertificate(certificatePem, rootPem);
  return facts.kind === "certificate" ? facts.nodeId : "";
}
