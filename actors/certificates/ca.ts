/**
 * The CA and NodeCA services of every manager: a request is written to the node's object, the leader's signer signs it, and
 * callers wait for the certificate on this manager's replica.
 *
 * A1: a joining node's role is decided by its token alone; only the public key of its request is used. A request to be a
 *     manager with a worker's token is refused, and no node is created. (Engines request no role.)
 * A2: a caller with a valid certificate renews that node's certificate, whatever token it sends.
 * A3: a node renews as often as its budget allows: each renewal costs a signature of the leader and two writes.
 */
import { isSettled, joiningNode, renewal } from "../../machines/certificates/issuance.ts";
import { unlockKeyOf } from "../../machines/keys/unlock-key.ts";
import {
  GetRootCACertificateResponse,
  GetUnlockKeyResponse,
  IssueNodeCertificateResponse,
  NodeCertificateStatusResponse,
  NodePatch,
  NodeRole,
  NodeSpec_Membership,
  Operation,
  IssuanceStatus,
  type CAService,
  type Cluster,
  type IssueNodeCertificateRequest,
  type Node,
  type NodeCAService,
} from "../../proto/gen/messages.ts";
import { WriteBudget } from "../../machines/write-budget.ts";
import { newId } from "../../runtime/ids.ts";
import { RpcError, Status, type CallContext, type ServiceHandlers, type CallSignal } from "../../runtime/ports/rpc.ts";
import type { CertificateAuthority } from "./ca-port.ts";
import { commit, creation } from "../control/write.ts";
import type { Environment, Running } from "../environment.ts";

interface Ca extends Running {
  readonly ca: ServiceHandlers<typeof CAService>;
  readonly nodeCa: ServiceHandlers<typeof NodeCAService>;
}

/** A3. About 60 renewals in a burst, then one every 5 s: a node renews every few weeks, and again when the root rotates. */
const renewalBudget = { bytesMax: 256 * 1_024, bytesPerS: 1_024 };
/** About what a renewal writes besides its request, in bytes: the node's record, and later the certificate. */
const renewalBytes = 4 * 1_024;

interface CaOptions {
  /** Called when the cluster's unlock key is returned to a caller. */
  readonly onUnlockKeyGiven?: (unlockKey: Uint8Array) => void;
}

export function createCa(env: Environment, authority: CertificateAuthority, options: CaOptions = {}): Ca {
  const { store } = env;
  const random = env.random.fork("ca");
  const renewals = new WriteBudget(renewalBudget);
  /** Calls that wait for a node's certificate, by node id. */
  const waiting = new Map<string, Set<() => void>>();
  let stopped = false;

  function cluster(): Cluster {
    for (const found of store.all("cluster")) return found;
    throw new RpcError(Status.ABORTED, "CA signer is still starting");
  }

  async function renew(nodeId: string, csr: Uint8Array, call: CallContext): Promise<Node> {
    const node = store.get("node", nodeId);
    if (node === undefined) {
      throw new RpcError(Status.NOT_FOUND, `node ${nodeId} not found when attempting to renew certificate`);
    }
    const patch = NodePatch.create({ id: nodeId, certificate: renewal(node, csr) });
    await commit(env, call, Operation.create({ node: patch }));
    return node;
  }

  /** The role that the token grants; always compares both tokens in full. */
  function roleOf(token: string, { rootCa }: Cluster): NodeRole | null {
    const tokens = rootCa?.joinTokens;
    if (tokens == null || tokens.worker === "" || tokens.manager === "") return null;
    const isManager = authority.isSameToken(token, tokens.manager);
    const isWorker = authority.isSameToken(token, tokens.worker);
    return isManager ? NodeRole.MANAGER : isWorker ? NodeRole.WORKER : null;
  }

  async function join(request: IssueNodeCertificateRequest, call: CallContext): Promise<Node> {
    const present = cluster();
    const role = roleOf(request.token, present);
    if (role === null) {
      throw new RpcError(Status.INVALID_ARGUMENT, "A valid join token is necessary to join this cluster");
    }
    if (role !== NodeRole.MANAGER && request.role === NodeRole.MANAGER) {
      throw new RpcError(
        Status.INVALID_ARGUMENT,
        "cannot join as a manager with a worker's token: 'muster token manager' on a manager prints the managers' token",
      );
    }
    const { csr, availability } = request;
    const node = joiningNode({ id: newId(random), role, csr, availability, cluster: present });
    await commit(env, call, creation("node", node));
    return node;
  }

  function isRemoved(nodeId: string): boolean {
    return Object.hasOwn(cluster().blacklistedCertificates, nodeId);
  }

  /** Resolves when the node is settled or removed; rejects when the caller cancels. */
  function settled(nodeId: string, signal: CallSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const calls = waiting.get(nodeId) ?? new Set();
      waiting.set(nodeId, calls);
      const finish = (): void => {
        calls.delete(wake);
        if (calls.size === 0 && waiting.get(nodeId) === calls) waiting.delete(nodeId);
        signal.removeEventListener("abort", giveUp);
      };
      const wake = (): void => {
        finish();
        resolve();
      };
      const giveUp = (): void => {
        finish();
        reject(new RpcError(Status.CANCELLED, "the caller cancelled its wait for the certificate"));
      };
      calls.add(wake);
      signal.addEventListener("abort", giveUp);
      if (signal.aborted) giveUp();
    });
  }

  const watching = store.watch(({ changes }) => {
    for (const change of changes) {
      if (change.table === "node" && change.action === "remove") renewals.forget(change.object.id);
      if (change.table !== "node" || (change.action !== "remove" && !isSettled(change.object))) continue;
      for (const wake of waiting.get(change.object.id) ?? []) wake();
    }
  });

  return {
    ca: {
      GetRootCACertificate() {
        return GetRootCACertificateResponse.create({ certificate: cluster().rootCa?.caCert ?? new Uint8Array() });
      },

      GetUnlockKey() {
        const present = cluster();
        const unlockKey = unlockKeyOf(present) ?? new Uint8Array();
        if (unlockKey.length > 0) options.onUnlockKeyGiven?.(unlockKey);
        return GetUnlockKeyResponse.create({ unlockKey, version: present.meta?.version ?? null });
      },
    },

    nodeCa: {
      async IssueNodeCertificate(request, call) {
        if (request.csr.length === 0) throw new RpcError(Status.INVALID_ARGUMENT, "InvalidArgument");
        const { identity } = call.peer;
        const isMember = identity !== null && identity.organization === cluster().id && !isRemoved(identity.nodeId);
        if (!isMember && identity !== null && request.token === "") {
          throw new RpcError(
            Status.PERMISSION_DENIED,
            `Permission denied: node ${identity.nodeId} was removed from swarm`,
          );
        }
        // The token is checked first: without one, a caller learns nothing about requests and costs no signature check.
        if (!isMember && roleOf(request.token, cluster()) === null) {
          throw new RpcError(Status.INVALID_ARGUMENT, "A valid join token is necessary to join this cluster");
        }
        if (isMember && !renewals.take(identity.nodeId, renewalBytes + request.csr.length, env.clock.monotonic())) {
          throw new RpcError(Status.UNAVAILABLE, `node ${identity.nodeId} exceeded rate limit of certificate renewals`);
        }
        const read = authority.readCsr(request.csr);
        if (read.kind === "refused") {
          throw new RpcError(Status.INVALID_ARGUMENT, `invalid certificate request: ${read.reason}`);
        }
        const node = isMember ? await renew(identity.nodeId, request.csr, call) : await join(request, call);
        return IssueNodeCertificateResponse.create({
          nodeId: node.id,
          nodeMembership: node.spec?.membership ?? NodeSpec_Membership.ACCEPTED,
        });
      },

      async NodeCertificateStatus({ nodeId }, call) {
        if (nodeId === "") throw new RpcError(Status.INVALID_ARGUMENT, "InvalidArgument");
        for (;;) {
          if (stopped) throw new RpcError(Status.ABORTED, "CA signer is stopped");
          const node = store.get("node", nodeId);
          if (node === undefined) throw new RpcError(Status.NOT_FOUND, "NotFound");
          if (isSettled(node)) {
            // An engine crashes on an answer without a status.
            const status = node.certificate?.status ?? IssuanceStatus.create({});
            return NodeCertificateStatusResponse.create({ status, certificate: node.certificate });
          }
          await settled(nodeId, call.signal);
        }
      },
    },

    stop() {
      stopped = true;
      watching.unsubscribe();
      for (const calls of waiting.values()) for (const wake of calls) wake();
    },
  };
}
