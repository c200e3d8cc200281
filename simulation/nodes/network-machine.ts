/**
 * The network of a machine, as far as agents change it: namespaces and links, created and removed by lines of `ip -batch`, on a
 * simulated clock. It outlives the agent; if the agent dies during a batch, part of it may be applied.
 */
import type { NetworkTools } from "../../actors/agent/ports.ts";
import type { NameServers } from "../../runtime/ports/name-server.ts";
import type { ProcessClock } from "../../runtime/sim/clock.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import { NameMachine } from "./name-machine.ts";
import { TunnelMachine } from "./tunnel-machine.ts";

const directory = "/run/netns/";

interface NetworkHabits {
  /** Chance that a batch fails halfway. */
  readonly failure: number;
}

export class NetworkMachine {
  /** By path: the devices in each. */
  readonly namespaces = new Map<string, Set<string>>();
  /** The node's end of each link, and the path of the namespace that has the other end. */
  readonly links = new Map<string, string>();
  readonly tunnel = new TunnelMachine();
  readonly names = new NameMachine();
  /** The last `nft` input about the tasks' networks. */
  rules = "";
  readonly #random: SimRandom;
  readonly #habits: NetworkHabits;
  #isCalm = false;

  constructor(random: SimRandom, habits: NetworkHabits) {
    this.#random = random;
    this.#habits = habits;
  }

  /** No faults from now on. */
  heal(): void {
    this.#isCalm = true;
  }

  losePower(): void {
    this.namespaces.clear();
    this.links.clear();
    this.rules = "";
    this.tunnel.losePower();
    this.names.losePower();
  }

  /** A driver's own. */
  addNamespace(path: string): void {
    this.namespaces.set(path, new Set(["lo"]));
  }

  removeNamespace(path: string): void {
    this.namespaces.delete(path);
    for (const [link, at] of this.links) if (at === path) this.links.delete(link);
  }

  /** Those of one life of an agent. */
  nameServers(clock: ProcessClock): NameServers {
    return this.names.servers(clock, async () => {
      await new Promise<void>((resolve) => void clock.after(1 + this.#random.below(10), resolve));
      if (!this.#isCalm && this.#random.chance(this.#habits.failure)) throw new Error("listen: drawn to fail");
    });
  }

  /** The tools of one life of an agent. */
  tools(clock: ProcessClock): NetworkTools {
    const wait = () => new Promise<void>((resolve) => void clock.after(1 + this.#random.below(10), resolve));
    const inParts = async (lines: readonly string[], act: (line: string) => void): Promise<void> => {
      const half = this.#random.below(lines.length + 1);
      await wait();
      if (!clock.alive) return;
      for (const line of lines.slice(0, half)) act(line);
      await wait();
      if (!clock.alive) return;
      if (!this.#isCalm && this.#random.chance(this.#habits.failure)) throw new Error("ip: drawn to fail");
      for (const line of lines.slice(half)) act(line);
    };
    return {
      problem: null,
      tag: "0123abcd",
      namespaces: async () => {
        await wait();
        const named = [...this.namespaces.keys()].filter((path) => path.startsWith(directory));
        return named.map((path) => path.slice(directory.length));
      },
      pathOf: (name) => directory + name,
      pathFor: async (path) => path,
      set: wait,
      ip: (lines, { goesOn = false, inside } = {}) =>
        inParts(lines, (line) => {
          try {
            this.#apply(line, inside);
          } catch (error) {
            if (!goesOn) throw error;
          }
        }),
      bridge: (lines, { goesOn = false } = {}) =>
        inParts(lines, (line) => {
          try {
            this.tunnel.bridge(line);
          } catch (error) {
            if (!goesOn) throw error;
          }
        }),
      nft: async (script) => {
        await wait();
        if (!clock.alive) return;
        if (script.startsWith("table ")) this.rules = script;
        else if (this.names.nft(script)) return;
        else this.tunnel.nft(script);
      },
      tunnel: async (device) => {
        await wait();
        return this.tunnel.find(device);
      },
      mtu: 1_500,
    };
  }

  #apply(line: string, inside: string | undefined): void {
    if (inside !== undefined) return this.#inside(line, inside);
    if (this.tunnel.ip(line) || this.names.ip(line)) return;
    const named = /^netns (add|del) (\S+)$/.exec(line);
    const made = /^link add (\S+) .* peer name (\S+) .*netns (\S+)$/.exec(line);
    const removed = /^link del (\S+)$/.exec(line);
    const pathOf = (name: string): string => (name.startsWith("/") ? name : directory + name);
    if (named !== null) {
      const path = pathOf(named[2] as string);
      if (this.namespaces.has(path) !== (named[1] === "del"))
        throw new Error(`ip: ${line}: it already exists, or does not exist`);
      if (named[1] === "add") this.addNamespace(path);
      else this.removeNamespace(path);
    } else if (made !== null) {
      const [, host, task, netns] = made as unknown as readonly [string, string, string, string];
      const devices = this.namespaces.get(pathOf(netns));
      if (devices === undefined || devices.has(task) || this.links.has(host))
        throw new Error(`ip: ${line}: impossible`);
      devices.add(task);
      this.links.set(host, pathOf(netns));
    } else if (removed !== null) {
      const link = removed[1] as string;
      const path = this.links.get(link);
      if (path === undefined) throw new Error(`ip: no device ${link}`);
      this.links.delete(link);
      // A task's links are removed together, so the order of its devices does not matter.
      this.namespaces.set(path, new Set(["lo"]));
    } else {
      const device = /(?: dev|^link set) (\S+)/.exec(line)?.[1] ?? "";
      if (!this.links.has(device)) throw new Error(`ip: ${line}: no device ${device}`);
    }
  }

  #inside(line: string, path: string): void {
    const device = /(?: dev|^link set) (\S+)/.exec(line)?.[1] ?? "";
    if (this.namespaces.get(path)?.has(device) !== true) throw new Error(`ip: ${line}: no device ${device} in ${path}`);
  }
}
