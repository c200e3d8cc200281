/** Reads the kernel's network state through iproute2, as far as agents need it. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { FoundTunnel } from "../../actors/agent/ports.ts";

const run = promisify(execFile);
const timeoutMs = 30_000;
/** A route takes some 80 bytes of its JSON. */
const answerBytesMax = 64 * 1024 * 1024;
/** Ethernet's, if no interface says otherwise. */
export const usualMtu = 1_500;

/** For a link that it filters out, `ip` prints an empty object. */
interface Link {
  readonly ifname?: string;
  readonly flags?: readonly string[];
  readonly mtu?: number;
  readonly address?: string;
  readonly addr_info?: readonly { readonly scope?: string }[];
  readonly linkinfo?: {
    readonly info_data?: { readonly local?: string; readonly local6?: string; readonly port?: number };
  };
}

interface Route {
  readonly dst: string;
  readonly gateway?: string;
  readonly via?: { readonly host: string };
}

interface Forwarding {
  readonly dst?: string;
}

async function ask<Answer>(program: string, ...args: readonly string[]): Promise<readonly Answer[]> {
  const { stdout } = await run(program, ["-j", ...args], { timeout: timeoutMs, maxBuffer: answerBytesMax });
  return stdout.trim() === "" ? [] : (JSON.parse(stdout) as readonly Answer[]);
}

/** The smallest MTU of the interfaces with addresses that others can reach. */
export async function smallestMtu(ip: string): Promise<number> {
  const links = await ask<Link>(ip, "address", "show", "up");
  const outward = links.filter(
    ({ addr_info: addresses = [], flags = [] }) =>
      !flags.includes("LOOPBACK") && addresses.some(({ scope }) => scope === "global"),
  );
  return Math.min(...outward.map(({ mtu = usualMtu }) => mtu), usualMtu);
}

/** `ip`, `bridge`: the programs. */
export async function findTunnel(ip: string, bridge: string, device: string): Promise<FoundTunnel | null> {
  // Queried by name, a missing device is an error like any other.
  const links = await ask<Link>(ip, "-d", "link", "show", "type", "vxlan");
  const link = links.find(({ ifname }) => ifname === device);
  if (link === undefined) return null;
  const hops = new Map<string, string>();
  for (const family of ["-4", "-6"])
    for (const { dst, gateway, via } of await ask<Route>(ip, family, "route", "show", "dev", device)) {
      const hop = gateway ?? via?.host;
      if (hop !== undefined) hops.set(dst, hop);
    }
  const forwarding = await ask<Forwarding>(bridge, "fdb", "show", "dev", device);
  const ends = forwarding.flatMap(({ dst }) => dst ?? []);
  const { local, local6, port = 0 } = link.linkinfo?.info_data ?? {};
  return { local: local ?? local6 ?? "", port, mac: link.address ?? "", mtu: link.mtu ?? 0, hops, ends };
}
