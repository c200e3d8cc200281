/**
 * A machine's part in names and virtual addresses, as far as agents change it: addresses of the loopback device, the listening
 * name server, and nftables' table of services. It outlives the agent, whose sockets do not.
 */
import type { NameReply, NameServers } from "../../runtime/ports/name-server.ts";
import type { ProcessClock } from "../../runtime/sim/clock.ts";

interface Table {
  readonly chains: Map<string, string[]>;
  /** Elements of sets and maps, by name. */
  readonly elements: Map<string, Set<string>>;
}

interface Listening {
  readonly clock: ProcessClock;
  readonly answer: (question: { from: string; name: string; type: string }) => NameReply | Promise<NameReply>;
}

export class NameMachine {
  /** Addresses of the loopback device, besides its own. */
  readonly addresses = new Set<string>();
  #tables = new Map<string, Table>();
  /** By address. */
  readonly #listening = new Map<string, Listening>();

  losePower(): void {
    this.addresses.clear();
    this.#tables.clear();
  }

  get tables(): readonly string[] {
    return [...this.#tables.keys()];
  }

  /** Whether it handled the line. */
  ip(line: string): boolean {
    const [, verb, address] = /^address (replace|del) (\S+)\/(?:32|128) dev lo\b/.exec(line) ?? [];
    if (verb === undefined || address === undefined) return false;
    if (verb === "replace") this.addresses.add(address);
    else if (!this.addresses.delete(address)) throw new Error(`ip: ${line}: no such address`);
    return true;
  }

  /** Whether it handled the script. It applies all of it, or throws and applies nothing. */
  nft(script: string): boolean {
    if (!script.includes(" inet muster-services-")) return false;
    const tables = new Map(
      [...this.#tables].map(([name, { chains, elements }]) => [
        name,
        {
          chains: new Map([...chains].map(([chain, rules]) => [chain, [...rules]])),
          elements: new Map([...elements].map(([set, all]) => [set, new Set(all)])),
        },
      ]),
    );
    for (const line of script.split("\n")) if (line !== "") change(tables, line);
    this.#tables = tables;
    return true;
  }

  /** The tasks behind a virtual address; null: traffic is neither forwarded nor rejected. */
  leadsTo(virtual: string): readonly string[] | null {
    for (const { chains, elements } of this.#tables.values()) {
      const found = [...(elements.get("services4") ?? [])].find((each) => each.startsWith(`${virtual} : goto `));
      const rules = found === undefined ? undefined : chains.get(found.slice(`${virtual} : goto `.length));
      if (rules !== undefined && elements.get("virtual4")?.has(virtual) === true)
        return [...rules.join(" ").matchAll(/\d+\.\d+\.\d+\.\d+/g)].map(([address]) => address).sort();
    }
    return null;
  }

  /** All rules and elements, in a fixed order. */
  content(): readonly string[] {
    const lines: string[] = [];
    for (const [name, { chains, elements }] of this.#tables) {
      for (const [chain, rules] of chains) lines.push(`${name} ${chain}: ${rules.join("; ")}`);
      for (const [set, all] of elements) lines.push(`${name} ${set}: ${[...all].sort().join(", ")}`);
    }
    return lines.sort();
  }

  /** Null: nobody listens. A promise: not decided yet. */
  ask(from: string, name: string, type: string): NameReply | Promise<NameReply> | null {
    const found = [...this.#listening.values()].find(({ clock }) => clock.alive);
    return found === undefined ? null : found.answer({ from, name, type });
  }

  /** For one life of an agent. `wait`: a short delay, after which it may fail. */
  servers(clock: ProcessClock, wait: () => Promise<void>): NameServers {
    return {
      open: async ({ address, answer, port }) => {
        await wait();
        if (!this.addresses.has(address)) throw new Error(`${address} is not an address of this machine`);
        if (this.#listening.get(address)?.clock.alive === true) throw new Error(`${address} is already in use`);
        const listening = { clock, answer };
        this.#listening.set(address, listening);
        return {
          port,
          close: async () => {
            if (this.#listening.get(address) === listening) this.#listening.delete(address);
          },
        };
      },
    };
  }
}

function change(tables: Map<string, Table>, line: string): void {
  const [verb = "", what = "", family = "", name = "", ...rest] = line.split(" ");
  const key = `${family} ${name}`;
  const table = tables.get(key);
  const demand = (holds: boolean): void => {
    if (!holds) throw new Error(`nft: ${line}: impossible`);
  };
  if (what === "table") {
    demand(verb === "add" || table !== undefined);
    if (verb === "delete") tables.delete(key);
    else if (table === undefined) tables.set(key, { chains: new Map(), elements: new Map() });
    return;
  }
  demand(table !== undefined);
  const { chains, elements } = table as Table;
  const [of = ""] = rest;
  switch (`${verb} ${what}`) {
    case "add set":
    case "add map":
      elements.set(of, new Set());
      return;
    case "add chain":
      demand(!chains.has(of));
      chains.set(of, []);
      return;
    case "flush chain":
      demand(chains.has(of));
      chains.set(of, []);
      return;
    case "delete chain": {
      const isUsed = [...elements.values()].some((all) => [...all].some((each) => each.endsWith(` goto ${of}`)));
      demand(!isUsed && chains.delete(of));
      return;
    }
    case "add rule":
      demand(chains.has(of));
      chains.get(of)?.push(rest.slice(1).join(" "));
      return;
    case "add element":
    case "delete element": {
      const all = elements.get(of);
      demand(all !== undefined);
      for (const each of rest.slice(2, -1).join(" ").split(", ")) {
        const [, to] = each.split(" : goto ");
        demand(to === undefined || chains.has(to));
        if (verb === "add") all?.add(each);
        else demand(all?.delete(each) === true);
      }
      return;
    }
    default:
      throw new Error(`nft: ${line}: unknown`);
  }
}
