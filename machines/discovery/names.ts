/**
 * What names mean in one network: of services, of their tasks, and of what is attached by itself. As Docker's embedded server
 * has them:
 *
 *   SERVICE, its aliases          its virtual address; its tasks' where it has none (dnsrr)
 *   tasks.SERVICE, tasks.ALIAS    its tasks' addresses
 *   SERVICE.SLOT.ID, a task's aliases, its hostname, first letters of its id      that task's
 *
 * and each of them with the network's own name behind it (`web.back`), which says in which network it is meant.
 *
 * DN1: only tasks that are ready, and that packets of this node reach, have names. A service keeps its own while it is there:
 *      a virtual address refuses there and then when nobody is ready, and nobody else is asked for what is known to be ours.
 * DN2: letters' case does not count.
 */
import type { AttachedNetwork, NetworkTask } from "../../proto/gen/messages.ts";
import { containsAddress, parseAddress, parseCidr, type Prefix } from "../../runtime/ip-address.ts";
import type { NetworksState } from "../networks/networks-state.ts";
import { isReached } from "./reached.ts";

/**
 * How long an answer may be kept, in seconds. Docker says 600 for all; a client that believes it goes on asking for tasks that
 * are gone. A virtual address changes only with its service, tasks at any moment: one that keeps answers is behind no longer
 * than a check of health would take, and a question costs a tenth of a millisecond.
 */
export const virtualTtlS = 60;
export const taskTtlS = 5;

/** Letters of a task's id that stand for it, as those of a container's id do in Docker. */
const shortIdLength = 12;

export interface Named {
  readonly ttlS: number;
  /** Each once, of both families. */
  readonly addresses: readonly string[];
}

export class NetworkNames {
  readonly network: AttachedNetwork;
  readonly #suffix: string;
  readonly #names = new Map<string, { ttlS: number; readonly addresses: Set<string> }>();
  /** Of a task, by its address. */
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

  /** Null: nothing in this network is called so. `name`: in lower case, without a dot at its end. */
  find(name: string): Named | null {
    const found =
      this.#names.get(name) ??
      (name.endsWith(this.#suffix) ? this.#names.get(name.slice(0, -this.#suffix.length)) : undefined);
    return found === undefined ? null : { ttlS: found.ttlS, addresses: [...found.addresses] };
  }

  /** The whole name of who has an address; null where it is of this network, and nobody's; undefined where it is another's. */
  at(address: string): string | null | undefined {
    const task = this.#tasks.get(address);
    if (task !== undefined) return `${task}${this.#suffix}`;
    const parsed = parseAddress(address);
    return parsed !== null && this.#prefixes.some((prefix) => containsAddress(prefix, parsed)) ? null : undefined;
  }

  #addTask({ addresses, aliases, hostname, name, taskId }: NetworkTask): void {
    const ids = [name, taskId.slice(0, shortIdLength), ...aliases];
    // Only where the task runs is it known what comes of a template.
    const hosts = hostname.includes("{{") ? [] : [hostname];
    for (const each of [...ids, ...hosts]) this.#add(each, taskTtlS, addresses);
    for (const address of addresses) this.#tasks.set(address, name);
  }

  /** A name that two have is that of both, as in Docker. */
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
