/** Where an agent answers its tasks' questions, and what a task's resolver is told of that. */

/** Asked by a task's resolver: the name servers, the domains that it appends, and options as in resolv.conf(5). */
export interface ResolverConfig {
  readonly servers: readonly string[];
  readonly searches: readonly string[];
  readonly options: readonly string[];
}

/**
 * A link-local address of this agent's own, on the node's loopback device: tasks reach it by way of their links, nobody else
 * does, and agents of one machine have different ones. The first and last 256 of the block are reserved (RFC 3927, §2.1), and in
 * 169.254.169.0/24 clouds answer.
 *
 * `tag`: the agent's (`[0-9a-f]+`, 4 letters at least).
 */
export function nameServerAddress(tag: string): string {
  const number = Number.parseInt(tag.slice(0, 4), 16);
  const third = 1 + ((number >> 8) % 253);
  return `169.254.${third < 169 ? third : third + 1}.${number & 255}`;
}

/** Lines for `ip -batch` that put it on the node, and take it away. */
export function nameServerLines(address: string): {
  readonly add: readonly string[];
  readonly remove: readonly string[];
} {
  const what = `${address}/32 dev lo`;
  return { add: [`address replace ${what} scope host`], remove: [`address del ${what}`] };
}

/**
 * A task asks its agent, which asks whom the task was to ask. Names with a single label are asked as they are, before any domain
 * is appended: they are services' names first of all. `asked`: as its spec has it.
 */
export function taskResolver(asked: ResolverConfig, address: string): ResolverConfig {
  const hasDots = asked.options.some((option) => option.startsWith("ndots:"));
  return { ...asked, servers: [address], options: hasDots ? asked.options : [...asked.options, "ndots:0"] };
}
