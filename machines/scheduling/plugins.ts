/** The plugins of a node's engine. Most nodes of a cluster list the same ones; nodes with equal lists share one object. */
import type { PluginDescription } from "../../proto/gen/messages.ts";

export interface Plugins {
  /** `Type/name` of each. */
  readonly names: ReadonlySet<string>;
  /** It lists drivers for tasks other than containers. */
  readonly hasDrivers: boolean;
  /** It has a container engine: engines always list volume plugins, and an agent lists those of its engine, if any. */
  readonly hasEngine: boolean;
  /** It lists log drivers; old engines have some, but list none. */
  readonly hasLogs: boolean;
}

/** Distinct lists cached before the cache is cleared; clearing it only costs memory. */
const listsMax = 1_000;

export class PluginLists {
  readonly #known = new Map<string, Plugins>();
  #last: readonly PluginDescription[] = [];
  #lastPlugins = none;

  of(descriptions: readonly PluginDescription[]): Plugins {
    if (descriptions.length === 0) return none;
    // Successive nodes are mostly alike, and comparing two lists is cheaper than building a key.
    if (!isSame(descriptions, this.#last)) {
      this.#lastPlugins = this.#find(descriptions);
      this.#last = descriptions;
    }
    return this.#lastPlugins;
  }

  #find(descriptions: readonly PluginDescription[]): Plugins {
    let key = "";
    for (const { type, name } of descriptions) key += `${type}/${name}\n`;
    let plugins = this.#known.get(key);
    if (plugins === undefined) {
      if (this.#known.size >= listsMax) this.#known.clear();
      this.#known.set(key, (plugins = listed(descriptions)));
    }
    return plugins;
  }
}

function isSame(a: readonly PluginDescription[], b: readonly PluginDescription[]): boolean {
  if (a.length !== b.length) return false;
  for (let at = 0; at < a.length; at += 1) {
    const [one, other] = [a[at] as PluginDescription, b[at] as PluginDescription];
    if (one.name !== other.name || one.type !== other.type) return false;
  }
  return true;
}

function listed(descriptions: readonly PluginDescription[]): Plugins {
  const types = new Set(descriptions.map(({ type }) => type));
  return {
    names: new Set(descriptions.map(({ type, name }) => `${type}/${name}`)),
    hasDrivers: types.has("Driver"),
    hasEngine: types.has("Volume") || types.has("Log"),
    hasLogs: types.has("Log"),
  };
}

const none = listed([]);
