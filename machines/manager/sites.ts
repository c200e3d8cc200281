/**
 * Which sites are cut off. Pure.
 *
 * S1: a site is cut off when none of its nodes is READY or DISCONNECTED, and one is DOWN. Nodes that never registered do not count.
 */
import { siteOf } from "../node.ts";
import { NodeStatus_State, type Node } from "../../proto/gen/messages.ts";

interface Counts {
  nodes: number;
  /** READY or DISCONNECTED. */
  answering: number;
  down: number;
}

/** The nodes of each site, counted. */
export class Sites {
  readonly #counts = new Map<string, Counts>();

  /** To be called for each change of a node; null: it does not exist before or after. */
  move(old: Node | null, node: Node | null): void {
    if (old !== null) this.#add(old, -1);
    if (node !== null) this.#add(node, 1);
  }

  #add(node: Node, one: 1 | -1): void {
    const site = siteOf(node);
    if (site === "") return;
    const counts = this.#counts.get(site) ?? { nodes: 0, answering: 0, down: 0 };
    const state = node.status?.state ?? NodeStatus_State.UNKNOWN;
    counts.nodes += one;
    if (state === NodeStatus_State.READY || state === NodeStatus_State.DISCONNECTED) counts.answering += one;
    if (state === NodeStatus_State.DOWN) counts.down += one;
    if (counts.nodes === 0) this.#counts.delete(site);
    else this.#counts.set(site, counts);
  }

  /** `site lab is cut off (12 nodes)`; null: no site is. S1 */
  sentence(): string | null {
    const lost = [...this.#counts]
      .filter(([, { answering, down }]) => answering === 0 && down > 0)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([site, { nodes }]) => `site ${site} is cut off (${nodes} ${nodes === 1 ? "node" : "nodes"})`);
    return lost.length === 0 ? null : lost.join(", ");
  }
}
