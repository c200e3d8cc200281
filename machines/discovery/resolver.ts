/** Where an agent answers its tasks' questions, and what a task's resolver is told of that. */

/** Asked by a task's resolver: the name servers, the domains that it appends, and options as in resolv.conf(5). */
export interface ResolverConfig {
  readonly servers: readonly string[];
  readonly searches: readonly string[];
  readonly options: readonly string[];
}

/** Of each family one: a task asks by the first that it has itself. */
export interface NameServerAddresses {
  readonly 4: string;
  readonly 6: string;
}

/**
 * Addresses of this agent's own, on the node's loopback device: tasks reach them by way of their links, nobody else does, and
 * agents of one machine have different ones. The first is link-local, of a block whose first and last 256 are reserved (RFC 3927,
 * §2.1), and in whose 169.254.169.0/24 clouds answer. The second is a unique local one, of a prefix that is nobody's (RFC 4193):
 * one that is link-local would be another on each link.
 *
 * `tag`: the agent's (`[0-9a-f]+`, 4 letters at least).
 */
export function nameServerAddresses(tag: string): NameServerAddresses {
  const number = Number.parseInt(tag.slice(0, 4), 16);
  const third = 1 + ((number >> 8) % 253);
  return {
    4: `169.254.${third < 169 ? third : third + 1}.${number & 255}`,
    6: `fd6d:7374:6e61:6d65::${(number + 1).toString(16)}`,
  };
}

/** Lines for `ip -batch` that put one on the node, and take it away. */
export function nameServerLines(address: string): { readonly add: string; readonly remove: string } {
  const isV4 = !address.includes(":");
  const what = `${address}/${isV4 ? 32 : 128} dev lo`;
  return { add: `address replace ${what} ${isV4 ? "scope host" : "nodad"}`, remove: `address del ${what}` };
}

/**
 * A task asks its agent, which asks whom the task was to ask. Names with a single label are asked as they are, before any domain
 * is appended: they are services' names first of all. `asked`: as its spec has it.
 */
export function taskResolver(asked: ResolverConfig, address: string): ResolverConfig {
  const hasDots = asked.options.some((option) => option.startsWith("ndots:"));
  return { ...asked, servers: [address], options: hasDots ? asked.options : [...asked.options, "ndots:0"] };
}
