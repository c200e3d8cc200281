/**
 * Joining as an additional manager: with a manager token, as an engine joins with a worker token. It gets a certificate, with
 * which it may request the log's keys from other managers, and access to their NATS.
 */
import {
  CAService,
  ControlService,
  DataKeysService,
  GetDataKeysRequest,
  GetRootCACertificateRequest,
  HealthCheckRequest,
  HealthCheckResponse_ServingStatus as ServingStatus,
  HealthService,
  IssuanceStatus_State,
  IssueNodeCertificateRequest,
  NodeCAService,
  NodeCertificateStatusRequest,
  NodeRole,
  NodeSpec_Availability,
  OperatorService,
  RemoveNodeRequest,
  StatusRequest,
} from "../proto/gen/messages.ts";
import type { FetchKeys } from "../actors/keys/data-keys.ts";
import type { NatsAuthorityPorts } from "../actors/keys/nats-authority.ts";
import type { AskClock } from "../actors/manager/compare-clocks.ts";
import type { AskPeer } from "../actors/manager/isolation.ts";
import { createKeyAndCsr, describeCertificate, parseJoinToken, rootMatches } from "../lib/pki/index.ts";
import { timeMs } from "../proto/time.ts";
import type { Telemetry } from "../runtime/ports/index.ts";
import { RpcError, Status, type RpcChannel } from "../runtime/ports/rpc.ts";
import type { Vault } from "../runtime/store/vault.ts";
import { dialer } from "./dialer.ts";
import type { CallPrepare } from "./nats-cluster.ts";
import { UserError } from "../lib/user-error.ts";

/** Timeout of each call, in milliseconds: a certificate is signed at once, unless a leader must be elected first. */
const callTimeoutMs = 20_000;
/**
 * Attempts of a refused manager to remove its node, and the pause between them: a manager that lags may not have the node yet.
 */
const removalAttemptsMax = 3;
const removalRetryMs = 1_000;
/** Pause before a manager that lags is asked again for a new node's certificate, in milliseconds. */
const unknownRetryMs = 500;

export interface ManagerInvitation {
  /** host:port of a manager. */
  readonly address: string;
  readonly token: string;
}

const decoder = new TextDecoder();

/** Stores key, certificate and root in the vault; resolves with the id of this manager's node. Throws UserError. */
async function joinAsManager({ address, token }: ManagerInvitation, advertise: string, vault: Vault): Promise<string> {
  if (address === advertise)
    throw new UserError(
      `cannot join at ${address}, which is this manager's own address: set --join to another manager's`,
    );
  const parsed = parseJoinToken(token);
  if (parsed.kind === "invalid")
    throw new UserError("invalid join token: run 'muster token manager' on a manager to get one");
  try {
    const rootPem = await using(dialer.dial(address, "bootstrap-unverified", noMaterial), async (channel) => {
      const request = GetRootCACertificateRequest.create({});
      const { certificate } = await channel.unary(CAService.methods.GetRootCACertificate, request, limit);
      if (!rootMatches(parsed, certificate))
        throw new UserError(
          `the token is for a cluster other than the one at ${address}: the root certificates differ`,
        );
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
        throw new UserError(
          "cannot join as a manager with a worker's token: 'muster token manager' on a manager prints the managers' token",
        );
      vault.update({ nodeKey: keyPem, nodeCertificate: certificatePem, rootCertificate: rootPem });
      return nodeId;
    });
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    const advice = /expired/.test(error.message) ? "; check this machine's clock" : "";
    throw new UserError(`cannot join at ${address}: ${error.message}${advice}`, { cause: error });
  }
}

/**
 * For a data dir that has joined or founded a cluster: rejects with UserError if the invitation is to another one. Resolves if
 * that cannot be found out now.
 */
export async function refuseOtherCluster(
  { address, token }: ManagerInvitation,
  vault: Vault,
  dataDir: string,
): Promise<void> {
  const parsed = parseJoinToken(token);
  const { nodeCertificate, rootCertificate } = vault.fields;
  if (parsed.kind === "invalid") return;
  const theirs = await using(dialer.dial(address, "bootstrap-unverified", noMaterial), (channel) =>
    channel.unary(CAService.methods.GetRootCACertificate, GetRootCACertificateRequest.create({}), healthLimit),
  ).catch(() => null);
  if (theirs === null || !rootMatches(parsed, theirs.certificate)) return;
  const theirRoot = decoder.decode(theirs.certificate);
  const ours = describeCertificate(nodeCertificate, rootCertificate);
  // During a root rotation, its certificate may be of the old root or of the new one.
  if (rootCertificate.includes(theirRoot.trim()) || ours.kind !== "certificate") return;
  if (ours.verify(theirRoot, ours.notAfterMs)) return;
  throw new UserError(
    `the data dir ${dataDir} belongs to a cluster other than the one at ${address}: use another --data-dir to join that one, ` +
      "or start without --join to continue",
  );
}

/** A join in progress: from the certificate request until this manager serves. */
export interface PendingJoin {
  /** Resolves with the id of this manager's node. Rejects with UserError; then nothing was joined. */
  readonly joined: Promise<string>;
  /** Call when this manager serves: it is a member from now on, and the join is no longer undone. */
  done(): void;
  /**
   * Unless done: removes this manager's node from the cluster, and its identity and keys from the vault. Everything that writes
   * on its behalf must have stopped. Resolves when the node is removed, or after logging that it could not be removed.
   */
  withdraw(): Promise<void>;
}

export function startJoin(
  invitation: ManagerInvitation,
  advertise: string,
  vault: Vault,
  telemetry: Telemetry,
): PendingJoin {
  let isDone = false;
  const joined = joinAsManager(invitation, advertise, vault);
  joined.catch(() => {});
  return {
    joined,
    done: () => (isDone = true),
    async withdraw() {
      // An interrupted start did not wait for the certificate.
      const nodeId = isDone ? null : await joined.catch(() => null);
      if (nodeId === null) return;
      const failure = await removeOwnNode(invitation.address, nodeId, vault);
      if (failure !== null)
        telemetry.log.warn(
          { node: nodeId, error: failure },
          "cannot remove the node of this refused manager: run 'muster node rm'",
        );
      try {
        vault.update(nothingHeld);
      } catch (error) {
        telemetry.log.warn({ error: String(error) }, "cannot remove the keys of this refused manager from its disk");
      }
    },
  };
}

const nothingHeld = {
  nodeKey: "",
  nodeCertificate: "",
  rootCertificate: "",
  natsCaCertificate: "",
  natsCaKey: "",
  natsAuthorities: null,
  natsServers: [],
  peers: [],
  dataKeys: [],
  plainThrough: 0,
} as const;

/** Null once the node is removed; else the reason why not. */
async function removeOwnNode(address: string, nodeId: string, vault: Vault): Promise<string | null> {
  const { nodeKey: keyPem, nodeCertificate: certificatePem, rootCertificate: rootPem } = vault.fields;
  const request = RemoveNodeRequest.create({ nodeId, force: true });
  let failure = "";
  for (let attempt = 1; attempt <= removalAttemptsMax; attempt += 1) {
    if (attempt > 1) await new Promise((resolve) => setTimeout(resolve, removalRetryMs));
    try {
      await using(dialer.dial(address, "node", { rootPem, certificatePem, keyPem }), (channel) =>
        channel.unary(ControlService.methods.RemoveNode, request, limit),
      );
      return null;
    } catch (error) {
      // The answer to a successful removal may have been lost: removing the node closes the connection.
      if (attempt > 1 && error instanceof RpcError && error.code === Status.PERMISSION_DENIED) return null;
      failure = error instanceof Error ? error.message : String(error);
    }
  }
  return failure;
}

const noMaterial = { rootPem: "", certificatePem: "", keyPem: "" };
const limit = { timeoutMs: callTimeoutMs };
/** A manager that makes progress answers at once. */
const healthLimit = { timeoutMs: 2_000 };

async function issued(channel: RpcChannel, nodeId: string): Promise<string> {
  const request = NodeCertificateStatusRequest.create({ nodeId });
  const giveUpAt = performance.now() + callTimeoutMs;
  for (;;)
    try {
      const { status, certificate } = await channel.unary(NodeCAService.methods.NodeCertificateStatus, request, limit);
      if (status?.state !== IssuanceStatus_State.ISSUED)
        throw new RpcError(Status.UNAVAILABLE, status?.err || "no certificate was issued");
      return decoder.decode(certificate?.certificate);
    } catch (error) {
      // The node has been created, but that manager may be behind the log, such as after the loss of another.
      const isUnknown = error instanceof RpcError && error.code === Status.NOT_FOUND;
      if (!isUnknown || performance.now() > giveUpAt) throw error;
      await new Promise((resolve) => setTimeout(resolve, unknownRetryMs));
    }
}

async function using<Result>(dialing: Promise<RpcChannel>, work: (channel: RpcChannel) => Promise<Result>) {
  const channel = await dialing;
  try {
    return await work(channel);
  } finally {
    channel.close();
  }
}

/** Calls another manager over mutual TLS, with the vault's current certificate. */
function askManager<Answer>(
  vault: Vault,
  address: string,
  work: (channel: RpcChannel) => Promise<Answer>,
): Promise<Answer> {
  const { nodeKey: keyPem, nodeCertificate: certificatePem, rootCertificate: rootPem } = vault.fields;
  return using(dialer.dial(address, "node", { rootPem, certificatePem, keyPem }), work);
}

/** Asks other managers for their health. */
export function peerAsker(vault: Vault): AskPeer {
  return async (address) => {
    try {
      const { status } = await askManager(vault, address, (channel) =>
        channel.unary(HealthService.methods.Check, HealthCheckRequest.create(), healthLimit),
      );
      return status === ServingStatus.SERVING ? "serving" : "stuck";
    } catch {
      return "unreachable";
    }
  };
}

/** Asks other managers for their wall clocks. */
export function clockAsker(vault: Vault): AskClock {
  return async (address) => {
    const { answeredAt } = await askManager(vault, address, (channel) =>
      channel.unary(OperatorService.methods.Status, StatusRequest.create(), healthLimit),
    );
    if (answeredAt === null) throw new Error("its version does not send its time");
    return timeMs(answeredAt);
  };
}

/** Asks other managers for their nats-servers. */
export function prepareCaller(vault: Vault): CallPrepare {
  return (address, request) =>
    askManager(vault, address, (channel) => channel.unary(DataKeysService.methods.PrepareNats, request, limit));
}

/** How long another manager may take to restart its nats-server and to catch up, in milliseconds. */
const authoritiesLimit = { timeoutMs: 60_000 };

/** Has other managers use a list of NATS's CAs. */
export function authoritiesTeller(vault: Vault): NatsAuthorityPorts["tell"] {
  return (address, list) =>
    askManager(vault, address, (channel) =>
      channel.unary(DataKeysService.methods.UseNatsAuthorities, list, authoritiesLimit),
    );
}

/** Requests data keys from other managers. */
export function keyFetcher(vault: Vault): FetchKeys {
  return async (address, keyId) => {
    const { nodeCertificate, rootCertificate } = vault.fields;
    if (nodeCertificate === "" || rootCertificate === "")
      throw new RpcError(Status.FAILED_PRECONDITION, "this manager has no certificate yet");
    return askManager(vault, address, (channel) =>
      channel.unary(DataKeysService.methods.GetDataKeys, GetDataKeysRequest.create({ keyId }), limit),
    );
  };
}
