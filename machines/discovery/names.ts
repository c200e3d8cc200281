/**
 * The names in one network: of services, their tasks, and standalone attachments. As in Docker's embedded DNS server:
 *
 *   SERVICE, its aliases          its virtual IP, or its tasks' addresses if it has none (dnsrr)
 *   tasks.SERVICE, tasks.ALIAS    its tasks' addresses
 *   SERVICE.SLOT.ID, a task's aliases, its hostname, the first characters of its id      that task's addresses
 *
 * and each of them followed by the network's name (`web.back`), which selects the network.
 *
 * DN1: only tasks that are ready and reachable from this node have names. A service keeps its own name as long as it exists:
 *      its virtual IP refuses connections while no task is ready, and no other server is asked for a name that is known to be
 *      ours.
 * DN2: names are case-insensitive.
 */
import type { AttachedNetwork, NetworkTask } from "../../proto/gen/messages.ts";
import { containsAddress, parseAddress, parseCidr, type Prefix } from "../../lib/ip-address.ts";
import type { NetworksState } from "../networks/state.ts";
import { isReached } from "./reached.ts";

/**
 * How long an answer may be cached, in seconds. Docker says 600 for all; a client that believes it keeps using removed tasks.
 * A virtual IP changes only with its service, tasks at any time: a cached answer is outdated no longer than a health check
 * takes, and a query costs 0.1 ms.
 */
export const virtualTtlS = 60;
export const taskTtlS = 5;

/** Number of characters of a task's id that form its short name, like Docker's short container ids. */
const shortIdLength = 12;

interface Named {
  readonly ttlS: number;
  /** Without duplicates, of both families. */
  readonly addresses: readonly string[];
}

export class NetworkNames {
  readonly network: AttachedNetwork;
  readonly #suffix: string;
  readonly #names = new Map<string, { ttlS: number; readonly addresses: Set<string> }>();
  /** Name of a task, by its address. */
  readonly #tasks = new Map<string, string>();
  readonly #prefixes: readonly Prefix[];

  constructor(network: AttachedNetwork, view: NetworksState, ownNodeId: string) {
    this.network = network;
    this.#suffix = `.${network.name.toLowerCase()}`;
    this.#prefixes = network.subnets.flatMap(({ subnet }) => parseCidr(subnet) ?? []);
    const byService = new Map<string, NetworkTask[]>();
    for (const task of view.tasks.values()) {
      if (task.networkId !== network.id || !task.ready || !isReached(view, task, ownNodeId)) continue; // DN1
      this.#addTask(task);
      const others = byService.get(task.serviceId);
      if (others === undefined) byService.set(task.serviceId, [task]);
      else others.push(task);
    }
    for (const service of view.services.values()) {
      if (service.networkId !== network.id) continue;
      const addresses = (byService.get(service.serviceId) ?? []).flatMap((task) => task.addresses);
      for (const name of [service.name, ...service.aliases]) {
        this.#add(`tasks.${name}`, taskTtlS, addresses);
        if (service.virtualAddress === "") this.#add(name, taskTtlS, addresses);
        else this.#add(name, virtualTtlS, [service.virtualAddress]);
      }
    }
  }

  /** Null: the network has no such name. `name`: in lower case, without a trailing dot. */
  find(name: string): Named | null {
    const found =
      this.#names.get(name) ??
      (name.endsWith(this.#suffix) ? this.#names.get(name.slice(0, -this.#suffix.length)) : undefined);
    return found === undefined ? null : { ttlS: found.ttlS, addresses: [...found.addresses] };
  }

  /**
   * The full name of an address's holder; null if the address is in this network and unused; undefined if it is in another
   * network.
   */
  at(address: string): string | null | undefined {
    const task = this.#tasks.get(address);
    if (task !== undefined) return `${task}${this.#suffix}`;
    const parsed = parseAddress(address);
    return parsed !== null && this.#prefixes.some((prefix) => containsAddress(prefix, parsed)) ? null : undefined;
  }

  #addTask({ addresses, aliases, hostname, name, taskId }: NetworkTask): void {
    const ids = [name, taskId.slice(0, shortIdLength), ...aliases];
    // The result of a template is known only on the task's node.
    const hosts = hostname.includes("{{") ? [] : [hostname];
    for (const each of [...ids, ...hosts]) this.#add(each, taskTtlS, addresses);
    for (const address of addresses) this.#tasks.set(address, name);
  }

  /** A name shared by two objects resolves to both, as in Docker. */
  #add(name: string, ttlS: number, addresses: readonly string[]): void {
    if (name === "") return;
    const key = name.toLowerCase(); // DN2
    const known = this.#names.get(key);
    if (known === undefined) this.#names.set(key, { ttlS, addresses: new Set(addresses) });
    else {
      known.ttlS = Math.min(known.ttlS, ttlS);
      for (const address of addresses) known.addresses.add(address);
    }
  }
}
