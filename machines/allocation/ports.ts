/**
 * Which service holds which published port, and which port a service gets that does not specify one.
 *
 * A1: a published port belongs to one service for each protocol.
 * A2: an allocated port stays as long as the service requests it with the same name, protocol and target.
 * A3: a port that a service publishes in host mode is not allocated automatically: both services would need it on the same
 *     node, and neither could be changed afterwards.
 */
import {
  PortConfig,
  PortConfig_PublishMode,
  type PortConfig_Protocol,
  type Service,
} from "../../proto/gen/messages.ts";

/** The range for services that do not specify a published port (SwarmKit's). */
export const dynamicPorts = { first: 30_000, last: 32_767 } as const;

const nothing: readonly never[] = [];

interface HeldPorts {
  readonly ingress: readonly string[];
  /** Host mode: other services may have these too. */
  readonly host: readonly string[];
}

const noPorts: HeldPorts = { ingress: nothing, host: nothing };

/** Which service holds which ingress port (A1), and which ports are used in host mode (A3). */
export class PortSpace {
  readonly #owners = new Map<string, string>();
  readonly #held = new Map<string, HeldPorts>();
  /** By port: number of services that publish it in host mode. */
  readonly #hosts = new Map<string, number>();
  readonly #next = new Map<PortConfig_Protocol, number>();

  /** Number of ingress ports held. */
  get count(): number {
    return this.#owners.size;
  }

  owner(protocol: PortConfig_Protocol, port: number): string | undefined {
    return this.#owners.get(keyOf(protocol, port));
  }

  /**
   * Records the service's ports; ports that it no longer has are freed. True if something was freed. A port of another
   * service stays with that service.
   */
  claim(serviceId: string, ports: readonly PortConfig[]): boolean {
    const before = this.#held.get(serviceId) ?? noPorts;
    if (before === noPorts && ports.length === 0) return false;
    this.release(serviceId);
    const ingress: string[] = [];
    const host: string[] = [];
    for (const port of ports) {
      if (port.publishedPort === 0) continue;
      const key = keyOf(port.protocol, port.publishedPort);
      if (!isIngressPort(port)) {
        host.push(key);
        this.#hosts.set(key, (this.#hosts.get(key) ?? 0) + 1);
        continue;
      }
      if (this.#owners.has(key)) continue;
      this.#owners.set(key, serviceId);
      ingress.push(key);
      const isDynamic = port.publishedPort >= dynamicPorts.first && port.publishedPort <= dynamicPorts.last;
      if (isDynamic && !before.ingress.includes(key)) this.#next.set(port.protocol, port.publishedPort + 1);
    }
    if (ingress.length + host.length > 0) this.#held.set(serviceId, { ingress, host });
    return [...before.ingress, ...before.host].some((key) => !this.#owners.has(key) && !this.#hosts.has(key));
  }

  /** True if something was freed. */
  release(serviceId: string): boolean {
    const held = this.#held.get(serviceId);
    if (held === undefined) return false;
    for (const key of held.ingress) this.#owners.delete(key);
    for (const key of held.host) {
      const others = (this.#hosts.get(key) ?? 0) - 1;
      if (others > 0) this.#hosts.set(key, others);
      else this.#hosts.delete(key);
    }
    return this.#held.delete(serviceId);
  }

  /** The next free port after the one claimed last, so that a released port is not reused at once; null if none is free. */
  free(protocol: PortConfig_Protocol, taken: ReadonlySet<string>): number | null {
    const count = dynamicPorts.last - dynamicPorts.first + 1;
    const from = this.#next.get(protocol) ?? dynamicPorts.first;
    for (let step = 0; step < count; step += 1) {
      const port = dynamicPorts.first + ((from - dynamicPorts.first + step) % count);
      const key = keyOf(protocol, port);
      if (!this.#owners.has(key) && !this.#hosts.has(key) && !taken.has(key)) return port;
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

/** The service's new ports, or why they cannot be allocated. Changes nothing. */
export function decidePorts(
  service: Service,
  ports: PortSpace,
): { readonly ports: readonly PortConfig[] } | { readonly problem: string } {
  const asked = service.spec?.endpoint?.ports ?? [];
  const taken = new Set<string>();
  for (const port of asked) if (port.publishedPort !== 0) taken.add(keyOf(port.protocol, port.publishedPort));
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
  // A host-mode port is up to the node; 0 stays 0, and the node chooses.
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

/** Two services may have got the same port in a race at the edge: the second has it in its endpoint but does not hold it. */
export function holdsPorts(serviceId: string, had: readonly PortConfig[], ports: PortSpace): boolean {
  return had.every(
    (port) =>
      !isIngressPort(port) || port.publishedPort === 0 || ports.owner(port.protocol, port.publishedPort) === serviceId,
  );
}
