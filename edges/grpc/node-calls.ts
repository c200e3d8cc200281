/**
 * The calls of nodes over another transport than this server's own connections: which methods they may call, and for how long. A
 * caller has proved to the transport that it holds the key of the certificate that it showed.
 *
 * NC1: nodes call their own methods and those by which they join; nothing else of the server is reachable.
 * NC2: a call is admitted by the rules of `roles.ts`, and its connection ends as over TLS (certified-connections.ts).
 */
import { certificatesOf, describeCertificate, isChainVouchedFor, isInForce } from "../../lib/pki/index.ts";
import { CAService, NodeCAService } from "../../proto/gen/messages.ts";
import type { CallGate, Service } from "../../runtime/calls/served.ts";
import type { Clock } from "../../runtime/ports/index.ts";
import type { Peer } from "../../runtime/ports/rpc.ts";
import { CertifiedConnections } from "./certified-connections.ts";
import { chainLengthMax, permits } from "./cross-signed.ts";
import { accessByPath, authorize, standingOf, type Caller, type Membership } from "./roles.ts";

const joining: ReadonlySet<string> = new Set(
  [
    CAService.methods.GetRootCACertificate,
    NodeCAService.methods.IssueNodeCertificate,
    NodeCAService.methods.NodeCertificateStatus,
  ].map(({ path }) => path),
);

/** NC1 */
export function isForNodes(path: string): boolean {
  return joining.has(path) || accessByPath.get(path) === "worker-or-manager";
}

interface NodeCallsOptions {
  readonly clock: Clock;
  readonly membership: Membership;
  /** The accepted roots. */
  readonly rootPem: string;
  readonly services: readonly Service[];
  readonly inTurn: NonNullable<CallGate["inTurn"]>;
}

interface Known {
  readonly caller: Caller;
  /** Empty for one that joins. */
  readonly chainPem: string;
}

interface Certified {
  readonly caller: Caller;
  readonly end: () => void;
}

export class NodeCalls {
  readonly services: readonly Service[];
  readonly gate: CallGate;
  readonly #options: NodeCallsOptions;
  readonly #connections: CertifiedConnections<Certified>;
  readonly #known = new WeakMap<Peer, Known>();
  #rootPem: string;

  constructor(options: NodeCallsOptions) {
    const { clock, inTurn, membership, rootPem, services } = options;
    this.services = services;
    this.#options = options;
    this.#rootPem = rootPem;
    this.#connections = new CertifiedConnections({
      clock,
      membership,
      rootPem,
      handshakeTimeoutMs: 0,
      end: ({ end }) => end(),
    });
    this.gate = {
      admit: (peer, path) => this.#admit(peer, path),
      opened: (peer, end) => this.#opened(peer, end),
      sends: () => undefined,
      inTurn,
    };
  }

  /** The caller with that certificate, and the end of its validity; or why it is refused. `chainPem`: null for one that joins. */
  identify(
    chainPem: string | null,
    address: string,
  ): { readonly peer: Peer; readonly notAfterMs: number | null } | string {
    const anonymous: Peer = { identity: null, local: false, address };
    const caller =
      chainPem === null
        ? { peer: anonymous, anonymous, rejection: null, isCertified: false, notAfterMs: null }
        : certifiedCaller(chainPem, anonymous, this.#rootPem, this.#options.clock.now());
    if (typeof caller === "string") return caller;
    if (chainPem !== null && standingOf(caller, this.#options.membership) === "nobody")
      return "the certificate's node was removed, or belongs to another cluster";
    this.#known.set(caller.peer, { caller, chainPem: chainPem ?? "" });
    return { peer: caller.peer, notAfterMs: caller.notAfterMs };
  }

  setRoots(rootPem: string): void {
    this.#rootPem = rootPem;
    this.#connections.setRoots(rootPem);
  }

  close(): void {
    this.#connections.close();
  }

  #admit(peer: Peer, path: string): Peer | string {
    const known = this.#known.get(peer);
    const access = accessByPath.get(path);
    if (known === undefined || access === undefined || !isForNodes(path))
      return "permission denied: this call is not available to nodes";
    const { caller } = known;
    const isExpired = caller.notAfterMs !== null && this.#options.clock.now() > caller.notAfterMs;
    return authorize(
      access,
      isExpired ? { ...caller, rejection: "CERT_HAS_EXPIRED" } : caller,
      this.#options.membership,
    );
  }

  #opened(peer: Peer, end: () => void): { closed(): void } {
    const known = this.#known.get(peer);
    if (known === undefined) return { closed: () => undefined };
    const connection = { caller: known.caller, end };
    this.#connections.add(connection, (rootPem, nowMs) => isChainVouchedFor(known.chainPem, rootPem, nowMs));
    return { closed: () => this.#connections.remove(connection) };
  }
}

function certifiedCaller(chainPem: string, anonymous: Peer, rootPem: string, nowMs: number): Caller | string {
  const facts = describeCertificate(chainPem, rootPem);
  if (facts.kind === "malformed") return `cannot read the certificate: ${facts.reason}`;
  const chain = certificatesOf(chainPem);
  const [leaf] = chain;
  // Before signatures are checked, of which a long chain could need many.
  if (leaf === undefined || chain.length > chainLengthMax) return "the certificate's chain is too long";
  if (!isInForce(facts, rootPem, nowMs)) return "the certificate has expired, or no root of the cluster vouches for it";
  if (facts.role === null || facts.nodeId === "" || !permits(leaf, "client")) return "the certificate is not a node's";
  const identity = { nodeId: facts.nodeId, role: facts.role, organization: facts.organization };
  return {
    peer: { ...anonymous, identity, certifiedFromMs: facts.notBeforeMs },
    anonymous,
    rejection: null,
    isCertified: true,
    notAfterMs: Math.min(...chain.map(({ validToDate }) => validToDate.getTime())),
  };
}
