/** The addresses at which an agent answers its tasks' DNS queries, and the resolver configuration of a task. */

/** A task's resolver: name servers, search domains, and options as in resolv.conf(5). */
interface ResolverConfig {
  readonly servers: readonly string[];
  readonly searches: readonly string[];
  readonly options: readonly string[];
}

/** One for each family: a task uses the first family that it has itself. */
export interface NameServerAddresses {
  readonly 4: string;
  readonly 6: string;
}

/**
 * Addresses of this agent, on the node's loopback device: only tasks reach them, through their links, and agents on one
 * machine have different ones. The first is link-local, from a block whose first and last 256 addresses are reserved (RFC
 * 3927, §2.1) and whose 169.254.169.0/24 is used by clouds. The second is unique local, from a prefix of ours (RFC 4193): a
 * link-local address would be ambiguous between links.
 *
 * `tag`: the agent's (`[0-9a-f]+`, at least 4 characters).
 */
export function nameServerAddresses(tag: string): NameServerAddresses {
  const number = Number.parseInt(tag.slice(0, 4), 16);
  const third = 1 + ((number >> 8) % 253);
  return {
    4: `169.254.${third < 169 ? third : third + 1}.${number & 255}`,
    6: `fd6d:7374:6e61:6d65::${(number + 1).toString(16)}`,
  };
}

/** Lines for `ip -batch` that add an address to the node, and remove it. */
export function nameServerLines(address: string): { readonly add: string; readonly remove: string } {
  const isV4 = !address.includes(":");
  const what = `${address}/${isV4 ? 32 : 128} dev lo`;
  return { add: `address replace ${what} ${isV4 ? "scope host" : "nodad"}`, remove: `address del ${what}` };
}

/**
 * A task queries its agent, which forwards to the task's configured servers. Single-label names are queried as they are
 * before search domains are appended: they are mostly service names. `asked`: as in the task's spec.
 */
export function taskResolver(asked: ResolverConfig, address: string): ResolverConfig {
  const hasDots = asked.options.some((option) => option.startsWith("ndots:"));
  return { ...asked, servers: [address], options: hasDots ? asked.options : [...asked.options, "ndots:0"] };
}
