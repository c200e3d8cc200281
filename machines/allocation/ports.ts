/**
 * Which service holds which published port, and which port a service is given that asks for any.
 *
 * A1: a published port belongs to one service for each protocol.
 * A2: a port given once stays while the service asks for it by the same name, protocol and target.
 */
import {
  PortConfig,
  PortConfig_PublishMode,
  type PortConfig_Protocol,
  type Service,
} from "../../proto/gen/messages.ts";

/** The range from which ports are given to services that ask for any (SwarmKit's). */
export const dynamicPorts = { first: 30_000, last: 32_767 } as const;

const nothing: readonly never[] = [];

/** Which service holds which ingress port (A1). */
export class PortSpace {
  readonly #owners = new Map<string, string>();
  readonly #held = new Map<string, readonly string[]>();
  readonly #next = new Map<PortConfig_Protocol, number>();

  /** How many ports are held. */
  get count(): number {
    return this.#owners.size;
  }

  owner(protocol: PortConfig_Protocol, port: number): string | undefined {
    return this.#owners.get(keyOf(protocol, port));
  }

  /**
   * Records what the service has; what it had before and has no longer is free again, then true. A port of another
   * service stays there.
   */
  claim(serviceId: string, ports: readonly PortConfig[]): boolean {
    const before = this.#held.get(serviceId) ?? nothing;
    if (before.length === 0 && ports.length === 0) return false;
    this.release(serviceId);
    const keys: string[] = [];
    for (const port of ports) {
      if (!isIngressPort(port) || port.publishedPort === 0) continue;
      const key = keyOf(port.protocol, port.publishedPort);
      if (this.#owners.has(key)) continue;
      this.#owners.set(key, serviceId);
      keys.push(key);
      const isDynamic = port.publishedPort >= dynamicPorts.first && port.publishedPort <= dynamicPorts.last;
      if (isDynamic && !before.includes(key)) this.#next.set(port.protocol, port.publishedPort + 1);
    }
    if (keys.length > 0) this.#held.set(serviceId, keys);
    return before.some((key) => !this.#owners.has(key));
  }

  /** True when something was freed. */
  release(serviceId: string): boolean {
    const keys = this.#held.get(serviceId);
    if (keys === undefined) return false;
    for (const key of keys) this.#owners.delete(key);
    return this.#held.delete(serviceId);
  }

  /** The next free port after the one claimed last, so that one just freed is not at once another's; null when none is free. */
  free(protocol: PortConfig_Protocol, taken: ReadonlySet<string>): number | null {
    const count = dynamicPorts.last - dynamicPorts.first + 1;
    const from = this.#next.get(protocol) ?? dynamicPorts.first;
    for (let step = 0; step < count; step += 1) {
      const port = dynamicPorts.first + ((from - dynamicPorts.first + step) % count);
      const key = keyOf(protocol, port);
      if (!this.#owners.has(key) && !taken.has(key)) return port;
    }
    return null;
  }
}

function keyOf(protocol: PortConfig_Protocol, port: number): string {
  return `${protocol}/${port}`;
}

export function isIngressPort(port: PortConfig): boolean {
  return port.publishMode === PortConfig_PublishMode.INGRESS;
}

/** The ports as the service is to have them, or why it cannot. Changes nothing. */
export function decidePorts(
  service: Service,
  ports: PortSpace,
): { readonly ports: readonly PortConfig[] } | { readonly problem: string } {
  const asked = service.spec?.endpoint?.ports ?? [];
  const taken = new Set<string>();
  for (const port of asked)
    if (isIngressPort(port) && port.publishedPort !== 0) taken.add(keyOf(port.protocol, port.publishedPort));
  const given: PortConfig[] = [];
  for (const port of asked) {
    const published = publishedFor(service, port, ports, taken);
    if (typeof published === "string") return { problem: published };
    taken.add(keyOf(port.protocol, published));
    given.push(published === port.publishedPort ? port : PortConfig.patch(port, { publishedPort: published }));
  }
  return { ports: given };
}

/** The number, or why there is none. */
function publishedFor(
  service: Service,
  port: PortConfig,
  ports: PortSpace,
  taken: ReadonlySet<string>,
): number | string {
  // A port on the node itself is the node's affair; 0 stays 0 and the node chooses.
  if (!isIngressPort(port)) return port.publishedPort;
  if (port.publishedPort !== 0) {
    const owner = ports.owner(port.protocol, port.publishedPort);
    if (owner === undefined || owner === service.id) return port.publishedPort;
    return `port ${port.publishedPort} is already published by service ${owner}`;
  }
  // A2
  const kept = service.endpoint?.ports.find(
    (had, at) => isSamePort(had, port) && service.endpoint?.spec?.ports[at]?.publishedPort === 0,
  );
  if (kept !== undefined && !taken.has(keyOf(kept.protocol, kept.publishedPort))) {
    const owner = ports.owner(kept.protocol, kept.publishedPort);
    if (owner === undefined || owner === service.id) return kept.publishedPort;
  }
  return ports.free(port.protocol, taken) ?? `no port between ${dynamicPorts.first} and ${dynamicPorts.last} is free`;
}

function isSamePort(a: PortConfig, b: PortConfig): boolean {
  return isIngressPort(a) && a.name === b.name && a.protocol === b.protocol && a.targetPort === b.targetPort;
}

/** Two services may have been given one port by a race at the edge: the second has it in its endpoint, but does not hold it. */
export function holdsPorts(serviceId: string, had: readonly PortConfig[], ports: PortSpace): boolean {
  return had.every(
    (port) =>
      !isIngressPort(port) || port.publishedPort === 0 || ports.owner(port.protocol, port.publishedPort) === serviceId,
  );
}
