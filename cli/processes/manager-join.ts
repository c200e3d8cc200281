/**
 * How a further manager joins: by a manager's token, as an engine joins by a worker's. What it gets is a certificate; with
 * that it may ask the others for the keys of the log.
 */
import {
  CAService,
  DataKeysService,
  GetDataKeysRequest,
  GetRootCACertificateRequest,
  IssuanceStatus_State,
  IssueNodeCertificateRequest,
  NodeCAService,
  NodeCertificateStatusRequest,
  NodeRole,
  NodeSpec_Availability,
} from "../../proto/gen/messages.ts";
import type { FetchKeys } from "../../actors/keys/data-keys.ts";
import { createKeyAndCsr, describeCertificate, parseJoinToken, rootMatches } from "../../runtime/pki/index.ts";
import { RpcError, Status, type RpcChannel } from "../../runtime/rpc.ts";
import type { Vault } from "../../runtime/store/vault.ts";
import { dialer } from "../agent-process.ts";
import { UserError } from "../user-error.ts";

/** For each call, in milliseconds; a certificate is signed within a moment, or a leader has to be elected first. */
const callTimeoutMs = 20_000;

export interface ManagerInvitation {
  /** host:port of a manager. */
  readonly address: string;
  readonly token: string;
}

const decoder = new TextDecoder();

/** Saves key, certificate and root in the vault; resolves with the id of this manager's node. Throws UserError. */
export async function joinAsManager({ address, token }: ManagerInvitation, vault: Vault): Promise<string> {
  const parsed = parseJoinToken(token);
  if (parsed.kind === "invalid")
    throw new UserError("--token is no join token: 'muster token manager' on a manager prints one");
  try {
    const rootPem = await using(dialer.dial(address, "bootstrap-unverified", noMaterial), async (channel) => {
      const request = GetRootCACertificateRequest.create({});
      const { certificate } = await channel.unary(CAService.methods.GetRootCACertificate, request, limit);
      if (!rootMatches(parsed, certificate))
        throw new UserError(`the token is not one of the cluster at ${address}: its root certificate is another`);
      return decoder.decode(certificate);
    });
    return await using(dialer.dial(address, "bootstrap", { ...noMaterial, rootPem }), async (channel) => {
      const { keyPem, csrPem } = await createKeyAndCsr();
      const { nodeId } = await channel.unary(
        NodeCAService.methods.IssueNodeCertificate,
        IssueNodeCertificateRequest.create({
          role: NodeRole.MANAGER,
          csr: new TextEncoder().encode(csrPem),
          token,
          // A manager's node runs no tasks.
          availability: NodeSpec_Availability.DRAIN,
        }),
        limit,
      );
      const certificatePem = await issued(channel, nodeId);
      const read = describeCertificate(certificatePem, rootPem);
      if (read.kind === "malformed" || read.role !== "swarm-manager")
        throw new UserError("the token is a worker's: 'muster token manager' on a manager prints the one for managers");
      vault.update({ nodeKey: keyPem, nodeCertificate: certificatePem, rootCertificate: rootPem });
      return nodeId;
    });
  } catch (error) {
    if (error instanceof RpcError) throw new UserError(`cannot join at ${address}: ${error.message}`, { cause: error });
    throw error;
  }
}

const noMaterial = { rootPem: "", certificatePem: "", keyPem: "" };
const limit = { timeoutMs: callTimeoutMs };

async function issued(channel: RpcChannel, nodeId: string): Promise<string> {
  const request = NodeCertificateStatusRequest.create({ nodeId });
  const { status, certificate } = await channel.unary(NodeCAService.methods.NodeCertificateStatus, request, limit);
  if (status?.state !== IssuanceStatus_State.ISSUED)
    throw new RpcError(Status.UNAVAILABLE, status?.err || "no certificate was issued");
  return decoder.decode(certificate?.certificate);
}

async function using<Result>(dialing: Promise<RpcChannel>, work: (channel: RpcChannel) => Promise<Result>) {
  const channel = await dialing;
  try {
    return await work(channel);
  } finally {
    channel.close();
  }
}

/** Asks other managers for data keys, over mutual TLS with the certificate that the vault has now. */
export function keyFetcher(vault: Vault): FetchKeys {
  return async (address, keyId) => {
    const { nodeKey: keyPem, nodeCertificate: certificatePem, rootCertificate: rootPem } = vault.fields;
    if (certificatePem === "" || rootPem === "")
      throw new RpcError(Status.FAILED_PRECONDITION, "this manager has no certificate to show yet");
    return using(dialer.dial(address, "node", { rootPem, certificatePem, keyPem }), (channel) =>
      channel.unary(DataKeysService.methods.GetDataKeys, GetDataKeysRequest.create({ keyId }), limit),
    );
  };
}
