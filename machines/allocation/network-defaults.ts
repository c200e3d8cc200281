/** What a cluster is founded with for its networks, and stays with. */
import { containsRange, parseCidr, type Prefix } from "../../runtime/ip-address.ts";

export interface NetworkDefaults {
  /** IPv4 prefixes that networks get their subnets from. */
  readonly addressPools: readonly string[];
  /** Prefix length of each such subnet. */
  readonly subnetLength: number;
  /** UDP port of VXLAN traffic between nodes. */
  readonly dataPathPort: number;
}

/** SwarmKit's; also what is meant, and shown, where a cluster has none of its own. */
export const networkDefaults: NetworkDefaults = {
  addressPools: ["10.0.0.0/8"],
  subnetLength: 24,
  dataPathPort: 4789,
};

/** Docker's: below are well-known ports, above are those that clients get. */
const dataPathPorts = { first: 1024, last: 49_151 } as const;
/** Docker's: five addresses are the least that a network is of use with. */
const subnetLengthMax = 29;

/** Why a cluster cannot be founded with these, in one sentence; null when it can. */
export function networkDefaultsProblem({ addressPools, subnetLength, dataPathPort }: NetworkDefaults): string | null {
  const { first, last } = dataPathPorts;
  if (!Number.isInteger(dataPathPort) || dataPathPort < first || dataPathPort > last)
    return `the data path port is a number from ${first} to ${last}`;
  if (!Number.isInteger(subnetLength) || subnetLength < 1 || subnetLength > subnetLengthMax)
    return `the mask length of subnets is a number from 1 to ${subnetLengthMax}`;
  const pools: Prefix[] = [];
  for (const text of addressPools) {
    const pool = parseCidr(text);
    if (pool === null || pool.family !== 4) return `the address pool '${text}' is no IPv4 subnet such as 10.20.0.0/16`;
    if (pool.length > subnetLength) return `the address pool ${text} is smaller than a subnet of /${subnetLength}`;
    if (pools.some((other) => containsRange(other, pool) || containsRange(pool, other)))
      return `the address pool ${text} overlaps with another one`;
    pools.push(pool);
  }
  return pools.length === 0 ? "there must be an address pool" : null;
}
