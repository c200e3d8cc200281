/** The storage plugins of one process: one link to each listed socket, for as long as it is listed. */
import type { Host } from "../../runtime/host.ts";
import type { Random, Subscription, Telemetry } from "../../runtime/ports/index.ts";
import type { PluginFacts } from "../../machines/volumes/csi-plugin.machine.ts";
import { CsiPlugin, type CsiSide } from "./csi-plugin.ts";
import type { CsiSockets } from "../../runtime/ports/csi-sockets.ts";
import type { Running } from "../environment.ts";

interface CsiPluginsParts {
  readonly side: CsiSide;
  readonly host: Host;
  readonly random: Random;
  readonly telemetry: Telemetry;
  readonly sockets: CsiSockets;
  /** Called each time a plugin starts serving, but never before the constructor has returned. */
  readonly onServing: (name: string) => void;
  /** Called when a plugin is no longer listed. */
  readonly onUnlisted?: (name: string) => void;
}

export class CsiPlugins implements Running {
  readonly #parts: CsiPluginsParts;
  readonly #plugins = new Map<string, CsiPlugin>();
  readonly #changes: Subscription;

  constructor(parts: CsiPluginsParts) {
    this.#parts = parts;
    this.#changes = parts.sockets.onChange(() => this.#look());
    this.#look();
  }

  /** Undefined when no plugin of that name was ever listed here. */
  find(name: string): CsiPlugin | undefined {
    return this.#plugins.get(name);
  }

  /** Descriptions of the listed plugins by name, including unreachable ones. */
  facts(): ReadonlyMap<string, PluginFacts> {
    const known = new Map<string, PluginFacts>();
    for (const [name, { lastFacts }] of this.#plugins) if (lastFacts !== null) known.set(name, lastFacts);
    return known;
  }

  stop(): void {
    this.#changes.unsubscribe();
    for (const plugin of this.#plugins.values()) plugin.stop();
    this.#plugins.clear();
  }

  #look(): void {
    const { sockets, ...parts } = this.#parts;
    const listed = new Set(sockets.names());
    for (const [name, plugin] of this.#plugins) {
      if (listed.has(name)) continue;
      plugin.listed(false);
      parts.onUnlisted?.(name);
    }
    for (const name of listed) {
      let plugin = this.#plugins.get(name);
      if (plugin === undefined) {
        const random = parts.random.fork(name);
        plugin = new CsiPlugin({ ...parts, random, sockets, name, onServing: () => parts.onServing(name) });
        this.#plugins.set(name, plugin);
      }
      plugin.listed(true);
    }
  }
}
