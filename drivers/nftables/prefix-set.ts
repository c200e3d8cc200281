/**
 * Prefixes that may contain each other, and their outermost ones: nft's interval sets accept only prefixes that do not overlap,
 * and nft's own merging would leave holes when a smaller prefix is removed.
 *
 * X1: the visible prefixes are always exactly the members that no other member contains.
 */
import { containsRange, masked, type Prefix } from "../../lib/ip-address.ts";
import { netText } from "./addresses.ts";

interface VisibleChange {
  readonly added: readonly string[];
  readonly removed: readonly string[];
}

export class PrefixSet {
  #members = new Map<string, Prefix>();
  /** The number of members of each length, by family and length, to limit the search for containing prefixes. */
  #lengths = new Map<string, { readonly net: Prefix; count: number }>();
  #visible = new Set<string>();

  get visible(): ReadonlySet<string> {
    return this.#visible;
  }

  /** Takes the content of `other`, which must not be used afterwards. */
  become(other: PrefixSet): void {
    this.#members = other.#members;
    this.#lengths = other.#lengths;
    this.#visible = other.#visible;
  }

  add(net: Prefix): VisibleChange {
    const text = netText(net);
    if (this.#members.has(text)) return { added: [], removed: [] };
    this.#members.set(text, net);
    this.#count(net, 1);
    if (this.#isContained(net)) return { added: [], removed: [] };
    const removed: string[] = [];
    if (this.#hasLonger(net)) {
      for (const other of this.#visible)
        if (containsRange(net, this.#members.get(other) as Prefix)) removed.push(other);
      for (const other of removed) this.#visible.delete(other);
    }
    this.#visible.add(text);
    return { added: [text], removed };
  }

  remove(net: Prefix): VisibleChange {
    const text = netText(net);
    if (!this.#members.delete(text)) return { added: [], removed: [] };
    this.#count(net, -1);
    if (!this.#visible.delete(text)) return { added: [], removed: [] };
    const added: string[] = [];
    if (this.#hasLonger(net)) {
      for (const [other, inner] of this.#members)
        if (containsRange(net, inner) && !this.#isContained(inner)) added.push(other);
      for (const other of added) this.#visible.add(other);
    }
    return { added, removed: [text] };
  }

  #isContained(net: Prefix): boolean {
    for (const { net: like } of this.#lengths.values()) {
      if (like.family !== net.family || like.length >= net.length) continue;
      if (this.#members.has(netText(masked(net, like.length)))) return true;
    }
    return false;
  }

  #hasLonger(net: Prefix): boolean {
    for (const { net: like } of this.#lengths.values())
      if (like.family === net.family && like.length > net.length) return true;
    return false;
  }

  #count(net: Prefix, by: 1 | -1): void {
    const key = `${net.family}/${net.length}`;
    const entry = this.#lengths.get(key) ?? { net, count: 0 };
    entry.count += by;
    if (entry.count === 0) this.#lengths.delete(key);
    else this.#lengths.set(key, entry);
  }
}
