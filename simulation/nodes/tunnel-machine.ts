/**
 * The kernel's part in a tunnel, as far as agents change it: one device with routes, neighbours and forwarding entries, and
 * sets of nftables.
 */
import type { FoundTunnel } from "../../machines/networks/tunnel-lines.ts";

interface Device {
  readonly name: string;
  readonly local: string;
  readonly port: number;
  readonly mac: string;
  readonly mtu: number;
  /** Next hop by destination. */
  readonly hops: Map<string, string>;
  /** Hardware address by next hop, and remote node address by hardware address. */
  readonly neighbours: Map<string, string>;
  readonly forwarding: Map<string, string>;
}

const making = /^link add (\S+) mtu (\d+) address (\S+) type vxlan id 0 local (\S+) dstport (\d+) nolearning$/;

function wrong(line: string, why: string): Error {
  return new Error(`${line}: ${why}`);
}

export class TunnelMachine {
  #device: Device | null = null;
  /** Elements by table and name of the set. */
  #tables = new Map<string, Map<string, Set<string>>>();

  losePower(): void {
    this.#device = null;
    this.#tables.clear();
  }

  find(name: string): FoundTunnel | null {
    const device = this.#device;
    return device?.name === name
      ? { ...device, hops: new Map(device.hops), ends: [...device.forwarding.values()] }
      : null;
  }

  /** The remote end for each routed address; throws if one leads nowhere. */
  reached(): ReadonlyMap<string, string> {
    const { forwarding, hops, neighbours } = this.#device ?? { forwarding: null, hops: [], neighbours: null };
    return new Map(
      [...hops].map(([task, hop]) => {
        const end = forwarding?.get(neighbours?.get(hop) ?? "");
        if (end === undefined) throw new Error(`the route to ${task} via ${hop} leads nowhere`);
        return [task, end];
      }),
    );
  }

  /** Addresses with neighbour and forwarding entries. */
  get peers(): ReadonlySet<string> {
    return new Set(this.#device?.forwarding.values());
  }

  elements(table: string, set: string): ReadonlySet<string> {
    return this.#tables.get(table)?.get(set) ?? new Set();
  }

  hasTable(table: string): boolean {
    return this.#tables.has(table);
  }

  /** False: the `ip` line is not about a tunnel. */
  ip(line: string): boolean {
    const made = making.exec(line);
    if (made !== null) {
      const [, name = "", mtu, mac = "", local = "", port] = made;
      if (this.#device !== null) throw wrong(line, "it already exists");
      this.#device = {
        name,
        local,
        mac,
        mtu: Number(mtu),
        port: Number(port),
        hops: new Map(),
        neighbours: new Map(),
        forwarding: new Map(),
      };
      return true;
    }
    const device = this.#device;
    const name = /(?: dev|^link (?:set|del)) (\S+)/.exec(line)?.[1] ?? "";
    if (!name.startsWith("vxm")) return false;
    if (device?.name !== name) throw wrong(line, "no such device");
    const routed = /^route replace (\S+)\/(?:32|128) via (?:inet6 )?(\S+) dev \S+ onlink$/.exec(line);
    const unrouted = /^route del (\S+)\/(?:32|128) dev /.exec(line);
    const met = /^neigh replace (\S+) lladdr (\S+) dev \S+ nud permanent$/.exec(line);
    const parted = /^neigh del (\S+) dev /.exec(line);
    if (line === `link del ${name}`) this.#device = null;
    else if (routed !== null) {
      const [, task = "", hop = ""] = routed;
      if (!device.neighbours.has(hop)) throw wrong(line, "unknown next hop");
      device.hops.set(task, hop);
    } else if (unrouted !== null) {
      if (!device.hops.delete(unrouted[1] ?? "")) throw wrong(line, "no such route");
    } else if (met !== null) device.neighbours.set(met[1] ?? "", met[2] ?? "");
    else if (parted !== null) {
      if (!device.neighbours.delete(parted[1] ?? "")) throw wrong(line, "no such neighbour");
    } else if (!line.startsWith("link set ")) throw wrong(line, "not understood");
    return true;
  }

  bridge(line: string): void {
    const met = /^fdb replace (\S+) dev (\S+) self permanent dst (\S+)$/.exec(line);
    const parted = /^fdb del (\S+) dev (\S+) self dst (\S+)$/.exec(line);
    const [, mac = "", name = "", address = ""] = met ?? parted ?? [];
    const device = this.#device;
    if (name === "" || device?.name !== name) throw wrong(line, "no such device");
    if (met !== null) device.forwarding.set(mac, address);
    else if (device.forwarding.get(mac) !== address || !device.forwarding.delete(mac))
      throw wrong(line, "no such entry");
  }

  /** Scripts of lines that add and delete; all or nothing. */
  nft(script: string): void {
    const tables = new Map(
      [...this.#tables].map(([table, sets]) => [table, new Map([...sets].map(([set, of]) => [set, new Set(of)]))]),
    );
    for (const line of script.split("\n")) {
      const [, verb, kind, table = "", rest = ""] = /^(add|delete) (\S+) (inet \S+) ?(.*)$/.exec(line) ?? [];
      const sets = tables.get(table);
      if (kind === "table") {
        if (verb === "add") tables.set(table, sets ?? new Map());
        else if (!tables.delete(table)) throw wrong(line, "no such table");
      } else if (kind === "set" || kind === "map") sets?.set(rest.split(" ")[0] ?? "", new Set());
      else if (kind === "element") {
        const [, name = "", list = ""] = /^(\S+) \{ (.*) \}$/.exec(rest) ?? [];
        const set = sets?.get(name);
        for (const element of list.split(", "))
          if (set === undefined || set.has(element) === (verb === "add")) throw wrong(line, `${element} cannot be`);
          else if (verb === "add") set.add(element);
          else set.delete(element);
      }
    }
    this.#tables = tables;
  }
}
