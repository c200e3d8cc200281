/**
 * The allocated networks, with the addresses of each.
 *
 * N3: a removed network's subnet and VXLAN ids stay reserved as long as a task or node has an address of it.
 */
import type { Network } from "../../proto/gen/messages.ts";
import { AddressSpace, type Census } from "./addresses.ts";
import { claimNetwork, decideNetwork, isAllocated, isNodeLocal, type NetworkDecision } from "./network.ts";
import { SubnetSpace, type DefaultPools } from "./subnets.ts";
import { VxlanSpace } from "./vxlan.ts";
import { blocked, causes, type Blocked, type Opened } from "./waiting.ts";

interface NetworkEntry {
  network: Network;
  /** Null for node-local networks. */
  readonly space: AddressSpace | null;
  /** Removed, but some of its addresses are still held (N3). */
  isGone: boolean;
}

/** A network that can be attached to now. */
export interface FoundNetwork {
  readonly network: Network;
  readonly space: AddressSpace | null;
}

/** Stands for the ingress network if there is none; cannot equal an id or name. */
const missingIngress = "ingress network";
const ingressProblem = "the service publishes ports, but there is no ingress network";

export class Networks {
  readonly #lookUp: (idOrName: string) => Network | undefined;
  readonly #opened: Opened;
  readonly #entries = new Map<string, NetworkEntry>();
  readonly #census: Census = { addresses: 0 };
  readonly #subnets = new SubnetSpace();
  readonly #vxlan = new VxlanSpace();
  /** By network: why it is not allocated, for the objects that wait for it. */
  readonly #problems = new Map<string, string>();
  #ingress: string | null = null;

  /** `lookUp`: the network as stored. */
  constructor(lookUp: (idOrName: string) => Network | undefined, opened: Opened) {
    this.#lookUp = lookUp;
    this.#opened = opened;
  }

  /** The number of allocated resources. */
  get held(): { readonly addresses: number; readonly subnets: number; readonly vxlanIds: number } {
    return { addresses: this.#census.addresses, subnets: this.#subnets.count, vxlanIds: this.#vxlan.count };
  }

  /** The target that stands for the ingress network. */
  get ingressTarget(): string {
    return this.#ingress ?? missingIngress;
  }

  /** The id of the network that a spec's target refers to. */
  idOf(target: string): string {
    return this.#entries.has(target) ? target : (this.#lookUp(target)?.id ?? target);
  }

  ids(): Iterable<string> {
    return this.#entries.keys();
  }

  space(id: string): AddressSpace | null {
    return this.#entries.get(id)?.space ?? null;
  }

  /** A network with addresses that nodes may join. */
  live(id: string): NetworkEntry | undefined {
    const entry = this.#entries.get(id);
    return entry === undefined || entry.isGone ? undefined : entry;
  }

  find(target: string): FoundNetwork | Blocked {
    if (target === missingIngress) return blocked(causes.ingress, ingressProblem);
    const network = this.#lookUp(target);
    if (network === undefined) return blocked(causes.network(target), `network ${target} does not exist`);
    const entry = this.live(network.id);
    if (entry !== undefined) return entry;
    const problem = this.#problems.get(network.id);
    const reason = problem === undefined ? "" : `network ${nameOf(network)} cannot be used: ${problem}`;
    return blocked(causes.network(network.id), reason);
  }

  /** `network`: as stored; null when it was removed. */
  follow(id: string, network: Network | null): void {
    const entry = this.#entries.get(id);
    if (network === null) {
      this.#problems.delete(id);
      if (this.#ingress === id) this.#ingress = null;
      if (entry === undefined) this.#free(id);
      else {
        entry.isGone = true;
        this.freeIfUnused(id);
      }
      return;
    }
    if (!isAllocated(network)) {
      // Its allocation was never written.
      if (entry === undefined) this.#free(id);
      return;
    }
    this.#problems.delete(id);
    if (network.spec?.ingress === true && this.#ingress !== id) {
      this.#ingress = id;
      this.#opened.add(causes.ingress);
    }
    if (entry === undefined) this.#admit(network);
    else entry.network = network;
    this.#opened.add(causes.network(id));
    this.#opened.add(causes.network(nameOf(network)));
  }

  decide(network: Network, defaults: DefaultPools): NetworkDecision {
    const spaces = {
      subnets: this.#subnets,
      vxlan: this.#vxlan,
      nameOf: (id: string) => {
        const holder = this.#lookUp(id) ?? this.#entries.get(id)?.network;
        return holder === undefined ? id : nameOf(holder);
      },
    };
    const decision = decideNetwork(network, spaces, defaults);
    if (decision.kind !== "blocked") return decision;
    if (this.#problems.get(network.id) !== decision.reason) this.#opened.add(causes.network(network.id));
    this.#problems.set(network.id, decision.reason);
    return decision;
  }

  /** Why the network could not be allocated; empty if it is allocated or was not tried yet. */
  problemOf(id: string): string {
    return this.#problems.get(id) ?? "";
  }

  /** The space of an address that is already held. A removed network is known from the copy in tasks and nodes. */
  spaceOf(network: Network): AddressSpace | null {
    const entry = this.#entries.get(network.id);
    if (entry !== undefined) return entry.space;
    if (!isAllocated(network) || isNodeLocal(network) || this.#lookUp(network.id) !== undefined) return null;
    const gone = this.#admit(network);
    gone.isGone = true;
    return gone.space;
  }

  /** N3 */
  freeIfUnused(id: string): void {
    const entry = this.#entries.get(id);
    if (entry === undefined || !entry.isGone || (entry.space !== null && entry.space.holders > 0)) return;
    this.#entries.delete(id);
    this.#free(id);
  }

  #admit(network: Network): NetworkEntry {
    claimNetwork(network, { subnets: this.#subnets, vxlan: this.#vxlan, nameOf: (id) => id });
    const space = isNodeLocal(network) ? null : new AddressSpace(network.ipam?.configs ?? [], this.#census);
    const entry: NetworkEntry = { network, space, isGone: false };
    this.#entries.set(network.id, entry);
    return entry;
  }

  #free(id: string): void {
    const subnets = this.#subnets.release(id);
    const ids = this.#vxlan.release(id);
    if (subnets || ids) this.#opened.add(causes.subnets);
  }
}

export function nameOf(network: Network): string {
  return network.spec?.annotations?.name || network.id;
}

/** Takes an address if more than `kept` are free, or says why it cannot. */
export function takeBeside({ network, space }: FoundNetwork, kept: number): string | Blocked {
  // Free addresses are counted only if some are reserved.
  const address = kept === 0 || (space?.room ?? 0) > kept ? (space?.take() ?? null) : null;
  if (address !== null) return address;
  const beside = kept > 0 ? " except those reserved for nodes" : "";
  const reason = `network ${nameOf(network)} has no free address left in ${space?.name ?? ""}${beside}`;
  return blocked(causes.addresses(network.id), reason);
}
