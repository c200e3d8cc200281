/**
 * The holder of each address: services hold their virtual IPs, tasks their own, nodes those of their load balancers.
 *
 * A node without an address rejects its tasks of the network, so tasks do not get the last ones (Swarm gives them away):
 * `keptForNodes` says how many are reserved.
 *
 * N1: an address is held by one service, task or node.
 * N2: the addresses of a removed object are free again.
 */
import type { Endpoint_VirtualIP, NetworkAttachment } from "../../proto/gen/messages.ts";
import type { AddressSpace } from "./addresses.ts";
import type { Networks } from "./networks.ts";
import { causes, type Opened } from "./waiting.ts";

/** The parts of a task that determine its addresses. */
interface TaskHold {
  readonly nodeId: string;
  readonly networks: readonly NetworkAttachment[];
}

/** The nodes of one network. */
export interface NodesOfNetwork {
  /** All nodes of the cluster. */
  readonly nodes: number;
  /** Nodes that have an address in the network. */
  readonly joined: number;
  /** Nodes that have tasks of the network and no address in it. */
  readonly expecting: number;
  /** Tasks of the network that have an address and no node yet. */
  readonly unplaced: number;
}

/**
 * Addresses to reserve for nodes: one for each node that has tasks and no address, and one for each task without a node, up
 * to the number of nodes without an address.
 */
export function keptForNodes({ nodes, joined, expecting, unplaced }: NodesOfNetwork): number {
  return expecting + Math.max(0, Math.min(nodes - joined - expecting, unplaced));
}

const nothing: readonly never[] = Object.freeze([]);

export class Holders {
  readonly #networks: Networks;
  readonly #opened: Opened;
  readonly #tasks = new Map<string, TaskHold>();
  readonly #services = new Map<string, readonly Endpoint_VirtualIP[]>();
  readonly #nodes = new Map<string, readonly NetworkAttachment[]>();
  /** By node and network: number of tasks. */
  readonly #needs = new Map<string, Map<string, number>>();
  readonly #needsChanged = new Set<string>();
  /** By network: tasks that have an address and no node yet, and nodes that have an address. */
  readonly #unplaced = new Map<string, number>();
  readonly #joined = new Map<string, number>();
  /** By network: nodes that have tasks of it and no address in it yet. */
  readonly #expecting = new Map<string, Set<string>>();
  /** Addresses that objects have in the store but that others hold (N1): `<owner> <network> <address>`. */
  readonly #foreign = new Set<string>();

  constructor(networks: Networks, opened: Opened) {
    this.#networks = networks;
    this.#opened = opened;
  }

  /** Whether the object holds the address that it has in the store. */
  holds(owner: string, networkId: string, address: string): boolean {
    return this.#foreign.size === 0 || !this.#foreign.has(foreignKey(owner, networkId, address));
  }

  /**
   * Addresses to reserve for nodes. `nodes`: number of nodes; `more`: tasks that are about to get an address. Whether such a
   * task already has a node does not matter, so that no waiting task blocks another.
   */
  keptFor(networkId: string, nodes: number, more: 0 | 1): number {
    return keptForNodes({
      nodes,
      joined: this.#joined.get(networkId) ?? 0,
      expecting: this.#expecting.get(networkId)?.size ?? 0,
      unplaced: (this.#unplaced.get(networkId) ?? 0) + more,
    });
  }

  /** Networks of the tasks on a node. */
  needsOf(nodeId: string): Iterable<string> {
    return this.#needs.get(nodeId)?.keys() ?? nothing;
  }

  /** Nodes whose tasks' networks have changed since the last call. */
  takeChangedNodes(): readonly string[] {
    const changed = [...this.#needsChanged];
    this.#needsChanged.clear();
    return changed;
  }

  /** `next`: as stored; null when the task no longer holds anything. */
  followTask(id: string, next: TaskHold | null): void {
    const old = this.#tasks.get(id);
    if (old === undefined && next === null) return;
    if (old !== undefined && next !== null && isSameList(old.networks, next.networks)) {
      if (old.nodeId !== next.nodeId) {
        this.#need(old, -1);
        this.#need(next, 1);
      }
      this.#tasks.set(id, { nodeId: next.nodeId, networks: next.networks });
      return;
    }
    if (old !== undefined) {
      this.#need(old, -1);
      this.#tasks.delete(id);
      for (const attachment of old.networks) this.#releaseAttachment(id, attachment);
    }
    if (next === null) return;
    for (const attachment of next.networks) this.#claimAttachment(id, attachment);
    this.noteTask(id, next);
  }

  /** Records what was allocated to a task that had nothing. */
  noteTask(id: string, { nodeId, networks }: TaskHold): void {
    const hold: TaskHold = { nodeId, networks };
    this.#tasks.set(id, hold);
    this.#need(hold, 1);
  }

  /** `next`: as stored. */
  followService(id: string, next: readonly Endpoint_VirtualIP[]): void {
    const old = this.#services.get(id) ?? nothing;
    if (old === next) return;
    for (const vip of old) if (!next.some((other) => isSameVip(vip, other))) this.#release(id, vip.networkId, vip.addr);
    for (const vip of next)
      if (!old.some((other) => isSameVip(vip, other)))
        this.#claim(id, vip.networkId, this.#networks.space(vip.networkId), vip.addr);
    setOrDelete(this.#services, id, next);
  }

  /** Records what a service is about to get. Its other addresses are released once the store has dropped them. */
  noteService(id: string, vips: readonly Endpoint_VirtualIP[]): void {
    const had = this.#services.get(id) ?? nothing;
    const dropped = had.filter((vip) => !vips.some((other) => isSameVip(vip, other)));
    setOrDelete(this.#services, id, [...dropped, ...vips]);
  }

  /** `next`: as stored. */
  followNode(id: string, next: readonly NetworkAttachment[]): void {
    const old = this.#nodes.get(id) ?? nothing;
    if (old === next) return;
    for (const attachment of old)
      if (!next.some((other) => isSame(attachment, other))) this.#releaseAttachment(id, attachment);
    for (const attachment of next)
      if (!old.some((other) => isSame(attachment, other))) this.#claimAttachment(id, attachment);
    this.#setNode(id, next);
  }

  /** Like `noteService`. */
  noteNode(id: string, attachments: readonly NetworkAttachment[]): void {
    const had = this.#nodes.get(id) ?? nothing;
    const dropped = had.filter((held) => !attachments.some((kept) => isSame(kept, held)));
    this.#setNode(id, [...dropped, ...attachments]);
  }

  #setNode(id: string, attachments: readonly NetworkAttachment[]): void {
    const before = this.#nodes.get(id) ?? nothing;
    for (const { network } of before) count(this.#joined, network?.id ?? "", -1);
    for (const { network } of attachments) count(this.#joined, network?.id ?? "", 1);
    setOrDelete(this.#nodes, id, attachments);
    for (const { network } of before) this.#expect(id, network?.id ?? "");
    for (const { network } of attachments) this.#expect(id, network?.id ?? "");
  }

  /** Called after the node's tasks or addresses in the network have changed. */
  #expect(nodeId: string, networkId: string): void {
    const isJoined = (this.#nodes.get(nodeId) ?? nothing).some(({ network }) => network?.id === networkId);
    const isExpecting = !isJoined && this.#needs.get(nodeId)?.has(networkId) === true;
    let expecting = this.#expecting.get(networkId);
    if (isExpecting) {
      if (expecting === undefined) this.#expecting.set(networkId, (expecting = new Set()));
      expecting.add(nodeId);
    } else if (expecting?.delete(nodeId) === true) {
      if (expecting.size === 0) this.#expecting.delete(networkId);
      // The address reserved for it may be free now.
      this.#opened.add(causes.addresses(networkId));
    }
  }

  #need({ nodeId, networks }: TaskHold, change: 1 | -1): void {
    if (nodeId === "") {
      for (const { network, addresses } of networks) {
        if (network === null || addresses.length === 0) continue;
        count(this.#unplaced, network.id, change);
        if (change === -1) this.#opened.add(causes.addresses(network.id));
      }
      return;
    }
    let needs = this.#needs.get(nodeId);
    if (needs === undefined) this.#needs.set(nodeId, (needs = new Map()));
    for (const { network, addresses } of networks) {
      if (network === null || addresses.length === 0) continue;
      const left = count(needs, network.id, change);
      const isFirst = change === 1 && left === 1;
      if (!isFirst && left !== 0) continue;
      this.#needsChanged.add(nodeId);
      this.#expect(nodeId, network.id);
    }
    if (needs.size === 0) this.#needs.delete(nodeId);
  }

  #claimAttachment(owner: string, { network, addresses }: NetworkAttachment): void {
    if (network === null || addresses.length === 0) return;
    const space = this.#networks.spaceOf(network);
    for (const address of addresses) this.#claim(owner, network.id, space, address);
  }

  #releaseAttachment(owner: string, { network, addresses }: NetworkAttachment): void {
    for (const address of addresses) this.#release(owner, network?.id ?? "", address);
  }

  #claim(owner: string, networkId: string, space: AddressSpace | null, address: string): void {
    if (address === "") return;
    if (space === null || !space.claim(address)) this.#foreign.add(foreignKey(owner, networkId, address));
  }

  #release(owner: string, networkId: string, address: string): void {
    if (address === "") return;
    if (this.#foreign.size > 0 && this.#foreign.delete(foreignKey(owner, networkId, address))) return;
    if (this.#networks.space(networkId)?.release(address) !== true) return;
    this.#opened.addAddress(networkId, address);
    this.#networks.freeIfUnused(networkId);
  }
}

function count(counts: Map<string, number>, id: string, change: 1 | -1): number {
  const left = (counts.get(id) ?? 0) + change;
  if (left > 0) counts.set(id, left);
  else counts.delete(id);
  return left;
}

function setOrDelete<Value>(map: Map<string, readonly Value[]>, id: string, list: readonly Value[]): void {
  if (list.length > 0) map.set(id, list);
  else map.delete(id);
}

function isSameVip(a: Endpoint_VirtualIP, b: Endpoint_VirtualIP): boolean {
  return a.networkId === b.networkId && a.addr === b.addr;
}

function isSame(a: NetworkAttachment, b: NetworkAttachment): boolean {
  if (a === b) return true;
  if (a.network?.id !== b.network?.id || a.addresses.length !== b.addresses.length) return false;
  return a.addresses.every((address, at) => address === b.addresses[at]);
}

function isSameList(a: readonly NetworkAttachment[], b: readonly NetworkAttachment[]): boolean {
  return a === b || (a.length === b.length && a.every((one, at) => isSame(one, b[at] as NetworkAttachment)));
}

function foreignKey(owner: string, networkId: string, address: string): string {
  return `${owner} ${networkId} ${address}`;
}
