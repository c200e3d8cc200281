/** Connections of nodes, and of managers to each other, to a manager's TLS port. */
import type { Dialer } from "../actors/agent/ports.ts";
import { connectTls } from "../edges/grpc/client.ts";
import { parseHostPort } from "./addresses.ts";

/** Port of an address without one: SwarmKit's. */
export const defaultPort = 2377;
/** For connecting and the handshake; the first message of a session may take as long again. */
const dialTimeoutMs = 5_000;

export const dialer: Dialer = {
  async dial(address, credentials, material) {
    const { host, port } = parseHostPort(address, defaultPort);
    const serverName = credentials === "node" ? "swarm-manager" : "swarm-ca";
    const { certificatePem, keyPem, rootPem } = material;
    return connectTls({
      host,
      port,
      serverName,
      timeoutMs: dialTimeoutMs,
      ...(credentials === "bootstrap-unverified" ? {} : { rootPem }),
      ...(credentials === "node" ? { certificatePem, keyPem } : {}),
    });
  },
};
