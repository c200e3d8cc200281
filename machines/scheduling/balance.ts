/**
 * How a service's tasks are distributed over the nodes, and what moving a task to another node would gain. Upholds M2 and M3
 * of moves.ts.
 */
import type { Node, Service } from "../../proto/gen/messages.ts";
import type { NodeInfo } from "./tracked.ts";
import { spreadLabels } from "./spread.ts";

/** The level at which a move gains something. */
type Level = "preference" | "node" | "load";

export interface Gain {
  readonly level: Level;
  readonly why: string;
}

/** Number of steady tasks by node id (M3). */
export type SteadyLoads = Map<string, number>;

/** Minimum imbalance that a move removes (M2, M3): moving at a difference of one would only swap the two sides. */
const gainMin = 2;

/** A node's position: its value for each preference, and the key of its branch at each level, starting with the root. */
interface Place {
  readonly values: readonly string[];
  readonly branches: readonly string[];
}

export class Balance {
  readonly #serviceId: string;
  readonly #labels: readonly ((node: Node) => string)[];
  readonly #names: readonly string[];
  readonly #steady: SteadyLoads;
  readonly #nameOf: (nodeId: string) => string;
  readonly #places = new Map<NodeInfo, Place>();
  /** Tasks of the service by branch. */
  readonly #counts = new Map<string, number>();
  /** By branch: the fewest tasks of the service in a direct child branch that has a ready node. */
  readonly #fewest = new Map<string, number>();
  /** By leaf branch: the fewest tasks of the service on one of its ready nodes. */
  readonly #fewestOnNode = new Map<string, number>();
  /** By leaf branch and number of tasks of the service: the fewest tasks in all on a ready node with that number. */
  readonly #fewestInAll = new Map<string, number>();

  /** `nameOf`: the display name of a node. */
  constructor(service: Service, steady: SteadyLoads, nameOf: (nodeId: string) => string) {
    const preferences = service.spec?.task?.placement?.preferences ?? [];
    this.#serviceId = service.id;
    this.#steady = steady;
    this.#nameOf = nameOf;
    this.#labels = spreadLabels(preferences);
    this.#names = preferences.flatMap(({ spread }) =>
      spreadLabels([{ spread }]).length === 0 ? [] : [spread?.spreadDescriptor ?? ""],
    );
  }

  /** Recounts; about 0.3 µs for each node and level. */
  refresh(nodes: readonly NodeInfo[]): void {
    for (const counts of [this.#counts, this.#fewest, this.#fewestOnNode, this.#fewestInAll]) counts.clear();
    for (const info of nodes) {
      const own = info.activeOf(this.#serviceId);
      if (own === 0) continue;
      for (const branch of this.#placeOf(info).branches)
        this.#counts.set(branch, (this.#counts.get(branch) ?? 0) + own);
    }
    for (const info of nodes) if (info.isReady) this.#noteReady(info);
  }

  #noteReady(info: NodeInfo): void {
    const { branches } = this.#placeOf(info);
    for (let level = 1; level < branches.length; level += 1) {
      lower(this.#fewest, branches[level - 1] as string, this.#countOf(branches[level]));
    }
    const leaf = branches.at(-1) as string;
    const own = info.activeOf(this.#serviceId);
    lower(this.#fewestOnNode, leaf, own);
    lower(this.#fewestInAll, `${leaf}|${own}`, info.activeTasks);
  }

  #countOf(branch: string | undefined): number {
    return this.#counts.get(branch ?? "") ?? 0;
  }

  /** Whether a task of this node might be better placed on some ready node. */
  mayGain(info: NodeInfo): boolean {
    const { branches } = this.#placeOf(info);
    for (let level = 1; level < branches.length; level += 1) {
      const own = this.#countOf(branches[level]);
      if (own - (this.#fewest.get(branches[level - 1] as string) ?? own) >= gainMin) return true;
    }
    const leaf = branches.at(-1) as string;
    const own = info.activeOf(this.#serviceId);
    if (own - (this.#fewestOnNode.get(leaf) ?? own) >= gainMin) return true;
    const inAll = this.#fewestInAll.get(`${leaf}|${own - 1}`);
    return inAll !== undefined && info.activeTasks - inAll >= gainMin;
  }

  /** The node's leaf branch. */
  leafOf(info: NodeInfo): string {
    return this.#placeOf(info).branches.at(-1) as string;
  }

  /** Why a task is better placed on `to` than on `from`; null if it is not. */
  gain(from: NodeInfo, to: NodeInfo): Gain | null {
    const [here, there] = [this.#placeOf(from), this.#placeOf(to)];
    for (const [level, value] of here.values.entries()) {
      if (value === there.values[level]) continue;
      const [many, few] = [this.#countOf(here.branches[level + 1]), this.#countOf(there.branches[level + 1])];
      if (many - few < gainMin) return null;
      const name = this.#names[level] ?? "";
      const why = `${name}=${value} has ${many} tasks of the service, ${name}=${there.values[level]} has ${few}`;
      return { level: "preference", why };
    }
    const [own, others] = [from.activeOf(this.#serviceId), to.activeOf(this.#serviceId)];
    if (own - others >= gainMin) {
      return {
        level: "node",
        why: `node ${this.#nameOf(from.id)} has ${own} tasks of the service, node ${this.#nameOf(to.id)} has ${others}`,
      };
    }
    const isSwap = own - others === 1;
    if (!isSwap || from.activeTasks - to.activeTasks < gainMin) return null;
    const [many, few] = [this.#steady.get(from.id) ?? 0, this.#steady.get(to.id) ?? 0];
    if (many - few < gainMin) return null;
    return {
      level: "load",
      why: `node ${this.#nameOf(from.id)} has ${many} steady tasks in all, node ${this.#nameOf(to.id)} has ${few}`,
    };
  }

  #placeOf(info: NodeInfo): Place {
    let place = this.#places.get(info);
    if (place === undefined) {
      const { node } = info;
      const values = this.#labels.map((label) => (node === null ? "" : label(node)));
      const branches = ["", ...values.map((_, level) => JSON.stringify(values.slice(0, level + 1)))];
      this.#places.set(info, (place = { values, branches }));
    }
    return place;
  }
}

function lower(minima: Map<string, number>, key: string, value: number): void {
  const known = minima.get(key);
  if (known === undefined || value < known) minima.set(key, value);
}
