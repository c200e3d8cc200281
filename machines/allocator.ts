/**
 * The allocator: gives services their published ports, and lets tasks go on to the scheduler once they have what they
 * need from the cluster.
 *
 *   idle ──▶ gathering ──▶ allocating ──▶ idle | blocked | gathering
 *
 * A1: a published port belongs to one service for each protocol.
 * A2: a port given once stays while the service asks for it by the same name, protocol and target.
 * A3: a task that cannot go on says why in its status, and is looked at again when something changes that could help.
 */
import { setup } from "xstate";
import {
  Endpoint,
  EndpointSpec,
  PortConfig,
  PortConfig_PublishMode,
  TaskState,
  type Network,
  type PortConfig_Protocol,
  type Service,
  type Task,
} from "../proto/gen/messages.ts";
import { effect } from "./effect.ts";

/** The range from which ports are given to services that ask for any (SwarmKit's). */
export const dynamicPorts = { first: 30_000, last: 32_767 } as const;

/** Network drivers that exist on each node by themselves: attaching to them takes no address from the cluster. */
const nodeLocalDrivers: ReadonlySet<string> = new Set(["bridge", "host", "ipvlan", "macvlan", "null"]);

export type AllocatorEvent =
  | { readonly type: "work.arrived" }
  /** A port or a network was freed or added. */
  | { readonly type: "room.made" }
  | { readonly type: "round.due" }
  /** `blocked`: services and tasks that cannot be served now. `isPartial`: the round ended at its bound. */
  | { readonly type: "round.done"; readonly blocked: number; readonly isPartial: boolean };

export const allocatorMachine = setup({
  types: { events: {} as AllocatorEvent },
  actions: {
    /** Answered by `round.due` once the commits under way have been seen. */
    gather: effect("gather"),
    /** Serves what is queued; answered by `round.done`. */
    allocate: effect("allocate"),
    /** Puts what could not be served back into the queue. */
    retryBlocked: effect("retryBlocked"),
    reportUnexpected: effect("reportUnexpected"),
  },
  guards: {
    isPartial: (_, { isPartial }: { isPartial: boolean }) => isPartial,
    isBlocked: (_, { blocked }: { blocked: number }) => blocked > 0,
  },
}).createMachine({
  id: "allocator",
  initial: "idle",
  options: { maxIterations: 1_000 },
  on: { "*": { actions: "reportUnexpected" } },
  states: {
    idle: {
      description: "Every service has its ports and every new task may go on.",
      on: { "work.arrived": "gathering", "room.made": {} },
    },
    blocked: {
      description: "Something asks for what the cluster does not have; its tasks say what. A3",
      on: { "work.arrived": "gathering", "room.made": { target: "gathering", actions: "retryBlocked" } },
    },
    gathering: {
      description: "Services or tasks are queued; more may come with the same commits.",
      entry: "gather",
      on: { "work.arrived": {}, "room.made": { actions: "retryBlocked" }, "round.due": "allocating" },
    },
    allocating: {
      description: "Gives ports to services, then lets their tasks go on. A1, A2",
      entry: "allocate",
      on: {
        "round.done": [
          { guard: { type: "isPartial", params: ({ event }) => event }, target: "gathering" },
          { guard: { type: "isBlocked", params: ({ event }) => event }, target: "blocked" },
          { target: "idle" },
        ],
      },
    },
  },
});

/** Which service holds which ingress port (A1). */
export class PortSpace {
  readonly #owners = new Map<string, string>();
  readonly #held = new Map<string, readonly string[]>();
  readonly #next = new Map<PortConfig_Protocol, number>();

  owner(protocol: PortConfig_Protocol, port: number): string | undefined {
    return this.#owners.get(keyOf(protocol, port));
  }

  /** Records what the service has; what it had before and has no longer is free again. A port of another service stays there. */
  claim(serviceId: string, ports: readonly PortConfig[]): void {
    const before = this.#held.get(serviceId) ?? [];
    this.release(serviceId);
    const keys: string[] = [];
    for (const port of ports) {
      if (!isIngress(port) || port.publishedPort === 0) continue;
      const key = keyOf(port.protocol, port.publishedPort);
      if (this.#owners.has(key)) continue;
      this.#owners.set(key, serviceId);
      keys.push(key);
      const isDynamic = port.publishedPort >= dynamicPorts.first && port.publishedPort <= dynamicPorts.last;
      if (isDynamic && !before.includes(key)) this.#next.set(port.protocol, port.publishedPort + 1);
    }
    if (keys.length > 0) this.#held.set(serviceId, keys);
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

function isIngress(port: PortConfig): boolean {
  return port.publishMode === PortConfig_PublishMode.INGRESS;
}

export type EndpointDecision =
  /** The service's stored endpoint is what it asks for. */
  | { readonly kind: "allocated" }
  | { readonly kind: "endpoint"; readonly endpoint: Endpoint }
  | { readonly kind: "blocked"; readonly reason: string };

/** What the service's endpoint has to be. Changes nothing: the caller claims what it decides to write. */
export function decideEndpoint(service: Service, ports: PortSpace): EndpointDecision {
  const spec = service.spec?.endpoint ?? null;
  const asked = spec?.ports ?? [];
  const had = service.endpoint;
  if (asked.length === 0 && (had === null || had.ports.length === 0)) return { kind: "allocated" };
  if (
    had !== null &&
    had.ports.length === asked.length &&
    isSameSpec(had.spec, spec) &&
    holdsAll(service.id, had.ports, ports)
  ) {
    return { kind: "allocated" };
  }
  const taken = new Set<string>();
  for (const port of asked)
    if (isIngress(port) && port.publishedPort !== 0) taken.add(keyOf(port.protocol, port.publishedPort));
  const given: PortConfig[] = [];
  for (const port of asked) {
    const published = publishedFor(service, port, ports, taken);
    if (typeof published === "string") return { kind: "blocked", reason: published };
    taken.add(keyOf(port.protocol, published));
    given.push(published === port.publishedPort ? port : PortConfig.patch(port, { publishedPort: published }));
  }
  return { kind: "endpoint", endpoint: Endpoint.create({ spec, ports: given, virtualIps: had?.virtualIps ?? [] }) };
}

/** The number, or why there is none. */
function publishedFor(
  service: Service,
  port: PortConfig,
  ports: PortSpace,
  taken: ReadonlySet<string>,
): number | string {
  // A port on the node itself is the node's affair; 0 stays 0 and the node chooses.
  if (!isIngress(port)) return port.publishedPort;
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
  return isIngress(a) && a.name === b.name && a.protocol === b.protocol && a.targetPort === b.targetPort;
}

function isSameSpec(a: EndpointSpec | null, b: EndpointSpec | null): boolean {
  if (a === null || b === null) return a === b;
  const [left, right] = [EndpointSpec.encode(a), EndpointSpec.encode(b)];
  return left.length === right.length && left.every((byte, at) => byte === right[at]);
}

/** Two services may have been given one port by a race at the edge: the second has it in its endpoint, but does not hold it. */
function holdsAll(serviceId: string, had: readonly PortConfig[], ports: PortSpace): boolean {
  return had.every(
    (port) =>
      !isIngress(port) || port.publishedPort === 0 || ports.owner(port.protocol, port.publishedPort) === serviceId,
  );
}

export type TaskDecision =
  /** May go on; with the endpoint to write, if that has changed. */
  | { readonly kind: "ready"; readonly endpoint: Endpoint | null }
  /** Waits for its service's ports, which are being written. */
  | { readonly kind: "later" }
  | { readonly kind: "blocked"; readonly reason: string }
  /** Nobody wants it any more. */
  | { readonly kind: "unwanted" };

/** What a NEW task may do. `serviceEndpoint`: what was decided about its service's ports. */
export function decideTask(
  task: Task,
  service: Service | undefined,
  networkOf: (idOrName: string) => Network | undefined,
  serviceEndpoint: EndpointDecision,
): TaskDecision {
  if (task.desiredState > TaskState.COMPLETE) return { kind: "unwanted" };
  for (const { target } of task.spec?.networks ?? []) {
    const network = networkOf(target);
    if (network === undefined) return { kind: "blocked", reason: `network ${target} does not exist` };
    const driver = network.driverState?.name ?? network.spec?.driverConfig?.name ?? "";
    if (!nodeLocalDrivers.has(driver)) {
      const name = network.spec?.annotations?.name ?? target;
      return {
        kind: "blocked",
        reason: `network ${name} cannot be attached: this cluster does not allocate network addresses yet`,
      };
    }
  }
  if (service === undefined) return { kind: "ready", endpoint: null };
  switch (serviceEndpoint.kind) {
    case "blocked":
      return { kind: "blocked", reason: serviceEndpoint.reason };
    case "endpoint":
      return { kind: "later" };
    case "allocated":
      return { kind: "ready", endpoint: (service.endpoint?.ports.length ?? 0) === 0 ? null : service.endpoint };
  }
}
