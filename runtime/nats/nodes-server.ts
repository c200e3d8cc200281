/**
 * The configuration of a nats-server for nodes: without JetStream, in accounts of its own. Managers use keys that exist in their
 * memory alone, so its file contains no secret; everybody else is admitted by the authorization callout (`nodes-access.ts`).
 */
import { replaceFile } from "../system/whole-file.ts";
import type { ServerFiles } from "./server-files.ts";

/** The account of nodes and of the frames of their calls. */
export const nodesAccount = "NODES";

/** In bytes: a part of a message (64 KiB) and its fields. */
const payloadBytesMax = 128 * 1024;
/** In bytes: a client's CONNECT has a chain of certificates. */
const controlLineBytesMax = 16 * 1024;

export interface NodesAccounts {
  /** The name by which nodes recognize whose server it is. */
  readonly managerId: string;
  /** Public keys: of the account that signs the callout's answers, and of the manager's users of the two accounts. */
  readonly issuer: string;
  readonly systemUser: string;
  readonly nodesUser: string;
  /** PEM file of the server's certificate and its key. */
  readonly tlsFile: string;
  /** Where leaf nodes connect, `HOST:PORT`; null: nowhere. */
  readonly leafNodes: string | null;
  /** Where nodes connect over WebSockets, likewise. */
  readonly webSockets: string | null;
}

export async function writeNodesConfig(
  files: ServerFiles,
  accounts: NodesAccounts & { readonly host: string; readonly port: number },
): Promise<void> {
  const { host, issuer, leafNodes, managerId, nodesUser, port, systemUser, tlsFile, webSockets } = accounts;
  const tls = [
    "tls {",
    `  cert_file: ${JSON.stringify(tlsFile)}`,
    `  key_file: ${JSON.stringify(tlsFile)}`,
    "  # Seconds. A busy machine takes longer than the default of half a second.",
    "  timeout: 5",
    "}",
  ];
  const lines = [
    "# Written by Muster at each start: changes are lost.",
    `server_name: ${JSON.stringify(managerId)}`,
    `listen: "${host}:${port}"`,
    `max_payload: ${payloadBytesMax}`,
    `max_control_line: ${controlLineBytesMax}`,
    "# A node that reads nothing for this long is disconnected; it connects again.",
    'write_deadline: "10s"',
    ...tls,
    ...(leafNodes === null
      ? []
      : [
          "leafnodes {",
          `  listen: ${JSON.stringify(leafNodes)}`,
          "  # A leaf node uses the addresses that it was given: behind NAT, others do not lead here.",
          "  no_advertise: true",
          ...tls.map((line) => `  ${line}`),
          "}",
        ]),
    ...(webSockets === null
      ? []
      : [
          "websocket {",
          `  listen: ${JSON.stringify(webSockets)}`,
          "  # As for other clients.",
          '  handshake_timeout: "5s"',
          ...tls.map((line) => `  ${line}`),
          "}",
        ]),
    "accounts {",
    `  SYS { users: [{ nkey: ${systemUser} }] }`,
    `  ${nodesAccount} { users: [{ nkey: ${nodesUser} }] }`,
    "}",
    "system_account: SYS",
    "authorization {",
    "  # Seconds, the callout included.",
    "  timeout: 10",
    `  auth_callout { issuer: ${issuer}, auth_users: [${systemUser}, ${nodesUser}], account: SYS }`,
    "}",
    "",
  ];
  await replaceFile(files.config, lines.join("\n"));
}
