/** The network settings that a cluster is created with; they never change. */
import { containsRange, parseCidr, type Prefix } from "../../lib/ip-address.ts";

export interface NetworkDefaults {
  /** IPv4 prefixes from which networks get their subnets. */
  readonly addressPools: readonly string[];
  /** Prefix length of each such subnet. */
  readonly subnetLength: number;
  /** UDP port of VXLAN traffic between nodes. */
  readonly dataPathPort: number;
}

/** SwarmKit's defaults; used, and shown, for a cluster without settings of its own. */
export const networkDefaults: NetworkDefaults = {
  addressPools: ["10.0.0.0/8"],
  subnetLength: 24,
  dataPathPort: 4789,
};

/** Docker's range: well-known ports are below it, ephemeral ports above. */
const dataPathPorts = { first: 1024, last: 49_151 } as const;
/** Docker's limit: a network needs at least five usable addresses. */
const subnetLengthMax = 29;

/** Why a cluster cannot be created with these settings; null if it can. */
export function networkDefaultsProblem({ addressPools, subnetLength, dataPathPort }: NetworkDefaults): string | null {
  const { first, last } = dataPathPorts;
  if (!Number.isInteger(dataPathPort) || dataPathPort < first || dataPathPort > last)
    return `invalid data path port ${dataPathPort}: expected a number from ${first} to ${last}`;
  if (!Number.isInteger(subnetLength) || subnetLength < 1 || subnetLength > subnetLengthMax)
    return `invalid subnet mask length ${subnetLength}: expected a number from 1 to ${subnetLengthMax}`;
  const pools: Prefix[] = [];
  for (const text of addressPools) {
    const pool = parseCidr(text);
    if (pool === null || pool.family !== 4)
      return `invalid address pool "${text}": expected an IPv4 subnet such as 10.20.0.0/16`;
    if (pool.length > subnetLength) return `invalid address pool ${text}: smaller than a subnet (/${subnetLength})`;
    if (pools.some((other) => containsRange(other, pool) || containsRange(pool, other)))
      return `invalid address pool ${text}: it overlaps with another one`;
    pools.push(pool);
  }
  return pools.length === 0 ? "no address pool: at least one is required" : null;
}
