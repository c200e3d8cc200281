/** Hosts the certificate chart of one agent: creates keys, calls the CA, and saves the identity. */
import { drawBelow } from "../../lib/backoff.ts";
import type { HostedActor } from "../../runtime/host.ts";
import {
  agentCertificateMachine,
  type AgentCertificateEvent,
  type AgentCertificateInput,
} from "../../machines/agent/certificate.machine.ts";
import { certificateFailureWeight, certificateSuccessWeight } from "../../machines/agent/managers.ts";
import { isSameBytes } from "../../machines/same-message.ts";
import {
  IssuanceStatus_State as IssuanceState,
  IssueNodeCertificateRequest,
  NodeCAService,
  NodeCertificateStatusRequest,
  NodeRole,
} from "../../proto/gen/messages.ts";
import { assert } from "../../lib/assert.ts";
import {
  isInForce,
  parseJoinToken,
  renewalInstant,
  rootMatches,
  type CertificateDescription,
  type JoinToken,
} from "../../lib/pki/index.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { ManagerList } from "./managers.ts";
import { KeptIdentity, type Identity } from "./identity.ts";
import type { AgentPorts } from "./ports.ts";
import { caTimeoutMs, CaLink } from "./ca-link.ts";
import type { Owner } from "../../runtime/host.ts";
import { sentence } from "../sentence.ts";

interface CertificateOptions {
  readonly name: string;
  readonly join: { readonly address: string; readonly token: string } | null;
  readonly managers: ManagerList;
  /** Called when a new certificate or root is in use, including the first. */
  readonly onIdentity: () => void;
  /** Called when the node cannot get a certificate without an operator's help. */
  readonly onFailure: (reason: string) => void;
}

/** A request waiting for its certificate. The key exists only here until it is installed. */
interface Pending {
  readonly keyPem: string;
  readonly csr: Uint8Array;
  certificatePem: string;
}

const hourMs = 3_600_000;

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
const decode = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

export class CertificateActor {
  readonly #ports: AgentPorts;
  readonly #options: CertificateOptions;
  readonly #kept: KeptIdentity;
  readonly #link: CaLink;
  #actor: HostedActor<typeof agentCertificateMachine> | null = null;
  #pending: Pending | null = null;
  /** The root that the join token verified. */
  #joinRoot = "";

  constructor(ports: AgentPorts, options: CertificateOptions) {
    this.#ports = ports;
    this.#options = options;
    this.#kept = new KeptIdentity(ports);
    this.#link = new CaLink({ dialer: ports.dialer, join: options.join, managers: options.managers });
  }

  /** Reads the disk and starts with the saved certificate, or by joining. */
  async start(): Promise<void> {
    const input = await this.#load();
    this.#actor = this.#ports.host.start(
      agentCertificateMachine,
      `agent-certificate/${this.#options.name}`,
      input,
      this.#owner(),
    );
    if (this.identity !== null) this.#options.onIdentity();
  }

  get identity(): Identity | null {
    return this.#kept.current;
  }

  /** To be called when a session message requires an immediate renewal. */
  forceRenewal(): void {
    this.#send({ type: "renewal.forced" });
  }

  wantRole(role: NodeRole): void {
    this.#send({ type: "role.wanted", role: role === NodeRole.MANAGER ? "swarm-manager" : "swarm-worker" });
  }

  offerRoot(rootPem: string): void {
    if (rootPem !== this.identity?.rootPem) this.#send({ type: "root.offered", rootPem });
  }

  stop(): void {
    this.#actor?.stop();
    this.#actor = null;
    this.#link.stop();
  }

  #owner(): Owner<typeof agentCertificateMachine> {
    return {
      draw: drawBelow(this.#ports.random),
      effects: {
        fetchRoot: () => this.#answer(this.#fetchRoot()),
        requestCertificate: () => this.#answer(this.#request()),
        pollStatus: ({ nodeId }) => this.#answer(this.#poll(nodeId)),
        installCertificate: () => this.#answer(this.#install()),
        hangUp: () => this.#link.hangUp(),
        readClock: () => this.#send({ type: "clock.read", at: this.#ports.clock.now() }),
        considerRoot: ({ rootPem }) => void this.#considerRoot(rootPem),
        announceIdentity: () => this.#options.onIdentity(),
        announceFailure: ({ reason }) => this.#options.onFailure(reason),
      },
    };
  }

  #answer(outcome: Promise<AgentCertificateEvent>): void {
    void outcome.then((event) => this.#send(event));
  }

  #send(event: AgentCertificateEvent): void {
    this.#actor?.send(event);
  }

  /** The chart's input: the saved identity, or a join. */
  async #load(): Promise<AgentCertificateInput> {
    const loaded = await this.#kept.load();
    switch (loaded.kind) {
      case "absent":
        return this.#options.join === null
          ? {
              kind: "failed",
              reason: "this node has not joined a cluster: specify the address of a manager and a join token",
            }
          : { kind: "joining" };
      case "unusable":
        return { kind: "failed", reason: loaded.reason };
      case "held": {
        const { facts } = loaded.identity;
        return {
          kind: "holding",
          nodeId: facts.nodeId,
          role: facts.role ?? "",
          at: this.#ports.clock.now(),
          renewAt: this.#renewAt(facts),
          expiresAt: facts.notAfterMs,
        };
      }
    }
  }

  #renewAt(facts: CertificateDescription): number {
    return renewalInstant(facts, this.#ports.random.next());
  }

  async #fetchRoot(): Promise<AgentCertificateEvent> {
    const { join } = this.#options;
    assert(join !== null, "C1: a root is fetched only for a join");
    const token = parseJoinToken(join.token);
    if (token.kind === "invalid") return { type: "root.refused", reason: "invalid join token", definite: true };
    if (token.requiresFips)
      return { type: "root.refused", reason: "node is not FIPS-enabled but cluster requires FIPS", definite: true };
    try {
      const root = await this.#link.rootOf(join.address);
      if (!rootMatches(token, root))
        return { type: "root.refused", reason: fingerprintMismatch(token), definite: true };
      this.#joinRoot = decode(root);
      return { type: "root.fetched" };
    } catch (error) {
      return {
        type: "root.refused",
        ...refusal(`cannot get the cluster's root certificate from ${join.address}`, error),
      };
    }
  }

  async #request(): Promise<AgentCertificateEvent> {
    const { join } = this.#options;
    try {
      const { keyPem, csrPem } = await this.#ports.certificates.createKeyAndCsr();
      const csr = encode(csrPem);
      this.#pending = { keyPem, csr, certificatePem: "" };
      const token = this.identity === null ? (join?.token ?? "") : "";
      const channel = await this.#link.dial(this.identity, this.#joinRoot);
      const response = await channel.unary(
        NodeCAService.methods.IssueNodeCertificate,
        IssueNodeCertificateRequest.create({ csr, token }),
        { timeoutMs: caTimeoutMs },
      );
      this.#link.observe(certificateSuccessWeight);
      return { type: "request.accepted", nodeId: response.nodeId };
    } catch (error) {
      this.#link.observe(certificateFailureWeight);
      this.#link.hangUp();
      return { type: "request.refused", ...refusal("cannot get a certificate", error) };
    }
  }

  async #poll(nodeId: string): Promise<AgentCertificateEvent> {
    try {
      const channel = this.#link.channel ?? (await this.#link.dial(this.identity, this.#joinRoot));
      const { status, certificate } = await channel.unary(
        NodeCAService.methods.NodeCertificateStatus,
        NodeCertificateStatusRequest.create({ nodeId }),
        { timeoutMs: caTimeoutMs },
      );
      const pending = this.#pending;
      const isIssued = status?.state === IssuanceState.ISSUED || status?.state === IssuanceState.ROTATE;
      if (pending !== null && certificate !== null && isIssued && !isSameBytes(certificate.csr, pending.csr)) {
        return { type: "poll.superseded", reason: "the manager issued a certificate for an older request" };
      }
      if (pending === null || certificate === null || !isIssued) {
        return {
          type: "poll.failed",
          reason: status?.err === undefined || status.err === "" ? "the certificate is not issued yet" : status.err,
        };
      }
      pending.certificatePem = decode(certificate.certificate);
      return { type: "certificate.issued" };
    } catch (error) {
      if (error instanceof RpcError && error.code === Status.DEADLINE_EXCEEDED) return { type: "poll.expired" };
      const reason = `cannot check whether the certificate is issued: ${sentence(error)}`;
      const isUnknown = error instanceof RpcError && error.code === Status.NOT_FOUND;
      return { type: isUnknown ? "poll.unknown" : "poll.failed", reason };
    }
  }

  async #install(): Promise<AgentCertificateEvent> {
    const pending = this.#pending;
    assert(pending !== null, "C4: only a requested certificate is installed");
    try {
      const { certificates, clock } = this.#ports;
      let rootPem = this.identity?.rootPem ?? this.#joinRoot;
      const facts = certificates.describe(pending.certificatePem, rootPem);
      if (facts.kind === "malformed")
        return this.#refuse(`cannot read the issued certificate: ${facts.reason}`, "for good");
      if (facts.role === null) return this.#refuse("no OU found in certificate subject", "for good");
      if (facts.nodeId === "" || facts.organization === "")
        return this.#refuse("the issued certificate lacks a node id or a cluster id", "for good");
      const now = clock.now();
      if (now > facts.notAfterMs)
        return this.#refuse(
          `the issued certificate expired ${Math.ceil((now - facts.notAfterMs) / hourMs)} hours ago by this machine's clock: compare this clock with the managers'`,
          "for now",
        );
      if (!isInForce(facts, rootPem, now)) {
        // The cluster's root may have been rotated while this node was away (worker protocol §3.4).
        const offered = await this.#offeredRoot();
        if (offered === null || !isInForce(facts, offered, now))
          return this.#refuse("the issued certificate does not chain to the root that this node trusts", "for good");
        rootPem = offered;
      }
      const { certificatePem, keyPem } = pending;
      await this.#kept.write(() => ({ rootPem, certificatePem, keyPem }));
      this.#pending = null;
      const { nodeId, role, notAfterMs } = facts;
      return {
        type: "certificate.installed",
        nodeId,
        role,
        renewAt: this.#renewAt(facts),
        expiresAt: notAfterMs,
        at: clock.now(),
      };
    } catch (error) {
      return this.#refuse(`cannot install the certificate: ${sentence(error)}`, "for now");
    }
  }

  #refuse(reason: string, how: "for good" | "for now"): AgentCertificateEvent {
    this.#ports.telemetry.log.warn({ reason }, "cannot use the node's certificate");
    return { type: "certificate.refused", reason, definite: how === "for good" };
  }

  /** The root that a manager presents now, if this node's certificate chains to it. */
  async #offeredRoot(): Promise<string | null> {
    const manager = this.identity === null ? null : this.#options.managers.choose();
    if (manager === null) return null;
    const rootPem = decode(await this.#link.rootOf(manager.addr));
    return this.#kept.vouchesFor(rootPem) ? rootPem : null;
  }

  async #considerRoot(rootPem: string): Promise<void> {
    const { telemetry } = this.#ports;
    if (rootPem === this.identity?.rootPem) return;
    if (!this.#kept.vouchesFor(rootPem)) {
      telemetry.log.warn(
        {},
        "ignored a root offered by a session message: this node's certificate does not chain to it",
      );
      return;
    }
    try {
      await this.#kept.write((held) => (held === null ? null : { ...held, rootPem }));
      this.#options.onIdentity();
    } catch (error) {
      telemetry.log.error({ error }, "cannot save the cluster's new root");
    }
  }
}

function fingerprintMismatch(token: Extract<JoinToken, { kind: "token" }>): string {
  return `remote CA does not match fingerprint. Expected: ${token.digestHex}`;
}

/** `definite`: the manager refused this token or request, and would do so again. */
function refusal(failed: string, error: unknown): { readonly reason: string; readonly definite: boolean } {
  const definite = error instanceof RpcError && error.code === Status.INVALID_ARGUMENT;
  return { reason: definite ? error.message : `${failed}: ${sentence(error)}`, definite };
}
