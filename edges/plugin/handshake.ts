/**
 * How a plugin and its host find each other (docs/reference/nomad-driver-protocol.md §1.1, §1.2): the environment in which a
 * plugin is started, and the one line that it answers with on its standard output.
 *
 *   core version | app version | network | address | protocol | server certificate
 */
import type { PluginEndpoint } from "../grpc/client.ts";

/** A plugin of Nomad started without this says that it is none to be started by hand. */
export const magicCookie = {
  name: "NOMAD_PLUGIN_MAGIC_COOKIE",
  value: "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255",
} as const;

const coreVersion = 1;
/** Of Nomad's drivers. */
export const appVersion = 2;

/**
 * Set by Muster's agent for its plugins, to any value. Our own drivers use a name that would shadow one of Nomad's only where
 * it is set.
 */
export const ownHostVariable = "MUSTER_PLUGIN_HOST";

export const Variable = {
  minPort: "PLUGIN_MIN_PORT",
  maxPort: "PLUGIN_MAX_PORT",
  versions: "PLUGIN_PROTOCOL_VERSIONS",
  clientCertificate: "PLUGIN_CLIENT_CERT",
  multiplex: "PLUGIN_MULTIPLEX_GRPC",
  socketDir: "PLUGIN_UNIX_SOCKET_DIR",
  socketGroup: "PLUGIN_UNIX_SOCKET_GROUP",
} as const;

/** Nomad's range for plugins that listen on TCP. */
export const portRange = { min: 10_000, max: 25_000 } as const;

export interface Handshake {
  readonly kind: "handshake";
  readonly network: "unix" | "tcp";
  /** As the plugin wrote it. */
  readonly address: string;
  readonly endpoint: PluginEndpoint;
  /** DER; null for a plugin that speaks without TLS. */
  readonly certificateDer: Buffer | null;
}

export type HandshakeOutcome = Handshake | { readonly kind: "refused"; readonly reason: string };

const refused = (reason: string): HandshakeOutcome => ({ kind: "refused", reason });

/** Shorter than this, the field of the certificate holds none: what go-plugin's hosts do too. */
const certificateTextMin = 50;
/** How much of a line that is no handshake is quoted. */
const quotedMax = 120;

function quoted(line: string): string {
  const text = line.length > quotedMax ? `${line.slice(0, quotedMax)}…` : line;
  return JSON.stringify(text);
}

function endpointOf(network: string, address: string): PluginEndpoint | null {
  if (network === "unix") return address.startsWith("/") ? { path: address } : null;
  const colon = address.lastIndexOf(":");
  const host = address.slice(0, colon).replace(/^\[(.*)\]$/, "$1");
  const port = Number(address.slice(colon + 1));
  return colon > 0 && host !== "" && Number.isInteger(port) && port > 0 && port < 65_536 ? { host, port } : null;
}

/** Reads a plugin's first line, without its end. */
export function parseHandshake(line: string): HandshakeOutcome {
  const fields = line.trim().split("|");
  const [core = "", app = "", network = "", address = "", protocol = "netrpc", certificate = ""] = fields;
  if (fields.length < 4 || !/^\d+$/.test(core))
    return refused(`it printed ${quoted(line)} where a plugin shakes hands`);
  if (core !== String(coreVersion)) return refused(`its handshake has version ${quoted(core)}, not ${coreVersion}`);
  if (app !== String(appVersion))
    return refused(`it speaks version ${quoted(app)} of the driver protocol, not ${appVersion}`);
  if (protocol !== "grpc") return refused(`it speaks ${quoted(protocol)}, not grpc`);
  if (network !== "unix" && network !== "tcp") return refused(`it listens on ${quoted(network)}, not unix or tcp`);
  const endpoint = endpointOf(network, address);
  if (endpoint === null) return refused(`its address ${quoted(address)} is none of ${network}`);
  if (certificate.length <= certificateTextMin)
    return { kind: "handshake", network, address, endpoint, certificateDer: null };
  if (!/^[A-Za-z0-9+/]+$/.test(certificate)) return refused("its certificate is not base64 without padding");
  return { kind: "handshake", network, address, endpoint, certificateDer: Buffer.from(certificate, "base64") };
}

/** The line that a plugin prints. Six fields and no more: older hosts cut it into six. */
export function formatHandshake(network: "unix" | "tcp", address: string, certificateDer: Uint8Array | null): string {
  const certificate = certificateDer === null ? "" : Buffer.from(certificateDer).toString("base64").replace(/=+$/, "");
  return `${coreVersion}|${appVersion}|${network}|${address}|grpc|${certificate}\n`;
}
