/**
 * The handshake between a plugin and its host (docs/reference/nomad-driver-protocol.md §1.1, §1.2): the environment in which a
 * plugin is started, and the one line that it prints to standard output.
 *
 *   core version | app version | network | address | protocol | server certificate
 */
import type { PluginEndpoint } from "../grpc/client.ts";

/** Without this, a plugin of Nomad only says that it must not be started by hand. */
export const magicCookie = {
  name: "NOMAD_PLUGIN_MAGIC_COOKIE",
  value: "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255",
} as const;

export const coreVersion = 1;
/** The version of Nomad's drivers. */
export const appVersion = 2;

/**
 * Muster's agent sets this for its plugins, to any value. Only if it is set do our own drivers use names of Nomad's drivers,
 * which they would shadow elsewhere.
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
  /** As the plugin printed it. */
  readonly address: string;
  readonly endpoint: PluginEndpoint;
  /** DER; null for a plugin without TLS. */
  readonly certificateDer: Buffer | null;
}

type HandshakeOutcome = Handshake | { readonly kind: "refused"; readonly reason: string };

const refused = (reason: string): HandshakeOutcome => ({ kind: "refused", reason });

/** A shorter certificate field counts as empty, as in go-plugin's hosts. */
const certificateTextMin = 50;
/** Maximum number of quoted characters of a line that is not a handshake. */
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

/** Parses a plugin's first line, without its line end. */
export function parseHandshake(line: string): HandshakeOutcome {
  const fields = line.trim().split("|");
  const [core = "", app = "", network = "", address = "", protocol = "netrpc", certificate = ""] = fields;
  if (fields.length < 4 || !/^\d+$/.test(core)) return refused(`it printed ${quoted(line)} instead of a handshake`);
  if (core !== String(coreVersion))
    return refused(`its handshake has version ${quoted(core)}, expected ${coreVersion}`);
  if (app !== String(appVersion))
    return refused(`it speaks version ${quoted(app)} of the driver protocol, expected ${appVersion}`);
  if (protocol !== "grpc") return refused(`it speaks ${quoted(protocol)}, expected grpc`);
  if (network !== "unix" && network !== "tcp") return refused(`it listens on ${quoted(network)}, expected unix or tcp`);
  const endpoint = endpointOf(network, address);
  if (endpoint === null) return refused(`its address ${quoted(address)} is not valid for ${network}`);
  if (certificate.length <= certificateTextMin)
    return { kind: "handshake", network, address, endpoint, certificateDer: null };
  if (!/^[A-Za-z0-9+/]+$/.test(certificate)) return refused("its certificate is not base64 without padding");
  return { kind: "handshake", network, address, endpoint, certificateDer: Buffer.from(certificate, "base64") };
}

/** A plugin's handshake line. Six fields and no more: older hosts split it into six. */
export function formatHandshake(network: "unix" | "tcp", address: string, certificateDer: Uint8Array | null): string {
  const certificate = certificateDer === null ? "" : Buffer.from(certificateDer).toString("base64").replace(/=+$/, "");
  return `${coreVersion}|${appVersion}|${network}|${address}|grpc|${certificate}\n`;
}
