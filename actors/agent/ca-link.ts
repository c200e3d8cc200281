/** The connections on which a node requests its certificate: to the join address, or to a manager of its cluster. */
import type { KnownManager } from "../../machines/agent/managers.ts";
import { CAService, GetRootCACertificateRequest } from "../../proto/gen/messages.ts";
import { assert } from "../../lib/assert.ts";
import { RpcError, Status, type RpcChannel } from "../../runtime/ports/rpc.ts";
import type { ManagerList } from "./managers.ts";
import type { Dialer, TlsMaterial } from "./ports.ts";

/** Deadline of each call to the CA, in milliseconds (worker protocol §2.1). */
export const caTimeoutMs = 5_000;

const nothing: TlsMaterial = { rootPem: "", certificatePem: "", keyPem: "" };

interface CaLinkOptions {
  readonly dialer: Dialer;
  readonly join: { readonly address: string } | null;
  readonly managers: ManagerList;
}

export class CaLink {
  readonly #options: CaLinkOptions;
  #channel: RpcChannel | null = null;
  #manager: KnownManager | null = null;
  #isStopped = false;

  constructor(options: CaLinkOptions) {
    this.#options = options;
  }

  /** The root that the server at `address` presents: to be trusted only after a check. */
  async rootOf(address: string): Promise<Uint8Array> {
    const channel = await this.#options.dialer.dial(address, "bootstrap-unverified", nothing);
    try {
      const method = CAService.methods.GetRootCACertificate;
      return (await channel.unary(method, GetRootCACertificateRequest.create(), { timeoutMs: caTimeoutMs }))
        .certificate;
    } finally {
      channel.close();
    }
  }

  /** The current connection; null before `dial` and after `hangUp`. */
  get channel(): RpcChannel | null {
    return this.#channel;
  }

  /** Replaces the connection by a new one. `joinRoot`: the trusted root while the node has no identity. */
  async dial(identity: TlsMaterial | null, joinRoot: string): Promise<RpcChannel> {
    this.hangUp();
    const { dialer, join, managers } = this.#options;
    if (identity === null) {
      assert(join !== null, "C1: a node without a certificate asks only where it joins");
      return this.#keep(await dialer.dial(join.address, "bootstrap", { ...nothing, rootPem: joinRoot }));
    }
    const manager = managers.choose();
    if (manager === null) throw new RpcError(Status.UNAVAILABLE, "no manager address is known");
    this.#manager = manager;
    const channel = await dialer.dial(manager.addr, "node", identity, manager.nodeId).catch((error: unknown) => {
      managers.unreached(manager);
      throw error;
    });
    return this.#keep(channel);
  }

  /** Records how the last dialled manager served; only the first call counts. */
  observe(weight: number): void {
    if (this.#manager !== null) this.#options.managers.observe(this.#manager, weight);
    this.#manager = null;
  }

  hangUp(): void {
    this.#channel?.close();
    this.#channel = null;
  }

  /** Hangs up, and cancels a pending dial. */
  stop(): void {
    this.#isStopped = true;
    this.hangUp();
  }

  #keep(channel: RpcChannel): RpcChannel {
    this.#channel = channel;
    if (this.#isStopped) this.hangUp();
    return channel;
  }
}
